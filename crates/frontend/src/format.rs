//! Formats compile-time values by Python's format specifications.

use crate::repr::{decimal, exponent_text, float_repr, general, non_finite};
use crate::value::{Constant, to_str};

/// The maximum width and the maximum precision of a specification.
const MAX_WIDTH: usize = 1_000;

/// Formats a value as Python's `format` does. Returns an error if Python raises one, or if the
/// specification is not supported (`n`, `c`, `z`).
pub fn format(value: &Constant, spec: &str) -> Result<String, String> {
    if spec.is_empty() {
        return Ok(to_str(value));
    }
    let parsed = Spec::parse(spec)?;
    match value {
        Constant::Bool(value) => parsed.int(i128::from(*value)),
        Constant::Int(value) => parsed.int(*value),
        Constant::Float(value) => parsed.float(*value),
        Constant::Str(text) => parsed.text(text),
        other => Err(format!("a value of type '{}' takes no format specification", other.type_name())),
    }
}

struct Spec {
    fill: char,
    align: Option<char>,
    /// `+`, `-` or a space.
    sign: char,
    alternate: bool,
    width: usize,
    /// `,` or `_`.
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Spec {
    fn parse(text: &str) -> Result<Self, String> {
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        let mut spec = Self {
            fill: ' ',
            align: None,
            sign: '-',
            alternate: false,
            width: 0,
            grouping: None,
            precision: None,
            kind: None,
        };
        let is_align = |c: Option<&char>| c.is_some_and(|c| "<>^=".contains(*c));
        if is_align(chars.get(1)) {
            (spec.fill, spec.align, at) = (chars[0], Some(chars[1]), 2);
        } else if is_align(chars.first()) {
            (spec.align, at) = (Some(chars[0]), 1);
        }
        if let Some(&sign @ ('+' | '-' | ' ')) = chars.get(at) {
            (spec.sign, at) = (sign, at + 1);
        }
        if chars.get(at) == Some(&'#') {
            (spec.alternate, at) = (true, at + 1);
        }
        if chars.get(at) == Some(&'0') {
            at += 1;
            if spec.align.is_none() {
                (spec.fill, spec.align) = ('0', Some('='));
            }
        }
        let number = |at: &mut usize| {
            let start = *at;
            while chars.get(*at).is_some_and(char::is_ascii_digit) {
                *at += 1;
            }
            let digits: String = chars[start..*at].iter().collect();
            let number = digits.parse::<usize>().ok().filter(|&number| number <= MAX_WIDTH);
            number.ok_or_else(|| format!("the width or precision of '{text}' exceeds {MAX_WIDTH}"))
        };
        if chars.get(at).is_some_and(char::is_ascii_digit) {
            spec.width = number(&mut at)?;
        }
        if let Some(&grouping @ (',' | '_')) = chars.get(at) {
            (spec.grouping, at) = (Some(grouping), at + 1);
        }
        if chars.get(at) == Some(&'.') && chars.get(at + 1).is_some_and(char::is_ascii_digit) {
            at += 1;
            spec.precision = Some(number(&mut at)?);
        }
        if at + 1 == chars.len() {
            spec.kind = chars.last().copied();
            at += 1;
        }
        if at != chars.len() {
            return Err(format!("the format specification '{text}' is not valid, or not supported"));
        }
        Ok(spec)
    }

    fn unsupported(&self, type_name: &str) -> String {
        let kind = self.kind.unwrap_or(' ');
        match kind {
            'n' | 'c' => format!("the format code '{kind}' is not supported in a kernel"),
            _ => format!("the format code '{kind}' does not fit a value of type '{type_name}'"),
        }
    }

    fn text(&self, text: &str) -> Result<String, String> {
        if !matches!(self.kind, None | Some('s')) {
            return Err(self.unsupported("str"));
        }
        if self.sign != '-'
            || self.alternate
            || self.grouping.is_some()
            || self.align == Some('=') && self.fill != '0'
        {
            return Err("a string takes no sign, '=', '#', ',' and '_' in a format specification".into());
        }
        let text: String = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
        let align = self.align.map_or('<', |align| if align == '=' { '<' } else { align });
        Ok(self.pad("", &text, align))
    }

    fn int(&self, value: i128) -> Result<String, String> {
        let size = value.unsigned_abs();
        let (prefix, digits, group) = match self.kind {
            None | Some('d') => ("", size.to_string(), 3),
            Some('x') => ("0x", format!("{size:x}"), 4),
            Some('X') => ("0X", format!("{size:X}"), 4),
            Some('o') => ("0o", format!("{size:o}"), 4),
            Some('b') => ("0b", format!("{size:b}"), 4),
            Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => return self.float(value as f64),
            _ => return Err(self.unsupported("int")),
        };
        if self.precision.is_some() {
            return Err("an int takes no precision in a format specification".into());
        }
        if self.grouping == Some(',') && group == 4 {
            return Err(format!("',' does not go with '{}'", self.kind.unwrap_or('d')));
        }
        let prefix = if self.alternate { prefix } else { "" };
        Ok(self.number(&format!("{}{prefix}", self.sign_of(value < 0)), &digits, "", group))
    }

    fn float(&self, value: f64) -> Result<String, String> {
        let size = value.abs();
        let kind = self.kind.map(|kind| kind.to_ascii_lowercase());
        if !matches!(kind, None | Some('e' | 'f' | 'g' | '%')) || matches!(self.kind, Some('N' | 'C')) {
            return Err(self.unsupported("float"));
        }
        let precision = self.precision.unwrap_or(6);
        let mut text = if value.is_finite() {
            match kind {
                Some('e') => {
                    let (digits, exponent) = decimal(&format!("{size:.precision$e}"));
                    let (first, rest) = digits.split_at(1);
                    let point = if rest.is_empty() && !self.alternate { "" } else { "." };
                    format!("{first}{point}{rest}{}", exponent_text(exponent, 'e'))
                }
                Some('f') => fixed(size, precision, self.alternate),
                Some('%') => format!("{}%", fixed(size * 100.0, precision, self.alternate)),
                None if self.precision.is_none() => float_repr(size),
                _ => self.significant(size, precision.max(1)),
            }
        } else {
            format!("{}{}", non_finite(size), if kind == Some('%') { "%" } else { "" })
        };
        if self.kind.is_some_and(|kind| kind.is_ascii_uppercase()) {
            text.make_ascii_uppercase();
        }
        let whole = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (whole, rest) = text.split_at(if value.is_finite() { whole } else { text.len() });
        let sign = self.sign_of(value.is_sign_negative() && !value.is_nan());
        Ok(self.number(sign, whole, rest, if value.is_finite() { 3 } else { usize::MAX }))
    }

    /// Formats a number with `precision` significant digits, for the type `g` or a precision
    /// without a type.
    fn significant(&self, size: f64, precision: usize) -> String {
        let (mut digits, exponent) = decimal(&format!("{size:.*e}", precision - 1));
        if !self.alternate {
            let trimmed = digits.trim_end_matches('0').len();
            digits.truncate(trimmed.max(1));
        }
        let fraction = usize::from(self.kind.is_none());
        let mut text = general(&digits, exponent, precision as i32, fraction);
        if self.alternate && !text.contains('.') {
            text.insert(text.find('e').unwrap_or(text.len()), '.');
        }
        text
    }

    fn sign_of(&self, is_negative: bool) -> &'static str {
        match (is_negative, self.sign) {
            (true, _) => "-",
            (_, '+') => "+",
            (_, ' ') => " ",
            _ => "",
        }
    }

