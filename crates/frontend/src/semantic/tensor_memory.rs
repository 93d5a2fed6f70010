//! The rules of tensor memory (Gluon on Blackwell): its allocation, its accesses, its views, and the
//! dots whose accumulators it holds.
//!
//! Tensor memory is a [`SharedMemory`] with a layout of tensor memory.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tilewright_base::Code;
use tilewright_ir::{
    DeviceFn, Dtype, ScaledFormat, ScaledKind, Shape, SharedTiles, StatedBuffer, StatedLayout, Type,
};

use super::arguments::{Arguments, constant_of};
use super::barriers::{allocate_one, mbarrier_of, predicate};
use super::convert::{cast, describe, tensor};
use super::device_function::device;
use super::gluon::{
    check_blocks, check_warps, layout, layout_text, matrix_memory, misfit, not_there, place, warps_of, zero,
};
use super::operators::binary;
use super::views::{permuted, scaled, sum};
use super::{BinaryOperator, Caller, Op, Semantic, SemanticError, ValueOf};
use crate::shared_memory::{SharedForm, SharedMemory, is_tensor_memory};
use crate::value::{Constant, Operand};

/// The instruction of a load whose layout the program does not state.
const DEFAULT_VARIANT: &str = "32x32b";

const NONE: Constant = Constant::None;

/// Returns an argument that is tensor memory, for one tile or several.
fn any_tensor_memory<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<SharedMemory<Op<C>>> {
    match a.at(index)? {
        Operand::Shared(found) if is_tensor_memory(&found.form.tiles) => Ok((**found).clone()),
        other => {
            let found = describe(c, &other.clone());
            let hint = "allocate it by `allocate_tensor_memory(element_ty, shape, layout)`";
            Err(a.unexpected(index, "tensor memory", &found).hint(hint))
        }
    }
}

/// Returns an argument that is tensor memory for one tile.
fn tile_memory<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<SharedMemory<Op<C>>> {
    let found = any_tensor_memory(c, a, index)?;
    if found.form.count.is_none() {
        return Ok(found);
    }
    let hint = "select a tile by `tmem.index(i)`";
    Err(a.unexpected(index, "tensor memory for one tile", &found.describe()).hint(hint))
}

/// Returns the tiles of tensor memory, with the number of tiles of an array.
fn tiles_of<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    (dtype, extents): (Dtype, &[u32]),
    index: usize,
) -> Semantic<(SharedTiles, Option<u32>)> {
    let text = layout_text(c, a, index)?.ok_or_else(|| a.unexpected(index, "a layout", "None"))?;
    let layout: StatedBuffer = text.parse().map_err(|error| misfit(index, error))?;
    let count = (extents.len() == 3).then(|| extents[0]);
    let shape: Shape = extents[usize::from(count.is_some())..].iter().copied().collect();
    layout.tensor_memory_of(&shape, dtype.bits()).map_err(|error| misfit(index, error))?;
    check_blocks(c, layout.blocks(), &layout, index)?;
    Ok((SharedTiles { slots: count.unwrap_or(1), dtype, shape, layout: Arc::new(layout) }, count))
}

fn memory_of<C: Caller + ?Sized>(
    (tiles, count): (SharedTiles, Option<u32>),
    memory: Op<C>,
    slot: Op<C>,
) -> SharedMemory<Op<C>> {
    let form = Arc::new(SharedForm { tiles, count, is_transposed: false, window: None });
    SharedMemory { form, memory, slot }
}

/// `allocate_tensor_memory(element_ty, shape, layout, value)`.
pub(super) fn allocate<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (dtype, extents) = (a.dtype(c, 0)?, a.shape(c, 1)?);
    let (tiles, count) = tiles_of(c, a, (dtype, &extents), 2)?;
    let memory = device(c, DeviceFn::Allocate { tiles: tiles.clone() }, smallvec![])?;
    let memory = memory.ok_or_else(no_result)?;
    let found = memory_of::<C>((tiles, count), Operand::Tensor(memory), zero());
    if !a.is_none(3) {
        store_tile(c, a, &found, 3, None)?;
    }
    Ok(Operand::Shared(Box::new(found)))
}

/// `tensor_memory_descriptor_type(element_ty, shape, layout, alloc_shape)`: tensor memory without an
/// allocation, which only describes.
pub(super) fn memory_type<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (dtype, extents) = (a.dtype(c, 0)?, a.shape(c, 1)?);
    let tiles = tiles_of(c, a, (dtype, &extents), 2)?;
    Ok(Operand::Shared(Box::new(memory_of::<C>(tiles, Operand::Constant(NONE), zero()))))
}

