//! Writing JSON.

use std::fmt::Write;

/// A text with JSON in it, written part by part.
#[derive(Default)]
pub(crate) struct Json(pub String);

impl Json {
    fn separate(&mut self) {
        if !matches!(self.0.chars().last(), None | Some('{' | '[' | ':' | ',')) {
            self.0.push(',');
        }
    }

    /// An object or, with `[`, a list.
    pub fn nest(&mut self, open: char, content: impl FnOnce(&mut Self)) {
        self.separate();
        self.0.push(open);
        content(self);
        self.0.push(if open == '{' { '}' } else { ']' });
    }

    /// The key of the value that follows.
    pub fn key(&mut self, key: &str) -> &mut Self {
        self.text(key);
        self.0.push(':');
        self
    }

    pub fn text(&mut self, text: &str) {
        self.separate();
        self.0.push('"');
        for character in text.chars() {
            match character {
                '"' => self.0.push_str("\\\""),
                '\\' => self.0.push_str("\\\\"),
                character if (character as u32) < 0x20 => {
                    let _ = write!(self.0, "\\u{:04x}", character as u32);
                }
                character => self.0.push(character),
            }
        }
        self.0.push('"');
    }

    /// A number, or anything else that JSON writes as Rust does.
    pub fn plain(&mut self, value: impl std::fmt::Display) {
        self.separate();
        let _ = write!(self.0, "{value}");
    }

    pub fn list<T: std::fmt::Display>(&mut self, items: impl IntoIterator<Item = T>) {
        self.nest('[', |json| items.into_iter().for_each(|item| json.plain(item)));
    }

    /// An element of a tensor. What JSON has no number for, and what JavaScript would round, is a text.
    pub fn element(&mut self, dtype: &str, bits: u64) {
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

    #[test]
    fn texts_are_escaped() {
        let mut json = Json::default();
        json.nest('{', |json| {
            json.key("a\"").text("b\n\\");
            json.key("c").list([1, 2]);
            json.key("d").nest('[', |_| {});
        });
        assert_eq!(json.0, "{\"a\\\"\":\"b\\u000a\\\\\",\"c\":[1,2],\"d\":[]}");
    }
}
