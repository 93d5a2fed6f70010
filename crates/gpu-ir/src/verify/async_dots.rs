//! Asynchronous dots: nothing writes or frees a slot that they may read. A `wgmma_wait` waits for
//! the dot of its accumulator. Dots in the same registers differ by the number of dots issued after
//! them.
//!
//! Dots complete in order: `wgmma_wait {pending = n}` leaves the latest `n` in flight. Until `n` is
//! known, the rule assumes the largest `n` that completes the dot.

use std::collections::BTreeMap;

use tilewright_ir::{Inst, Operation, Value};

use crate::analysis::dataflow::{Check, JoinPoint, Transfer, walk};
use crate::analysis::slots::{Edge, Slot, SlotAnalysis};
use crate::{Deferred, GpuOp, Op};

/// The limit of the count of later dots.
const MAX_LATER_DOTS: u32 = 64;

/// The dots in flight that share an accumulator.
#[derive(Clone, PartialEq, Eq, Debug)]
struct DotsInFlight {
    /// The slots that the dots may read. Each has a lower bound of the dots issued later.
    reads: BTreeMap<Slot, u32>,
    /// A lower bound of the dots that were issued after the last one.
    later: u32,
}

impl DotsInFlight {
    fn join(&mut self, other: &Self) {
        for (slot, later) in &other.reads {
            let known = self.reads.entry(*slot).or_insert(*later);
            *known = (*known).min(*later);
        }
        self.later = self.later.min(other.later);
    }
}

/// Checks the dots of a function.
pub fn check(analysis: &SlotAnalysis<'_>) -> Check {
    walk(analysis, &mut AsyncDots { analysis }, BTreeMap::new())
}

/// The dots in flight, by their `pending` accumulator.
type State = BTreeMap<Value, DotsInFlight>;

struct AsyncDots<'a> {
    analysis: &'a SlotAnalysis<'a>,
}

impl Transfer for AsyncDots<'_> {
    type State = State;

    fn step(&mut self, inst: Inst, state: &mut State) -> Check {
        let data = &self.analysis.function.insts[inst];
        let Op::Gpu(op) = &data.op else { return Ok(()) };
        match op {
            GpuOp::Wgmma { .. } => {
                for dots in state.values_mut() {
                    for later in dots.reads.values_mut().chain([&mut dots.later]) {
                        *later = (*later + 1).min(MAX_LATER_DOTS);
                    }
                }
                let before = state.remove(&data.operands[2]);
                let mut reads = before.map(|before| before.reads).unwrap_or_default();
                let own = data.operands[..2].iter().filter_map(|value| self.analysis.slot(*value));
                reads.extend(own.map(|slot| (slot, 0)));
                state.insert(data.results[0], DotsInFlight { reads, later: 0 });
                Ok(())
            }
            GpuOp::WgmmaWait { pending: Deferred(pending) } => {
                let Some(dots) = state.remove(&data.operands[0]) else { return Ok(()) };
                let pending = pending.unwrap_or(dots.later);
                if pending > dots.later {
                    let (name, text) = (data.op.name(), self.analysis.text(data.operands[0]));
                    return Err(format!(
                        "{name} leaves {pending} dots in flight, and {text} may be one of them: {} were \
                         issued after it",
                        dots.later
                    ));
                }
                finish(pending, state);
                Ok(())
            }
            GpuOp::WgmmaWaitEarlier { pending } => {
                let Some(dots) = state.remove(&data.operands[0]) else { return Ok(()) };
                state.insert(data.results[0], dots);
                finish(*pending, state);
                Ok(())
            }
            op if op.info().memory.writes_shared() || matches!(op, GpuOp::Release {}) => {
                let memory = data.operands[0];
                let slot = self.analysis.slot(memory);
                self.unread(inst, state, |read| Some(*read) == slot)
            }
            GpuOp::Dealloc {} => self.unread(inst, state, |read| read.root == data.operands[0]),
            // tidy: wildcard because no other op writes shared memory
            _ => Ok(()),
        }
    }

    fn join(&self, state: &mut State, other: &State, point: JoinPoint) {
        if self.analysis.explicit && point == JoinPoint::Branch {
            state.retain(|token, dots| other.get(token) == Some(dots));
            return;
        }
        for (token, dots) in other {
            state.entry(*token).or_insert_with(|| dots.clone()).join(dots);
        }
    }

    fn rename(&self, state: &mut State, edge: &Edge) {
        for (token, mut dots) in std::mem::take(state) {
            let mut reads = BTreeMap::new();
            for (slot, later) in dots.reads {
                let known = reads.entry(self.analysis.rename(slot, edge)).or_insert(later);
                *known = later.min(*known);
            }
            dots.reads = reads;
            let token = edge.token(token).unwrap_or(token);
            state.entry(token).or_insert_with(|| dots.clone()).join(&dots);
        }
    }
}

/// Completes all dots but the latest `pending`.
fn finish(pending: u32, state: &mut State) {
    for dots in state.values_mut() {
        dots.reads.retain(|_, later| *later < pending);
    }
}

impl AsyncDots<'_> {
    /// Checks that no dot in flight reads a slot that an instruction writes or frees.
    fn unread(&self, inst: Inst, state: &State, is_it: impl Fn(&Slot) -> bool) -> Check {
        let Some((token, _)) = state.iter().find(|(_, dots)| dots.reads.keys().any(&is_it)) else {
            return Ok(());
        };
        let data = &self.analysis.function.insts[inst];
        let [memory, token] = [data.operands[0], *token].map(|value| self.analysis.text(value));
        let what = match data.op {
            Op::Gpu(GpuOp::Release {} | GpuOp::Dealloc {}) => "frees",
            // tidy: wildcard because the other callers write
            _ => "writes",
        };
        let name = data.op.name();
        Err(format!("{name} {what} {memory}, which the dot {token} may still read: wait for the dot first"))
    }
}
