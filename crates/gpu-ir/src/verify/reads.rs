//! A tensor copy overwrites a slot only behind a wait of the threads after their last read of it: a barrier, or an
//! `mbarrier` that those who read arrived at. No proxy fence is needed in that direction. Tensor stores that read a slot
//! were waited for before anything writes it. When the module is synchronized, other writes stand behind a wait too, which a pass
//! has put there.

use tilewright_ir as ir;
use tilewright_ir::{Inst, Operation, Value};

use crate::analysis::dataflow::{Check, Meet, Rule, walk};
use crate::analysis::slots::{Edge, Facts, Names, join_facts, rename_facts};
use crate::{GpuOp, Op};

/// Groups beyond this count as this many.
const MOST_GROUPS: u32 = 64;

/// How far the reads of a slot are: of two paths, what is less far counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Read {
    /// A product may read it, and so many were begun after that.
    Product(u32),
    /// A tensor store reads it, and so many were begun after that.
    Stored(u32),
    /// The one thread that stores tensors has waited.
    Awaited,
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
            GpuOp::LocalLoad { .. } | GpuOp::MmaSync { .. } | GpuOp::FmaDot { .. } => {
                self.read(&data.operands, Read::Loaded, state);
            }
            GpuOp::Wgmma { .. } => {
                for read in state.values_mut() {
                    if let Read::Product(later) = read {
                        *later = (*later + 1).min(MOST_GROUPS);
                    }
                }
                self.read(&data.operands, Read::Product(0), state);
            }
            GpuOp::Finish { pending } => finish(pending.0.unwrap_or(0), state),
            GpuOp::Settle { pending } => finish(*pending, state),
            GpuOp::TensorStore {} | GpuOp::TensorReduce { .. } => {
                for read in state.values_mut() {
                    if let Read::Stored(later) = read {
                        *later = (*later + 1).min(MOST_GROUPS);
                    }
                }
                state.extend(self.names.slot(data.operands[0]).map(|slot| (slot, Read::Stored(0))));
            }
            GpuOp::TensorStoreWait { pending, .. } => {
                for read in state.values_mut() {
                    if matches!(read, Read::Stored(later) if *later >= *pending) {
                        *read = Read::Awaited;
                    }
                }
            }
            GpuOp::NamedBarrier { .. } | GpuOp::MbarrierWait {} => wait(state),
            GpuOp::LocalStore {}
            | GpuOp::LocalCount {}
            | GpuOp::CopyAsync { .. }
            | GpuOp::TensorLoad {}
            | GpuOp::Release {} => {
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

    fn rename(&self, state: &mut Self::State, edge: &Edge) {
        rename_facts(self.names, state, edge, join);
    }
}

impl Reads<'_> {
    /// The first two operands, as far as they are in memory.
    fn read(&self, operands: &[Value], read: Read, state: &mut Facts<Read>) {
        for slot in operands.iter().take(2).filter_map(|value| self.names.slot(*value)) {
            join(state.entry(slot).or_insert(Read::Done), read);
        }
    }

    /// Whether it gives memory up: what the memory is used for next is ordered by the pass that places barriers.
    fn is_end(&self, inst: Inst) -> bool {
        matches!(self.names.function.insts[inst].op, Op::Gpu(GpuOp::Dealloc {} | GpuOp::Release {}))
    }

    fn done(&self, inst: Inst, memory: Value, read: Option<Read>, is_tensor: bool) -> Check {
        let (name, text) = (self.names.function.insts[inst].op.name(), self.names.text(memory));
        match read {
            Some(Read::Stored(later)) => Err(format!(
                "{name} uses {text} while a tensor_store reads it: a tensor_store_wait that leaves no more than {later} \
                 pending has to stand between"
            )),
            Some(Read::Awaited) if self.names.synchronized && !self.is_end(inst) => Err(format!(
                "{name} uses {text} when one thread alone has waited for its tensor_store: a barrier has to stand between"
            )),
            Some(Read::Loaded) if self.names.synchronized && !self.is_end(inst) => Err(format!(
                "{name} overwrites {text}, which other threads may still read: a barrier has to stand between"
            )),
            Some(Read::Loaded | Read::Awaited) if is_tensor => Err(format!(
                "{name} overwrites {text}, which other threads may still read: a barrier or an mbarrier_wait has to stand \
                 between"
            )),
            _ => Ok(()),
        }
    }
}

/// All products are done but so many of the latest.
fn finish(pending: u32, state: &mut Facts<Read>) {
    for read in state.values_mut() {
        // Other warps finish theirs on their own.
        if matches!(read, Read::Product(later) if *later >= pending) {
            *read = Read::Loaded;
        }
    }
}

/// The threads have waited for each other.
fn wait(state: &mut Facts<Read>) {
    let waited = |read: &&mut Read| matches!(read, Read::Loaded | Read::Awaited);
    state.values_mut().filter(waited).for_each(|read| *read = Read::Done);
}
