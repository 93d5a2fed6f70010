//! Emits the steps after the loop, for ops that [`super`] does not predicate.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{Block, BlockData, Definition, Dtype, Inst, LoopOptions, Value, ValueData};

use super::super::dots::count_later;
use super::super::loop_plan::Fusion;
use super::super::loop_rewriter::{LoopRewriter, NextLoop, Tail};
use super::{Crossing, Pipeline};
use tilewright_gpu_ir::{GpuOp, Op, Type};

impl LoopRewriter<'_> {
    /// Returns the final values that the loop carries or that cross stages.
    pub(super) fn last_values(
        &mut self,
        pipeline: &Pipeline,
        crossing: &Crossing,
    ) -> FxHashMap<Value, Value> {
        let parameters = &self.function.blocks[self.body].parameters;
        let results = &self.function.insts[self.plan.inst].results;
        let mut last: FxHashMap<Value, Value> =
            parameters[1..].iter().copied().zip(results.iter().copied()).collect();
        if pipeline.crossing > 0 {
            for (value, carried) in crossing {
                let result = last[&carried[0]];
                last.insert(*value, result);
            }
        }
        last
    }

    /// Emits a loop of the remaining steps, without copies for this loop. In a fused loop, these
    /// steps fill slots of the successor.
    pub(super) fn drain(
        &mut self,
        pipeline: &Pipeline,
        crossing: &Crossing,
        last: &mut FxHashMap<Value, Value>,
        following: Option<&(&Fusion, NextLoop)>,
    ) {
        let ops: Vec<Inst> = pipeline.others().filter(|inst| self.is_drained(*inst)).collect();
        let function = &*self.function;
        let uses = |value: &Value| ops.iter().any(|inst| function.insts[*inst].operands.contains(value));
        let parameters = function.blocks[self.body].parameters[1..].to_vec();
        let yielded = function.yielded(self.body).to_vec();
        let carried: Vec<usize> = (0..parameters.len()).filter(|index| uses(&parameters[*index])).collect();
        let int = Type::scalar(ir::Type::scalar(Dtype::I32));
        let step = if following.is_some() { self.plan.step.unwrap_or(1) } else { 1 };
        let left = i128::from(self.distance.max(pipeline.farthest)) - 1;
        let [zero, one, count] = [0, step, step * left].map(|number| self.constant(Dtype::I32, number));
        let block = self.function.blocks.push(BlockData::default());
        let counter = self.function.add_parameter(block, int, None);
        let mut copies: FxHashMap<Value, Value> = FxHashMap::default();
        for index in &carried {
            let ty = self.function.ty(parameters[*index]).clone();
            copies.insert(parameters[*index], self.function.add_parameter(block, ty, None));
        }
        let outside = std::mem::take(&mut self.out);
        for inst in ops {
            self.copy(inst, &mut copies);
        }
        let next: Vec<Value> = carried
            .iter()
            .map(|index| copies.get(&yielded[*index]).copied().unwrap_or(yielded[*index]))
            .collect();
        if let Some((fusion, next)) = following {
            self.fill_next(fusion, next, counter);
        }
        self.emit(ir::Op::Yield {}, &next, None);
        self.function.blocks[block].insts = std::mem::replace(&mut self.out, outside);
        let initial: Vec<Value> = carried.iter().map(|index| last[&parameters[*index]]).collect();
        let operands: Vec<Value> = [zero, count, one].into_iter().chain(initial).collect();
        let options = LoopOptions { num_stages: 1, ..LoopOptions::default() };
        let tail = self.emit(ir::Op::For { options }, &operands, None);
        self.function.insts[tail].regions = smallvec![block];
        for index in carried {
            let parameter = parameters[index];
            let ty = self.function.ty(parameter).clone();
            let result = self.add_result(tail, ty);
            last.insert(parameter, result);
            if let Some((value, _)) = crossing.iter().find(|(_, carried)| carried[0] == parameter) {
                last.insert(*value, result);
            }
        }
    }

    /// Returns whether the remaining steps run an op, which belongs to dots or slots.
    pub(super) fn is_drained(&self, inst: Inst) -> bool {
        matches!(
            self.function.insts[inst].op,
            Op::Gpu(
                GpuOp::Take {} | GpuOp::Release {} | GpuOp::Wgmma { .. } | GpuOp::WgmmaWaitEarlier { .. }
            )
        )
    }

    /// Emits the last stage of the last iteration, if the loop has an iteration. If the next loop
    /// continues the accumulators, it always runs this stage, which adds zeros without an
    /// iteration.
    pub(super) fn epilogue(
        &mut self,
        pipeline: &Pipeline,
        crossing: &Crossing,
        last: &FxHashMap<Value, Value>,
        waits: &[(Inst, usize)],
        in_range: Option<Value>,
    ) -> Option<Tail> {
        let in_range = in_range?;
        let mut copies: FxHashMap<Value, Value> = last.clone();
        for carried in crossing.values() {
            copies.insert(carried[0], last[&carried[0]]);
        }
        let ops: Vec<Inst> = pipeline.others().filter(|inst| pipeline.ahead(*inst) == 0).collect();
        if let Some(next) = self.plan.joined() {
            return Some(self.tail_for_next(pipeline, &ops, copies, next));
        }
        let forwarded = |inst: &Inst| waits.iter().any(|(wait, _)| wait == inst);
        for (wait, index) in waits {
            self.wait_after_loop(*wait, *index, last);
        }
        let ops: Vec<Inst> = ops.into_iter().filter(|inst| !forwarded(inst)).collect();
        let is_of_ring = |emit: &Self, inst: &Inst| {
            matches!(emit.function.insts[*inst].op, Op::Gpu(GpuOp::Take {} | GpuOp::Release {}))
        };
        let (of_ring, inside): (Vec<Inst>, Vec<Inst>) =
            ops.into_iter().partition(|inst| is_of_ring(self, inst));
        let is_take =
            |emit: &Self, inst: &Inst| matches!(emit.function.insts[*inst].op, Op::Gpu(GpuOp::Take {}));
        let (takes, releases): (Vec<Inst>, Vec<Inst>) =
            of_ring.into_iter().partition(|inst| is_take(self, inst));
        for inst in takes {
            self.copy(inst, &mut copies);
        }
        if !inside.is_empty() {
            self.last_iteration(pipeline, inside, &mut copies, in_range);
        }
        for inst in releases {
            self.copy(inst, &mut copies);
        }
        None
    }

    /// Waits after the loop for a dot that the loop carries.
    pub(super) fn wait_after_loop(&mut self, wait: Inst, index: usize, last: &FxHashMap<Value, Value>) {
        let function = &mut *self.function;
        let inst = self.plan.inst;
        let parameter = function.blocks[self.body].parameters[index + 1];
        let ty = function.ty(parameter).clone();
        let result = function.insts[inst].results[index];
        // The wait defines the loop's old result, so its uses stay valid.
        let definition = function.values[result].definition;
        let own = function.values.push(ValueData { ty, definition, name: None });
        function.insts[inst].results[index] = own;
        let dot = if last[&parameter] == result { own } else { last[&parameter] };
        function.values[result].definition = Definition::Result(wait, 0);
        function.insts[wait].results = smallvec![result];
        function.insts[wait].operands = smallvec![dot];
        count_later(function, wait);
        let out = self.out.clone();
        for other in out {
            for operand in &mut self.function.insts[other].operands {
                if *operand == result {
                    *operand = own;
                }
            }
        }
        self.out.push(wait);
    }

    /// Returns the indices of the carried values that the last stage computes.
    pub(super) fn late_values(&self, pipeline: &Pipeline) -> Vec<usize> {
        let yielded = self.function.yielded(self.body);
        let is_late = |index: &usize| pipeline.ahead_of.get(&yielded[*index]) == Some(&0);
        (0..yielded.len()).filter(is_late).collect()
    }

    /// Emits the ops of the last stage of the last iteration in a branch.
    pub(super) fn last_iteration(
        &mut self,
        pipeline: &Pipeline,
        ops: Vec<Inst>,
        copies: &mut FxHashMap<Value, Value>,
        in_range: Value,
    ) {
        let loop_inst = self.plan.inst;
        let parameters = self.function.blocks[self.body].parameters.clone();
        let late = self.late_values(pipeline);
        let (mut results, mut kept): (SmallVec<[Value; 1]>, Vec<Value>) = (smallvec![], Vec::new());
        for index in &late {
            // The branch defines the loop's old result, so its uses stay valid.
            let result = self.function.insts[loop_inst].results[*index];
            let definition = self.function.values[result].definition;
            let ty = self.function.ty(result).clone();
            let own = self.function.values.push(ValueData { ty, definition, name: None });
            self.function.insts[loop_inst].results[*index] = own;
            copies.insert(parameters[index + 1], own);
            results.push(result);
            kept.push(own);
        }
        let outside = std::mem::take(&mut self.out);
        for inst in ops {
            self.copy(inst, copies);
        }
        let yielded = self.function.yielded(self.body).to_vec();
        let yielded: Vec<Value> = late.iter().map(|index| copies[&yielded[*index]]).collect();
        self.emit(ir::Op::Yield {}, &yielded, None);
        let then = std::mem::take(&mut self.out);
        let then = self.region(then);
        self.emit(ir::Op::Yield {}, &kept, None);
        let otherwise = std::mem::replace(&mut self.out, outside);
        let otherwise = self.region(otherwise);
        let branch = self.emit(ir::Op::If {}, &[in_range], None);
        self.function.insts[branch].regions = smallvec![then, otherwise];
        for (index, result) in results.iter().enumerate() {
            self.function.values[*result].definition = Definition::Result(branch, index as u32);
        }
        self.function.insts[branch].results = results;
    }

    pub(super) fn region(&mut self, insts: Vec<Inst>) -> Block {
        self.function.blocks.push(BlockData { parameters: smallvec![], insts })
    }

    /// Returns the last stage's ops for the next loop, which continues their accumulators.
    pub(super) fn tail_for_next(
        &mut self,
        pipeline: &Pipeline,
        ops: &[Inst],
        mut copies: FxHashMap<Value, Value>,
        next: Inst,
    ) -> Tail {
        let own = std::mem::take(&mut self.out);
        let mut tail = Vec::new();
        for inst in ops {
            self.copy(*inst, &mut copies);
            tail.push((pipeline.order(*inst), self.out.pop().expect("`copy` emits an instruction")));
        }
        self.out = own;
        let yielded = self.function.yielded(self.body).to_vec();
        let results = self.function.insts[self.plan.inst].results.clone();
        for index in self.late_values(pipeline) {
            let accumulator = copies[&yielded[index]];
            for operand in &mut self.function.insts[next].operands {
                if *operand == results[index] {
                    *operand = accumulator;
                }
            }
        }
        Tail(tail)
    }
}
