//! Checks that `mbarrier`s are initialized before use. For the asynchronous proxy, a fence follows
//! the initialization. A barrier with waits has arrivals. A phase gets no more arrivals than it
//! needs, and no wait is for a phase that cannot complete.
//!
//! The rule counts the phases along the path, slot by slot. This needs all users of the barrier in
//! one partition, or all outside of partitions. Phases have the parities 0, 1, 0, and so on. A wait
//! for a phase returns after the phase. The parity must change in a loop that completes a phase; a
//! computed parity is not checked. Between partitions, no partition waits twice in a row for one
//! constant parity.

use std::collections::BTreeMap;

use tilewright_ir as ir;
use tilewright_ir::{Effect, Inst, Operation, Value};

use crate::analysis::dataflow::{Check, JoinPoint, Transfer, walk};
use crate::analysis::slots::{Edge, Facts, Slot, SlotAnalysis, SlotIndex, rename_facts};
use crate::{Function, GpuOp, Header, Op, Type};

/// The phases of one slot. Joins of different numbers of arrivals give `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Phase {
    /// The arrivals of the current phase.
    arrived: u32,
    /// The possible parities of the current phase: bit 0 for 0, bit 1 for 1.
    parities: u8,
    /// True if a thread has waited for the previous phase, and in the first phase.
    waited: bool,
    /// The possible parities of the last wait, as bits. No bit is set before the first wait and
    /// after a wait for an unknown parity.
    last: u8,
}

const FIRST: Phase = Phase { arrived: 0, parities: 1, waited: true, last: 0 };

/// The observers of an initialized barrier; joins take the lesser one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Visibility {
    /// The thread that initialized it.
    Own,
    /// This thread and its asynchronous proxy.
    OwnFenced,
    /// All threads.
    Threads,
    /// All threads, and the copies that they start.
    Copies,
}

/// The phases of a slot after the two regions of a branch. Example: an arrival with a predicate. A
/// later branch on this condition, such as a wait's, continues with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SplitPhase {
    condition: Value,
    phases: [Option<Phase>; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lifetime {
    /// The slot is initialized.
    Initialized,
    /// The slot is no longer initialized.
    Ended,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct State {
    phases: Facts<Option<Phase>>,
    /// The phases of slots since a branch, until their next use.
    splits: Facts<Option<SplitPhase>>,
    /// The lifetimes of single slots.
    lifetimes: Facts<Option<Lifetime>>,
    /// The initialized barriers, with their observers.
    initialized: BTreeMap<Value, Visibility>,
}

impl State {
    /// Returns the phase of a slot. Returns `None` if it is unknown, or if a slot of the barrier is
    /// [`SlotIndex::Lost`].
    fn phase(&mut self, slot: Slot) -> Option<&mut Phase> {
        let lost = Slot { index: SlotIndex::Lost, ..slot };
        if self.phases.contains_key(&lost) {
            return None;
        }
        self.phases.entry(slot).or_insert(Some(FIRST)).as_mut()
    }
}

fn join(one: &mut Option<Phase>, other: Option<Phase>, point: JoinPoint) {
    *one = match (*one, other) {
        (Some(one), Some(other)) if one.arrived == other.arrived => Some(Phase {
            arrived: one.arrived,
            parities: one.parities | other.parities,
            waited: if point == JoinPoint::Loop {
                one.waited && other.waited
            } else {
                one.waited || other.waited
            },
            last: if point == JoinPoint::Loop { one.last | other.last } else { one.last & other.last },
        }),
        _ => None,
    };
}

/// The arrivals and partitions of a barrier.
#[derive(Default)]
struct BarrierUsage {
    arrivals: u32,
    /// True if initializations differ in their arrivals, which are then not counted.
    is_mixed: bool,
    arrive: bool,
    /// True if other blocks of the cluster arrive.
    is_shared: bool,
    partitions: Vec<Option<(Inst, usize)>>,
}

/// Checks the barriers of a function.
pub fn check(header: &Header, analysis: &SlotAnalysis<'_>) -> Check {
    let function = analysis.function;
    let mut usage: BTreeMap<Value, BarrierUsage> = BTreeMap::new();
    let mut waits = Vec::new();
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let Some(root) =
            data.operands.first().filter(|value| matches!(function.ty(**value), Type::Mbarrier { .. }))
        else {
            return;
        };
        let usage = usage.entry(*root).or_default();
        match data.op {
            Op::Gpu(GpuOp::MbarrierInit { arrivals }) => {
                usage.is_mixed |= ![0, arrivals].contains(&usage.arrivals);
                usage.arrivals = usage.arrivals.max(arrivals);
            }
            Op::Gpu(
                GpuOp::MbarrierExpect { .. }
                | GpuOp::MbarrierArriveTimes { .. }
                | GpuOp::MbarrierArrive {}
                | GpuOp::MbarrierArriveCopies {}
                | GpuOp::Tcgen05Commit { .. },
            ) => {
                usage.arrive = true;
                usage.partitions.push(analysis.partition(inst));
            }
            Op::Gpu(GpuOp::MbarrierArriveAt { .. }) => (usage.arrive, usage.is_shared) = (true, true),
            Op::Gpu(GpuOp::MbarrierWait {}) => {
                waits.push((*root, inst));
                usage.partitions.push(analysis.partition(inst));
            }
            // tidy: wildcard because other ops neither arrive nor wait
            _ => {}
        }
    });
    if let Some((root, inst)) = waits.iter().find(|(root, _)| !usage[root].arrive) {
        analysis.blame(*inst);
        return Err(format!("mbarrier_wait waits for {}, but nothing arrives there", analysis.text(*root)));
    }
    walk(
        analysis,
        &mut Mbarriers { analysis, warps: header.num_warps, block_warps: header.num_warps, usage },
        State::default(),
    )
}

