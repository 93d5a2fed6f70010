//! Defines the rules of Gluon: tiles with stated layouts, shared memory, and asynchronous copies.

use std::fmt;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tilewright_base::Code;
use tilewright_ir::{
    Builder, DeviceFn, Dtype, Op as IrOp, Shape, SharedTiles, StatedBuffer, StatedLayout, Type,
};

use super::arguments::Arguments;
use super::convert::{cast, describe, tensor};
use super::device_function::{count, device};
use super::{Caller, Op, Semantic, SemanticError, ValueOf, clusters, memory, program, shape};
use crate::shared_memory::{SharedForm, SharedMemory, is_tensor_memory};
use crate::value::{Constant, Operand};

/// The attributes of shared memory.
pub(super) const ATTRIBUTES: &[&str] =
    &["dtype", "shape", "rank", "numel", "layout", "type", "nbytes_per_cta"];

/// The methods of shared memory.
pub(super) const METHODS: &[&str] =
    &["load", "store", "index", "permute", "slice", "reshape", "reinterpret", "_reinterpret", "_keep_alive"];

/// The methods and attributes of shared memory that are not implemented.
pub(super) const MISSING: &[&str] = &[
    "atomic_scatter_add",
    "atomic_scatter_and",
    "atomic_scatter_max",
    "atomic_scatter_min",
    "atomic_scatter_or",
    "atomic_scatter_xchg",
    "atomic_scatter_xor",
    "gather",
    "nbytes_per_cta",
    "scatter",
];

pub(super) const TENSOR_MEMORY_ATTRIBUTES: &[&str] = &["dtype", "shape", "rank", "layout", "type"];

pub(super) const TENSOR_MEMORY_METHODS: &[&str] =
    &["load", "store", "index", "slice", "get_reg_layout", "_reinterpret"];

const MISSING_OF_TENSOR_MEMORY: &[&str] = &["load_max", "load_min"];

/// Returns the text of an argument that is a layout object, or `None` for Python's `None`.
pub(super) fn layout_text<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<Option<String>> {
    if a.is_none(index) {
        return Ok(None);
    }
    let operand = a.at(index)?.clone();
    let text = match &operand {
        Operand::Object(object) | Operand::Constant(Constant::Object(object)) => c.layout_text(*object),
        _ => None,
    };
    if let Some(text) = text {
        Ok(Some(text))
    } else {
        let found = describe(c, &operand);
        Err(a
            .unexpected(index, "a layout", &found)
            .hint("make one, such as `gl.BlockedLayout([1], [32], [4], [0])`"))
    }
}

/// Returns an argument that is a layout of registers. For `gl.AutoLayout()`, `gl.CoalescedLayout()`
/// and `None`, the compiler chooses; [`layout_for`] chooses a coalesced layout.
pub(super) fn layout<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<Option<Arc<StatedLayout>>> {
    let Some(text) = layout_text(c, a, index)? else { return Ok(None) };
    if text == "AutoLayout()" || text == "CoalescedLayout()" {
        return Ok(None);
    }
    let found = text.parse().map_err(|error| misfit(index, error))?;
    Ok(Some(Arc::new(found)))
}

/// Returns an argument that is a layout for a tile of this shape, or `None`: the tile then gets the
/// layout of the tiles with which it is combined.
fn layout_for<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    shape: &Shape,
) -> Semantic<Option<Arc<StatedLayout>>> {
    if shape.is_empty() || layout_text(c, a, index)?.as_deref() != Some("CoalescedLayout()") {
        return layout(c, a, index);
    }
    Ok(Some(Arc::new(StatedLayout::coalesced(shape, warps_of(c)))))
}

/// Returns the number of warps that run the code.
pub(super) fn warps_of<C: Caller + ?Sized>(c: &mut C) -> u32 {
    match c.num_warps() {
        0 => 4,
        given => given,
    }
}

