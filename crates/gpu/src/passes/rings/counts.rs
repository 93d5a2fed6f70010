//! Counts the commit groups and dots in flight at each wait.
//!
//! Also finds each `acquire` that needs a block barrier before its tensor copies.
//!
//! Example: with two groups published and the older one taken, `pending_groups` is 1.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir as ir;
use tilewright_ir::{Inst, Value};

use super::plan::{RingPlans, Writer};
use super::ring_groups::RingGroups;
use tilewright_gpu_ir::analysis::dataflow::{JoinPoint, Transfer, walk};
use tilewright_gpu_ir::analysis::slots::{Edge, SlotAnalysis};
use tilewright_gpu_ir::{GpuOp, Op};

/// The maximum of all counts, which ends the analysis of loops.
const MAX_COUNT: u32 = 64;

/// The counts, as minima over all paths.
#[derive(Default)]
pub struct InFlightCounts {
    /// The number of commit groups after the group that each `take` needs.
    pub pending_groups: FxHashMap<Inst, u32>,
    /// The number of dots that started after the dot that each `wgmma_wait` needs.
    pub pending_dots: FxHashMap<Inst, u32>,
    /// The `acquire`s of slots that other threads may still read.
    pub acquires_with_barrier: FxHashSet<Inst>,
    /// The `dealloc`s of rings that may have published slots that are not taken.
    pub deallocs_of_full_slots: FxHashSet<Inst>,
}

/// Counts groups and dots in flight over all paths of a function.
pub fn count_in_flight(
    analysis: &SlotAnalysis<'_>,
    plans: &RingPlans,
    groups: &RingGroups,
) -> InFlightCounts {
    let mut counting = Counting { analysis, plans, groups, counts: InFlightCounts::default() };
    walk(analysis, &mut counting, InFlight::default()).expect("the count rejects no program");
    counting.counts
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct InFlight {
    /// For each ring, the minimum number of commit groups after each published slot, oldest first.
    published: BTreeMap<Value, Vec<u32>>,
    /// For each ring, the maximum number of published slots that are not taken.
    left: BTreeMap<Value, u32>,
    /// The minimum number of dots that started after each dot in flight.
    dots: BTreeMap<Value, u32>,
    /// The rings with slots released since the last block barrier.
    released: BTreeSet<Value>,
}

struct Counting<'a> {
    analysis: &'a SlotAnalysis<'a>,
    plans: &'a RingPlans,
    groups: &'a RingGroups,
    counts: InFlightCounts,
}

impl Transfer for Counting<'_> {
    type State = InFlight;

    fn step(&mut self, inst: Inst, state: &mut InFlight) -> Result<(), String> {
        let data = &self.analysis.function.insts[inst];
        let Op::Gpu(op) = &data.op else {
            if matches!(data.op, Op::Tile(ir::Op::Barrier {})) {
                state.released.clear();
            }
            return Ok(());
        };
        let ring = data.operands.first().and_then(|value| self.analysis.root(*value));
        let plan = ring.and_then(|root| Some((root, self.plans.get(&root)?)));
        match (op, plan) {
            (GpuOp::CommitGroup {}, _) => commit_group(state),
            (GpuOp::Publish {}, Some((root, plan))) => {
                let is_last = self.groups.is_last(root);
                if plan.writer == Writer::Copies && is_last {
                    commit_group(state);
                }
                for ring in self.groups.rings_with(root).iter().filter(|_| is_last) {
                    let published = state.published.entry(*ring).or_default();
                    if published.len() < plan.buffer.slots as usize {
                        published.push(0);
                    }
                }
                let left = state.left.entry(root).or_insert(0);
                *left = (*left + 1).min(plan.buffer.slots);
            }
            (GpuOp::Take {}, Some((root, _))) => {
                let published = state.published.entry(root).or_default();
                let groups = if published.is_empty() { 0 } else { published.remove(0) };
                keep_minimum(&mut self.counts.pending_groups, inst, groups);
                state.left.entry(root).and_modify(|left| *left = left.saturating_sub(1));
            }
            (GpuOp::Release {}, Some((root, _))) => {
                state.released.insert(root);
            }
            (GpuOp::Acquire {}, Some((root, plan))) => {
                let is_by_barrier = plan.writer == Writer::Tensor && !plan.has_empty();
                if is_by_barrier && state.released.contains(&root) {
                    self.counts.acquires_with_barrier.insert(inst);
                    state.released.clear();
                }
            }
            (GpuOp::Dealloc {}, Some((root, _))) => {
                let is_left = state.left.get(&root).is_some_and(|left| *left > 0);
                self.counts.deallocs_of_full_slots.extend(is_left.then_some(inst));
                // The pass that places barriers orders later users of the memory.
                state.released.remove(&root);
            }
            (GpuOp::Wgmma { .. }, _) => {
                state.dots.values_mut().for_each(|later| *later = (*later + 1).min(MAX_COUNT));
                state.dots.remove(&data.operands[2]);
                state.dots.insert(data.results[0], 0);
            }
            (GpuOp::WgmmaWaitEarlier { .. }, _) => {
                let later = state.dots.remove(&data.operands[0]).unwrap_or(0);
                state.dots.insert(data.results[0], later);
            }
            (GpuOp::WgmmaWait { .. }, _) => {
                let later = state.dots.remove(&data.operands[0]).unwrap_or(0);
                keep_minimum(&mut self.counts.pending_dots, inst, later);
                // All older dots are complete, too. If the count exceeded the dots in flight, ptxas
                // could not share registers between accumulators.
                state.dots.values_mut().for_each(|other| *other = (*other).min(later));
            }
            // tidy: wildcard because no other op changes a count
            _ => {}
        }
        Ok(())
    }

    fn join(&self, state: &mut InFlight, other: &InFlight, _meet: JoinPoint) {
        state.published.retain(|root, _| other.published.contains_key(root));
        for (root, count) in &other.left {
            let known = state.left.entry(*root).or_insert(0);
            *known = (*known).max(*count);
        }
        for (root, others) in &other.published {
            let published = state.published.entry(*root).or_default();
            for (one, other) in published.iter_mut().zip(others) {
                *one = (*one).min(*other);
            }
            // Drop the newest slots of the longer list. A later `take` of a dropped slot then waits
            // for more groups, which is safe.
            published.truncate(others.len());
        }
        for (token, later) in &other.dots {
            let known = state.dots.entry(*token).or_insert(*later);
            *known = (*known).min(*later);
        }
        state.released.extend(&other.released);
    }

    fn rename(&self, state: &mut InFlight, edge: &Edge) {
        for (token, later) in std::mem::take(&mut state.dots) {
            state.dots.insert(edge.token(token).unwrap_or(token), later);
        }
    }
}

fn commit_group(state: &mut InFlight) {
    state.published.values_mut().flatten().for_each(|groups| *groups = (*groups + 1).min(MAX_COUNT));
}

fn keep_minimum(counts: &mut FxHashMap<Inst, u32>, inst: Inst, count: u32) {
    let known = counts.entry(inst).or_insert(count);
    *known = (*known).min(count);
}
