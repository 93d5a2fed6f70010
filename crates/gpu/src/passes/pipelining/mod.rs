//! Software pipelining: a loop copies what later iterations load into rings in shared memory, and starts dots of one iteration
//! beside what threads compute in another one.
//!
//! ```text
//! for %i … {                              %r = alloc : ring<3, …> ; copy for the first iterations
//!   %x = load %p(%i), %m(%i)              for %i … {
//!   %b = alloc                              %b = take %r
//!   local_store %b, %x             =>       wgmma … %b …
//!   wgmma … %b …                            %e = acquire %r ; copy %e <- %p(%i + 2), %m(%i + 2) ; publish %e
//!   dealloc %b                              release %b
//! }                                       } ; dealloc %r
//! ```
//! It runs after the pass that lowers conversions, so that the buffers are there which dots read, in the layouts that they
//! want: a slot of the ring replaces such a buffer. Four steps make a loop:
//!
//! 1. [`plan`] and [`dots`] assign latencies: which loads go through rings, and which dots run across iterations.
//! 2. [`lower_loads`] lowers the loads to rings, inside of one iteration.
//! 3. [`schedule_loops`](mod@schedule_loops) gives each op its stage and its order, which are part of the text.
//! 4. [`expand`] makes the loop that runs the stages for different iterations: prologue, steady state, epilogue.
//!
//! **Which loads.** Those that dots of the loop are computed from, if the launch asks for two stages or more; of a loop
//! that asks for stages itself (`tl.range(num_stages=…)`) and has no dot, all. A load that is stored to a buffer and
//! used for nothing else goes straight to the ring. Any other is loaded from the ring to registers where the load was:
//! operands that are converted first, loads with another `other` than zero (a selection follows), values that are used twice.
//! A load that `cp.async` cannot copy, since less than 4 bytes are contiguous, stays a load.
//!
//! **Loop fusion** ([`fuse_loops`]): in place of iterations out of range, a loop copies for the next loop of its block, if that one
//! copies boxes of the same tensors to the same slots, or for the next iteration of the loop around it, if that one requests it
//! (`tl.range(…, flatten=True)`).
//!
//! **What forbids it.** Stores and atomic operations in the loop that may touch what is loaded (pointers of different
//! arguments point to different memory, as everywhere), and what orders accesses to memory: barriers, atomic
//! operations that acquire or release, assembly with effects.
//!
//! **Where shared memory is too small.** All loops get one stage less until it fits, down to none ahead. Triton refuses
//! such a launch; here a configuration that asks for too much is slower than another one. A ring that tensor copies fill
//! in a loop inside of another takes its memory for the whole time ([`hoist`]): where that costs more than one stage, and
//! where dots of two iterations overlap, such loops copy by `cp.async`.
//!
//! **A vector** that threads read, such as one number for each row of a tile, is copied as a box where it is one: a
//! copy by threads would take a barrier of the block in each iteration, which keeps warpgroups in step. It is read in the
//! layout that its user wants ([`reads`]).

mod dots;
mod emit;
mod expand;
mod fuse_loops;
mod hoist;
mod iterations;
mod load_dependences;
mod loop_body;
mod loop_plan;
mod lower_loads;
mod memory_order;
mod plan;
mod reads;
mod schedule_loops;

use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;
use tilewright_base::{Code, Diagnostic, Remark, Span, remark};
use tilewright_ir::Block;

use super::allocation::least_bytes;
use super::boxed::Boxed;
use crate::remarks::Because;
use emit::{Emit, Kept};
pub(super) use iterations::constant_iterations;
pub(super) use load_dependences::LoadDependences;
use loop_plan::LoopPlan;
pub(super) use memory_order::{Order, orders};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::Feature;
use tilewright_gpu_ir::{Function, GpuOp, Header, Module, Op};

/// Pipelines the loops of a kernel.
pub fn pipeline_loops(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    expand_loops(module)?;
    let stages = std::mem::take(&mut module.header.stages);
    if !module.header.target.features.has(Feature::CpAsync) {
        say(None, || Because::note("loops are not pipelined", "the target has no cp.async"));
        return Ok(());
    }
    let plans = plans(module, stages, true);
    let Some(most) = plans.iter().map(|plan| plan.stages).max() else { return Ok(()) };
    let entry_insts = &module.kernel().blocks[module.kernel().entry].insts;
    let is_nested = |plan: &LoopPlan| plan.has_boxes() && !entry_insts.contains(&plan.inst);
    let overlaps = plans.iter().any(|plan| is_nested(plan) && plan.late.is_some());
    if !plans.iter().any(is_nested) {
        pipeline_within(module, &plans, 2..=most);
    } else if overlaps || !pipeline_within(module, &plans, most.saturating_sub(1).max(2)..=most) {
        let plans = self::plans(module, stages, false);
        pipeline_within(module, &plans, 2..=most);
    }
    Ok(())
}

/// Gives the ops of loops their stages, in as many stages as the kernel asks for: what [`pipeline_loops`] does to a loop that
/// no other one is fused with, up to [`expand_loops`].
#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
pub fn schedule_loops(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    let stages = std::mem::take(&mut module.header.stages);
    let plans = plan::plans(module, stages, true);
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    for plan in &plans {
        schedule_loop(header, function, plan, plan.stages);
    }
    hoist::hoist(function, &plans, false);
    Ok(())
}

