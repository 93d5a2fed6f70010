//! Asynchronous copies: nothing accesses a slot before a wait for its copies. The asynchronous
//! proxy reads ordinary writes after a fence.
//!
//! ```text
//! copy_async ; commit_group ; wait_group ; barrier ; read
//! copy_async ; mbarrier_arrive_copies ; mbarrier_wait ; read
//! tensor_load ; mbarrier_wait ; read
//! local_store ; fence_proxy ; barrier ; tensor_store      the writing thread fences
//! local_store ; barrier ; fence_proxy ; tensor_store      the reading thread fences
//! ```
//! The `wait_group` leaves only later groups. An `mbarrier_wait` is for the barrier of the copies.
//! The fence is between the write and the read (PTX ISA, "Async proxy"). For `copy_async`, it
//! follows the wait. If another partition wrote the slot, an `mbarrier_wait` precedes the fence of
//! the reading thread.
//!
//! A module needs barriers only with the flag `synchronized`. [`mbarriers`] checks that a wait is
//! for the right phase.
//!
//! [`mbarriers`]: super::mbarriers

use tilewright_ir as ir;
use tilewright_ir::{Inst, Operation, Value};

use crate::analysis::dataflow::{Check, JoinPoint, Transfer, join_facts, walk};
use crate::analysis::slots::{Edge, Facts, Slot, SlotAnalysis, rename_facts};
use crate::{GpuOp, Op, Type};

/// The limit of the count of groups.
const MAX_GROUPS: u32 = 64;

/// The progress of the writes into a slot; joins take the lesser one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// Copies are in flight and in no group.
    Started,
    /// The copies are in a group with this many later groups.
    Committed(u32),
    /// A tensor copy is in flight.
    Tensor,
    /// Each thread has waited for its own copies, or has stored.
    Waited,
    /// The data is visible to all threads.
    Visible,
}

/// The asynchronous proxy's view of the data; joins take the lesser one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fence {
    Missing,
    /// Each thread has fenced its own writes.
    Own,
    Done,
}

/// The writes into a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct WriteState {
    stage: Stage,
    fence: Fence,
    /// The barrier that the copies in flight arrive at.
    arrives: Option<Slot>,
    /// The partition that wrote.
    partition: Option<(Inst, usize)>,
}

impl WriteState {
    fn join(&mut self, other: Self) {
        if other.stage < self.stage {
            (self.arrives, self.partition) = (other.arrives, other.partition);
        }
        self.stage = self.stage.min(other.stage);
        self.fence = self.fence.min(other.fence);
    }

    fn is_in_flight(&self) -> bool {
        self.stage < Stage::Waited
    }
}

/// Checks the copies of a function.
pub fn check(analysis: &SlotAnalysis<'_>) -> Check {
    let function = analysis.function;
    let (mut arrivals, mut waits) = (Vec::new(), Vec::new());
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if matches!(data.op, Op::Gpu(GpuOp::MbarrierWait {})) {
            waits.push((data.operands[0], analysis.partition(inst)));
        }
        if matches!(
            data.op,
            Op::Gpu(
                GpuOp::MbarrierExpect { .. }
                    | GpuOp::MbarrierArriveTimes { .. }
                    | GpuOp::MbarrierArrive {}
                    | GpuOp::MbarrierArriveAt { .. }
                    | GpuOp::MbarrierArriveCopies {}
                    | GpuOp::Tcgen05Commit { .. }
            )
        ) {
            arrivals.push((data.operands[0], analysis.partition(inst)));
        }
    });
    let published = published(analysis);
    walk(analysis, &mut Copies { analysis, arrivals, waits, published, partition: None }, Facts::new())
}

/// A buffer to which a partition copies before it arrives at the barrier.
struct PublishedCopies {
    barrier: Value,
    memory: Value,
    partition: Option<(Inst, usize)>,
}

fn published(analysis: &SlotAnalysis<'_>) -> Vec<PublishedCopies> {
    let function = analysis.function;
    let (mut in_flight, mut published): (Vec<Slot>, Vec<PublishedCopies>) = (Vec::new(), Vec::new());
    function.walk(function.entry, &mut |inst| match function.insts[inst].op {
        Op::Gpu(GpuOp::CopyAsync { .. }) if analysis.partition(inst).is_some() => {
            in_flight.extend(analysis.slot(function.insts[inst].operands[0]));
        }
        Op::Gpu(GpuOp::MbarrierArriveCopies {} | GpuOp::MbarrierTrackCopies {}) => {
            let (copied, partition) = (std::mem::take(&mut in_flight), analysis.partition(inst));
            let Some(barrier) = analysis.barrier(inst) else { return };
            let is_its = |slot: &Slot| {
                slot.index == barrier.index && analysis.slots(slot.root) == analysis.slots(barrier.root)
            };
            let of = |slot: Slot| PublishedCopies { barrier: barrier.root, memory: slot.root, partition };
            published.extend(copied.into_iter().filter(is_its).map(of));
        }
        // tidy: wildcard because nothing else copies or arrives for copies
        _ => {}
    });
    published
}

