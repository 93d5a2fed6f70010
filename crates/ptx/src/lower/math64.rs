//! Transcendental functions of binary64, as the CPU's are: polynomials, each with its largest error in units in the last
//! place. Products and sums say `.rn`: the assembler contracts nothing.
#![expect(clippy::many_single_char_names, reason = "formulas are read in their usual letters")]

use tilewright_ir::ElementwiseFn as F;

use super::Lowering;
use super::builder::{Builder, Scalar, Width};
use super::float::{Binary, Float};
use super::integer::Bitwise;
use crate::isa::{self, Comparison, ScalarType};

const F64: Float = Float::F64;
/// 1.5 * 2^52: adding it rounds to an integer, which is then in the low bits.
const SHIFTER: f64 = 6_755_399_441_055_744.0;
/// ln 2 in two parts, of which the first has zeros at its end.
const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];

fn constant(value: f64) -> Scalar {
    Scalar::constant(value.to_bits())
}

impl Lowering<'_> {
    /// A function of binary64; none if it is not supported.
    pub(super) fn math64(&mut self, function: F, x: &[Scalar]) -> Option<Scalar> {
        let builder = &mut self.builder;
        Some(match function {
            F::Exp => builder.exp64(x[0]),
            F::Exp2 => builder.exp2_64(x[0]),
            F::Log => builder.log64(x[0]),
            F::Log2 => builder.log2_64(x[0]),
            F::Rsqrt => {
                let root = builder.sqrt_rn(F64, x[0]);
                builder.divide(F64, true, constant(1.0), root)
            }
            F::Tanh => builder.tanh64(x[0]),
            // tidy: wildcard because the other functions are elsewhere or not supported.
            _ => return None,
        })
    }
}

impl Builder {
    /// x between two bounds; NaN stays.
    fn clamp64(&mut self, x: Scalar, low: f64, high: f64) -> Scalar {
        let is_below = self.float_compare(F64, Comparison::Lt, x, constant(low));
        let x = self.select(Width::B64, is_below, constant(low), x);
        let is_above = self.float_compare(F64, Comparison::Gt, x, constant(high));
        self.select(Width::B64, is_above, constant(high), x)
    }

    /// The nearest integer, as a number and as an integer. |x| is below 2^51.
    fn round64(&mut self, x: Scalar) -> (Scalar, Scalar) {
        let shifted = self.add_rn(F64, x, constant(SHIFTER));
        let n = self.sub_rn(F64, shifted, constant(SHIFTER));
        (n, self.sub(Width::B64, shifted, constant(SHIFTER)))
    }

    /// 2^exponent of a normal number.
    fn power64(&mut self, exponent: Scalar) -> Scalar {
        let biased = exponent.plus(Width::B64, 1023);
        self.shl(Width::B64, biased, 52)
    }

    /// x * 2^exponent in two steps, so that a subnormal result is rounded once.
    fn scale64(&mut self, x: Scalar, exponent: Scalar) -> Scalar {
        let half = self.shr(Width::B64, true, exponent, 1);
        let rest = self.sub(Width::B64, exponent, half);
        let (half, rest) = (self.power64(half), self.power64(rest));
        let scaled = self.mul_rn(F64, x, half);
        self.mul_rn(F64, scaled, rest)
    }

    /// (e^r - 1 - r) / r^2 for |r| up to 0.35: the Taylor series, whose rest is below 2^-57.
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

    /// e^r - 1 for |r| up to 0.35.
    fn exp_minus_1(&mut self, r: Scalar) -> Scalar {
        let tail = self.exp_tail64(r);
        let square = self.mul_rn(F64, r, r);
        self.fma(F64, tail, square, r)
    }

    /// x = n * ln 2 + r: r and n.
    fn reduce_exp64(&mut self, x: Scalar) -> (Scalar, Scalar) {
        let turns = self.mul_rn(F64, x, constant(std::f64::consts::LOG2_E));
        let (n, exponent) = self.round64(turns);
        let r = self.fma(F64, n, constant(-LN_2[0]), x);
        (self.fma(F64, n, constant(-LN_2[1]), r), exponent)
    }

    /// e^x within 1 ulp.
    fn exp64(&mut self, x: Scalar) -> Scalar {
        let x = self.clamp64(x, -746.0, 710.0);
        let (r, exponent) = self.reduce_exp64(x);
        let p = self.exp_minus_1(r);
        let p = self.add_rn(F64, p, constant(1.0));
        self.scale64(p, exponent)
    }

    /// 2^x within 1 ulp.
    fn exp2_64(&mut self, x: Scalar) -> Scalar {
        let x = self.clamp64(x, -1076.0, 1025.0);
        let (n, exponent) = self.round64(x);
        let r = self.sub_rn(F64, x, n);
        let r = self.mul_rn(F64, r, constant(std::f64::consts::LN_2));
        let p = self.exp_minus_1(r);
        let p = self.add_rn(F64, p, constant(1.0));
        self.scale64(p, exponent)
    }

    /// A positive x as 2^exponent * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), and log(1 + f) - f + f^2/2 as a
    /// fraction of the remaining terms: the exponent, f, s * (f^2/2 + R), f^2/2.
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

    /// The natural logarithm within 1 ulp; NaN below 0, -inf at both zeros.
    fn log64(&mut self, x: Scalar) -> Scalar {
        let [exponent, f, rest, half_square] = self.split64(x);
        let low = self.fma(F64, exponent, constant(LN_2[1]), rest);
        let low = self.sub_rn(F64, low, half_square);
        let low = self.add_rn(F64, low, f);
        let result = self.fma(F64, exponent, constant(LN_2[0]), low);
        self.log_special(F64, x, result)
    }

    /// The binary logarithm within 1 ulp, exact at powers of two; NaN below 0, -inf at both zeros.
    fn log2_64(&mut self, x: Scalar) -> Scalar {
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

    /// The hyperbolic tangent within 3 ulp: with u = e^(-2|x|) - 1, tanh |x| = -u / (2 + u).
    fn tanh64(&mut self, x: Scalar) -> Scalar {
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
}
