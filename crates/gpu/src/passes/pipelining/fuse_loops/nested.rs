//! Fuses an inner loop with its run in the next outer iteration (`flatten=True`). A *tile* is an
//! iteration of the outer loop. A persistent kernel then copies the first boxes of the next tile
//! during the last dots of this tile.
//!
//! ```text
//!                                              %r = alloc ; fill %r from 0, 1, 2 of %lo
//! for %tile = %lo to %hi {                     for %tile = %lo to %hi {
//!   %r = alloc ; fill %r from 0, 1, 2            for %k = 0 to %n {
//!   for %k = 0 to %n { … fill … }         =>       … fill from %k + 3 or of the next %tile
//!   … ; dealloc %r                               } …
//! }                                            } ; take, release all ; dealloc %r
//! ```
//! To *fill* a slot is to start its copy. To *take* a slot is to wait for the copy. The outer body
//! recomputes its scalars with the counter of the next tile. After the last tile, the boxes are
//! outside of their tensors, so the copies fill slots with zeros.
//!
//! **Invariant**: copies are [`LoopRewriter::distance`] iterations ahead. A tile takes at least
//! this number of slots of each ring, even with fewer iterations. Example: at distance 3, a tile of
//! one iteration takes three slots. So at the end of a tile, the filled slots are for the next
//! tile. Ops that may run on zeros ([`LoopRewriter::drains`]) also run for the slots beyond the
//! iterations. Otherwise, another loop takes these slots ([`LoopRewriter::take_rest`]).
//!
//! **Obstacles**, in addition to those of [pipelining](crate::passes::pipelining):
//! - In the outer loop: an op that orders memory accesses, may write the copies' memory, or makes
//!   their map.
//! - In the inner loop: late dots ([`LateDots`]), or a step that is too large or not a positive
//!   constant.
//! - In the inner loop: a copy by `cp.async` or of gathered rows.
//! - In the inner loop: a box whose coordinates depend on more than scalars and the counter.
//! - In either loop: a counter that is not an int32.
//! - In the inner loop: first copies that depend on more than scalars and the counter of the outer
//!   loop.
//!
//! [`LateDots`]: crate::passes::pipelining::loop_plan::LateDots

use rustc_hash::FxHashMap;
use smallvec::smallvec;
use tilewright_ir as ir;
use tilewright_ir::{
    Block, BlockData, Dtype, ElementwiseFn, Inst, LoopOptions, Operation, Value, constant_int,
};

use super::boxes::{boxes_of, growths, may_copy_before, scalars_of};
use crate::passes::global_memory::GlobalAccesses;
use crate::passes::pipelining::loop_plan::{Fusion, LoopPlan, Outer, Successor};
use crate::passes::pipelining::loop_rewriter::{LoopRewriter, NextLoop};
use crate::passes::pipelining::plan::find_loops;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::{Function, GpuOp, Module, Type};

/// The maximum distance between a copy's counter and the inner loop's; both are int32.
const MAX_DISTANCE: i128 = 1 << 30;

/// Fuses each pipelined loop if the loop around it requests fusion.
pub(super) fn fuse(module: &Module, global: &GlobalAccesses<'_>, plans: &mut [LoopPlan]) {
    let function = module.kernel();
    let mut loops = Vec::new();
    find_loops(function, function.entry, &mut loops);
    let is_requested = |inst: Inst| matches!(function.insts[inst].op.as_tile(), Some(ir::Op::For { options }) if options.flatten);
    loops.retain(|(inst, _)| is_requested(*inst));
    for (outer, block) in loops {
        let body = function.insts[outer].regions[0];
        let mut inner = plans.iter_mut().filter(|plan| plan.block == body);
        let found = match (inner.next(), inner.next()) {
            (Some(plan), None) => {
                let fusion = Nest { function, global, plan, outer, block }.fusion();
                fusion.map(|fusion| plan.fusion = Some(fusion))
            }
            (Some(_), Some(_)) => Err("several loops in it are pipelined"),
            (None, _) => Err("no loop of its body, outside of branches, is pipelined"),
        };
        if let Err(reason) = found {
            let because = || RemarkReason::missed("not flattened", reason);
            remarks::about("pipelining", function, outer, || "loop".into(), because);
        }
    }
}

struct Nest<'a> {
    function: &'a Function,
    global: &'a GlobalAccesses<'a>,
    plan: &'a LoopPlan,
    outer: Inst,
    block: Block,
}