pub(super) fn check_blocks<C: Caller + ?Sized>(
    c: &mut C,
    found: u32,
    layout: &dyn fmt::Display,
    index: usize,
) -> Semantic<()> {
    let blocks = c.num_ctas();
    if found == blocks {
        return Ok(());
    }
    let name = |count: u32| if count == 1 { "1 block".to_owned() } else { format!("{count} blocks") };
    let message = format!("{layout} is for {}, but the kernel has {}", name(found), name(blocks));
    let hint = "give the layout a cga_layout with a basis for each bit of the rank of a block, and launch \
                the kernel with this number: `kernel[grid](…, num_ctas=…)`";
    Err(misfit(index, message).hint(hint))
}

pub(super) fn misfit(index: usize, message: String) -> SemanticError {
    SemanticError::new(Code::LayoutMismatch, message).argument(index, "this layout does not fit")
}

/// Converts a tile to a layout. Without a layout, returns the tile unchanged.
fn in_layout<C: Caller + ?Sized>(
    c: &mut C,
    value: ValueOf<C>,
    (layout, index): (Option<Arc<StatedLayout>>, usize),
) -> Semantic<Op<C>> {
    let ty = c.builder().type_of(&value);
    let Some(layout) = layout.filter(|layout| ty.layout.as_ref() != Some(layout)) else {
        return Ok(Operand::Tensor(value));
    };
    check_warps(c, &layout, index)?;
    layout.linear(&ty.shape).map_err(|error| misfit(index, error))?;
    let op = IrOp::SetLayout { layout: (*layout).clone() };
    Ok(Operand::Tensor(c.builder().emit_one(op, smallvec![value])?))
}

/// Converts a tile to the layout that the argument `index` states.
fn in_stated_layout<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    value: ValueOf<C>,
    index: usize,
) -> Semantic<Op<C>> {
    let shape = c.builder().type_of(&value).shape;
    let layout = layout_for(c, a, index, &shape)?;
    in_layout(c, value, (layout, index))
}

pub(super) fn check_warps<C: Caller + ?Sized>(
    c: &mut C,
    layout: &StatedLayout,
    index: usize,
) -> Semantic<()> {
    let warps = warps_of(c);
    check_blocks(c, layout.blocks(), layout, index)?;
    if layout.warps() == warps {
        return Ok(());
    }
    let code = if c.is_in_worker() { "worker" } else { "kernel" };
    let hint = if c.is_in_worker() {
        "the warps of a worker are those of `worker_num_warps`"
    } else {
        "launch the kernel with the number of warps of its layouts: `kernel[grid](…, num_warps=…)`"
    };
    let message = format!("{layout} is for {} warps, but the {code} has {warps}", layout.warps());
    Err(misfit(index, message).hint(hint))
}

/// Calls the rule of another builtin, and converts the result to the layout in argument `index`.
fn with_layout<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    rule: fn(&mut C, &Arguments<'_, C>) -> Semantic<Op<C>>,
    index: usize,
) -> Semantic<Op<C>> {
    let made = rule(c, a)?;
    let made = tensor(c, &made, 0)?;
    in_stated_layout(c, a, made, index)
}

/// `arange(start, end, layout)`.
pub(super) fn arange<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    with_layout(c, a, shape::arange, 2)
}

/// `full(shape, value, dtype, layout)`.
pub(super) fn full<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    with_layout(c, a, shape::full, 3)
}

/// Calls `full` with these arguments, each with the index of its parameter.
fn call_full<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    arguments: [(Op<C>, usize); 3],
    index: usize,
) -> Semantic<Op<C>> {
    let made = a.call(c, shape::full, arguments)?;
    let made = tensor(c, &made, 0)?;
    in_stated_layout(c, a, made, index)
}

pub(super) fn zero<V>() -> Operand<V> {
    Operand::Constant(Constant::Int(0))
}

/// `zeros(shape, dtype, layout)`.
pub(super) fn zeros<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    call_full(c, a, [(a.at(0)?.clone(), 0), (zero(), 0), (a.at(1)?.clone(), 1)], 2)
}

