//! Defines the rules of elementwise functions and conversions.

use tilewright_base::Code;
use tilewright_ir::{Builder, Dtype, Element, ElementwiseFn, Rounding, Shape, Type};

use super::arguments::Arguments;
use super::convert::{broadcast_to, cast, cast_element, common_shape, describe, shape_mismatch};
use super::operators::{
    Number, binary_with, boolean, check_fits, checks_overflow, common_pair, materialize, number, select,
};
use super::promote::{Rule, Side, common_dtype};
use super::{BinaryOperator, BooleanOperator, Caller, Op, Semantic, SemanticError, ValueOf};
use crate::types::LanguageType;
use crate::value::{Constant, Operand};

pub(super) fn float<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    function: ElementwiseFn,
) -> Semantic<Op<C>> {
    let (value, ty) = a.typed(c, 0)?;
    float_dtype(a, &ty, 0)?;
    Ok(Operand::Tensor(c.builder().unary(function, value)?))
}

fn float_dtype<C: Caller + ?Sized>(a: &Arguments<'_, C>, ty: &Type, index: usize) -> Semantic<Dtype> {
    if let Some(dtype) = ty.dtype().filter(|dtype| dtype.is_float()) {
        return Ok(dtype);
    }
    let error =
        SemanticError::new(Code::TypeMismatch, format!("`{}` takes floating-point numbers", a.spec.name))
            .argument(index, format!("this is {ty}"))
            .note(format!("found {}, expected a type such as fp32", ty.element));
    Err(if ty.dtype().is_some() { error.hint("convert it first: `x.to(tl.float32)`") } else { error })
}

/// `abs(x)`.
pub(super) fn abs<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (value, ty) = a.typed(c, 0)?;
    match ty.dtype() {
        None => Err(SemanticError::new(Code::TypeMismatch, "`abs` takes numbers, not pointers")
            .argument(0, format!("this is {ty}"))),
        Some(dtype) if dtype.is_float() || dtype.is_signed() => {
            Ok(Operand::Tensor(c.builder().unary(ElementwiseFn::Abs, value)?))
        }
        Some(_) => Ok(Operand::Tensor(value)),
    }
}

/// `div_rn(x, y)`: divides in the common type if it is a float, else in fp32.
pub(super) fn div_rn<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    for index in 0..2 {
        if let Operand::Tensor(value) = a.at(index)? {
            let ty = c.builder().type_of(value);
            float_dtype(a, &ty, index)?;
        }
    }
    let (x, y, dtype) = common_pair(c, a.spec.name, a.at(0)?, a.at(1)?, Rule::PLAIN)?;
    let dtype = if dtype.is_float() { dtype } else { Dtype::F32 };
    let (x, y) = (cast(c, x, dtype)?, cast(c, y, dtype)?);
    Ok(Operand::Tensor(c.builder().binary(ElementwiseFn::DivRn, x, y)?))
}

/// `fdiv(x, y, ieee_rounding, approx)`: divides in the common type, but at least in fp32. One
/// operand may be an integer.
pub(super) fn fdiv<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let function = if a.flag(c, 2)? { ElementwiseFn::DivRn } else { ElementwiseFn::Div };
    let (x, y, dtype) = common_pair(c, a.spec.name, a.at(0)?, a.at(1)?, Rule::DIVIDE)?;
    if dtype.is_int() {
        let (x, y) = (describe(c, a.at(0)?), describe(c, a.at(1)?));
        return Err(SemanticError::new(
            Code::TypeMismatch,
            "`fdiv` takes at least one floating-point number",
        )
        .argument(0, format!("this is {x}"))
        .argument(1, format!("this is {y}"))
        .note(format!("found the common type {dtype}, expected a type such as fp32"))
        .hint("write `x / y`, which divides integers in fp32"));
    }
    Ok(Operand::Tensor(c.builder().binary(function, x, y)?))
}

/// `umulhi(x, y)`: treats the operands as unsigned, even if their type is signed.
pub(super) fn unsigned_mul_high<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (x, y, dtype) = wide_integers(c, a)?;
    let unsigned = if dtype.bits() == 64 { Dtype::U64 } else { Dtype::U32 };
    let (x, y) = (cast(c, x, unsigned)?, cast(c, y, unsigned)?);
    let product = c.builder().binary(ElementwiseFn::MulHigh, x, y)?;
    Ok(Operand::Tensor(cast(c, product, dtype)?))
}

/// `libdevice.mulhi(x, y)`: the high half of the product, signed if the common type is.
pub(super) fn mul_high<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (x, y, _) = wide_integers(c, a)?;
    Ok(Operand::Tensor(c.builder().binary(ElementwiseFn::MulHigh, x, y)?))
}

