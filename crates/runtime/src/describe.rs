//! Parses descriptions of a kernel's arguments, such as `*fp32:16, i32, 1024, 'text'`. A type
//! describes a run-time argument, and a value describes a compile-time argument.
//!
//! This is the language of `tilewright compile --signature`, of Triton's ahead-of-time compiler,
//! and of the types in `ASTSource(signature=...)`:
//!
//! | text | argument |
//! |---|---|
//! | `*fp32`, `*i64`, `*bf16` | a tensor |
//! | `*kfp32` | a tensor that is only read |
//! | `i32`, `u8`, `fp32`, `u1` | a number at run time; for a `tl.constexpr` parameter, the dtype itself |
//! | `*fp32:16`, `i32:16` | a tensor whose address is a multiple of 16, a number that is a multiple of 16 |
//! | `i32:1` | the int 1, which is part of the code |
//! | `1024`, `-1.5`, `'text'`, `True`, `None` | a compile-time value |
//! | `(*fp32, i32)`, `(x=*fp32, n=i32)` | a tuple of these, a `NamedTuple` with these fields |
//! | `tensordesc<fp16[64, 32]>`, `tensordesc<fp16[64, 32], nan>` | a tensor descriptor with blocks of this element type and shape; with `nan`, elements outside of the tensor are NaN instead of 0 |
//! | `tensordesc<fp16[64, 32], NVMMASharedLayout(64, 16, 2)>` | a tensor descriptor of Gluon, with the layout of its blocks |
//! | `tensordesc_im2col<fp16[64, 32], NVMMASharedLayout(64, 16, 2), lower [-1] upper [0] steps [1, 1, 1]>` | an im2col descriptor of Gluon, with the window of its pixels |
//! | `BlockedLayout([1], [32], [4], [0])` | a layout of Gluon |
//! | `name=…` | the argument of the parameter `name`; arguments without a name come first and bind by position |

use std::sync::Arc;

use tilewright_base::{Code, Diagnostic};
use tilewright_frontend::{Argument, Constant, DescriptorForm, DescriptorKind, HostValue, Padding, Tuple};
use tilewright_ir::{Dtype, Element, PixelWindow, Shape, StatedBuffer};

use crate::signature::{Annotation, ArgumentSource, Signature};
use crate::specialize::align_descriptor;
use crate::{Error, Value, parse_dtype};

/// A layout of Gluon, and its text form.
pub type DescribedLayout = (HostValue, Arc<str>);

impl Signature {
    /// Parses a description of arguments. Returns one argument for each parameter. A parameter
    /// without an argument gets its default.
    pub fn parse_arguments(&self, text: &str) -> Result<Vec<Argument>, Error> {
        self.parse_arguments_with(text, &mut |_| None)
    }

    /// Parses a description of arguments as [`parse_arguments`](Self::parse_arguments) does.
    /// `layout` evaluates an expression for a layout of Gluon. It returns the layout and its text
    /// form.
    ///
    /// # Errors
    /// If the text does not fit the parameters.
    pub fn parse_arguments_with(
        &self,
        text: &str,
        layout: &mut dyn FnMut(&str) -> Option<DescribedLayout>,
    ) -> Result<Vec<Argument>, Error> {
        let mut positional = Vec::new();
        let mut keywords = Vec::new();
        for item in split(text) {
            match split_name(item) {
                Some((name, value)) => keywords.push((name, value)),
                None if keywords.is_empty() => positional.push(item),
                None => {
                    return Err(invalid(item, "an argument without a name follows one with a name"));
                }
            }
        }
        let names: Vec<&str> = keywords.iter().map(|(name, _)| *name).collect();
        let rest = self.variadic().filter(|first| *first < positional.len());
        let rest = rest.map(|first| positional.split_off(first));
        let binding = self.bind(positional.len() + usize::from(rest.is_some()), &names)?;
        if let Some((number, _)) = binding.options.first() {
            return Err(invalid(names[*number], "this is an option, not an argument"));
        }
        let mut parse = |text: &str, is_constexpr: bool| {
            let text = text.trim();
            let found = text.ends_with(')').then(|| layout(text)).flatten();
            match (found, with_block_layout(text)) {
                (Some((found, _)), _) => Ok(Argument::Constexpr(found)),
                (None, Some((head, own))) => match layout(own) {
                    Some((_, own)) => parse_argument(&format!("{head}, {own}>"), is_constexpr),
                    None => parse_argument(text, is_constexpr),
                },
                (None, None) => parse_argument(text, is_constexpr),
            }
        };
        let arguments = binding.parameters.iter().zip(&self.parameters).map(|(source, parameter)| {
            let is_constexpr = parameter.annotation == Annotation::Constexpr;
            match source {
                ArgumentSource::Positional(index) => match (positional.get(*index), &rest) {
                    (None, Some(rest)) => parse_tuple("", rest),
                    (found, _) => parse(found.copied().unwrap_or_default(), is_constexpr),
                },
                ArgumentSource::Keyword(index) => parse(keywords[*index].1, is_constexpr),
                ArgumentSource::Default => {
                    let value = parameter.default.as_ref().and_then(Value::to_host_value);
                    Ok(Argument::Constexpr(value.unwrap_or(HostValue::Constant(Constant::None))))
                }
            }
        });
        arguments.collect()
    }
}

