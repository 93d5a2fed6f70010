//! Reads the schedule of a loop, and checks that the expander ([`super`]) supports it.

use rustc_hash::FxHashMap;
use tilewright_ir as ir;
use tilewright_ir::{Inst, Stage, Value};

use super::super::loop_rewriter::LoopRewriter;
use super::{Pipeline, fill_ops};
use tilewright_gpu_ir::{GpuOp, Op, Type};

impl LoopRewriter<'_> {
    /// Checks that the expander supports a schedule, which may come from text.
    pub(in super::super) fn check_schedule(&self) -> Result<(), &'static str> {
        let Some(pipeline) = self.read_schedule() else { return Ok(()) };
        let counter = self.function.ty(self.function.blocks[self.body].parameters[0]).as_registers();
        let is_wide = counter.and_then(ir::Type::dtype).is_some_and(|dtype| dtype.bits() > 32);
        if pipeline.crossing > 1 {
            return Err("an op that cannot be predicated runs more than one stage before the last one");
        }
        if is_wide && self.plan.step.is_none() {
            return Err("the step of a counter of 64 bits is not constant");
        }
        let yielded = self.function.yielded(self.body);
        for (index, parameter) in self.function.blocks[self.body].parameters.iter().skip(1).enumerate() {
            let uses = |inst: &&Inst| self.function.insts[**inst].operands.contains(parameter);
            let mut stages = pipeline.step.iter().filter(uses).map(|inst| pipeline.ahead(*inst));
            let first = stages.next();
            let is_made = pipeline.ahead_of.contains_key(&yielded[index]) || yielded[index] == *parameter;
            if !is_made && !stages.all(|stage| Some(stage) == first) {
                return Err("several stages use a carried value that no op of the loop computes");
            }
        }
        Ok(())
    }

    /// Reads the schedule of the loop, if it has one.
    pub(super) fn read_schedule(&self) -> Option<Pipeline> {
        let function = &*self.function;
        let mut step = function.blocks[self.body].insts.clone();
        step.pop();
        step.retain(|inst| function.schedule.contains_key(inst));
        let stage = |inst: &Inst| function.schedule[inst];
        let last = step.iter().map(|inst| stage(inst).stage).max()?;
        let text = step.clone();
        step.sort_by_key(|inst| stage(inst).order);
        let stages: FxHashMap<Inst, (u32, u32)> = step
            .iter()
            .map(|inst| {
                let Stage { stage, order } = stage(inst);
                (*inst, (last - stage, order))
            })
            .collect();
        let of_results = |inst: &Inst| {
            let ahead = stages[inst].0;
            function.insts[*inst].results.iter().map(move |result| (*result, ahead)).collect::<Vec<_>>()
        };
        let ahead_of = step.iter().flat_map(of_results).collect();
        let fills = fill_ops::fill_ops(function, self.plan.inst, &text, &stages);
        let crossing = text.iter().filter(|inst| !fills.contains_key(inst)).map(|inst| stages[inst].0).max();
        let farthest = stages.values().map(|(ahead, _)| *ahead).max()?;
        let crossing = crossing.unwrap_or(0);
        let drains = crossing > 0 && text.iter().all(|inst| self.drains(*inst, fills.contains_key(inst)));
        let initial = function.insts[self.plan.inst].operands[3..].to_vec();
        let carried = initial.len();
        Some(Pipeline { step, stages, ahead_of, fills, crossing, farthest, drains, initial, carried })
    }

    /// Returns whether an op may run out of range. Its slots hold zeros then, because a tensor copy
    /// fills a box outside of its tensor with zeros. So a dot of two slots adds 0.
    pub(super) fn drains(&self, inst: Inst, is_fill: bool) -> bool {
        let data = &self.function.insts[inst];
        let is_slot = |value: &Value| matches!(self.function.ty(*value), Type::Full(_));
        match data.op {
            Op::Gpu(GpuOp::CopyAsync { .. }) => false,
            Op::Gpu(GpuOp::Wgmma { .. }) => data.operands[..2].iter().all(is_slot),
            Op::Gpu(GpuOp::Take {} | GpuOp::Release {} | GpuOp::WgmmaWaitEarlier { .. }) => true,
            Op::Gpu(GpuOp::WgmmaWait { .. }) => {
                let terminator = self.function.terminator(self.body);
                let yields = terminator
                    .is_some_and(|end| self.function.insts[end].operands.contains(&data.results[0]));
                yields && !self.is_used(data.results[0], terminator)
            }
            // tidy: wildcard because any other op may run only if it fills a slot or serves only
            // such ops
            _ => is_fill,
        }
    }

    /// Returns whether the body uses a value, except in `besides`.
    pub(super) fn is_used(&self, value: Value, besides: Option<Inst>) -> bool {
        let mut found = false;
        self.function.walk(self.body, &mut |inst| {
            found |= Some(inst) != besides && self.function.insts[inst].operands.contains(&value);
        });
        found
    }

    /// Returns the rings in the order in which the loop takes their slots.
    pub(super) fn taken_rings(&self) -> Vec<Value> {
        let mut rings = Vec::new();
        for inst in &self.function.blocks[self.body].insts {
            let data = &self.function.insts[*inst];
            if matches!(data.op, Op::Gpu(GpuOp::Take {})) && !rings.contains(&data.operands[0]) {
                rings.push(data.operands[0]);
            }
        }
        rings
    }

    /// Lets the loop carry dots in flight instead of accumulators. Then a dot does not wait for the
    /// previous dot. Returns the waits, which move after the loop, with the carried indices.
    pub(super) fn forward_dots(&mut self, pipeline: &Pipeline) -> Vec<(Inst, usize)> {
        let mut forwarded = Vec::new();
        let end = self.function.terminator(self.body).expect("a body yields");
        for inst in pipeline.others() {
            let data = &self.function.insts[inst];
            let Op::Gpu(GpuOp::WgmmaWait { .. }) = data.op else { continue };
            let (dot, result) = (data.operands[0], data.results[0]);
            let is_later = pipeline.ahead_of.get(&dot).is_some_and(|ahead| *ahead > pipeline.ahead(inst));
            let Some(index) = self.function.insts[end].operands.iter().position(|value| *value == result)
            else {
                continue;
            };
            if !is_later {
                continue;
            }
            let ty = self.function.ty(dot).clone();
            let parameter = self.function.blocks[self.body].parameters[index + 1];
            self.function.values[parameter].ty = ty;
            self.function.insts[end].operands[index] = dot;
            forwarded.push((inst, index));
        }
        forwarded
    }

    /// Returns the number of stages from a carried value's op to the last one. Without such an op,
    /// counts from the first use.
    pub(super) fn ahead_of_carried(&self, pipeline: &Pipeline, index: usize) -> u32 {
        let value = self.function.yielded(self.body)[index];
        if let Some(ahead) = pipeline.ahead_of.get(&value) {
            return *ahead;
        }
        let parameter = self.function.blocks[self.body].parameters[index + 1];
        let uses = |inst: &&Inst| self.function.insts[**inst].operands.contains(&parameter);
        pipeline.step.iter().filter(uses).map(|inst| pipeline.ahead(*inst)).max().unwrap_or(0)
    }
}