fn no_result() -> SemanticError {
    SemanticError::new(Code::TypeMismatch, "the function has no result")
}

/// Returns the layout of registers with which an instruction moves a tile.
fn register_layout(form: &SharedForm, moved: (u32, &str), index: usize) -> Semantic<StatedLayout> {
    let SharedTiles { dtype, shape, layout, .. } = &form.tiles;
    layout.register_layout(shape, dtype.bits(), moved).map_err(|error| misfit(index, error))
}

/// `tmem.get_reg_layout(num_warps, instr_variant)`.
pub(super) fn get_reg_layout<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = any_tensor_memory(c, a, 0)?;
    let warps = if a.is_none(1) { warps_of(c) } else { super::device_function::count(c, a, 1)? };
    let variant = a.string(c, 2)?.unwrap_or_else(|| DEFAULT_VARIANT.to_owned());
    let layout = register_layout(&found.form, (warps, &variant), 2)?;
    let object = c.layout_object(&layout.to_string());
    object.map(Operand::Constant).ok_or_else(|| not_there("`get_reg_layout`"))
}

/// `tmem.load(layout)`.
pub(super) fn load<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = tile_memory(c, a, 0)?;
    let tiles = found.form.tiles.clone();
    let layout = match layout(c, a, 1)? {
        Some(layout) => layout,
        None => Arc::new(register_layout(&found.form, (warps_of(c), DEFAULT_VARIANT), 0)?),
    };
    check_warps(c, &layout, 1)?;
    layout.linear(&tiles.shape).map_err(|error| misfit(1, error))?;
    let operands = place(c, &found)?;
    let loaded = device(c, DeviceFn::TensorMemoryLoad { tiles, layout }, operands)?;
    loaded.map(Operand::Tensor).ok_or_else(no_result)
}

/// Stores an argument to tensor memory for one tile, if a predicate is true.
fn store_tile<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    memory: &SharedMemory<Op<C>>,
    index: usize,
    condition: Option<ValueOf<C>>,
) -> Semantic<()> {
    let (value, ty) = a.typed(c, index)?;
    let tiles = memory.form.tiles.clone();
    if ty.shape != tiles.shape || ty.dtype() != Some(tiles.dtype) {
        let own = Type::tile(tiles.dtype, tiles.shape.clone());
        let message = format!("tensor memory for {own} does not take {ty}");
        return Err(SemanticError::new(Code::TypeMismatch, message)
            .argument(index, format!("this is {ty}"))
            .hint("convert the tile with `.to(tmem.dtype)`, and give both the same shape"));
    }
    let value = if ty.layout.is_some() {
        value
    } else {
        // A constant gets the layout of the default instruction.
        let layout = register_layout(&memory.form, (warps_of(c), DEFAULT_VARIANT), index)?;
        let op = tilewright_ir::Op::SetLayout { layout };
        tilewright_ir::Builder::emit_one(c.builder(), op, smallvec![value])?
    };
    let condition = match condition {
        Some(condition) => condition,
        None => truth(c)?,
    };
    let mut operands = place(c, memory)?;
    operands.extend([value, condition]);
    device(c, DeviceFn::TensorMemoryStore { tiles }, operands)?;
    Ok(())
}

/// Returns the int1 true.
fn truth<C: Caller + ?Sized>(c: &mut C) -> Semantic<ValueOf<C>> {
    let truth = tensor(c, &Operand::Constant(Constant::Bool(true)), 0)?;
    cast(c, truth, Dtype::I1)
}

/// `tmem.store(value, pred)`.
pub(super) fn store<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = tile_memory(c, a, 0)?;
    let condition = predicate(c, a, 2)?;
    store_tile(c, a, &found, 1, Some(condition))?;
    Ok(Operand::Constant(NONE))
}

/// `tmem.index(index)`.
pub(super) fn index<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = any_tensor_memory(c, a, 0)?;
    let Some(slots) = found.form.count else {
        return Err(a.unexpected(0, "tensor memory for several tiles", &found.describe()));
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
    let slot = sum(c, &found.slot, &slot)?;
    let form = SharedForm { count: None, ..(*found.form).clone() };
    Ok(Operand::Shared(Box::new(SharedMemory { form: Arc::new(form), memory: found.memory, slot })))
}