/// Returns whether values are equal: one value, or equal pure ops.
fn same_value(function: &Function, one: Value, other: Value) -> bool {
    if one == other {
        return true;
    }
    let (Some(one), Some(other)) = (function.defining_inst(one), function.defining_inst(other)) else {
        return false;
    };
    let [one, other] = [one, other].map(|inst| &function.insts[inst]);
    let is_pure = one.op.info().effect == Effect::Pure && one.regions.is_empty() && one.results.len() == 1;
    is_pure
        && one.op == other.op
        && one.operands.len() == other.operands.len()
        && one.operands.iter().zip(&other.operands).all(|(one, other)| same_value(function, *one, *other))
}

struct Mbarriers<'a> {
    analysis: &'a SlotAnalysis<'a>,
    warps: u32,
    block_warps: u32,
    usage: BTreeMap<Value, BarrierUsage>,
}

impl Transfer for Mbarriers<'_> {
    type State = State;

    fn step(&mut self, inst: Inst, state: &mut State) -> Check {
        let data = &self.analysis.function.insts[inst];
        let Op::Gpu(op) = &data.op else {
            if matches!(data.op, Op::Tile(ir::Op::Barrier {})) {
                for seen in state.initialized.values_mut() {
                    *seen = match seen {
                        Visibility::Own | Visibility::Threads => Visibility::Threads,
                        Visibility::OwnFenced | Visibility::Copies => Visibility::Copies,
                    };
                }
            }
            return Ok(());
        };
        if let GpuOp::Alloc { .. } = op {
            state.initialized.remove(&data.results[0]);
            state.lifetimes.retain(|slot, _| slot.root != data.results[0]);
            return Ok(());
        }
        if let Some(slot) = self.analysis.managed_barrier(inst) {
            return self.manage(inst, slot, state);
        }
        if let GpuOp::MbarrierInit { .. } = op {
            if state.initialized.contains_key(&data.operands[0]) && data.operands.len() == 1 {
                let text = self.analysis.text(data.operands[0]);
                return Err(format!("mbarrier_init initializes {text} twice, which PTX does not define"));
            }
            state.phases.retain(|slot, _| slot.root != data.operands[0]);
            state.initialized.insert(data.operands[0], Visibility::Own);
            return Ok(());
        }
        if let GpuOp::FenceProxy {} = op {
            for seen in state.initialized.values_mut().filter(|seen| **seen == Visibility::Own) {
                *seen = Visibility::OwnFenced;
            }
            return Ok(());
        }
        let Some(slot) = self.analysis.barrier(inst) else { return Ok(()) };
        self.ensure_initialized(inst, slot, state)?;
        state.splits.remove(&slot);
        match op {
            GpuOp::MbarrierExpect { .. } | GpuOp::Tcgen05Commit { .. } => self.arrive(inst, slot, 1, state),
            GpuOp::MbarrierArriveTimes { arrivals } => self.arrive(inst, slot, *arrivals, state),
            GpuOp::MbarrierArrive {} => self.arrive(inst, slot, self.warps, state),
            GpuOp::MbarrierArriveCopies {} => self.arrive(inst, slot, self.warps * 32, state),
            GpuOp::MbarrierWait {} => self.wait(inst, slot, data.operands[2], state),
            // tidy: wildcard because the other ops with a barrier signal bytes: tensor copies and
            // requests for clusters
            _ => Ok(()),
        }
    }

    fn join(&self, state: &mut State, other: &State, point: JoinPoint) {
        let slots: Vec<Slot> = state.phases.keys().chain(other.phases.keys()).copied().collect();
        for slot in slots {
            let phase = state.phases.entry(slot).or_insert(Some(FIRST));
            join(phase, other.phases.get(&slot).copied().unwrap_or(Some(FIRST)), point);
        }
        state.splits.retain(|slot, split| other.splits.get(slot) == Some(split));
        let slots: Vec<Slot> = state.lifetimes.keys().chain(other.lifetimes.keys()).copied().collect();
        for slot in slots {
            let known = other.lifetimes.get(&slot).copied().flatten();
            let lifetime = state.lifetimes.entry(slot).or_insert(None);
            *lifetime = lifetime.filter(|lifetime| Some(*lifetime) == known);
        }
        if self.analysis.explicit && point == JoinPoint::Branch {
            for (root, seen) in &other.initialized {
                let known = state.initialized.entry(*root).or_insert(*seen);
                *known = (*known).max(*seen);
            }
            return;
        }
        state.initialized.retain(|root, _| other.initialized.contains_key(root));
        for (root, seen) in &mut state.initialized {
            *seen = (*seen).min(other.initialized[root]);
        }
    }

    fn rename(&self, state: &mut State, edge: &Edge) {
        rename_facts(self.analysis, &mut state.phases, edge, |one, other| join(one, other, JoinPoint::Loop));
        let is_in_scope = |split: SplitPhase| {
            edge.leaves().is_none_or(|block| !self.analysis.is_in(split.condition, block))
        };
        state.splits.retain(|_, split| split.is_some_and(is_in_scope));
        rename_facts(self.analysis, &mut state.splits, edge, |one, other| {
            *one = one.filter(|one| Some(*one) == other);
        });
        rename_facts(self.analysis, &mut state.lifetimes, edge, |one, other| {
            *one = one.filter(|one| Some(*one) == other);
        });
    }

    fn enter_region(&self, state: &mut State, condition: Value, region: usize) {
        let known: Vec<(Slot, SplitPhase)> =
            state.splits.iter().filter_map(|(slot, split)| Some((*slot, (*split)?))).collect();
        for (slot, split) in known {
            if same_value(self.analysis.function, split.condition, condition) {
                state.phases.insert(slot, split.phases[region]);
            }
        }
    }

    fn join_regions(&self, state: &mut State, other: &State, condition: Value) {
        let slots: Vec<Slot> = state.phases.keys().chain(other.phases.keys()).copied().collect();
        let mut splits = Facts::new();
        for slot in slots {
            let phases =
                [&*state, other].map(|state| state.phases.get(&slot).copied().unwrap_or(Some(FIRST)));
            if phases[0] != phases[1] {
                splits.insert(slot, Some(SplitPhase { condition, phases }));
            }
        }
        self.join(state, other, JoinPoint::Branch);
        state.splits.extend(splits);
    }

    fn enter_partition(&mut self, partition: Option<(Inst, usize)>) {
        self.warps = partition.map_or(self.block_warps, |(inst, partition)| {
            match &self.analysis.function.insts[inst].op {
                Op::Gpu(GpuOp::WarpSpecialize { warps, .. }) => warps[partition] as u32,
                // tidy: wildcard because no other op has partitions
                _ => self.block_warps,
            }
        });
    }
}

