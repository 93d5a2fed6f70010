//! Converts one element between floating-point formats, without branches, so that loops vectorize.
//! Narrowing starts from binary32. Binary64 is first rounded to binary32 by
//! [`double_to_single_odd`], and integers to binary64 by [`signed_to_double_odd`] or
//! [`unsigned_to_double_odd`]. Rounding to odd keeps what the second rounding needs. For example, a
//! value just above a midpoint gets the last bit 1 and is not taken for the midpoint.

use super::lanes::{Real, Real32, Real64, Word, Word64, select};
use super::{math32, math64};

/// The parameters of a narrow float format.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    /// The number of stored bits of the mantissa.
    mantissa: u32,
    /// The exponent bias.
    bias: u32,
    /// The bits of the largest finite number.
    largest: u32,
    /// The bits of positive NaN. If the format has no NaN, they equal `largest`.
    nan: u32,
    /// The result of overflow: an infinity or the largest finite number.
    overflow: u32,
    /// True if -0 exists.
    negative_zero: bool,
}

/// IEEE binary16. Overflow becomes an infinity.
pub(crate) const F16: Format =
    Format { mantissa: 10, bias: 15, largest: 0x7bff, nan: 0x7e00, overflow: 0x7c00, negative_zero: true };
/// E5M2: binary16 without the 8 low bits of the mantissa. Overflow and infinities saturate to the
/// largest finite number, 57344.
pub(crate) const E5M2: Format =
    Format { mantissa: 2, bias: 15, largest: 0x7b, nan: 0x7f, overflow: 0x7b, negative_zero: true };
/// E4M3 of OCP. It has no infinities; NaN is 0x7f and 0xff. Overflow and infinities saturate to
/// 448.
pub(crate) const E4M3: Format =
    Format { mantissa: 3, bias: 7, largest: 0x7e, nan: 0x7f, overflow: 0x7e, negative_zero: true };
/// E4M3 with bias 15. It has no infinities and no NaN. Overflow, infinities and NaN saturate to
/// 0x7f, which is 1.875.
pub(crate) const E4M3B15: Format =
    Format { mantissa: 3, bias: 15, largest: 0x7f, nan: 0x7f, overflow: 0x7f, negative_zero: true };
/// E4M3FNUZ, with bias 8. 0x80 is the only NaN. Overflow and infinities saturate to 240.
pub(crate) const E4M3B8: Format =
    Format { mantissa: 3, bias: 8, largest: 0x7f, nan: 0x80, overflow: 0x7f, negative_zero: false };
/// E5M2FNUZ, with bias 16. 0x80 is the only NaN. Overflow and infinities saturate to 57344.
pub(crate) const E5M2B16: Format =
    Format { mantissa: 2, bias: 16, largest: 0x7f, nan: 0x80, overflow: 0x7f, negative_zero: false };

const fn power_of_two(exponent: i32) -> u32 {
    ((exponent + 127) as u32) << 23
}

impl Format {
    const fn sign(self) -> u32 {
        if self.mantissa == 10 { 0x8000 } else { 0x80 }
    }

