//! Software pipelining: loops copy ahead into rings and overlap dots with threads.
//! [Rings](crate::passes::rings) are in shared memory.
//!
//! ```text
//! for %i … {                              %r = alloc : ring<3, …> ; copy for the first iterations
//!   %x = load %p(%i), %m(%i)              for %i … {
//!   %b = alloc                              %b = take %r
//!   local_store %b, %x             =>       wgmma … %b …
//!   wgmma … %b …                            %e = acquire %r ; copy %e, %p(%i + 2) ; publish %e
//!   dealloc %b                              release %b
//! }                                       } ; dealloc %r
//! ```
//! After conversions are lowered, dots read buffers, and a slot of a ring replaces such a buffer.
//! Four steps pipeline a loop:
//!
//! 1. [`plan`] and [`dots`] select the loads for rings, and the dots that run across iterations.
//! 2. [`lower_loads`] lowers these loads to rings: each iteration fills the slots that it takes.
//! 3. [`schedule_loops`](mod@schedule_loops) gives each op a stage and an order, which the IR text
//!    shows.
//! 4. [`expand`] emits the prologue, the loop and the epilogue.
//!
//! **The loads.** A loop is pipelined if it requests two stages or more (`tl.range(num_stages=…)`).
//! A loop without a request gets the stages of the launch. Loads that the loop's dots depend on
//! become copies. In a loop without dots that requests stages, all loads become copies. If the only
//! use of a load is a store to a buffer, a slot replaces the buffer. Other loads become reads of a
//! slot. A load with an `other` that is not zero becomes a read and a selection. A load with less
//! than 4 contiguous bytes remains a load, because `cp.async` cannot copy it.
//!
//! **Loop fusion** ([`fuse_loops`]). The last iterations have no later iteration to copy for. They
//! copy for the block's next loop, if it copies boxes of the same tensors to equal slots. With
//! `flatten=True` on the outer loop, they copy for the next outer iteration.
//!
//! **Obstacles.** A loop is not pipelined if it orders memory accesses: barriers, acquires and
//! releases, or assembly with effects. A load is not copied if the loop may write its memory.
//! Pointers of different arguments are assumed to point to different memory.
//!
//! **Shared memory.** If it is too small, all loops get fewer stages, down to two. If two stages do
//! not fit either, no loop is pipelined. A ring that tensor copies fill in a nested loop has its
//! memory for the whole kernel ([`hoist`]). Nested loops copy by `cp.async` if this memory costs
//! more than one stage, or if they have late dots ([`dots`]).
//!
//! **Vectors** that threads read, such as one number for each row, are tensor copies if they are
//! boxes. Copies by threads would need a block barrier in each iteration, which would synchronize
//! the warpgroups. Threads read a vector in its user's layout ([`vector_reads`]).

mod dots;
mod expand;
mod fuse_loops;
mod hoist;
mod iterations;
mod load_dependences;
mod loop_body;
mod loop_plan;
mod loop_rewriter;
mod lower_loads;
mod memory_order;
mod plan;
mod schedule_loops;
mod vector_reads;

use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;
use tilewright_base::{Code, Diagnostic, Remark, Span, remark};
use tilewright_ir as ir;
use tilewright_ir::{Block, OpFamily, Operation};

use super::allocation::least_bytes;
use super::boxed::Boxed;
use crate::cost_model;
use crate::remarks::RemarkReason;
pub(super) use iterations::constant_iterations;
pub(super) use load_dependences::LoadDependences;
use loop_plan::LoopPlan;
use loop_rewriter::{LoopRewriter, PreviousLoop};
pub(super) use memory_order::{MemoryOrder, memory_order};
use tilewright_gpu_ir::layout_rules::{LANES, element_bits};
use tilewright_gpu_ir::target::Feature;
use tilewright_gpu_ir::{Function, GpuOp, Header, Module, Op};

/// Pipelines the loops of a kernel.
pub fn pipeline_loops(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    expand_loops(module)?;
    let stages = std::mem::take(&mut module.header.stages);
    if !module.header.target.features.has(Feature::CpAsync) {
        say(None, || RemarkReason::note("loops are not pipelined", "the target has no cp.async"));
        return Ok(());
    }
    let plans = plans(module, stages, true);
    let Some(max_stages) = plans.iter().map(|plan| plan.stages).max() else { return Ok(()) };
    let entry_insts = &module.kernel().blocks[module.kernel().entry].insts;
    let is_nested = |plan: &LoopPlan| plan.has_boxes() && !entry_insts.contains(&plan.inst);
    let overlaps = plans.iter().any(|plan| is_nested(plan) && plan.late.is_some());
    if !plans.iter().any(is_nested) {
        pipeline_within(module, &plans, 2..=max_stages);
    } else if overlaps || !pipeline_within(module, &plans, max_stages.saturating_sub(1).max(2)..=max_stages) {
        let plans = self::plans(module, stages, false);
        pipeline_within(module, &plans, 2..=max_stages);
    }
    Ok(())
}

