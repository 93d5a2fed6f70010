//! Defines the rules that create tiles and change their shape.

use tilewright_base::Code;
use tilewright_ir::{Builder, IntList, Shape, Type};

use super::arguments::{Arguments, check_shape, count};
use super::convert::{broadcast_pair, broadcast_to, cast, check_size, common_shape, literal};
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::value::{Constant, Operand};

/// `arange(start, end)`.
pub(super) fn arange<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (start, end) = (a.int(c, 0)?, a.int(c, 1)?);
    let invalid = |message: String| SemanticError::new(Code::InvalidArange, message);
    for (index, value) in [start, end].into_iter().enumerate() {
        if i32::try_from(value).is_err() {
            return Err(invalid(format!("the bounds of `arange` must fit int32, and {value} does not"))
                .argument(index, "this is too large")
                .hint("add a scalar to the tile instead: `base + tl.arange(0, N)`"));
        }
    }
    let length = end - start;
    if length <= 0 {
        return Err(invalid(format!("`arange` must end after it starts, and {end} is not after {start}"))
            .argument(0, format!("this is {start}"))
            .argument(1, format!("this is {end}"))
            .note(format!("found a range of {length} elements, expected at least 1")));
    }
    check_size(&Shape::from([u32::try_from(length).unwrap_or(u32::MAX)]))
        .map_err(|error| error.argument(1, "this is too large"))?;
    Ok(Operand::Tensor(c.builder().arange(start as i64, end as i64)?))
}

/// `full(shape, value, dtype)`.
pub(super) fn full<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let shape = a.shape(c, 0)?;
    let dtype = a.dtype(c, 2)?;
    let scalar =
        if let Operand::Constant(constant @ (Constant::Bool(_) | Constant::Int(_) | Constant::Float(_))) =
            a.at(1)?
        {
            check_literal(constant, dtype, 1)?;
            literal(c, constant, dtype)?
        } else {
            let (value, ty) = a.typed(c, 1)?;
            let value = scalar(c, value, &ty, 1)?;
            cast(c, value, dtype)?
        };
    Ok(Operand::Tensor(broadcast_to(c, scalar, &shape)?))
}

/// Checks that a compile-time number fits an integer type. A float must be whole and in range. An
/// integer must fit in 64 bits, and wraps.
fn check_literal(constant: &Constant, dtype: tilewright_ir::Dtype, index: usize) -> Semantic<()> {
    let Some((low, high)) = dtype.int_range().filter(|_| !dtype.is_bool()) else { return Ok(()) };
    let fits = match constant {
        Constant::Float(value) => value.fract() == 0.0 && (low as f64..=high as f64).contains(value),
        Constant::Int(value) => (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(value),
        _ => true,
    };
    if fits {
        return Ok(());
    }
    Err(SemanticError::new(Code::InvalidValue, format!("{constant} is not a value of {dtype}"))
        .argument(index, format!("this is {constant}"))
        .note(format!("found {constant}, expected an integer from {low} to {high}")))
}

/// Returns the only element of a value as a scalar. A value with several elements is an error.
fn scalar<C: Caller + ?Sized>(c: &mut C, value: ValueOf<C>, ty: &Type, index: usize) -> Semantic<ValueOf<C>> {
    if ty.is_scalar() {
        return Ok(value);
    }
    if ty.shape.elements() == 1 {
        return Ok(c.builder().reshape(value, Shape::scalar())?);
    }
    Err(SemanticError::new(Code::TypeMismatch, "a scalar is expected")
        .argument(index, format!("this is {ty}"))
        .note(format!("found {ty}, expected one element")))
}

/// `tensor.item()`: the only element as a scalar.
pub(super) fn item<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (value, ty) = a.typed(c, 0)?;
    Ok(Operand::Tensor(scalar(c, value, &ty, 0)?))
}

/// `expand_dims(input, axis)`. The axes are axes of the result.
pub(super) fn expand_dims<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (mut value, ty) = a.typed(c, 0)?;
    let given = a.ints(c, 1)?;
    let rank = ty.rank() + given.len();
    let mut places = Vec::with_capacity(given.len());
    for axis in given {
        let axis = a.wrap_axis(1, axis, rank)?;
        if places.contains(&axis) {
            return Err(SemanticError::new(Code::InvalidValue, format!("axis {axis} is given twice"))
                .argument(1, "expected different axes"));
        }
        places.push(axis);
    }
    places.sort_unstable();
    for axis in places {
        value = expand(c, value, axis)?;
    }
    Ok(Operand::Tensor(value))
}

/// Inserts an axis of extent 1. A scalar becomes a tile with one axis.
pub(super) fn expand<C: Caller + ?Sized>(c: &mut C, value: ValueOf<C>, axis: usize) -> Semantic<ValueOf<C>> {
    let ty = c.builder().type_of(&value);
    if ty.is_scalar() {
        return Ok(c.builder().splat(value, Shape::from([1]))?);
    }
    let mut shape = ty.shape;
    shape.0.insert(axis.min(shape.len()), 1);
    check_size(&shape)?;
    Ok(c.builder().expand_dims(value, axis as u32)?)
}

