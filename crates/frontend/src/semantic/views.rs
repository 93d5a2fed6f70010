//! Defines the rules of views of shared memory (Gluon). A view interprets the same bytes as other
//! tiles.
//!
//! A view is an allocation whose slots have another type. A part of a tile is one of these slots,
//! so its elements must be contiguous.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tilewright_base::Code;
use tilewright_ir::{DeviceFn, Shape, SharedTiles, StatedBuffer, Type};

use super::arguments::Arguments;
use super::convert::tensor;
use super::device_function::device;
use super::gluon::{any_matrix_memory, any_shared, layout_text, misfit, shared};
use super::operators::binary;
use super::{BinaryOperator, Caller, Op, Semantic, SemanticError};
use crate::shared_memory::{SharedForm, SharedMemory, Window, permuted_tiles};
use crate::value::{Constant, Operand};

fn int<V>(value: u32) -> Operand<V> {
    Operand::Constant(Constant::Int(i128::from(value)))
}

/// Returns the sum of two slots.
pub(super) fn sum<C: Caller + ?Sized>(c: &mut C, one: &Op<C>, other: &Op<C>) -> Semantic<Op<C>> {
    match one {
        Operand::Constant(Constant::Int(0)) => Ok(other.clone()),
        _ => binary(c, BinaryOperator::Add, one, other),
    }
}

/// Returns the slot `slot * factor + plus`.
pub(super) fn scaled<C: Caller + ?Sized>(c: &mut C, slot: &Op<C>, factor: u32, plus: u32) -> Semantic<Op<C>> {
    let product = match (slot, factor) {
        (_, 1) | (Operand::Constant(Constant::Int(0)), _) => slot.clone(),
        _ => binary(c, BinaryOperator::Mul, slot, &int(factor))?,
    };
    if plus == 0 { Ok(product) } else { sum(c, &int(plus), &product) }
}

/// Returns the bytes of a tile.
fn tile_bytes(tiles: &SharedTiles) -> u64 {
    tiles.shape.elements() as u64 * u64::from(tiles.dtype.bits().max(8)) / 8
}

fn view<C: Caller + ?Sized>(
    c: &mut C,
    found: &SharedMemory<Op<C>>,
    tiles: SharedTiles,
    slot: Op<C>,
) -> Semantic<SharedMemory<Op<C>>> {
    let form = SharedForm { tiles: tiles.clone(), count: None, is_transposed: false, window: None };
    super::clusters::check_view(&found.form.tiles, &tiles)?;
    if tiles != found.form.tiles && (found.form.tiles.layout.is_padded() || tiles.layout.is_padded()) {
        return Err(SemanticError::new(Code::LayoutMismatch, "memory with padding has no such view")
            .argument(0, format!("this is {}", found.describe()))
            .hint("load the tile, and reshape or permute it in registers"));
    }
    let memory = if tiles == found.form.tiles {
        found.memory.clone()
    } else {
        let memory = tensor(c, &found.memory, 0)?;
        let made = device(c, DeviceFn::View { tiles }, smallvec![memory])?;
        Operand::Tensor(made.ok_or_else(|| SemanticError::new(Code::TypeMismatch, "a view has a result"))?)
    };
    Ok(SharedMemory { form: Arc::new(form), memory, slot })
}

pub(super) fn permuted<C: Caller + ?Sized>(
    c: &mut C,
    found: &SharedMemory<Op<C>>,
    order: &[usize],
) -> Semantic<SharedMemory<Op<C>>> {
    let tiles = permuted_tiles(&found.form.tiles, order).map_err(|error| misfit(0, error))?;
    view(c, found, tiles, found.slot.clone())
}

