//! Defines the rules of `mbarrier`s (Gluon).

use smallvec::{SmallVec, smallvec};
use tilewright_ir::{DeviceFn, Dtype, SharedTiles, StatedBuffer};

use super::arguments::Arguments;
use super::clusters::kept_bits;
use super::convert::{cast, tensor};
use super::device_function::{count, device};
use super::gluon::{allocated, place, shared};
use super::{Caller, Op, Semantic, ValueOf};
use crate::shared_memory::SharedMemory;
use crate::value::{Constant, Operand};

const NONE: Constant = Constant::None;
/// The maximum number of arrivals and bytes of a phase (PTX ISA, "Size and alignment of mbarrier
/// object").
const MAX_COUNT: u32 = (1 << 20) - 1;

/// `allocate_mbarrier(batch, two_ctas)`.
pub(super) fn allocate<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (blocks, pairs) = (c.num_ctas(), a.flag(c, 1)?);
    if pairs && blocks == 1 {
        return Err(a.unexpected(1, "False in a kernel of one block (num_ctas=1)", "True"));
    }
    let barriers = if pairs { blocks / 2 } else { blocks };
    let extents = if a.is_none(0) { vec![barriers] } else { vec![count(c, a, 0)?, barriers] };
    let layout = StatedBuffer::of_cluster_mbarriers(blocks, pairs);
    let found = allocated(c, Dtype::I64, &extents, layout)?;
    Ok(Operand::Shared(Box::new(found)))
}

/// Returns an argument that is one `mbarrier`: shared memory for one int64.
pub(super) fn mbarrier<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<SharedMemory<Op<C>>> {
    let found = shared(c, a, index)?;
    let SharedTiles { dtype, shape, layout, .. } = &found.form.tiles;
    // Each block of a cluster, or each group of blocks, has one `mbarrier`.
    let is_one = layout.division(shape).is_ok_and(|division| division.part[..] == [1]);
    if *dtype == Dtype::I64 && is_one && found.form.count.is_none() {
        return Ok(found);
    }
    Err(a
        .unexpected(index, "an mbarrier", &found.describe())
        .hint("allocate it by `mbarrier.allocate_mbarrier()`; of several, select one by `bars.index(i)`"))
}

/// Returns an operand that is one `mbarrier`; messages name argument `index`.
pub(super) fn mbarrier_of<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    operand: &Op<C>,
) -> Semantic<SharedMemory<Op<C>>> {
    let mut values = a.values.to_vec();
    values[index] = operand.clone();
    mbarrier(c, &Arguments { spec: a.spec, values: &values, parameters: a.parameters }, index)
}

/// Allocates an `mbarrier` for each block.
pub(super) fn allocate_one<C: Caller + ?Sized>(c: &mut C) -> Semantic<SharedMemory<Op<C>>> {
    let blocks = c.num_ctas();
    allocated(c, Dtype::I64, &[blocks], StatedBuffer::of_cluster_mbarriers(blocks, false))
}

/// Returns the tiles and the operands of an `mbarrier`.
fn barrier<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
) -> Semantic<(SharedTiles, SmallVec<[ValueOf<C>; 4]>)> {
    let found = mbarrier(c, a, 0)?;
    let operands = place(c, &found)?;
    Ok((found.form.tiles.clone(), operands))
}

pub(super) fn predicate<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<ValueOf<C>> {
    scalar(c, a, index, Dtype::I1)
}

fn scalar<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    dtype: Dtype,
) -> Semantic<ValueOf<C>> {
    let (value, ty) = a.typed(c, index)?;
    if ty.is_scalar() && ty.dtype().is_some_and(Dtype::is_int) {
        return cast(c, value, dtype);
    }
    Err(a.unexpected(index, "a scalar integer", &ty.to_string()))
}

/// `init(mbarrier, count)`.
pub(super) fn init<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (tiles, operands) = barrier(c, a)?;
    let arrivals = arrivals(c, a, 1)?;
    device(c, DeviceFn::MbarrierInit { tiles, arrivals }, operands)?;
    Ok(Operand::Constant(NONE))
}

/// Returns a number of arrivals, which must be at least 1.
fn arrivals<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, index: usize) -> Semantic<u32> {
    let found = count(c, a, index)?;
    if (1..=MAX_COUNT).contains(&found) {
        Ok(found)
    } else {
        Err(a.unexpected(index, &format!("a number from 1 to {MAX_COUNT}"), &found.to_string()))
    }
}

/// `invalidate(mbarrier)`.
pub(super) fn invalidate<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (tiles, operands) = barrier(c, a)?;
    device(c, DeviceFn::MbarrierInvalidate { tiles }, operands)?;
    Ok(Operand::Constant(NONE))
}

/// `expect(mbarrier, bytes_per_cta, pred, from_cta)`.
pub(super) fn expect<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (tiles, mut operands) = barrier(c, a)?;
    if a.is_none(1) {
        return Err(a.unexpected(1, "a number of bytes", "None"));
    }
    let bytes = count(c, a, 1)?;
    if bytes > MAX_COUNT {
        return Err(a
            .unexpected(1, &format!("at most {MAX_COUNT}"), &bytes.to_string())
            .note("a phase of an mbarrier counts at most this number of bytes"));
    }
    operands.push(predicate(c, a, 2)?);
    let function = match kept_bits(c, a, 3)? {
        None => DeviceFn::MbarrierExpect { tiles, bytes },
        Some(kept) => DeviceFn::ArriveFrom { tiles, arrivals: 1, bytes, kept },
    };
    device(c, function, operands)?;
    Ok(Operand::Constant(NONE))
}

/// `wait(mbarrier, phase, pred, deps)`.
pub(super) fn wait<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (tiles, mut operands) = barrier(c, a)?;
    operands.push(scalar(c, a, 1, Dtype::I32)?);
    operands.push(predicate(c, a, 2)?);
    device(c, DeviceFn::MbarrierWait { tiles }, operands)?;
    let deps = match a.at(3)? {
        Operand::Tuple(items) => items.iter().cloned().collect(),
        _ => Vec::new(),
    };
    for dep in deps {
        if let Operand::Shared(shared) = dep {
            let memory = tensor(c, &shared.memory, 3)?;
            device(c, DeviceFn::KeepAlive {}, smallvec![memory])?;
        }
    }
    Ok(Operand::Constant(NONE))
}

/// `arrive(mbarrier, count, pred, from_cta)`.
pub(super) fn arrive<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (tiles, mut operands) = barrier(c, a)?;
    let arrivals = arrivals(c, a, 1)?;
    operands.push(predicate(c, a, 2)?);
    let function = match kept_bits(c, a, 3)? {
        None => DeviceFn::MbarrierArrive { tiles, arrivals },
        Some(kept) => DeviceFn::ArriveFrom { tiles, arrivals, bytes: 0, kept },
    };
    device(c, function, operands)?;
    Ok(Operand::Constant(NONE))
}

/// `mbarrier_arrive(mbarrier, increment_count)` of asynchronous copies.
pub(super) fn arrive_copies<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (tiles, operands) = barrier(c, a)?;
    let is_tracked = a.flag(c, 1)?;
    let function =
        if is_tracked { DeviceFn::TrackCopies { tiles } } else { DeviceFn::ArriveCopies { tiles } };
    device(c, function, operands)?;
    Ok(Operand::Constant(NONE))
}
