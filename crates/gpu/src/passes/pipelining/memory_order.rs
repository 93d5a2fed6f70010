//! Which ops of a loop write memory, or order accesses to it.

use tilewright_ir::{Effect, MemorySemantics, OpFamily, OpInfo, Operation};

use crate::passes::memory_effects::ordering;
use tilewright_gpu_ir::{GpuOp, Op};

/// What an instruction of a loop means for loads that are to be made earlier.
pub(in crate::passes) enum Order {
    None,
    /// It writes memory.
    Own,
    /// It orders accesses to memory.
    All,
}

pub(in crate::passes) fn orders(op: &Op) -> Order {
    if let Some(semantics) = ordering(op) {
        return if semantics == MemorySemantics::Relaxed { Order::Own } else { Order::All };
    }
    if matches!(op, Op::Gpu(GpuOp::Store { .. })) {
        return Order::Own;
    }
    let OpInfo { effect, family, .. } = op.info();
    if matches!(family, OpFamily::Call | OpFamily::Partitions) {
        return Order::All;
    }
    // Neither is about global memory.
    let is_of_product = matches!(op, Op::Gpu(GpuOp::FenceProxy {} | GpuOp::WgmmaWait { .. }));
    let is_local = is_of_product || matches!(family, OpFamily::Memory | OpFamily::Check | OpFamily::Dot);
    if *effect == Effect::Write && !is_local { Order::All } else { Order::None }
}
