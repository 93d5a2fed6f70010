//! Implements PTX arithmetic on f16, bf16, f32 and f64, with its modifiers.
//!
//! Binary32 operations that round to nearest even use the host's arithmetic. Other types and
//! roundings use [`Number`], and so does a multiplication, fma or division whose result `.ftz` may
//! flush. A NaN of 16 or 32 bits is canonical, except in `abs` and `neg`, which keep the payload.

use super::exact::{Format, Number, Rounding};

/// A floating-point type. A register has one or two elements of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// binary32.
    F32,
    /// binary64.
    F64,
}

impl Kind {
    pub fn format(self) -> Format {
        match self {
            Self::F16 => Format::F16,
            Self::Bf16 => Format::BF16,
            Self::F32 => Format::F32,
            Self::F64 => Format::F64,
        }
    }

    pub fn bits(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 16,
            Self::F32 => 32,
            Self::F64 => 64,
        }
    }

    #[inline]
    pub fn to_f64(self, bits: u64) -> f64 {
        match self {
            Self::F16 => half::f16::from_bits(bits as u16).to_f64(),
            Self::Bf16 => half::bf16::from_bits(bits as u16).to_f64(),
            Self::F32 => f64::from(f32::from_bits(bits as u32)),
            Self::F64 => f64::from_bits(bits),
        }
    }

    /// Returns whether a value is NaN.
    #[inline]
    pub fn is_nan(self, bits: u64) -> bool {
        let infinity = match self {
            Self::F16 => 0x7c00,
            Self::Bf16 => 0x7f80,
            Self::F32 => 0x7f80_0000,
            Self::F64 => 0x7ff0_0000_0000_0000,
        };
        bits & !self.sign() > infinity
    }

    #[inline]
    fn sign(self) -> u64 {
        1 << (self.bits() - 1)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    pub kind: Kind,
    pub rounding: Rounding,
    /// `.ftz`: subnormal operands and results become zero, with their sign.
    pub flush: bool,
    /// `.sat`: the result is clamped to [0, 1], NaN becomes 0.
    pub saturate: bool,
    /// `.relu`: negative results become 0; NaN stays.
    pub relu: bool,
}

impl Mode {
    pub fn plain(kind: Kind) -> Self {
        Self { kind, rounding: Rounding::NearestEven, flush: false, saturate: false, relu: false }
    }

    fn is_native(self) -> bool {
        self.kind == Kind::F32 && self.rounding == Rounding::NearestEven
    }

    /// Flushes an operand, with `.ftz`.
    #[inline]
    pub fn operand(self, bits: u64) -> u64 {
        if self.flush { flush(self.kind, bits) } else { bits }
    }

    /// Applies `.ftz`, `.sat` and `.relu` to a result, and makes a NaN of 16 or 32 bits canonical.
    #[inline]
    pub fn result(self, bits: u64) -> u64 {
        let kind = self.kind;
        let bits = self.operand(bits);
        if kind.is_nan(bits) {
            return match (self.saturate, kind) {
                (true, _) => 0,
                (false, Kind::F64) => bits,
                (false, _) => kind.format().nan(),
            };
        }
        if !self.saturate && !self.relu {
            return bits;
        }
        if bits & kind.sign() != 0 {
            return 0;
        }
        let one = Number::integer(1).round(kind.format(), Rounding::NearestEven, false);
        if self.saturate && bits > one { one } else { bits }
    }

    /// Rounds a number to the type, and applies the modifiers.
    #[inline]
    pub fn round(self, number: Number) -> u64 {
        let format = self.kind.format();
        let number = if self.flush { number.flushed(format) } else { number };
        self.result(number.round(format, self.rounding, false))
    }

    #[inline]
    fn number(self, bits: u64) -> Number {
        Number::of(self.kind.format(), self.operand(bits))
    }

    #[inline]
    fn single(self, bits: u64) -> f32 {
        f32::from_bits(self.operand(bits) as u32)
    }

    #[inline]
    fn rounded(self, value: f32) -> u64 {
        self.result(u64::from(value.to_bits()))
    }

    /// Returns whether the result may have been subnormal before rounding, so that `.ftz` flushes
    /// it.
    #[inline]
    fn may_be_flushed(self, result: f32) -> bool {
        self.flush && result.abs() == f32::MIN_POSITIVE
    }

    /// `a + b`.
    #[inline]
    pub fn add(self, a: u64, b: u64) -> u64 {
        if self.is_native() {
            return self.rounded(self.single(a) + self.single(b));
        }
        self.round(self.number(a).plus(self.number(b), self.rounding))
    }

    /// `a - b`.
    #[inline]
    pub fn subtract(self, a: u64, b: u64) -> u64 {
        self.add(a, b ^ self.kind.sign())
    }

    /// `a * b`.
    #[inline]
    pub fn multiply(self, a: u64, b: u64) -> u64 {
        if self.is_native() {
            let product = self.single(a) * self.single(b);
            if !self.may_be_flushed(product) {
                return self.rounded(product);
            }
        }
        self.round(self.number(a).times(self.number(b)))
    }

    /// `a * b + c`, rounded once.
    #[inline]
    pub fn multiply_add(self, a: u64, b: u64, c: u64) -> u64 {
        if self.is_native() {
            let sum = self.single(a).mul_add(self.single(b), self.single(c));
            if !self.may_be_flushed(sum) {
                return self.rounded(sum);
            }
        }
        self.round(self.number(a).times(self.number(b)).plus(self.number(c), self.rounding))
    }

    /// `a / b`, correctly rounded.
    #[inline]
    pub fn divide(self, a: u64, b: u64) -> u64 {
        if self.is_native() {
            let quotient = self.single(a) / self.single(b);
            if !self.may_be_flushed(quotient) {
                return self.rounded(quotient);
            }
        }
        self.round(self.number(a).divided_by(self.number(b)))
    }

