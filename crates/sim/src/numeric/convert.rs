//! Converts between the integer and floating-point types.

use super::exact::{Format, Number, Rounding};
use super::integer::Int;

/// The formats and the modifiers of a conversion between floating-point types.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are the modifiers of the opcode")]
pub struct Conversion {
    pub from: Format,
    pub to: Format,
    pub rounding: Rounding,
    /// True if the operand is rounded to an integer first.
    pub integral: bool,
    /// `.ftz`: subnormal binary32 operands and results become zero.
    pub flush: bool,
    /// `.sat`: the result is clamped to [0, 1], NaN becomes 0.
    pub saturate: bool,
    /// `.satfinite`: overflow becomes the largest number; NaN stays if the format has it.
    pub finite: bool,
    /// `.relu`: negative results become 0; NaN stays.
    pub relu: bool,
}

impl Conversion {
    pub fn plain(from: Format, to: Format) -> Self {
        Self {
            from,
            to,
            rounding: Rounding::NearestEven,
            integral: false,
            flush: false,
            saturate: false,
            finite: false,
            relu: false,
        }
    }

    pub fn apply(&self, bits: u64) -> u64 {
        let mut number = flushed(self.from, Number::of(self.from, bits), self.flush);
        if self.integral {
            number = number.to_integral(self.rounding);
        }
        if self.relu && number.is_negative() {
            number = Number::Zero(false);
        }
        if self.saturate {
            number = match number {
                Number::Nan => Number::Zero(false),
                _ if number.is_negative() => Number::Zero(false),
                Number::Infinite(_) => Number::integer(1),
                Number::Zero(_) | Number::Finite { .. } => number,
            };
        }
        let result = flushed(self.to, number, self.flush).round(self.to, self.rounding, self.finite);
        if self.saturate {
            return result.min(Number::integer(1).round(self.to, Rounding::NearestEven, false));
        }
        result
    }
}

/// Flushes a subnormal of binary32 to zero, if `flush` is set.
fn flushed(format: Format, number: Number, flush: bool) -> Number {
    if flush && format == Format::F32 { number.flushed(format) } else { number }
}

/// Converts a float to an integer, clamped to its range. NaN becomes 0, or the highest bit from
/// binary64 or to 64 bits.
pub fn to_integer(from: Format, bits: u64, to: Int, rounding: Rounding, flush: bool) -> u64 {
    let number = flushed(from, Number::of(from, bits), flush);
    match number.to_integral(rounding) {
        Number::Nan if from == Format::F64 || to.bits == 64 => 1 << (to.bits - 1),
        Number::Nan | Number::Zero(_) => 0,
        Number::Infinite(negative) => to.wrap(if negative { to.least() } else { to.greatest() }),
        Number::Finite { negative, exponent, significand } => {
            let bits = 128 - significand.leading_zeros() as i32 + exponent;
            if bits > 65 {
                return to.wrap(if negative { to.least() } else { to.greatest() });
            }
            let magnitude = (significand << exponent.max(0)) as i128;
            to.clamp(if negative { -magnitude } else { magnitude })
        }
    }
}

pub fn from_integer(from: Int, bits: u64, to: Format, rounding: Rounding) -> u64 {
    Number::integer(from.value(bits)).round(to, rounding, false)
}

