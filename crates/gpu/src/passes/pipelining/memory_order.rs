//! Classifies the ops of a loop by their effect on global memory.

use tilewright_ir::{Effect, MemorySemantics, OpFamily, OpInfo, Operation};

use crate::passes::memory_effects::ordering;
use tilewright_gpu_ir::{GpuOp, Op};

/// The constraint of an op on loads that move ahead of it.
pub(in crate::passes) enum MemoryOrder {
    /// No constraint.
    None,
    /// The op writes memory: loads of the same memory may not pass it.
    Write,
    /// The op orders accesses to memory: no load may pass it.
    Ordered,
}

pub(in crate::passes) fn memory_order(op: &Op) -> MemoryOrder {
    if let Some(semantics) = ordering(op) {
        return if semantics == MemorySemantics::Relaxed { MemoryOrder::Write } else { MemoryOrder::Ordered };
    }
    if matches!(op, Op::Gpu(GpuOp::Store { .. })) {
        return MemoryOrder::Write;
    }
    let OpInfo { effect, family, .. } = op.info();
    if matches!(family, OpFamily::Call | OpFamily::Partitions) {
        return MemoryOrder::Ordered;
    }
    // Fences for dots and waits for dots access no global memory.
    let is_of_dot = matches!(op, Op::Gpu(GpuOp::FenceProxy {} | GpuOp::WgmmaWait { .. }));
    let is_local = is_of_dot || matches!(family, OpFamily::Memory | OpFamily::Check | OpFamily::Dot);
    if *effect == Effect::Write && !is_local { MemoryOrder::Ordered } else { MemoryOrder::None }
}
