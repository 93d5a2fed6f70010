//! A tensor copy overwrites a slot only behind a wait of the threads after their last read of it: a barrier, or an
//! `mbarrier` that those who read arrived at. No proxy fence is needed in that direction. Tensor stores that read a slot
//! were waited for before anything writes it.

use tilewright_ir as ir;
use tilewright_ir::{Inst, Operation, Value};

use super::super::{GpuOp, Op};
use super::flow::{Check, Meet, Rule, walk};
use super::slots::{Edge, Facts, Names, join_facts, rename_facts};

/// Groups beyond this count as this many.
const MOST_GROUPS: u32 = 64;

/// How far the reads of a slot are: of two paths, what is less far counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Read {
    /// A tensor store reads it, and so many were begun after that.
    Stored(u32),
    /// Other threads may still read it.
    Loaded,
    Done,
}

fn join(one: &mut Read, other: Read) {
    *one = (*one).min(other);
}

/// Checks what overwrites what was read.
pub fn check(names: &Names<'_>) -> Check {
    walk(names, &mut Reads { names }, Facts::new())
}

struct Reads<'a> {
    names: &'a Names<'a>,
}

impl Rule for Reads<'_> {
    type State = Facts<Read>;

    fn step(&mut self, inst: Inst, state: &mut Self::State) -> Check {
        let data = &self.names.function.insts[inst];
        let Op::Gpu(op) = &data.op else {
            if matches!(data.op, Op::Tile(ir::Op::Barrier {})) {
                wait(state);
            }
            return Ok(());
        };
        match op {
            GpuOp::LocalLoad { .. } | GpuOp::MmaSync { .. } | GpuOp::FmaDot { .. } | GpuOp::Wgmma { .. } => {
                let operands = if data.operands.len() > 1 { &data.operands[..2] } else { &data.operands[..] };
                for slot in operands.iter().filter_map(|value| self.names.slot(*value)) {
                    join(state.entry(slot).or_insert(Read::Done), Read::Loaded);
                }
            }
            GpuOp::TensorStore {} => {
                for read in state.values_mut() {
                    if let Read::Stored(later) = read {
                        *later = (*later + 1).min(MOST_GROUPS);
                    }
                }
                state.extend(self.names.slot(data.operands[0]).map(|slot| (slot, Read::Stored(0))));
            }
            GpuOp::TensorStoreWait { pending } => {
                for read in state.values_mut() {
                    if matches!(read, Read::Stored(later) if *later >= *pending) {
                        // The thread that waits is one of them all.
                        *read = Read::Loaded;
                    }
                }
            }
            GpuOp::NamedBarrier { .. } | GpuOp::MbarrierWait {} => wait(state),
            GpuOp::LocalStore {} | GpuOp::CopyAsync { .. } | GpuOp::TensorLoad {} => {
                let is_tensor = matches!(op, GpuOp::TensorLoad {});
                let read = self.names.slot(data.operands[0]).and_then(|slot| state.get(&slot));
                return self.done(inst, data.operands[0], read.copied(), is_tensor);
            }
            GpuOp::Dealloc {} => {
                let reads = state.iter().filter(|(slot, _)| slot.root == data.operands[0]);
                let least = reads.map(|(_, read)| *read).min();
                self.done(inst, data.operands[0], least, false)?;
                state.retain(|slot, _| slot.root != data.operands[0]);
            }
            // tidy: wildcard because no other op reads or writes shared memory
            _ => {}
        }
        Ok(())
    }

    fn join(&self, state: &mut Self::State, other: &Self::State, _meet: Meet) {
        join_facts(state, other, join);
    }

    fn rename(&self, state: &mut Self::State, edge: &Edge<'_>) {
        rename_facts(self.names, state, edge, join);
    }
}

impl Reads<'_> {
    fn done(&self, inst: Inst, memory: Value, read: Option<Read>, is_tensor: bool) -> Check {
        let (name, text) = (self.names.function.insts[inst].op.name(), self.names.text(memory));
        match read {
            Some(Read::Stored(later)) => Err(format!(
                "{name} uses {text} while a tensor_store reads it: a tensor_store_wait that leaves no more than {later} \
                 pending has to stand between"
            )),
            Some(Read::Loaded) if is_tensor => Err(format!(
                "{name} overwrites {text}, which other threads may still read: a barrier or an mbarrier_wait has to stand \
                 between"
            )),
            _ => Ok(()),
        }
    }
}

/// The threads have waited for each other.
fn wait(state: &mut Facts<Read>) {
    state.values_mut().filter(|read| **read == Read::Loaded).for_each(|read| *read = Read::Done);
}
