//! Elements of tensors as JSON.

use std::fmt::Write;

use tilewright_base::Json;

/// Elements of tensors as JSON.
pub(crate) trait Elements {
    /// An element of a tensor. What JSON has no number for, and what JavaScript would round, is a text.
    fn element(&mut self, dtype: &str, bits: u64);
}

impl Elements for Json {
    fn element(&mut self, dtype: &str, bits: u64) {
        self.separate();
        let out = &mut self.0;
        let float = |out: &mut String, value: f64, shortest: &dyn std::fmt::Display| {
            let _ = match value {
                value if value.is_nan() => write!(out, "\"nan\""),
                f64::INFINITY => write!(out, "\"inf\""),
                f64::NEG_INFINITY => write!(out, "\"-inf\""),
                _ => write!(out, "{shortest}"),
            };
        };
        let signed = |bits: u64, width: u32| ((bits << (64 - width)) as i64) >> (64 - width);
        let integer = |out: &mut String, value: i128| {
            let quote = if value.unsigned_abs() > 1 << 53 { "\"" } else { "" };
            let _ = write!(out, "{quote}{value}{quote}");
        };
        match dtype {
            "int1" => out.push_str(if bits == 0 { "false" } else { "true" }),
            "int8" => integer(out, signed(bits, 8).into()),
            "int16" => integer(out, signed(bits, 16).into()),
            "int32" => integer(out, signed(bits, 32).into()),
            "int64" => integer(out, bits.cast_signed().into()),
            "fp32" => {
                let value = f32::from_bits(bits as u32);
                float(out, value.into(), &value);
            }
            "fp64" => float(out, f64::from_bits(bits), &f64::from_bits(bits)),
            dtype => match narrow_float(dtype, bits) {
                Some(value) => float(out, value, &(value as f32)),
                None => integer(out, bits.into()),
            },
        }
    }
}

/// The number that a float of 8 or 16 bits is; none for other types.
fn narrow_float(dtype: &str, bits: u64) -> Option<f64> {
    // The bits of exponent and mantissa, the offset of the exponent, and whether the largest exponent is of infinities and NaNs.
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
    fn elements_are_the_numbers_that_they_are() {
        let element = |dtype: &str, bits: u64| {
            let mut json = Json::default();
            json.element(dtype, bits);
            json.0
        };
        let cases = [
            ("fp16", 0x3e00, "1.5"),
            ("fp16", 0xfc00, "\"-inf\""),
            ("bf16", 0xc000, "-2"),
            ("fp8e4nv", 0x7e, "448"),
            ("fp8e4nv", 0x7f, "\"nan\""),
            ("fp8e5", 0x7b, "57344"),
            ("fp8e5", 0x7c, "\"inf\""),
            ("fp8e4b8", 0x80, "\"nan\""),
            ("fp8e4b15", 0x7f, "1.875"),
            ("int8", 0xff, "-1"),
            ("uint8", 0xff, "255"),
            ("int64", u64::MAX, "-1"),
            ("uint64", u64::MAX, "\"18446744073709551615\""),
            ("int1", 1, "true"),
            ("fp32", 0x3dcc_cccd, "0.1"),
        ];
        for (dtype, bits, expected) in cases {
            assert_eq!(element(dtype, bits), expected, "{dtype} {bits:x}");
        }
    }
}
