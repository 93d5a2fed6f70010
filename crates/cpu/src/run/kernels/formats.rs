//! Converts one element between floating-point formats with integer operations and without
//! branches, so that a loop over it is vectorized on any instruction set.
//!
//! Narrowing starts from binary32. To narrow binary64, first convert it to binary32 with
//! [`f64_to_f32_odd`] (and integers to binary64 with [`i64_to_f64_odd`] or [`u64_to_f64_odd`]).
//! Rounding to odd keeps the information that the second rounding needs, because binary32 has at
//! least two bits of precision more than every narrower format.

/// The parameters of a narrow float format.
#[derive(Clone, Copy)]
pub(super) struct Format {
    /// The number of stored bits of the mantissa.
    mantissa: u32,
    /// The exponent bias.
    bias: u32,
    /// The bits of the largest finite number.
    largest: u32,
    /// The bits of positive NaN; equal to `largest` if the format has no NaN.
    nan: u32,
    /// The result of overflow: an infinity or the largest finite number.
    overflow: u32,
    /// True if -0 exists.
    negative_zero: bool,
}

/// IEEE binary16. Overflow becomes an infinity.
pub(super) const F16: Format =
    Format { mantissa: 10, bias: 15, largest: 0x7bff, nan: 0x7e00, overflow: 0x7c00, negative_zero: true };
/// E5M2: as binary16 with fewer bits. Overflow and infinities saturate to the largest finite
/// number, 57344.
pub(super) const E5M2: Format =
    Format { mantissa: 2, bias: 15, largest: 0x7b, nan: 0x7f, overflow: 0x7b, negative_zero: true };
/// E4M3 of OCP: no infinities, NaN is 0x7f and 0xff. Overflow and infinities saturate to 448.
pub(super) const E4M3: Format =
    Format { mantissa: 3, bias: 7, largest: 0x7e, nan: 0x7f, overflow: 0x7e, negative_zero: true };
/// E4M3 with bias 15: no infinities and no NaN. Overflow, infinities and NaN saturate to 0x7f,
/// which is 1.875.
pub(super) const E4M3B15: Format =
    Format { mantissa: 3, bias: 15, largest: 0x7f, nan: 0x7f, overflow: 0x7f, negative_zero: true };
/// E4M3FNUZ: bias 8, 0x80 is the only NaN. Overflow and infinities saturate to 240.
pub(super) const E4M3B8: Format =
    Format { mantissa: 3, bias: 8, largest: 0x7f, nan: 0x80, overflow: 0x7f, negative_zero: false };
/// E5M2FNUZ: bias 16, 0x80 is the only NaN. Overflow and infinities saturate to 57344.
pub(super) const E5M2B16: Format =
    Format { mantissa: 2, bias: 16, largest: 0x7f, nan: 0x80, overflow: 0x7f, negative_zero: false };

/// Returns the bits of 2^exponent in binary32.
const fn power_of_two(exponent: i32) -> u32 {
    ((exponent + 127) as u32) << 23
}

impl Format {
    /// Returns the sign bit of the format.
    const fn sign(self) -> u32 {
        if self.mantissa == 10 { 0x8000 } else { 0x80 }
    }

    /// Rounds binary32 to the format, to nearest even or towards zero.
    ///
    /// Towards zero, a finite number that is too large becomes the largest finite number;
    /// infinities are as in the other mode.
    #[inline(always)]
    pub(super) fn narrow(self, value: f32, towards_zero: bool) -> u32 {
        let shift = 23 - self.mantissa;
        let bits = value.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        // Normal numbers of the format: round in integers; a carry correctly increments the
        // exponent.
        let round = if towards_zero { 0 } else { ((magnitude >> shift) & 1) + ((1 << (shift - 1)) - 1) };
        let normal = magnitude.wrapping_add(round).wrapping_sub((127 - self.bias) << 23) >> shift;
        // Subnormal numbers: add a power of two whose unit in the last place is the smallest
        // subnormal of the format. The addition then rounds to nearest even.
        let smallest_exponent = 1 - self.bias as i32 - self.mantissa as i32;
        let shifter = power_of_two(smallest_exponent + 23);
        let sum = (f32::from_bits(magnitude) + f32::from_bits(shifter)).to_bits().wrapping_sub(shifter);
        let above =
            f32::from_bits(sum.wrapping_add(shifter)) - f32::from_bits(shifter) > f32::from_bits(magnitude);
        let subnormal = if towards_zero && above { sum.wrapping_sub(1) } else { sum };
        let is_subnormal = magnitude < power_of_two(1 - self.bias as i32);
        let finite = if is_subnormal { subnormal } else { normal };
        // Encodings compare as values do. In binary32, infinities are above the finite numbers.
        let too_large = if towards_zero && magnitude < 0x7f80_0000 { self.largest } else { self.overflow };
        let number = if finite > self.largest || magnitude >= 0x7f80_0000 { too_large } else { finite };
        let sign = (bits >> 31) * self.sign();
        let signed = if self.negative_zero || number != 0 { number | sign } else { number };
        if magnitude > 0x7f80_0000 {
            if self.nan == self.sign() { self.nan } else { self.nan | sign }
        } else {
            signed
        }
    }

