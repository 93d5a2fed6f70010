//! Sine and cosine of fp64, over the whole range.
//!
//! An argument is reduced modulo pi/2, a small one by three multiplications (Cody and Waite,
//! "Software Manual for the Elementary Functions", 1980). A branch reduces a large one by a window
//! of 2/pi (Payne and Hanek, "Radian Reduction for Trigonometric Functions", 1983). The polynomials
//! have the least relative error (Remez).

use super::Lowering;
use super::builder::{Builder, Scalar, Width, move_to};
use super::float::Float;
use super::integer::{Bitwise, integer};
use super::memory::plain_load;
use crate::isa::{
    self, Address, AddressBase, BranchTarget, Comparison, Immediate, Initializer, Rounding, ScalarType,
    Source, StateSpace, Symbol, Variable,
};

const F64: Float = Float::F64;
const LONG: Width = Width::B64;
const SIGN: u64 = 1 << 63;
/// 1.5 * 2^52: adding it rounds to an integer, in the low bits.
const SHIFTER: f64 = 6_755_399_441_055_744.0;
/// The largest argument, 2^30, for which three parts of pi/2 suffice.
const LARGEST_SMALL_ANGLE: f64 = 1_073_741_824.0;
/// Three parts whose sum is pi/2.
const HALF_PI: [f64; 3] =
    [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33];
/// 2^-64.
const UNIT: f64 = 1.0 / 18_446_744_073_709_551_616.0;
/// The name of the table in the module.
const TABLE: &str = "two_over_pi";
/// The bits of 2/pi after its point, after a word of zeros.
const TWO_OVER_PI: [u64; 19] = [
    0,
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
];

impl Lowering<'_> {
    /// Returns sin(x + quarter * pi/2) within 1.5 ulp; NaN for infinities. The largest error found
    /// is 1.47 ulp. `quarter` is 0 or 1.
    pub(super) fn sine64(&mut self, x: Scalar, quarter: u64) -> Scalar {
        let builder = &mut self.builder;
        let a = builder.float_source(F64, x);
        let size = builder.pure(LONG, |d| isa::Abs { ftz: false, ty: ScalarType::F64, d, a });
        let (r, quadrant) = builder.reduce_small64(size);
        let small = builder.sine_of_remainder64(r, quadrant, quarter);
        let is_large = builder.float_compare(F64, Comparison::Gt, size, F64.constant(LARGEST_SMALL_ANGLE));
        let result = builder.fresh(LONG);
        builder.assign(LONG, result, small);
        let skips = builder.predicate(is_large.plus(Width::Pred, 1));
        let end = builder.label("small");
        builder.emit_if(Some(skips), isa::Bra { uniform: false, target: BranchTarget(end) });
        let table = self.two_over_pi();
        let builder = &mut self.builder;
        let (r, quadrant) = builder.reduce_large64(size, table);
        let large = builder.sine_of_remainder64(r, quadrant, quarter);
        let is_finite = builder.float_compare(F64, Comparison::Lt, size, F64.constant(f64::INFINITY));
        let large = builder.select(LONG, is_finite, large, F64.constant(f64::NAN));
        builder.assign(LONG, result, large);
        builder.place(end);
        if quarter == 1 {
            return result.into();
        }
        // The sine is odd, and keeps the sign of zero.
        let sign = builder.bitwise(Bitwise::And, LONG, x, Scalar::constant(SIGN));
        builder.bitwise(Bitwise::Xor, LONG, result.into(), sign)
    }

    /// Returns the table of 2/pi, in constant memory.
    fn two_over_pi(&mut self) -> Symbol {
        let known = self.module.globals.iter().find(|(_, variable)| variable.name == TABLE);
        let known = known.map(|(id, _)| id);
        Symbol::Global(known.unwrap_or_else(|| {
            let words = TWO_OVER_PI.map(|word| Initializer::Value(Immediate::Integer(word as i64)));
            let mut variable =
                Variable::array(TABLE, StateSpace::Const, ScalarType::B64, words.len() as u64, 8);
            variable.initializer = words.into();
            self.module.globals.push(variable)
        }))
    }
}

