//! Encodes tensor elements, and the data of the visualizer's pages, as JSON.

use serde::Serialize;

/// Serializes the data of a page of the visualizer as JSON.
pub(crate) fn to_text(page: &impl Serialize) -> String {
    serde_json::to_string(page).expect("writing to a string cannot fail, and all keys are strings")
}

/// A tensor element as JSON. It is a string if JSON has no such number, or if JavaScript would
/// round it.
#[derive(Serialize, PartialEq, Debug)]
#[serde(untagged)]
pub(crate) enum Element {
    Boolean(bool),
    /// An integer of magnitude at most 2^53. JavaScript represents such an integer exactly.
    Integer(i64),
    /// A finite number of at most 32 bits, written with the fewest digits that identify it in
    /// binary32.
    Single(f32),
    /// A finite binary64 number.
    Double(f64),
    /// An integer of a magnitude above 2^53, an infinity, or NaN.
    Text(String),
}

impl Element {
    /// Decodes the bits of an element.
    pub(crate) fn new(dtype: &str, bits: u64) -> Self {
        let signed = |width: u32| Self::integer((((bits << (64 - width)) as i64) >> (64 - width)).into());
        match dtype {
            "int1" => Self::Boolean(bits != 0),
            "int8" => signed(8),
            "int16" => signed(16),
            "int32" => signed(32),
            "int64" => signed(64),
            "fp32" => Self::single(f32::from_bits(bits as u32)),
            "fp64" => {
                let value = f64::from_bits(bits);
                Self::not_finite(value).unwrap_or(Self::Double(value))
            }
            dtype => match narrow_float(dtype, bits) {
                Some(value) => Self::single(value as f32),
                None => Self::integer(bits.into()),
            },
        }
    }

    fn integer(value: i128) -> Self {
        match i64::try_from(value) {
            Ok(value) if value.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS => Self::Integer(value),
            _ => Self::Text(value.to_string()),
        }
    }

    fn single(value: f32) -> Self {
        Self::not_finite(value.into()).unwrap_or(Self::Single(value))
    }

    fn not_finite(value: f64) -> Option<Self> {
        let name = match value {
            value if value.is_nan() => "nan",
            f64::INFINITY => "inf",
            f64::NEG_INFINITY => "-inf",
            _ => return None,
        };
        Some(Self::Text(name.to_owned()))
    }
}

/// Returns the value of an 8-bit or 16-bit float, or `None` for other types.
fn narrow_float(dtype: &str, bits: u64) -> Option<f64> {
    // The number of exponent bits, the number of mantissa bits, the exponent bias, and whether the
    // largest exponent encodes infinities and NaNs.
    let (exponent_bits, mantissa_bits, offset, has_infinities) = match dtype {
        "fp16" => (5, 10, 15, true),
        "bf16" => (8, 7, 127, true),
        "fp8e5" => (5, 2, 15, true),
        "fp8e4nv" => (4, 3, 7, false),
        "fp8e4b15" => (4, 3, 15, false),
        "fp8e4b8" => (4, 3, 8, false),
        "fp8e5b16" => (5, 2, 16, false),
        _ => return None,
    };
    let width = exponent_bits + mantissa_bits;
    let sign = if bits >> width & 1 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) =
        ((bits >> mantissa_bits) & ((1 << exponent_bits) - 1), bits & ((1 << mantissa_bits) - 1));
    let magnitude = bits & ((1 << width) - 1);
    let is_nan = match dtype {
        "fp8e4nv" => magnitude == 0x7f,
        "fp8e4b8" | "fp8e5b16" => bits & 0xff == 0x80,
        _ => false,
    };
    if is_nan {
        return Some(f64::NAN);
    }
    if has_infinities && exponent == (1 << exponent_bits) - 1 {
        return Some(if mantissa == 0 { sign * f64::INFINITY } else { f64::NAN });
    }
    let scale = 2_f64.powi(exponent.max(1) as i32 - offset - mantissa_bits);
    let implicit = if exponent == 0 { 0 } else { 1 << mantissa_bits };
    Some(sign * (implicit + mantissa) as f64 * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_their_exact_values() {
        let element = |dtype: &str, bits: u64| to_text(&Element::new(dtype, bits));
        let cases = [
            ("fp16", 0x3e00, "1.5"),
            ("fp16", 0xfc00, "\"-inf\""),
            ("bf16", 0xc000, "-2.0"),
            ("fp8e4nv", 0x7e, "448.0"),
            ("fp8e4nv", 0x7f, "\"nan\""),
            ("fp8e5", 0x7b, "57344.0"),
            ("fp8e5", 0x7c, "\"inf\""),
            ("fp8e4b8", 0x80, "\"nan\""),
            ("fp8e4b15", 0x7f, "1.875"),
            ("int8", 0xff, "-1"),
            ("uint8", 0xff, "255"),
            ("int64", u64::MAX, "-1"),
            ("uint64", u64::MAX, "\"18446744073709551615\""),
            ("int1", 1, "true"),
            ("fp32", 0x3dcc_cccd, "0.1"),
            ("fp64", f64::NEG_INFINITY.to_bits(), "\"-inf\""),
            ("fp64", 0.1_f64.to_bits(), "0.1"),
            ("int64", 1 << 53, "9007199254740992"),
            ("int64", (1 << 53) + 1, "\"9007199254740993\""),
        ];
        for (dtype, bits, expected) in cases {
            assert_eq!(element(dtype, bits), expected, "{dtype} {bits:x}");
        }
    }
}
