//! Parses integers, bits of floating-point numbers, and decimal fractions.

use crate::isa::operand::Immediate;

/// Returns the value of a number; `None` if it is malformed or does not fit.
pub(crate) fn parse(text: &str) -> Option<Immediate> {
    let lower = text.to_ascii_lowercase();
    if let Some(bits) = lower.strip_prefix("0f").filter(|bits| bits.len() == 8) {
        return u32::from_str_radix(bits, 16).ok().map(Immediate::F32);
    }
    if let Some(bits) = lower.strip_prefix("0d").filter(|bits| bits.len() == 16) {
        return u64::from_str_radix(bits, 16).ok().map(Immediate::F64);
    }
    if lower.starts_with("0x") || !lower.contains(['.', 'e']) {
        return integer(&lower).map(|value| Immediate::Integer(value as i64));
    }
    let value: f64 = lower.parse().ok()?;
    Some(Immediate::F64(value.to_bits()))
}

fn integer(lower: &str) -> Option<u64> {
    let digits = lower.strip_suffix('u').unwrap_or(lower);
    let radix = |digits: &str, radix| {
        let is_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_digits { u64::from_str_radix(digits, radix).ok() } else { None }
    };
    if let Some(digits) = digits.strip_prefix("0x") {
        radix(digits, 16)
    } else if let Some(digits) = digits.strip_prefix("0b") {
        radix(digits, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        radix(&digits[1..], 8)
    } else {
        radix(digits, 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_form() {
        let integers = [
            ("0", 0),
            ("42", 42),
            ("42U", 42),
            ("0x1F", 31),
            ("0XffU", 255),
            ("017", 15),
            ("0b101", 5),
            ("18446744073709551615", -1),
            ("0xFFFFFFFFFFFFFFFF", -1),
        ];
        for (text, value) in integers {
            assert_eq!(parse(text), Some(Immediate::Integer(value)), "{text}");
        }
        assert_eq!(parse("0f3F800000"), Some(Immediate::F32(1.0_f32.to_bits())));
        assert_eq!(parse("0F7f800000"), Some(Immediate::F32(f32::INFINITY.to_bits())));
        assert_eq!(parse("0d3FF0000000000000"), Some(Immediate::F64(1.0_f64.to_bits())));
        assert_eq!(parse("1.5"), Some(Immediate::F64(1.5_f64.to_bits())));
        assert_eq!(parse("1.5e-3"), Some(Immediate::F64(1.5e-3_f64.to_bits())));
        for text in ["0x", "08", "12a", "0f3F8", "18446744073709551616", "1.2.3", "0b2", "1e"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
