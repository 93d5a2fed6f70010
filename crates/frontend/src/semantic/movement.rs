//! Defines the rules that join tiles, select their parts, and gather elements.

use std::sync::Arc;

use smallvec::smallvec;
use tilewright_base::Code;
use tilewright_ir::{Builder, Dtype, Element, Failure, IntList, Op as IrOp, Shape, StatedLayout, Type};

use super::arguments::Arguments;
use super::convert::{broadcast_pair, broadcast_to, cast, check_size};
use super::gluon::misfit;
use super::operators::{binary, compare};
use super::shape::{expand, reshape_to};
use super::{BinaryOperator, Caller, CompareOperator, Op, Semantic, SemanticError, ValueOf, select};
use crate::value::{Constant, Operand};

/// `join(a, b)`: stacks the tiles along a new last axis of extent 2.
pub(super) fn join<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (x, y) = (a.tensor(c, 0)?, a.tensor(c, 1)?);
    let (x, y) = broadcast_pair(c, "`join`", x, y)?;
    let y = with_sign_of(c, &x, y)?;
    joined(c, x, y)
}

/// Casts the second of two joined integers of one width to the type of the first, with the same
/// bits.
fn with_sign_of<C: Caller + ?Sized>(
    c: &mut C,
    first: &ValueOf<C>,
    second: ValueOf<C>,
) -> Semantic<ValueOf<C>> {
    let types = [first, &second].map(|value| c.builder().type_of(value).element);
    let [Some(wanted), Some(found)] = types.map(Element::value) else { return Ok(second) };
    if wanted.is_int() && found.is_int() && wanted.bits() == found.bits() && wanted != found {
        return Ok(c.builder().bitcast(second, types[0])?);
    }
    Ok(second)
}

/// Stacks two values along a new last axis: selects `x` at index 0, otherwise `y`. If a thread has
/// both indices in registers, this needs no instruction.
fn joined<C: Caller + ?Sized>(c: &mut C, x: ValueOf<C>, y: ValueOf<C>) -> Semantic<Op<C>> {
    let ty = c.builder().type_of(&x);
    let (mut shape, rank) = (ty.shape.clone(), ty.rank());
    shape.0.push(2);
    check_size(&shape)?;
    let [x, y] = match ty.layout.as_deref() {
        // One thread has both indices of the new axis in registers.
        Some(layout) => {
            let joined = layout.joined(&ty.shape).map_err(|error| misfit(0, error))?;
            let layout = StatedLayout::Slice { dim: rank as u32, parent: Arc::new(joined) };
            let mut sliced =
                |value| c.builder().emit_one(IrOp::SetLayout { layout: layout.clone() }, smallvec![value]);
            [sliced(x)?, sliced(y)?]
        }
        None => [x, y],
    };
    let place = Operand::Tensor(c.builder().arange(0, 2)?);
    let is_first = compare(c, CompareOperator::Eq, &place, &Operand::Constant(Constant::Int(0)))?;
    let [x, y] = [expand(c, x, rank)?, expand(c, y, rank)?].map(Operand::Tensor);
    select(c, &is_first, &x, &y)
}

/// `split(a)`: the halves along the last axis, which has extent 2.
pub(super) fn split<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (value, ty) = a.typed(c, 0)?;
    let Some((2, rest)) = ty.shape.split_last().map(|(last, rest)| (*last, rest)) else {
        let message = format!("`split` takes a tile whose last axis has extent 2, found {ty}");
        return Err(SemanticError::new(Code::IncompatibleShapes, message)
            .argument(0, format!("this is {ty}"))
            .note(match ty.shape.last() {
                Some(last) => format!("found extent {last}, expected 2"),
                None => "found a scalar, which has no axes".into(),
            })
            .hint(
                "bring the halves there first: `tl.split(x.reshape(…, 2))`, or take a part: `x[:, 0:16]`",
            ));
    };
    let rest: Shape = rest.iter().copied().collect();
    let mut parts = Vec::with_capacity(2);
    for half in 0..2 {
        let mut slice = Slice::whole(&ty.shape);
        slice.part(ty.rank() - 1, half, 1, 1);
        let part = slice.of(c, value.clone())?;
        let part_ty = c.builder().type_of(&part);
        let mut part = reshape_to(c, part, &part_ty, rest.clone())?;
        if let Some(layout) = ty.layout.as_ref().filter(|layout| layout.splits_registers(&ty.shape)) {
            let layout = StatedLayout::Slice { dim: ty.rank() as u32 - 1, parent: layout.clone() };
            part = c.builder().emit_one(IrOp::SetLayout { layout }, smallvec![part])?;
        }
        parts.push(Operand::Tensor(part));
    }
    Ok(Operand::Tuple(parts.into()))
}

