//! Converts operands to values, and values to other types and shapes.

use tilewright_base::Code;
use tilewright_ir::{Builder, Dtype, Element, Literal, MAX_RANK, MAX_TILE_ELEMENTS, Rounding, Shape, Type};

use super::promote::natural_dtype;
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::launch_response::LAUNCH_RESPONSE;
use crate::value::{Constant, Operand, language_name};

/// Converts a number or tensor to a value. A number gets its natural type.
pub fn to_tensor<C: Caller + ?Sized>(c: &mut C, x: &Op<C>) -> Semantic<ValueOf<C>> {
    tensor(c, x, 0)
}

/// Converts a number or tensor to a value. Errors point at argument `index`.
pub(crate) fn tensor<C: Caller + ?Sized>(c: &mut C, x: &Op<C>, index: usize) -> Semantic<ValueOf<C>> {
    match x {
        Operand::Tensor(value) => Ok(value.clone()),
        Operand::Constant(constant) => {
            let dtype = number_dtype(constant, index)?;
            literal(c, constant, dtype)
        }
        other => Err(not_a_number(other, index)),
    }
}

/// Returns the type of a compile-time number as a tensor ([`natural_dtype`]).
pub(crate) fn number_dtype(constant: &Constant, index: usize) -> Semantic<Dtype> {
    match (natural_dtype(constant), constant) {
        (Some(dtype), _) => Ok(dtype),
        (None, Constant::Int(value)) => {
            let message = format!("the integer {value} does not fit 64 bits");
            Err(SemanticError::new(Code::InvalidValue, message)
                .argument(index, "this is too large")
                .note(format!("expected a value from {} to {}", i64::MIN, u64::MAX)))
        }
        _ => Err(not_a_number(&Operand::<()>::Constant(constant.clone()), index)),
    }
}

pub(crate) fn kind_of<V>(x: &Operand<V>) -> String {
    match x {
        Operand::Tensor(_) => "a tensor".into(),
        Operand::Constant(Constant::None) => "None".into(),
        Operand::Constant(Constant::Str(text)) => format!("the string {:?}", text.as_ref()),
        Operand::Constant(Constant::Type(ty)) => format!("the type {ty}"),
        Operand::Constant(Constant::LanguageType(ty)) => format!("the type {ty}"),
        Operand::Constant(Constant::Tuple(items)) if items.class().is_some() => "an object".into(),
        Operand::Tuple(items) if items.class().is_some() => "an object".into(),
        Operand::Constant(Constant::Tuple(_)) | Operand::Tuple(_) => "a tuple".into(),
        Operand::Constant(Constant::Object(_)) | Operand::Object(_) => "a Python object".into(),
        Operand::Constant(constant) => format!("the constant {constant}"),
        Operand::Descriptor(descriptor) => descriptor.describe().into(),
        Operand::Shared(shared) => shared.describe(),
        Operand::Launch(_) => LAUNCH_RESPONSE.into(),
        Operand::Language(name) => format!("`{}`", language_name(name)),
        Operand::Method(_, name) => format!("the method `{name}`"),
        Operand::Bound(..) => "a method".into(),
        Operand::Super(..) => "`super()`".into(),
        Operand::Function(_) | Operand::ConstexprFunction(_) | Operand::Callable(_) => "a function".into(),
        Operand::Range(_) => "a range".into(),
    }
}

/// Returns a noun for an operand, or the type of a tensor.
pub(crate) fn describe<C: Caller + ?Sized>(c: &mut C, x: &Op<C>) -> String {
    match x {
        Operand::Tensor(value) => c.builder().type_of(value).to_string(),
        other => kind_of(other),
    }
}

const TUPLE_OF_ONE: &str = "take its item, `[0]`; a comma after a value, `x = y,`, makes a tuple of it";

fn not_a_number<V>(x: &Operand<V>, index: usize) -> SemanticError {
    let found = kind_of(x);
    let error =
        SemanticError::new(Code::TypeMismatch, format!("a number or tensor is expected, found {found}"))
            .argument(index, format!("this is {found}"));
    match x {
        Operand::Method(..) | Operand::Bound(..) | Operand::Function(_) | Operand::Language(_) => {
            error.hint("call it: write `()` after it")
        }
        Operand::Constant(Constant::None) => error.hint("test `is None` before using it"),
        Operand::Constant(Constant::Object(_)) | Operand::Object(_) => {
            error.hint("pass it as an argument of the launch, if it is a tensor or a number")
        }
        Operand::Tuple(items) if items.len() == 1 => error.hint(TUPLE_OF_ONE),
        Operand::Constant(Constant::Tuple(items)) if items.len() == 1 => error.hint(TUPLE_OF_ONE),
        _ => error,
    }
}

