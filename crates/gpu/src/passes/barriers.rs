//! Inserts barriers of the thread block. A barrier precedes an access that conflicts with an access
//! of another warp in flight. Accesses conflict if they may access the same bytes and one of them
//! is a store.
//!
//! Barriers also order atomic operations. A release follows all earlier global accesses of the
//! block's threads. An acquire precedes all their later ones.

use cranelift_entity::{EntitySet, SecondaryMap};
use rustc_hash::FxHashMap;
use smallvec::smallvec;
use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, MemoryAccess, MemorySemantics, Operation, Value};

use super::allocation::alloc_range;
use super::global_memory::GlobalAccesses;
use super::memory_effects::{
    MemoryLocation, effects, landed, may_share_base, ordering, read_asynchronously, walk,
};
use tilewright_gpu_ir::analysis::slots::{Slot, SlotAnalysis};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::{Function, GpuOp, InstData, MAX_PARTITIONS, Module, Op};

/// The id of the named barrier of all partitions.
pub const BARRIER_OF_ALL: u32 = 13;

/// Returns the id of the named barrier of a partition. Programs use low ids, so the ids count down
/// from 15 and skip [`BARRIER_OF_ALL`].
///
/// # Panics
/// If the index of the partition is not below [`MAX_PARTITIONS`].
pub fn partition_barrier(partition: usize) -> u32 {
    assert!(partition < MAX_PARTITIONS, "there is no named barrier for partition {partition}");
    let id = 15 - partition as u32;
    if id > BARRIER_OF_ALL { id } else { id - 1 }
}

/// Returns the barrier for the threads that execute an instruction.
fn barrier_before(analysis: &SlotAnalysis<'_>, inst: Inst) -> Option<Op> {
    let (specialization, partition) = analysis.partition(inst)?;
    let barrier = partition_barrier(partition);
    let threads = threads_of(analysis, specialization, partition);
    Some(GpuOp::NamedBarrier { barrier, threads }.into())
}

fn threads_of(analysis: &SlotAnalysis<'_>, specialization: Inst, partition: usize) -> u32 {
    match &analysis.function.insts[specialization].op {
        Op::Gpu(GpuOp::WarpSpecialize { warps, .. }) => warps[partition] as u32 * LANES,
        // tidy: wildcard because only this op has partitions
        _ => 0,
    }
}

/// Inserts the barriers that threads need. Shared memory must already be allocated.
pub fn insert_barriers(module: &mut Module) {
    let before = needed(module);
    let is_specialization = |data: &InstData| matches!(data.op, Op::Gpu(GpuOp::WarpSpecialize { .. }));
    let mut replaced: FxHashMap<Inst, Op> = FxHashMap::default();
    if module.kernel().insts.values().any(is_specialization) {
        let analysis = SlotAnalysis::new(module.kernel(), false);
        let wanted = module.kernel().insts.keys().filter(|inst| before.contains(*inst));
        replaced.extend(wanted.filter_map(|inst| Some((inst, barrier_before(&analysis, inst)?))));
    }
    module.header.synchronized = true;
    let function = &mut module.functions[module.entry];
    let blocks: Vec<Block> = function.blocks.keys().collect();
    for block in blocks {
        if !function.blocks[block].insts.iter().any(|inst| before.contains(*inst)) {
            continue;
        }
        let mut insts = Vec::new();
        for inst in std::mem::take(&mut function.blocks[block].insts) {
            if before.contains(inst) {
                let location = function.insts[inst].location;
                let op = replaced.get(&inst).cloned().unwrap_or_else(|| ir::Op::Barrier {}.into());
                insts.push(function.create_inst(op, smallvec![], smallvec![], [], location));
            }
            insts.push(inst);
        }
        function.blocks[block].insts = insts;
    }
}