    /// Rounds binary32 to the format, to nearest even or towards zero.
    ///
    /// When rounding towards zero, a finite number that is too large becomes the largest finite
    /// number. Infinities have the same result in both modes.
    #[inline(always)]
    pub(crate) fn narrow<R: Real32>(self, value: R, towards_zero: bool) -> R::Bits {
        let bits = value.to_bits();
        let word = |number: u32| bits.constant(number);
        let magnitude = bits & word(0x7fff_ffff);
        // Rounds to normal numbers in integers. A carry correctly increments the exponent.
        let shift = 23 - self.mantissa;
        let exponent = (127 - self.bias) << 23;
        let rounded = if towards_zero {
            magnitude.wrapping_sub(word(exponent))
        } else {
            let is_odd = (magnitude >> shift) & word(1);
            let below_half = (1 << (shift - 1)) - 1_u32;
            magnitude.wrapping_add(is_odd).wrapping_sub(word(exponent.wrapping_sub(below_half)))
        };
        let normal = rounded >> shift;
        // Rounds to subnormal numbers: adds a power of two whose unit in the last place is the
        // smallest subnormal of the format.
        let smallest_exponent = 1 - self.bias as i32 - self.mantissa as i32;
        let shifter = word(power_of_two(smallest_exponent + 23));
        let sum = R::from_bits(magnitude) + R::from_bits(shifter);
        let mut subnormal = sum.to_bits().wrapping_sub(shifter);
        if towards_zero {
            let above = R::from_bits(magnitude).lt(sum - R::from_bits(shifter));
            subnormal = select(above, subnormal.wrapping_sub(word(1)), subnormal);
        }
        let is_subnormal = magnitude.lt_signed(word(power_of_two(1 - self.bias as i32)));
        let finite = select(is_subnormal, subnormal, normal);
        // The order of the encodings is the order of the values.
        let mut too_large = word(self.overflow);
        if towards_zero {
            let is_finite = magnitude.lt_signed(word(f32::INFINITY.to_bits()));
            too_large = select(is_finite, word(self.largest), too_large);
        }
        let number = select(word(self.largest).lt_signed(finite), too_large, finite);
        let sign = (bits >> (31 - self.sign().ilog2())) & word(self.sign());
        let mut signed = number | sign;
        if !self.negative_zero {
            signed = select(number.eq(word(0)), number, signed);
        }
        let nan = if self.nan == self.sign() { word(self.nan) } else { word(self.nan) | sign };
        select(value.is_nan(), nan, signed)
    }

    /// Converts to binary32, which represents every value of the format. The bits above those of
    /// the format must be 0.
    #[inline(always)]
    pub(crate) fn widen<R: Real32>(self, bits: R::Bits) -> R {
        let word = |number: u32| bits.constant(number);
        let magnitude = bits & word(self.sign() - 1);
        let sign = (bits & word(self.sign())) << (31 - self.sign().ilog2());
        // The shifted mantissa has the right position, but the exponent is too small by the
        // difference of the biases. The multiplication corrects it and normalizes subnormal
        // numbers.
        let scale = R::from_bits(word(power_of_two(127 - self.bias as i32)));
        let mut number = R::from_bits(magnitude << (23 - self.mantissa)) * scale;
        let nan = number.constant(f32::NAN);
        if self.negative_zero && self.largest < self.sign() - 1 {
            let has_infinity = self.nan > self.largest + 1;
            let infinity = self.largest + 1;
            let special = if has_infinity {
                select(magnitude.eq(word(infinity)), number.constant(f32::INFINITY), nan)
            } else {
                nan
            };
            number = select(word(self.largest).lt_signed(magnitude), special, number);
        }
        let signed = R::from_bits(number.to_bits() | sign);
        if self.negative_zero { signed } else { select(bits.eq(word(self.sign())), nan, signed) }
    }
}

/// Rounds binary32 to bfloat16, to nearest even or towards zero. Overflow becomes an infinity, or
/// the largest finite number towards zero. NaN stays NaN.
#[inline(always)]
pub(crate) fn bf16_narrow<R: Real32>(value: R, towards_zero: bool) -> R::Bits {
    let bits = value.to_bits();
    let word = |number: u32| bits.constant(number);
    let high = bits >> 16;
    let rounded =
        if towards_zero { high } else { bits.wrapping_add(word(0x7fff)).wrapping_add(high & word(1)) >> 16 };
    select(value.is_nan(), high | word(0x40), rounded)
}

/// Converts the bits of bfloat16 to binary32.
#[inline(always)]
pub(crate) fn bf16_widen<R: Real32>(bits: R::Bits) -> R {
    R::from_bits(bits << 16)
}

/// Rounds binary64 to binary32, to odd: an inexact result is the neighbor whose last bit is 1. NaN
/// stays NaN. A number that is too large becomes the largest finite binary32 number, which
/// overflows again in a later narrowing.
#[inline(always)]
pub(crate) fn double_to_single_odd<R: Real64>(value: R) -> R::Single {
    let nearest = value.to_single();
    let back = nearest.to_double();
    let bits = nearest.to_bits();
    let word = |number: u32| bits.constant(number);
    let above = value.abs().lt(back.abs());
    let toward = select(above, bits.wrapping_sub(word(1)), bits.wrapping_add(word(1)));
    let inexact = back.lt(value) | value.lt(back);
    let is_even = (bits & word(1)).eq(word(0));
    select(inexact & is_even, R::Single::from_bits(toward), nearest)
}

