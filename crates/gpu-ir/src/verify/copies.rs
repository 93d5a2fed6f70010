//! Asynchronous copies into shared memory: nothing touches a slot before the copies into it were waited for, in the way that
//! they need, and what was not written by the asynchronous proxy is read by it behind a fence alone.
//!
//! `copy_async`: `commit_group`, then `wait_group` that leaves no more groups than were committed after it, or
//! `mbarrier_arrive_copies` and an `mbarrier_wait` for that barrier; then a barrier, since other threads copied the rest.
//! `tensor_load`: an `mbarrier_wait` for its barrier. The fence stands on the path from the write to the read (PTX ISA, "Async proxy"):
//! behind the write and its wait, before the barrier; or behind the barrier, or the `mbarrier_wait` for the barrier that the threads of
//! another role arrive at, of the slot of the same number, where all threads fence for what they read. Barriers are asked for when the
//! module is synchronized: until then a pass will put them where threads have to wait. That a wait is for the right phase, [`mbarriers`] looks at.
//!
//! [`mbarriers`]: super::mbarriers

use tilewright_ir as ir;
use tilewright_ir::{Inst, Operation, Value};

use crate::analysis::dataflow::{Check, Meet, Rule, walk};
use crate::analysis::slots::{Edge, Facts, Names, Slot, join_facts, rename_facts};
use crate::{GpuOp, Op, Type};

/// Groups beyond this count as this many.
const MOST_GROUPS: u32 = 64;

/// How far the writes into a slot are: of two paths, what is less far counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// Copies are under way and in no group.
    Started,
    /// They are in a group, after which so many were made.
    Committed(u32),
    /// A tensor copy is under way.
    Tensor,
    /// Each thread has waited for its own, or has stored.
    Waited,
    /// All threads see it.
    Visible,
}

/// What the asynchronous proxy sees of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fence {
    Missing,
    /// By each thread for what it wrote.
    Own,
    Done,
}

/// What was written into a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Written {
    stage: Stage,
    fence: Fence,
    /// The barrier that the copies under way arrive at.
    arrives: Option<Slot>,
    /// The role that wrote.
    role: Option<(Inst, usize)>,
}

impl Written {
    fn join(&mut self, other: Self) {
        if other.stage < self.stage {
            (self.arrives, self.role) = (other.arrives, other.role);
        }
        self.stage = self.stage.min(other.stage);
        self.fence = self.fence.min(other.fence);
    }

    fn is_under_way(&self) -> bool {
        self.stage < Stage::Waited
    }
}

/// Checks the copies of a function.
pub fn check(names: &Names<'_>) -> Check {
    let function = names.function;
    let (mut arrivals, mut waits) = (Vec::new(), Vec::new());
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if matches!(data.op, Op::Gpu(GpuOp::MbarrierWait {})) {
            waits.push((data.operands[0], names.role(inst)));
        }
        if matches!(
            data.op,
            Op::Gpu(GpuOp::MbarrierExpect { .. } | GpuOp::MbarrierArrive {} | GpuOp::MbarrierArriveCopies {})
        ) {
            arrivals.push((data.operands[0], names.role(inst)));
        }
    });
    let handed = handed(names);
    walk(names, &mut Copies { names, arrivals, waits, handed, role: None }, Facts::new())
}

/// What the threads of a role copy before they arrive for it.
struct Handed {
    barrier: Value,
    memory: Value,
    role: Option<(Inst, usize)>,
}

fn handed(names: &Names<'_>) -> Vec<Handed> {
    let function = names.function;
    let (mut under_way, mut handed): (Vec<Slot>, Vec<Handed>) = (Vec::new(), Vec::new());
    function.walk(function.entry, &mut |inst| match function.insts[inst].op {
        Op::Gpu(GpuOp::CopyAsync { .. }) if names.role(inst).is_some() => {
            under_way.extend(names.slot(function.insts[inst].operands[0]));
        }
        Op::Gpu(GpuOp::MbarrierArriveCopies {}) => {
            let (copied, role) = (std::mem::take(&mut under_way), names.role(inst));
            let Some(barrier) = names.barrier(inst) else { return };
            let is_its = |slot: &Slot| {
                slot.index == barrier.index && names.slots(slot.root) == names.slots(barrier.root)
            };
            let of = |slot: Slot| Handed { barrier: barrier.root, memory: slot.root, role };
            handed.extend(copied.into_iter().filter(is_its).map(of));
        }
        // tidy: wildcard because nothing else copies or arrives for copies
        _ => {}
    });
    handed
}

