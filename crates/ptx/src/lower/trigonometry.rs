//! Sine and cosine of fp32, over the whole range.
//!
//! An argument is reduced modulo pi/2, a small one by three multiplications. A branch reduces a
//! large one by a window of 2/pi (Payne and Hanek, "Radian Reduction for Trigonometric Functions",
//! 1983).

use super::Lowering;
use super::builder::{Builder, Scalar, Width};
use super::float::{Float, f32_constant};
use super::integer::{Bitwise, integer};
use super::math32::{F32, SHIFTER};
use crate::isa::{self, BoundMode, BranchTarget, Comparison, Rounding, ScalarType, ShiftDirection};

const SIGN: u64 = 0x8000_0000;
/// The largest argument that three multiplications reduce exactly enough.
const LARGEST_SMALL_ANGLE: f32 = 71_476.0;
/// The bits of 2/pi after its point, after a word of zeros.
const TWO_OVER_PI: [u64; 7] =
    [0, 0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041];

impl Lowering<'_> {
    /// Returns sin(x + quarter * pi/2) within 2 ulp; NaN for infinities.
    pub(super) fn sine(&mut self, x: Scalar, quarter: u64) -> Scalar {
        let builder = &mut self.builder;
        let small = builder.sine_small(x, quarter);
        let a = builder.float_source(F32, x);
        let size = builder.pure(Width::B32, |d| isa::Abs { ftz: false, ty: ScalarType::F32, d, a });
        let is_large = builder.float_compare(F32, Comparison::Gt, size, f32_constant(LARGEST_SMALL_ANGLE));
        let is_finite = builder.float_compare(F32, Comparison::Lt, size, f32_constant(f32::INFINITY));
        let is_large = builder.and(is_large, is_finite);
        let result = builder.fresh(Width::B32);
        builder.assign(Width::B32, result, small);
        let skips = builder.predicate(is_large.plus(Width::Pred, 1));
        let end = builder.label("small");
        builder.emit_if(Some(skips), isa::Bra { uniform: false, target: BranchTarget(end) });
        let (r, quadrant) = builder.reduce_large(x);
        let large = builder.sine_of_remainder(r, quadrant, quarter);
        builder.assign(Width::B32, result, large);
        builder.place(end);
        result.into()
    }
}

impl Builder {
    /// Returns a large x modulo pi/2. Also returns a number whose low two bits are the quadrant.
    fn reduce_large(&mut self, x: Scalar) -> (Scalar, Scalar) {
        let word = Width::B32;
        // x is 2^(exponent - 31) times an integer of 32 bits. 96 bits of 2/pi from position
        // exponent - 32 give the quadrant and 62 bits of the fraction.
        let biased = self.shr(word, false, x, 23);
        let biased = self.bitwise(Bitwise::And, word, biased, Scalar::constant(0xff));
        let place = biased.plus(word, 128_u64.wrapping_neg());
        let mantissa = self.shl(word, x, 8);
        let mantissa = self.bitwise(Bitwise::Or, word, mantissa, Scalar::constant(SIGN));
        let window = self.window(place);
        // The product modulo 4 has 96 bits. The upper two are the integer part.
        let mantissa = self.register(word, mantissa);
        let [low, middle, high] = [2, 1, 0].map(|index| self.product(mantissa.into(), window[index]));
        let carry = self.shr(Width::B64, false, low, 32);
        let middle = self.add(Width::B64, middle, carry);
        let carry = self.shr(Width::B64, false, middle, 32);
        let high = self.add(Width::B64, high, carry);
        let high = self.shl(Width::B64, high, 32);
        let middle = self.bitwise(Bitwise::And, Width::B64, middle, Scalar::constant(0xffff_ffff));
        let turns = self.bitwise(Bitwise::Or, Width::B64, high, middle);
        let fraction = self.shl(Width::B64, turns, 2);
        let quadrant = self.shr(Width::B64, false, turns, 62);
        // A fraction above one half becomes a negative one in the next quadrant.
        let rounded = self.shr(Width::B64, false, fraction, 63);
        let quadrant = self.add(Width::B64, quadrant, rounded);
        let quadrant = self.low_word(quadrant);
        let (f64_ty, f32_ty) = ((Width::B64, ScalarType::F64), (word, ScalarType::F32));
        let signed = (Width::B64, integer(Width::B64, true));
        let r = self.float_convert(f64_ty, signed, Some(Rounding::Rn), fraction);
        let unit = std::f64::consts::FRAC_PI_2 / 18_446_744_073_709_551_616.0;
        let r = self.mul_rn(Float::F64, r, Float::F64.constant(unit));
        let r = self.float_convert(f32_ty, f64_ty, Some(Rounding::Rn), r);
        let sign = self.bitwise(Bitwise::And, word, x, Scalar::constant(SIGN));
        let r = self.bitwise(Bitwise::Xor, word, r, sign);
        let is_negative = self.compare(word, true, Comparison::Ne, sign, Scalar::constant(0));
        let minus = self.sub(word, Scalar::constant(0), quadrant);
        (r, self.select(word, is_negative, minus, quadrant))
    }

