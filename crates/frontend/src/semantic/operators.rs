//! Defines the rules of the operators of tensors.

use tilewright_base::Code;
use tilewright_ir::{Builder, Dtype, Element, ElementwiseFn, Failure, Literal, Shape, Type};

use super::convert::{
    broadcast_pair, broadcast_to, cast, cast_element, common_shape, describe, literal, number_dtype,
    shape_mismatch, tensor, to_bool,
};
use super::promote::{NoCommonType, Rule, Side, common_dtype, common_integer, holds};
use super::{
    BinaryOperator, BooleanOperator, Caller, CompareOperator, Op, Semantic, SemanticError, UnaryOperator,
    ValueOf,
};
use crate::value::{Constant, Operand};

/// Computes `lhs op rhs`.
///
/// Both operands are converted to their common type. A compile-time number of the same or a lower
/// kind (bool < integer < float) takes the type of the other operand. Otherwise, a float determines
/// the type of an integer, and the wider of two floats or two integers wins. Exceptions:
///
/// | operands | common type |
/// |---|---|
/// | fp16 and bf16 | fp16 |
/// | bf16 and an integer or fp8 | fp32 |
/// | two different fp8 types | fp16 |
/// | fp8 and an integer | none |
/// | a signed and an unsigned integer of the same width | the unsigned type |
///
/// `/` and `%` compute fp16, bf16 and fp8 in fp32, and `/` of integers returns fp32. `//` and `%`
/// refuse a signed and an unsigned integer, unless one is a compile-time number. `+`, `-` and `*`
/// of booleans are modulo 2, so the product of two masks is a mask.
pub fn binary<C: Caller + ?Sized>(
    c: &mut C,
    op: BinaryOperator,
    lhs: &Op<C>,
    rhs: &Op<C>,
) -> Semantic<Op<C>> {
    let is_checked = checks_overflow(c);
    binary_with(c, op, lhs, rhs, is_checked)
}

/// Returns whether the code that the caller emits checks integer `+`, `-` and `*` for overflow.
pub(crate) fn checks_overflow<C: Caller + ?Sized>(c: &C) -> bool {
    c.options().debug && !c.options().ignore_overflow && !c.is_in_library()
}

/// Computes `lhs op rhs`. With `is_checked`, the kernel asserts that `+`, `-` and `*` of integers
/// of 8 to 32 bits do not overflow.
pub(crate) fn binary_with<C: Caller + ?Sized>(
    c: &mut C,
    op: BinaryOperator,
    lhs: &Op<C>,
    rhs: &Op<C>,
    is_checked: bool,
) -> Semantic<Op<C>> {
    use BinaryOperator as B;
    let check = is_checked.then_some(op);
    let value = match op {
        B::Add | B::Sub => {
            if let Some(moved) = pointer_arithmetic(c, op, lhs, rhs)? {
                moved
            } else {
                let function = if op == B::Add { ElementwiseFn::Add } else { ElementwiseFn::Sub };
                arithmetic(c, op.symbol(), function, lhs, rhs, check)?
            }
        }
        B::Mul => arithmetic(c, op.symbol(), ElementwiseFn::Mul, lhs, rhs, check)?,
        B::Div => divide(c, lhs, rhs)?,
        B::FloorDiv => floor_divide(c, lhs, rhs)?,
        B::Mod => remainder(c, lhs, rhs)?,
        B::And => bitwise(c, op, ElementwiseFn::And, lhs, rhs)?,
        B::Or => bitwise(c, op, ElementwiseFn::Or, lhs, rhs)?,
        B::Xor => bitwise(c, op, ElementwiseFn::Xor, lhs, rhs)?,
        B::Shl => bitwise(c, op, ElementwiseFn::Shl, lhs, rhs)?,
        B::Shr => shift_right(c, lhs, rhs)?,
        B::Pow | B::MatMul => return Err(missing_operator(c, op, lhs, rhs)),
    };
    Ok(Operand::Tensor(value))
}