/// Converts between integer types. Keeps the low bits or, with `saturate`, clamps the value.
pub fn between_integers(from: Int, bits: u64, to: Int, saturate: bool) -> u64 {
    let value = from.value(bits);
    if saturate { to.clamp(value) } else { to.wrap(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_become_integers_within_bounds() {
        let s32 = Int { bits: 32, signed: true };
        let u8 = Int { bits: 8, signed: false };
        let to = |x: f32, ty, rounding| to_integer(Format::F32, u64::from(x.to_bits()), ty, rounding, false);
        assert_eq!(to(-1.5, s32, Rounding::Zero), 0xffff_ffff);
        assert_eq!(to(2.5, s32, Rounding::NearestEven), 2);
        assert_eq!(to(-2.5, s32, Rounding::Down), 0xffff_fffd);
        assert_eq!(to(2.1, s32, Rounding::Up), 3);
        assert_eq!(to(3e9, s32, Rounding::Zero), 0x7fff_ffff);
        assert_eq!(to(f32::NEG_INFINITY, s32, Rounding::Zero), 0x8000_0000);
        assert_eq!(to(f32::NAN, s32, Rounding::Zero), 0);
        let nan = |ty| to_integer(Format::F64, f64::NAN.to_bits(), ty, Rounding::Zero, false);
        assert_eq!([nan(s32), nan(u8)], [0x8000_0000, 0x80]);
        assert_eq!(to(f32::NAN, Int { bits: 64, signed: false }, Rounding::Zero), 1 << 63);
        assert_eq!(to(300.0, u8, Rounding::Zero), 255);
        assert_eq!(to(-3.0, u8, Rounding::Zero), 0);
        assert_eq!(to(1e30, Int { bits: 64, signed: true }, Rounding::Zero), i64::MAX as u64);
        for x in [0.0_f64, 1.9, -1.9, 1e15, -9e18, 123_456.5] {
            let ours =
                to_integer(Format::F64, x.to_bits(), Int { bits: 64, signed: true }, Rounding::Zero, false);
            assert_eq!(ours as i64, x as i64);
        }
    }

    #[test]
    fn integers_become_floats() {
        for x in [0_i64, 1, -1, i64::MAX, i64::MIN, 0x0100_0001, -0x7fff_ffff_ffff] {
            let ours =
                from_integer(Int { bits: 64, signed: true }, x as u64, Format::F32, Rounding::NearestEven);
            assert_eq!(ours, u64::from((x as f32).to_bits()), "{x}");
        }
    }

    #[test]
    fn floats_become_narrower() {
        let to = |x: f32, to: Format, change: &dyn Fn(&mut Conversion)| {
            let mut conversion = Conversion::plain(Format::F32, to);
            change(&mut conversion);
            conversion.apply(u64::from(x.to_bits()))
        };
        assert_eq!(to(500.0, Format::E4M3, &|c| c.finite = true), 0x7e);
        assert_eq!(to(-500.0, Format::E4M3, &|c| c.finite = true), 0xfe);
        assert_eq!(to(f32::NAN, Format::E4M3, &|c| c.finite = true), 0x7f);
        assert_eq!(to(1e9, Format::E5M2, &|c| c.finite = true), 0x7b);
        assert_eq!(to(-2.0, Format::F16, &|c| c.relu = true), 0);
        assert_eq!(to(1e9, Format::F16, &|c| c.finite = true), 0x7bff);
        assert_eq!(to(7.0, Format::F16, &|c| c.saturate = true), 0x3c00);
        assert_eq!(to(-7.0, Format::F16, &|c| c.saturate = true), 0);
        // 1 + 2^-11 is a midpoint of two TF32 numbers.
        let tie = 1.0 + 2_f32.powi(-11);
        let away = to(tie, Format::TF32, &|c| c.rounding = Rounding::NearestAway);
        assert_eq!(f32::from_bits(away as u32), 1.0 + 2_f32.powi(-10));
        let even = to(tie, Format::TF32, &|_| ());
        assert_eq!(f32::from_bits(even as u32), 1.0);
        assert_eq!(to(2.5, Format::F32, &|c| c.integral = true), u64::from(2.0_f32.to_bits()));
        assert_eq!(to(-1e-40, Format::F32, &|c| c.flush = true), 0x8000_0000);
        let small = Conversion { flush: true, saturate: true, ..Conversion::plain(Format::F64, Format::F32) };
        assert_eq!(small.apply(1e-40_f64.to_bits()), 0);
    }
}