    /// Returns three words of [`TWO_OVER_PI`] from the bit `place` on.
    fn window(&mut self, place: Scalar) -> [Scalar; 3] {
        let word = Width::B32;
        let [one, two] = [32, 64].map(|bit| {
            let bits = self.bitwise(Bitwise::And, word, place, Scalar::constant(bit));
            self.compare(word, true, Comparison::Ne, bits, Scalar::constant(0))
        });
        let words = [0, 1, 2, 3].map(|index| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|skipped| Scalar::constant(TWO_OVER_PI[index + skipped]));
            let (low, high) = (self.select(word, one, b, a), self.select(word, one, d, c));
            self.select(word, two, high, low)
        });
        let c = self.source(word, place);
        [0, 1, 2].map(|index| {
            let (a, b) = (self.source(word, words[index + 1]), self.source(word, words[index]));
            self.pure(word, |d| isa::Shf {
                direction: ShiftDirection::Left,
                mode: BoundMode::Wrap,
                ty: ScalarType::B32,
                d,
                a,
                b,
                c,
            })
        })
    }

    /// Returns the 64-bit product of two words.
    fn product(&mut self, a: Scalar, b: Scalar) -> Scalar {
        let (a, b) = (self.source(Width::B32, a), self.source(Width::B32, b));
        self.pure(Width::B64, |d| isa::Mul {
            mode: Some(isa::MultiplyMode::Wide),
            rounding: None,
            ftz: false,
            saturate: false,
            ty: ScalarType::U32,
            d,
            a,
            b,
        })
    }

    /// Returns sin(x + quarter * pi/2) within 1.6 ulp for |x| up to 71,476.
    fn sine_small(&mut self, x: Scalar, quarter: u64) -> Scalar {
        let turns = self.mul_rn(F32, x, f32_constant(std::f32::consts::FRAC_2_PI));
        let shifted = self.add_rn(F32, turns, f32_constant(SHIFTER));
        let n = self.sub_rn(F32, shifted, f32_constant(SHIFTER));
        let mut r = x;
        for part in [-1.570_796_01, -3.139_164_73e-7, -5.390_302_53e-15] {
            r = self.fma(F32, n, F32.constant(part), r);
        }
        let result = self.sine_of_remainder(r, shifted, quarter);
        if quarter == 0 {
            // The reduction would lose the sign of zero.
            let is_zero = self.float_compare(F32, Comparison::Eq, x, f32_constant(0.0));
            return self.select(Width::B32, is_zero, x, result);
        }
        result
    }

    /// Returns sin(r + (quadrant + quarter) * pi/2). Only the low two bits of the sum count.
    fn sine_of_remainder(&mut self, r: Scalar, quadrant: Scalar, quarter: u64) -> Scalar {
        let s = self.mul_rn(F32, r, r);
        let sin =
            self.polynomial(F32, s, [2.865_679_56e-6, -1.985_599_23e-4, 8.333_385_88e-3, -1.666_666_72e-1]);
        let cube = self.mul_rn(F32, r, s);
        let sin = self.fma(F32, sin, cube, r);
        let cos = self.polynomial(F32, s, [2.446_770_67e-5, -1.388_772_97e-3, 4.166_665_67e-2, -0.5, 1.0]);
        let quadrant = self.add(Width::B32, quadrant, Scalar::constant(quarter));
        let odd = self.bitwise(Bitwise::And, Width::B32, quadrant, Scalar::constant(1));
        let is_sine = self.compare(Width::B32, true, Comparison::Eq, odd, Scalar::constant(0));
        let result = self.select(Width::B32, is_sine, sin, cos);
        let half_turns = self.shl(Width::B32, quadrant, 30);
        let flip = self.bitwise(Bitwise::And, Width::B32, half_turns, Scalar::constant(SIGN));
        self.bitwise(Bitwise::Xor, Width::B32, result, flip)
    }
}