/// `cat(input, other, can_reorder, dim)`: concatenates the tiles, always in order.
pub(super) fn cat<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let ((x, left), (y, right)) = (a.typed(c, 0)?, a.typed(c, 1)?);
    let y = with_sign_of(c, &x, y)?;
    a.flag(c, 2)?;
    let axis = a.axis(c, 3, left.rank())?;
    if left.rank() != right.rank() || left.shape.without(axis) != right.shape.without(axis) {
        let message = format!(
            "`cat` along axis {axis} does not take tiles of shape {} and {}",
            left.shape, right.shape
        );
        return Err(SemanticError::new(Code::IncompatibleShapes, message)
            .argument(0, format!("this has shape {}", left.shape))
            .argument(1, format!("this has shape {}", right.shape))
            .note(format!("both need the same number of axes, and equal extents along all but axis {axis}"))
            .hint("reshape one of them, or take a part of it: `x[:, 0:16]`"));
    }
    let mut shape = left.shape.clone();
    let extents = [left.shape[axis], right.shape[axis]];
    shape.0[axis] = extents[0].saturating_add(extents[1]);
    check_size(&shape)?;
    if extents[0] == extents[1] {
        let both = joined(c, x, y)?;
        let Operand::Tensor(both) = both else { unreachable!("a choice of tensors is one") };
        let rank = left.rank() as i64;
        let mut order: IntList = (0..rank).collect();
        order.insert(axis, rank);
        let side_by_side = c.builder().transpose(both, order)?;
        return Ok(Operand::Tensor(c.builder().reshape(side_by_side, shape)?));
    }
    let total = shape[axis];
    let place = c.builder().arange(0, total.into())?;
    let place = along(c, place, axis, &shape)?;
    let constant = |value: u32| Operand::Constant(Constant::Int(value.into()));
    let place = Operand::Tensor(place);
    let is_first = compare(c, CompareOperator::Lt, &place, &constant(extents[0]))?;
    let from_second = binary(c, BinaryOperator::Sub, &place, &constant(extents[0]))?;
    // Each element comes from one tile. Its index into the other tile is 0.
    let first = select(c, &is_first, &place, &constant(0))?;
    let second = select(c, &is_first, &constant(0), &from_second)?;
    let mut parts = Vec::with_capacity(2);
    for (tile, index) in [(x, first), (y, second)] {
        let Operand::Tensor(index) = index else { unreachable!("an index is a tensor") };
        parts.push(Operand::Tensor(c.builder().gather(tile, index, axis as u32)?));
    }
    select(c, &is_first, &parts[0], &parts[1])
}

/// Broadcasts a 1-D tile to a shape. The tile varies along `axis`.
fn along<C: Caller + ?Sized>(
    c: &mut C,
    line: ValueOf<C>,
    axis: usize,
    shape: &Shape,
) -> Semantic<ValueOf<C>> {
    let mut line = line;
    for _ in axis + 1..shape.len() {
        let rank = c.builder().type_of(&line).rank();
        line = expand(c, line, rank)?;
    }
    broadcast_to(c, line, shape)
}

