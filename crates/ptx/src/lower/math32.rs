//! Transcendental functions of fp32.
//!
//! Exponentials use `ex2.approx`; only `exp32` reduces its argument first. The hardware's
//! logarithm, sine, cosine and hyperbolic tangent have only absolute error bounds. So polynomials
//! compute these functions, as on the CPU. Most functions state their largest error in ulp, units
//! in the last place. Multiplications and additions have `.rn`, so the assembler contracts nothing.
#![expect(clippy::many_single_char_names, reason = "formulas are read in their usual letters")]

use super::builder::{Builder, Scalar, Width};
use super::float::{Float, f32_constant};
use super::integer::Bitwise;
use super::value_ranges::FloatRange;
use crate::isa::{self, Comparison, Rounding, ScalarType};

pub(super) const F32: Float = Float::F32;
/// The difference between log2(e) and its fp32 approximation.
const LOG2_E_LOW: f32 = 1.925_963e-8;
/// 1.5 * 2^23: adding it rounds to an integer, in the low bits.
pub(super) const SHIFTER: f32 = 12_582_912.0;

impl Builder {
    /// Returns the square root by the hardware.
    pub(super) fn sqrt32(&mut self, x: Scalar) -> Scalar {
        let (approx, rounding, ftz, ty) = (true, None, false, ScalarType::F32);
        let a = self.float_source(F32, x);
        self.pure(Width::B32, |d| isa::Sqrt { approx, rounding, ftz, ty, d, a })
    }

    /// Returns 1 / sqrt(x) by the hardware.
    pub(super) fn rsqrt32(&mut self, x: Scalar) -> Scalar {
        let a = self.float_source(F32, x);
        self.pure(Width::B32, |d| isa::Rsqrt { approx: true, ftz: false, ty: ScalarType::F32, d, a })
    }

    /// Returns 1 / x by the hardware, within 1 ulp. Subnormal results become 0, and subnormal
    /// arguments give infinity.
    pub(super) fn reciprocal32(&mut self, x: Scalar) -> Scalar {
        let (approx, rounding, ftz, ty) = (true, None, true, ScalarType::F32);
        let a = self.float_source(F32, x);
        self.pure(Width::B32, |d| isa::Rcp { approx, rounding, ftz, ty, d, a })
    }

    /// Returns 2^x by the hardware, within 2 ulp. Subnormal arguments and results become 0, which
    /// saves three instructions.
    pub(super) fn ex2(&mut self, x: Scalar) -> Scalar {
        let a = self.float_source(F32, x);
        self.pure(Width::B32, |d| isa::Ex2 { approx: true, ftz: true, ty: ScalarType::F32, d, a })
    }

    /// Returns e^x, the square of 2^(x log2(e) / 2), within 7 + 1.25 |x| ulp. The error is twice
    /// the power's, plus that of the rounded product. The square of a normal power may be
    /// subnormal.
    pub(super) fn fast_exp32(&mut self, x: Scalar) -> Scalar {
        let half = self.mul_rn(F32, x, f32_constant(std::f32::consts::LOG2_E / 2.0));
        let root = self.ex2(half);
        self.mul_rn(F32, root, root)
    }

    /// Returns e^x within 2 ulp, as 2^n * 2^f. n is x log2(e) rounded down and clamped to -126 …
    /// 126, and f is x log2(e) - n. If n is clamped, |f| is large: the hardware overflows, or
    /// yields a small number that becomes subnormal in the last multiplication. NaN propagates
    /// through f.
    pub(super) fn exp32(&mut self, x: Scalar) -> Scalar {
        // t is x log2(e) / 252 + 0.5, clamped to 0 … 1. So n + 126 is floor(252 t).
        let log2_e = f32_constant(std::f32::consts::LOG2_E);
        let scale = f32_constant(std::f32::consts::LOG2_E / 252.0);
        let t = self.fma_with(F32, Rounding::Rn, true, [x, scale, f32_constant(0.5)]);
        // The low bits of the sum are n + 127.
        let shifted =
            self.fma_with(F32, Rounding::Rm, false, [t, f32_constant(252.0), f32_constant(SHIFTER + 1.0)]);
        let n = self.sub_rn(F32, shifted, f32_constant(SHIFTER + 127.0));
        let minus_n = self.float_negate(F32, n);
        let f = self.fma(F32, x, log2_e, minus_n);
        let f = self.fma(F32, x, f32_constant(LOG2_E_LOW), f);
        let power = self.ex2(f);
        let scale = self.shl(Width::B32, shifted, 23);
        self.mul_rn(F32, power, scale)
    }