/// `smem.permute(order)`.
pub(super) fn permute<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = any_matrix_memory(c, a, 0)?;
    let order = a.ints(c, 1)?;
    let rank = found.form.tiles.shape.len();
    let axes: Vec<usize> = order.iter().filter_map(|axis| usize::try_from(*axis).ok()).collect();
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..rank) || axes.len() != order.len() {
        let expected = format!("each axis from 0 to {} once", rank - 1);
        return Err(a.unexpected(1, &expected, &format!("{order:?}")));
    }
    if rank != 2 {
        return Ok(Operand::Shared(Box::new(permuted(c, &found, &axes)?)));
    }
    // `warpgroup_mma` reads the transpose of a matrix without a view.
    let is_transposed = found.form.is_transposed != (axes == [1, 0]);
    let form = SharedForm { is_transposed, ..(*found.form).clone() };
    Ok(Operand::Shared(Box::new(SharedMemory { form: Arc::new(form), ..found })))
}

/// `smem.slice(start, length, dim)`.
pub(super) fn slice<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = any_shared(c, a, 0)?;
    let shape = found.form.shape();
    let axis = a.axis(c, 3, shape.len())?;
    let [start, length] = [a.int(c, 1)?, a.int(c, 2)?];
    let extent = shape[axis];
    let fits =
        (1..=i128::from(extent)).contains(&length) && (0..=i128::from(extent) - length).contains(&start);
    if !fits {
        let text = format!("{start} to {}", start.saturating_add(length));
        return Err(a.unexpected(1, &format!("a part of the {extent} elements of axis {axis}"), &text));
    }
    let (start, length) = (start as u32, length as u32);
    let axis_of_tile = match (found.form.count, axis) {
        (Some(_), 0) => {
            let form = SharedForm { count: Some(length), ..(*found.form).clone() };
            let slot = scaled(c, &found.slot, 1, start)?;
            return Ok(Operand::Shared(Box::new(SharedMemory { form: Arc::new(form), slot, ..found })));
        }
        (Some(_), _) => {
            return Err(a
                .unexpected(3, "0 for shared memory for several tiles", &axis.to_string())
                .hint("select a tile by `smem.index(i)`, and slice it"));
        }
        (None, axis) if found.form.is_transposed => 1 - axis,
        (None, axis) => axis,
    };
    if !length.is_power_of_two() || !start.is_multiple_of(length) {
        return Err(a.unexpected(2, "a power of two that divides the start", &length.to_string()));
    }
    let SharedTiles { slots, dtype, shape, layout } = found.form.tiles.clone();
    let linear = layout.linear(&shape, dtype.bits()).map_err(|error| misfit(0, error))?;
    let window = found.form.window.as_ref();
    let own = window.map_or(&shape, |window| &window.shape);
    let mut part: SmallVec<[u32; 6]> = own.iter().copied().collect();
    part[axis_of_tile] = length;
    let mut first: SmallVec<[u32; 6]> = SmallVec::from_elem(0, part.len());
    for (first, start) in first.iter_mut().zip(window.map_or([0, 0], |window| window.start)) {
        *first = start;
    }
    first[axis_of_tile] += start;
    let Some((sub, index)) = linear.contiguous_part(&part, &first) else {
        if let ([rows, columns], false) = (&first[..], layout.is_padded()) {
            let window = Window { start: [*rows, *columns], shape: part.iter().copied().collect() };
            let form = SharedForm { window: Some(window), ..(*found.form).clone() };
            return Ok(Operand::Shared(Box::new(SharedMemory { form: Arc::new(form), ..found })));
        }
        return Err(SemanticError::new(Code::LayoutMismatch, "the slice is not contiguous in shared memory")
            .argument(0, format!("this is {}", found.describe()))
            .argument(2, format!("elements {start} to {} of axis {axis}", start + length))
            .hint(
                "slice the axis that is the slowest one in memory, or allocate an array of smaller tiles",
            ));
    };
    let parts = shape.elements() as u32 / part.iter().product::<u32>();
    let layout = Arc::new(layout.with_linear(&sub, dtype.bits()));
    let shape: Shape = part.iter().copied().collect();
    let slot = scaled(c, &found.slot, parts, index)?;
    let is_transposed = found.form.is_transposed;
    let mut made = view(c, &found, SharedTiles { slots: slots * parts, dtype, shape, layout }, slot)?;
    made.form = Arc::new(SharedForm { is_transposed, ..(*made.form).clone() });
    Ok(Operand::Shared(Box::new(made)))
}