/// Creates a scalar from a compile-time number. A float is truncated for an integer type.
pub(crate) fn literal<C: Caller + ?Sized>(
    c: &mut C,
    constant: &Constant,
    dtype: Dtype,
) -> Semantic<ValueOf<C>> {
    let builder = c.builder();
    if dtype.is_float() {
        let number = as_f64(constant);
        if let Some(value) = Literal::float(dtype, number) {
            return Ok(builder.constant(value)?);
        }
        // The IR has no literals of 8-bit floats, so an fp32 literal is cast.
        let value = Literal::float(Dtype::F32, number).unwrap_or(Literal { dtype: Dtype::F32, bits: 0 });
        let wide = builder.constant(value)?;
        return Ok(builder.cast(wide, Element::Value(dtype), Rounding::default())?);
    }
    let value = match constant {
        _ if dtype.is_bool() => i128::from(constant.is_true()),
        Constant::Bool(value) => i128::from(*value),
        Constant::Int(value) => *value,
        other => as_f64(other) as i128,
    };
    Ok(builder.constant(Literal::int(dtype, value))?)
}

fn as_f64(constant: &Constant) -> f64 {
    match constant {
        Constant::Bool(value) => f64::from(u8::from(*value)),
        Constant::Int(value) => *value as f64,
        Constant::Float(value) => *value,
        _ => 0.0,
    }
}

/// Converts a value to another number type, and keeps the shape.
pub(crate) fn cast<C: Caller + ?Sized>(c: &mut C, value: ValueOf<C>, dtype: Dtype) -> Semantic<ValueOf<C>> {
    cast_element(c, value, Element::Value(dtype), Rounding::default())
}

/// Converts a value to another element type, and keeps the shape.
pub(crate) fn cast_element<C: Caller + ?Sized>(
    c: &mut C,
    value: ValueOf<C>,
    element: Element,
    rounding: Rounding,
) -> Semantic<ValueOf<C>> {
    let ty = c.builder().type_of(&value);
    if ty.element == element {
        return Ok(value);
    }
    match c.builder().cast(value, element, rounding) {
        Ok(value) => Ok(value),
        Err(_) => Err(cast_error(&ty, element)),
    }
}

fn cast_error(from: &Type, to: Element) -> SemanticError {
    let error =
        SemanticError::new(Code::TypeMismatch, format!("{} cannot be converted to {to}", from.element))
            .argument(0, format!("this is {from}"));
    match (from.element, to) {
        (Element::Pointer(_), Element::Value(_)) => {
            error.hint("load what it points to with `tl.load`, or convert the address with `.to(tl.int64)`")
        }
        (Element::Value(_), Element::Pointer(_)) => error.hint("an address is an int64 or uint64"),
        _ => error,
    }
}

/// Converts a value to int1: true if it is not 0.
pub(crate) fn to_bool<C: Caller + ?Sized>(c: &mut C, value: ValueOf<C>) -> Semantic<ValueOf<C>> {
    cast(c, value, Dtype::I1)
}

/// Checks that a shape has at most [`MAX_RANK`] axes and [`MAX_TILE_ELEMENTS`] elements.
pub(crate) fn check_size(shape: &Shape) -> Semantic<()> {
    let error = |message: String| Err(SemanticError::new(Code::TooLarge, message));
    if shape.len() > MAX_RANK {
        return error(format!("a tile has at most {MAX_RANK} axes, and {shape} has {}", shape.len()));
    }
    let count = shape.iter().try_fold(1_u64, |product, &extent| product.checked_mul(u64::from(extent)));
    match count {
        Some(count) if count <= MAX_TILE_ELEMENTS as u64 => Ok(()),
        _ => {
            let message = format!("a tile has at most {MAX_TILE_ELEMENTS} elements, and {shape} has more");
            let hint = "work on smaller blocks: loop over parts, or launch more programs";
            Err(SemanticError::new(Code::TooLarge, message).hint(hint))
        }
    }
}

