//! Expands a loop by its schedule. A step is an iteration of the new loop. It runs each stage for
//! another iteration of the old loop. In the example, `[1, 0]` is the stage and the order of an op.
//!
//! ```text
//!                                          a(0) ; b(0) ; a(1)             the prologue
//! for %i = %a to %b {                      for %i = %a to %b - 1 {
//!   a(%i)  [0, 1]                            b(%i + 1)
//!   b(%i)  [1, 0]                   =>       a(%i + 2) if in range
//!   c(%i)  [2, 2]                            c(%i)
//! }                                        } ; c(last) if there is one    the epilogue
//! ```
//! The counter of the new loop is that of the last stage. A value that a later stage uses takes one
//! loop parameter for each stage in between.
//!
//! **Ops that fill slots**, and ops that only they need, are predicated. A copy that is out of
//! range fills its slot with zeros. So the last iterations need no second body after the loop.
//!
//! **Other ops** before the last stage are not predicated. The loop ends a step earlier, and the
//! last stage runs once more after it. Their first step is before the loop and always runs. If the
//! loop has no iteration, the slots of this step are zeros, and a selection keeps the initial
//! carried values.
//!
//! If slots of zeros change no carried value (`LoopRewriter::drains`), the loop ends before copies
//! are out of range. A second loop without copies runs the remaining steps.

mod epilogue;
mod fill_ops;
mod prologue;
mod read;

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{Definition, Dtype, ElementwiseFn, Inst, Value};

use super::super::boxed::place_of_condition;
use super::dots::count_later;
use super::loop_rewriter::{Bounds, LoopRewriter, Tail};
use super::schedule_loops::order;
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::{GpuOp, Op, Type};

/// A loop with its schedule.
struct Pipeline {
    step: Vec<Inst>,
    /// For each op, the number of stages up to the last one, and its order.
    stages: FxHashMap<Inst, (u32, u32)>,
    /// For each value, the number of stages from its op to the last one.
    ahead_of: FxHashMap<Value, u32>,
    /// The ops that fill slots, with those that only they need. Each has the number of stages from
    /// its copy to the last stage.
    fills: FxHashMap<Inst, u32>,
    /// The number of stages from the first op without a predicate to the last stage.
    crossing: u32,
    /// The number of stages before the last one.
    farthest: u32,
    /// True if the loop ends before copies are out of range.
    drains: bool,
    /// The carried values before the first iteration.
    initial: Vec<Value>,
    /// The number of values that the loop carries before its expansion.
    carried: usize,
}

impl Pipeline {
    fn ahead(&self, inst: Inst) -> u32 {
        self.stages[&inst].0
    }

    fn order(&self, inst: Inst) -> u32 {
        self.stages[&inst].1
    }

    fn is_fill(&self, inst: Inst) -> bool {
        self.fills.contains_key(&inst)
    }

    /// Returns the ops that are not predicated.
    fn others(&self) -> impl Iterator<Item = Inst> + '_ {
        self.step.iter().copied().filter(|inst| !self.is_fill(*inst))
    }
}

/// The values that each step before the loop computes. The index is the distance of the step from
/// the loop.
type Steps = Vec<FxHashMap<Value, Value>>;

/// The values that cross stages. Their parameters carry them for one step, two steps, and so on.
type Crossing = BTreeMap<Value, Vec<Value>>;