fn missing_operator<C: Caller + ?Sized>(
    c: &mut C,
    op: BinaryOperator,
    lhs: &Op<C>,
    rhs: &Op<C>,
) -> SemanticError {
    let (left, right) = (describe(c, lhs), describe(c, rhs));
    let hint = match op {
        BinaryOperator::MatMul => "multiply matrices with `tl.dot(a, b)`",
        _ => "write `x * x` for a square, or `tl.exp2(y * tl.log2(x))` for positive x",
    };
    SemanticError::new(Code::TypeMismatch, format!("tensors have no operator `{}`", op.symbol()))
        .argument(0, format!("this is {left}"))
        .argument(1, format!("this is {right}"))
        .hint(hint)
}

/// An operand of an arithmetic operator.
pub(crate) enum Number<V> {
    /// A compile-time number and its natural type.
    Weak(Constant, Dtype),
    Strong(V, Type, Dtype),
}

impl<V> Number<V> {
    /// Returns the properties of the operand that determine the common type.
    pub(crate) fn side(&self) -> Side {
        match self {
            Number::Weak(_, dtype) => Side { dtype: *dtype, is_weak: true },
            Number::Strong(_, _, dtype) => Side { dtype: *dtype, is_weak: false },
        }
    }
}

/// Converts an operand to a number; a pointer is an error.
pub(crate) fn number<C: Caller + ?Sized>(
    c: &mut C,
    symbol: &str,
    x: &Op<C>,
    index: usize,
) -> Semantic<Number<ValueOf<C>>> {
    match x {
        Operand::Constant(constant) => Ok(Number::Weak(constant.clone(), number_dtype(constant, index)?)),
        other => {
            let value = tensor(c, other, index)?;
            let ty = c.builder().type_of(&value);
            let Some(dtype) = ty.dtype() else { return Err(pointer_operand(symbol, &ty, index)) };
            Ok(Number::Strong(value, ty, dtype))
        }
    }
}

fn pointer_operand(symbol: &str, ty: &Type, index: usize) -> SemanticError {
    SemanticError::new(
        Code::TypeMismatch,
        format!("invalid operands of type {} for `{symbol}`, which does not take pointers", ty.element),
    )
    .argument(index, format!("this is {ty}"))
    .note(format!("found {}, expected a number", ty.element))
    .hint("load what it points to with `tl.load`; a pointer is moved by `pointer + offset`")
}

/// Converts two numbers, arguments 0 and 1, to their common element type and shape.
pub(crate) fn common_pair<C: Caller + ?Sized>(
    c: &mut C,
    symbol: &str,
    lhs: &Op<C>,
    rhs: &Op<C>,
    rule: Rule,
) -> Semantic<(ValueOf<C>, ValueOf<C>, Dtype)> {
    let left = number(c, symbol, lhs, 0)?;
    let right = number(c, symbol, rhs, 1)?;
    let dtype = common_dtype(left.side(), right.side(), rule)
        .map_err(|reason| no_common_type(reason, symbol, left.side().dtype, right.side().dtype))?;
    check_fits(&left, dtype, 0)?;
    check_fits(&right, dtype, 1)?;
    if let (Number::Strong(_, left, _), Number::Strong(_, right, _)) = (&left, &right) {
        common_shape(&left.shape, &right.shape).map_err(|axis| {
            shape_mismatch(&format!("`{symbol}`"), (0, &left.shape), (1, &right.shape), axis)
        })?;
    }
    let left = materialize(c, left, dtype)?;
    let right = materialize(c, right, dtype)?;
    let (left, right) = broadcast_pair(c, &format!("`{symbol}`"), left, right)?;
    Ok((left, right, dtype))
}

/// Converts a number to a value with this element type.
pub(crate) fn materialize<C: Caller + ?Sized>(
    c: &mut C,
    number: Number<ValueOf<C>>,
    dtype: Dtype,
) -> Semantic<ValueOf<C>> {
    match number {
        Number::Weak(constant, _) => literal(c, &constant, dtype),
        Number::Strong(value, ..) => cast(c, value, dtype),
    }
}

fn no_common_type(reason: NoCommonType, symbol: &str, lhs: Dtype, rhs: Dtype) -> SemanticError {
    let (message, hint) = match reason {
        NoCommonType::MixedSign => (
            format!("cannot use `{symbol}` with {lhs} and {rhs} because they have different signedness"),
            "convert one of them, such as `x.to(tl.int64)`",
        ),
        NoCommonType::Fp8WithInteger => (
            format!("`{symbol}` does not take an 8-bit float and an integer"),
            "convert the float to a wider type first: `x.to(tl.float32)`",
        ),
    };
    SemanticError::new(Code::TypeMismatch, message)
        .argument(0, format!("this is {lhs}"))
        .argument(1, format!("this is {rhs}"))
        .hint(hint)
}