/// Returns the shape to which two shapes broadcast: leading axes of extent 1 are added, and axes of
/// extent 1 repeat. The error is the first conflicting axis of the result.
pub(crate) fn common_shape(lhs: &Shape, rhs: &Shape) -> Result<Shape, usize> {
    let rank = lhs.len().max(rhs.len());
    let extent = |shape: &Shape, axis: usize| {
        (axis + shape.len()).checked_sub(rank).and_then(|axis| shape.get(axis)).copied().unwrap_or(1)
    };
    (0..rank)
        .map(|axis| match (extent(lhs, axis), extent(rhs, axis)) {
            (1, right) => Ok(right),
            (left, right) if right == 1 || right == left => Ok(left),
            _ => Err(axis),
        })
        .collect()
}

/// Broadcasts a value to a shape. The caller has checked that this is possible.
pub(crate) fn broadcast_to<C: Caller + ?Sized>(
    c: &mut C,
    value: ValueOf<C>,
    shape: &Shape,
) -> Semantic<ValueOf<C>> {
    let ty = c.builder().type_of(&value);
    if ty.shape == *shape {
        return Ok(value);
    }
    check_size(shape)?;
    if ty.is_scalar() {
        return Ok(c.builder().splat(value, shape.clone())?);
    }
    let mut value = value;
    for _ in ty.rank()..shape.len() {
        value = c.builder().expand_dims(value, 0)?;
    }
    if c.builder().type_of(&value).shape == *shape {
        return Ok(value);
    }
    Ok(c.builder().broadcast(value, shape.clone())?)
}

/// Broadcasts two values, arguments 0 and 1 of `what`, to their common shape.
pub(crate) fn broadcast_pair<C: Caller + ?Sized>(
    c: &mut C,
    what: &str,
    lhs: ValueOf<C>,
    rhs: ValueOf<C>,
) -> Semantic<(ValueOf<C>, ValueOf<C>)> {
    let (left, right) = (c.builder().type_of(&lhs).shape, c.builder().type_of(&rhs).shape);
    let shape =
        common_shape(&left, &right).map_err(|axis| shape_mismatch(what, (0, &left), (1, &right), axis))?;
    check_size(&shape).map_err(|error| {
        error.argument(0, format!("this has shape {left}")).argument(1, format!("this has shape {right}"))
    })?;
    Ok((broadcast_to(c, lhs, &shape)?, broadcast_to(c, rhs, &shape)?))
}

/// Returns the error about two shapes that conflict at `axis` of the result.
pub(crate) fn shape_mismatch(
    what: &str,
    (left, lhs): (usize, &Shape),
    (right, rhs): (usize, &Shape),
    axis: usize,
) -> SemanticError {
    let rank = lhs.len().max(rhs.len());
    let at = |shape: &Shape| shape.get(axis + shape.len() - rank).copied().unwrap_or(1);
    let error = SemanticError::new(
        Code::IncompatibleShapes,
        format!("the operands of {what} have incompatible shapes {lhs} and {rhs}"),
    )
    .argument(left, format!("this has shape {lhs}"))
    .argument(right, format!("this has shape {rhs}"))
    .note(format!("found extents {} and {} along axis {axis}", at(lhs), at(rhs)))
    .note("expected equal extents, or 1, along every axis, counted from the last one");
    match broadcast_hint(lhs, rhs) {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn broadcast_hint(lhs: &Shape, rhs: &Shape) -> Option<String> {
    match (lhs.len(), rhs.len()) {
        (1, 1) => Some(format!(
            "for every pair of their elements, a tile of shape [{}, {}], write `x[:, None]` and `y[None, :]`",
            lhs[0], rhs[0]
        )),
        (1, 2) if lhs[0] == rhs[0] => Some("a [N] tile is a row; for a column write `x[:, None]`".into()),
        (2, 1) if lhs[0] == rhs[0] => Some("a [N] tile is a row; for a column write `y[:, None]`".into()),
        (2, 2) if lhs[0] == rhs[1] && lhs[1] == rhs[0] => {
            Some("transpose one of them with `tl.trans`".into())
        }
        _ => None,
    }
}