fn needed(module: &Module) -> EntitySet<Inst> {
    let function = module.kernel();
    let ranges = ranges(function);
    let analysis = SlotAnalysis::new(function, false);
    let overlap = |a: Slot, b: Slot| {
        if a.root == b.root {
            return may_share_base(a, b);
        }
        let [a, b] = [a.root, b.root].map(|root| ranges[root].clone().expect("shared memory is allocated"));
        a.start < b.end && b.start < a.end
    };
    let global = GlobalAccesses::new(module);
    let read = read_asynchronously(&analysis);
    let mut needed: SecondaryMap<Inst, bool> = SecondaryMap::new();
    walk(&analysis, &mut |inst, open| {
        let effects = effects(&analysis, inst);
        let op = &function.insts[inst].op;
        let ordering = ordering(op);
        // A named barrier for at least the partition's number of threads includes all of them.
        if let Op::Gpu(GpuOp::NamedBarrier { threads, .. }) = op
            && analysis
                .partition(inst)
                .is_some_and(|(inst, partition)| threads_of(&analysis, inst, partition) <= *threads)
        {
            open.close();
        }
        let partition = analysis.partition(inst);
        // Mbarriers order accesses to the compiler's rings. A program that states its copies may
        // use memory in one partition only.
        let is_own = |slot: Slot| {
            let memory = analysis.alloc(slot.root).unwrap_or(slot.root);
            partition.is_none()
                || module.header.explicit
                || analysis.partition_of_block(analysis.block_of(memory)) == partition
        };
        needed[inst] = open.needs_barrier(&effects, |a, b| match (a, b) {
            (MemoryLocation::Global(one), MemoryLocation::Global(other)) => {
                global.meet(one, other, open.stale.contains(&b))
            }
            (MemoryLocation::Shared(one), MemoryLocation::Shared(other)) => {
                is_own(one) && is_own(other) && overlap(one, other)
            }
            (MemoryLocation::Global(_), MemoryLocation::Acquired) => true,
            (MemoryLocation::Shared(_), MemoryLocation::Acquired | MemoryLocation::Global(_))
            | (MemoryLocation::Global(_), MemoryLocation::Shared(_))
            | (MemoryLocation::Acquired, _) => false,
        });
        // One thread releases the accesses of all threads, so these must have completed. One thread
        // executes the acquire, and all threads' copies must follow it.
        needed[inst] |= ordering.is_some_and(MemorySemantics::releases) && open.has_global();
        needed[inst] |= op.info().phase.starts_fill() && open.writes.contains(&MemoryLocation::Acquired);
        if needed[inst] {
            open.close();
        }
        // Readers of the slot wait for the mbarrier of the tensor copy.
        let is_tensor = op.info().memory == MemoryAccess::FillsShared;
        open.carry_out(if is_tensor { &effects[1..] } else { &effects });
        open.carry_out(&landed(&analysis, inst));
        open.release_effects(&analysis, inst);
        open.carry_out_asynchronously(op, &effects, &read);
        if ordering.is_some_and(MemorySemantics::acquires) {
            open.writes.insert(MemoryLocation::Acquired);
        }
    });
    let mut set = EntitySet::new();
    set.extend(function.insts.keys().filter(|inst| needed[*inst]));
    set
}

fn ranges(function: &Function) -> SecondaryMap<Value, Option<std::ops::Range<u64>>> {
    let mut ranges = SecondaryMap::new();
    function.walk(function.entry, &mut |inst| {
        if let Some((root, range)) = alloc_range(function, inst) {
            ranges[root] = Some(range);
        }
        // A view may be any part of its memory.
        let data = &function.insts[inst];
        if let Op::Gpu(GpuOp::View {}) = data.op {
            let range = ranges[data.operands[0]].clone();
            ranges[data.results[0]] = range;
        }
    });
    ranges
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{BARRIER_OF_ALL, MAX_PARTITIONS, partition_barrier};

    #[test]
    fn each_partition_has_a_barrier_of_its_own() {
        let ids: BTreeSet<u32> = (0..MAX_PARTITIONS).map(partition_barrier).chain([BARRIER_OF_ALL]).collect();
        assert!(ids.into_iter().eq(1..=15));
    }
}
