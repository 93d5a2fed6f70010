//! Lowers rings, the circular queues of slots of the [dialect](tilewright_gpu_ir). A ring becomes a
//! buffer, slots, commit groups, `mbarrier`s and fences.
//!
//! Earlier passes know only rings. The writers and readers decide the implementation:
//!
//! | writers and readers | a slot becomes full | a slot becomes empty |
//! |---|---|---|
//! | all warps, `local_store` | after the stores and a block barrier | after a block barrier |
//! | all warps, `copy_async` | `commit_group` at `publish`, `wait_group` at `take`, block barrier | after a block barrier |
//! | all warps, `tensor_fill` | `mbarrier` per slot; the copying thread arrives | block barrier at the next `acquire`, or `mbarrier` per slot (see below) |
//! | one partition writes, others read | `mbarrier` per slot; the writers arrive (see below) | `mbarrier` per slot; each reading warp arrives |
//!
//! - If several warpgroups read tensor copies with `wgmma`, an `mbarrier` per slot replaces the
//!   third row's block barrier. Each warp arrives at it.
//! - In the fourth row, a tensor copy arrives once with its bytes, and each storing warp once. A
//!   `copy_async` thread arrives when its copies are complete.
//!
//! A later pass places the block barriers of the first two rows. [`counts`] computes the commit
//! group of each `take`, and the dot of each `wgmma_wait`. [`lower`] carries the next slot's index
//! and phase parity through loops and branches as int32 values. If a ring is empty before and after
//! an instruction with regions, both sides share these values ([`merge_ring_indices`]).
//!
//! **Proxy fences.** If the asynchronous proxy (`wgmma`, tensor stores) reads a slot, ordinary
//! writers fence at `publish`. Readers fence `cp.async` slots after `take` has waited for all
//! copies.
//!
//! Rings that are always acquired, taken and released together ([`ring_groups`]) share barriers,
//! commit groups, fences and the next index.
//!
//! The pass never deallocates `mbarrier`s, because reuse of their memory needs an invalidation. A
//! ring that is allocated in a region has its memory for one run of the region. Its barriers are
//! initialized once, before the outermost instruction around its `alloc`, and their phases
//! continue. Threads may have stored to its memory, so they fence before a copy fills the ring.

mod counts;
mod facts;
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
/// If no row of this module's table covers the uses of a ring. The pass also fails if a region does
/// not take all slots of its `mbarrier` ring and deallocate it.
pub fn lower_rings(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    let function = module.kernel();
    let analysis = SlotAnalysis::new(function, false);
    let plans = plan::plan_rings(&analysis, (module.header.num_warps, module.header.cluster))?;
    let groups = ring_groups::RingGroups::find(&analysis, &plans);
    let counts = counts::count_in_flight(&analysis, &plans, &groups);
    check_ends_in_regions(&analysis, &plans, &counts)?;
    let facts = facts::RingFacts::new(&analysis, &plans, groups);
    let entry = module.entry;
    lower::rewrite(&mut module.functions[entry], plans, counts, facts);
    Ok(())
}

/// Checks that a region takes all slots of its `mbarrier` rings and deallocates them.
///
/// Otherwise, a copy without a wait could write memory that another buffer reuses.
fn check_ends_in_regions(
    analysis: &SlotAnalysis<'_>,
    plans: &plan::RingPlans,
    counts: &counts::InFlightCounts,
) -> Result<(), Box<Diagnostic>> {
    let function = analysis.function;
    let mut ended = BTreeSet::new();
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if matches!(data.op, Op::Gpu(GpuOp::Dealloc {})) && !counts.deallocs_of_full_slots.contains(&inst) {
            ended.insert(data.operands[0]);
        }
    });
    let mut inner = plans.iter().filter(|(_, plan)| plan.has_outer_barriers());
    let Some((root, _)) = inner.find(|(root, _)| !ended.contains(*root)) else { return Ok(()) };
    let inst = function.defining_inst(*root).expect("an alloc defines the ring");
    let message = format!(
        "cannot lower the ring {}: it needs an mbarrier, but the region of its alloc does not take all slots and \
         deallocate it",
        analysis.text(*root)
    );
    Err(Box::new(at(function, inst, Code::MalformedIr, message)))
}