    /// Converts to binary32, which represents every value of the format.
    #[inline(always)]
    pub(super) fn widen(self, bits: u32) -> f32 {
        let magnitude = bits & (self.sign() - 1);
        let sign = (bits & self.sign()) << if self.mantissa == 10 { 16 } else { 24 };
        // With the mantissa in position, the exponent is too small by the difference of the biases:
        // a multiplication adds it, and normalizes subnormal numbers.
        let scaled = f32::from_bits(magnitude << (23 - self.mantissa))
            * f32::from_bits(power_of_two(127 - self.bias as i32));
        let has_infinity = self.nan > self.largest + 1 && self.nan != self.sign();
        let infinity = self.largest + 1;
        let special = if has_infinity && magnitude == infinity { f32::INFINITY } else { f32::NAN };
        let number = if self.negative_zero && magnitude > self.largest { special } else { scaled };
        if !self.negative_zero && bits == self.sign() {
            f32::NAN
        } else {
            f32::from_bits(number.to_bits() | sign)
        }
    }
}

/// Rounds binary32 to bfloat16, to nearest even or towards zero. Overflow becomes an infinity, or
/// the largest finite number towards zero; NaN stays NaN.
#[inline(always)]
pub(super) fn bf16_narrow(value: f32, towards_zero: bool) -> u16 {
    let bits = value.to_bits();
    let round = if towards_zero { 0 } else { 0x7fff + ((bits >> 16) & 1) };
    let rounded = bits.wrapping_add(round) >> 16;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { (bits >> 16) | 0x40 } else { rounded }) as u16
}

/// Converts bfloat16 to binary32.
#[inline(always)]
pub(super) fn bf16_widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds binary64 to binary32, to odd: exact, or the neighbor whose last bit is 1. NaN stays NaN.
/// A finite number that is too large becomes the largest finite number of binary32; rounding that
/// to a narrower format overflows.
#[inline(always)]
pub(super) fn f64_to_f32_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    let bits = nearest.to_bits();
    let toward = if back.abs() > value.abs() { bits.wrapping_sub(1) } else { bits.wrapping_add(1) };
    let inexact = back != value && !value.is_nan();
    if inexact && bits & 1 == 0 { f32::from_bits(toward) } else { nearest }
}

/// Rounds binary64 to binary32 towards zero.
#[inline(always)]
pub(super) fn f64_to_f32_zero(value: f64) -> f32 {
    let nearest = value as f32;
    let above = f64::from(nearest).abs() > value.abs();
    if above { f32::from_bits(nearest.to_bits().wrapping_sub(1)) } else { nearest }
}

/// Converts a signed integer to binary64; inexact results have the last bit set (rounded to odd).
#[inline(always)]
pub(super) fn i64_to_f64_odd(value: i64) -> f64 {
    let magnitude = u64_to_f64_odd(value.unsigned_abs());
    if value < 0 { -magnitude } else { magnitude }
}

/// Converts an unsigned integer to binary64; inexact results have the last bit set (rounded to
/// odd).
#[inline(always)]
pub(super) fn u64_to_f64_odd(value: u64) -> f64 {
    // Above 2^53 the 11 low bits may not fit: they set the bit above them.
    let sticky = (value & !0x7ff) | (u64::from(value & 0x7ff != 0) << 11);
    (if value >> 53 == 0 { value } else { sticky }) as f64
}

/// Converts an unsigned integer to binary64, towards zero.
#[inline(always)]
pub(super) fn u64_to_f64_zero(value: u64) -> f64 {
    let nearest = value as f64;
    let above = nearest as u128 > u128::from(value);
    if above { f64::from_bits(nearest.to_bits() - 1) } else { nearest }
}