/// Returns the columns that a tile takes in each block of the cluster.
fn columns(tiles: &SharedTiles) -> u32 {
    let Some(block) = tiles.layout.tensor_memory(&tiles.shape) else { return 0 };
    let Ok(division) = tiles.layout.division(&tiles.shape) else { return 0 };
    let parts = division.part.iter().product::<u32>() / (block.rows * block.columns);
    // A block of 64 rows of a pair has half of its columns in other lanes.
    let is_split = tiles.layout.is_of_pair() && block.rows == 64;
    let along = if is_split { block.columns / 2 } else { block.columns };
    parts * (along * block.stride * tiles.dtype.bits().max(8)).div_ceil(32)
}

/// Makes a view of the whole allocation of tensor memory, whose slots are these tiles.
fn view<C: Caller + ?Sized>(
    c: &mut C,
    found: &SharedMemory<Op<C>>,
    tiles: (SharedTiles, Option<u32>),
    slot: Op<C>,
) -> Semantic<Op<C>> {
    let memory = tensor(c, &found.memory, 0)?;
    let made = device(c, DeviceFn::View { tiles: tiles.0.clone() }, smallvec![memory])?;
    let made = Operand::Tensor(made.ok_or_else(no_result)?);
    Ok(Operand::Shared(Box::new(memory_of::<C>(tiles, made, slot))))
}

/// `tmem.slice(start, length)`.
pub(super) fn slice<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = tile_memory(c, a, 0)?;
    let [start, length] = [a.int(c, 1)?, a.int(c, 2)?];
    let tiles = &found.form.tiles;
    let (rows, extent) = (tiles.shape[0], tiles.shape[1]);
    let fits =
        (1..=i128::from(extent)).contains(&length) && (0..=i128::from(extent) - length).contains(&start);
    if !fits {
        let text = format!("{start} to {}", start.saturating_add(length));
        return Err(a.unexpected(1, &format!("a part of the {extent} columns"), &text));
    }
    let (start, length) = (start as u32, length as u32);
    if !length.is_power_of_two() || !start.is_multiple_of(length) {
        return Err(a.unexpected(2, "a power of two that divides the start", &length.to_string()));
    }
    let (mut layout, is_of_pair) = ((*tiles.layout).clone(), tiles.layout.is_of_pair());
    let StatedBuffer::TensorMemory { block, .. } = &mut layout else {
        let text = found.describe();
        return Err(a.unexpected(0, "tensor memory without scales", &text));
    };
    let part = tiles.layout.division(&tiles.shape).map_err(|error| misfit(0, error))?.part;
    if part[1] != extent {
        let message = "the columns of the tile are in different blocks of the cluster";
        return Err(SemanticError::new(Code::LayoutMismatch, message)
            .argument(0, format!("this is {}", found.describe()))
            .hint("slice tensor memory whose cga_layout splits rows only"));
    }
    let is_split = is_of_pair && block[0] == 64;
    if (part[0] > block[0] || is_split) && length < block[1] {
        let message = "the slice is not contiguous in tensor memory";
        return Err(SemanticError::new(Code::LayoutMismatch, message)
            .argument(0, format!("this is {}", found.describe()))
            .hint("slice whole blocks, or allocate tensor memory whose tiles have the rows of a block"));
    }
    block[1] = block[1].min(length);
    let (parts, shape) = (extent / length, [rows, length].into_iter().collect::<Shape>());
    layout.tensor_memory_of(&shape, tiles.dtype.bits()).map_err(|error| misfit(2, error))?;
    let slots = tiles.slots * parts;
    let part = SharedTiles { slots, dtype: tiles.dtype, shape, layout: Arc::new(layout) };
    let slot = scaled(c, &found.slot, parts, start / length)?;
    view(c, &found, (part, None), slot)
}