    /// Joins the parts of a number and pads the text: `sign` with the prefix, `whole` in groups of
    /// `group` digits, and `rest`.
    fn number(&self, sign: &str, whole: &str, rest: &str, group: usize) -> String {
        let Some(separator) = self.grouping.filter(|_| group < whole.len().max(self.width)) else {
            return self.pad(sign, &format!("{whole}{rest}"), '>');
        };
        // Padding zeros are grouped, too.
        let mut digits = whole.to_owned();
        if self.fill == '0' && self.align == Some('=') {
            let others = sign.len() + rest.len();
            let length = |digits: usize| digits + (digits - 1) / group + others;
            let mut count = digits.len();
            while length(count) < self.width {
                count += 1;
            }
            digits = format!("{digits:0>count$}");
        }
        let mut grouped = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(group) {
                grouped.push(separator);
            }
            grouped.push(digit);
        }
        self.pad(sign, &format!("{grouped}{rest}"), '>')
    }

    fn pad(&self, sign: &str, digits: &str, default: char) -> String {
        let length = digits.chars().count() + sign.len();
        let missing = self.width.saturating_sub(length);
        let fill = |count: usize| self.fill.to_string().repeat(count);
        let align = match self.align {
            Some(align) if default == '>' || align != '=' => align,
            _ => default,
        };
        match align {
            '<' => format!("{sign}{digits}{}", fill(missing)),
            '^' => format!("{}{sign}{digits}{}", fill(missing / 2), fill(missing - missing / 2)),
            '=' => format!("{sign}{}{digits}", fill(missing)),
            _ => format!("{}{sign}{digits}", fill(missing)),
        }
    }
}

fn fixed(size: f64, precision: usize, alternate: bool) -> String {
    let point = if alternate && precision == 0 { "." } else { "" };
    format!("{size:.precision$}{point}")
}

#[cfg(test)]
mod tests {
    use super::*;
    /// `tests/format_cases.tsv` is written by CPython 3.11: a type, a value, a specification, and
    /// the text, or `!` for an error.
    #[test]
    fn formats_are_those_of_python() {
        for line in include_str!("../tests/format_cases.tsv").lines() {
            let [kind, value, spec, text] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let value = match kind {
                "i" => Constant::Int(value.parse().expect("an int")),
                "f" => Constant::Float(value.parse().expect("a float")),
                _ => Constant::Str(value.into()),
            };
            assert_eq!(format(&value, spec).as_deref().unwrap_or("!"), text, "{line}");
        }
        assert_eq!(format(&Constant::Bool(true), "4").as_deref(), Ok("   1"));
        assert_eq!(format(&Constant::Bool(true), "").as_deref(), Ok("True"));
        for spec in ["n", "c", "99999999999", ".99999f", "z", "5.", "<<<", "é", "-,,"] {
            assert!(format(&Constant::Int(1), spec).is_err(), "{spec}");
        }
        assert!(format(&Constant::None, "d").is_err());
    }
}
