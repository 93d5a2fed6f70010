//! Defines the element formats of the tensor cores.

use half::{bf16, f16};

/// A format of matrix elements. Most are PTX types; `Tf32` is the upper 19 bits of an `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// IEEE binary64.
    F64,
    /// IEEE binary32, of accumulators only.
    F32,
    /// 8 exponent and 10 mantissa bits in the upper bits of 32; the lower 13 bits are ignored.
    Tf32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// 4 exponent and 3 mantissa bits, no infinities, NaN where all bits but the sign are set.
    E4m3,
    /// 5 exponent and 2 mantissa bits: the upper half of a binary16.
    E5m2,
    /// 2 exponent and 3 mantissa bits, neither infinities nor NaN.
    E2m3,
    /// 3 exponent and 2 mantissa bits, neither infinities nor NaN.
    E3m2,
    /// 2 exponent bits and 1 mantissa bit, neither infinities nor NaN.
    E2m1,
    S32,
    S8,
    U8,
    S4,
    U4,
    B1,
}

impl Element {
    pub fn bits(self) -> u32 {
        match self {
            Self::F64 => 64,
            Self::F32 | Self::Tf32 | Self::S32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::E4m3 | Self::E5m2 | Self::S8 | Self::U8 => 8,
            Self::E2m3 | Self::E3m2 => 6,
            Self::E2m1 | Self::S4 | Self::U4 => 4,
            Self::B1 => 1,
        }
    }

    /// Returns whether elements of this format accumulate in 32-bit integers.
    pub fn is_integer(self) -> bool {
        match self {
            Self::S32 | Self::S8 | Self::U8 | Self::S4 | Self::U4 | Self::B1 => true,
            Self::F64
            | Self::F32
            | Self::Tf32
            | Self::F16
            | Self::Bf16
            | Self::E4m3
            | Self::E5m2
            | Self::E2m3
            | Self::E3m2
            | Self::E2m1 => false,
        }
    }

    pub fn value(self, bits: u64) -> f64 {
        match self {
            Self::F64 => f64::from_bits(bits),
            Self::F32 => f32::from_bits(bits as u32).into(),
            Self::Tf32 => f32::from_bits(bits as u32 & !0x1fff).into(),
            Self::F16 => f16::from_bits(bits as u16).into(),
            Self::Bf16 => bf16::from_bits(bits as u16).into(),
            Self::E4m3 => e4m3(bits as u8),
            Self::E5m2 => f16::from_bits(u16::from(bits as u8) << 8).into(),
            Self::E2m3 => tiny(bits, 2, 3),
            Self::E3m2 => tiny(bits, 3, 2),
            Self::E2m1 => tiny(bits, 2, 1),
            Self::S32 | Self::S8 | Self::U8 | Self::S4 | Self::U4 | Self::B1 => self.integer(bits) as f64,
        }
    }

    /// Decodes an integer element; returns the bits of a floating-point element.
    pub fn integer(self, bits: u64) -> i64 {
        match self {
            Self::S32 => (bits as i32).into(),
            Self::S8 => (bits as i8).into(),
            Self::U8 => (bits & 0xff) as i64,
            Self::S4 => (((bits as i8) << 4) >> 4).into(),
            Self::U4 => (bits & 0xf) as i64,
            Self::B1 => (bits & 1) as i64,
            Self::F64
            | Self::F32
            | Self::Tf32
            | Self::F16
            | Self::Bf16
            | Self::E4m3
            | Self::E5m2
            | Self::E2m3
            | Self::E3m2
            | Self::E2m1 => bits as i64,
        }
    }

    /// Rounds `value` to nearest even in an accumulator format, and returns the bits. `S32`
    /// truncates.
    ///
    /// # Panics
    /// If the format is not an accumulator format.
    pub fn round(self, value: f64) -> u64 {
        match self {
            Self::F64 => value.to_bits(),
            Self::F32 => (value as f32).to_bits().into(),
            Self::F16 => f16::from_f64(value).to_bits().into(),
            Self::Bf16 => bf16::from_f64(value).to_bits().into(),
            Self::S32 => u64::from(value as i32 as u32),
            Self::Tf32
            | Self::E4m3
            | Self::E5m2
            | Self::E2m3
            | Self::E3m2
            | Self::E2m1
            | Self::S8
            | Self::U8
            | Self::S4
            | Self::U4
            | Self::B1 => {
                unreachable!("{self:?} is not the format of an accumulator")
            }
        }
    }
}

fn e4m3(bits: u8) -> f64 {
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 3 & 0xf), f64::from(bits & 7));
    sign * match (exponent, bits & 7) {
        (0xf, 7) => f64::NAN,
        (0, _) => mantissa / 8.0 * 2f64.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    }
}

/// Returns the value of an element in a format with a sign, without infinities and NaN.
fn tiny(bits: u64, exponent_bits: u32, mantissa_bits: u32) -> f64 {
    let field = |low: u32, width: u32| bits >> low & ((1 << width) - 1);
    let sign = if field(exponent_bits + mantissa_bits, 1) == 0 { 1.0 } else { -1.0 };
    let offset = (1 << (exponent_bits - 1)) - 1;
    let fraction = field(0, mantissa_bits) as f64 / f64::from(1 << mantissa_bits);
    sign * match field(mantissa_bits, exponent_bits) as i32 {
        0 => fraction * 2f64.powi(1 - offset),
        exponent => (1.0 + fraction) * 2f64.powi(exponent - offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_floats_have_the_values_of_their_format() {
        // The extreme finite values of the definition of the formats (OCP 8-bit floating point).
        for (format, bits, value) in [
            (Element::E4m3, 0x7e, 448.0),
            (Element::E4m3, 0x08, 2f64.powi(-6)),
            (Element::E4m3, 0x01, 2f64.powi(-9)),
            (Element::E4m3, 0xb8, -1.0),
            (Element::E5m2, 0x7b, 57344.0),
            (Element::E5m2, 0x01, 2f64.powi(-16)),
            (Element::E5m2, 0xbc, -1.0),
            (Element::E5m2, 0x7c, f64::INFINITY),
            // OCP microscaling formats.
            (Element::E2m3, 0x1f, 7.5),
            (Element::E2m3, 0x21, -0.125),
            (Element::E3m2, 0x1f, 28.0),
            (Element::E3m2, 0x01, 0.0625),
            (Element::E2m1, 0x7, 6.0),
            (Element::E2m1, 0x9, -0.5),
            (Element::E2m1, 0xf2, 1.0),
            (Element::Tf32, 0x3f80_1fff, 1.0),
            (Element::S4, 0x8, -8.0),
            (Element::U4, 0xf8, 8.0),
        ] {
            assert_eq!(format.value(bits), value, "{format:?} {bits:#x}");
        }
        assert!(Element::E4m3.value(0x7f).is_nan() && Element::E4m3.value(0xff).is_nan());
        assert!(Element::E5m2.value(0x7d).is_nan());
    }

    #[test]
    fn e4m3_grows_with_its_bits() {
        let values: Vec<f64> = (0..0x7f).map(|bits| Element::E4m3.value(bits)).collect();
        assert!(values.is_sorted() && values[0] == 0.0);
    }
}
