//! Finds groups of rings that advance together, such as a dot's two operands.
//!
//! In every IR block, slots of a group are acquired, published, taken and released in turns. A turn
//! is one op, such as `take`, for each ring in order:
//!
//! ```text
//! take %a               waits until the slots of both rings are full
//! take %b ; …
//! release %a
//! release %b            signals that the slots of both rings are empty
//! ```
//! All slots of a turn are published before the first is taken. All are released before the first
//! is acquired again.
//!
//! Rings of `cp.async` are in one group only if no slot is read between the takes of a turn. Their
//! copies are one commit group, or arrive at one barrier.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir::{Block, Inst, Value};

use super::plan::{RingPlan, RingPlans, Writer};
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::{GpuOp, Op, Type};

#[derive(Default)]
pub struct RingGroups {
    /// The rings of each ring's group, in order.
    of: FxHashMap<Value, Vec<Value>>,
    /// The last releases of turns.
    last_releases: FxHashSet<Inst>,
}

/// An op on a slot, or a read of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Acquire,
    Publish,
    Take,
    Release,
    /// The release of a slot that another block, such as the previous iteration, took.
    ReleaseLater,
    /// A read of a taken slot.
    Read,
    /// Any step except a read, in a region of an instruction of the block.
    Within,
}

impl Step {
    fn is_release(self) -> bool {
        matches!(self, Self::Release | Self::ReleaseLater)
    }
}

/// The barrier that orders two steps.
///
/// A full barrier orders `publish` before `take`, and an empty barrier `release` before `acquire`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum BarrierKind {
    Full,
    Empty,
}

/// The steps of each block and kind of barrier, in text order.
type Steps = BTreeMap<(Block, BarrierKind), Vec<(Step, Value, Inst)>>;

impl RingGroups {
    /// Finds the groups: each ring joins the first group that it fits.
    pub fn find(analysis: &SlotAnalysis<'_>, plans: &RingPlans) -> Self {
        let function = analysis.function;
        let mut steps = Steps::new();
        let mut order = Vec::new();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            let (kind, step) = match &data.op {
                Op::Gpu(GpuOp::Alloc { .. }) => {
                    order.extend(data.results.iter().filter(|value| plans.contains_key(value)));
                    return;
                }
                Op::Gpu(GpuOp::Acquire {}) => (BarrierKind::Empty, Step::Acquire),
                Op::Gpu(GpuOp::Publish {}) => (BarrierKind::Full, Step::Publish),
                Op::Gpu(GpuOp::Take {}) => (BarrierKind::Full, Step::Take),
                Op::Gpu(GpuOp::Release {}) => {
                    let taken = function.defining_inst(data.operands[0]);
                    let is_here = taken
                        .is_some_and(|taken| analysis.block_of_inst(taken) == analysis.block_of_inst(inst));
                    (BarrierKind::Empty, if is_here { Step::Release } else { Step::ReleaseLater })
                }
                // tidy: wildcard because any other op only reads the slots among its operands
                _ => {
                    let taken =
                        data.operands.iter().filter(|value| matches!(function.ty(**value), Type::Full(_)));
                    for root in taken.filter_map(|value| analysis.root(*value)) {
                        let steps =
                            steps.entry((analysis.block_of_inst(inst), BarrierKind::Full)).or_default();
                        steps.push((Step::Read, root, inst));
                    }
                    return;
                }
            };
            if let Some(root) = analysis.root(data.operands[0]) {
                let mut block = analysis.block_of_inst(inst);
                steps.entry((block, kind)).or_default().push((step, root, inst));
                while let Some(owner) = analysis.owner(block) {
                    block = analysis.block_of_inst(owner);
                    steps.entry((block, kind)).or_default().push((Step::Within, root, inst));
                }
            }
        });
        let mut groups: Vec<Vec<Value>> = Vec::new();
        for root in order {
            let group = groups.iter_mut().find(|group| {
                let candidate: Vec<Value> = group.iter().copied().chain([root]).collect();
                let can_wait_once =
                    plans[&root].writer == Writer::Tensor || are_taken_at_once(&steps, &candidate);
                can_share_barriers(analysis, plans, group[0], root)
                    && advance_in_turn(&steps, &candidate, &plans[&root])
                    && can_wait_once
            });
            match group {
                Some(group) => group.push(root),
                None => groups.push(vec![root]),
            }
        }
        let last_releases =
            groups.iter().flat_map(|group| last_releases(&steps, group, &plans[&group[0]])).collect();
        let of = groups
            .into_iter()
            .flat_map(|group| group.clone().into_iter().map(move |root| (root, group.clone())));
        Self { of: of.collect(), last_releases }
    }

    /// Returns the rings that advance with `root`, including `root`, in order.
    pub fn rings_with(&self, root: Value) -> &[Value] {
        self.of.get(&root).map_or(&[], |group| group)
    }

    /// Returns the first ring of the group, which owns the group's barriers.
    pub fn leader(&self, root: Value) -> Value {
        self.rings_with(root).first().copied().unwrap_or(root)
    }

    /// Returns whether `root` is the last ring of its group, at which the group advances.
    pub fn is_last(&self, root: Value) -> bool {
        self.rings_with(root).last().is_none_or(|last| *last == root)
    }

    /// Returns whether a release is the last of its turn.
    pub fn is_last_release(&self, release: Inst) -> bool {
        self.last_releases.contains(&release)
    }

    /// Returns the number of rings in the group.
    pub fn size(&self, root: Value) -> u32 {
        self.rings_with(root).len().max(1) as u32
    }
}

