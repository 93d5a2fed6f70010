//! What is counted from the text: the groups that may be under way at a `take`, the products that may be under way at a
//! `wgmma_wait`, and the `acquire`s that tensor copies need a barrier at.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir as ir;
use tilewright_ir::{Inst, Value};

use super::plan::{Plans, Writer};
use super::ring_groups::Teams;
use tilewright_gpu_ir::analysis::dataflow::{JoinPoint, Transfer, walk};
use tilewright_gpu_ir::analysis::slots::{Edge, SlotAnalysis};
use tilewright_gpu_ir::{GpuOp, Op};

/// More than this many are not told apart.
const MOST: u32 = 64;

/// The numbers.
#[derive(Default)]
pub struct Counts {
    /// Of a `take`: groups made after the one that it needs, at least.
    pub groups: FxHashMap<Inst, u32>,
    /// Of a `wgmma_wait`: products begun after the one that it needs, at least.
    pub products: FxHashMap<Inst, u32>,
    /// The `acquire`s of slots that other threads may still read.
    pub barriers: FxHashSet<Inst>,
    /// The `dealloc`s of rings with slots that were published and not taken.
    pub left: FxHashSet<Inst>,
}

/// Counts them, the least of all paths.
pub fn count(analysis: &SlotAnalysis<'_>, plans: &Plans, teams: &Teams) -> Counts {
    let mut counting = Counting { analysis, plans, teams, counts: Counts::default() };
    walk(analysis, &mut counting, State::default()).expect("it refuses nothing");
    counting.counts
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct State {
    /// Of each ring, the slots that were published and not taken, the oldest first: groups made after each, at least.
    published: BTreeMap<Value, Vec<u32>>,
    /// How many that are, at most.
    left: BTreeMap<Value, u32>,
    /// Of each product under way, how many were begun after it, at least.
    products: BTreeMap<Value, u32>,
    /// The rings with slots that were given back since the last barrier.
    released: BTreeSet<Value>,
}

struct Counting<'a> {
    analysis: &'a SlotAnalysis<'a>,
    plans: &'a Plans,
    teams: &'a Teams,
    counts: Counts,
}

impl Transfer for Counting<'_> {
    type State = State;

    fn step(&mut self, inst: Inst, state: &mut State) -> Result<(), String> {
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
            (GpuOp::CommitGroup {}, _) => commit(state),
            (GpuOp::Publish {}, Some((root, plan))) => {
                // What is copied for a team is one group.
                let is_last = self.teams.is_last(root);
                if plan.writer == Writer::Copies && is_last {
                    commit(state);
                }
                for ring in self.teams.team(root).iter().filter(|_| is_last) {
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
                least(&mut self.counts.groups, inst, groups);
                state.left.entry(root).and_modify(|left| *left = left.saturating_sub(1));
            }
            (GpuOp::Release {}, Some((root, _))) => {
                state.released.insert(root);
            }
            (GpuOp::Acquire {}, Some((root, plan))) => {
                let is_by_barrier = plan.writer == Writer::Tensor && !plan.has_empty();
                if is_by_barrier && state.released.contains(&root) {
                    self.counts.barriers.insert(inst);
                    state.released.clear();
                }
            }
            (GpuOp::Dealloc {}, Some((root, _))) => {
                let is_left = state.left.get(&root).is_some_and(|left| *left > 0);
                self.counts.left.extend(is_left.then_some(inst));
                // What has the memory next is ordered by the pass that places barriers.
                state.released.remove(&root);
            }
            (GpuOp::Wgmma { .. }, _) => {
                state.products.values_mut().for_each(|later| *later = (*later + 1).min(MOST));
                state.products.remove(&data.operands[2]);
                state.products.insert(data.results[0], 0);
            }
            (GpuOp::WgmmaWaitEarlier { .. }, _) => {
                let later = state.products.remove(&data.operands[0]).unwrap_or(0);
                state.products.insert(data.results[0], later);
            }
            (GpuOp::WgmmaWait { .. }, _) => {
                let later = state.products.remove(&data.operands[0]).unwrap_or(0);
                least(&mut self.counts.products, inst, later);
                // Older ones are there with it. A number that lets more be under way than are would have the assembler keep the
                // registers of products apart that may share them.
                state.products.values_mut().for_each(|other| *other = (*other).min(later));
            }
            // tidy: wildcard because nothing else is counted
            _ => {}
        }
        Ok(())
    }

    fn join(&self, state: &mut State, other: &State, _meet: JoinPoint) {
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
            // Older ones have more groups after them: what either path publishes later stands no earlier in the other.
            published.truncate(others.len());
        }
        for (token, later) in &other.products {
            let known = state.products.entry(*token).or_insert(*later);
            *known = (*known).min(*later);
        }
        state.released.extend(&other.released);
    }

    fn rename(&self, state: &mut State, edge: &Edge) {
        for (token, later) in std::mem::take(&mut state.products) {
            state.products.insert(edge.token(token).unwrap_or(token), later);
        }
    }
}

fn commit(state: &mut State) {
    state.published.values_mut().flatten().for_each(|groups| *groups = (*groups + 1).min(MOST));
}

fn least(counts: &mut FxHashMap<Inst, u32>, inst: Inst, count: u32) {
    let known = counts.entry(inst).or_insert(count);
    *known = (*known).min(count);
}