/// Reports a compile-time integer that does not fit the common type.
pub(crate) fn check_fits<V>(number: &Number<V>, dtype: Dtype, index: usize) -> Semantic<()> {
    let Number::Weak(Constant::Int(value), _) = number else { return Ok(()) };
    let Some((low, high)) = dtype.int_range().filter(|_| !holds(dtype, *value)) else { return Ok(()) };
    let (message, hint) = if *value < 0 && !dtype.is_signed() {
        let message = format!("{value} is negative and the other operand is {dtype}");
        (message, String::from("convert the tensor to a signed type first, such as `x.to(tl.int64)`"))
    } else {
        let message = format!("{value} does not fit the other operand's type {dtype}");
        let wider =
            [Dtype::I32, Dtype::I64].into_iter().find(|wider| holds(*wider, *value)).unwrap_or(Dtype::U64);
        (message, format!("convert the tensor to a wider type first, such as `x.to(tl.{})`", wider.name()))
    };
    Err(SemanticError::new(Code::InvalidValue, message)
        .argument(index, format!("expected a value from {low} to {high}"))
        .argument(1 - index.min(1), format!("this is {dtype}"))
        .hint(hint))
}

fn arithmetic<C: Caller + ?Sized>(
    c: &mut C,
    symbol: &str,
    function: ElementwiseFn,
    lhs: &Op<C>,
    rhs: &Op<C>,
    check: Option<BinaryOperator>,
) -> Semantic<ValueOf<C>> {
    let (left, right, dtype) = common_pair(c, symbol, lhs, rhs, Rule::PLAIN)?;
    let result = c.builder().binary(function, left.clone(), right.clone())?;
    if let Some(op) = check
        && dtype.is_int()
        && (8..64).contains(&dtype.bits())
    {
        // The 64-bit product of 32-bit numbers is exact modulo 2**64, so it equals the 32-bit
        // result only if that lost no bits.
        let (left, right) = (cast(c, left, Dtype::I64)?, cast(c, right, Dtype::I64)?);
        let exact = c.builder().binary(function, left, right)?;
        let kept = cast(c, result.clone(), Dtype::I64)?;
        let holds = c.builder().binary(ElementwiseFn::Eq, exact, kept)?;
        let name = match op {
            BinaryOperator::Add => "add",
            BinaryOperator::Sub => "sub",
            // tidy: wildcard because only `+`, `-` and `*` are checked
            _ => "mul",
        };
        let message = format!("{} overflow detected for operation {name}", dtype.name());
        c.builder().assert(holds, None, Failure::Assertion(message))?;
    }
    Ok(result)
}

fn divide<C: Caller + ?Sized>(c: &mut C, lhs: &Op<C>, rhs: &Op<C>) -> Semantic<ValueOf<C>> {
    let (mut left, mut right, dtype) = common_pair(c, "/", lhs, rhs, Rule::DIVIDE)?;
    if dtype.is_int() {
        left = cast(c, left, Dtype::F32)?;
        right = cast(c, right, Dtype::F32)?;
    }
    Ok(c.builder().binary(ElementwiseFn::Div, left, right)?)
}

fn floor_divide<C: Caller + ?Sized>(c: &mut C, lhs: &Op<C>, rhs: &Op<C>) -> Semantic<ValueOf<C>> {
    let (left, right, dtype) = common_pair(c, "//", lhs, rhs, Rule::REMAINDER)?;
    if dtype.is_float() {
        let (a, b) = (describe(c, lhs), describe(c, rhs));
        return Err(SemanticError::new(Code::TypeMismatch, "`//` takes integers")
            .argument(0, format!("this is {a}"))
            .argument(1, format!("this is {b}"))
            .note(format!("found {dtype}, expected an integer type"))
            .hint("write `tl.floor(x / y)`"));
    }
    divide_integers(c, ElementwiseFn::IntDiv, left, right)
}

fn remainder<C: Caller + ?Sized>(c: &mut C, lhs: &Op<C>, rhs: &Op<C>) -> Semantic<ValueOf<C>> {
    let (left, right, dtype) = common_pair(c, "%", lhs, rhs, Rule::REMAINDER)?;
    if dtype.is_float() {
        return Ok(c.builder().binary(ElementwiseFn::FloatRem, left, right)?);
    }
    divide_integers(c, ElementwiseFn::IntRem, left, right)
}