/// `tmem._reinterpret(dtype, shape, layout)`.
pub(super) fn reinterpret<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = any_tensor_memory(c, a, 0)?;
    let (dtype, extents) = (a.dtype(c, 1)?, a.shape(c, 2)?);
    let (mut tiles, count) = tiles_of(c, a, (dtype, &extents), 3)?;
    let own = &found.form.tiles;
    let (from, to) = (columns(own), columns(&tiles));
    let has = from * found.form.count.unwrap_or(1);
    let whole = from * own.slots;
    // The first tile of the view is at a multiple of its columns in the allocation.
    let slot = match &found.slot {
        slot if from.is_multiple_of(to) => Some(scaled(c, slot, from / to, 0)?),
        Operand::Constant(Constant::Int(0)) => Some(zero()),
        _ => None,
    };
    let needed = to * tiles.slots;
    let Some(slot) = slot.filter(|_| needed <= has && to > 0) else {
        let message = format!("a tile of {needed} columns is no view of {has} columns of tensor memory");
        return Err(SemanticError::new(Code::TypeMismatch, message)
            .argument(0, format!("this is {}", found.describe()))
            .hint("give it as many columns as the memory has, or fewer"));
    };
    tiles.slots = (whole / to).max(1);
    view(c, &found, (tiles, count), slot)
}

/// Returns the items of an argument that is a sequence; `None` for Python's `None`.
fn items<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, index: usize) -> Semantic<Option<Vec<Op<C>>>> {
    match a.at(index)? {
        Operand::Constant(Constant::None) => Ok(None),
        Operand::Tuple(items) => Ok(Some(items.iter().cloned().collect())),
        Operand::Constant(Constant::Tuple(items)) => {
            Ok(Some(items.iter().cloned().map(Operand::Constant).collect()))
        }
        other => {
            let found = describe(c, &other.clone());
            Err(a.unexpected(index, "a list", &found))
        }
    }
}

/// Returns an operand of a dot: its type, after the transpose, its tiles, and whether it is transposed.
fn operand<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<(SharedMemory<Op<C>>, Type)> {
    let found = match a.at(index)? {
        Operand::Shared(found) if index == 0 && is_tensor_memory(&found.form.tiles) => {
            tile_memory(c, a, index)?
        }
        _ => matrix_memory(c, a, index)?,
    };
    let ty = Type::tile(found.form.tiles.dtype, found.form.shape().into_iter().collect::<Shape>());
    Ok((found, ty))
}

/// Checks the shapes and element types of a dot.
fn check_dot<C: Caller + ?Sized>(a: &Arguments<'_, C>, [left, right, acc]: [&Type; 3]) -> Semantic<()> {
    use Dtype::{BF16, F8E4NV, F8E5, F16, F32, I8, I32, U8};
    let error = |message: String| {
        SemanticError::new(Code::TypeMismatch, message)
            .argument(0, format!("this is {left}"))
            .argument(1, format!("this is {right}"))
            .argument(2, format!("this is {acc}"))
    };
    let shapes = [&left.shape[..], &right.shape[..], &acc.shape[..]];
    let [[m, k], [depth, n], [rows, columns]] = shapes else {
        return Err(error(format!("`{}` takes matrices", a.spec.name)));
    };
    if [m, k, n] != [rows, depth, columns] {
        let message = format!("`{}` cannot multiply {left} by {right} into {acc}", a.spec.name);
        return Err(error(message).note("it takes [M, K], [K, N] and [M, N]"));
    }
    let dtypes = [left, right, acc].map(Type::dtype);
    let is_kind = match dtypes {
        [Some(F16), Some(F16), Some(sum)] => matches!(sum, F16 | F32),
        [Some(F8E4NV | F8E5), Some(F8E4NV | F8E5), Some(sum)] => matches!(sum, F16 | F32),
        [Some(BF16), Some(BF16), Some(sum)] | [Some(F32), Some(F32), Some(sum)] => sum == F32,
        [Some(I8 | U8), Some(I8 | U8), Some(sum)] => sum == I32,
        _ => false,
    };
    if !is_kind {
        let message = format!("`{}` has no instruction for {left}, {right} and {acc}", a.spec.name);
        return Err(error(message)
            .note("operands are fp16, bf16, fp32 (as tf32), fp8e4nv or fp8e5, and the accumulator is fp32, or fp16 for \
                   fp16 and 8 bits; operands of int8 or uint8 have an accumulator of int32"));
    }
    let least = 256 / left.dtype().map_or(16, Dtype::bits);
    if !k.is_multiple_of(least) {
        let message = format!("K of `{}` is {k}, and must be a multiple of {least}", a.spec.name);
        return Err(error(message));
    }
    Ok(())
}

