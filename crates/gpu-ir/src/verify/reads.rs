//! Overwritten slots: a tensor copy waits for the last read of its slot.
//!
//! The wait is for a barrier, or an `mbarrier` at which the readers arrived. A copy after ordinary
//! reads needs no proxy fence. Any write waits for the tensor stores that read the slot. With the
//! flag `synchronized`, ordinary writes also wait for ordinary reads by other threads.

use tilewright_ir as ir;
use tilewright_ir::{AsyncPhase, Inst, Operation, Value};

use crate::analysis::dataflow::{Check, JoinPoint, Transfer, join_facts, walk};
use crate::analysis::slots::{Edge, Facts, SlotAnalysis, rename_facts};
use crate::{GpuOp, Op};

/// The limit of the count of groups.
const MAX_GROUPS: u32 = 64;

/// The progress of the reads of a slot; joins take the lesser one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ReadState {
    /// A dot with this many later dots may read it.
    Dot(u32),
    /// A tensor store with this many later ones reads it.
    Stored(u32),
    /// The thread of the tensor stores has waited; other threads have not.
    Awaited,
    /// Other threads may still read it.
    Loaded,
    Done,
}

fn join(one: &mut ReadState, other: ReadState) {
    *one = (*one).min(other);
}

/// Checks every write to a slot against earlier reads.
pub fn check(analysis: &SlotAnalysis<'_>) -> Check {
    walk(analysis, &mut Reads { analysis }, Facts::new())
}

struct Reads<'a> {
    analysis: &'a SlotAnalysis<'a>,
}

impl Transfer for Reads<'_> {
    type State = Facts<ReadState>;

    fn step(&mut self, inst: Inst, state: &mut Self::State) -> Check {
        let data = &self.analysis.function.insts[inst];
        let Op::Gpu(op) = &data.op else {
            if matches!(data.op, Op::Tile(ir::Op::Barrier {})) {
                wait(state);
            }
            return Ok(());
        };
        match op {
            GpuOp::LocalLoad { .. }
            | GpuOp::GatherBlocks { .. }
            | GpuOp::ClcLoadResult { .. }
            | GpuOp::MmaSync { .. }
            | GpuOp::FmaDot { .. } => {
                self.read(&data.operands, ReadState::Loaded, state);
            }
            GpuOp::Wgmma { .. } => {
                for read in state.values_mut() {
                    if let ReadState::Dot(later) = read {
                        *later = (*later + 1).min(MAX_GROUPS);
                    }
                }
                self.read(&data.operands, ReadState::Dot(0), state);
            }
            GpuOp::WgmmaWait { pending } => finish(pending.0.unwrap_or(0), state),
            GpuOp::WgmmaWaitEarlier { pending } => finish(*pending, state),
            GpuOp::TensorStore {} | GpuOp::TensorReduce { .. } => {
                for read in state.values_mut() {
                    if let ReadState::Stored(later) = read {
                        *later = (*later + 1).min(MAX_GROUPS);
                    }
                }
                state.extend(self.analysis.slot(data.operands[0]).map(|slot| (slot, ReadState::Stored(0))));
            }
            GpuOp::TensorStoreWait { pending, .. } => {
                for read in state.values_mut() {
                    if matches!(read, ReadState::Stored(later) if *later >= *pending) {
                        *read = ReadState::Awaited;
                    }
                }
            }
            GpuOp::NamedBarrier { .. } | GpuOp::MbarrierWait {} => wait(state),
            op if op.info().memory.writes_shared() || matches!(op, GpuOp::Release {}) => {
                let is_tensor = op.info().phase == AsyncPhase::StartsTensorLoad;
                let read = self.analysis.slot(data.operands[0]).and_then(|slot| state.get(&slot));
                return self.ensure_done(inst, data.operands[0], read.copied(), is_tensor);
            }
            GpuOp::Dealloc {} => {
                let reads = state.iter().filter(|(slot, _)| slot.root == data.operands[0]);
                let least = reads.map(|(_, read)| *read).min();
                self.ensure_done(inst, data.operands[0], least, false)?;
                state.retain(|slot, _| slot.root != data.operands[0]);
            }
            // tidy: wildcard because no other op reads or writes shared memory
            _ => {}
        }
        Ok(())
    }

    fn join(&self, state: &mut Self::State, other: &Self::State, point: JoinPoint) {
        join_facts(self.analysis, state, other, point, join);
    }

    fn rename(&self, state: &mut Self::State, edge: &Edge) {
        rename_facts(self.analysis, state, edge, join);
    }
}

impl Reads<'_> {
    /// Records a read of the first two operands, if they are in memory.
    fn read(&self, operands: &[Value], read: ReadState, state: &mut Facts<ReadState>) {
        for slot in operands.iter().take(2).filter_map(|value| self.analysis.slot(*value)) {
            join(state.entry(slot).or_insert(ReadState::Done), read);
        }
    }

    /// Returns whether an instruction frees memory. It needs no barrier, because a pass places one
    /// before the next use of the memory.
    fn is_end(&self, inst: Inst) -> bool {
        matches!(self.analysis.function.insts[inst].op, Op::Gpu(GpuOp::Dealloc {} | GpuOp::Release {}))
    }

    fn ensure_done(&self, inst: Inst, memory: Value, read: Option<ReadState>, is_tensor: bool) -> Check {
        let (name, text) = (self.analysis.function.insts[inst].op.name(), self.analysis.text(memory));
        match read {
            Some(ReadState::Stored(later)) => Err(format!(
                "{name} uses {text} while a tensor_store reads it: add a tensor_store_wait that leaves at \
                 most {later} pending"
            )),
            Some(ReadState::Awaited) if self.analysis.synchronized && !self.is_end(inst) => Err(format!(
                "{name} uses {text} after only one thread has waited for its tensor_store: add a barrier"
            )),
            Some(ReadState::Loaded) if self.analysis.synchronized && !self.is_end(inst) => {
                Err(format!("{name} overwrites {text}, which other threads may still read: add a barrier"))
            }
            Some(ReadState::Loaded | ReadState::Awaited) if is_tensor => Err(format!(
                "{name} overwrites {text}, which other threads may still read: add a barrier or an \
                 mbarrier_wait"
            )),
            _ => Ok(()),
        }
    }
}

/// Completes all dots but the latest `pending`.
fn finish(pending: u32, state: &mut Facts<ReadState>) {
    for read in state.values_mut() {
        // Other warps may still read the slot, so the read is `Loaded`, not `Done`.
        if matches!(read, ReadState::Dot(later) if *later >= pending) {
            *read = ReadState::Loaded;
        }
    }
}

/// Records that the threads have waited for each other.
fn wait(state: &mut Facts<ReadState>) {
    let waited = |read: &&mut ReadState| matches!(read, ReadState::Loaded | ReadState::Awaited);
    state.values_mut().filter(waited).for_each(|read| *read = ReadState::Done);
}