impl Nest<'_> {
    fn fusion(&self) -> Result<Fusion, &'static str> {
        let (function, plan) = (self.function, self.plan);
        let body = function.insts[self.outer].regions[0];
        self.may_count_ahead()?;
        if plan.late.is_some() {
            return Err("the inner loop has late dots");
        }
        let mut may = Ok(());
        function.walk(body, &mut |inst| {
            if let Err(reason) = may_copy_before(function, self.global, &plan.loads, inst) {
                may = Err(reason);
            }
        });
        may?;
        for load in &plan.loads {
            let boxed = load.boxed.as_ref().ok_or("a load that goes through a ring is not a tensor copy")?;
            if self.is_inside(function.insts[boxed.mark].operands[1], body) {
                return Err("it makes a tensor map");
            }
            if boxed.gathered_row_indices(function).is_some() {
                return Err("a copy gathers rows");
            }
        }
        let bounds = [0, 1].map(|index| function.insts[plan.inst].operands[index]);
        let (own, outside) = boxes_of(function, plan)
            .ok_or("the address of a copy depends on more than the counter of the inner loop")?;
        let values = bounds.into_iter().chain(outside).collect();
        let (scalars, _) = scalars_of(function, &function.blocks[body].insts, Some(body), values)
            .ok_or("the first copies of the inner loop depend on more than scalars and the counter of the outer loop")?;
        let step = constant_int(function, function.insts[self.outer].operands[2]);
        let successor = Successor::Nested(Outer { inst: self.outer, block: self.block, step });
        let growths = growths(function, [(plan.inst, &own); 2], Some(self.outer));
        Ok(Fusion { successor, bounds, scalars, next: own.clone(), own, growths, min_iterations: 0 })
    }

    fn may_count_ahead(&self) -> Result<(), &'static str> {
        let function = self.function;
        let is_int32 = |inst: Inst| {
            let tile = function.ty(function.insts[inst].operands[0]).as_registers();
            tile.and_then(ir::Type::dtype) == Some(Dtype::I32)
        };
        let max_step = MAX_DISTANCE / i128::from(self.plan.stages);
        if ![self.outer, self.plan.inst].into_iter().all(is_int32) {
            Err("the counter of a loop is not an int32")
        } else if self.plan.step.is_none_or(|step| step < 1 || step > max_step) {
            Err("the step of the inner loop is not a positive constant, or is too large")
        } else {
            Ok(())
        }
    }

    fn is_inside(&self, value: Value, body: Block) -> bool {
        let mut found = false;
        let Some(made) = self.function.defining_inst(value) else { return false };
        self.function.walk(body, &mut |inst| found |= inst == made);
        found
    }
}