/// Checks the layouts of the accumulator, and of A in tensor memory.
fn check_layouts(left: &SharedTiles, acc: &SharedTiles) -> Semantic<()> {
    let Some(block) = acc.layout.tensor_memory(&acc.shape) else { return Err(no_result()) };
    if block.is_scales() {
        return Err(misfit(2, format!("{} is for scales, not for an accumulator", acc.layout)));
    }
    let is_pair = acc.layout.is_of_pair();
    let least = match (is_pair, block.rows) {
        (false, 64) => 8,
        (true, 64) => 32,
        _ => 16,
    };
    if block.stride * acc.dtype.bits() != 32 {
        let stride = 32 / acc.dtype.bits();
        return Err(misfit(2, format!("{} of an accumulator needs col_stride={stride}", acc.layout)));
    }
    if !block.columns.is_multiple_of(least) || block.columns > 256 {
        let message = format!("a block of {} is no accumulator: it has {least} to 256 columns", acc.layout);
        return Err(misfit(2, message));
    }
    if is_pair && block.columns != acc.shape[1] {
        let message = format!(
            "a dot of two blocks has one block of columns, not {} of {}: each block of the pair has half of B",
            acc.shape[1] / block.columns,
            acc.layout
        );
        return Err(misfit(2, message).hint("give the layout blocks with all columns of the accumulator"));
    }
    let Some(own) = left.layout.tensor_memory(&left.shape) else { return Ok(()) };
    if is_pair && block.rows == 64 {
        let message = format!("A of a dot of two blocks with {} is in shared memory", acc.layout);
        return Err(misfit(0, message).hint("store A to shared memory, or give each block 128 rows"));
    }
    if is_pair != left.layout.is_of_pair() {
        return Err(misfit(0, format!("{} is not for the two blocks of {}", left.layout, acc.layout)));
    }
    let depth = 256 / left.dtype.bits();
    if own.rows != block.rows || own.stride != 1 || !own.columns.is_multiple_of(depth) {
        let message = format!(
            "{} is not that of A: it needs blocks of {} rows and a multiple of {depth} columns, and col_stride=1",
            left.layout, block.rows
        );
        return Err(misfit(0, message));
    }
    Ok(())
}

/// Returns whether both of two int1 are true.
fn both<C: Caller + ?Sized>(c: &mut C, one: &ValueOf<C>, other: &ValueOf<C>) -> Semantic<ValueOf<C>> {
    let [one, other] = [one, other].map(|value| Operand::Tensor(value.clone()));
    let found = binary(c, BinaryOperator::And, &one, &other)?;
    tensor(c, &found, 0)
}

/// `tcgen05_mma(a, b, acc, use_acc, pred, multicast, mbarriers, mbarrier_preds)`.
pub(super) fn mma<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let ((left, left_ty), (right, right_ty)) = (operand(c, a, 0)?, operand(c, a, 1)?);
    let acc = tile_memory(c, a, 2)?;
    let acc_ty = tile_type(&acc);
    for (index, memory) in [&left, &right].into_iter().enumerate() {
        let layout = &memory.form.tiles.layout;
        if layout.is_padded() {
            return Err(misfit(index, format!("no `{}` reads {layout}, which has padding", a.spec.name)));
        }
    }
    check_dot(a, [&left_ty, &right_ty, &acc_ty])?;
    check_layouts(&left.form.tiles, &acc.form.tiles)?;
    let (use_acc, condition) = (predicate(c, a, 3)?, predicate(c, a, 4)?);
    let mut operands = places(c, &[&left, &right, &acc])?;
    operands.extend([use_acc, condition.clone()]);
    let function = DeviceFn::TensorDot {
        a: left.form.tiles.clone(),
        b: right.form.tiles.clone(),
        acc: acc.form.tiles.clone(),
        transposed_a: left.form.is_transposed,
        transposed_b: right.form.is_transposed,
    };
    start_dot(c, a, 5, (function, operands, condition))
}

/// Returns the operands that select tiles.
fn places<C: Caller + ?Sized>(
    c: &mut C,
    memories: &[&SharedMemory<Op<C>>],
) -> Semantic<SmallVec<[ValueOf<C>; 4]>> {
    let mut operands = SmallVec::new();
    for memory in memories {
        operands.extend(place(c, memory)?);
    }
    Ok(operands)
}

