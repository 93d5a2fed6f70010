//! Transcendental functions of fp64, by the same polynomials as on the CPU. Each function states
//! its largest error in ulp, units in the last place. Multiplications and additions have `.rn`, so
//! the assembler contracts nothing.
#![expect(clippy::many_single_char_names, reason = "formulas are read in their usual letters")]

use super::builder::{Builder, Scalar, Width};
use super::float::{Binary, Float};
use super::integer::Bitwise;
use crate::isa::{self, Comparison, ScalarType};

const F64: Float = Float::F64;
/// 1.5 * 2^52: adding it rounds to an integer, in the low bits.
const SHIFTER: f64 = 6_755_399_441_055_744.0;
/// ln 2 as the sum of two parts. The first part ends with zeros.
const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
/// log(1 - erf(t)) / -t - 1 as a polynomial of -t, for t in 15/16 … 6.
const ERF_EXPONENT: [f64; 18] = [
    1.671_664_622_795_728_5e-12,
    7.349_861_720_084_448e-11,
    1.513_522_559_406_012e-9,
    1.938_683_904_206_890_2e-8,
    1.728_172_433_126_877_6e-7,
    1.134_003_035_993_147_4e-6,
    5.626_798_357_738_986e-6,
    2.115_959_213_721_077_4e-5,
    5.815_749_593_914_848e-5,
    9.986_452_283_762_656e-5,
    8.103_350_362_309_062e-6,
    -5.655_626_075_065_34e-4,
    -1.683_622_723_978_877_8e-3,
    -2.053_089_060_489_089_6e-4,
    1.912_865_227_642_619_4e-2,
    1.027_722_217_004_626_6e-1,
    -6.366_199_277_003_507e-1,
    1.283_791_459_971_859_2e-1,
];

fn constant(value: f64) -> Scalar {
    Scalar::constant(value.to_bits())
}

impl Builder {
    /// Clamps x between two bounds; NaN propagates.
    fn clamp64(&mut self, x: Scalar, low: f64, high: f64) -> Scalar {
        let is_below = self.float_compare(F64, Comparison::Lt, x, constant(low));
        let x = self.select(Width::B64, is_below, constant(low), x);
        let is_above = self.float_compare(F64, Comparison::Gt, x, constant(high));
        self.select(Width::B64, is_above, constant(high), x)
    }

    /// Returns the nearest integer as fp64 and as 64-bit integer. |x| must be below 2^51.
    fn round64(&mut self, x: Scalar) -> (Scalar, Scalar) {
        let shifted = self.add_rn(F64, x, constant(SHIFTER));
        let n = self.sub_rn(F64, shifted, constant(SHIFTER));
        (n, self.sub(Width::B64, shifted, constant(SHIFTER)))
    }

    /// Returns 2^exponent, a normal number.
    fn power64(&mut self, exponent: Scalar) -> Scalar {
        let biased = exponent.plus(Width::B64, 1023);
        self.shl(Width::B64, biased, 52)
    }

    /// Returns x * 2^exponent in two steps, so that a subnormal result is rounded once.
    fn scale64(&mut self, x: Scalar, exponent: Scalar) -> Scalar {
        let half = self.shr(Width::B64, true, exponent, 1);
        let rest = self.sub(Width::B64, exponent, half);
        let (half, rest) = (self.power64(half), self.power64(rest));
        let scaled = self.mul_rn(F64, x, half);
        self.mul_rn(F64, scaled, rest)
    }

    /// Returns (e^r - 1 - r) / r^2 for |r| up to 0.35. The Taylor series has a remainder below
    /// 2^-57.
    fn exp_tail64(&mut self, r: Scalar) -> Scalar {
        self.polynomial(
            F64,
            r,
            [
                1.0 / 6_227_020_800.0,
                1.0 / 479_001_600.0,
                1.0 / 39_916_800.0,
                1.0 / 3_628_800.0,
                1.0 / 362_880.0,
                1.0 / 40_320.0,
                1.0 / 5_040.0,
                1.0 / 720.0,
                1.0 / 120.0,
                1.0 / 24.0,
                1.0 / 6.0,
                0.5,
            ],
        )
    }

    /// Returns e^r - 1 for |r| up to 0.35.
    fn exp_minus_1(&mut self, r: Scalar) -> Scalar {
        let tail = self.exp_tail64(r);
        let square = self.mul_rn(F64, r, r);
        self.fma(F64, tail, square, r)
    }