/// `smem.reshape(shape)`.
pub(super) fn reshape<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let mut found = shared(c, a, 0)?;
    let extents = a.shape(c, 1)?;
    if found.form.is_transposed {
        found = permuted(c, &found, &[1, 0])?;
    }
    let own = found.form.shape();
    let elements = |shape: &[u32]| shape.iter().map(|extent| u64::from(*extent)).product::<u64>();
    let count = found.form.count;
    let tile = &extents[usize::from(count.is_some())..];
    let keeps_count = count.is_none_or(|count| extents.first() == Some(&count));
    if elements(&extents) != elements(&own) || !keeps_count || tile.is_empty() {
        return Err(a
            .unexpected(1, &format!("a shape with the elements of {own:?}"), &extents.to_string())
            .note("an array of tiles keeps its number of tiles"));
    }
    let SharedTiles { slots, dtype, shape, layout } = found.form.tiles.clone();
    let linear = layout.linear(&shape, dtype.bits()).map_err(|error| misfit(0, error))?;
    if let Some(extent) = tile.iter().find(|extent| !extent.is_power_of_two()) {
        return Err(a.unexpected(1, "a shape of powers of two", &extent.to_string()));
    }
    let linear = linear.reshape(tile);
    let layout = Arc::new(layout.with_linear(&linear, dtype.bits()));
    let shape: Shape = tile.iter().copied().collect();
    let slot = found.slot.clone();
    let mut made = view(c, &found, SharedTiles { slots, dtype, shape, layout }, slot)?;
    made.form = Arc::new(SharedForm { count, ..(*made.form).clone() });
    Ok(Operand::Shared(Box::new(made)))
}

/// `smem.reinterpret(dtype, shape, layout)`.
pub(super) fn reinterpret<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = shared(c, a, 0)?;
    let own = found.form.seen_tiles().map_err(|error| misfit(0, error))?;
    let dtype = if a.is_none(1) { own.dtype } else { a.dtype(c, 1)? };
    let extents: Shape = if a.is_none(2) { found.form.shape().into_iter().collect() } else { a.shape(c, 2)? };
    let layout = match layout_text(c, a, 3)? {
        Some(text) => Arc::new(text.parse::<StatedBuffer>().map_err(|error| misfit(3, error))?),
        None => own.layout.clone(),
    };
    let count = (extents.len() == layout.rank() + 1).then(|| extents[0]);
    let shape: Shape = extents[usize::from(count.is_some())..].iter().copied().collect();
    layout.linear(&shape, dtype.bits()).map_err(|error| misfit(3, error))?;
    let mut tiles = SharedTiles { slots: count.unwrap_or(1), dtype, shape, layout };
    let (from, to) = (tile_bytes(&own), tile_bytes(&tiles));
    let has = from * u64::from(found.form.count.unwrap_or(1));
    let needed = to * u64::from(tiles.slots);
    let whole = from * u64::from(own.slots);
    // The first tile of the view is at a multiple of its size in the allocation.
    let slot = match &found.slot {
        slot if from.is_multiple_of(to) => Some(scaled(c, slot, (from / to) as u32, 0)?),
        Operand::Constant(Constant::Int(slot)) if (*slot as u64 * from).is_multiple_of(to) => {
            Some(int((*slot as u64 * from / to) as u32))
        }
        _ => None,
    };
    let Some(slot) = slot.filter(|_| needed <= has && whole.is_multiple_of(to)) else {
        let made = Type::tile(tiles.dtype, extents.clone());
        return Err(SemanticError::new(
            Code::TypeMismatch,
            format!("{made} of {needed} bytes is no view of {has} bytes"),
        )
        .argument(0, format!("this is {}", found.describe()))
        .hint("give it as many bytes as the memory has, or fewer"));
    };
    tiles.slots = (whole / to) as u32;
    let mut made = view(c, &found, tiles, slot)?;
    made.form = Arc::new(SharedForm { count, ..(*made.form).clone() });
    Ok(Operand::Shared(Box::new(made)))
}