/// `gather(src, index, axis)`.
pub(super) fn gather<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let ((tile, ty), (mut index, mut index_ty)) = (a.typed(c, 0)?, a.typed(c, 1)?);
    let axis = a.axis(c, 2, ty.rank())?;
    if index_ty.is_bool() {
        index = cast(c, index, Dtype::I32)?;
        index_ty = c.builder().type_of(&index);
    }
    if !index_ty.dtype().is_some_and(Dtype::is_int) {
        return Err(SemanticError::new(
            Code::TypeMismatch,
            "the index of `gather` must be a tile of integers",
        )
        .argument(1, format!("this is {index_ty}"))
        .note(format!("found {index_ty}, expected int32"))
        .hint("convert it: `index.to(tl.int32)`"));
    }
    if ty.rank() != index_ty.rank() || ty.shape.without(axis) != index_ty.shape.without(axis) {
        let message =
            format!("`gather` along axis {axis} does not take shapes {} and {}", ty.shape, index_ty.shape);
        return Err(SemanticError::new(Code::IncompatibleShapes, message)
            .argument(0, format!("this has shape {}", ty.shape))
            .argument(1, format!("this has shape {}", index_ty.shape))
            .note(format!("both need the same number of axes, and equal extents along all but axis {axis}"))
            .hint("give the index the shape of the result, with `tl.broadcast_to`"));
    }
    let options = c.options();
    // The CPU checks the int32 index itself. Wider indices need a check here, because the cast
    // below truncates them.
    let is_wide = index_ty.dtype().is_some_and(|dtype| dtype.bits() > 32);
    if if options.capability == 0 { is_wide } else { options.debug || options.check_indices } {
        check_index(c, &index, &index_ty, ty.shape[axis])?;
    }
    let index = cast(c, index, Dtype::I32)?;
    Ok(Operand::Tensor(c.builder().gather(tile, index, axis as u32)?))
}

/// Emits an assertion that an index is in bounds.
fn check_index<C: Caller + ?Sized>(c: &mut C, index: &ValueOf<C>, ty: &Type, extent: u32) -> Semantic<()> {
    let place = Operand::Tensor(index.clone());
    let constant = |value: u32| Operand::Constant(Constant::Int(value.into()));
    let mut bounds = vec![(CompareOperator::Lt, extent)];
    if ty.dtype().is_some_and(Dtype::is_signed) {
        bounds.push((CompareOperator::Ge, 0));
    }
    let range = ty.dtype().and_then(Dtype::int_range);
    for (operator, bound) in bounds {
        if range.is_some_and(|(_, high)| i128::from(bound) > high) {
            continue;
        }
        let holds = compare(c, operator, &place, &constant(bound))?;
        let Operand::Tensor(holds) = holds else { continue };
        c.builder().assert(holds, None, Failure::IndexOutOfBounds(extent))?;
    }
    Ok(())
}

/// A start, a step and an extent along each axis of a tile.
pub(super) struct Slice {
    starts: IntList,
    steps: IntList,
    shape: Shape,
    is_whole: bool,
}

impl Slice {
    pub(super) fn whole(shape: &Shape) -> Self {
        let rank = shape.len();
        Self { starts: smallvec![0; rank], steps: smallvec![1; rank], shape: shape.clone(), is_whole: true }
    }

    /// Restricts an axis to `count` elements from `start` on, `step` apart.
    pub(super) fn part(&mut self, axis: usize, start: u32, step: i64, count: u32) {
        self.is_whole &= (start, step, count) == (0, 1, self.shape[axis]);
        self.starts[axis] = start.into();
        self.steps[axis] = if count == 1 { 1 } else { step };
        self.shape.0[axis] = count;
    }

    pub(super) fn of<C: Caller + ?Sized>(self, c: &mut C, tile: ValueOf<C>) -> Semantic<ValueOf<C>> {
        if self.is_whole {
            return Ok(tile);
        }
        Ok(c.builder().slice(tile, self.starts, self.steps, self.shape)?)
    }

    /// Returns the number of elements along each axis.
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }
}