    /// Splits x = n * ln 2 + r: returns r and n.
    fn reduce_exp64(&mut self, x: Scalar) -> (Scalar, Scalar) {
        let turns = self.mul_rn(F64, x, constant(std::f64::consts::LOG2_E));
        let (n, exponent) = self.round64(turns);
        let r = self.fma(F64, n, constant(-LN_2[0]), x);
        (self.fma(F64, n, constant(-LN_2[1]), r), exponent)
    }

    /// Returns e^x within 1 ulp.
    pub(super) fn exp64(&mut self, x: Scalar) -> Scalar {
        let x = self.clamp64(x, -746.0, 710.0);
        let (r, exponent) = self.reduce_exp64(x);
        let p = self.exp_minus_1(r);
        let p = self.add_rn(F64, p, constant(1.0));
        self.scale64(p, exponent)
    }

    /// Returns 2^x within 1 ulp.
    pub(super) fn exp2_64(&mut self, x: Scalar) -> Scalar {
        let x = self.clamp64(x, -1076.0, 1025.0);
        let (n, exponent) = self.round64(x);
        let r = self.sub_rn(F64, x, n);
        let r = self.mul_rn(F64, r, constant(std::f64::consts::LN_2));
        let p = self.exp_minus_1(r);
        let p = self.add_rn(F64, p, constant(1.0));
        self.scale64(p, exponent)
    }

    /// Splits a positive x into 2^exponent * (1 + f). 1 + f is between sqrt(1/2) and sqrt(2). With
    /// s = f / (2 + f) and a polynomial R of s^2, log(1 + f) = f - f^2/2 + s * (f^2/2 + R). Returns
    /// the exponent, f, s * (f^2/2 + R) and f^2/2.
    fn split64(&mut self, x: Scalar) -> [Scalar; 4] {
        let is_subnormal = self.float_compare(F64, Comparison::Lt, x, constant(f64::MIN_POSITIVE));
        let scaled = self.mul_rn(F64, x, constant(18_014_398_509_481_984.0));
        let x = self.select(Width::B64, is_subnormal, scaled, x);
        let bias = self.select(Width::B64, is_subnormal, constant(-54.0), constant(0.0));
        let shifted =
            self.add(Width::B64, x, Scalar::constant(0x3ff0_0000_0000_0000 - 0x3fe6_a09e_0000_0000));
        let exponent = self.shr(Width::B64, false, shifted, 52);
        let exponent = exponent.plus(Width::B64, SHIFTER.to_bits().wrapping_sub(1023));
        let exponent = self.sub_rn(F64, exponent, constant(SHIFTER));
        let exponent = self.add_rn(F64, exponent, bias);
        let mantissa = self.bitwise(Bitwise::And, Width::B64, shifted, Scalar::constant(0xf_ffff_ffff_ffff));
        let f = mantissa.plus(Width::B64, 0x3fe6_a09e_0000_0000);
        let f = self.sub_rn(F64, f, constant(1.0));
        let half = self.mul_rn(F64, f, constant(0.5));
        let half_square = self.mul_rn(F64, half, f);
        let above = self.add_rn(F64, f, constant(2.0));
        let s = self.divide(F64, true, f, above);
        let z = self.mul_rn(F64, s, s);
        let w = self.mul_rn(F64, z, z);
        let even = self.polynomial(
            F64,
            w,
            [1.531_383_769_920_937_3e-1, 2.222_219_843_214_978_4e-1, 3.999_999_999_940_942e-1],
        );
        let even = self.mul_rn(F64, w, even);
        let odd = self.polynomial(
            F64,
            w,
            [
                1.479_819_860_511_658_6e-1,
                1.818_357_216_161_805e-1,
                2.857_142_874_366_239e-1,
                6.666_666_666_666_735e-1,
            ],
        );
        let odd = self.mul_rn(F64, z, odd);
        let rest = self.add_rn(F64, even, odd);
        let rest = self.add_rn(F64, half_square, rest);
        let rest = self.mul_rn(F64, s, rest);
        [exponent, f, rest, half_square]
    }

    /// Returns the natural logarithm within 1 ulp; NaN below 0, -inf at both zeros.
    pub(super) fn log64(&mut self, x: Scalar) -> Scalar {
        let [exponent, f, rest, half_square] = self.split64(x);
        let low = self.fma(F64, exponent, constant(LN_2[1]), rest);
        let low = self.sub_rn(F64, low, half_square);
        let low = self.add_rn(F64, low, f);
        let result = self.fma(F64, exponent, constant(LN_2[0]), low);
        self.log_special(F64, x, result)
    }