    #[inline]
    pub fn square_root(self, a: u64) -> u64 {
        if self.is_native() {
            return self.rounded(self.single(a).sqrt());
        }
        self.round(self.number(a).square_root())
    }

    /// Returns the absolute value, also of a NaN.
    #[inline]
    pub fn absolute(self, a: u64) -> u64 {
        self.operand(a) & !self.kind.sign()
    }

    /// Returns the value with the opposite sign.
    #[inline]
    pub fn negate(self, a: u64) -> u64 {
        self.operand(a) ^ self.kind.sign()
    }

    /// Returns the minimum or, with `largest`, the maximum. If one operand is NaN, returns the
    /// other or, with `nan`, NaN. -0 is below +0.
    #[inline]
    pub fn extremum(self, a: u64, b: u64, largest: bool, nan: bool) -> u64 {
        let (a, b) = (self.operand(a), self.operand(b));
        match (self.kind.is_nan(a), self.kind.is_nan(b)) {
            (false, false) => {
                // Maps the bits to integers of the same order.
                let ordered = |bits: u64| {
                    let magnitude = (bits & !self.kind.sign()) as i64;
                    if bits & self.kind.sign() == 0 { magnitude } else { -magnitude - 1 }
                };
                if (ordered(a) > ordered(b)) == largest { a } else { b }
            }
            (true, true) => self.kind.format().nan(),
            _ if nan => self.kind.format().nan(),
            (true, false) => b,
            (false, true) => a,
        }
    }

    /// Compares two values, or returns `None` if one is NaN.
    #[inline]
    pub fn compare(self, a: u64, b: u64) -> Option<std::cmp::Ordering> {
        self.kind.to_f64(self.operand(a)).partial_cmp(&self.kind.to_f64(self.operand(b)))
    }
}

#[inline]
pub fn flush(kind: Kind, bits: u64) -> u64 {
    let format = kind.format();
    let exponent = ((1_u64 << format.exponent_bits) - 1) << format.fraction_bits;
    if bits & exponent == 0 { bits & kind.sign() } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(x: f32) -> u64 {
        u64::from(x.to_bits())
    }

    const F32: Kind = Kind::F32;

    #[test]
    fn minimum_and_maximum_treat_nan_and_zeros_as_the_isa_says() {
        let mode = Mode::plain(F32);
        let nan = bits(f32::NAN);
        assert_eq!(mode.extremum(nan, bits(2.0), false, false), bits(2.0));
        assert_eq!(mode.extremum(bits(2.0), nan, true, false), bits(2.0));
        assert_eq!(mode.extremum(bits(2.0), nan, true, true), 0x7fff_ffff);
        assert_eq!(mode.extremum(nan | 5, nan, true, false), 0x7fff_ffff);
        assert_eq!(mode.extremum(bits(0.0), bits(-0.0), false, false), bits(-0.0));
        assert_eq!(mode.extremum(bits(-0.0), bits(0.0), true, false), bits(0.0));
        assert_eq!(mode.extremum(bits(-3.0), bits(-2.0), true, false), bits(-2.0));
        assert_eq!(mode.extremum(bits(-3.0), bits(2.0), false, false), bits(-3.0));
    }

    #[test]
    fn saturation_and_flushing() {
        let saturate = Mode { saturate: true, ..Mode::plain(F32) };
        assert_eq!(saturate.add(bits(0.75), bits(0.5)), bits(1.0));
        assert_eq!(saturate.add(bits(-0.75), bits(0.5)), bits(0.0));
        assert_eq!(saturate.multiply(bits(f32::INFINITY), bits(0.0)), bits(0.0));
        let flush = Mode { flush: true, ..Mode::plain(F32) };
        assert_eq!(flush.add(bits(-1e-40), bits(-1e-40)), bits(-0.0));
        assert_eq!(flush.multiply(bits(1e-20), bits(-1e-20)), bits(-0.0));
        // Half of the largest number below 2^-125 rounds to the smallest normal number, but the
        // flush precedes the rounding.
        let below = 0x00ff_ffff;
        assert_eq!(Mode::plain(F32).multiply(below, bits(0.5)), bits(f32::MIN_POSITIVE));
        assert_eq!(flush.multiply(below, bits(-0.5)), bits(-0.0));
        assert_eq!(flush.multiply_add(below, bits(0.5), 0), 0);
        assert_eq!(flush.multiply(0x0100_0000, bits(0.5)), bits(f32::MIN_POSITIVE));
        assert_eq!(Mode::plain(F32).divide(below, bits(2.0)), bits(f32::MIN_POSITIVE));
        assert_eq!(flush.divide(below, bits(-2.0)), bits(-0.0));
        assert_eq!(flush.divide(0x0100_0000, bits(2.0)), bits(f32::MIN_POSITIVE));
        assert_eq!(Mode::plain(F32).add(bits(1e-40), bits(1e-40)), 2 * bits(1e-40));
        let relu = Mode { relu: true, ..Mode::plain(Kind::F16) };
        assert_eq!(relu.multiply_add(0x3c00, 0xbc00, 0), 0);
        assert_eq!(relu.multiply_add(0x7e01, 0xbc00, 0), 0x7fff);
    }

    #[test]
    fn halves_are_rounded_once() {
        // 2048 + 1.0 * 1.001 in binary16: the exact sum rounds up, but a rounded product would be a
        // tie.
        let mode = Mode::plain(Kind::F16);
        let exact = 2048.0 + half::f16::from_bits(0x3c01).to_f64();
        let result = mode.multiply_add(0x3c00, 0x3c01, 0x6800);
        assert_eq!(half::f16::from_bits(result as u16), half::f16::from_f64(exact));
    }
}