    fn absolute32(&mut self, x: Scalar) -> Scalar {
        let a = self.float_source(F32, x);
        self.pure(Width::B32, |d| isa::Abs { ftz: false, ty: ScalarType::F32, d, a })
    }

    /// Evaluates a polynomial by Horner's rule, the highest coefficient first.
    pub(super) fn polynomial<const N: usize>(
        &mut self,
        float: Float,
        x: Scalar,
        coefficients: [f64; N],
    ) -> Scalar {
        let mut sum = float.constant(coefficients[0]);
        for &coefficient in &coefficients[1..] {
            sum = self.fma(float, sum, x, float.constant(coefficient));
        }
        sum
    }

    /// Splits a positive x into 2^exponent * (1 + m) with m in [-1/3, 1/3]. Returns the fp32
    /// exponent, and m.
    fn split32(&mut self, x: Scalar) -> (Scalar, Scalar) {
        let is_subnormal =
            if self.float_range(x).is_some_and(|range| range.is_normal || range.low >= f32::MIN_POSITIVE) {
                Scalar::FALSE
            } else {
                self.float_compare(F32, Comparison::Lt, x, f32_constant(f32::MIN_POSITIVE))
            };
        let scaled = self.mul_rn(F32, x, f32_constant(8_388_608.0));
        let x = self.select(Width::B32, is_subnormal, scaled, x);
        let bias = self.select(Width::B32, is_subnormal, f32_constant(-23.0), f32_constant(0.0));
        let above = self.sub(Width::B32, x, Scalar::constant(0x3f2a_aaab));
        let exponent = self.bitwise(Bitwise::And, Width::B32, above, Scalar::constant(0xff80_0000));
        let mantissa = self.sub(Width::B32, x, exponent);
        let m = self.add_rn(F32, mantissa, f32_constant(-1.0));
        let (float, int) = ((Width::B32, ScalarType::F32), (Width::B32, ScalarType::S32));
        // The exponent times 2^23, exact.
        let shifted = self.float_convert(float, int, Some(Rounding::Rn), exponent);
        (self.fma(F32, shifted, f32_constant(2.0_f32.powi(-23)), bias), m)
    }

    /// Replaces the result of a logarithm if x is not a positive finite number.
    pub(super) fn log_special(&mut self, float: Float, x: Scalar, result: Scalar) -> Scalar {
        let width = float.width();
        let range = if float == F32 { self.float_range(x) } else { None };
        let infinity = float.constant(f64::INFINITY);
        let result = if range.is_some_and(|range| range.low >= 0.0 && range.high < f32::INFINITY) {
            result
        } else {
            // True for infinity, NaN and numbers with a sign.
            let is_special = self.compare(width, false, Comparison::Ge, x, infinity);
            let special = self.fma(float, x, infinity, infinity);
            self.select(width, is_special, special, result)
        };
        if range.is_some_and(|range| range.low > 0.0) {
            return result;
        }
        let is_zero = self.float_compare(float, Comparison::Eq, x, float.constant(0.0));
        self.select(width, is_zero, float.constant(f64::NEG_INFINITY), result)
    }

    /// Returns the natural logarithm within 1 ulp; NaN below 0, -inf at both zeros.
    pub(super) fn log32(&mut self, x: Scalar) -> Scalar {
        let (exponent, m) = self.split32(x);
        let s = self.mul_rn(F32, m, m);
        let r = self.polynomial(F32, s, [-0.130_310_059, -0.121_483_512, -0.166_846_126, -0.249_996_200]);
        let t = self.polynomial(F32, s, [0.140_869_141, 0.139_814_854, 0.200_120_345]);
        let r = self.fma(F32, t, m, r);
        let r = self.fma(F32, r, m, F32.constant(0.333_331_972));
        let r = self.fma(F32, r, m, f32_constant(-0.5));
        let r = self.fma(F32, r, s, m);
        let result = self.fma(F32, exponent, f32_constant(std::f32::consts::LN_2), r);
        let result = self.log_special(F32, x, result);
        let range = self.float_range(x).and_then(FloatRange::log);
        self.note_float_range(result, range);
        result
    }