impl LoopRewriter<'_> {
    /// Expands the loop. The first step runs `before`, the rest of the previous loop. Returns the
    /// rest of this loop for the next loop.
    pub(super) fn expand(&mut self, before: Option<Tail>) -> Option<Tail> {
        let pipeline = self.read_schedule()?;
        let plan = self.plan;
        if self.rings.is_empty() {
            self.rings = self.taken_rings();
        }
        let bounds = self.bounds(pipeline.farthest.max(self.distance));
        let fusion = plan.fusion.as_ref();
        self.continued = fusion.filter(|_| !pipeline.drains).map(|fusion| self.continued(fusion));
        let waits = self.forward_dots(&pipeline);
        let mut steps: Steps = vec![FxHashMap::default(); pipeline.farthest as usize + 1];
        let outside = std::mem::take(&mut self.out);
        self.first_fills(&pipeline, &bounds, &mut steps);
        let mut fills = std::mem::take(&mut self.out);
        self.out = outside;
        if before.is_none() {
            self.out.append(&mut fills);
        }
        let in_range =
            (pipeline.crossing > 0).then(|| self.first_step(&pipeline, &bounds, &mut steps, before, fills));
        let initial = self.initial_values(&pipeline, &bounds, &steps, in_range);
        self.before = std::mem::take(&mut self.out);
        let mut crossing = Crossing::new();
        self.step(&pipeline, &bounds, &steps, in_range, &mut crossing);
        let inst = plan.inst;
        for (index, value) in initial.into_iter().enumerate() {
            self.function.insts[inst].operands[index + 3] = value;
        }
        if pipeline.crossing > 0 {
            let left = if pipeline.drains { self.distance.max(pipeline.farthest) } else { pipeline.crossing };
            self.function.insts[inst].operands[1] = bounds.end(left as usize);
        }
        let mut last = self.last_values(&pipeline, &crossing);
        let drained = fusion.filter(|_| pipeline.drains).map(|fusion| (fusion, self.next_loop(fusion)));
        if pipeline.drains {
            self.drain(&pipeline, &crossing, &mut last, drained.as_ref());
        }
        let tail = self.epilogue(&pipeline, &crossing, &last, &waits, in_range);
        self.wait_after_computation(&pipeline);
        if let Some((fusion, next)) = &drained {
            self.fill_last_of_next(fusion, next);
        } else if let Some(fusion) = fusion {
            self.take_rest(fusion);
        } else if !pipeline.drains {
            self.take_unused(&pipeline);
        }
        let after = std::mem::take(&mut self.out);
        let before = std::mem::take(&mut self.before);
        self.insert_around(plan.block, inst, before, after);
        for inst in &pipeline.step {
            self.function.schedule.remove(inst);
        }
        tail
    }

    /// Predicates an access. Out of range, the access reads no memory and fills its slot with
    /// zeros. In a fused loop, a tensor copy copies for the successor instead.
    fn predicate(&mut self, inst: Inst, (counter, in_range): (Value, Value)) {
        self.location = self.function.insts[inst].location;
        let data = self.function.insts[inst].clone();
        match data.op {
            Op::Gpu(GpuOp::TensorFill {}) => {
                let mut coordinates: SmallVec<[Value; 5]> = data.operands[2..].iter().copied().collect();
                if let Some(continued) = self.continued.clone() {
                    let ring = self.function.defining_inst(data.operands[0]).expect("a slot is acquired");
                    let ring = self.function.insts[ring].operands[0];
                    let load =
                        self.rings.iter().position(|other| *other == ring).expect("the loop fills the ring");
                    let iteration = (counter, in_range);
                    self.select_current_or_next_loop(&mut coordinates, load, &continued, iteration);
                } else {
                    let index = place_of_condition(self.function, &coordinates);
                    coordinates[index] = self.mask_coordinate(in_range, coordinates[index]);
                }
                self.function.insts[inst].operands.truncate(2);
                self.function.insts[inst].operands.extend(coordinates);
            }
            Op::Gpu(GpuOp::CopyAsync { .. }) => self.mask(inst, 1, in_range),
            Op::Gpu(GpuOp::Load { .. }) => self.mask(inst, 0, in_range),
            // tidy: wildcard because no other op is predicated
            _ => {}
        }
    }

    /// Masks an access; `pointer` is its pointer operand, and the mask is the next operand.
    fn mask(&mut self, inst: Inst, pointer: usize, in_range: Value) {
        let data = self.function.insts[inst].clone();
        let ty = self.function.ty(data.operands[pointer]).clone();
        let tile = ty.as_registers().expect("pointers are in registers").with_dtype(Dtype::I1);
        let shape = tile.shape.clone();
        let ty = Type::registers(tile, ty.layout());
        let mut mask = in_range;
        if ty.layout().is_some() {
            mask = self.value(ir::Op::Splat { shape }, &[in_range], ty.clone());
        }
        let Some(own) = data.operands.get(pointer + 1).copied() else {
            self.function.insts[inst].operands.push(mask);
            return;
        };
        let equal_registers = match self.function.defining_op(own) {
            Some(Op::Gpu(GpuOp::Elementwise { equal_registers, .. })) => *equal_registers,
            // tidy: wildcard because no other op has equal registers
            _ => 0,
        };
        let op = GpuOp::Elementwise { function: ElementwiseFn::And, equal_registers };
        self.function.insts[inst].operands[pointer + 1] = self.value(op, &[own, mask], ty);
    }

    /// Returns the parameter that carries a value over `count` steps. `first` is the initial value
    /// if the steps before the loop do not compute it.
    fn crossing(
        &mut self,
        steps: &Steps,
        crossing: &mut Crossing,
        (value, count): (Value, u32),
        (in_range, first): (Option<Value>, Option<Value>),
    ) -> Value {
        let mut carried = crossing.remove(&value).unwrap_or_default();
        while carried.len() < count as usize {
            let before = steps.get(carried.len() + 1).and_then(|step| step.get(&value)).copied();
            let mut initial = before.or(first).expect("a value is computed before it is used");
            let number = self.neutral().and_then(|neutral| neutral.number(value));
            if let (Some(number), Some(in_range)) = (number, in_range) {
                let inside = std::mem::take(&mut self.out);
                initial = self.select_if_in_range(in_range, initial, number);
                let selection = std::mem::replace(&mut self.out, inside);
                self.before.extend(selection);
            }
            let next = carried.last().copied().unwrap_or(value);
            carried.push(self.carry(initial, next));
        }
        let parameter = carried[count as usize - 1];
        crossing.insert(value, carried);
        parameter
    }

    /// Makes the body of the new loop.
    fn step(
        &mut self,
        pipeline: &Pipeline,
        bounds: &Bounds,
        steps: &Steps,
        in_range: Option<Value>,
        crossing: &mut Crossing,
    ) {
        let counter = self.function.blocks[self.body].parameters[0];
        let end = self.function.terminator(self.body).expect("a body yields");
        let mut counters: BTreeMap<u32, Value> = BTreeMap::new();
        let mut conditions: BTreeMap<u32, Value> = BTreeMap::new();
        let mut body = Vec::new();
        for inst in pipeline.step.iter().copied() {
            if self.is_forwarded(pipeline, inst) || self.is_unused_copy(pipeline, inst) {
                continue;
            }
            let ahead = pipeline.ahead(inst);
            let is_predicated = ahead > 0 && !pipeline.drains && pipeline.is_fill(inst);
            if is_predicated && pipeline.order(inst) != order::ACQUIRE && !conditions.contains_key(&ahead) {
                conditions.insert(ahead, self.in_range(counter, ahead, bounds));
                let later = counters.get(&ahead).copied();
                counters.insert(ahead, later.unwrap_or_else(|| self.later(counter, ahead, bounds)));
            }
            for index in 0..self.function.insts[inst].operands.len() {
                let operand = self.function.insts[inst].operands[index];
                let value = match pipeline.ahead_of.get(&operand) {
                    Some(made) if *made > ahead => {
                        self.crossing(steps, crossing, (operand, made - ahead), (in_range, None))
                    }
                    None if operand != counter => {
                        self.carried_later(pipeline, steps, (operand, ahead), (in_range, crossing))
                    }
                    None if operand == counter => {
                        let later = counters.get(&ahead).copied();
                        later.unwrap_or_else(|| self.later(counter, ahead, bounds))
                    }
                    Some(_) | None => operand,
                };
                if operand == counter {
                    counters.insert(ahead, value);
                }
                self.function.insts[inst].operands[index] = value;
            }
            if is_predicated && is_access(&self.function.insts[inst].op) {
                self.predicate(inst, (counters[&ahead], conditions[&ahead]));
            }
            body.append(&mut self.out);
            body.push(inst);
        }
        body.push(end);
        self.function.blocks[self.body].insts = body;
        for inst in pipeline.others().filter(|inst| pipeline.ahead(*inst) > 0) {
            // The expanded loop has other dots in flight at these waits.
            count_later(self.function, inst);
        }
    }

    /// Returns the operand that replaces a carried value of another stage.
    fn carried_later(
        &mut self,
        pipeline: &Pipeline,
        steps: &Steps,
        (operand, ahead): (Value, u32),
        (in_range, crossing): (Option<Value>, &mut Crossing),
    ) -> Value {
        let Definition::Parameter(block, index) = self.function.values[operand].definition else {
            return operand;
        };
        if block != self.body || index as usize > pipeline.carried {
            return operand;
        }
        let value = self.function.yielded(self.body)[index as usize - 1];
        let made = pipeline.ahead_of.get(&value).copied().unwrap_or(ahead);
        if made + 1 == ahead {
            // An earlier op of this step computed the value for the previous iteration.
            return value;
        }
        if made <= ahead {
            return operand;
        }
        let first = pipeline.initial[index as usize - 1];
        self.crossing(steps, crossing, (value, made - ahead + 1), (in_range, Some(first)))
    }

    /// Returns whether an op is the wait for a dot that the loop carries.
    fn is_forwarded(&self, pipeline: &Pipeline, inst: Inst) -> bool {
        let data = &self.function.insts[inst];
        matches!(data.op, Op::Gpu(GpuOp::WgmmaWait { .. }))
            && pipeline.ahead_of.get(&data.operands[0]).is_some_and(|ahead| *ahead > pipeline.ahead(inst))
    }

    /// Returns whether an op copies only for iterations known to be out of range. No iteration
    /// takes its slots.
    fn is_unused_copy(&self, pipeline: &Pipeline, inst: Inst) -> bool {
        let plan = self.plan;
        let data = &self.function.insts[inst];
        let is_plain = pipeline.crossing == 0 && plan.fusion.is_none() && !plan.follows;
        // A later pass may make a tensor copy of a marked box.
        let is_box = |pointer: Value| {
            matches!(self.function.defining_op(pointer), Some(Op::Gpu(GpuOp::TensorBox { .. })))
        };
        let is_never = plan.iterations.is_some_and(|iterations| iterations <= pipeline.ahead(inst));
        is_plain
            && is_never
            && matches!(data.op, Op::Gpu(GpuOp::CopyAsync { .. }))
            && !is_box(data.operands[1])
    }

    /// Returns the last tile that the early stage computes from its dots. This is a carried fp32
    /// tile, or a 32-bit tile from which A of a late dot is made.
    fn last_computed(&self, pipeline: &Pipeline) -> Option<Value> {
        let function = &*self.function;
        let early: Vec<Inst> = pipeline.others().filter(|inst| pipeline.ahead(*inst) > 0).collect();
        let makes_operand = |inst: &&Inst| pipeline.order(**inst) == order::OPERAND;
        let operands = early.iter().filter(makes_operand).flat_map(|inst| &function.insts[*inst].operands);
        let operands: FxHashSet<Value> = operands.copied().collect();
        let yielded = function.yielded(self.body);
        let last = |is_chosen: &dyn Fn(Value, &ir::Type) -> bool| {
            let results = early.iter().rev().flat_map(|inst| &function.insts[*inst].results);
            results.copied().find(|value| {
                let tile = function.ty(*value).as_registers().filter(|tile| tile.rank() > 0);
                tile.is_some_and(|tile| is_chosen(*value, tile))
            })
        };
        let carried = last(&|value, tile| yielded.contains(&value) && tile.dtype() == Some(Dtype::F32));
        carried.or_else(|| last(&|value, tile| operands.contains(&value) && element_bits(tile) == 32))
    }

    /// Adds the early stage's last tile to the next wait for a late dot. Without this operand, the
    /// assembler would move the wait up.
    fn wait_after_computation(&mut self, pipeline: &Pipeline) {
        let Some(last) = self.last_computed(pipeline).filter(|_| pipeline.crossing > 0) else { return };
        let is_late_wait = |inst: &Inst| {
            pipeline.ahead(*inst) == 0
                && matches!(self.function.insts[*inst].op, Op::Gpu(GpuOp::WgmmaWait { .. }))
                && !self.is_forwarded(pipeline, *inst)
        };
        let is_maker = |inst: &Inst| self.function.insts[*inst].results.contains(&last);
        let wait = pipeline.others().skip_while(|inst| !is_maker(inst)).find(is_late_wait);
        if let Some(wait) = wait
            && self.function.blocks[self.body].insts.contains(&wait)
        {
            self.function.insts[wait].operands.push(last);
        }
    }

    /// Takes the slots that no iteration takes, one of each ring in turn. Otherwise, their tensor
    /// copies would keep the memory in use to the end of the kernel.
    fn take_unused(&mut self, pipeline: &Pipeline) {
        let mut left: Vec<(Value, u32)> = Vec::new();
        for ring in self.rings.clone() {
            let of_ring = |inst: &&Inst| {
                let data = &self.function.insts[**inst];
                let slot = data.operands.first().and_then(|slot| self.function.defining_inst(*slot));
                matches!(data.op, Op::Gpu(GpuOp::TensorFill {}))
                    && slot.is_some_and(|acquire| self.function.insts[acquire].operands[0] == ring)
            };
            let ahead = pipeline.step.iter().find(of_ring).map(|inst| pipeline.ahead(*inst));
            left.extend(ahead.map(|ahead| (ring, ahead - pipeline.crossing)));
        }
        for turn in 0..left.iter().map(|(_, left)| *left).max().unwrap_or(0) {
            let rings: Vec<Value> =
                left.iter().filter(|(_, left)| turn < *left).map(|(ring, _)| *ring).collect();
            self.take_turn(&rings);
        }
    }
}

fn is_access(op: &Op) -> bool {
    matches!(op, Op::Gpu(GpuOp::TensorFill {} | GpuOp::CopyAsync { .. } | GpuOp::Load { .. }))
}
