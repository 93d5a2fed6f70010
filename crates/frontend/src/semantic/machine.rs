//! Defines the rules about the machine that runs a kernel.
#![expect(clippy::unnecessary_wraps, reason = "every rule has one signature")]

use tilewright_ir::{Builder, GridDependency, MachineQuantity};

use super::arguments::Arguments;
use super::{Caller, Op, Semantic};
use crate::tuple::Tuple;
use crate::value::{Constant, Operand};

/// `globaltimer()`, `smid()`.
pub(super) fn quantity<C: Caller + ?Sized>(
    c: &mut C,
    _: &Arguments<'_, C>,
    quantity: MachineQuantity,
) -> Semantic<Op<C>> {
    Ok(Operand::Tensor(c.builder().machine(quantity)?))
}

/// `num_warps()`, `num_threads()`: the number of warps times `each`.
pub(super) fn warps<C: Caller + ?Sized>(c: &mut C, _: &Arguments<'_, C>, each: u32) -> Semantic<Op<C>> {
    let warps = match c.num_warps() {
        0 => 4,
        given => given,
    };
    Ok(Operand::Constant(Constant::Int(i128::from(warps * each))))
}

/// `gdc_wait()`, `gdc_launch_dependents()`.
pub(super) fn dependency<C: Caller + ?Sized>(
    c: &mut C,
    _: &Arguments<'_, C>,
    action: GridDependency,
) -> Semantic<Op<C>> {
    c.builder().dependency(action)?;
    Ok(Operand::Constant(Constant::None))
}

/// `current_target()`.
pub(super) fn current_target<C: Caller + ?Sized>(c: &mut C, _: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (backend, arch, warp_size) = match c.options().capability {
        0 => ("cpu", Constant::Str(std::env::consts::ARCH.into()), 0),
        capability => ("cuda", Constant::Int(i128::from(capability)), 32),
    };
    let items = vec![Constant::Str(backend.into()), arch, Constant::Int(warp_size)];
    let fields = ["backend", "arch", "warp_size"].map(Into::into);
    Ok(Operand::Constant(Constant::Tuple(Tuple::new(items, Some(fields.into())))))
}

/// `is_cuda()`.
pub(super) fn is_cuda<C: Caller + ?Sized>(c: &mut C, _: &Arguments<'_, C>) -> Semantic<Op<C>> {
    Ok(Operand::Constant(Constant::Bool(c.options().capability > 0)))
}

/// `cuda_capability_geq(major, minor)`.
pub(super) fn capability_geq<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let wanted = a.int(c, 0)?.saturating_mul(10).saturating_add(a.int(c, 1)?);
    let capability = i128::from(c.options().capability);
    Ok(Operand::Constant(Constant::Bool(capability > 0 && capability >= wanted)))
}

/// Returns False, for a property that no target has.
pub(super) fn never<C: Caller + ?Sized>(_: &mut C, _: &Arguments<'_, C>) -> Semantic<Op<C>> {
    Ok(Operand::Constant(Constant::Bool(false)))
}