impl Builder {
    /// Returns x modulo pi/2, for x from 0 to `LARGEST_SMALL_ANGLE`. Also returns a number whose
    /// low two bits are the quadrant. The first `fma` is exact: unless n is 0, x and the product
    /// are multiples of 2^-53 with a difference below 1.
    fn reduce_small64(&mut self, x: Scalar) -> (Scalar, Scalar) {
        let turns = self.mul_rn(F64, x, F64.constant(std::f64::consts::FRAC_2_PI));
        let shifted = self.add_rn(F64, turns, F64.constant(SHIFTER));
        let n = self.sub_rn(F64, shifted, F64.constant(SHIFTER));
        let r = HALF_PI.iter().fold(x, |r, part| self.fma(F64, n, F64.constant(-part), r));
        (r, shifted)
    }

    /// Returns the remainder and the quadrant of a larger x, as `reduce_small64` does.
    fn reduce_large64(&mut self, x: Scalar, table: Symbol) -> (Scalar, Scalar) {
        // x is 2^(exponent - 63) times an integer of 64 bits. 192 bits of 2/pi from position
        // exponent - 64 give the quadrant and 126 bits of the fraction. The fraction is at least
        // 2^-62.
        let mantissa = self.shl(LONG, x, 11);
        let mantissa = self.bitwise(Bitwise::Or, LONG, mantissa, Scalar::constant(SIGN));
        let window = self.window64(x, table);
        // The upper two words of the product modulo 4; the upper two bits are the integer part.
        let carried = self.mul_high(LONG, false, mantissa, window[2]);
        let low = self.mul(LONG, mantissa, window[1]);
        let low = self.add(LONG, low, carried);
        let overflows = self.compare(LONG, false, Comparison::Lt, low, carried);
        let carry = self.select(LONG, overflows, Scalar::constant(1), Scalar::constant(0));
        let middle = self.mul_high(LONG, false, mantissa, window[1]);
        let high = self.mul(LONG, mantissa, window[0]);
        let high = self.add(LONG, high, middle);
        let high = self.add(LONG, high, carry);
        let quadrant = self.shr(LONG, false, high, 62);
        let upper = self.shl(LONG, high, 2);
        let between = self.shr(LONG, false, low, 62);
        let upper = self.bitwise(Bitwise::Or, LONG, upper, between);
        let lower = self.shl(LONG, low, 2);
        // A fraction above one half becomes a negative one in the next quadrant.
        let rounded = self.shr(LONG, false, upper, 63);
        (self.radians64(upper, lower), self.add(LONG, quadrant, rounded))
    }

    /// Multiplies a signed fraction of 128 bits by pi/2, within 0.6 ulp. It is within 1 ulp if the
    /// upper word is below 2^8.
    fn radians64(&mut self, upper: Scalar, lower: Scalar) -> Scalar {
        let (float, signed) = ((LONG, ScalarType::F64), (LONG, integer(LONG, true)));
        let unsigned = (LONG, integer(LONG, false));
        // Splits the upper word into `a` and its rounding error.
        let a = self.float_convert(float, signed, Some(Rounding::Rz), upper);
        let taken = self.float_convert(signed, float, Some(Rounding::Rzi), a);
        let left = self.sub(LONG, upper, taken);
        let left = self.float_convert(float, signed, Some(Rounding::Rn), left);
        let lower = self.float_convert(float, unsigned, Some(Rounding::Rn), lower);
        let b = self.fma(F64, lower, F64.constant(UNIT), left);
        let (first, second) = (F64.constant(HALF_PI[0] * UNIT), F64.constant(HALF_PI[1] * UNIT));
        let minus = self.mul_rn(F64, a, F64.constant(-HALF_PI[0] * UNIT));
        let error = self.fma(F64, a, first, minus);
        let error = self.fma(F64, a, second, error);
        let error = self.fma(F64, b, first, error);
        self.sub_rn(F64, error, minus)
    }

