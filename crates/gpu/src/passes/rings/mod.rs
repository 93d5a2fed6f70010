//! Rings become buffers, slots, groups of copies, `mbarrier`s and fences; nothing above depends on which.
//!
//! | who writes and reads a ring | a slot is full | a slot is empty |
//! |---|---|---|
//! | all warps, `local_store` | when it is stored, and a barrier stands between | when a barrier stands between |
//! | all warps, `copy_async` | `commit_group` at `publish`, `wait_group` at `take`, and a barrier | the same |
//! | all warps, `tensor_fill` | an `mbarrier` a slot, which one thread arrives at | a `barrier` at the next `acquire`; for products of several warpgroups an `mbarrier` a slot, an arrival of each warp |
//! | a role that writes, roles that read | an `mbarrier` a slot: one arrival with the bytes of a tensor copy, of each thread when its copies are done, of each warp that stored | an `mbarrier` a slot, an arrival of each warp that read |
//!
//! The barriers of the first two rows are left to the pass that places barriers. The group that `take` waits for is counted
//! from the text ([`counts`]), and so is the product that `wgmma_wait` waits for. Which slot is next, and the parity of its
//! phase, are int32 values that are carried through loops and branches ([`lower`]), one for both ends where the ring is empty
//! there ([`merge_ring_indices`]).
//!
//! What ordinary accesses wrote and the asynchronous proxy reads (`wgmma`, tensor stores) is fenced by those who wrote, at `publish`.
//! What `cp.async` wrote is fenced by those who read: who takes a slot has seen that all copies are done, behind the barrier or at the
//! `mbarrier`, and each of its threads fences them for what it reads.
//!
//! Rings that copies fill and whose slots are always acquired, taken and released together ([`ring_groups`]) have their barriers, groups and
//! fences in common: one wait for all, and one number of the next slot.
//!
//! `mbarrier`s are never deallocated: their memory could not be used for anything else without making them invalid. A ring that is
//! made in a region has its memory for one run of that; its barriers are made before the outermost instruction around it, and their
//! phases go on from one run to the next. Where threads store to shared memory too, they fence before the ring is filled: its memory
//! may be what they stored to.

mod counts;
mod lower;
mod merge_ring_indices;
mod plan;
mod ring_groups;

use std::collections::BTreeSet;

use tilewright_base::{Code, Diagnostic};

use crate::tile::legality::at;
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::{GpuOp, Module, Op};

/// Lowers the rings of a kernel.
///
/// # Errors
/// If a ring is used in a way that no row of the table is for.
pub fn lower_rings(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    let function = module.kernel();
    let analysis = SlotAnalysis::new(function, false);
    let plans = plan::plans(&analysis, (module.header.num_warps, module.header.cluster))?;
    let teams = ring_groups::Teams::find(&analysis, &plans);
    let counts = counts::count(&analysis, &plans, &teams);
    end_in_their_regions(&analysis, &plans, &counts)?;
    let parts = lower::Parts::new(&analysis, &plans, teams);
    let entry = module.entry;
    lower::lower(&mut module.functions[entry], plans, counts, parts);
    Ok(())
}

/// Checks that rings with barriers in regions end there, with all slots taken: a copy that no thread waited for could come when others
/// have the memory.
fn end_in_their_regions(
    analysis: &SlotAnalysis<'_>,
    plans: &plan::Plans,
    counts: &counts::Counts,
) -> Result<(), Box<Diagnostic>> {
    let function = analysis.function;
    let mut ended = BTreeSet::new();
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if matches!(data.op, Op::Gpu(GpuOp::Dealloc {})) && !counts.left.contains(&inst) {
            ended.insert(data.operands[0]);
        }
    });
    let mut inner = plans.iter().filter(|(_, plan)| plan.has_outer_barriers());
    let Some((root, _)) = inner.find(|(root, _)| !ended.contains(*root)) else { return Ok(()) };
    let inst = function.defining_inst(*root).expect("an alloc makes it");
    let message = format!(
        "the ring {} cannot be carried out: it needs an mbarrier, and its alloc stands in a region that does not end with all slots \
         taken and a dealloc",
        analysis.text(*root)
    );
    Err(Box::new(at(function, inst, Code::MalformedIr, message)))
}
