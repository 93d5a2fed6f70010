//! The rules of requests for programs that have not begun (Gluon on Blackwell): cluster launch
//! control.

use smallvec::SmallVec;
use tilewright_base::Code;
use tilewright_ir::{Builder, DeviceFn, Dtype, Op as IrOp, SharedTiles};

use super::arguments::Arguments;
use super::barriers::mbarrier;
use super::convert::{cast, describe, tensor};
use super::device_function::device;
use super::gluon::{matrix_memory, misfit, place};
use super::{Caller, Op, Semantic, SemanticError};
use crate::launch_response::{LAUNCH_RESPONSE, LaunchResponse};
use crate::shared_memory::SharedMemory;
use crate::value::{Constant, Operand};

/// The elements of a response.
const WORDS: [u32; 1] = [2];

/// Returns an argument that is memory for a response: two int64, next to each other.
fn response_memory<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<SharedMemory<Op<C>>> {
    let found = matrix_memory(c, a, index)?;
    let SharedTiles { dtype, shape, layout, .. } = &found.form.tiles;
    if *dtype != Dtype::I64 || shape[..] != WORDS || found.form.is_transposed {
        let hint = "allocate it by `gl.allocate_shared_memory(gl.int64, [2], \
                    gl.SwizzledSharedLayout(1, 1, 1, [0]))`";
        return Err(a.unexpected(index, "shared memory for two int64", &found.describe()).hint(hint));
    }
    let is_contiguous = layout.padding().next().is_none()
        && layout.linear(shape, dtype.bits()).is_ok_and(|linear| linear.columns()[..] == [1]);
    if !is_contiguous && layout.blocks() == 1 {
        return Err(misfit(index, format!("{layout} does not place the two int64 next to each other")));
    }
    Ok(found)
}

/// `clc.try_cancel(result, barrier, multicast)`.
pub(super) fn try_cancel<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = response_memory(c, a, 0)?;
    let barrier = mbarrier(c, a, 1)?;
    // The blocks of a cluster run a program together, so each of them gets the response.
    a.flag(c, 2)?;
    let mut operands = place(c, &found)?;
    operands.extend(place(c, &barrier)?);
    let always = tensor(c, &Operand::Constant(Constant::Bool(true)), 0)?;
    operands.push(cast(c, always, Dtype::I1)?);
    let tiles = found.form.tiles.clone();
    let function = DeviceFn::ClcTryCancel { tiles, barriers: barrier.form.tiles.clone(), multicast: false };
    device(c, function, operands)?;
    Ok(Operand::Constant(Constant::None))
}

/// `clc.load_result(src)`.
pub(super) fn load_result<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = response_memory(c, a, 0)?;
    let operands = place(c, &found)?;
    let function = DeviceFn::ClcLoadResult { tiles: found.form.tiles.clone(), blocks: 1 };
    let loaded = c.builder().emit(IrOp::Device { function }, operands, SmallVec::new())?;
    let parts: Vec<Op<C>> = loaded.into_iter().map(Operand::Tensor).collect();
    let Ok([is_canceled, program_ids @ ..]) = <[Op<C>; 4]>::try_from(parts) else {
        return Err(SemanticError::new(Code::TypeMismatch, "the load of a response has other results"));
    };
    Ok(Operand::Launch(Box::new(LaunchResponse { is_canceled, program_ids })))
}

/// Returns an argument that is a response.
fn response<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<LaunchResponse<Op<C>>> {
    match a.at(0)? {
        Operand::Launch(response) => Ok((**response).clone()),
        other => {
            let found = describe(c, &other.clone());
            Err(a.unexpected(0, LAUNCH_RESPONSE, &found).hint("load it by `clc.load_result`"))
        }
    }
}

/// `response.is_canceled()`.
pub(super) fn is_canceled<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    Ok(response(c, a)?.is_canceled)
}

/// `response.program_id(dim)`.
pub(super) fn program_id<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = response(c, a)?;
    let axis = a.int(c, 1)?;
    let id = usize::try_from(axis).ok().and_then(|axis| found.program_ids.get(axis).cloned());
    id.ok_or_else(|| a.unexpected(1, "0, 1 or 2", &axis.to_string()))
}