/// `full_like(input, value, shape, dtype, layout)`.
pub(super) fn full_like<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let value = a.at(1)?.clone();
    like(c, a, value, 2)
}

/// `zeros_like(input, shape, dtype, layout)`.
pub(super) fn zeros_like<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    like(c, a, zero(), 1)
}

/// Creates a tile like argument 0 of equal elements. Arguments from `first` on may replace its
/// shape, element type and layout.
fn like<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, value: Op<C>, first: usize) -> Semantic<Op<C>> {
    let (_, ty) = a.typed(c, 0)?;
    let extents = ty.shape.iter().map(|extent| Constant::Int(i128::from(*extent))).collect();
    let or = |index: usize, own: Constant| {
        if a.is_none(index) { Ok(Operand::Constant(own)) } else { a.at(index).cloned() }
    };
    let shape = or(first, Constant::Tuple(extents))?;
    let dtype = or(first + 1, Constant::Type(ty.with_shape(Shape::scalar())))?;
    let made = call_full(c, a, [(shape, first), (value, first - 1), (dtype, first + 1)], first + 2)?;
    if a.is_none(first + 2) {
        let made = tensor(c, &made, 0)?;
        let layout = ty.layout.filter(|_| c.builder().type_of(&made).shape == ty.shape);
        in_layout(c, made, (layout, 0))
    } else {
        Ok(made)
    }
}

/// `convert_layout(value, layout, assert_trivial)`, `set_auto_layout(value, layout)`.
pub(super) fn convert_layout<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (value, ty) = a.typed(c, 0)?;
    let layout = layout_for(c, a, 1, &ty.shape)?;
    let is_trivial = a.values.len() > 2 && a.flag(c, 2)?;
    if let (true, Some(from), Some(to)) = (is_trivial, &ty.layout, &layout) {
        let linear = |layout: &StatedLayout| layout.linear(&ty.shape).map_err(|error| misfit(1, error));
        if linear(from)? != linear(to)? {
            return Err(SemanticError::new(
                Code::LayoutMismatch,
                "the conversion moves elements between threads",
            )
            .argument(0, format!("this has the layout {from}"))
            .argument(1, format!("this is {to}"))
            .hint(
                "leave out `assert_trivial=True`, or use layouts with the same elements in each register",
            ));
        }
    }
    in_layout(c, value, (layout, 1))
}

/// `load(pointer, mask, other, cache_modifier, eviction_policy, volatile)`.
pub(super) fn load<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (boundary_check, padding) = (no_axes(), Operand::Constant(Constant::Str("".into())));
    let own = |index: usize| a.at(index).map(|value| (value.clone(), index));
    let (cache, eviction) = (or_default(a, 3)?, or_default(a, 4)?);
    let arguments =
        [own(0)?, own(1)?, own(2)?, (boundary_check, 0), (padding, 0), (cache, 3), (eviction, 4), own(5)?];
    a.call(c, memory::load, arguments)
}

/// `store(pointer, value, mask, cache_modifier, eviction_policy)`.
pub(super) fn store<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let own = |index: usize| a.at(index).map(|value| (value.clone(), index));
    let (cache, eviction) = (or_default(a, 3)?, or_default(a, 4)?);
    check_has_layout(c, a)?;
    let arguments = [own(0)?, own(1)?, own(2)?, (no_axes(), 0), (cache, 3), (eviction, 4)];
    a.call(c, memory::store, arguments)
}

/// Refuses a store of tiles without layouts.
fn check_has_layout<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<()> {
    let mut is_tile = false;
    for operand in a.values.iter().take(3) {
        let Operand::Tensor(value) = operand else { continue };
        let ty = c.builder().type_of(value);
        if ty.layout.is_some() {
            return Ok(());
        }
        is_tile |= !ty.is_scalar();
    }
    if !is_tile {
        return Ok(());
    }
    let message = "no tile of this store has a layout";
    Err(SemanticError::new(Code::LayoutMismatch, message)
        .argument(0, "these pointers have none")
        .hint("state one where the tiles are made, such as `gl.arange(0, 128, layout=layout)`"))
}

