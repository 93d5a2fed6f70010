//! Keeps the accumulators of loops in tensor memory between iterations.
//!
//! ```text
//! %r = for_loop …, %c (%acc: fp32[…])        %i = wgmma_init %c
//!   %d = wgmma %a, %b, %acc                  %p = for_loop …, %i (%acc: pending<…>)
//!   %e = wgmma_wait %d {pending = 0}     =>    %d = wgmma %a, %b, %acc
//!   yield %e                                   %e = wgmma_wait_earlier %d {pending = 0}
//!                                              yield %e
//!                                            %r = wgmma_wait %p {pending = 0}
//! ```
//! Without this pass, each iteration would store the accumulator to tensor memory and load it. Its
//! registers would be live while threads compute the operands of the dot.
//!
//! Assumes that loops are pipelined: pipelining itself keeps accumulators of dots in flight.
//! Guarantees that dots start and complete in the same order. An accumulator that a loop also reads
//! or changes outside of dots stays in registers.

use rustc_hash::FxHashMap;
use tilewright_ir as ir;
use tilewright_ir::{Block, Carried, Cursor, Inst, OpFamily, Operation, Uses, Value};

use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::target::Feature;
use tilewright_gpu_ir::{Deferred, Function, GpuOp, Module, Op, Type};

/// Moves loads and stores of accumulators out of loops, on targets with tensor memory.
pub fn hoist_accumulators(module: &mut Module) {
    if !module.header.target.features.has(Feature::Tcgen05) {
        return;
    }
    let function = &mut module.functions[module.entry];
    let mut loops = Vec::new();
    find_loops(function, function.entry, &mut loops);
    for (inst, block) in loops {
        for number in 0..function.insts[inst].results.len() {
            let uses = Uses::new(function);
            let carried: Vec<Carried> = function.carried(inst).collect();
            if let Some(chain) = Chain::of(function, &uses, inst, &carried[number]) {
                let initial = function.insts[inst].operands.len() - carried.len() + number;
                chain.keep_in_tensor_memory(function, block, initial, &carried[number]);
            }
        }
    }
}

/// Finds the counted loops of a block, inner loops first.
fn find_loops(function: &Function, block: Block, loops: &mut Vec<(Inst, Block)>) {
    for &inst in &function.blocks[block].insts {
        let data = &function.insts[inst];
        for &region in &data.regions {
            find_loops(function, region, loops);
        }
        if matches!(data.op.as_tile(), Some(ir::Op::For { .. })) {
            loops.push((inst, block));
        }
    }
}

/// The ops of a loop's body that pass its accumulator on, each the only reader of the previous one.
struct Chain {
    inst: Inst,
    /// The waits after which the accumulator would be loaded.
    waits: Vec<Inst>,
    /// The starts of inner loops, where the accumulator would be stored.
    starts: Vec<Inst>,
}

impl Chain {
    /// Returns the chain from a parameter of a loop to its yielded value. Returns `None` if there
    /// is another reader, or no dot.
    fn of(function: &Function, uses: &Uses, inst: Inst, carried: &Carried) -> Option<Self> {
        let ([parameter], [yielded]) = (&carried.parameters[..], &carried.yielded[..]) else { return None };
        if !matches!(function.ty(*parameter), Type::Registers { layout: Some(_), .. }) {
            return None;
        }
        let body = function.insts[inst].regions[0];
        let mut chain = Self { inst, waits: Vec::new(), starts: Vec::new() };
        let mut value = *parameter;
        let mut has_dot = false;
        while value != *yielded || !has_dot {
            let is_in_body = |inst: &Inst| function.blocks[body].insts.contains(inst);
            let reader = uses.only(value).filter(|reader| is_in_body(&reader.inst))?;
            let data = &function.insts[reader.inst];
            value = match &data.op {
                Op::Gpu(GpuOp::Wgmma { .. }) if reader.operand == 2 => {
                    has_dot = true;
                    data.results[0]
                }
                Op::Gpu(GpuOp::WgmmaWait { .. }) if reader.operand == 0 => {
                    chain.waits.push(reader.inst);
                    data.results[0]
                }
                Op::Gpu(GpuOp::WgmmaInit {}) => {
                    chain.starts.push(reader.inst);
                    data.results[0]
                }
                // An inner loop whose accumulator is in tensor memory. Loops of `mma` have it in registers.
                op if op.info().family == OpFamily::Loop
                    && matches!(function.ty(value), Type::Pending { .. }) =>
                {
                    let is_value = |other: &Carried| other.initial == Some(value);
                    has_dot = true;
                    function.carried(reader.inst).find(is_value)?.result
                }
                // tidy: wildcard because other ops read the accumulator in registers
                _ => return None,
            };
        }
        // The terminator of the body is the only reader of the yielded value.
        uses.only(value).map(|_| chain)
    }

    /// Changes the type of the accumulator in the loop. `initial` is the index of its operand.
    fn keep_in_tensor_memory(
        &self,
        function: &mut Function,
        block: Block,
        initial: usize,
        carried: &Carried,
    ) {
        let ty = function.ty(carried.result).clone();
        let Type::Registers { tile, layout: Some(layout) } = ty.clone() else { return };
        let pending = Type::Pending { tile, layout };
        let mut replaced = FxHashMap::default();
        for &start in &self.starts {
            let data = &function.insts[start];
            replaced.insert(data.results[0], data.operands[0]);
        }
        for &wait in &self.waits {
            let data = &mut function.insts[wait];
            let Op::Gpu(GpuOp::WgmmaWait { pending }) = data.op else { continue };
            data.op = GpuOp::WgmmaWaitEarlier { pending: pending.0.unwrap_or(0) }.into();
            data.operands.truncate(1);
            let result = data.results[0];
            function.values[result].ty = pending_of(function, result);
        }
        for value in carried.parameters.iter().chain([&carried.result]) {
            function.values[*value].ty = pending.clone();
        }
        let body = function.insts[self.inst].regions[0];
        function.blocks[body].insts.retain(|inst| !self.starts.contains(inst));
        function.replace_uses(&replaced, |_| false);

        let mut cursor = Cursor::before(function, block, self.inst);
        cursor.use_location_of(self.inst);
        let tile = cursor.function.insts[self.inst].operands[initial];
        let started = cursor.value(GpuOp::WgmmaInit {}, &[tile], pending);
        cursor.function.insts[self.inst].operands[initial] = started;
        cursor.go_after(block, self.inst);
        let op = GpuOp::WgmmaWait { pending: Deferred(Some(0)) };
        let loaded = cursor.value(op, &[carried.result], ty);
        let wait = cursor.function.defining_inst(loaded);
        cursor.function.copy_name(carried.result, loaded);
        let replaced = [(carried.result, loaded)].into_iter().collect();
        function.replace_uses(&replaced, |inst| Some(inst) == wait);
        let subject = || remarks::subject(function, self.inst, None);
        remarks::about("hoist_accumulators", function, self.inst, subject, || {
            let reason = "only dots of the loop read it";
            RemarkReason::done("the accumulator stays in tensor memory between iterations", reason)
        });
    }
}

/// Returns the type of an accumulator in flight that a value in registers becomes.
fn pending_of(function: &Function, value: Value) -> Type {
    match function.ty(value).clone() {
        Type::Registers { tile, layout: Some(layout) } => Type::Pending { tile, layout },
        // tidy: wildcard because waits return tiles in registers
        other => other,
    }
}
