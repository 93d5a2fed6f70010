//! The 8-bit floating-point formats, by integer operations on binary32.

use tilewright_ir::Dtype;

use super::Lowering;
use super::builder::{Scalar, Width};
use super::float::{Float, f32_constant};
use super::integer::Bitwise;
use crate::isa::Comparison;

const WORD: Width = Width::B32;
const SIGN: u64 = 0x80;
const INFINITY: u64 = 0x7f80_0000;

/// What a format can represent.
#[derive(Clone, Copy)]
struct Format {
    /// Bits of the mantissa that are stored.
    mantissa: u32,
    /// The exponent bias.
    bias: i32,
    /// The largest finite number, which overflow gives.
    largest: u64,
    /// Positive NaN; the format has none if this is `largest`.
    nan: u64,
    /// Infinity, in formats that have it.
    infinity: Option<u64>,
    /// Whether -0 exists. Where it does not, its bits are NaN.
    negative_zero: bool,
}

impl Format {
    fn of(dtype: Dtype) -> Option<Self> {
        let format = |mantissa, bias, largest, nan, infinity| {
            Some(Self { mantissa, bias, largest, nan, infinity, negative_zero: nan != SIGN })
        };
        match dtype {
            Dtype::F8E5 => format(2, 15, 0x7b, 0x7f, Some(0x7c)),
            Dtype::F8E4NV => format(3, 7, 0x7e, 0x7f, None),
            Dtype::F8E4B15 => format(3, 15, 0x7f, 0x7f, None),
            Dtype::F8E4B8 => format(3, 8, 0x7f, SIGN, None),
            Dtype::F8E5B16 => format(2, 16, 0x7f, SIGN, None),
            // tidy: wildcard because the others have 16 bits or more, or are integers.
            _ => None,
        }
    }
}

fn power_of_two(exponent: i32) -> u64 {
    u64::from(((exponent + 127) as u32) << 23)
}

impl Lowering<'_> {
    /// An 8-bit number as binary32, exactly.
    pub(super) fn widen_fp8(&mut self, from: Dtype, x: Scalar) -> Option<Scalar> {
        let format = Format::of(from)?;
        let builder = &mut self.builder;
        let nan = f32_constant(f32::NAN);
        let magnitude = builder.bitwise(Bitwise::And, WORD, x, Scalar::constant(SIGN - 1));
        let sign = builder.bitwise(Bitwise::And, WORD, x, Scalar::constant(SIGN));
        let sign = builder.shl(WORD, sign, 24);
        // With the mantissa in place, the exponent is too small by the difference of the biases: a product adds it, and
        // normalises subnormal numbers.
        let placed = builder.shl(WORD, magnitude, 23 - format.mantissa);
        let scale = Scalar::constant(power_of_two(127 - format.bias));
        let mut number = builder.mul_rn(Float::F32, placed, scale);
        if format.negative_zero && format.nan != format.largest {
            let largest = Scalar::constant(format.largest);
            let is_special = builder.compare(WORD, false, Comparison::Gt, magnitude, largest);
            let mut special = nan;
            if let Some(infinity) = format.infinity {
                let is_infinite =
                    builder.compare(WORD, false, Comparison::Eq, magnitude, Scalar::constant(infinity));
                special = builder.select(WORD, is_infinite, Scalar::constant(INFINITY), nan);
            }
            number = builder.select(WORD, is_special, special, number);
        }
        let signed = builder.bitwise(Bitwise::Or, WORD, number, sign);
        if format.negative_zero {
            return Some(signed);
        }
        let is_nan = builder.compare(WORD, false, Comparison::Eq, x, Scalar::constant(SIGN));
        Some(builder.select(WORD, is_nan, nan, signed))
    }

    /// Binary32 as an 8-bit number, rounded once; overflow gives the largest finite number.
    pub(super) fn narrow_to_fp8(&mut self, to: Dtype, x: Scalar, towards_zero: bool) -> Option<Scalar> {
        let format = Format::of(to)?;
        let builder = &mut self.builder;
        let magnitude = builder.bitwise(Bitwise::And, WORD, x, Scalar::constant(0x7fff_ffff));
        let sign = builder.shr(WORD, false, x, 24);
        let sign = builder.bitwise(Bitwise::And, WORD, sign, Scalar::constant(SIGN));
        let shift = 23 - format.mantissa;
        // Normal numbers of the format: rounded in integers, a carry moves into the exponent as it should.
        let mut rounded = magnitude;
        if !towards_zero {
            let last = builder.shr(WORD, false, magnitude, shift);
            let last = builder.bitwise(Bitwise::And, WORD, last, Scalar::constant(1));
            let half = last.plus(WORD, (1 << (shift - 1)) - 1);
            rounded = builder.add(WORD, magnitude, half);
        }
        let rebiased = rounded.plus(WORD, (((127 - format.bias) as u64) << 23).wrapping_neg());
        let normal = builder.shr(WORD, false, rebiased, shift);
        // Subnormal numbers: the sum with a power of two whose last place is the smallest subnormal is rounded as said.
        let shifter = Scalar::constant(power_of_two(1 - format.bias - format.mantissa as i32 + 23));
        let rounding = if towards_zero { crate::isa::Rounding::Rz } else { crate::isa::Rounding::Rn };
        let sum =
            builder.float_binary(super::float::Binary::Add, Float::F32, Some(rounding), magnitude, shifter);
        let subnormal = builder.sub(WORD, sum, shifter);
        let smallest_normal = Scalar::constant(power_of_two(1 - format.bias));
        let is_subnormal = builder.compare(WORD, false, Comparison::Lt, magnitude, smallest_normal);
        let finite = builder.select(WORD, is_subnormal, subnormal, normal);
        let largest = Scalar::constant(format.largest);
        let is_too_large =
            builder.compare(WORD, false, Comparison::Ge, magnitude, Scalar::constant(INFINITY));
        let finite = builder.extremum(WORD, false, false, finite, largest);
        let number = builder.select(WORD, is_too_large, largest, finite);
        let mut signed = builder.bitwise(Bitwise::Or, WORD, number, sign);
        if !format.negative_zero {
            let is_zero = builder.compare(WORD, false, Comparison::Eq, number, Scalar::constant(0));
            signed = builder.select(WORD, is_zero, Scalar::constant(0), signed);
        }
        let is_nan = builder.compare(WORD, false, Comparison::Gt, magnitude, Scalar::constant(INFINITY));
        let nan = if format.nan == SIGN {
            Scalar::constant(SIGN)
        } else {
            builder.bitwise(Bitwise::Or, WORD, sign, Scalar::constant(format.nan))
        };
        Some(builder.select(WORD, is_nan, nan, signed))
    }
}