/// Emits a dot, then the commits to its `mbarrier`s, or the wait for it. The arguments from `first`
/// on are `multicast`, `mbarriers` and `mbarrier_preds`.
fn start_dot<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    first: usize,
    (function, operands, condition): (DeviceFn, SmallVec<[ValueOf<C>; 4]>, ValueOf<C>),
) -> Semantic<Op<C>> {
    let is_pair = match &function {
        DeviceFn::TensorDot { acc, .. } | DeviceFn::TensorDotScaled { acc, .. } => acc.layout.is_of_pair(),
        // tidy: wildcard because the callers start dots
        _ => false,
    };
    // The dots of a pair always arrive at the barriers of both blocks.
    let is_multicast = c.num_ctas() > if is_pair { 2 } else { 1 };
    if a.flag(c, first)? && is_multicast {
        return Err(not_there(&format!("`multicast=True` of `{}`", a.spec.name)));
    }
    let signaled = items(c, a, first + 1)?;
    let conditions = items(c, a, first + 2)?;
    let Some(signaled) = signaled else {
        if is_pair && c.is_in_worker() {
            let message = format!("`{}` of two blocks in a worker, without `mbarriers`", a.spec.name);
            return Err(SemanticError::new(Code::PartitionMisuse, message).hint(
                "initialize an `mbarrier` before `warp_specialize`, and pass it as `mbarriers=[bar]`",
            ));
        }
        return wait_for_dot(c, (function, operands), condition, is_pair);
    };
    device(c, function, operands)?;
    for (number, barrier) in signaled.iter().enumerate() {
        let barrier = mbarrier_of(c, a, first + 1, barrier)?;
        let condition = match conditions.as_ref().and_then(|conditions| conditions.get(number)) {
            Some(own) => {
                let own = tensor(c, own, first + 2)?;
                let own = cast(c, own, Dtype::I1)?;
                both(c, &condition, &own)?
            }
            None => condition.clone(),
        };
        let mut operands = place(c, &barrier)?;
        operands.push(condition);
        device(c, DeviceFn::TensorCommit { tiles: barrier.form.tiles.clone(), pair: false }, operands)?;
    }
    Ok(Operand::Constant(NONE))
}

/// Returns an argument that is the format of an operand.
fn format<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, index: usize) -> Semantic<ScaledFormat> {
    let text = a.string(c, index)?.unwrap_or_default();
    let found = ScaledFormat::ALL.into_iter().find(|format| format.name() == text);
    found.ok_or_else(|| a.unexpected(index, "\"e4m3\", \"e5m2\" or \"e2m1\"", &format!("{text:?}")))
}

/// Returns an argument that is tensor memory for scales.
fn scales<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<SharedMemory<Op<C>>> {
    let hint = "allocate it by `allocate_tensor_memory(gl.uint8, [rows, K // 32], TensorMemoryScalesLayout())`, and \
                fill it by `tcgen05_copy` or `store`";
    let found = tile_memory(c, a, index).map_err(|error| error.hint(hint))?;
    let tiles = &found.form.tiles;
    if tiles.layout.tensor_memory(&tiles.shape).is_some_and(|block| block.is_scales()) {
        return Ok(found);
    }
    Err(misfit(index, format!("{} is not for scales", tiles.layout)).hint(hint))
}

/// `tcgen05_mma_scaled(a, b, acc, a_scale, b_scale, a_type, b_type, use_acc, pred, …)`.
pub(super) fn mma_scaled<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let ((left, left_ty), (right, right_ty)) = (operand(c, a, 0)?, operand(c, a, 1)?);
    let acc = tile_memory(c, a, 2)?;
    let factors = [scales(c, a, 3)?, scales(c, a, 4)?];
    let formats = [format(c, a, 5)?, format(c, a, 6)?];
    let dot =
        ScaledDot { operands: [&left, &right, &acc], types: [left_ty, right_ty, tile_type(&acc)], formats };
    dot.check(a, [&factors[0], &factors[1]])?;
    let (use_acc, condition) = (predicate(c, a, 7)?, predicate(c, a, 8)?);
    let mut operands = places(c, &[&left, &right, &acc, &factors[0], &factors[1]])?;
    operands.extend([use_acc, condition.clone()]);
    let function = DeviceFn::TensorDotScaled {
        a: left.form.tiles.clone(),
        b: right.form.tiles.clone(),
        acc: acc.form.tiles.clone(),
        a_scale: factors[0].form.tiles.clone(),
        b_scale: factors[1].form.tiles.clone(),
        a_format: formats[0],
        b_format: formats[1],
        transposed_a: left.form.is_transposed,
        transposed_b: right.form.is_transposed,
    };
    start_dot(c, a, 9, (function, operands, condition))
}