/// Converts arguments 0 and 1 to their common type, which must be an integer type of 32 or 64 bits.
fn wide_integers<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
) -> Semantic<(ValueOf<C>, ValueOf<C>, Dtype)> {
    let (x, y, dtype) = common_pair(c, a.spec.name, a.at(0)?, a.at(1)?, Rule::PLAIN)?;
    if dtype.is_int() && dtype.bits() >= 32 {
        return Ok((x, y, dtype));
    }
    let message = format!("`{}` takes 32- and 64-bit integers", a.spec.name);
    Err(SemanticError::new(Code::TypeMismatch, message)
        .argument(0, format!("the operands' common type is {dtype}"))
        .note(format!("found {dtype}, expected int32, int64, uint32 or uint64"))
        .hint("convert the operands: `x.to(tl.uint32)`"))
}

/// Returns the first `count` arguments in their common type and shape. Numbers keep the type of
/// tensors of the same or a higher kind (bool < integer < float).
fn common<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    count: usize,
) -> Semantic<(Vec<ValueOf<C>>, Dtype)> {
    let what = format!("`{}`", a.spec.name);
    let refused = |index: usize, own: Dtype, known: Dtype| {
        let message = format!("{what} does not take an 8-bit float and an integer");
        SemanticError::new(Code::TypeMismatch, message)
            .argument(index, format!("this is {own}, after {known}"))
            .hint("convert the float to a wider type first: `x.to(tl.float32)`")
    };
    let mut numbers = Vec::with_capacity(count);
    let (mut strong, mut weak): (Option<Side>, Option<Side>) = (None, None);
    let mut shape = Shape::scalar();
    for index in 0..count {
        let number = number(c, a.spec.name, a.at(index)?, index)?;
        let own = number.side();
        let known = if own.is_weak { &mut weak } else { &mut strong };
        let before = known.unwrap_or(own);
        let dtype =
            common_dtype(before, own, Rule::PLAIN).map_err(|_| refused(index, own.dtype, before.dtype))?;
        *known = Some(Side { dtype, ..own });
        if let Number::Strong(_, ty, _) = &number {
            shape = common_shape(&shape, &ty.shape)
                .map_err(|axis| shape_mismatch(&what, (0, &shape), (index, &ty.shape), axis))?;
        }
        numbers.push(number);
    }
    let dtype = match (strong, weak) {
        (Some(tensors), Some(constants)) => common_dtype(tensors, constants, Rule::PLAIN)
            .map_err(|_| refused(0, constants.dtype, tensors.dtype))?,
        (Some(side), None) | (None, Some(side)) => side.dtype,
        (None, None) => Dtype::F32,
    };
    let mut converted = Vec::with_capacity(count);
    for (index, number) in numbers.into_iter().enumerate() {
        check_fits(&number, dtype, index)?;
        let value = materialize(c, number, dtype)?;
        converted.push(broadcast_to(c, value, &shape)?);
    }
    Ok((converted, dtype))
}

/// `fma(x, y, z)`.
pub(super) fn fma<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (values, dtype) = common(c, a, 3)?;
    float_dtype(a, &Type::scalar(dtype), 0)?;
    match <[ValueOf<C>; 3]>::try_from(values) {
        Ok([left, right, term]) => {
            Ok(Operand::Tensor(c.builder().ternary(ElementwiseFn::Fma, left, right, term)?))
        }
        Err(_) => Err(SemanticError::new(Code::WrongArguments, "`fma` takes three numbers")),
    }
}

/// Returns whether the argument `index` requests the propagation of NaN (`tl.PropagateNan.ALL`).
fn propagates_nan<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, index: usize) -> Semantic<bool> {
    match a.constant(c, index)? {
        Constant::Str(text) => Ok(text.eq_ignore_ascii_case("all")),
        other => Ok(other.is_true()),
    }
}

/// `maximum(x, y, propagate_nan)`, `minimum(x, y, propagate_nan)`.
pub(super) fn extremum<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, is_max: bool) -> Semantic<Op<C>> {
    let nan = propagates_nan(c, a, 2)?;
    let (values, dtype) = common(c, a, 2)?;
    match <[ValueOf<C>; 2]>::try_from(values) {
        Ok([x, y]) => Ok(Operand::Tensor(c.builder().binary(extremum_of(is_max, nan, dtype), x, y)?)),
        Err(_) => Err(SemanticError::new(Code::WrongArguments, "`maximum` takes two numbers")),
    }
}

fn extremum_of(is_max: bool, nan: bool, dtype: Dtype) -> ElementwiseFn {
    match (is_max, nan && dtype.is_float()) {
        (true, false) => ElementwiseFn::Max,
        (false, false) => ElementwiseFn::Min,
        (true, true) => ElementwiseFn::MaxNan,
        (false, true) => ElementwiseFn::MinNan,
    }
}