/// Parses one argument. For a `tl.constexpr` parameter, the name of a type is the dtype itself.
pub fn parse_argument(text: &str, is_constexpr: bool) -> Result<Argument, Error> {
    let text = text.trim();
    if nesting(text) > MAX_NESTING {
        return Err(invalid("(((…", &format!("its tuples are nested more than {MAX_NESTING} deep")));
    }
    if !is_constexpr && let Some(items) = bracketed(text) {
        return parse_tuple(text, &items);
    }
    if let Some(constant) = parse_constant(text, is_constexpr) {
        return Ok(Argument::Constexpr(HostValue::Constant(constant)));
    }
    if let Some(inner) = text.strip_prefix("tensordesc_im2col<") {
        return parse_im2col(inner).ok_or_else(|| {
            invalid(text, "an im2col descriptor is written with the layout of its blocks and its window")
        });
    }
    if let Some(inner) = text.strip_prefix("tensordesc<") {
        return parse_descriptor(inner).ok_or_else(|| {
            invalid(
                text,
                "a tensor descriptor is written with its element type and block, as tensordesc<fp16[64, 32]>",
            )
        });
    }
    let (ty, divisibility) = match text.split_once(':') {
        None => (text, 1),
        Some((ty, hint)) => match hint.trim().parse::<u32>() {
            Ok(divisibility) if divisibility.is_power_of_two() => (ty.trim(), divisibility),
            _ => return Err(invalid(text, "the hint after ':' must be a power of two")),
        },
    };
    let is_one = divisibility == 1 && text.contains(':');
    let (ty, is_const) = match ty.strip_prefix("*k") {
        Some(pointee) => (format!("*{pointee}"), true),
        None => (ty.to_owned(), false),
    };
    let element = match ty.strip_prefix('*') {
        Some(pointee) => parse_dtype(pointee.trim()).map(Element::Pointer),
        None => parse_dtype(&ty).map(Element::Value),
    };
    match element {
        Some(Element::Pointer(pointee)) => Ok(Argument::Pointer { pointee, divisibility, is_const }),
        Some(Element::Value(_)) if is_one => Ok(Argument::Constexpr(HostValue::Constant(Constant::Int(1)))),
        Some(Element::Value(dtype)) => Ok(Argument::Scalar { dtype, divisibility }),
        None => Err(invalid(text, "this is neither a type nor a value")),
    }
}

/// Splits the description of a descriptor at the layout of its blocks; `None` if it has no layout.
fn with_block_layout(text: &str) -> Option<(&str, &str)> {
    let end = text.strip_prefix("tensordesc<").and_then(|_| text.find("],"))?;
    let (head, rest) = (&text[..=end], &text[end + 2..]);
    Some((head, rest.strip_suffix('>')?.trim())).filter(|(_, layout)| layout.ends_with(')'))
}

/// Parses the text after `tensordesc_im2col<`; `None` if it is invalid.
fn parse_im2col(text: &str) -> Option<Argument> {
    let (head, window) = text.strip_suffix('>')?.split_once(", lower ")?;
    let window = format!("lower {window}").parse::<PixelWindow>().ok()?;
    parse_parts(&format!("{head}>"), Some(window))
}

/// Parses the text after `tensordesc<`; `None` if it is invalid.
fn parse_descriptor(text: &str) -> Option<Argument> {
    parse_parts(text, None)
}