/// Rounds binary64 to binary32 towards zero.
#[inline(always)]
pub(crate) fn double_to_single_zero<R: Real64>(value: R) -> R::Single {
    let nearest = value.to_single();
    let above = value.abs().lt(nearest.to_double().abs());
    let bits = nearest.to_bits();
    select(above, R::Single::from_bits(bits.wrapping_sub(bits.constant(1))), nearest)
}

/// Converts a signed integer by its magnitude.
#[inline(always)]
fn signed_to_double<W: Word64>(value: W, convert: impl Fn(W) -> W::Real) -> W::Real {
    let zero = value.constant(0);
    let negative = value.lt_signed(zero);
    let magnitude = convert(select(negative, zero.wrapping_sub(value), value));
    select(negative, -magnitude, magnitude)
}

/// Converts a signed integer to binary64, rounded to odd.
#[inline(always)]
pub(crate) fn signed_to_double_odd<W: Word64>(value: W) -> W::Real {
    signed_to_double(
        value,
        #[inline(always)]
        |magnitude| unsigned_to_double_odd(magnitude),
    )
}

/// Converts a signed integer to binary64, towards zero.
#[inline(always)]
pub(crate) fn signed_to_double_zero<W: Word64>(value: W) -> W::Real {
    signed_to_double(
        value,
        #[inline(always)]
        |magnitude| unsigned_to_double_zero(magnitude),
    )
}

/// Converts an unsigned integer to binary64, rounded to odd at a precision of at least 42 bits.
#[inline(always)]
pub(crate) fn unsigned_to_double_odd<W: Word64>(value: W) -> W::Real {
    let word = |number: u64| value.constant(number);
    // From 2^53 on, the 11 low bits may not fit into the mantissa. A 1 in the next bit replaces
    // them if any is 1.
    let is_exact = (value & word(0x7ff)).eq(word(0));
    let sticky = (value & word(!0x7ff)) | select(is_exact, word(0), word(1 << 11));
    select((value >> 53).eq(word(0)), value, sticky).unsigned_to_real()
}

/// Converts an unsigned integer to binary64, towards zero.
#[inline(always)]
pub(crate) fn unsigned_to_double_zero<W: Word64>(value: W) -> W::Real {
    let word = |number: u64| value.constant(number);
    // Both halves are exact, and so is the error of their sum.
    let low = (value & word(0xffff_ffff)).unsigned_to_real();
    let high = (value & word(!0xffff_ffff)).unsigned_to_real();
    let nearest = high + low;
    let above = low.lt(nearest - high);
    select(above, W::Real::from_bits(nearest.to_bits().wrapping_sub(word(1))), nearest)
}

/// Truncates a float towards zero and clamps it to `low..=high`, a range within the signed or the
/// unsigned 32-bit integers. NaN becomes 0. The result is in the low 32 bits.
#[inline(always)]
pub(crate) fn saturate<R: Real64>(value: R, low: f64, high: f64) -> R::Bits {
    let value = select(value.is_nan(), value.constant(0.0), value);
    let value = value.greater(value.constant(low)).lesser(value.constant(high));
    (value.trunc() + value.constant(math64::SHIFTER)).to_bits()
}

/// Returns the quotient, towards zero, of integers of at most 16 bits, given as floats. It is
/// unspecified if the divisor is 0.
///
/// The float is wide enough that the division never rounds up to the next integer.
#[inline(always)]
pub(crate) fn quotient_of_singles<R: Real32>(dividend: R, divisor: R) -> R::Bits {
    let bits = ((dividend / divisor).trunc() + dividend.constant(math32::SHIFTER)).to_bits();
    bits.wrapping_sub(bits.constant(math32::SHIFTER.to_bits()))
}

/// Returns the quotient of integers of at most 32 bits, like [`quotient_of_singles`], in the low 32
/// bits.
#[inline(always)]
pub(crate) fn quotient_of_doubles<R: Real64>(dividend: R, divisor: R) -> R::Bits {
    let bits = ((dividend / divisor).trunc() + dividend.constant(math64::SHIFTER)).to_bits();
    bits.wrapping_sub(bits.constant(math64::SHIFTER.to_bits()))
}