struct Copies<'a> {
    names: &'a Names<'a>,
    /// The barriers that something arrives at, and in which role.
    arrivals: Vec<(Value, Option<(Inst, usize)>)>,
    /// The barriers that something waits for, and in which role.
    waits: Vec<(Value, Option<(Inst, usize)>)>,
    handed: Vec<Handed>,
    /// The role that runs what is being looked at.
    role: Option<(Inst, usize)>,
}

impl Rule for Copies<'_> {
    type State = Facts<Written>;

    fn step(&mut self, inst: Inst, state: &mut Self::State) -> Check {
        let data = &self.names.function.insts[inst];
        let operand = |place: usize| data.operands[place];
        let Op::Gpu(op) = &data.op else {
            if matches!(data.op, Op::Tile(ir::Op::Barrier {})) {
                synchronize(state);
            }
            return Ok(());
        };
        match op {
            GpuOp::CopyAsync { .. } => self.write(inst, state, Stage::Started, Fence::Missing),
            GpuOp::LocalStore {} | GpuOp::LocalCount {} => {
                self.write(inst, state, Stage::Waited, Fence::Missing)
            }
            GpuOp::TensorLoad {} => self.write(inst, state, Stage::Tensor, Fence::Done),
            GpuOp::LocalLoad { .. } => self.read(inst, state, operand(0), false),
            GpuOp::MmaSync { .. } | GpuOp::FmaDot { .. } | GpuOp::Wgmma { .. } => {
                let is_async = matches!(op, GpuOp::Wgmma { .. });
                let places = [0, 1].into_iter();
                places.map(operand).try_for_each(|value| self.read(inst, state, value, is_async))
            }
            GpuOp::TensorStore {} | GpuOp::TensorReduce { .. } => self.read(inst, state, operand(0), true),
            GpuOp::CommitGroup {} => {
                each(state, |written| match written.stage {
                    Stage::Started => written.stage = Stage::Committed(0),
                    Stage::Committed(groups) => {
                        written.stage = Stage::Committed((groups + 1).min(MOST_GROUPS));
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
            GpuOp::MbarrierArriveCopies {} => {
                let barrier = self.names.barrier(inst);
                each(state, |written| {
                    if matches!(written.stage, Stage::Started | Stage::Committed(_)) {
                        written.arrives = barrier;
                    }
                });
                Ok(())
            }
            GpuOp::MbarrierWait {} => {
                let barrier = self.names.barrier(inst);
                let is_handed_back = self.is_handed_back(inst);
                each(state, |written| {
                    let is_it = written.arrives == barrier || is_handed_back && written.arrives.is_some();
                    if written.is_under_way() && is_it {
                        written.stage = Stage::Visible;
                    }
                });
                synchronize(state);
                self.hand_over(inst, state);
                Ok(())
            }
            GpuOp::NamedBarrier { .. } => {
                synchronize(state);
                Ok(())
            }
            GpuOp::FenceProxy {} => {
                each(state, |written| {
                    if !written.is_under_way() && written.fence == Fence::Missing {
                        // What it sees of others each thread fences for what it does itself.
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

    fn join(&self, state: &mut Self::State, other: &Self::State, _meet: Meet) {
        join_facts(state, other, Written::join);
    }

    fn rename(&self, state: &mut Self::State, edge: &Edge) {
        rename_facts(self.names, state, edge, Written::join);
        each(state, |written| written.arrives = written.arrives.map(|slot| self.names.rename(slot, edge)));
    }

    fn enter_role(&mut self, role: Option<(Inst, usize)>) {
        self.role = role;
    }
}

impl Copies<'_> {
    /// Whether another role arrives at what is waited for: it has waited for the copies that it hands back the slots of.
    fn is_handed_back(&self, wait: Inst) -> bool {
        let root = self.names.function.insts[wait].operands[0];
        let role = self.names.role(wait);
        self.arrivals.iter().any(|(barrier, arrives)| *barrier == root && *arrives != role)
    }

    /// What another role copied before it arrived is there, and the asynchronous proxy does not see it yet.
    fn hand_over(&self, wait: Inst, state: &mut Facts<Written>) {
        let Some(barrier) = self.names.barrier(wait) else { return };
        let is_its = |handed: &&Handed| handed.barrier == barrier.root && handed.role != self.role;
        for Handed { memory, role, .. } in self.handed.iter().filter(is_its) {
            let slot = Slot { root: *memory, index: barrier.index };
            let copied = Written { stage: Stage::Visible, fence: Fence::Missing, arrives: None, role: *role };
            state.insert(slot, copied);
        }
    }

    /// Whether copies of a role are there behind the roles, since another role has waited for their barrier: for the phase of the
    /// last one, which is believed.
    fn was_waited_for(&self, written: &Written) -> bool {
        let Some(barrier) = written.arrives.filter(|_| self.role.is_none()) else { return false };
        let is_other = |role: Option<(Inst, usize)>| role.is_some() && role != written.role;
        written.role.is_some()
            && self.waits.iter().any(|(root, role)| *root == barrier.root && is_other(*role))
    }

    fn write(&self, inst: Inst, facts: &mut Facts<Written>, stage: Stage, fence: Fence) -> Check {
        let memory = self.names.function.insts[inst].operands[0];
        let Some(slot) = self.names.slot(memory) else { return Ok(()) };
        self.landed(inst, facts, memory)?;
        if matches!(self.names.function.ty(slot.root), Type::Ring(_)) {
            // Who reads it has taken it, which waits.
            return Ok(());
        }
        let arrives = if stage == Stage::Tensor { self.names.barrier(inst) } else { None };
        facts.insert(slot, Written { stage, fence, arrives, role: self.role });
        Ok(())
    }

    /// What was copied into a slot is there.
    fn landed(&self, inst: Inst, state: &Facts<Written>, memory: Value) -> Check {
        let Some(written) = self.names.slot(memory).and_then(|slot| state.get(&slot)) else { return Ok(()) };
        let (name, text) = (self.names.function.insts[inst].op.name(), self.names.text(memory));
        let missing = match (written.stage, written.arrives) {
            (Stage::Visible | Stage::Waited, _) => return Ok(()),
            _ if self.was_waited_for(written) => return Ok(()),
            (Stage::Tensor, _) => "an mbarrier_wait for its barrier has to stand between".into(),
            (_, Some(_)) => {
                "an mbarrier_wait for the barrier that its copies arrive at has to stand between".into()
            }
            (Stage::Started, None) => "commit_group and wait_group have to stand between".into(),
            (Stage::Committed(groups), None) => {
                format!("a wait_group that leaves no more than {groups} pending has to stand between")
            }
        };
        Err(format!("{name} uses {text} while it is being copied to: {missing}"))
    }

    fn read(&self, inst: Inst, state: &Facts<Written>, memory: Value, is_async: bool) -> Check {
        let Some(slot) = self.names.slot(memory) else { return Ok(()) };
        let Some(written) = state.get(&slot) else { return Ok(()) };
        self.landed(inst, state, memory)?;
        let (name, text) = (self.names.function.insts[inst].op.name(), self.names.text(memory));
        let synchronized = self.names.synchronized;
        if is_async && (written.fence == Fence::Missing || written.fence == Fence::Own && synchronized) {
            let where_to =
                if written.fence == Fence::Missing { "fence_proxy" } else { "a barrier behind fence_proxy" };
            return Err(format!(
                "{name} reads {text} by the asynchronous proxy, and it was written by ordinary accesses: {where_to} has \
                 to stand between"
            ));
        }
        if written.stage == Stage::Waited && synchronized {
            return Err(format!(
                "{name} reads {text}, and other threads wrote to it: a barrier has to stand behind that, and behind the wait \
                 for copies"
            ));
        }
        Ok(())
    }

    fn end(&self, memory: Value, state: &mut Facts<Written>) -> Check {
        let is_left = |written: &Written| written.is_under_way() && !self.was_waited_for(written);
        if state.iter().any(|(slot, written)| slot.root == memory && is_left(written)) {
            let text = self.names.text(memory);
            return Err(format!(
                "dealloc gives up {text} while it is being copied to: wait for the copies before"
            ));
        }
        state.retain(|slot, _| slot.root != memory);
        Ok(())
    }
}

fn each(state: &mut Facts<Written>, mut change: impl FnMut(&mut Written)) {
    state.values_mut().for_each(&mut change);
}

/// Threads have waited for each other.
fn synchronize(state: &mut Facts<Written>) {
    each(state, |written| {
        if written.stage == Stage::Waited {
            written.stage = Stage::Visible;
        }
        if written.fence == Fence::Own {
            written.fence = Fence::Done;
        }
    });
}
