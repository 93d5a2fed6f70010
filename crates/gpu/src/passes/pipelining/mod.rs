//! Software pipelining: a loop copies what later iterations load ahead of time, into rings in shared memory.
//!
//! ```text
//! for %i … {                              %r = alloc : ring<3, …>
//!   %x = load %p(%i), %m(%i)              acquire, copy %p(0), publish ; acquire, copy %p(1), publish
//!   %b = alloc                            for %i … {
//!   local_store %b, %x             =>       %b = take %r
//!   product %b                              %e = acquire %r ; copy %e <- %p(%i + 2), %m(%i + 2) ; publish %e
//!   dealloc %b                              product %b
//! }                                         release %b
//!                                         } ; dealloc %r
//! ```
//! It stands behind the pass that lowers conversions, so that the buffers are there which products read, in the layouts
//! that they want: a slot of the ring takes the place of such a buffer.
//!
//! **Which loads.** Those that products of the loop are computed from, if the launch asks for two stages or more; of a loop
//! that asks for stages itself (`tl.range(num_stages=…)`) and has no product, all. A load that is stored to a buffer and
//! used for nothing else goes straight to the ring. Any other is loaded from the ring to registers where it stood: operands that
//! are converted first, loads with another `other` than zero (a selection follows), values that are used twice. What
//! `cp.async` cannot copy, since less than 4 bytes lie together, stays a load.
//!
//! **How far ahead.** With so many stages, a slot for each: the copies of an iteration begin so many iterations before,
//! less one. What pointers and masks are computed from is computed for that iteration as well: its instructions are copied, and
//! what a loop carries from one iteration to the next runs ahead as a carried value of its own. Loads among them, such as
//! the tables of paged memory, are made one iteration earlier still, into registers, and what these are computed from
//! likewise ([`plan::Level`]). The original, where nobody needs it any more, is removed.
//!
//! An iteration takes its slots first and fills later ones next, behind the one barrier that both need; with an asynchronous
//! product (`wgmma`), while that is under way.
//!
//! **Two products in a row**, the second of what is computed from the first, as in attention: the second is begun an
//! iteration late and runs beside that computation ([`overlap`]). What the first one reads is copied an iteration earlier.
//!
//! **One product** that sums up what slots hold runs into the next iteration ([`chain`]): the tensor cores have the next one when it
//! ends. A slot is given back an iteration later, and all slots are filled before the loop.
//!
//! **Loops in a row** that copy boxes of the same tensors to the same slots have their rings in common ([`link`]): a loop copies for the
//! next one what it would copy for iterations that do not come.
//!
//! **A loop in a loop that asks to be flattened** (`tl.range(…, flatten=True)`) copies for the next iteration of the loop around in place
//! of iterations that do not come ([`flatten`]).
//!
//! **The ends.** What would be copied for an iteration that does not come is masked off, by a condition that no overflow can
//! change; a masked copy fills its slot with zeros. So there is no second copy of the loop for its tail. Where the number of iterations is
//! known and all are copied before the loop, threads copy nothing in it.
//!
//! **What forbids it.** Stores and atomic operations in the loop that may touch what is loaded (pointers of different
//! arguments point to different memory, as everywhere), and what orders accesses to memory: barriers, atomic
//! operations that acquire or release, assembly with effects.
//!
//! **Where shared memory is too small.** All loops get one stage less until it fits, down to none ahead. Triton refuses
//! such a launch; here a configuration that asks for too much is slower than another one. A ring that tensor copies fill
//! in a loop inside of another takes its memory for the whole time ([`hoist`]): where that costs more than one stage, and
//! where products of two iterations overlap, such loops copy by `cp.async`.
//!
//! **A line of numbers** that threads read, such as the sums of attention's backward pass, is copied as a box where it is one: a
//! copy by threads would take a barrier of the block in each iteration, which keeps warpgroups in step. It is read in the layout that
//! is wanted ([`reads`]).
//!
//! How a slot is filled is decided in one place, `Emit::fill` ([`emit`]): by `copy_async`, or by a tensor
//! copy, which takes any width, where the load is known to be a box of a tensor.

mod chain;
mod emit;
mod flatten;
mod hoist;
mod iterations;
mod link;
mod overlap;
mod plan;
mod reads;

use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;
use rustc_hash::FxHashSet;
use tilewright_base::{Diagnostic, Remark, Span, remark};
use tilewright_ir::{Block, Definition, OpFamily, Operation, Value};

use super::allocation::least_bytes;
use super::tensor_copies::Boxed;
use crate::language::{Function, Module};
use crate::layout_rules::LANES;
use crate::remarks::Because;
use crate::target::Feature;
use plan::LoopPlan;
pub(super) use plan::{Order, orders};

/// Pipelines the loops of a kernel.
#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
pub fn pipeline_loops(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    let stages = std::mem::take(&mut module.header.stages);
    if !module.header.target.features.has(Feature::CpAsync) {
        say(None, || Because::note("loops are not pipelined", "the target has no cp.async"));
        return Ok(());
    }
    let plans = plans(module, stages, true);
    let Some(most) = plans.iter().map(|plan| plan.stages).max() else { return Ok(()) };
    let entry_insts = &module.kernel().blocks[module.kernel().entry].insts;
    let is_nested = |plan: &LoopPlan| plan.has_boxes() && !entry_insts.contains(&plan.inst);
    let overlaps = plans.iter().any(|plan| is_nested(plan) && plan.overlap.is_some());
    if !plans.iter().any(is_nested) {
        pipeline_within(module, &plans, 2..=most);
    } else if overlaps || !pipeline_within(module, &plans, most.saturating_sub(1).max(2)..=most) {
        let plans = self::plans(module, stages, false);
        pipeline_within(module, &plans, 2..=most);
    }
    Ok(())
}

