//! Barrier insertion: a barrier of the block stands before each access to memory that conflicts with one of another warp that
//! may still be under way. Two accesses conflict if they may touch the same bytes and one of them is a store.
//!
//! An atomic operation that releases comes after all accesses to global memory before it, and one that acquires before all
//! behind it, by whichever threads they are.

use cranelift_entity::{EntitySet, SecondaryMap};
use rustc_hash::FxHashMap;
use smallvec::smallvec;
use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, MemoryAccess, MemorySemantics, Operation, Value};

use super::allocation::alloc_range;
use super::global_memory::GlobalAccesses;
use super::memory_effects::{Place, effects, landed, may_be_one, ordering, read_asynchronously, walk};
use tilewright_gpu_ir::analysis::slots::{Slot, SlotAnalysis};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::{Function, GpuOp, InstData, Module, Op};

/// The barrier that the pass puts where warps of a role wait for each other: those of a program have low numbers.
pub fn of_role(role: usize) -> u32 {
    15_u32.saturating_sub(role as u32).max(1)
}

/// The barrier at which all roles wait for each other.
pub const OF_ALL_ROLES: u32 = 13;

/// The op by which the threads of a role wait for each other, before an instruction of theirs.
fn barrier_of_role(analysis: &SlotAnalysis<'_>, inst: Inst) -> Option<Op> {
    let (roles, role) = analysis.partition(inst)?;
    let barrier = of_role(role);
    Some(GpuOp::NamedBarrier { barrier, threads: threads_of(analysis, roles, role) }.into())
}

/// The threads of a role.
fn threads_of(analysis: &SlotAnalysis<'_>, roles: Inst, role: usize) -> u32 {
    match &analysis.function.insts[roles].op {
        Op::Gpu(GpuOp::WarpSpecialize { warps, .. }) => warps[role] as u32 * LANES,
        // tidy: wildcard because only this op has roles
        _ => 0,
    }
}

/// Puts barriers where threads have to wait for each other. Shared memory has its places.
pub fn insert_barriers(module: &mut Module) {
    let before = needed(module);
    let is_role = |data: &InstData| matches!(data.op, Op::Gpu(GpuOp::WarpSpecialize { .. }));
    let mut of_roles: FxHashMap<Inst, Op> = FxHashMap::default();
    if module.kernel().insts.values().any(is_role) {
        let analysis = SlotAnalysis::new(module.kernel(), false);
        let wanted = module.kernel().insts.keys().filter(|inst| before.contains(*inst));
        of_roles.extend(wanted.filter_map(|inst| Some((inst, barrier_of_role(&analysis, inst)?))));
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
                let op = of_roles.get(&inst).cloned().unwrap_or_else(|| ir::Op::Barrier {}.into());
                insts.push(function.create_inst(op, smallvec![], smallvec![], [], location));
            }
            insts.push(inst);
        }
        function.blocks[block].insts = insts;
    }
}

/// The instructions that a barrier has to stand before.
fn needed(module: &Module) -> EntitySet<Inst> {
    let function = module.kernel();
    let ranges = ranges(function);
    let analysis = SlotAnalysis::new(function, false);
    let overlap = |a: Slot, b: Slot| {
        if a.root == b.root {
            return may_be_one(a, b);
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
        // All threads of the role come to one that is for as many, or for those of other roles too.
        if let Op::Gpu(GpuOp::NamedBarrier { threads, .. }) = op
            && analysis
                .partition(inst)
                .is_some_and(|(roles, role)| threads_of(&analysis, roles, role) <= *threads)
        {
            open.close();
        }
        let role = analysis.partition(inst);
        // What several roles use they hand to each other by other means.
        let is_own =
            |slot: Slot| role.is_none() || analysis.partition_of_block(analysis.block_of(slot.root)) == role;
        needed[inst] = open.needs_barrier(&effects, |a, b| match (a, b) {
            (Place::Global(one), Place::Global(other)) => global.meet(one, other, open.stale.contains(&b)),
            (Place::Shared(one), Place::Shared(other)) => is_own(one) && is_own(other) && overlap(one, other),
            (Place::Global(_), Place::Acquired) => true,
            (Place::Shared(_), Place::Acquired | Place::Global(_))
            | (Place::Global(_), Place::Shared(_))
            | (Place::Acquired, _) => false,
        });
        // What one thread releases, all have done; what one has acquired, the copies of all come after.
        needed[inst] |= ordering.is_some_and(MemorySemantics::releases) && open.has_global();
        needed[inst] |= op.info().phase.starts_fill() && open.writes.contains(&Place::Acquired);
        if needed[inst] {
            open.close();
        }
        // Who reads what a tensor copy wrote waits for its barrier.
        let is_tensor = op.info().memory == MemoryAccess::FillsShared;
        open.carry_out(if is_tensor { &effects[1..] } else { &effects });
        open.carry_out(&landed(&analysis, inst));
        open.hand_over(&analysis, inst);
        open.carry_out_asynchronously(op, &effects, &read);
        if ordering.is_some_and(MemorySemantics::acquires) {
            open.writes.insert(Place::Acquired);
        }
    });
    let mut set = EntitySet::new();
    set.extend(function.insts.keys().filter(|inst| needed[*inst]));
    set
}

/// From where to where each piece of shared memory lies, in bytes.
fn ranges(function: &Function) -> SecondaryMap<Value, Option<std::ops::Range<u64>>> {
    let mut ranges = SecondaryMap::new();
    function.walk(function.entry, &mut |inst| {
        if let Some((root, range)) = alloc_range(function, inst) {
            ranges[root] = Some(range);
        }
    });
    ranges
}
