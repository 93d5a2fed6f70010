//! The rules of accesses to shared memory (Gluon).

use std::sync::Arc;

use tilewright_base::Code;
use tilewright_ir::{DeviceFn, Dtype, Type};

use super::arguments::Arguments;
use super::convert::cast;
use super::gluon::{check_warps, device, layout, matrix_memory, misfit, place, shared, store_tile};
use super::{Caller, Op, Semantic, SemanticError, views};
use crate::shared_memory::{SharedForm, SharedMemory};
use crate::value::{Constant, Operand};

/// Returns an argument that is shared memory for one tile.
pub(super) fn tile_memory<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<SharedMemory<Op<C>>> {
    let found = matrix_memory(c, a, index)?;
    if found.form.is_transposed { views::permuted(c, &found, &[1, 0]) } else { Ok(found) }
}

/// `smem.load(layout)`.
pub(super) fn load_shared<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let shared = tile_memory(c, a, 0)?;
    let tiles = shared.form.tiles.clone();
    let Some(layout) = layout(c, a, 1)? else {
        return Err(a.unexpected(1, "a layout that the program states", "AutoLayout()"));
    };
    check_warps(c, &layout, 1)?;
    layout.linear(&tiles.shape).map_err(|error| misfit(1, error))?;
    let operands = place(c, &shared)?;
    let loaded = device(c, DeviceFn::Load { tiles, layout }, operands)?;
    loaded
        .map(Operand::Tensor)
        .ok_or_else(|| SemanticError::new(Code::TypeMismatch, "the load has no result"))
}

/// `smem.store(value)`.
pub(super) fn store_shared<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let shared = tile_memory(c, a, 0)?;
    store_tile(c, &shared, a, 1)?;
    Ok(Operand::Constant(Constant::None))
}

/// `smem.index(index)`.
pub(super) fn index<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = shared(c, a, 0)?;
    let Some(slots) = found.form.count else {
        return Err(a.unexpected(0, "shared memory for several tiles", &found.describe()));
    };
    if let Some(Constant::Int(index)) = c.known(&a.at(1)?.clone())
        && !(0..i128::from(slots)).contains(&index)
    {
        return Err(a.unexpected(1, &format!("an index from 0 to {}", slots - 1), &index.to_string()));
    }
    let (slot, ty) = a.typed(c, 1)?;
    if !ty.is_scalar() || !ty.dtype().is_some_and(Dtype::is_int) {
        return Err(a.unexpected(1, "an integer", &ty.to_string()));
    }
    let slot = Operand::Tensor(cast(c, slot, Dtype::I32)?);
    let slot = views::sum(c, &found.slot, &slot)?;
    let form = SharedForm { count: None, ..(*found.form).clone() };
    Ok(Operand::Shared(Box::new(SharedMemory { form: Arc::new(form), memory: found.memory, slot })))
}

/// `async_load(smem, pointer, mask, cache_modifier, eviction_policy, volatile)`.
pub(super) fn copy_async<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let shared = tile_memory(c, a, 0)?;
    let (pointer, ty) = a.typed(c, 1)?;
    let tiles = shared.form.tiles.clone();
    if ty.element.pointee() != Some(tiles.dtype) || ty.shape != tiles.shape {
        let memory = Type::tile(tiles.dtype, tiles.shape.clone());
        return Err(SemanticError::new(
            Code::TypeMismatch,
            format!("{ty} does not point to a tile {memory}"),
        )
        .argument(1, format!("this is {ty}"))
        .hint("give pointers of the shape of the shared memory, to its element type"));
    }
    let mut operands = place(c, &shared)?;
    operands.push(pointer);
    if !a.is_none(2) {
        let (mask, _) = a.typed(c, 2)?;
        let mask = super::convert::broadcast_to(c, mask, &tiles.shape)?;
        operands.push(mask);
    }
    device(c, DeviceFn::CopyAsync { tiles }, operands)?;
    Ok(Operand::Constant(Constant::None))
}