/// Expands the loops that have a schedule.
pub fn expand_loops(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    let function = module.kernel();
    if function.schedule.is_empty() {
        return Ok(());
    }
    let mut loops = Vec::new();
    plan::find_loops(function, function.entry, &mut loops);
    let plans: Vec<LoopPlan> =
        loops.into_iter().map(|(inst, block)| plan::plan_of_text(module, inst, block)).collect();
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    for plan in &plans {
        if let Err(reason) = expand_loop(header, function, plan) {
            let span = function.call_chain(plan.inst).into_iter().last();
            let diagnostic =
                Diagnostic::new(Code::MalformedIr, format!("a schedule cannot be expanded: {reason}"));
            return Err(Box::new(match span {
                Some(span) => diagnostic.primary(span, ""),
                None => diagnostic,
            }));
        }
    }
    super::prune::prune(function);
    Ok(())
}

/// The loops to pipeline, each with the loop that it is fused with.
fn plans(module: &Module, stages: u32, nested_boxes: bool) -> Vec<LoopPlan> {
    let mut plans = plan::plans(module, stages, nested_boxes);
    fuse_loops::fuse_loops(module, &mut plans);
    plans
}

/// The loops whose copies a producer partition makes.
pub(super) struct ProducerPlan {
    pub plans: Vec<LoopPlan>,
    pub stages: u32,
    /// Whether all threads of the producer copy: a load is no tensor copy, or depends on loads of the
    /// loop.
    pub by_threads: bool,
    /// The copies of gathered elements that a thread starts in an iteration: their addresses are
    /// computed from loads.
    pub gathered: u32,
}

/// Plans the loops whose copies a producer partition makes.
pub(super) fn plan_producer(module: &Module) -> Result<ProducerPlan, &'static str> {
    let function = module.kernel();
    let mut plans = plan::plans(module, module.header.stages, true);
    if plans.is_empty() {
        return Err("no loop is pipelined");
    }
    let threads = module.header.num_warps * LANES;
    let dependences = LoadDependences::new(function);
    let (mut by_threads, mut gathered) = (false, 0);
    for plan in &mut plans {
        plan.late = None;
        plan.in_flight = None;
        let is_gather = |boxed: &Boxed| boxed.gathered_row_indices(function).is_some();
        if plan.loads.iter().any(|load| load.boxed.as_ref().is_some_and(is_gather)) {
            return Err("a copy gathers rows whose indices are in the registers of all warps");
        }
        by_threads |= plan.groups.iter().any(|group| group.levels.len() > 1);
        plan.groups.iter_mut().for_each(|group| group.lead = 0);
        let of_threads = plan.loads.iter().filter(|load| load.boxed.is_none());
        let (mut copies, mut is_gathered) = (0, false);
        for load in of_threads {
            by_threads = true;
            copies += load.copies(threads);
            let pointer = function.insts[load.inst].operands[0];
            is_gathered |= !dependences.of_values(&[pointer]).is_empty();
        }
        gathered = gathered.max(if is_gathered { copies } else { 0 });
    }
    let stages = plans.iter().map(|plan| plan.stages).max().unwrap_or(0);
    Ok(ProducerPlan { plans, stages, by_threads, gathered })
}

/// Lowers the loads of loops to rings of `slots` slots, each filled in the iteration that takes it.
pub(super) fn lower_for_producer(module: &mut Module, plans: &[LoopPlan], slots: u32) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    for plan in plans {
        lower_loop_for_producer(header, function, plan, plan.stages.min(slots));
    }
    // Partitions synchronize at `mbarrier`s, which are initialized once.
    hoist::hoist(function, plans, true);
    super::prune::prune(function);
}

/// Returns whether an op fills a slot of a ring, or waits for an empty one.
pub(super) fn is_fill(op: &Op) -> bool {
    matches!(
        op,
        Op::Gpu(GpuOp::Acquire {} | GpuOp::TensorFill {} | GpuOp::CopyAsync { .. } | GpuOp::Publish {})
    )
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
    let mut last: FxHashMap<Block, Kept> = FxHashMap::default();
    for plan in plans {
        let kept = last.remove(&plan.block).filter(|_| plan.follows).unwrap_or_default();
        let kept = pipeline_loop(header, function, plan, plan.stages.min(most), kept);
        last.insert(plan.block, kept);
    }
    reads::read_as_wanted(header, function);
    hoist::hoist(function, plans, false);
    super::prune::prune(function);
}

/// Pipelines a loop whose rings have `slots` slots: what the next loop may have of it.
fn pipeline_loop(
    header: &mut Header,
    function: &mut Function,
    plan: &LoopPlan,
    slots: u32,
    kept: Kept,
) -> Kept {
    let Kept { rings, tail } = kept;
    let mut emit = Emit::new(header, function, plan, slots);
    emit.rings = rings;
    let fills = emit.lower_loads();
    emit.schedule(&fills);
    emit.begin_nest();
    let tail = emit.expand(tail);
    emit.end_nest();
    Kept { rings: emit.rings, tail }
}

/// Lets each iteration fill the slots that it takes; loads that copies depend on run one stage
/// before.
fn lower_loop_for_producer(header: &mut Header, function: &mut Function, plan: &LoopPlan, slots: u32) {
    let mut emit = Emit::new(header, function, plan, slots);
    let fills = emit.lower_loads();
    emit.slots = 1;
    emit.schedule(&fills);
    emit.expand(None);
}

/// Gives the ops of a loop their stages, and leaves it at that.
fn schedule_loop(header: &mut Header, function: &mut Function, plan: &LoopPlan, slots: u32) {
    let mut emit = Emit::new(header, function, plan, slots);
    let fills = emit.lower_loads();
    emit.schedule(&fills);
}

/// Expands a loop that has a schedule; the error says what the expander cannot do.
fn expand_loop(header: &mut Header, function: &mut Function, plan: &LoopPlan) -> Result<(), &'static str> {
    let mut emit = Emit::new(header, function, plan, 0);
    emit.check_schedule()?;
    emit.expand(None);
    Ok(())
}