struct Copies<'a> {
    analysis: &'a SlotAnalysis<'a>,
    /// The barriers of arrivals, with the partitions that arrive.
    arrivals: Vec<(Value, Option<(Inst, usize)>)>,
    /// The barriers of waits, with the partitions that wait.
    waits: Vec<(Value, Option<(Inst, usize)>)>,
    published: Vec<PublishedCopies>,
    /// The partition of the current instruction.
    partition: Option<(Inst, usize)>,
}

impl Transfer for Copies<'_> {
    type State = Facts<WriteState>;

    fn step(&mut self, inst: Inst, state: &mut Self::State) -> Check {
        let data = &self.analysis.function.insts[inst];
        let operand = |index: usize| data.operands[index];
        let Op::Gpu(op) = &data.op else {
            if matches!(data.op, Op::Tile(ir::Op::Barrier {})) {
                synchronize(state);
            }
            return Ok(());
        };
        match op {
            GpuOp::CopyAsync { .. } => self.write(inst, state, Stage::Started, Fence::Missing),
            GpuOp::LocalStore {} | GpuOp::LocalHistogram {} => {
                self.write(inst, state, Stage::Waited, Fence::Missing)
            }
            GpuOp::TensorLoad {} | GpuOp::TensorLoadTo { .. } | GpuOp::ClcTryCancel { .. } => {
                self.write(inst, state, Stage::Tensor, Fence::Done)
            }
            GpuOp::LocalLoad { .. } | GpuOp::GatherBlocks { .. } | GpuOp::ClcLoadResult { .. } => {
                self.read(inst, state, operand(0), false)
            }
            GpuOp::MmaSync { .. }
            | GpuOp::FmaDot { .. }
            | GpuOp::Wgmma { .. }
            | GpuOp::Tcgen05Mma { .. }
            | GpuOp::Tcgen05MmaScaled { .. } => {
                let is_async = !matches!(op, GpuOp::MmaSync { .. } | GpuOp::FmaDot { .. });
                let places = [0, 1].into_iter();
                places.map(operand).try_for_each(|value| self.read(inst, state, value, is_async))
            }
            GpuOp::TensorStore {} | GpuOp::TensorReduce { .. } | GpuOp::Tcgen05Copy {} => {
                self.read(inst, state, operand(0), true)
            }
            GpuOp::CommitGroup {} => {
                each(state, |written| match written.stage {
                    Stage::Started => written.stage = Stage::Committed(0),
                    Stage::Committed(groups) => {
                        written.stage = Stage::Committed((groups + 1).min(MAX_GROUPS));
                    }
                    Stage::Tensor | Stage::Waited | Stage::Visible => {}
                });
                Ok(())
            }
            GpuOp::WaitGroup { pending } => {
                each(state, |written| {
                    if matches!(written.stage, Stage::Committed(groups) if groups >= *pending) {
                        written.stage = Stage::Waited;
                    }
                });
                Ok(())
            }
            GpuOp::MbarrierArriveCopies {} | GpuOp::MbarrierTrackCopies {} => {
                let barrier = self.analysis.barrier(inst);
                each(state, |written| {
                    if matches!(written.stage, Stage::Started | Stage::Committed(_)) {
                        written.arrives = barrier;
                    }
                });
                Ok(())
            }
            GpuOp::MbarrierWait {} => {
                let barrier = self.analysis.barrier(inst);
                let is_released = self.is_released(inst);
                each(state, |written| {
                    let is_it = written.arrives == barrier || is_released && written.arrives.is_some();
                    if written.is_in_flight() && is_it {
                        written.stage = Stage::Visible;
                    }
                });
                synchronize(state);
                self.publish_copies(inst, state);
                Ok(())
            }
            GpuOp::NamedBarrier { .. } => {
                synchronize(state);
                Ok(())
            }
            GpuOp::FenceProxy {} => {
                each(state, |written| {
                    if !written.is_in_flight() && written.fence == Fence::Missing {
                        // A thread's fence orders visible writes of other threads before its later
                        // accesses.
                        let is_seen = written.stage == Stage::Visible;
                        written.fence = if is_seen { Fence::Done } else { Fence::Own };
                    }
                });
                Ok(())
            }
            GpuOp::Dealloc {} => self.end(operand(0), state),
            // tidy: wildcard because no other op touches shared memory or waits
            _ => Ok(()),
        }
    }

    fn join(&self, state: &mut Self::State, other: &Self::State, point: JoinPoint) {
        join_facts(self.analysis, state, other, point, WriteState::join);
    }

    fn rename(&self, state: &mut Self::State, edge: &Edge) {
        rename_facts(self.analysis, state, edge, WriteState::join);
        each(state, |written| written.arrives = written.arrives.map(|slot| self.analysis.rename(slot, edge)));
    }

    fn enter_partition(&mut self, partition: Option<(Inst, usize)>) {
        self.partition = partition;
    }
}