fn parse_parts(text: &str, window: Option<PixelWindow>) -> Option<Argument> {
    let (dtype, rest) = text.strip_suffix('>')?.split_once('[')?;
    let (extents, rest) = rest.split_once(']')?;
    let pointee = parse_dtype(dtype.trim())?;
    let mut layout = None;
    let padding = match rest.trim_start_matches(',').trim() {
        "" => Padding::Zero,
        "nan" if pointee.is_float() => Padding::Nan,
        text => {
            layout = Some(text.parse::<StatedBuffer>().ok()?.to_string().into());
            Padding::Zero
        }
    };
    let extent = |text: &str| text.trim().parse().ok().filter(|extent: &u32| extent.is_power_of_two());
    let block_shape: Shape = extents.split(',').map(extent).collect::<Option<_>>()?;
    let rank = block_shape.len();
    if !(1..=5).contains(&rank) || u64::from(*block_shape.last()?) * (pointee.bytes() as u64) < 16 {
        return None;
    }
    if window.is_some() && rank != 2 {
        return None;
    }
    let rank = window.as_ref().map_or(rank, |window| window.steps.len());
    let number = |dtype| Argument::Scalar { dtype, divisibility: 1 };
    let mut parts = vec![Argument::Pointer { pointee, divisibility: 1, is_const: false }];
    parts.extend(vec![number(Dtype::I32); rank]);
    parts.extend(vec![number(Dtype::I64); rank - 1]);
    let form = DescriptorForm {
        kind: DescriptorKind::Tensor,
        block_shape,
        padding,
        layout,
        window: window.map(Into::into),
    };
    align_descriptor(&form, &mut parts);
    Some(Argument::Tuple(Tuple::of_descriptor(form.into(), parts)))
}

/// The maximum nesting of tuples.
const MAX_NESTING: i32 = 64;

fn nesting(text: &str) -> i32 {
    let open = |depth: &mut i32, c| {
        *depth += i32::from(c == '(') - i32::from(c == ')');
        Some(*depth)
    };
    text.chars().scan(0, open).max().unwrap_or(0)
}

fn parse_tuple(text: &str, items: &[&str]) -> Result<Argument, Error> {
    let named: Vec<_> = items.iter().filter_map(|item| split_name(item)).collect();
    if named.is_empty() {
        let items = items.iter().map(|item| parse_argument(item, false)).collect::<Result<Vec<_>, _>>()?;
        return Ok(Argument::Tuple(items.into()));
    }
    if named.len() < items.len() {
        return Err(invalid(text, "some items of the tuple have a name, and some have none"));
    }
    let fields = named.iter().map(|(name, _)| (*name).into()).collect();
    let items = named.iter().map(|(_, item)| parse_argument(item, false)).collect::<Result<Vec<_>, _>>()?;
    Ok(Argument::Tuple(Tuple::new(items, Some(fields))))
}

/// Returns the items of a tuple in parentheses; `None` for other text.
fn bracketed(text: &str) -> Option<Vec<&str>> {
    Some(split(text.strip_prefix('(')?.strip_suffix(')')?))
}

fn parse_constant(text: &str, is_constexpr: bool) -> Option<Constant> {
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    match text {
        "None" => return Some(Constant::None),
        "True" => return Some(Constant::Bool(true)),
        "False" => return Some(Constant::Bool(false)),
        _ => {}
    }
    if let Some(string) = quoted('"').or_else(|| quoted('\'')) {
        return Some(Constant::Str(string.into()));
    }
    if let Some(items) = bracketed(text) {
        let items = items.into_iter().map(|item| parse_constant(item, is_constexpr));
        return items.collect::<Option<_>>().map(Constant::Tuple);
    }
    if let Ok(value) = text.replace('_', "").parse::<i128>() {
        return Some(Constant::Int(value));
    }
    let is_number =
        text.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit() || first == '.');
    if is_number && let Ok(value) = text.parse::<f64>() {
        return Some(Constant::Float(value));
    }
    let dtype = text.rsplit('.').next().and_then(parse_dtype);
    dtype.filter(|_| is_constexpr || text.contains('.')).map(Constant::dtype)
}

/// Splits a text at the commas outside of quotes and brackets, and trims the parts. Omits an empty
/// last part, so an empty text has no parts.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), 0, 0_i32, None);
    for (index, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) => {
                if c == open {
                    quote = None;
                }
            }
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '<') => depth += 1,
            (None, ')' | ']' | '>') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(text[start..index].trim());
                start = index + 1;
            }
            (None, _) => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

fn split_name(item: &str) -> Option<(&str, &str)> {
    let (name, value) = item.split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c == '_' || c.is_alphanumeric());
    is_name.then_some((name, value.trim()))
}