    /// Returns the binary logarithm within 1 ulp, exact at powers of two. The logarithm is NaN
    /// below 0, -inf at both zeros.
    pub(super) fn log2_64(&mut self, x: Scalar) -> Scalar {
        let (log_high, log_low) = (constant(1.442_695_040_721_446_3), constant(1.675_171_316_488_651_2e-10));
        let [exponent, f, rest, half_square] = self.split64(x);
        let high = self.sub_rn(F64, f, half_square);
        let high = self.bitwise(Bitwise::And, Width::B64, high, Scalar::constant(0xffff_ffff_0000_0000));
        let low = self.sub_rn(F64, f, high);
        let low = self.sub_rn(F64, low, half_square);
        let low = self.add_rn(F64, low, rest);
        let product = self.mul_rn(F64, high, log_high);
        let sum = self.add_rn(F64, exponent, product);
        let error = self.sub_rn(F64, exponent, sum);
        let error = self.add_rn(F64, error, product);
        let both = self.add_rn(F64, low, high);
        let scaled = self.mul_rn(F64, low, log_high);
        let low = self.fma(F64, both, log_low, scaled);
        let low = self.add_rn(F64, low, error);
        let result = self.add_rn(F64, low, sum);
        self.log_special(F64, x, result)
    }

    /// Returns the hyperbolic tangent within 3 ulp. It is -u / (2 + u) for u = e^(-2|x|) - 1, with
    /// the sign of x.
    pub(super) fn tanh64(&mut self, x: Scalar) -> Scalar {
        let a = self.float_source(F64, x);
        let t = self.pure(Width::B64, |d| isa::Abs { ftz: false, ty: ScalarType::F64, d, a });
        let is_one = self.float_compare(F64, Comparison::Gt, t, constant(20.0));
        let twice = self.float_binary(Binary::Mul, F64, Some(isa::Rounding::Rn), t, constant(-2.0));
        let y = self.select(Width::B64, is_one, constant(-40.0), twice);
        let (r, exponent) = self.reduce_exp64(y);
        let p = self.exp_minus_1(r);
        let power = self.power64(exponent);
        let below = self.sub_rn(F64, power, constant(1.0));
        let u = self.fma(F64, p, power, below);
        let above = self.add_rn(F64, u, constant(2.0));
        let result = self.divide(F64, true, u, above);
        let magnitude = self.bitwise(Bitwise::And, Width::B64, result, Scalar::constant(u64::MAX >> 1));
        let result = self.with_sign_of(F64, magnitude, x);
        let is_nan = self.float_compare(F64, Comparison::Nan, x, x);
        self.select(Width::B64, is_nan, x, result)
    }

    /// Returns the error function within 1.1 ulp (largest error found: 0.97). p and q are
    /// polynomials of the least error (Remez), and t = |x|. For t up to 15/16, the result is x + x
    /// p(x^2). For a larger t, it is 1 - e^-(t + t q(t)) with the sign of x.
    pub(super) fn erf64(&mut self, x: Scalar) -> Scalar {
        let square = self.mul_rn(F64, x, x);
        let p = self.polynomial(
            F64,
            square,
            [
                -8.219_855_860_325_794e-10,
                1.392_931_593_195_262_9e-8,
                -1.625_304_401_657_608_5e-7,
                1.645_278_119_148_533_7e-6,
                -1.492_513_617_031_700_5e-5,
                1.205_531_398_964_701_4e-4,
                -8.548_326_560_019_374e-4,
                5.223_977_618_252_835e-3,
                -2.686_617_064_447_148_5e-2,
                1.128_379_167_095_199e-1,
                -3.761_263_890_318_369e-1,
                1.283_791_670_955_125_6e-1,
            ],
        );
        let small = self.fma(F64, p, x, x);
        let minus_t = self.bitwise(Bitwise::Or, Width::B64, x, Scalar::constant(1 << 63));
        // From 6 on, the end of the polynomial's range, the result is 1.
        let v = self.float_extremum(F64, true, false, minus_t, constant(-6.0));
        let q = self.polynomial(F64, v, ERF_EXPONENT);
        let exponent = self.fma(F64, q, v, v);
        let (r, exponent) = self.reduce_exp64(exponent);
        let p = self.exp_minus_1(r);
        // Adding 2^11 to the exponent sets the sign.
        let minus_power = self.power64(exponent.plus(Width::B64, 2048));
        let rest = self.add_rn(F64, minus_power, constant(1.0));
        let large = self.fma(F64, p, minus_power, rest);
        let large = self.with_sign_of(F64, large, x);
        let is_large = self.float_compare(F64, Comparison::Lt, minus_t, constant(-0.9375));
        self.select(Width::B64, is_large, large, small)
    }
}
