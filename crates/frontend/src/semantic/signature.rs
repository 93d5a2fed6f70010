//! Parses the signatures of names of `triton.language`, which are written as in Python.

use std::sync::Arc;

use crate::value::Constant;

/// The ways to pass an argument to a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParameterKind {
    /// By position or by keyword.
    Positional,
    /// Only by keyword.
    KeywordOnly,
    /// By position. The argument is the tuple of all further positional arguments.
    Variadic,
}

/// A parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct BuiltinParameter {
    /// The name.
    pub name: &'static str,
    /// The way to pass the argument.
    pub kind: ParameterKind,
    /// The value if a call passes no argument; `None` if the argument is required.
    pub default: Option<Constant>,
}

/// Parses a signature such as `load(pointer, mask=None, *, volatile=False)` into the name and the
/// parameters. Returns `None` if the text is malformed.
pub(crate) fn parse_signature(text: &'static str) -> Option<(&'static str, Vec<BuiltinParameter>)> {
    let open = text.find('(')?;
    let inner = text[open + 1..].strip_suffix(')')?;
    let mut parameters = Vec::new();
    let mut kind = ParameterKind::Positional;
    for part in split_top_level(inner) {
        let part = part.trim();
        if part == "*" {
            kind = ParameterKind::KeywordOnly;
            continue;
        }
        // A builtin reads arbitrary keyword arguments itself.
        if part.starts_with("**") {
            continue;
        }
        if let Some(name) = part.strip_prefix('*') {
            parameters.push(BuiltinParameter { name, kind: ParameterKind::Variadic, default: None });
            kind = ParameterKind::KeywordOnly;
            continue;
        }
        let (left, default) = match part.split_once('=') {
            Some((left, default)) => (left, Some(parse_default(default.trim())?)),
            None => (part, None),
        };
        let name = left.split(':').next().unwrap_or(left).trim();
        parameters.push(BuiltinParameter { name, kind, default });
    }
    Some((text[..open].trim(), parameters))
}

/// Splits a text at the commas outside of brackets and quotes.
pub(super) fn split_top_level(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut quoted, mut start) = (0_usize, false, 0);
    for (position, byte) in text.bytes().enumerate() {
        match byte {
            b'\'' => quoted = !quoted,
            b'(' | b'[' if !quoted => depth += 1,
            b')' | b']' if !quoted => depth = depth.saturating_sub(1),
            b',' if !quoted && depth == 0 => {
                parts.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

fn parse_default(text: &str) -> Option<Constant> {
    if let Some(inner) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return Some(Constant::Str(Arc::from(inner.replace("\\n", "\n"))));
    }
    match text {
        "None" => Some(Constant::None),
        "True" => Some(Constant::Bool(true)),
        "False" => Some(Constant::Bool(false)),
        "()" => Some(Constant::Tuple(Vec::new().into())),
        _ => text
            .parse()
            .map(Constant::Int)
            .or_else(|_| text.parse().map(Constant::Float))
            .ok()
            .or_else(|| super::constants::named_constant(text.strip_prefix("tl.")?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_parse() {
        let (name, parameters) = parse_signature("f(a, b: constexpr=(), *rest, s='x, y', n=-1, f=1.5)")
            .expect("it is well formed");
        assert_eq!(name, "f");
        let names: Vec<_> = parameters.iter().map(|parameter| (parameter.name, parameter.kind)).collect();
        assert_eq!(
            names,
            [
                ("a", ParameterKind::Positional),
                ("b", ParameterKind::Positional),
                ("rest", ParameterKind::Variadic),
                ("s", ParameterKind::KeywordOnly),
                ("n", ParameterKind::KeywordOnly),
                ("f", ParameterKind::KeywordOnly),
            ]
        );
        assert_eq!(parameters[1].default, Some(Constant::Tuple(Vec::new().into())));
        assert_eq!(parameters[3].default, Some(Constant::Str("x, y".into())));
        assert_eq!(parameters[4].default, Some(Constant::Int(-1)));
        assert_eq!(parameters[5].default, Some(Constant::Float(1.5)));
        assert!(parse_signature("f(a").is_none());
        assert_eq!(parse_signature("f()").map(|(_, parameters)| parameters.len()), Some(0));
    }
}
