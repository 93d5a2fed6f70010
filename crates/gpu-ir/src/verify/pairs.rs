//! Dots of pairs of blocks. A dot reads the operands in both blocks, so the blocks synchronize after
//! they have written them. They also synchronize after the last dot, before a block frees its tensor
//! memory.
//!
//! Blocks synchronize at a barrier of the cluster. A wait for an `mbarrier` at which other blocks or
//! their copies arrive also counts. A kernel has tensor memory of pairs or of single blocks.

use tilewright_ir::{Inst, Operation, Value};

use crate::analysis::dataflow::{Check, JoinPoint, Transfer, join_facts, walk};
use crate::analysis::slots::{Edge, Facts, SlotAnalysis, rename_facts};
use crate::{GpuOp, Op, TensorMemory};

/// Checks the dots of pairs of blocks of a function.
pub fn check(analysis: &SlotAnalysis<'_>) -> Check {
    let function = analysis.function;
    let (mut pair, mut single) = (None, None);
    for value in function.values.keys() {
        match function.ty(value).as_tensor_memory() {
            Some(memory) if memory.is_of_pair() => pair = pair.or(Some(value)),
            Some(_) => single = single.or(Some(value)),
            None => {}
        }
    }
    if let (Some(pair), Some(single)) = (pair, single) {
        let [pair, single] = [pair, single].map(|value| analysis.text(value));
        return Err(format!(
            "{pair} is tensor memory of pairs of blocks, but {single} is of single blocks: a kernel has one kind"
        ));
    }
    let (mut shared, mut to_pair) = (Vec::new(), None);
    function.walk(function.entry, &mut |inst| {
        let Op::Gpu(op) = &function.insts[inst].op else { return };
        match op {
            GpuOp::MbarrierArriveAt { .. } | GpuOp::TensorLoadTo { at_lead: true, .. } => {
                shared.extend(analysis.barrier(inst).map(|slot| slot.root));
            }
            GpuOp::Tcgen05Commit { pair: true } => to_pair = to_pair.or(Some(inst)),
            // tidy: wildcard because nothing else arrives at the mbarriers of other blocks for them
            _ => {}
        }
    });
    if let (Some(inst), None) = (to_pair, pair) {
        analysis.blame(inst);
        return Err("tcgen05_commit is for dots of a pair of blocks, and the kernel has none".to_owned());
    }
    if pair.is_none() {
        return Ok(());
    }
    walk(analysis, &mut Pairs { analysis, shared }, State::default())
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct State {
    /// The slots that the block has written since the blocks synchronized, with the last writer.
    written: Facts<Inst>,
    /// The last dot or copy since a barrier of the cluster.
    used: Option<Inst>,
}

struct Pairs<'a> {
    analysis: &'a SlotAnalysis<'a>,
    /// The `mbarrier`s at which other blocks arrive.
    shared: Vec<Value>,
}

impl Transfer for Pairs<'_> {
    type State = State;

    fn step(&mut self, inst: Inst, state: &mut State) -> Check {
        let data = &self.analysis.function.insts[inst];
        let Op::Gpu(op) = &data.op else { return Ok(()) };
        match op {
            GpuOp::TensorLoad {}
            | GpuOp::TensorLoadTo { at_lead: false, .. }
            | GpuOp::LocalStore {}
            | GpuOp::CopyAsync { .. } => {
                if let Some(slot) = self.analysis.slot(data.operands[0]) {
                    state.written.insert(slot, inst);
                }
            }
            GpuOp::ClusterWait {} => *state = State::default(),
            GpuOp::MbarrierWait {} if self.shared.contains(&data.operands[0]) => state.written.clear(),
            GpuOp::Tcgen05Mma { .. } if self.is_of_pair(data.operands[2]) => {
                self.read(inst, &data.operands[..2], state)?;
            }
            GpuOp::Tcgen05Copy {} if self.is_of_pair(data.operands[1]) => {
                self.read(inst, &data.operands[..1], state)?;
            }
            GpuOp::Tcgen05Dealloc { .. } => {
                if let Some(used) = state.used {
                    return Err(format!(
                        "tcgen05_dealloc frees tensor memory that a {} of the other block of the pair may use: add a \
                         barrier of the cluster before it",
                        self.analysis.function.insts[used].op.name()
                    ));
                }
            }
            // tidy: wildcard because no other op writes operands, uses them, or synchronizes blocks
            _ => {}
        }
        Ok(())
    }

    fn join(&self, state: &mut State, other: &State, point: JoinPoint) {
        join_facts(self.analysis, &mut state.written, &other.written, point, |_, _| {});
        state.used = state.used.or(other.used);
    }

    fn rename(&self, state: &mut State, edge: &Edge) {
        rename_facts(self.analysis, &mut state.written, edge, |_, _| {});
    }
}

impl Pairs<'_> {
    fn is_of_pair(&self, memory: Value) -> bool {
        self.analysis.function.ty(memory).as_tensor_memory().is_some_and(TensorMemory::is_of_pair)
    }

    /// Checks that both blocks have written the operands of a dot or a copy.
    fn read(&self, inst: Inst, operands: &[Value], state: &mut State) -> Check {
        state.used = Some(inst);
        let function = self.analysis.function;
        for operand in operands {
            let Some(slot) = self.analysis.slot(*operand) else { continue };
            let Some(writer) = state.written.get(&slot) else { continue };
            let (name, text) = (function.insts[inst].op.name(), self.analysis.text(slot.root));
            let writer = function.insts[*writer].op.name();
            return Err(format!(
                "{name} reads {text} of both blocks, but this block has not waited for the {writer} of the other one: \
                 add a barrier of the cluster, or wait for an mbarrier with `two_ctas=True`"
            ));
        }
        Ok(())
    }
}