/// A dot with scales: A, B and the accumulator.
struct ScaledDot<'a, T> {
    operands: [&'a SharedMemory<T>; 3],
    types: [Type; 3],
    formats: [ScaledFormat; 2],
}

impl<T> ScaledDot<'_, T> {
    fn error(&self, message: String) -> SemanticError {
        self.types
            .iter()
            .enumerate()
            .fold(SemanticError::new(Code::TypeMismatch, message), |error, (at, ty)| {
                error.argument(at, format!("this is {ty}"))
            })
    }

    /// Checks types, shapes and layouts.
    fn check<C: Caller + ?Sized>(&self, a: &Arguments<'_, C>, scales: [&SharedMemory<T>; 2]) -> Semantic<()> {
        let name = a.spec.name;
        let [left, right, acc] = &self.types;
        for (index, format) in self.formats.into_iter().enumerate() {
            if !self.types[index].dtype().is_some_and(|dtype| format.is_held_by(dtype)) {
                let message = format!("`{name}` reads {} from bytes, or from its own type", format.name());
                return Err(self.error(message).hint("pass uint8; a byte has two elements of e2m1"));
            }
        }
        let shapes = [&left.shape[..], &right.shape[..], &acc.shape[..]];
        let [[m, k], [depth, n], [rows, columns]] = shapes else {
            return Err(self.error(format!("`{name}` takes matrices")));
        };
        let [k, depth] = [k * self.formats[0].in_byte(), depth * self.formats[1].in_byte()];
        if [*m, k, *n] != [*rows, depth, *columns] {
            let message = format!("`{name}` cannot multiply {left} by {right} into {acc}");
            return Err(self.error(message).note(format!(
                "it takes [M, K], [K, N] and [M, N], found [{m}, {k}], [{depth}, {n}] and [{rows}, {columns}]"
            )));
        }
        if acc.dtype() != Some(Dtype::F32) {
            return Err(self.error(format!("the accumulator of `{name}` is fp32")));
        }
        let padded = [0, 1].map(|index| self.operands[index].form.tiles.layout.is_padded());
        let types = scales.map(|scale| scale.form.tiles.dtype);
        let kind = ScaledKind::of(self.formats, padded, types).map_err(|rule| {
            self.error(format!("`{name}` has no instruction for these operands: {rule}"))
                .argument(3, format!("this is {}", tile_type(scales[0])))
                .argument(4, format!("this is {}", tile_type(scales[1])))
        })?;
        if !k.is_multiple_of(kind.depth()) {
            let least = kind.depth();
            return Err(self.error(format!("K of `{name}` is {k}, and must be a multiple of {least}")));
        }
        for (index, (scale, rows)) in scales.into_iter().zip([m, n]).enumerate() {
            let needed = [*rows, k / kind.block()];
            if scale.form.tiles.shape[..] != needed {
                let operand = ["A", "B"][index];
                let message = format!("`{name}` needs scales {needed:?} for {operand}");
                let block = kind.block();
                return Err(SemanticError::new(Code::TypeMismatch, message)
                    .argument(index, format!("this is {}", self.types[index]))
                    .argument(3 + index, format!("this is {}", tile_type(scale)))
                    .note(format!("a scale is for {block} elements along K")));
            }
        }
        self.check_layouts()
    }

    fn check_layouts(&self) -> Semantic<()> {
        let [left, _, acc] = self.operands.map(|memory| &memory.form.tiles);
        check_layouts(left, acc)?;
        let Some(block) = acc.layout.tensor_memory(&acc.shape) else { return Err(no_result()) };
        if block.rows != 128 || !block.columns.is_multiple_of(32) {
            let message =
                "an accumulator of a dot with scales has blocks of 128 rows and of a multiple of 32 columns";
            return Err(misfit(2, format!("{message}, not those of {}", acc.layout)));
        }
        Ok(())
    }
}

/// Returns the type of a tile in memory.
fn tile_type<T>(memory: &SharedMemory<T>) -> Type {
    Type::tile(memory.form.tiles.dtype, memory.form.tiles.shape.clone())
}

