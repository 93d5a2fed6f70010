//! Defines the rules of accesses to shared memory (Gluon).

use std::sync::Arc;

use smallvec::smallvec;
use tilewright_base::Code;
use tilewright_ir::{Builder, CacheModifier, DeviceFn, Dtype, Op as IrOp, StatedLayout, Type};

use super::arguments::Arguments;
use super::convert::cast;
use super::device_function::device;
use super::gluon::{
    any_matrix_memory, check_warps, layout, matrix_memory, misfit, place, shared, store_tile,
};
use super::memory::cache_modifier;
use super::{Caller, Op, Semantic, SemanticError, ValueOf, views};
use crate::shared_memory::{SharedForm, SharedMemory, Window};
use crate::value::{Constant, Operand};

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
    let mut shared = any_matrix_memory(c, a, 0)?;
    let mut window = shared.form.window.clone();
    if shared.form.is_transposed {
        shared = views::permuted(c, &shared, &[1, 0])?;
        if let Some(Window { start, shape }) = &mut window {
            start.reverse();
            shape.0.reverse();
        }
    }
    let tiles = shared.form.tiles.clone();
    let Some(layout) = layout(c, a, 1)? else {
        return Err(a.unexpected(1, "a layout that the program states", "AutoLayout()"));
    };
    check_warps(c, &layout, 1)?;
    let shape = window.as_ref().map_or(&tiles.shape, |window| &window.shape);
    let linear = layout.linear(shape).map_err(|error| misfit(1, error))?;
    let operands = place(c, &shared)?;
    let mut load = |tiles, layout| -> Semantic<ValueOf<C>> {
        let loaded = device(c, DeviceFn::Load { tiles, layout }, operands.clone())?;
        loaded.ok_or_else(|| SemanticError::new(Code::TypeMismatch, "the load has no result"))
    };
    let Some(Window { start, shape }) = window else {
        return Ok(Operand::Tensor(load(tiles, layout)?));
    };
    // The threads load the whole tile and keep the window. Later passes remove the other loads.
    let all = StatedLayout::of_linear(&linear.unslice(&tiles.shape, &[1, 1]));
    let whole = load(tiles, Arc::new(all))?;
    let starts = start.map(i64::from).into_iter().collect();
    let part = c.builder().slice(whole, starts, smallvec![1, 1], shape)?;
    let layout = (*layout).clone();
    Ok(Operand::Tensor(c.builder().emit_one(IrOp::SetLayout { layout }, smallvec![part])?))
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

/// The cache modifiers of `cp.async`. `.cg` is only for copies of 16 bytes, where it is the
/// default.
const COPY_CACHE: &[(&str, CacheModifier)] =
    &[("", CacheModifier::Default), (".cg", CacheModifier::Default), (".ca", CacheModifier::All)];

/// Returns whether hints keep the data of an asynchronous copy in L1. Without, copies of 16 bytes
/// bypass L1.
fn keeps_in_l1<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<bool> {
    let cache = cache_modifier(c, a, 3, COPY_CACHE)?;
    let eviction = a.string(c, 4)?.unwrap_or_default();
    if !["", "evict_normal"].contains(&eviction.as_str()) {
        return Err(a.unexpected(4, "\"\", which an asynchronous copy obeys", &format!("{eviction:?}")));
    }
    if a.flag(c, 5)? {
        return Err(a
            .unexpected(5, "False for an asynchronous copy", "True")
            .hint("load the tile by `gl.load(…, volatile=True)`, and store it by `smem.store`"));
    }
    Ok(cache == CacheModifier::All)
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
    let keeps_in_l1 = keeps_in_l1(c, a)?;
    device(c, DeviceFn::CopyAsync { tiles, keeps_in_l1 }, operands)?;
    Ok(Operand::Constant(Constant::None))
}
