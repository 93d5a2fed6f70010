//! Evaluates subscripts of tensors: new axes, and compile-time parts.

use tilewright_base::Code;
use tilewright_ir::{Builder, Dtype, Shape, Type};

use super::arguments::{constant_of, count};
use super::convert::{kind_of, tensor};
use super::movement::Slice;
use super::shape::{expand, reshape_to};
use super::{Caller, Index, Op, Semantic, SemanticError, ValueOf};
use crate::constexpr;
use crate::value::{Constant, Operand};

/// Evaluates `value[indices]`. The value is argument 0, and the indices are 1, 2, ….
pub fn subscript<C: Caller + ?Sized>(
    c: &mut C,
    value: &Op<C>,
    indices: &[Index<ValueOf<C>>],
) -> Semantic<Op<C>> {
    let mut tile = tensor(c, value, 0)?;
    let ty = c.builder().type_of(&tile);
    // Triton ignores `:` on a scalar, so `n[:, None]` is a tile of one element.
    let takes_axis = |index: &Index<_>| match index {
        Index::All => !ty.is_scalar(),
        Index::Value(_) | Index::Slice { .. } => true,
        Index::NewAxis | Index::Ellipsis => false,
    };
    let used = indices.iter().filter(|index| takes_axis(index)).count();
    for (number, index) in indices.iter().enumerate() {
        if let Index::Value(found) = index
            && (ty.is_scalar() || !matches!(constant_of(c, found), Some(Constant::Int(_))))
        {
            return Err(element_index(c, &ty, found, number + 1));
        }
    }
    if used > ty.rank() {
        return Err(SemanticError::new(
            Code::InvalidIndex,
            format!("{} indexed, and the tensor has {}", count(used, "axis is", "axes are"), ty.rank()),
        )
        .argument(0, format!("this is {ty}"))
        .note(format!("found {used} times `:`, expected at most {}", ty.rank()))
        .hint("each `:` keeps one axis, each `None` adds one"));
    }
    let mut slice = Slice::whole(&ty.shape);
    // The axes of the tensor that remain, and the positions of the new axes in the result.
    let mut kept: Vec<usize> = Vec::new();
    let mut new: Vec<usize> = Vec::new();
    let (mut axis, mut place) = (0, 0);
    for (number, index) in indices.iter().enumerate() {
        match index {
            Index::NewAxis => {
                new.push(place);
                place += 1;
            }
            Index::Ellipsis => {
                let rest = ty.rank() - used;
                kept.extend(axis..axis + rest);
                axis += rest;
                place += rest;
            }
            Index::All if ty.is_scalar() => {}
            Index::All => {
                kept.push(axis);
                axis += 1;
                place += 1;
            }
            Index::Value(found) => {
                let at = resolve_index(c, &ty, axis, found, number + 1)?;
                slice.part(axis, at, 1, 1);
                axis += 1;
            }
            Index::Slice { start, stop, step } => {
                let bounds = [start, stop, step].map(Option::as_ref);
                let (first, step, length) = slice_indices(c, &ty, axis, bounds, number + 1)?;
                slice.part(axis, first, step, length);
                kept.push(axis);
                axis += 1;
                place += 1;
            }
        }
    }
    kept.extend(axis..ty.rank());
    let shape: Shape = kept.iter().map(|axis| slice.shape()[*axis]).collect();
    tile = slice.of(c, tile)?;
    if shape.len() != ty.rank() {
        let part = c.builder().type_of(&tile);
        tile = reshape_to(c, tile, &part, shape)?;
    }
    for axis in new {
        tile = expand(c, tile, axis)?;
    }
    Ok(Operand::Tensor(tile))
}

/// Returns the index of an element along an axis. A negative index counts from the end.
fn resolve_index<C: Caller + ?Sized>(
    c: &mut C,
    ty: &Type,
    axis: usize,
    found: &Op<C>,
    number: usize,
) -> Semantic<u32> {
    let Some(Constant::Int(value)) = constant_of(c, found) else {
        return Err(element_index(c, ty, found, number));
    };
    let extent = i128::from(ty.shape[axis]);
    let place = if value < 0 { value + extent } else { value };
    if (0..extent).contains(&place) {
        return Ok(place as u32);
    }
    Err(SemanticError::new(
        Code::InvalidIndex,
        format!("index {value} is out of range: axis {axis} has extent {extent}"),
    )
    .argument(number, format!("this names an element of {ty}"))
    .note(format!("found {value}, expected an index from {} to {}", -extent, extent - 1)))
}