/// Divides integers, or computes the remainder. With `debug=True`, the kernel asserts that the
/// divisor is not 0, unless `sanitize_overflow=False`. torch.compile sets this option, because its
/// kernels divide by 0 in masked lanes.
fn divide_integers<C: Caller + ?Sized>(
    c: &mut C,
    function: ElementwiseFn,
    left: ValueOf<C>,
    right: ValueOf<C>,
) -> Semantic<ValueOf<C>> {
    if c.options().debug && !c.options().ignore_overflow {
        let nonzero = to_bool(c, right.clone())?;
        c.builder().assert(nonzero, None, Failure::DivisionByZero)?;
    }
    Ok(c.builder().binary(function, left, right)?)
}

fn bitwise<C: Caller + ?Sized>(
    c: &mut C,
    op: BinaryOperator,
    function: ElementwiseFn,
    lhs: &Op<C>,
    rhs: &Op<C>,
) -> Semantic<ValueOf<C>> {
    let (left, right) = bitwise_pair(c, op, lhs, rhs)?;
    Ok(c.builder().binary(function, left, right)?)
}

fn bitwise_pair<C: Caller + ?Sized>(
    c: &mut C,
    op: BinaryOperator,
    lhs: &Op<C>,
    rhs: &Op<C>,
) -> Semantic<(ValueOf<C>, ValueOf<C>)> {
    let (left, right, dtype) = common_pair(c, op.symbol(), lhs, rhs, Rule::PLAIN)?;
    if dtype.is_int() {
        return Ok((left, right));
    }
    let mut error = SemanticError::new(
        Code::TypeMismatch,
        format!("invalid operands of type {dtype} for `{}`, which takes integers and booleans", op.symbol()),
    );
    for (index, operand) in [lhs, rhs].into_iter().enumerate() {
        let found = describe(c, operand);
        error = error.argument(index, format!("this is {found}"));
    }
    Err(error
        .note(format!("found {dtype}, expected an integer type"))
        .hint("compare first (`x > 0`), or take the bits: `x.to(tl.int32, bitcast=True)`"))
}

/// Shifts right, arithmetically if the left operand is signed, even if the common type is unsigned.
fn shift_right<C: Caller + ?Sized>(c: &mut C, lhs: &Op<C>, rhs: &Op<C>) -> Semantic<ValueOf<C>> {
    let was_signed = match lhs {
        Operand::Tensor(value) => c.builder().type_of(value).dtype().is_some_and(Dtype::is_signed),
        _ => false,
    };
    let (left, right) = bitwise_pair(c, BinaryOperator::Shr, lhs, rhs)?;
    let ty = c.builder().type_of(&left);
    let signed = match ty.dtype() {
        Some(Dtype::U8) => Dtype::I8,
        Some(Dtype::U16) => Dtype::I16,
        Some(Dtype::U32) => Dtype::I32,
        Some(Dtype::U64) => Dtype::I64,
        _ => return Ok(c.builder().binary(ElementwiseFn::Shr, left, right)?),
    };
    if !was_signed {
        return Ok(c.builder().binary(ElementwiseFn::Shr, left, right)?);
    }
    let left = c.builder().bitcast(left, Element::Value(signed))?;
    let right = c.builder().bitcast(right, Element::Value(signed))?;
    let shifted = c.builder().binary(ElementwiseFn::Shr, left, right)?;
    Ok(c.builder().bitcast(shifted, ty.element)?)
}

fn pointee<C: Caller + ?Sized>(c: &mut C, x: &Op<C>) -> Option<Type> {
    match x {
        Operand::Tensor(value) => {
            Some(c.builder().type_of(value)).filter(|ty| ty.element.pointee().is_some())
        }
        _ => None,
    }
}