/// `clamp(x, min, max, propagate_nan)`.
pub(super) fn clamp<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let nan = propagates_nan(c, a, 3)?;
    let (values, dtype) = common(c, a, 3)?;
    let Ok([x, low, high]) = <[ValueOf<C>; 3]>::try_from(values) else {
        return Err(SemanticError::new(Code::WrongArguments, "`clamp` takes three numbers"));
    };
    let above = c.builder().binary(extremum_of(true, nan, dtype), x, low)?;
    Ok(Operand::Tensor(c.builder().binary(extremum_of(false, nan, dtype), above, high)?))
}

/// `where(condition, x, y)`.
pub(super) fn where_<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    select(c, a.at(0)?, a.at(1)?, a.at(2)?)
}

/// `add(x, y, sanitize_overflow)`, `sub(x, y, sanitize_overflow)`, `mul(x, y, sanitize_overflow)`.
pub(super) fn operator<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    op: BinaryOperator,
) -> Semantic<Op<C>> {
    let is_checked = a.flag(c, 2)? && checks_overflow(c);
    binary_with(c, op, a.at(0)?, a.at(1)?, is_checked)
}

/// `tensor.logical_and(other)`, `tensor.logical_or(other)`.
pub(super) fn logical<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    op: BooleanOperator,
) -> Semantic<Op<C>> {
    let (left, right) = (a.at(0)?, a.at(1)?);
    if let (Operand::Constant(one), Operand::Constant(other)) = (left, right) {
        // For two compile-time values, the result is that of Python's `and` or `or`.
        let takes_other = one.is_true() == matches!(op, BooleanOperator::And);
        return Ok(Operand::Constant(if takes_other { other } else { one }.clone()));
    }
    boolean(c, op, left, right)
}

/// `to_tensor(x)`.
pub(super) fn to_tensor<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    Ok(Operand::Tensor(a.tensor(c, 0)?))
}

pub(super) const ROUNDING: &[(&str, Rounding)] =
    &[("rtne", Rounding::NearestEven), ("rtz", Rounding::TowardsZero)];

/// `cast(input, dtype, fp_downcast_rounding, bitcast)`.
pub(super) fn convert<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (value, ty) = a.typed(c, 0)?;
    let element = a.element(c, 1)?;
    if element.pointee().is_some() {
        return cast_to_pointer(c, a, value, element);
    }
    if a.flag(c, 3)? {
        return bitcast(c, value, &ty, element);
    }
    if !a.is_none(2) && ty.element != element && !is_narrowing(ty.element, element) {
        let message = "`fp_downcast_rounding` is for a conversion to a narrower float";
        return Err(SemanticError::new(Code::InvalidValue, message)
            .argument(0, format!("this is {ty}"))
            .argument(1, format!("this is {element}"))
            .hint("leave `fp_downcast_rounding` out"));
    }
    let rounding = a.choice(c, 2, ROUNDING)?;
    Ok(Operand::Tensor(cast_element(c, value, element, rounding)?))
}

/// Casts to a pointer type. The type states whether the memory is read-only.
fn cast_to_pointer<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    value: ValueOf<C>,
    element: Element,
) -> Semantic<Op<C>> {
    let is_const = match a.constant(c, 1)? {
        Constant::LanguageType(ty) => matches!(*ty, LanguageType::ConstPointer(_)),
        _ => false,
    };
    let is_same = c.builder().type_of(&value).element == element;
    let mut pointer = cast_element(c, value, element, Rounding::default())?;
    if c.read_only(&pointer).is_some() != is_const {
        if is_same {
            pointer = c.builder().cast(pointer, element, Rounding::default())?;
        }
        c.cast_pointer(&pointer, is_const);
    }
    Ok(Operand::Tensor(pointer))
}

fn is_narrowing(from: Element, to: Element) -> bool {
    match (from.value(), to.value()) {
        (Some(from), Some(to)) => from.is_float() && to.is_float() && to.bits() < from.bits(),
        _ => false,
    }
}

fn bitcast<C: Caller + ?Sized>(c: &mut C, value: ValueOf<C>, ty: &Type, element: Element) -> Semantic<Op<C>> {
    if ty.element == element {
        return Ok(Operand::Tensor(value));
    }
    let (Some(from), Some(to)) = (ty.dtype(), element.value()) else {
        return Ok(Operand::Tensor(cast_element(c, value, element, Rounding::default())?));
    };
    if from.bits() != to.bits() {
        let message = format!("the bits of {from} cannot be read as {to}");
        return Err(SemanticError::new(Code::TypeMismatch, message)
            .argument(0, format!("this has {} bits an element", from.bits()))
            .argument(1, format!("this has {} bits", to.bits()))
            .note("expected types of one width")
            .hint("without `bitcast=True` the numbers are converted"));
    }
    Ok(Operand::Tensor(c.builder().bitcast(value, element)?))
}