/// Emits a dot and the wait for it, at an `mbarrier` of its own.
fn wait_for_dot<C: Caller + ?Sized>(
    c: &mut C,
    (function, operands): (DeviceFn, SmallVec<[ValueOf<C>; 4]>),
    condition: ValueOf<C>,
    is_pair: bool,
) -> Semantic<Op<C>> {
    let barrier = allocate_one(c)?;
    let (tiles, slot) = (barrier.form.tiles.clone(), place(c, &barrier)?);
    device(c, DeviceFn::MbarrierInit { tiles: tiles.clone(), arrivals: 1 }, slot.clone())?;
    device(c, function, operands)?;
    let with = |last: &[ValueOf<C>]| slot.iter().chain(last).cloned().collect();
    device(
        c,
        DeviceFn::TensorCommit { tiles: tiles.clone(), pair: false },
        with(std::slice::from_ref(&condition)),
    )?;
    let phase = tensor(c, &zero(), 0)?;
    let phase = cast(c, phase, Dtype::I32)?;
    device(c, DeviceFn::MbarrierWait { tiles: tiles.clone() }, with(&[phase, condition]))?;
    if is_pair {
        // The first block arrives at the barriers of both.
        device(c, DeviceFn::ClusterArrive {}, smallvec![])?;
        device(c, DeviceFn::ClusterWait {}, smallvec![])?;
    }
    device(c, DeviceFn::MbarrierInvalidate { tiles }, slot)?;
    Ok(Operand::Constant(NONE))
}

/// `tcgen05_copy(src, dst)`.
pub(super) fn copy<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let mut source = matrix_memory(c, a, 0)?;
    let destination = tile_memory(c, a, 1)?;
    if source.form.is_transposed {
        source = permuted(c, &source, &[1, 0])?;
    }
    let (from, to) = (&source.form.tiles, &destination.form.tiles);
    if (from.dtype, &from.shape) != (to.dtype, &to.shape) {
        let message = format!("`{}` copies tiles of one shape and element type", a.spec.name);
        return Err(SemanticError::new(Code::TypeMismatch, message)
            .argument(0, format!("this is {}", source.describe()))
            .argument(1, format!("this is {}", destination.describe()))
            .hint("give both the same shape: `smem.reshape` and `smem.permute` make views"));
    }
    if from.layout.is_padded() {
        return Err(misfit(0, format!("no copy to tensor memory reads {}", from.layout)));
    }
    let block = to.layout.tensor_memory(&to.shape).ok_or_else(no_result)?;
    let of_block = block.columns * block.stride * to.dtype.bits() / 32;
    let (is_copied, needed) = if block.is_scales() {
        (block.columns == 4 && columns(to) >= 4, "scales need four columns of tensor memory")
    } else {
        let is_block = block.rows == 128 && block.stride == 1 && of_block >= 8;
        (is_block, "blocks need 128 rows of at least 32 bytes, and col_stride=1")
    };
    if !is_copied {
        let text = format!("no copy writes a tile {:?} of {}: {needed}", &to.shape[..], to.layout);
        return Err(misfit(1, text));
    }
    let function = DeviceFn::TensorCopy { source: from.clone(), destination: to.clone() };
    let mut operands = place(c, &source)?;
    operands.extend(place(c, &destination)?);
    device(c, function, operands)?;
    Ok(Operand::Constant(NONE))
}

/// `tcgen05_commit(barrier, pred, descs)`.
pub(super) fn commit<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let barrier = a.at(0)?.clone();
    let barrier = mbarrier_of(c, a, 0, &barrier)?;
    let condition = predicate(c, a, 1)?;
    let mut operands = place(c, &barrier)?;
    operands.push(condition);
    device(c, DeviceFn::TensorCommit { tiles: barrier.form.tiles.clone(), pair: false }, operands)?;
    Ok(Operand::Constant(NONE))
}

/// `tcgen05_mma_barrier_count(smems, multicast, two_ctas)`.
pub(super) fn barrier_count<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let is_flag = |value: Option<Constant>| value.is_some_and(|value| value.is_true());
    let (multicast, pair) = (a.at(1)?.clone(), a.at(2)?.clone());
    let (is_multicast, is_pair) = (is_flag(constant_of(c, &multicast)), is_flag(constant_of(c, &pair)));
    let blocks = c.num_ctas();
    if is_pair && blocks == 1 {
        return Err(a.unexpected(2, "False in a kernel of one block (num_ctas=1)", "True"));
    }
    // One block of a pair starts the dot, which arrives once at the barriers of both.
    let blocks_of_dot = if is_pair { 2 } else { 1 };
    if blocks > blocks_of_dot && is_multicast {
        return Err(not_there("`tcgen05_mma_barrier_count` of several blocks"));
    }
    Ok(Operand::Constant(Constant::Int(1)))
}