/// Computes the sum or difference of a pointer and an offset, if an operand is a pointer.
fn pointer_arithmetic<C: Caller + ?Sized>(
    c: &mut C,
    op: BinaryOperator,
    lhs: &Op<C>,
    rhs: &Op<C>,
) -> Semantic<Option<ValueOf<C>>> {
    let (left, right) = (pointee(c, lhs), pointee(c, rhs));
    let is_sub = op == BinaryOperator::Sub;
    match (&left, &right) {
        (None, None) => return Ok(None),
        (Some(left), Some(right)) => {
            let hint = if is_sub {
                "for the distance in bytes write `p.to(tl.int64) - q.to(tl.int64)`"
            } else {
                "add an integer offset, counted in elements, to one pointer"
            };
            let message = format!("two pointers cannot be {}", if is_sub { "subtracted" } else { "added" });
            return Err(SemanticError::new(Code::InvalidIndex, message)
                .argument(0, format!("this is {left}"))
                .argument(1, format!("this is {right}"))
                .hint(hint));
        }
        (None, Some(right)) if is_sub => {
            return Err(SemanticError::new(
                Code::InvalidIndex,
                "a pointer cannot be subtracted from a number",
            )
            .argument(1, format!("this is {right}"))
            .hint("write `pointer - offset`"));
        }
        _ => {}
    }
    let (pointer, offset, index) = if left.is_some() { (lhs, rhs, 1) } else { (rhs, lhs, 0) };
    let pointer = tensor(c, pointer, 1 - index)?;
    let offset = offset_value(c, offset, index, is_sub)?;
    let (pointer, offset) = if index == 1 {
        broadcast_pair(c, &format!("`{}`", op.symbol()), pointer, offset)?
    } else {
        let (offset, pointer) = broadcast_pair(c, &format!("`{}`", op.symbol()), offset, pointer)?;
        (pointer, offset)
    };
    Ok(Some(c.builder().ptr_add(pointer, offset)?))
}

fn offset_value<C: Caller + ?Sized>(
    c: &mut C,
    offset: &Op<C>,
    index: usize,
    is_negated: bool,
) -> Semantic<ValueOf<C>> {
    let constant = match offset {
        Operand::Constant(Constant::Bool(value)) => Some(i128::from(*value)),
        Operand::Constant(Constant::Int(value)) => Some(*value),
        _ => None,
    };
    if let Some(value) = constant {
        let value = if is_negated { value.saturating_neg() } else { value };
        return tensor(c, &Operand::Constant(Constant::Int(value)), index);
    }
    let value = tensor(c, offset, index)?;
    let ty = c.builder().type_of(&value);
    let Some(dtype) = ty.dtype().filter(|dtype| dtype.is_int()) else {
        return Err(SemanticError::new(
            Code::InvalidIndex,
            format!("a pointer is moved by integers, not by {}", ty.element),
        )
        .argument(index, format!("this is {ty}"))
        .note(format!("found {}, expected an integer type", ty.element))
        .hint("convert the offset: `offset.to(tl.int32)`; offsets count elements, not bytes"));
    };
    let wide = match dtype {
        Dtype::I32 | Dtype::I64 | Dtype::U64 => dtype,
        Dtype::I1 | Dtype::I8 | Dtype::I16 => Dtype::I32,
        _ => Dtype::I64,
    };
    let value = cast(c, value, wide)?;
    if is_negated { Ok(c.builder().unary(ElementwiseFn::Neg, value)?) } else { Ok(value) }
}

/// Computes `op x`.
pub fn unary<C: Caller + ?Sized>(c: &mut C, op: UnaryOperator, x: &Op<C>) -> Semantic<Op<C>> {
    let value = tensor(c, x, 0)?;
    let ty = c.builder().type_of(&value);
    if op == UnaryOperator::Not {
        let condition = to_bool(c, value)?;
        return Ok(Operand::Tensor(c.builder().unary(ElementwiseFn::Not, condition)?));
    }
    let Some(dtype) = ty.dtype() else { return Err(pointer_operand(op.symbol(), &ty, 0)) };
    let value = match op {
        UnaryOperator::Plus => value,
        UnaryOperator::Neg => c.builder().unary(ElementwiseFn::Neg, value)?,
        UnaryOperator::Invert | UnaryOperator::Not => {
            if dtype.is_float() {
                return Err(SemanticError::new(
                    Code::TypeMismatch,
                    "`~` takes integers and booleans, not floats",
                )
                .argument(0, format!("this is {ty}"))
                .hint("negate with `-x`, or take the bits: `x.to(tl.int32, bitcast=True)`"));
            }
            c.builder().unary(ElementwiseFn::Not, value)?
        }
    };
    Ok(Operand::Tensor(value))
}