    /// Returns three words of 2/pi from the position that the exponent of x selects.
    fn window64(&mut self, x: Scalar, table: Symbol) -> [Scalar; 3] {
        let biased = self.shr(LONG, false, x, 52);
        // The word of zeros precedes the point. Position exponent - 64, counted from 1, is the
        // table's bit exponent - 1.
        let bit = biased.plus(LONG, 1024_u64.wrapping_neg());
        let offset = self.shr(LONG, false, bit, 3);
        let offset = self.bitwise(Bitwise::And, LONG, offset, Scalar::constant(!7));
        let address = self.pure(LONG, |d| move_to(LONG, d, Source::Symbol(table, 0)));
        let address = self.add(LONG, address, offset);
        let base = AddressBase::Register(self.register(LONG, address));
        let words = [0, 8, 16, 24].map(|offset| {
            let address = Address { base, offset };
            self.pure(LONG, |d| isa::Ld {
                space: Some(StateSpace::Const),
                ..plain_load(d.into(), address, ScalarType::B64)
            })
        });
        let count = self.low_word(bit);
        let count = self.bitwise(Bitwise::And, Width::B32, count, Scalar::constant(63));
        let rest = self.sub(Width::B32, Scalar::constant(64), count);
        let (count, rest) = (self.source(Width::B32, count), self.source(Width::B32, rest));
        [0, 1, 2].map(|index| {
            let (a, next) = (self.source(LONG, words[index]), self.source(LONG, words[index + 1]));
            let upper = self.pure(LONG, |d| isa::Shl { ty: ScalarType::B64, d, a, b: count });
            // A shift by 64 yields zero.
            let lower = self.pure(LONG, |d| isa::Shr { ty: ScalarType::U64, d, a: next, b: rest });
            self.bitwise(Bitwise::Or, LONG, upper, lower)
        })
    }

    /// Returns sin(r + (quadrant + quarter) * pi/2). Only the low two bits of the sum count.
    fn sine_of_remainder64(&mut self, r: Scalar, quadrant: Scalar, quarter: u64) -> Scalar {
        let s = self.mul_rn(F64, r, r);
        let sin = self.polynomial(
            F64,
            s,
            [
                1.589_622_567_148_333_5e-10,
                -2.505_074_774_636_533_4e-8,
                2.755_731_362_172_383_7e-6,
                -1.984_126_982_959_189_4e-4,
                8.333_333_333_322_123e-3,
                -1.666_666_666_666_663e-1,
            ],
        );
        let cube = self.mul_rn(F64, r, s);
        let sin = self.fma(F64, sin, cube, r);
        let cos = self.polynomial(
            F64,
            s,
            [
                -1.135_852_662_777_693e-11,
                2.087_570_067_254_210_5e-9,
                -2.755_731_417_825_368e-7,
                2.480_158_728_884_901_4e-5,
                -1.388_888_888_887_305_4e-3,
                4.166_666_666_666_659_5e-2,
                -0.5,
                1.0,
            ],
        );
        let quadrant = self.add(LONG, quadrant, Scalar::constant(quarter));
        let odd = self.bitwise(Bitwise::And, LONG, quadrant, Scalar::constant(1));
        let is_sine = self.compare(LONG, true, Comparison::Eq, odd, Scalar::constant(0));
        let result = self.select(LONG, is_sine, sin, cos);
        let half_turns = self.shl(LONG, quadrant, 62);
        let flip = self.bitwise(Bitwise::And, LONG, half_turns, Scalar::constant(SIGN));
        self.bitwise(Bitwise::Xor, LONG, result, flip)
    }
}