/// Returns the argument `boundary_check` of an access without a block pointer.
fn no_axes<V>() -> Operand<V> {
    Operand::Constant(Constant::Tuple(Vec::new().into()))
}

/// Returns a cache modifier or eviction policy, with the default for `None`.
fn or_default<C: Caller + ?Sized>(a: &Arguments<'_, C>, index: usize) -> Semantic<Op<C>> {
    match a.at(index)? {
        Operand::Constant(Constant::None) => Ok(Operand::Constant(Constant::Str("".into()))),
        other => Ok(other.clone()),
    }
}

/// `barrier(cluster)`.
pub(super) fn barrier<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    if a.flag(c, 0)? && c.num_ctas() > 1 {
        return clusters::barrier(c, a);
    }
    program::barrier(c, a)
}

pub(super) fn not_there(name: &str) -> SemanticError {
    SemanticError::new(Code::Replaced, format!("{name} is not available in this version of tilewright"))
}

/// `num_ctas()`.
#[expect(clippy::unnecessary_wraps, reason = "every rule has one signature")]
pub(super) fn num_ctas<C: Caller + ?Sized>(c: &mut C, _: &Arguments<'_, C>) -> Semantic<Op<C>> {
    Ok(Operand::Constant(Constant::Int(i128::from(c.num_ctas()))))
}

/// `allocate_shared_memory(element_ty, shape, layout, value)`.
pub(super) fn allocate<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let dtype = a.dtype(c, 0)?;
    let extents = a.shape(c, 1)?;
    let text = layout_text(c, a, 2)?.ok_or_else(|| a.unexpected(2, "a layout", "None"))?;
    let layout: StatedBuffer = text.parse().map_err(|error| misfit(2, error))?;
    let shared = allocated(c, dtype, &extents, layout).map_err(|error| {
        if error.arguments.is_empty() { error.argument(2, "this layout does not fit") } else { error }
    })?;
    if !a.is_none(3) {
        store_tile(c, &shared, a, 3)?;
    }
    Ok(Operand::Shared(Box::new(shared)))
}

pub(super) fn allocated<C: Caller + ?Sized>(
    c: &mut C,
    dtype: Dtype,
    extents: &[u32],
    layout: StatedBuffer,
) -> Semantic<SharedMemory<Op<C>>> {
    let rank = layout.rank();
    let count = (extents.len() == rank + 1).then(|| extents[0]);
    let (slots, shape) = (count.unwrap_or(1), &extents[usize::from(count.is_some())..]);
    layout.linear(shape, dtype.bits()).map_err(|error| SemanticError::new(Code::LayoutMismatch, error))?;
    check_blocks(c, layout.blocks(), &layout, 2)?;
    let shape: Shape = shape.iter().copied().collect();
    let tiles = SharedTiles { slots, dtype, shape, layout: Arc::new(layout) };
    let memory = device(c, DeviceFn::Allocate { tiles: tiles.clone() }, smallvec![])?;
    let memory =
        memory.ok_or_else(|| SemanticError::new(Code::TypeMismatch, "the allocation has no result"))?;
    let form = Arc::new(SharedForm { tiles, count, is_transposed: false, window: None });
    Ok(SharedMemory { form, memory: Operand::Tensor(memory), slot: zero() })
}

/// Returns an argument that is shared memory, even if it is not contiguous.
pub(super) fn any_shared<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<SharedMemory<Op<C>>> {
    match a.at(index)? {
        Operand::Shared(shared) if !is_tensor_memory(&shared.form.tiles) => Ok((**shared).clone()),
        other => {
            let found = describe(c, &other.clone());
            Err(a
                .unexpected(index, "shared memory", &found)
                .hint("allocate it by `gl.allocate_shared_memory`"))
        }
    }
}