/// Computes `lhs op rhs`, an `int1` for each element.
pub fn compare<C: Caller + ?Sized>(
    c: &mut C,
    op: CompareOperator,
    lhs: &Op<C>,
    rhs: &Op<C>,
) -> Semantic<Op<C>> {
    use CompareOperator as O;
    let function = match op {
        O::Eq => ElementwiseFn::Eq,
        O::Ne => ElementwiseFn::Ne,
        O::Lt => ElementwiseFn::Lt,
        O::Le => ElementwiseFn::Le,
        O::Gt => ElementwiseFn::Gt,
        O::Ge => ElementwiseFn::Ge,
    };
    let (left, right) = match (pointee(c, lhs), pointee(c, rhs)) {
        (None, None) => {
            let (left, right, _) = common_pair(c, op.symbol(), lhs, rhs, Rule::PLAIN)?;
            (left, right)
        }
        (a, b) => {
            if let (Some(a), Some(b)) = (&a, &b)
                && a.element != b.element
            {
                return Err(different_pointers(c, op.symbol(), lhs, rhs));
            }
            let is_equality = matches!(op, O::Eq | O::Ne);
            let left = address(c, lhs, 0, is_equality)?;
            let right = address(c, rhs, 1, is_equality)?;
            broadcast_pair(c, &format!("`{}`", op.symbol()), left, right)?
        }
    };
    Ok(Operand::Tensor(c.builder().binary(function, left, right)?))
}

/// Converts an operand of a comparison with a pointer to an address. With `==` and `!=`, a constant
/// or a 64-bit integer is an address. Other numbers are errors.
fn address<C: Caller + ?Sized>(
    c: &mut C,
    x: &Op<C>,
    index: usize,
    is_equality: bool,
) -> Semantic<ValueOf<C>> {
    let value = tensor(c, x, index)?;
    let ty = c.builder().type_of(&value);
    let Some(dtype) = ty.dtype() else { return cast(c, value, Dtype::U64) };
    let is_address = dtype.is_int() && (matches!(x, Operand::Constant(_)) || dtype.bits() == 64);
    if is_address && is_equality {
        return cast(c, value, Dtype::U64);
    }
    Err(SemanticError::new(Code::TypeMismatch, "a pointer is not comparable with a number")
        .argument(index, format!("this is {ty}"))
        .argument(1 - index, "this is a pointer")
        .note("a tensor, even one with a single element, is passed to a kernel as a pointer")
        .hint("pass a number (`tensor.item()` gives that of a tensor), or load it first: `tl.load(pointer)`"))
}

fn different_pointers<C: Caller + ?Sized>(c: &mut C, what: &str, lhs: &Op<C>, rhs: &Op<C>) -> SemanticError {
    let (left, right) = (describe(c, lhs), describe(c, rhs));
    SemanticError::new(
        Code::TypeMismatch,
        format!("the operands of `{what}` are pointers to different types"),
    )
    .argument(0, format!("this is {left}"))
    .argument(1, format!("this is {right}"))
    .hint("convert one: `p.to(tl.pointer_type(tl.float32))`")
}

/// Computes `and` or `or` of evaluated operands, an `int1` for each element.
pub fn boolean<C: Caller + ?Sized>(
    c: &mut C,
    op: BooleanOperator,
    lhs: &Op<C>,
    rhs: &Op<C>,
) -> Semantic<Op<C>> {
    let function = match op {
        BooleanOperator::And => ElementwiseFn::And,
        BooleanOperator::Or => ElementwiseFn::Or,
    };
    let left = tensor(c, lhs, 0)?;
    let left = to_bool(c, left)?;
    let right = tensor(c, rhs, 1)?;
    let right = to_bool(c, right)?;
    let (left, right) = broadcast_pair(c, &format!("`{}`", op.symbol()), left, right)?;
    Ok(Operand::Tensor(c.builder().binary(function, left, right)?))
}