/// `broadcast(input, other)`: both operands, broadcast to their common shape.
pub(super) fn broadcast<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (x, y) = (a.tensor(c, 0)?, a.tensor(c, 1)?);
    let (x, y) = broadcast_pair(c, "`broadcast`", x, y)?;
    Ok(Operand::Tuple(vec![Operand::Tensor(x), Operand::Tensor(y)].into()))
}

/// `broadcast_to(input, *shape)`.
pub(super) fn broadcast_to_shape<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (value, ty) = a.typed(c, 0)?;
    let shape = a.shape(c, 1)?;
    let fits = ty.is_scalar()
        || (ty.rank() == shape.len() && common_shape(&ty.shape, &shape).as_ref() == Ok(&shape));
    if !fits {
        return Err(SemanticError::new(
            Code::IncompatibleShapes,
            format!("a tile of shape {} does not broadcast to {shape}", ty.shape),
        )
        .argument(0, format!("this has shape {}", ty.shape))
        .argument(1, format!("this is {shape}"))
        .note("both need the same number of axes, each with equal extents or with 1 in the tile")
        .hint("add axes first: `x[:, None]` or `tl.expand_dims(x, axis)`"));
    }
    Ok(Operand::Tensor(broadcast_to(c, value, &shape)?))
}

/// `reshape(input, *shape, can_reorder)`, `view(input, *shape)`. One extent may be -1.
pub(super) fn reshape<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (value, ty) = a.typed(c, 0)?;
    let mut extents = a.ints(c, 1)?;
    let elements = ty.shape.elements() as i128;
    if extents.iter().filter(|extent| **extent == -1).count() == 1 {
        let known: i128 = extents.iter().filter(|extent| **extent != -1).product();
        if known > 0 && elements % known == 0 {
            let missing = elements / known;
            for extent in extents.iter_mut().filter(|extent| **extent == -1) {
                *extent = missing;
            }
        }
    }
    let shape = check_shape(1, &extents)?;
    if shape.elements() != ty.shape.elements() {
        return Err(SemanticError::new(
            Code::IncompatibleShapes,
            format!("a tile of shape {} cannot be reshaped to {shape}", ty.shape),
        )
        .argument(0, format!("this has {elements} elements"))
        .argument(1, format!("this has {} elements", shape.elements()))
        .note(format!("found {} elements, expected {elements}", shape.elements())));
    }
    Ok(Operand::Tensor(reshape_to(c, value, &ty, shape)?))
}

/// Reshapes a value to a shape with the same number of elements.
pub(super) fn reshape_to<C: Caller + ?Sized>(
    c: &mut C,
    value: ValueOf<C>,
    ty: &Type,
    shape: Shape,
) -> Semantic<ValueOf<C>> {
    if ty.shape == shape {
        return Ok(value);
    }
    if ty.is_scalar() {
        return Ok(c.builder().splat(value, shape)?);
    }
    Ok(c.builder().reshape(value, shape)?)
}

/// `trans(input, *dims)`: without an order, swaps the last two axes.
pub(super) fn trans<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    if !a.ints(c, 1)?.is_empty() {
        return permute(c, a);
    }
    let (value, ty) = a.typed(c, 0)?;
    transpose_last(c, value, &ty)
}

/// Swaps the last two axes of a tile.
pub(super) fn transpose_last<C: Caller + ?Sized>(c: &mut C, value: ValueOf<C>, ty: &Type) -> Semantic<Op<C>> {
    let rank = ty.rank();
    if rank < 2 {
        return Err(SemanticError::new(
            Code::IncompatibleShapes,
            "only a tile of two or more axes is transposed",
        )
        .argument(0, format!("this is {ty}"))
        .note(format!("found {}, expected at least 2", count(rank, "axis", "axes")))
        .hint("for a column write `x[:, None]`"));
    }
    let mut order: IntList = (0..rank as i64).collect();
    order.swap(rank - 1, rank - 2);
    Ok(Operand::Tensor(c.builder().transpose(value, order)?))
}

/// `permute(input, *dims)`.
pub(super) fn permute<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (value, ty) = a.typed(c, 0)?;
    let given = a.ints(c, 1)?;
    let rank = ty.rank();
    let mut order = IntList::new();
    for &axis in &given {
        order.push(a.wrap_axis(1, axis, rank)? as i64);
    }
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    if sorted != (0..rank as i64).collect::<Vec<_>>() {
        let axes: Vec<String> = given.iter().map(ToString::to_string).collect();
        return Err(SemanticError::new(
            Code::InvalidValue,
            format!("({}) is not an order of the axes of {ty}", axes.join(", ")),
        )
        .argument(0, format!("this has {}", count(rank, "axis", "axes")))
        .note(format!("expected each of the axes 0 to {} once", rank.saturating_sub(1))));
    }
    Ok(Operand::Tensor(c.builder().transpose(value, order)?))
}