/// Assigns stages to the ops of loops, with the requested number of stages.
///
/// [`pipeline_loops`] assigns the same stages to loops that are not fused and whose rings fit.
#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
pub fn schedule_loops(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    let stages = std::mem::take(&mut module.header.stages);
    let plans = plan::plans(module, stages, true);
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    for plan in &plans {
        schedule_loop(header, function, plan, plan.stages);
    }
    hoist::hoist_rings(function, &plans, false);
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

/// Returns the loops to pipeline, each with the loop that it is fused with.
fn plans(module: &Module, stages: u32, nested_boxes: bool) -> Vec<LoopPlan> {
    let mut plans = plan::plans(module, stages, nested_boxes);
    fuse_loops::fuse_loops(module, &mut plans);
    plans
}

/// The loops whose copies a producer partition starts.
pub(super) struct ProducerPlan {
    pub plans: Vec<LoopPlan>,
    pub stages: u32,
    /// True if all producer threads copy. In this case, a load is not a tensor copy or depends on
    /// loads of the loop.
    pub by_threads: bool,
}

/// Plans the loops whose copies a producer partition starts.
pub(super) fn plan_producer(module: &Module) -> Result<ProducerPlan, &'static str> {
    let function = module.kernel();
    let mut plans = plan::plans(module, module.header.stages, true);
    if plans.is_empty() {
        return Err("no loop is pipelined");
    }
    let mut by_threads = false;
    for plan in &mut plans {
        plan.late = None;
        plan.in_flight = None;
        let is_gather = |boxed: &Boxed| boxed.gathered_row_indices(function).is_some();
        if plan.loads.iter().any(|load| load.boxed.as_ref().is_some_and(is_gather)) {
            return Err("a copy gathers rows whose indices are in the registers of all warps");
        }
        by_threads |= plan.groups.iter().any(|group| group.levels.len() > 1);
        plan.groups.iter_mut().for_each(|group| group.lead = 0);
        by_threads |= plan.loads.iter().any(|load| load.boxed.is_none());
    }
    let stages = plans.iter().map(|plan| plan.stages).max().unwrap_or(0);
    Ok(ProducerPlan { plans, stages, by_threads })
}

/// Lowers loads to rings of at most `slots` slots. Each slot is filled in the iteration that takes
/// it.
pub(super) fn lower_for_producer(module: &mut Module, plans: &[LoopPlan], slots: u32) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    for plan in plans {
        lower_loop_for_producer(header, function, plan, plan.stages.min(slots));
    }
    // Partitions synchronize at `mbarrier`s.
    hoist::hoist_rings(function, plans, true);
    super::prune::prune(function);
}

/// Returns whether an op acquires, fills or publishes a slot of a ring.
pub(super) fn is_fill(op: &Op) -> bool {
    matches!(
        op,
        Op::Gpu(GpuOp::Acquire {} | GpuOp::TensorFill {} | GpuOp::CopyAsync { .. } | GpuOp::Publish {})
    )
}

/// Pipelines with the most stages of the range whose rings fit into shared memory. If this leaves
/// FMA dots [few warps](tilewright_gpu_ir::Tuning::latency_hiding_warps), there are fewer stages, if
/// more blocks fit then. Returns false if no number of stages fits.
fn pipeline_within(module: &mut Module, plans: &[LoopPlan], stages: RangeInclusive<u32>) -> bool {
    let limit = u64::from(module.header.target.max_shared_bytes);
    let original = module.functions[module.entry].clone();
    let header = module.header.clone();
    let restore = |module: &mut Module| {
        let entry = module.entry;
        module.functions[entry] = original.clone();
        module.header.tensor_maps.clone_from(&header.tensor_maps);
        module.header.made_maps.clone_from(&header.made_maps);
    };
    let attempt = |module: &mut Module, stages: u32| {
        pipeline(module, plans, stages);
        least_bytes(&module.header.layouts, module.kernel())
    };
    let fits = |stages: u32| {
        let bytes = attempt(module, stages);
        if bytes > limit {
            restore(module);
        }
        (bytes <= limit).then_some((stages, bytes))
    };
    let Some((most, bytes)) = stages.clone().rev().find_map(fits) else {
        say(None, || {
            let reason =
                format!("not even {} stages fit into {limit} bytes of shared memory", stages.start());
            RemarkReason::missed("loops are not pipelined", reason)
        });
        return false;
    };
    let warps = |bytes: u64| fma_warps(&header, &original, bytes);
    let mut chosen = (most, bytes, format!("do not fit into {limit} bytes"));
    if let Some(few) = warps(bytes).filter(|few| *few < header.target.tuning.latency_hiding_warps) {
        let fewer = (*stages.start()..most).rev().find_map(|stages| {
            restore(module);
            let bytes = attempt(module, stages);
            let obstacle = format!("leave a multiprocessor {few} warps");
            (warps(bytes) > Some(few)).then_some((stages, bytes, obstacle))
        });
        if let Some(fewer) = fewer {
            chosen = fewer;
        } else if most > *stages.start() {
            restore(module);
            attempt(module, most);
        }
    }
    for plan in plans {
        let span = original.call_chain(plan.inst).into_iter().last();
        say(span, || plan.because(chosen.0, chosen.1, &chosen.2));
    }
    true
}

