//! Formats floats and strings as Python's `repr`, and types with their printed names.

use std::fmt::Write;

use tilewright_ir::{Dtype, Element, Type};

/// Returns Python's `repr` of a float: the shortest digits that parse to the same value.
pub fn float_repr(value: f64) -> String {
    if !value.is_finite() {
        return non_finite(value).into();
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let (digits, exponent) = decimal(&format!("{:e}", value.abs()));
    format!("{sign}{}", general(&digits, exponent, 17, 1))
}

/// Returns Python's `repr` of a string. With `ascii`, also escapes characters outside of ASCII.
pub fn string_repr(text: &str, ascii: bool) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut repr = String::from(quote);
    for c in text.chars() {
        let code = u32::from(c);
        let _ = match c {
            '\n' => write!(repr, "\\n"),
            '\r' => write!(repr, "\\r"),
            '\t' => write!(repr, "\\t"),
            '\\' => write!(repr, "\\\\"),
            _ if c == quote => write!(repr, "\\{c}"),
            _ if (c.is_control() || ascii && !c.is_ascii()) && code < 0x100 => write!(repr, "\\x{code:02x}"),
            _ if ascii && !c.is_ascii() && code < 0x1_0000 => write!(repr, "\\u{code:04x}"),
            _ if ascii && !c.is_ascii() => write!(repr, "\\U{code:08x}"),
            _ => write!(repr, "{c}"),
        };
    }
    repr.push(quote);
    repr
}

pub(crate) fn non_finite(value: f64) -> &'static str {
    match value {
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        _ => "nan",
    }
}

/// Splits a number in Rust's notation `d.ddde5` into its digits and its exponent.
pub(crate) fn decimal(scientific: &str) -> (String, i32) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    (mantissa.replace('.', ""), exponent.parse().unwrap_or(0))
}

/// Formats the number `d.ddd * 10^exponent`. `digits` has no point.
///
/// The text has an exponent if `exponent` is below -4 or at least `most`. If `fraction` is not 0,
/// the limit is `most` - 1. Otherwise, the text has at least `fraction` digits after the point.
pub(crate) fn general(digits: &str, exponent: i32, most: i32, fraction: usize) -> String {
    let limit = if fraction > 0 { most - 1 } else { most };
    if exponent < -4 || exponent >= limit {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        return format!("{first}{point}{rest}{}", exponent_text(exponent, 'e'));
    }
    let mut text = if exponent < 0 {
        format!("0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1))
    } else {
        let whole = exponent as usize + 1;
        let padded = format!("{digits:0<whole$}");
        let (whole, rest) = padded.split_at(whole);
        format!("{whole}.{rest}")
    };
    let digits_after_point = text.len() - text.find('.').map_or(text.len(), |point| point + 1);
    text.extend(std::iter::repeat_n('0', fraction.saturating_sub(digits_after_point)));
    text.trim_end_matches('.').to_owned()
}

pub(crate) fn exponent_text(exponent: i32, letter: char) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{letter}{sign}{:02}", exponent.unsigned_abs())
}

/// Returns the `name` of a type in Triton: `fp32`, `pointer<fp32>`, `<[8], int32>`.
pub fn type_name(ty: &Type) -> String {
    let element = ty.element.pointee().map_or_else(|| ty.element.to_string(), |to| format!("pointer<{to}>"));
    if ty.is_scalar() {
        return element;
    }
    let extents: Vec<String> = ty.shape.iter().map(u32::to_string).collect();
    format!("<[{}], {element}>", extents.join(", "))
}

/// Returns the type as Triton prints it: `fp32`, `pointer<fp32>`, `int32[constexpr[8]]`. With
/// `is_tensor`, brackets also follow a scalar: `fp32[]`.
pub fn type_str(ty: &Type, is_tensor: bool) -> String {
    let mut text = ty.element.pointee().map_or_else(|| ty.element.to_string(), |to| format!("pointer<{to}>"));
    if is_tensor || !ty.is_scalar() {
        let extents: Vec<String> = ty.shape.iter().map(|extent| format!("constexpr[{extent}]")).collect();
        text = format!("{text}[{}]", extents.join(", "));
    }
    text
}

/// Encodes a type as a part of a mangled name.
pub fn mangled(ty: &Type) -> String {
    let of = |dtype: Dtype| match dtype {
        Dtype::I1 => "i1".to_owned(),
        dtype if dtype.is_int() => format!("{}{}", if dtype.is_signed() { 'i' } else { 'u' }, dtype.bits()),
        dtype => dtype.name().to_owned(),
    };
    let element = match ty.element {
        Element::Value(dtype) => of(dtype),
        Element::Pointer(pointee) => format!("P{}", of(pointee)),
    };
    let extents: Vec<String> = ty.shape.iter().map(ToString::to_string).collect();
    if ty.is_scalar() { element } else { format!("{element}S{}S", extents.join("_")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn representations_are_those_of_python() {
        for (value, text) in [
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (123.0, "123.0"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float_repr(value), text);
        }
        for (value, text, ascii) in [
            ("a", "'a'", "'a'"),
            ("it's", "\"it's\"", "\"it's\""),
            ("'\"", "'\\'\"'", "'\\'\"'"),
            ("é\n\0\\", "'é\\n\\x00\\\\'", "'\\xe9\\n\\x00\\\\'"),
            ("😀", "'😀'", "'\\U0001f600'"),
        ] {
            assert_eq!(
                (string_repr(value, false).as_str(), string_repr(value, true).as_str()),
                (text, ascii)
            );
        }
    }
}
