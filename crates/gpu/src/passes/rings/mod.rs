//! Lowers rings, the circular queues of slots of the [dialect](tilewright_gpu_ir). A ring becomes a
//! buffer, slots, commit groups, `mbarrier`s and fences.
//!
//! Earlier passes know only rings. The writers and readers of a ring decide its implementation:
//!
//! | writers and readers | a slot becomes full | a slot becomes empty |
//! |---|---|---|
//! | all warps, `local_store` | after the stores and a block barrier | after a block barrier |
//! | all warps, `copy_async` | `commit_group` at `publish`, `wait_group` at `take`, block barrier | after a block barrier |
//! | all warps, `tensor_fill` | `mbarrier` per slot; the copying thread arrives | block barrier at the next `acquire`, or `mbarrier` per slot (see below) |
//! | one partition writes, others read | `mbarrier` per slot; the writers arrive (see below) | `mbarrier` per slot; each reading warp arrives |
//!
//! - If several warpgroups read tensor copies with `wgmma`, an `mbarrier` per slot replaces the
//!   block barrier of the third row. Each warp arrives at this `mbarrier`.
//! - In the fourth row, a tensor copy arrives once with its bytes. Each thread of `copy_async`
//!   arrives when its copies are complete. Each warp that stores arrives once.
//!
//! A later pass places the block barriers of the first two rows. [`counts`] computes for which
//! commit group each `take` waits, and for which dot each `wgmma_wait` waits. [`lower`] carries the
//! index of the next slot and the parity of its phase through loops and branches as int32 values.
//! If a ring is empty before and after an instruction with regions, producer and consumer share
//! these values in the regions ([`merge_ring_indices`]).
//!
//! Proxy fences: writers by ordinary accesses fence at `publish` if the asynchronous proxy
//! (`wgmma`, tensor stores) reads the slot. Readers fence the slots that `cp.async` wrote. There,
//! `take` waits until all copies are complete, and each reading thread fences after that wait.
//!
//! Rings that copies fill may always be acquired, taken and released together. Such rings
//! ([`ring_groups`]) share barriers, commit groups, fences and the index of the next slot.
//!
//! The pass never deallocates `mbarrier`s, because reuse of their memory would need an
//! invalidation. A ring that is allocated in a region has its memory for one run of that region.
//! The barriers of such a ring are initialized once, before the outermost instruction around its
//! `alloc`. Their phases continue from run to run. If threads store to shared memory too, the ring
//! may reuse memory that they wrote. So the threads fence before a copy fills the ring.

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
/// If no row of the table of this module covers the uses of a ring. The pass also fails if a region
/// allocates a ring with `mbarrier`s, but does not take all its slots and deallocate it.
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

/// Checks that a region that allocates a ring with `mbarrier`s takes all slots of the ring and
/// deallocates it.
///
/// Otherwise, a copy for which no thread waits could write to memory that another buffer reuses.
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
