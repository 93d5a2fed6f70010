//! Emits the GPU functions of Gluon, and reads their compile-time numbers.

use smallvec::SmallVec;
use tilewright_ir::{Builder, DeviceFn, Op as IrOp};

use super::arguments::Arguments;
use super::{Caller, Semantic, ValueOf};

pub(super) fn device<C: Caller + ?Sized>(
    c: &mut C,
    function: DeviceFn,
    operands: SmallVec<[ValueOf<C>; 4]>,
) -> Semantic<Option<ValueOf<C>>> {
    Ok(c.builder().emit(IrOp::Device { function }, operands, SmallVec::new())?.into_iter().next())
}

/// Returns an argument that is a compile-time number of at least 0.
pub(super) fn count<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, index: usize) -> Semantic<u32> {
    let value = a.int(c, index)?;
    u32::try_from(value).map_err(|_| a.unexpected(index, "a number of at least 0", &value.to_string()))
}
