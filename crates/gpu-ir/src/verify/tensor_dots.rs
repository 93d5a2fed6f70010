//! Dots and copies of tensor memory. Nothing accesses the accumulator of a `tcgen05_mma` or the
//! destination of a `tcgen05_copy`, or writes their operands, before a wait. The wait is for an
//! `mbarrier` at which a later `tcgen05_commit` arrives.
//!
//! Dots and copies of one thread execute in order, so a dot may use the result of an earlier one. A
//! wait counts for any `mbarrier` of the allocation of a commit. A wait also counts for an
//! `mbarrier` at which another partition arrives: that partition may have waited for the dot.

use cranelift_entity::EntitySet;
use tilewright_ir::{Inst, MemoryAccess, Operation, Value};

use crate::analysis::dataflow::{Check, JoinPoint, Transfer, join_facts, walk};
use crate::analysis::slots::{Edge, Facts, Slot, SlotAnalysis, rename_facts};
use crate::{GpuOp, Op};

/// A slot that a dot or a copy in flight uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct UseInFlight {
    /// The op that uses the slot last.
    user: Inst,
    /// True if the op, or an earlier one, writes the slot.
    writes: bool,
    /// The allocations of the `mbarrier`s of the first and of the last commit after the op.
    commits: Option<[Value; 2]>,
    /// True if further commits are to other allocations.
    has_more: bool,
}

impl UseInFlight {
    fn commit(&mut self, barriers: Value) {
        self.commits = match self.commits {
            None => Some([barriers; 2]),
            Some([first, last]) => {
                self.has_more |= last != first && last != barriers;
                Some([first, barriers])
            }
        };
    }

    fn is_done_after(&self, barriers: Value) -> bool {
        self.commits.is_some_and(|commits| self.has_more || commits.contains(&barriers))
    }
}

/// Checks the dots of tensor memory of a function.
pub fn check(analysis: &SlotAnalysis<'_>) -> Check {
    let function = analysis.function;
    let (mut is_used, mut arrivals) = (false, Vec::new());
    function.walk(function.entry, &mut |inst| {
        let Op::Gpu(op) = &function.insts[inst].op else { return };
        is_used |=
            matches!(op, GpuOp::Tcgen05Mma { .. } | GpuOp::Tcgen05MmaScaled { .. } | GpuOp::Tcgen05Copy {});
        if let GpuOp::MbarrierExpect { .. }
        | GpuOp::MbarrierArriveTimes { .. }
        | GpuOp::MbarrierArrive {}
        | GpuOp::MbarrierArriveAt { .. }
        | GpuOp::Tcgen05Commit { .. } = op
        {
            arrivals.push((function.insts[inst].operands[0], analysis.partition(inst)));
        }
    });
    if !is_used {
        return Ok(());
    }
    let mut released = EntitySet::new();
    function.walk(function.entry, &mut |inst| {
        if let Op::Gpu(GpuOp::MbarrierWait {}) = function.insts[inst].op {
            let (root, own) = (function.insts[inst].operands[0], analysis.partition(inst));
            if arrivals.iter().any(|(other, partition)| *other == root && *partition != own) {
                released.insert(inst);
            }
        }
    });
    walk(analysis, &mut TensorDots { analysis, released }, Facts::new())
}

struct TensorDots<'a> {
    analysis: &'a SlotAnalysis<'a>,
    /// The waits for `mbarrier`s at which other partitions arrive.
    released: EntitySet<Inst>,
}

impl Transfer for TensorDots<'_> {
    type State = Facts<UseInFlight>;

    fn step(&mut self, inst: Inst, state: &mut Self::State) -> Check {
        let data = &self.analysis.function.insts[inst];
        let Op::Gpu(op) = &data.op else { return Ok(()) };
        match op {
            GpuOp::Tcgen05Mma { .. } | GpuOp::Tcgen05MmaScaled { .. } => self.start(inst, state, 2),
            GpuOp::Tcgen05Copy {} => self.start(inst, state, 1),
            GpuOp::Tcgen05Commit { .. } => {
                for used in state.values_mut() {
                    used.commit(data.operands[0]);
                }
            }
            GpuOp::MbarrierWait {} if self.released.contains(inst) => state.clear(),
            GpuOp::MbarrierWait {} => state.retain(|_, used| !used.is_done_after(data.operands[0])),
            GpuOp::TmemLoad {} => self.ensure_done(inst, state, "reads", |used| used.writes)?,
            GpuOp::TmemStore {} => self.ensure_done(inst, state, "writes", |_| true)?,
            op if matches!(op.info().memory, MemoryAccess::WritesShared | MemoryAccess::FillsShared) => {
                self.ensure_done(inst, state, "writes", |_| true)?;
            }
            GpuOp::Dealloc {} => {
                let root = data.operands[0];
                if let Some((slot, used)) = state.iter().find(|(slot, _)| slot.root == root) {
                    return Err(self.message(inst, slot, *used, "frees"));
                }
            }
            // tidy: wildcard because no other op accesses tensor memory, or writes shared memory
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

/// Joins the uses of two paths: the one that fewer waits complete counts.
fn join(one: &mut UseInFlight, other: UseInFlight) {
    if one.commits.is_some() && other.commits.is_none() {
        one.commits = None;
    } else if one.commits != other.commits && one.commits.is_some() {
        one.has_more = true;
    }
    one.writes |= other.writes;
}

impl TensorDots<'_> {
    /// Records the slots that a dot or a copy uses. It writes the operand `written`.
    fn start(&self, inst: Inst, state: &mut Facts<UseInFlight>, written: usize) {
        for (index, value) in self.analysis.function.insts[inst].operands.iter().enumerate() {
            let Some(slot) = self.analysis.slot(*value) else { continue };
            let writes = index == written || state.get(&slot).is_some_and(|before| before.writes);
            state.insert(slot, UseInFlight { user: inst, writes, commits: None, has_more: false });
        }
    }

    fn ensure_done(
        &self,
        inst: Inst,
        state: &Facts<UseInFlight>,
        does: &str,
        conflicts: impl Fn(&UseInFlight) -> bool,
    ) -> Check {
        let memory = self.analysis.function.insts[inst].operands[0];
        let Some(slot) = self.analysis.slot(memory) else { return Ok(()) };
        match state.get(&slot).filter(|used| conflicts(used)) {
            Some(used) => Err(self.message(inst, &slot, *used, does)),
            None => Ok(()),
        }
    }

    fn message(&self, inst: Inst, slot: &Slot, used: UseInFlight, does: &str) -> String {
        let (name, text) = (self.analysis.function.insts[inst].op.name(), self.analysis.text(slot.root));
        let in_flight = self.analysis.function.insts[used.user].op.name();
        let does_in_flight = if used.writes { "writes" } else { "reads" };
        let missing = match used.commits {
            None => "add a tcgen05_commit, and an mbarrier_wait for its barrier".to_owned(),
            Some([_, barriers]) => format!("add an mbarrier_wait for {}", self.analysis.text(barriers)),
        };
        format!("{name} {does} {text} while a {in_flight} {does_in_flight} it: {missing}")
    }
}