impl LoopRewriter<'_> {
    /// Emits the fills for the first outer iteration.
    pub(in super::super) fn begin_nest(&mut self) {
        let plan = self.plan;
        let (Some(fusion), Some(outer)) = (&plan.fusion, plan.outer()) else { return };
        let bounds = [0, 1].map(|index| self.function.insts[outer.inst].operands[index]);
        let in_range = self.is_before(outer, bounds);
        let first = self.loop_of_tile(fusion, outer, bounds[0], in_range);
        for iteration in 0..self.distance {
            let offset = self.offset(iteration);
            self.fill_next(fusion, &first, offset);
        }
        let before = std::mem::take(&mut self.out);
        self.insert_around(outer.block, outer.inst, before, Vec::new());
    }

    /// Emits the takes of the slots that the last outer iteration filled.
    pub(in super::super) fn end_nest(&mut self) {
        let plan = self.plan;
        let Some(outer) = plan.outer() else { return };
        let rings = self.rings.clone();
        for _ in 0..self.distance {
            self.take_turn(&rings);
        }
        let after = std::mem::take(&mut self.out);
        self.insert_around(outer.block, outer.inst, Vec::new(), after);
    }

    /// Returns the bounds of the inner loop in the next iteration of the outer loop.
    pub(super) fn next_of_nest(&mut self, fusion: &Fusion, outer: &Outer) -> NextLoop {
        let data = &self.function.insts[outer.inst];
        let (upper, step) = (data.operands[1], data.operands[2]);
        let counter = self.function.blocks[data.regions[0]].parameters[0];
        // The counter after the last one may have more than 32 bits.
        let [this, upper, far] = [counter, upper, step].map(|value| self.cast(value, Dtype::I64));
        let left = self.scalar(ElementwiseFn::Sub, &[upper, this]);
        let in_range = self.is_before(outer, [far, left]);
        let next = self.scalar(ElementwiseFn::Add, &[counter, step]);
        self.loop_of_tile(fusion, outer, next, in_range)
    }

    fn loop_of_tile(&mut self, fusion: &Fusion, outer: &Outer, counter: Value, in_range: Value) -> NextLoop {
        let body = self.function.insts[outer.inst].regions[0];
        let mut copies = FxHashMap::default();
        copies.insert(self.function.blocks[body].parameters[0], counter);
        for inst in &fusion.scalars {
            self.copy(*inst, &mut copies);
        }
        let [lower, upper] = fusion.bounds.map(|value| copies.get(&value).copied().unwrap_or(value));
        let length = self.length([lower, upper], 0, Some(self.distance));
        let length = self.cast(length, Dtype::I32);
        let zero = self.constant(Dtype::I32, 0);
        let length = self.scalar(ElementwiseFn::Select, &[in_range, length, zero]);
        NextLoop { copies, lower, length: Some(length) }
    }

    /// Emits whether the outer loop reaches the first counter before the second.
    fn is_before(&mut self, outer: &Outer, counters: [Value; 2]) -> Value {
        match outer.step {
            Some(step) if step > 0 => self.compare(ElementwiseFn::Lt, counters),
            Some(_) => self.compare(ElementwiseFn::Gt, counters),
            None => {
                let step = self.function.insts[outer.inst].operands[2];
                let zero = self.constant(Dtype::I32, 0);
                let is_up = self.compare(ElementwiseFn::Gt, [step, zero]);
                let [up, down] =
                    [ElementwiseFn::Lt, ElementwiseFn::Gt].map(|function| self.compare(function, counters));
                self.scalar(ElementwiseFn::Select, &[is_up, up, down])
            }
        }
    }

    /// Fills the next slot of each ring for the successor. Its counter is `offset` above its lower
    /// bound.
    pub(in super::super) fn fill_next(&mut self, fusion: &Fusion, next: &NextLoop, offset: Value) {
        let counter = self.scalar(ElementwiseFn::Add, &[next.lower, offset]);
        let in_range = next.length.map(|length| self.compare(ElementwiseFn::Lt, [offset, length]));
        let boxes = self.boxes_at(&fusion.next, next.copies.clone(), counter);
        for (load, mut coordinates) in boxes.into_iter().enumerate() {
            let slot = self.acquire(load);
            if let Some(in_range) = in_range {
                coordinates[0] = self.mask_coordinate(in_range, coordinates[0]);
            }
            self.fill_box(load, slot, &coordinates);
            self.emit(GpuOp::Publish {}, &[slot], None);
        }
    }

    /// Fills the last of the `distance` slots for the successor.
    pub(in super::super) fn fill_last_of_next(&mut self, fusion: &Fusion, next: &NextLoop) {
        let offset = self.offset(self.distance - 1);
        self.fill_next(fusion, next, offset);
    }

    /// Emits a loop after an inner loop with fewer than `distance` iterations. It takes the slots
    /// beyond these iterations, and fills them for the next tile.
    pub(in super::super) fn take_rest(&mut self, fusion: &Fusion) {
        let Some(continued) = self.continued.take().filter(|_| self.plan.outer().is_some()) else { return };
        let from = self.length(fusion.bounds, 0, Some(self.distance));
        let from = self.cast(from, Dtype::I32);
        let from = self.whole_steps(from);
        let [to, step] = [self.distance, 1].map(|count| self.offset(count));
        let outside = std::mem::take(&mut self.out);
        let body = self.function.blocks.push(BlockData::default());
        let int = Type::scalar(ir::Type::scalar(Dtype::I32));
        let counter = self.function.add_parameter(body, int, None);
        let rings = self.rings.clone();
        self.take_turn(&rings);
        self.fill_next(fusion, &continued.next, counter);
        self.emit(ir::Op::Yield {}, &[], None);
        self.function.blocks[body].insts = std::mem::replace(&mut self.out, outside);
        let options = LoopOptions { num_stages: 1, ..LoopOptions::default() };
        let loop_inst = self.emit(ir::Op::For { options }, &[from, to, step], None);
        self.function.insts[loop_inst].regions = smallvec![body];
    }
}