impl Mbarriers<'_> {
    /// Initializes or ends one slot.
    fn manage(&self, inst: Inst, slot: Slot, state: &mut State) -> Check {
        let (name, text) = (self.analysis.function.insts[inst].op.name(), self.analysis.text(slot.root));
        let known = state.lifetimes.get(&slot).copied().flatten();
        let is_end = matches!(self.analysis.function.insts[inst].op, Op::Gpu(GpuOp::MbarrierInvalidate {}));
        if is_end {
            if known == Some(Lifetime::Ended) {
                return Err(format!("{name} ends {text} twice"));
            }
            if !state.initialized.contains_key(&slot.root) {
                return Err(format!("{name} uses {text} before mbarrier_init"));
            }
            state.lifetimes.insert(slot, Some(Lifetime::Ended));
            return Ok(());
        }
        if known == Some(Lifetime::Initialized) {
            return Err(format!("{name} initializes {text} twice: add an mbarrier_invalidate before it"));
        }
        state.phases.remove(&slot);
        state.splits.remove(&slot);
        state.lifetimes.insert(slot, Some(Lifetime::Initialized));
        state.initialized.insert(slot.root, Visibility::Own);
        Ok(())
    }

    fn ensure_initialized(&self, inst: Inst, slot: Slot, state: &State) -> Check {
        let root = slot.root;
        let (name, text) = (self.analysis.function.insts[inst].op.name(), self.analysis.text(root));
        if state.lifetimes.get(&slot).copied().flatten() == Some(Lifetime::Ended) {
            return Err(format!("{name} uses {text} after mbarrier_invalidate"));
        }
        match state.initialized.get(&root) {
            None => Err(format!("{name} uses {text} before mbarrier_init")),
            Some(Visibility::Own | Visibility::OwnFenced) if self.analysis.synchronized => {
                Err(format!("{name} uses {text} without a barrier after mbarrier_init"))
            }
            Some(Visibility::Own | Visibility::Threads)
                if matches!(
                    self.analysis.function.insts[inst].op,
                    Op::Gpu(GpuOp::TensorLoad {} | GpuOp::TensorLoadTo { .. } | GpuOp::ClcTryCancel { .. })
                ) =>
            {
                Err(format!(
                    "{name} arrives at {text} by the asynchronous proxy: add a fence_proxy after \
                     mbarrier_init, before the barrier"
                ))
            }
            Some(_) => Ok(()),
        }
    }

    /// Returns whether a barrier's users are in one partition, or all outside. Then its phases can
    /// be counted along the path.
    fn is_in_one_partition(&self, root: Value) -> bool {
        let BarrierUsage { partitions, is_shared, .. } = &self.usage[&root];
        !is_shared && partitions.windows(2).all(|pair| pair[0] == pair[1])
    }

    fn arrive(&self, inst: Inst, slot: Slot, count: u32, state: &mut State) -> Check {
        let (name, text) = (self.analysis.function.insts[inst].op.name(), self.analysis.text(slot.root));
        let BarrierUsage { arrivals: most, is_mixed, .. } = self.usage[&slot.root];
        let too_many = |found: u32| {
            Err(format!("{name} makes {found} arrivals in a phase of {text}, mbarrier_init allows {most}"))
        };
        if count > most {
            return too_many(count);
        }
        let is_counted = self.is_in_one_partition(slot.root) && !is_mixed;
        let Some(phase) = state.phase(slot).filter(|_| is_counted) else { return Ok(()) };
        if phase.arrived == 0 && !phase.waited {
            return Err(format!(
                "{name} arrives at {text} after all {most} arrivals of the phase: wait for the phase first"
            ));
        }
        phase.arrived += count;
        if phase.arrived > most {
            return too_many(phase.arrived);
        }
        if phase.arrived == most {
            let parities = (phase.parities & 1) << 1 | phase.parities >> 1;
            *phase = Phase { arrived: 0, parities, waited: false, last: phase.last };
        }
        Ok(())
    }

    fn wait(&self, inst: Inst, slot: Slot, parity: Value, state: &mut State) -> Check {
        let sum = self.analysis.base_offset(parity, 2);
        let parity = if sum.base.is_none() { Some(sum.offset as u8) } else { None };
        let (name, text) = (self.analysis.function.insts[inst].op.name(), self.analysis.text(slot.root));
        let BarrierUsage { arrivals: most, is_mixed, .. } = self.usage[&slot.root];
        let is_in_one_partition = self.is_in_one_partition(slot.root);
        let Some(phase) = state.phase(slot).filter(|_| !is_mixed) else { return Ok(()) };
        if let Some(parity) = parity {
            let bit = 1 << parity;
            // The condition of the wait may be that of the arrival.
            let may_know = self.analysis.explicit && self.analysis.is_conditional(inst);
            let is_current = if may_know { phase.parities == bit } else { phase.parities & bit != 0 };
            if is_in_one_partition && is_current {
                return Err(format!(
                    "{name} waits for a phase of parity {parity} of {text}, which may be the current \
                     phase, with {} of {most} \
                     arrivals: nothing completes it",
                    phase.arrived
                ));
            }
            if !is_in_one_partition && phase.last & bit != 0 {
                return Err(format!(
                    "{name} waits for parity {parity} of {text} twice in sequence: the parity changes with each phase"
                ));
            }
            phase.last = bit;
        } else {
            phase.last = 0;
        }
        phase.waited = true;
        Ok(())
    }
}
