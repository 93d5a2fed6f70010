//! Emits the steps ([`super`]) that run before the loop.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tilewright_ir::{Definition, Inst, Operation, Value};

use super::super::dots::count_later;
use super::super::loop_plan::Neutral;
use super::super::loop_rewriter::{Bounds, LoopRewriter, Tail};
use super::super::schedule_loops::order;
use super::{Pipeline, Steps, is_access};
use tilewright_gpu_ir::{GpuOp, Op, Type};

impl LoopRewriter<'_> {
    /// Returns the value that an op uses in a step before the loop.
    pub(super) fn value_before(
        &mut self,
        pipeline: &Pipeline,
        bounds: &Bounds,
        steps: &Steps,
        value: Value,
        (ahead, step): (u32, u32),
    ) -> Value {
        match self.function.values[value].definition {
            Definition::Parameter(block, index) if block == self.body => {
                self.carried_before(pipeline, bounds, steps, index, ahead - step)
            }
            Definition::Parameter(..) => value,
            Definition::Result(..) => match pipeline.ahead_of.get(&value) {
                Some(made) => self.computed(steps, step + made - ahead, value),
                None => value,
            },
        }
    }

    /// Returns a value that a step before the loop has computed.
    pub(super) fn computed(&self, steps: &Steps, step: u32, value: Value) -> Value {
        steps[step as usize].get(&value).copied().unwrap_or_else(|| {
            let name = self.function.defining_op(value).map(Operation::name);
            panic!("the result of {name:?} is used {step} steps before the loop but not computed there")
        })
    }

    /// Returns the value of a parameter in one of the first iterations.
    pub(super) fn carried_before(
        &mut self,
        pipeline: &Pipeline,
        bounds: &Bounds,
        steps: &Steps,
        index: u32,
        iteration: u32,
    ) -> Value {
        let lower = self.function.insts[self.plan.inst].operands[0];
        if index == 0 {
            return self.later(lower, iteration, bounds);
        }
        if iteration == 0 {
            return self.function.insts[self.plan.inst].operands[index as usize + 2];
        }
        let value = self.function.yielded(self.body)[index as usize - 1];
        match self.function.values[value].definition {
            Definition::Parameter(block, index) if block == self.body => {
                self.carried_before(pipeline, bounds, steps, index, iteration - 1)
            }
            Definition::Parameter(..) => value,
            Definition::Result(..) => match pipeline.ahead_of.get(&value) {
                Some(made) => self.computed(steps, made + 1 - iteration, value),
                None => value,
            },
        }
    }

    /// Returns a copy of an op for a step before the loop.
    pub(super) fn copy_before(
        &mut self,
        pipeline: &Pipeline,
        bounds: &Bounds,
        steps: &mut Steps,
        (inst, step): (Inst, u32),
    ) -> Inst {
        let ahead = pipeline.ahead(inst);
        let mut copies = FxHashMap::default();
        for operand in self.function.insts[inst].operands.clone() {
            let value = self.value_before(pipeline, bounds, steps, operand, (ahead, step));
            copies.insert(operand, value);
        }
        self.copy(inst, &mut copies);
        for result in self.function.insts[inst].results.clone() {
            steps[step as usize].insert(result, copies[&result]);
        }
        self.out.pop().expect("`copy` emits an instruction")
    }

    /// Emits the fills of the steps before the loop. Copies of one stage are emitted together.
    pub(super) fn first_fills(&mut self, pipeline: &Pipeline, bounds: &Bounds, steps: &mut Steps) {
        let plan = self.plan;
        let mut groups: Vec<u32> = pipeline.fills.values().copied().collect();
        groups.sort_unstable_by_key(|ahead| std::cmp::Reverse(*ahead));
        groups.dedup();
        // The slots that the loop takes even if it has no iteration.
        let always_taken = pipeline.crossing;
        let lower = self.function.insts[plan.inst].operands[0];
        for group in groups {
            let is_own = |inst: &&Inst| pipeline.fills.get(*inst) == Some(&group);
            let ops: Vec<Inst> = pipeline.step.iter().filter(is_own).copied().collect();
            for step in (1..=pipeline.farthest).rev() {
                let mut conditions: BTreeMap<u32, (Value, Value)> = BTreeMap::new();
                for inst in ops.iter().copied() {
                    let ahead = pipeline.ahead(inst);
                    let Some(iteration) = ahead.checked_sub(step) else { continue };
                    // A previous sibling loop has filled all slots except those that are always
                    // taken. In a nested loop, the previous outer iteration has filled all slots.
                    let is_filled = plan.follows && iteration + always_taken < ahead;
                    if is_filled || plan.outer().is_some() {
                        continue;
                    }
                    let known = conditions.get(&ahead).copied();
                    let (counter, in_range) = known.unwrap_or_else(|| {
                        let counter = self.later(lower, iteration, bounds);
                        (counter, self.in_range(lower, iteration, bounds))
                    });
                    conditions.insert(ahead, (counter, in_range));
                    let copy = self.copy_before(pipeline, bounds, steps, (inst, step));
                    if is_access(&self.function.insts[copy].op) {
                        // Out of range, a slot that is always taken holds zeros, not a tile of the
                        // next loop.
                        let continued = self.continued.take();
                        let is_continued = iteration >= always_taken;
                        self.continued = continued.clone().filter(|_| is_continued);
                        self.predicate(copy, (counter, in_range));
                        self.continued = continued;
                    }
                    self.out.push(copy);
                }
            }
        }
    }

    /// Emits the other ops of the first step, with the rest of the previous loop. Returns the
    /// condition that the loop has an iteration.
    pub(super) fn first_step(
        &mut self,
        pipeline: &Pipeline,
        bounds: &Bounds,
        steps: &mut Steps,
        before: Option<Tail>,
        fills: Vec<Inst>,
    ) -> Value {
        assert_eq!(pipeline.crossing, 1, "ops that are not predicated run one stage before the last one");
        let lower = self.function.insts[self.plan.inst].operands[0];
        let in_range = self.in_range(lower, 0, bounds);
        let is_joined = before.is_some();
        let mut left = before.map(|Tail(ops)| ops).unwrap_or_default();
        left.extend(fills.into_iter().map(|inst| (order::FILL, inst)));
        left.sort_by_key(|(order, _)| *order);
        let mut left = left.into_iter().peekable();
        let last = self.last_computed(pipeline);
        let mut wait_after_last = None;
        for inst in pipeline.others().filter(|inst| pipeline.ahead(*inst) == 1).collect::<Vec<_>>() {
            let order = pipeline.order(inst);
            while let Some((_, other)) = left.next_if(|(other, _)| *other < order) {
                self.out.push(other);
                let is_wait = matches!(self.function.insts[other].op, Op::Gpu(GpuOp::WgmmaWait { .. }));
                let computed = last.and_then(|last| steps[1].get(&last).copied());
                wait_after_last = wait_after_last.or(computed.filter(|_| is_wait).map(|last| (other, last)));
            }
            let data = &self.function.insts[inst];
            if let (Op::Gpu(GpuOp::WgmmaWaitEarlier { .. }), &[dot], &[result]) =
                (&data.op, &data.operands[..], &data.results[..])
            {
                // No step precedes this one.
                let dot = steps[1][&dot];
                steps[1].insert(result, dot);
                continue;
            }
            let computed = self.mask_operands(steps, inst, order, in_range);
            let copy = self.copy_before(pipeline, bounds, steps, (inst, 1));
            if is_joined {
                count_later(self.function, copy);
            }
            self.out.push(copy);
            steps[1].extend(computed);
        }
        self.out.extend(left.map(|(_, inst)| inst));
        if let Some((wait, last)) = wait_after_last {
            self.function.insts[wait].operands.push(last);
        }
        in_range
    }

    /// Makes an op compute a late dot's operand from zeros, without an iteration. Returns the
    /// values that the zeros replace.
    fn mask_operands(
        &mut self,
        steps: &mut Steps,
        inst: Inst,
        order: u32,
        in_range: Value,
    ) -> Vec<(Value, Value)> {
        let Some(neutral) = self.neutral().filter(|_| order == order::OPERAND) else { return Vec::new() };
        let operands = &self.function.insts[inst].operands;
        let zeros = neutral.zeros.iter().filter(|value| operands.contains(value));
        let mut computed: Vec<(Value, Value)> = zeros.map(|value| (*value, steps[1][value])).collect();
        computed.dedup();
        for (value, own) in &computed {
            let selected = self.select_if_in_range(in_range, *own, 0.0);
            steps[1].insert(*value, selected);
        }
        computed
    }

    /// Returns the values with which the last stage changes nothing.
    pub(super) fn neutral(&self) -> Option<&Neutral> {
        self.plan.late.as_ref()?.neutral.as_ref().filter(|_| self.plan.joined().is_some())
    }

    pub(super) fn initial_values(
        &mut self,
        pipeline: &Pipeline,
        bounds: &Bounds,
        steps: &Steps,
        in_range: Option<Value>,
    ) -> Vec<Value> {
        let count = self.function.blocks[self.body].parameters.len() - 1;
        let mut values = Vec::with_capacity(count);
        for index in 0..count {
            let ahead = self.ahead_of_carried(pipeline, index);
            let first = self.function.insts[self.plan.inst].operands[index + 3];
            let value = self.carried_before(pipeline, bounds, steps, index as u32 + 1, ahead);
            let made = self.function.yielded(self.body)[index];
            let is_fill = self.function.defining_inst(made).is_some_and(|inst| pipeline.is_fill(inst));
            let is_pending = matches!(self.function.ty(value), Type::Pending { .. });
            values.push(match in_range {
                Some(in_range) if ahead > 0 && !is_fill && !is_pending => {
                    self.selected(in_range, value, first)
                }
                Some(_) | None => value,
            });
        }
        values
    }
}