fn slice_indices<C: Caller + ?Sized>(
    c: &mut C,
    ty: &Type,
    axis: usize,
    bounds: [Option<&Op<C>>; 3],
    number: usize,
) -> Semantic<(u32, i64, u32)> {
    let mut known = [None; 3];
    for (known, bound) in known.iter_mut().zip(bounds) {
        *known = match bound.map(|bound| (bound, constant_of(c, bound))) {
            None | Some((_, Some(Constant::None))) => None,
            Some((_, Some(Constant::Int(value)))) => Some(value),
            Some((found, _)) => return Err(slice_bound(c, found, number)),
        };
    }
    let extent = ty.shape[axis];
    let [first, end, step] = known;
    let invalid = |message: String| {
        SemanticError::new(Code::InvalidIndex, message)
            .argument(number, format!("this takes a part of axis {axis} of {ty}"))
    };
    let places = constexpr::slice_indices(extent as usize, first, end, step).map_err(&invalid)?;
    let (Some(&from), length) = (places.first(), places.len() as u32) else {
        return Err(invalid("a slice of a tile must have elements, and this one has none".into())
            .note(format!("found 0 elements, expected at least 1 of the indices 0 to {}", extent - 1)));
    };
    // A slice of one element has no second index to derive the step from.
    let step = places.get(1).map_or(1, |second| *second as i64 - from as i64);
    Ok((from as u32, step, length))
}

fn slice_bound<C: Caller + ?Sized>(c: &mut C, found: &Op<C>, number: usize) -> SemanticError {
    let text = match found {
        Operand::Tensor(value) => {
            format!("a bound of this is {}, known only at run time", c.builder().type_of(value))
        }
        other => format!("a bound of this is {}", kind_of(other)),
    };
    SemanticError::new(Code::InvalidIndex, "the bounds of a slice must be known at compile time")
        .argument(number, text)
        .note("expected compile-time integers: the shape of a tile is fixed when the kernel is compiled")
        .hint("gather the elements, `tl.gather(x, start + tl.arange(0, N), axis)`, or load only the part that is needed")
}

fn element_index<C: Caller + ?Sized>(c: &mut C, ty: &Type, found: &Op<C>, number: usize) -> SemanticError {
    let (text, index_ty) = match found {
        Operand::Tensor(value) => {
            let index_ty = c.builder().type_of(value);
            (format!("this is {index_ty}"), Some(index_ty))
        }
        other => (format!("this is {}", kind_of(other)), None),
    };
    let is_float = index_ty.as_ref().and_then(Type::dtype).is_some_and(Dtype::is_float);
    let is_pointer = ty.element.pointee().is_some();
    let message = match (is_pointer, is_float, ty.is_scalar()) {
        (true, ..) => "a pointer is not indexed",
        (false, true, _) => "a float is no index",
        (false, false, true) => "a scalar is not indexed",
        (false, false, false) => "a tile is indexed by numbers that are known at compile time",
    };
    let hint = match (is_pointer, is_float) {
        (true, true) => "add an integer offset and load: `tl.load(ptr + i.to(tl.int32))`",
        (true, false) => "add the offset and load: `tl.load(ptr + i)`",
        (false, true) => {
            "load the elements through a pointer, with an integer offset: `tl.load(ptr + i.to(tl.int32))`"
        }
        (false, false) if ty.is_scalar() => {
            "it has no axes; if it came from memory, load more: `tl.load(ptr + i)`"
        }
        (false, false) if index_ty.as_ref().is_some_and(|ty| !ty.is_scalar()) => {
            "gather, `tl.gather(x, i, axis)`, or load through pointers: `tl.load(ptr + i)`"
        }
        (false, false) => {
            "gather it, `tl.gather(x, tl.full([1], i, tl.int32), 0)`, or load it through a pointer"
        }
    };
    let error = SemanticError::new(Code::InvalidIndex, message)
        .argument(0, format!("this is {ty}"))
        .argument(number, text)
        .hint(hint);
    if ty.is_scalar() {
        error
    } else {
        error.note("expected `:`, `None`, or a compile-time integer or slice")
    }
}