impl Copies<'_> {
    /// Returns whether another partition arrives at the barrier of a wait. That partition releases
    /// slots after its wait for their copies, so the copies are done.
    fn is_released(&self, wait: Inst) -> bool {
        let root = self.analysis.function.insts[wait].operands[0];
        let partition = self.analysis.partition(wait);
        self.arrivals.iter().any(|(barrier, arrives)| *barrier == root && *arrives != partition)
    }

    /// Records another partition's copies: visible, but not to the asynchronous proxy.
    fn publish_copies(&self, wait: Inst, state: &mut Facts<WriteState>) {
        let Some(barrier) = self.analysis.barrier(wait) else { return };
        let is_its = |published: &&PublishedCopies| {
            published.barrier == barrier.root && published.partition != self.partition
        };
        for PublishedCopies { memory, partition, .. } in self.published.iter().filter(is_its) {
            let slot = Slot { root: *memory, index: barrier.index };
            let copied = WriteState {
                stage: Stage::Visible,
                fence: Fence::Missing,
                arrives: None,
                partition: *partition,
            };
            state.insert(slot, copied);
        }
    }

    /// Returns whether a partition's copies are done because all partitions ended. Another
    /// partition waits for the barrier of the copies. The verifier assumes that it has waited for
    /// the last phase.
    fn was_waited_for(&self, written: &WriteState) -> bool {
        let Some(barrier) = written.arrives.filter(|_| self.partition.is_none()) else { return false };
        let is_other =
            |partition: Option<(Inst, usize)>| partition.is_some() && partition != written.partition;
        written.partition.is_some()
            && self.waits.iter().any(|(root, partition)| *root == barrier.root && is_other(*partition))
    }

    fn write(&self, inst: Inst, facts: &mut Facts<WriteState>, stage: Stage, fence: Fence) -> Check {
        let memory = self.analysis.function.insts[inst].operands[0];
        let Some(slot) = self.analysis.slot(memory) else { return Ok(()) };
        self.ensure_copied(inst, facts, memory)?;
        if matches!(self.analysis.function.ty(slot.root), Type::Ring(_)) {
            // The reader's `take` waits.
            return Ok(());
        }
        let arrives = if stage == Stage::Tensor { self.analysis.barrier(inst) } else { None };
        facts.insert(slot, WriteState { stage, fence, arrives, partition: self.partition });
        Ok(())
    }

    /// Checks that the copies into a slot are done.
    fn ensure_copied(&self, inst: Inst, state: &Facts<WriteState>, memory: Value) -> Check {
        let Some(written) = self.analysis.slot(memory).and_then(|slot| state.get(&slot)) else {
            return Ok(());
        };
        let (name, text) = (self.analysis.function.insts[inst].op.name(), self.analysis.text(memory));
        let missing = match (written.stage, written.arrives) {
            (Stage::Visible | Stage::Waited, _) => return Ok(()),
            _ if self.was_waited_for(written) => return Ok(()),
            (Stage::Tensor, _) => "add an mbarrier_wait for its barrier".into(),
            (_, Some(_)) => "add an mbarrier_wait for the barrier that its copies arrive at".into(),
            (Stage::Started, None) => "add commit_group and wait_group".into(),
            (Stage::Committed(groups), None) => {
                format!("add a wait_group that leaves at most {groups} pending")
            }
        };
        Err(format!("{name} uses {text} while it is being copied to: {missing}"))
    }

    fn read(&self, inst: Inst, state: &Facts<WriteState>, memory: Value, is_async: bool) -> Check {
        let Some(slot) = self.analysis.slot(memory) else { return Ok(()) };
        let Some(written) = state.get(&slot) else { return Ok(()) };
        self.ensure_copied(inst, state, memory)?;
        let (name, text) = (self.analysis.function.insts[inst].op.name(), self.analysis.text(memory));
        let synchronized = self.analysis.synchronized;
        if is_async && (written.fence == Fence::Missing || written.fence == Fence::Own && synchronized) {
            let fence =
                if written.fence == Fence::Missing { "fence_proxy" } else { "a barrier after fence_proxy" };
            return Err(format!(
                "{name} reads {text} by the asynchronous proxy, but ordinary accesses wrote it: add {fence}"
            ));
        }
        if written.stage == Stage::Waited && synchronized {
            return Err(format!(
                "{name} reads {text}, which other threads wrote: add a barrier after the writes and after \
                 the wait for copies"
            ));
        }
        Ok(())
    }

    fn end(&self, memory: Value, state: &mut Facts<WriteState>) -> Check {
        let is_left = |written: &WriteState| written.is_in_flight() && !self.was_waited_for(written);
        if state.iter().any(|(slot, written)| slot.root == memory && is_left(written)) {
            let text = self.analysis.text(memory);
            return Err(format!(
                "dealloc frees {text} while it is being copied to: wait for the copies first"
            ));
        }
        state.retain(|slot, _| slot.root != memory);
        Ok(())
    }
}

fn each(state: &mut Facts<WriteState>, mut change: impl FnMut(&mut WriteState)) {
    state.values_mut().for_each(&mut change);
}

/// Records that threads have waited for each other.
fn synchronize(state: &mut Facts<WriteState>) {
    each(state, |written| {
        if written.stage == Stage::Waited {
            written.stage = Stage::Visible;
        }
        if written.fence == Fence::Own {
            written.fence = Fence::Done;
        }
    });
}