/// Returns how many warps fit into a multiprocessor if a block takes `bytes` of shared memory.
/// Returns `None` if a dot is not computed by FMAs, or the kernel has no dots.
fn fma_warps(header: &Header, function: &Function, bytes: u64) -> Option<u32> {
    let mut accumulators = Vec::new();
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if data.op.info().family == OpFamily::Dot {
            let is_fma = matches!(data.op, Op::Gpu(GpuOp::FmaDot { .. }));
            accumulators.push(function.ty(data.results[0]).as_registers().filter(|_| is_fma));
        }
    });
    let threads = header.num_warps * LANES;
    let words =
        |tile: Option<&ir::Type>| Some(tile?.shape.elements() as u32 * element_bits(tile?) / 32 / threads);
    let largest = accumulators.into_iter().map(words).collect::<Option<Vec<_>>>()?.into_iter().max()?;
    let by_registers = cost_model::blocks_by_registers(largest, threads, header.target.tuning);
    let by_memory = cost_model::blocks_by_shared_memory(bytes as u32, header.target);
    Some(by_registers.min(by_memory) * header.num_warps)
}

fn say(span: Option<Span>, because: impl FnOnce() -> RemarkReason) {
    remark(|| {
        let RemarkReason { kind, decision, reason } = because();
        Remark { pass: "pipelining", kind, span, subject: "loop".into(), decision, reason }
    });
}

fn pipeline(module: &mut Module, plans: &[LoopPlan], max_stages: u32) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    let mut last: FxHashMap<Block, PreviousLoop> = FxHashMap::default();
    for plan in plans {
        let previous = last.remove(&plan.block).filter(|_| plan.follows).unwrap_or_default();
        let left = pipeline_loop(header, function, plan, plan.stages.min(max_stages), previous);
        last.insert(plan.block, left);
    }
    vector_reads::sink_layout_into_local_load(header, function);
    hoist::hoist_rings(function, plans, false);
    super::prune::prune(function);
}

/// Pipelines a loop with rings of `slots` slots. Returns its rings and the rest of its last
/// iteration.
fn pipeline_loop(
    header: &mut Header,
    function: &mut Function,
    plan: &LoopPlan,
    slots: u32,
    previous: PreviousLoop,
) -> PreviousLoop {
    let PreviousLoop { rings, tail } = previous;
    let mut rewriter = LoopRewriter::new(header, function, plan, slots);
    rewriter.rings = rings;
    let fills = rewriter.lower_loads();
    rewriter.schedule(&fills);
    rewriter.begin_nest();
    let tail = rewriter.expand(tail);
    rewriter.end_nest();
    PreviousLoop { rings: rewriter.rings, tail }
}

/// Lets each iteration fill the slots that it takes. Loads that copies depend on run one stage
/// earlier.
fn lower_loop_for_producer(header: &mut Header, function: &mut Function, plan: &LoopPlan, slots: u32) {
    let mut rewriter = LoopRewriter::new(header, function, plan, slots);
    let fills = rewriter.lower_loads();
    rewriter.slots = 1;
    rewriter.schedule(&fills);
    rewriter.expand(None);
}

/// Assigns the stages of a loop without expanding it.
fn schedule_loop(header: &mut Header, function: &mut Function, plan: &LoopPlan, slots: u32) {
    let mut rewriter = LoopRewriter::new(header, function, plan, slots);
    let fills = rewriter.lower_loads();
    rewriter.schedule(&fills);
}

/// Expands a loop that has a schedule. The error is the expander's limit that the schedule exceeds.
fn expand_loop(header: &mut Header, function: &mut Function, plan: &LoopPlan) -> Result<(), &'static str> {
    let mut rewriter = LoopRewriter::new(header, function, plan, 0);
    rewriter.check_schedule()?;
    rewriter.expand(None);
    Ok(())
}