fn invalid(text: &str, why: &str) -> Error {
    Diagnostic::new(Code::InvalidArgument, format!("'{text}' does not describe an argument: {why}"))
        .note("types are written as `*fp32`, `i32`, `u8`, `fp16`, `*bf16:16`; values as `1024`, `'text'`, `True`, `None`; \
               tuples as `(*fp32, i32)`")
        .hint("example: --signature '*fp32,*fp32:16,i32,BLOCK=1024'")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameter;
    use tilewright_ir::Dtype;

    fn constant(constant: Constant) -> Argument {
        Argument::Constexpr(HostValue::Constant(constant))
    }

    #[test]
    fn arguments_are_read() {
        let parse = |text| parse_argument(text, false).unwrap();
        let pointer = |pointee, divisibility, is_const| Argument::Pointer { pointee, divisibility, is_const };
        assert_eq!(parse("*fp32"), pointer(Dtype::F32, 1, false));
        assert_eq!(parse("*kfp32"), pointer(Dtype::F32, 1, true));
        assert_eq!(parse(" *u8 : 16 "), pointer(Dtype::U8, 16, false));
        assert_eq!(parse("*ki8:16"), pointer(Dtype::I8, 16, true));
        assert_eq!(parse("i64:8"), Argument::Scalar { dtype: Dtype::I64, divisibility: 8 });
        assert_eq!(parse("i32:1"), constant(Constant::Int(1)));
        assert_eq!(parse("-12"), constant(Constant::Int(-12)));
        assert_eq!(parse("-.5"), constant(Constant::Float(-0.5)));
        assert_eq!(parse("1e-3"), constant(Constant::Float(1e-3)));
        assert_eq!(parse("'a, b'"), constant(Constant::Str("a, b".into())));
        assert_eq!(parse("fp16"), Argument::Scalar { dtype: Dtype::F16, divisibility: 1 });
        assert_eq!(parse("tl.float16"), constant(Constant::dtype(Dtype::F16)));
        assert_eq!(parse_argument("fp16", true).unwrap(), constant(Constant::dtype(Dtype::F16)));
        for bad in ["", "*", "fp33", "i32:3", "i32:x", "'", "inf", "(1", "\u{1F980}"] {
            assert_eq!(parse_argument(bad, false).unwrap_err().code(), Some(Code::InvalidArgument), "{bad}");
        }
    }

    #[test]
    fn tuples_are_read() {
        let parse = |text| parse_argument(text, false).unwrap();
        let pointer = |divisibility| Argument::Pointer { pointee: Dtype::F32, divisibility, is_const: false };
        let int = || Argument::Scalar { dtype: Dtype::I32, divisibility: 1 };
        let tuple = |items: Vec<Argument>| Argument::Tuple(items.into());
        assert_eq!(parse("()"), tuple(vec![]));
        assert_eq!(parse("(i32,)"), tuple(vec![int()]));
        assert_eq!(
            parse("(*fp32:16, (i32, 7))"),
            tuple(vec![pointer(16), tuple(vec![int(), constant(Constant::Int(7))])])
        );
        let fields = Some(["x".into(), "n".into()].into());
        assert_eq!(parse("(x=*fp32, n = i32)"), Argument::Tuple(Tuple::new(vec![pointer(1), int()], fields)));
        let dtypes = Constant::Tuple(vec![Constant::dtype(Dtype::F32), Constant::Int(2)].into());
        assert_eq!(parse_argument("(fp32, 2)", true).unwrap(), constant(dtypes));
        let deep = format!("{}{}", "(".repeat(1 << 20), ")".repeat(1 << 20));
        for bad in ["(i33)", "(x=i32, i32)", "(i32", "(*fp32, )x", &deep] {
            for is_constexpr in [false, true] {
                let error = parse_argument(bad, is_constexpr).unwrap_err();
                assert_eq!(error.code(), Some(Code::InvalidArgument), "{error}");
            }
        }
    }

    #[test]
    fn a_whole_signature_is_bound() {
        let parameters = vec![
            Parameter::new("x", Annotation::None),
            Parameter::new("t", Annotation::Constexpr),
            Parameter { default: Some(Value::Int(8)), ..Parameter::new("B", Annotation::Constexpr) },
        ];
        let signature = Signature { name: "k".into(), parameters, source: None };
        let arguments = signature.parse_arguments("*fp32, t=(1, 'a,b')").unwrap();
        let tuple = Constant::Tuple(vec![Constant::Int(1), Constant::Str("a,b".into())].into());
        assert_eq!(arguments[1..], [constant(tuple), constant(Constant::Int(8))]);
        let code = |text| signature.parse_arguments(text).unwrap_err().code();
        assert_eq!(code("*fp32"), Some(Code::MissingArgument));
        assert_eq!(code(""), Some(Code::MissingArgument));
        assert_eq!(code("*fp32,1,2,3"), Some(Code::TooManyArguments));
        assert_eq!(code("*fp32,x=1,t=2"), Some(Code::TooManyArguments));
        assert_eq!(code("*fp32,1,b=2"), Some(Code::UnknownOption));
        assert_eq!(code("*fp32,1,num_warps=2"), Some(Code::InvalidArgument));
        assert_eq!(code("x=*fp32,1"), Some(Code::InvalidArgument));
    }
}