/// The loops to pipeline, each with the loop around that it is flattened with.
fn plans(module: &Module, stages: u32, nested_boxes: bool) -> Vec<LoopPlan> {
    let mut plans = plan::plans(module, stages, nested_boxes);
    flatten::flatten(module, &mut plans);
    plans
}

/// The loops to pipeline where each fills slots in the iterations that take them, for warps that do nothing else.
pub(super) struct InStep {
    pub plans: Vec<LoopPlan>,
    pub stages: u32,
    /// All threads of those warps copy: a load is no tensor copy, or where it is from is loaded in the loop.
    pub by_threads: bool,
    /// So many times does a thread start a copy in an iteration, of what is gathered: by addresses that are computed of loads.
    pub gathered: u32,
}

/// Plans them.
pub(super) fn plans_in_step(module: &Module) -> Result<InStep, &'static str> {
    let mut plans = plan::plans(module, module.header.stages, true);
    if plans.is_empty() {
        return Err("no loop is pipelined");
    }
    let threads = module.header.num_warps * LANES;
    let (mut by_threads, mut gathered) = (false, 0);
    for plan in &mut plans {
        plan.overlap = None;
        plan.chain = None;
        (plan.next, plan.follows) = (None, false);
        let is_rows = |boxed: &Boxed| boxed.row_numbers(module.kernel()).is_some();
        if plan.loads.iter().any(|load| load.boxed.as_ref().is_some_and(is_rows)) {
            return Err("a copy is of rows by number, which all warps have");
        }
        by_threads |= plan.groups.iter().any(|group| group.levels.len() > 1);
        plan.groups.iter_mut().for_each(|group| group.lead = 0);
        let of_threads = plan.loads.iter().filter(|load| load.boxed.is_none());
        let (mut copies, mut is_gathered) = (0, false);
        for load in of_threads {
            by_threads = true;
            copies += load.copies(threads);
            let function = module.kernel();
            is_gathered |=
                is_of_loads(function, function.insts[load.inst].operands[0], &mut FxHashSet::default());
        }
        gathered = gathered.max(if is_gathered { copies } else { 0 });
    }
    let stages = plans.iter().map(|plan| plan.stages).max().unwrap_or(0);
    Ok(InStep { plans, stages, by_threads, gathered })
}

/// Whether a value is computed of what the kernel loads.
fn is_of_loads(function: &Function, value: Value, seen: &mut FxHashSet<Value>) -> bool {
    if !seen.insert(value) {
        return false;
    }
    let mut of = |values: &[Value]| values.iter().any(|value| is_of_loads(function, *value, seen));
    match function.values[value].definition {
        Definition::Result(inst, _) => {
            let data = &function.insts[inst];
            data.op.info().family == OpFamily::Load || of(&data.operands)
        }
        Definition::Parameter(block, _) => {
            let owner = function.insts.iter().find(|(_, data)| data.regions.contains(&block));
            let carried = owner.and_then(|(inst, _)| function.carried_by(inst, value));
            carried.is_some_and(|carried| {
                carried.initial.is_some_and(|initial| of(&[initial])) || of(&carried.yielded)
            })
        }
    }
}

/// Makes rings with so many slots of the loads of loops, and fills a slot in the iteration that takes it.
pub(super) fn fill_in_step(module: &mut Module, plans: &[LoopPlan], slots: u32) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    for plan in plans {
        emit::pipeline(header, function, plan, (plan.stages.min(slots), 0), None);
    }
    // Roles meet at `mbarrier`s, which are set up once.
    hoist::hoist(function, plans, true);
    super::prune::prune(function);
}

/// Pipelines with the most stages for which there is shared memory; whether there is.
fn pipeline_within(module: &mut Module, plans: &[LoopPlan], stages: RangeInclusive<u32>) -> bool {
    let limit = u64::from(module.header.target.max_shared_bytes);
    let original = module.functions[module.entry].clone();
    let header = module.header.clone();
    let least = *stages.start();
    for stages in stages.rev() {
        pipeline(module, plans, stages);
        let bytes = least_bytes(&module.header.layouts, module.kernel());
        if bytes <= limit {
            for plan in plans {
                let span = original.call_chain(plan.inst).into_iter().last();
                say(span, || plan.because(stages, bytes, limit));
            }
            return true;
        }
        let entry = module.entry;
        module.functions[entry] = original.clone();
        module.header.tensor_maps.clone_from(&header.tensor_maps);
        module.header.made_maps.clone_from(&header.made_maps);
    }
    say(None, || {
        let reason = format!("not even {least} stages fit into {limit} bytes of shared memory");
        Because::missed("loops are not pipelined", reason)
    });
    false
}

fn say(span: Option<Span>, because: impl FnOnce() -> Because) {
    remark(|| {
        let Because { kind, decision, reason } = because();
        Remark { pass: "pipelining", kind, span, subject: "loop".into(), decision, reason }
    });
}

fn pipeline(module: &mut Module, plans: &[LoopPlan], most: u32) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    let mut last: FxHashMap<Block, emit::Kept> = FxHashMap::default();
    for plan in plans {
        let stages = plan.stages.min(most);
        let ahead = if plan.chain.is_some() { stages } else { stages - 1 };
        let kept = last.remove(&plan.block).filter(|_| plan.follows);
        let kept = emit::pipeline(header, function, plan, (stages, ahead), kept);
        last.insert(plan.block, kept);
    }
    reads::read_as_wanted(header, function);
    hoist::hoist(function, plans, false);
    super::prune::prune(function);
}