/// Converts the condition of an `if`, a `while` or a conditional expression to a scalar `int1`.
pub fn truth<C: Caller + ?Sized>(c: &mut C, x: &Op<C>) -> Semantic<ValueOf<C>> {
    let value = match x {
        Operand::Constant(constant) => return Ok(c.builder().constant(Literal::bool(constant.is_true()))?),
        Operand::Tuple(items) => return Ok(c.builder().constant(Literal::bool(!items.is_empty()))?),
        other => tensor(c, other, 0)?,
    };
    let ty = c.builder().type_of(&value);
    if ty.shape.elements() != 1 {
        return Err(SemanticError::new(
            Code::TypeMismatch,
            "a tile of many elements is neither true nor false",
        )
        .argument(0, format!("this is {ty}"))
        .note(format!("found {ty}, expected a scalar"))
        .hint("choose for each element with `tl.where`, or reduce it first: `tl.max(x.to(tl.int32)) > 0`"));
    }
    let value = if ty.is_scalar() { value } else { c.builder().reshape(value, Shape::scalar())? };
    to_bool(c, value)
}

/// Computes `tl.where(condition, x, y)`. Errors point at the arguments 0, 1 and 2.
pub fn select<C: Caller + ?Sized>(c: &mut C, condition: &Op<C>, x: &Op<C>, y: &Op<C>) -> Semantic<Op<C>> {
    let shift = |mut error: SemanticError| {
        for (index, _) in &mut error.arguments {
            *index += 1;
        }
        error
    };
    let condition = tensor(c, condition, 0)?;
    let condition = to_bool(c, condition)?;
    let (x, y) = choices(c, x, y).map_err(shift)?;
    let (chosen, wanted) = (c.builder().type_of(&x).shape, c.builder().type_of(&condition).shape);
    let shape = common_shape(&wanted, &chosen)
        .map_err(|axis| shape_mismatch("`where`", (0, &wanted), (1, &chosen), axis))?;
    let condition = broadcast_to(c, condition, &shape)?;
    let (x, y) = (broadcast_to(c, x, &shape)?, broadcast_to(c, y, &shape)?);
    Ok(Operand::Tensor(c.builder().ternary(ElementwiseFn::Select, condition, x, y)?))
}

fn choices<C: Caller + ?Sized>(c: &mut C, x: &Op<C>, y: &Op<C>) -> Semantic<(ValueOf<C>, ValueOf<C>)> {
    match (pointee(c, x), pointee(c, y)) {
        (None, None) => {
            let (x, y, _) = common_pair(c, "where", x, y, Rule::PLAIN)?;
            Ok((x, y))
        }
        (Some(left), Some(right)) if left.element != right.element => {
            Err(different_pointers(c, "where", x, y))
        }
        (left, right) => {
            // An integer that is selected together with a pointer is an address.
            let element = left.or(right).map_or(Element::Value(Dtype::I64), |ty| ty.element);
            let mut values = Vec::with_capacity(2);
            for (index, operand) in [x, y].into_iter().enumerate() {
                let mut value = tensor(c, operand, index)?;
                let ty = c.builder().type_of(&value);
                if ty.dtype().is_some_and(Dtype::is_int) {
                    value = cast(c, value, Dtype::I64)?;
                }
                values.push(cast_element(c, value, element, tilewright_ir::Rounding::default())?);
            }
            let (Some(y), Some(x)) = (values.pop(), values.pop()) else {
                return Err(SemanticError::new(Code::TypeMismatch, "where takes two values"));
            };
            broadcast_pair(c, "`where`", x, y)
        }
    }
}

/// Returns the type of a loop's index, from start, end and step, which are arguments 0, 1 and 2.
pub fn loop_dtype(lower: &Type, upper: &Type, step: &Type) -> Semantic<Dtype> {
    let mut common: Option<Dtype> = None;
    for (index, (ty, what)) in [(lower, "start"), (upper, "end"), (step, "step")].into_iter().enumerate() {
        let dtype = ty.dtype().filter(|dtype| dtype.is_int() && ty.is_scalar());
        let Some(dtype) = dtype else {
            return Err(SemanticError::new(
                Code::TypeMismatch,
                format!("the {what} of a range must be a scalar integer"),
            )
            .argument(index, format!("this is {ty}"))
            .note(format!("found {ty}, expected int32 or int64"))
            .hint("convert it with `.to(tl.int32)`; a tile is reduced first, as by `tl.max`"));
        };
        let dtype = if dtype.is_bool() { Dtype::I32 } else { dtype };
        common = Some(common.map_or(dtype, |known| common_integer(known, dtype)));
    }
    Ok(common.unwrap_or(Dtype::I32))
}