pub(super) fn shared<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<SharedMemory<Op<C>>> {
    let found = any_shared(c, a, index)?;
    if found.form.window.is_none() {
        return Ok(found);
    }
    Err(SemanticError::new(Code::LayoutMismatch, "the slice is not contiguous in shared memory")
        .argument(index, format!("this is {}", found.describe()))
        .note(format!("only `load` and `warpgroup_mma` read such a slice, and `{}` does not", a.spec.name))
        .hint("slice the axis that is the slowest one in memory, or allocate an array of smaller tiles"))
}

fn check_is_one<C: Caller + ?Sized>(
    a: &Arguments<'_, C>,
    index: usize,
    found: SharedMemory<Op<C>>,
) -> Semantic<SharedMemory<Op<C>>> {
    if found.form.count.is_none() {
        return Ok(found);
    }
    Err(a
        .unexpected(index, "shared memory for one tile", &found.describe())
        .hint("select a tile by `smem.index(i)`"))
}

/// Returns shared memory for one tile or, as only `warpgroup_mma` reads it, for a transpose.
pub(super) fn matrix_memory<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<SharedMemory<Op<C>>> {
    let found = shared(c, a, index)?;
    check_is_one(a, index, found)
}

/// Returns an argument as [`matrix_memory`] does, even if it is not contiguous.
pub(super) fn any_matrix_memory<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<SharedMemory<Op<C>>> {
    let found = any_shared(c, a, index)?;
    check_is_one(a, index, found)
}

/// Returns the operands that select the tile: the allocation and the slot.
pub(super) fn place<C: Caller + ?Sized>(
    c: &mut C,
    shared: &SharedMemory<Op<C>>,
) -> Semantic<SmallVec<[ValueOf<C>; 4]>> {
    let memory = tensor(c, &shared.memory, 0)?;
    let slot = tensor(c, &shared.slot, 0)?;
    Ok(smallvec![memory, cast(c, slot, Dtype::I32)?])
}

pub(super) fn store_tile<C: Caller + ?Sized>(
    c: &mut C,
    shared: &SharedMemory<Op<C>>,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<()> {
    let (value, ty) = a.typed(c, index)?;
    let tiles = shared.form.tiles.clone();
    if ty.shape != tiles.shape || ty.dtype() != Some(tiles.dtype) {
        let memory = Type::tile(tiles.dtype, tiles.shape.clone());
        return Err(SemanticError::new(
            Code::TypeMismatch,
            format!("shared memory for {memory} does not take {ty}"),
        )
        .argument(index, format!("this is {ty}"))
        .hint("convert the tile with `.to(smem.dtype)`, and give both the same shape"));
    }
    let mut operands = place(c, shared)?;
    operands.push(value);
    device(c, DeviceFn::Store { tiles }, operands)?;
    Ok(())
}

/// `smem._keep_alive()`.
pub(super) fn keep_alive<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = shared(c, a, 0)?;
    let memory = tensor(c, &found.memory, 0)?;
    device(c, DeviceFn::KeepAlive {}, smallvec![memory])?;
    Ok(Operand::Constant(Constant::None))
}

/// `commit_group()`.
pub(super) fn commit_group<C: Caller + ?Sized>(c: &mut C, _: &Arguments<'_, C>) -> Semantic<Op<C>> {
    device(c, DeviceFn::CommitGroup {}, smallvec![])?;
    Ok(Operand::Constant(Constant::None))
}

/// `wait_group(num_outstanding)`.
pub(super) fn wait_group<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let pending = count(c, a, 0)?;
    device(c, DeviceFn::WaitGroup { pending }, smallvec![])?;
    Ok(Operand::Constant(Constant::None))
}

/// `distributed_type(element_ty, shape, layout)`.
pub(super) fn distributed_type<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (dtype, shape) = (a.dtype(c, 0)?, a.shape(c, 1)?);
    let layout = layout(c, a, 2)?;
    if let Some(layout) = &layout {
        layout.linear(&shape).map_err(|error| misfit(2, error))?;
    }
    Ok(Operand::Constant(Constant::Type(Type::tile(dtype, shape).with_layout(layout))))
}