fn can_share_barriers(analysis: &SlotAnalysis<'_>, plans: &RingPlans, one: Value, other: Value) -> bool {
    let [first, second]: [&RingPlan; 2] = [one, other].map(|root| &plans[&root]);
    let partitions = |plan: &RingPlan| {
        plan.partitions
            .as_ref()
            .map(|partitions| (partitions.specialize, partitions.producer, partitions.consumers.clone()))
    };
    let is_possible = match first.writer {
        Writer::Tensor => true,
        Writer::Copies => first.is_async_read == second.is_async_read,
        Writer::Stores => false,
    };
    is_possible
        && first.writer == second.writer
        && first.buffer.slots == second.buffer.slots
        && first.has_empty() == second.has_empty()
        && partitions(first) == partitions(second)
        && analysis.block_of(one) == analysis.block_of(other)
}

/// Splits the steps of rings into turns of one step per ring. `counts` selects the steps.
///
/// A region in which one of these rings advances ends the turn. With partitions, any advancing ring
/// in a region ends the turn. Otherwise, two partitions could wait for each other: one at the first
/// `take` of the turn, one in the region.
fn split_into_turns(
    steps: &[(Step, Value, Inst)],
    rings: &[Value],
    has_partitions: bool,
    counts: impl Fn(Step) -> bool,
) -> Vec<Vec<(Step, Value, Inst)>> {
    let is_own = |(step, root, _): &&(Step, Value, Inst)| match step {
        Step::Read => false,
        Step::Within if has_partitions => true,
        step => counts(*step) && rings.contains(root),
    };
    let own: Vec<_> = steps.iter().filter(is_own).copied().collect();
    let straight = own.split(|(step, ..)| *step == Step::Within);
    straight.flat_map(|own| own.chunks(rings.len()).map(<[_]>::to_vec)).collect()
}

/// Returns whether each turn has the same step for each of `rings`, in order.
///
/// The order of releases is free with partitions or with block barriers for empty slots.
fn advance_in_turn(steps: &Steps, rings: &[Value], plan: &RingPlan) -> bool {
    let counts = |step: Step| plan.has_empty() || !step.is_release();
    let is_turn = |turn: &Vec<(Step, Value, Inst)>| {
        let is_one = |ring: &Value| turn.iter().filter(|(_, root, _)| root == ring).count() == 1;
        let is_in_order = turn.iter().map(|(_, root, _)| root).eq(rings);
        turn.iter().all(|(step, ..)| *step == turn[0].0)
            && (is_in_order
                || plan.partitions.is_some() && turn[0].0.is_release() && rings.iter().all(is_one))
    };
    steps
        .values()
        .all(|steps| split_into_turns(steps, rings, plan.partitions.is_some(), counts).iter().all(is_turn))
}

fn last_releases(steps: &Steps, group: &[Value], plan: &RingPlan) -> Vec<Inst> {
    let is_counted = |step: Step| step.is_release() || step == Step::Within;
    let all = steps
        .values()
        .flat_map(|steps| split_into_turns(steps, group, plan.partitions.is_some(), is_counted));
    let lasts = all.filter_map(|turn| turn.last().copied());
    lasts.filter(|(step, ..)| step.is_release()).map(|(_, _, inst)| inst).collect()
}

/// Returns whether all rings of a turn are taken before one of them is read.
fn are_taken_at_once(steps: &Steps, rings: &[Value]) -> bool {
    steps.values().all(|steps| {
        let mut untaken = 0;
        steps.iter().filter(|(_, root, _)| rings.contains(root)).all(|(step, root, _)| {
            if *step == Step::Take {
                untaken = rings.iter().rev().position(|ring| ring == root).unwrap_or(0);
            }
            *step != Step::Read || untaken == 0
        })
    })
}
