//! Fuses consecutive loops that copy boxes of the same tensors to equal slots.

use tilewright_ir::analysis::scalar_evolution::ScalarEvolution;
use tilewright_ir::{Effect, Inst, OpFamily, Operation, Value};

use super::boxes::{boxes_of, growths, may_copy_before, scalars_of};
use crate::passes::global_memory::GlobalAccesses;
use crate::passes::pipelining::loop_plan::{Fusion, LateDots, LoopPlan, RingLoad, Successor};
use tilewright_gpu_ir::{Function, Module};

/// Fuses each loop with the next loop of its block that can read its slots.
pub(super) fn fuse(module: &Module, global: &GlobalAccesses<'_>, plans: &mut [LoopPlan]) {
    for index in 1..plans.len() {
        let (before, after) = plans.split_at_mut(index);
        let next = &mut after[0];
        let last = before.iter_mut().rev().find(|plan| plan.block == next.block);
        // Do not fuse a third loop. A short second loop would not read every slot that the first
        // loop filled for it.
        if let Some(plan) = last.filter(|plan| !plan.follows)
            && let Some(fusion) =
                (Siblings { module, function: module.kernel(), global, plan, next }).fusion()
        {
            plan.fusion = Some(fusion);
            next.follows = true;
        }
    }
}

struct Siblings<'a> {
    module: &'a Module,
    function: &'a Function,
    global: &'a GlobalAccesses<'a>,
    plan: &'a LoopPlan,
    next: &'a LoopPlan,
}

impl Siblings<'_> {
    fn fusion(&self) -> Option<Fusion> {
        let (function, plan, next) = (self.function, self.plan, self.next);
        let bounds = [0, 1].map(|index| function.insts[next.inst].operands[index]);
        let counter = |plan: &LoopPlan| function.ty(function.insts[plan.inst].operands[0]).clone();
        let bits = counter(plan).as_registers()?.dtype()?.bits();
        if !self.are_alike() || bits > 32 || counter(plan) != counter(next) || !self.may_copy_early() {
            return None;
        }
        let ((own, _), (other, outside)) = (boxes_of(function, plan)?, boxes_of(function, next)?);
        let values = bounds.into_iter().chain(outside).chain(other.coordinates.iter().flatten().copied());
        let of_next = |value: &Value| {
            let inst = function.defining_inst(*value);
            inst.is_none_or(|inst| !other.insts.contains(&inst)) && *value != other.counter
        };
        let values = values.filter(of_next).collect();
        let (scalars, outside) = scalars_of(function, self.between(), None, values)?;
        if outside.iter().any(|value| function.defining_inst(*value) == Some(plan.inst)) {
            return None;
        }
        let growths = growths(function, [(plan.inst, &own), (next.inst, &other)], None);
        let joined = self.may_run_beside().then_some(next.inst);
        let (successor, next) = (Successor::Sibling { joined }, other);
        let min_iterations = self.min_iterations();
        Some(Fusion { successor, bounds, scalars, own, next, growths, min_iterations })
    }

    /// Returns whether the loops have the same slots, filled and taken in the same order.
    fn are_alike(&self) -> bool {
        let (plan, next) = (self.plan, self.next);
        let is_plain = |plan: &LoopPlan| plan.in_flight.is_none() && plan.step.is_some_and(|step| step > 0);
        let late_loads = |plan: &LoopPlan| plan.late.as_ref().map(|late| late.loads.clone());
        let is_simple = |plan: &LoopPlan| {
            plan.groups.iter().all(|group| group.levels.len() == 1 && group.levels[0].parameters.is_empty())
        };
        let order = |plan: &LoopPlan| -> Vec<(Vec<usize>, u32)> {
            plan.groups.iter().map(|group| (group.loads.clone(), group.lead)).collect()
        };
        let is_same = |(one, other): (&RingLoad, &RingLoad)| {
            let maps = one.boxed.as_ref().zip(other.boxed.as_ref());
            maps.is_some_and(|(one, other)| one.is_of_map_of(other, &self.module.header, self.function))
                && (one.element, &one.shape, &one.memory) == (other.element, &other.shape, &other.memory)
        };
        [plan, next].iter().all(|plan| is_plain(plan) && is_simple(plan))
            && (plan.step, plan.stages, late_loads(plan), order(plan))
                == (next.step, next.stages, late_loads(next), order(next))
            && plan.loads.len() == next.loads.len()
            && plan.loads.iter().zip(&next.loads).all(is_same)
    }

    /// Returns whether the late stages of both loops may run in one step.
    ///
    /// Only the next loop's late stage uses this loop's accumulators. This loop's neutral values
    /// are known, and the ops in between are pure.
    fn may_run_beside(&self) -> bool {
        let function = self.function;
        let [Some(own), Some(others)] = [self.plan, self.next].map(|plan| plan.late.as_ref()) else {
            return false;
        };
        let is_late = |plan: &LoopPlan, late: &LateDots, index: usize| {
            let value = function.yielded(function.insts[plan.inst].regions[0])[index];
            function.defining_inst(value).is_some_and(|inst| late.late.contains(&inst))
        };
        let results = &function.insts[self.plan.inst].results;
        let mut may = own.neutral.is_some();
        function.walk(function.entry, &mut |inst| {
            for (operand_index, operand) in function.insts[inst].operands.iter().enumerate() {
                let Some(index) = results.iter().position(|result| result == operand) else { continue };
                let is_accumulator = inst == self.next.inst
                    && operand_index >= 3
                    && is_late(self.next, others, operand_index - 3);
                may &= is_accumulator || !is_late(self.plan, own, index);
            }
        });
        let is_pure = |inst: &Inst| function.insts[*inst].op.info().effect == Effect::Pure;
        may && self.between().iter().all(is_pure)
    }

    fn between(&self) -> &[Inst] {
        let insts = &self.function.blocks[self.plan.block].insts;
        let index =
            |inst: Inst| insts.iter().position(|other| *other == inst).expect("the loop is in the block");
        &insts[index(self.plan.inst) + 1..index(self.next.inst)]
    }

    /// Returns whether copies of the next loop may start in this loop. No loop may be between the
    /// two. No op before the next loop may order memory accesses or write its memory.
    fn may_copy_early(&self) -> bool {
        let function = self.function;
        let mut may = true;
        let mut check = |inst: Inst| {
            may &= may_copy_before(function, self.global, &self.next.loads, inst).is_ok();
        };
        function.walk(function.insts[self.plan.inst].regions[0], &mut check);
        for inst in self.between() {
            check(*inst);
            function.insts[*inst].regions.iter().for_each(|region| function.walk(*region, &mut check));
        }
        let is_loop = |inst: &Inst| function.insts[*inst].op.info().family == OpFamily::Loop;
        may && !self.between().iter().any(is_loop)
    }

    /// Returns a lower bound of the next loop's iterations. The bound is 0 unless the loop's bounds
    /// differ by a constant.
    fn min_iterations(&self) -> i128 {
        let [lower, upper] = [0, 1].map(|index| self.function.insts[self.next.inst].operands[index]);
        let Some(step) = self.next.step else { return 0 };
        let mut evolution = ScalarEvolution::new(self.function);
        let [lower, upper] = [lower, upper].map(|bound| evolution.form(bound));
        let length = upper.minus(&lower).and_then(|length| length.as_constant());
        length.map_or(0, |length| (length + step - 1) / step)
    }
}