    /// Returns the binary logarithm within 1.5 ulp, exact at powers of two. The logarithm is NaN
    /// below 0, -inf at both zeros.
    pub(super) fn log2_32(&mut self, x: Scalar) -> Scalar {
        let (exponent, m) = self.split32(x);
        let q = self.polynomial(
            F32,
            m,
            [
                0.175_442_35,
                -0.188_057_21,
                0.154_517_92,
                -0.175_210_04,
                0.206_433_19,
                -0.240_703_69,
                0.288_530_62,
                -0.360_668_7,
                0.480_898_4,
                -0.721_347_6,
            ],
        );
        let low = self.mul_rn(F32, m, f32_constant(LOG2_E_LOW));
        let square = self.mul_rn(F32, m, m);
        let low = self.fma(F32, square, q, low);
        let r = self.fma(F32, m, f32_constant(std::f32::consts::LOG2_E), low);
        let result = self.add_rn(F32, exponent, r);
        self.log_special(F32, x, result)
    }

    /// Returns x, whose sign bit is 0, with the sign of another number.
    pub(super) fn with_sign_of(&mut self, float: Float, x: Scalar, sign: Scalar) -> Scalar {
        let width = float.width();
        let mask = Scalar::constant(1 << (width.bits() - 1));
        let sign = self.bitwise(Bitwise::And, width, sign, mask);
        self.bitwise(Bitwise::Or, width, x, sign)
    }

    /// Returns the hyperbolic tangent within 4 ulp. It is ±(1 - 2 / (e^(2|x|) + 1)), or a
    /// polynomial near zero.
    pub(super) fn tanh32(&mut self, x: Scalar) -> Scalar {
        let t = self.absolute32(x);
        let s = self.mul_rn(F32, x, x);
        // For |x| above 0.55, the reciprocal is at most a quarter, so the errors are small.
        let exponent = self.mul_rn(F32, t, f32_constant(2.0 * std::f32::consts::LOG2_E));
        let power = self.ex2(exponent);
        let above = self.add_rn(F32, power, f32_constant(1.0));
        let tail = self.reciprocal32(above);
        let large = self.fma(F32, tail, f32_constant(-2.0), f32_constant(1.0));
        let p =
            self.polynomial(F32, s, [1.573_944_09e-2, -5.230_255_80e-2, 1.331_524_70e-1, -3.333_276_81e-1]);
        let p = self.mul_rn(F32, p, s);
        let small = self.fma(F32, p, t, t);
        let is_large = self.float_compare(F32, Comparison::Gt, t, f32_constant(0.55));
        let result = self.select(Width::B32, is_large, large, small);
        self.with_sign_of(F32, result, x)
    }

    /// Returns the error function within 2 ulp.
    pub(super) fn erf32(&mut self, x: Scalar) -> Scalar {
        let t = self.absolute32(x);
        let s = self.mul_rn(F32, x, x);
        // The binary logarithm of 1 - erf(t), below -2.4 where it is used.
        let scaled = |coefficient: f64| coefficient * std::f64::consts::LOG2_E;
        let r = self.polynomial(F32, t, [-1.728_534_70e-5, 3.831_971_26e-4].map(scaled));
        let u = self.polynomial(F32, t, [-3.883_964_38e-3, 2.425_462_19e-2].map(scaled));
        let mut r = self.fma(F32, r, s, u);
        for coefficient in [-1.067_778_77e-1, -6.348_466_87e-1, -1.128_717_512].map(scaled) {
            r = self.fma(F32, r, t, F32.constant(coefficient));
        }
        let r = self.mul_rn(F32, r, t);
        let power = self.ex2(r);
        let tail = self.sub_rn(F32, f32_constant(1.0), power);
        // Above 4, the result is 1. The polynomial is not valid there.
        let is_one = self.float_compare(F32, Comparison::Gt, t, f32_constant(4.0));
        let tail = self.select(Width::B32, is_one, f32_constant(1.0), tail);
        let large = self.with_sign_of(F32, tail, x);
        let p = self.polynomial(
            F32,
            s,
            [
                -5.967_617_03e-4,
                4.991_194_23e-3,
                -2.676_813_49e-2,
                1.128_199_25e-1,
                -3.761_253_36e-1,
                1.283_791_66e-1,
            ],
        );
        let small = self.fma(F32, p, x, x);
        let is_large = self.float_compare(F32, Comparison::Gt, t, f32_constant(0.927_734_4));
        self.select(Width::B32, is_large, large, small)
    }
}