/// `shared_memory_descriptor_type(element_ty, shape, layout, alloc_shape)`: shared memory as a
/// type.
pub(super) fn shared_type<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (dtype, extents) = (a.dtype(c, 0)?, a.shape(c, 1)?);
    let text = layout_text(c, a, 2)?.ok_or_else(|| a.unexpected(2, "a layout", "None"))?;
    let layout: StatedBuffer = text.parse().map_err(|error| misfit(2, error))?;
    let count = (extents.len() == layout.rank() + 1).then(|| extents[0]);
    let shape: Shape = extents[usize::from(count.is_some())..].iter().copied().collect();
    layout.linear(&shape, dtype.bits()).map_err(|error| misfit(2, error))?;
    let tiles = SharedTiles { slots: count.unwrap_or(1), dtype, shape, layout: Arc::new(layout) };
    let form = Arc::new(SharedForm { tiles, count, is_transposed: false, window: None });
    let memory = Operand::Constant(Constant::None);
    Ok(Operand::Shared(Box::new(SharedMemory { form, memory, slot: zero() })))
}

/// `bank_conflicts(distr_ty, shared_ty)`.
pub(super) fn bank_conflicts<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let ty = match a.constant(c, 0)? {
        Constant::Type(ty) => ty,
        other => return Err(a.unexpected(0, "the type of a tile, such as `x.type`", &other.to_string())),
    };
    let found = matrix_memory(c, a, 1)?;
    let Some(layout) = &ty.layout else {
        return Err(a.unexpected(0, "a type with a layout", &ty.to_string()));
    };
    let SharedTiles { dtype, shape, layout: memory, .. } = &found.form.tiles;
    if ty.shape != *shape || ty.dtype() != Some(*dtype) {
        let memory = Type::tile(*dtype, shape.clone());
        return Err(SemanticError::new(
            Code::TypeMismatch,
            format!("shared memory for {memory} is not accessed by {ty}"),
        )
        .argument(0, format!("this is {ty}"))
        .hint("give both the same shape and element type"));
    }
    let conflicts = layout.bank_conflicts(memory, shape, dtype.bits()).map_err(|error| misfit(1, error))?;
    Ok(Operand::Constant(Constant::Int(i128::from(conflicts))))
}

/// Evaluates an attribute `smem.name`, except methods.
pub(super) fn memory_attribute<C: Caller + ?Sized>(
    c: &mut C,
    shared: &SharedMemory<Op<C>>,
    name: &str,
) -> Semantic<Option<Op<C>>> {
    let is_tensor = is_tensor_memory(&shared.form.tiles);
    if is_tensor && !TENSOR_MEMORY_ATTRIBUTES.contains(&name) {
        if MISSING_OF_TENSOR_MEMORY.contains(&name) {
            return Err(not_there(&format!("`{name}` of tensor memory")));
        }
        return Ok(None);
    }
    let shape = shared.form.shape();
    let int = |value: u32| Constant::Int(i128::from(value));
    let found = match name {
        "dtype" => Constant::dtype(shared.form.tiles.dtype),
        "shape" => Constant::Tuple(shape.iter().map(|extent| int(*extent)).collect()),
        "rank" => int(shape.len() as u32),
        "numel" => int(shape.iter().product()),
        "nbytes_per_cta" => clusters::bytes_of_block(&shared.form)?,
        // The memory is its own type, because the other attributes are the same.
        "type" => return Ok(Some(Operand::Shared(Box::new(shared.clone())))),
        "layout" => match c
            .layout_object(&shared.form.seen_tiles().map_err(|error| misfit(0, error))?.layout.to_string())
        {
            Some(object) => object,
            None => return Err(not_there("the attribute `layout` of shared memory")),
        },
        name if MISSING.contains(&name) => return Err(not_there(&format!("`{name}` of shared memory"))),
        _ => return Ok(None),
    };
    Ok(Some(Operand::Constant(found)))
}
