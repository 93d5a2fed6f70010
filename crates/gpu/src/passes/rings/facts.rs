//! Collects facts about rings before their lowering.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir::{Inst, Value};

use super::merge_ring_indices::find_mergeable;
use super::plan::{RingPlan, RingPlans};
use super::ring_groups::RingGroups;
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::{Function, GpuOp, Op, Type};

/// The producer acquires slots, and the consumer takes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    Producer,
    Consumer,
}

pub type RingSide = (Value, Side);

pub struct RingFacts {
    /// The ring of each acquired or taken slot.
    pub roots: FxHashMap<Value, Value>,
    pub touched: FxHashSet<Value>,
    /// The sides of rings that advance in each instruction's regions.
    ///
    /// A group is represented by its first ring. A producer that shares the consumer's index is
    /// excluded.
    pub advances: FxHashMap<Inst, BTreeSet<RingSide>>,
    /// The slots by which a side advances per iteration; `None` if nested regions advance it.
    pub steps: FxHashMap<(Inst, RingSide), Option<u32>>,
    /// The rings with one index for both sides in a region, and the producer's lead.
    pub merged: FxHashMap<Inst, Vec<(Value, i64)>>,
    pub groups: RingGroups,
    /// The leading rings that are allocated in each entry instruction's regions. Their barriers are
    /// initialized before the instruction.
    pub barriers_before: FxHashMap<Inst, Vec<Value>>,
    /// The rings of regions that may get memory to which threads stored.
    pub stored: FxHashSet<Value>,
}

impl RingFacts {
    pub fn new(analysis: &SlotAnalysis<'_>, plans: &RingPlans, groups: RingGroups) -> Self {
        let function = analysis.function;
        let mut facts = Self {
            roots: FxHashMap::default(),
            touched: FxHashSet::default(),
            advances: FxHashMap::default(),
            steps: FxHashMap::default(),
            merged: FxHashMap::default(),
            groups,
            barriers_before: FxHashMap::default(),
            stored: FxHashSet::default(),
        };
        for (root, _) in plans.iter().filter(|(_, plan)| plan.has_outer_barriers()) {
            let outermost = outermost(analysis, *root);
            if facts.groups.leader(*root) == *root {
                facts.barriers_before.entry(outermost).or_default().push(*root);
            }
            facts.stored.extend(has_stores_up_to(function, outermost).then_some(*root));
        }
        for value in function.values.keys() {
            if matches!(function.ty(value), Type::Empty(_) | Type::Full(_))
                && let Some(root) = analysis.root(value)
            {
                facts.roots.insert(value, root);
            }
        }
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            let side = match &data.op {
                Op::Gpu(GpuOp::Acquire {}) => Side::Producer,
                Op::Gpu(GpuOp::Take {}) => Side::Consumer,
                Op::Gpu(GpuOp::Publish {} | GpuOp::Release {}) | Op::Tile(_) => return,
                // All others access the slots that are their operands.
                Op::Gpu(_) => {
                    facts.touched.extend(&data.operands);
                    return;
                }
            };
            let root = data.operands[0];
            let mut block = analysis.block_of_inst(inst);
            let has_outer_barriers = plans[&root].has_outer_barriers();
            let ring_block = if has_outer_barriers { function.entry } else { analysis.block_of(root) };
            let mut is_direct = true;
            while block != ring_block {
                let Some(owner) = analysis.owner(block) else { break };
                // The sides of a ring between partitions start at the entry of their partition.
                if plans[&root].partitions.as_ref().is_some_and(|partitions| partitions.specialize == owner) {
                    break;
                }
                let ring_side = (facts.groups.leader(root), side);
                facts.advances.entry(owner).or_default().insert(ring_side);
                let step = facts.steps.entry((owner, ring_side)).or_insert(Some(0));
                *step = step.filter(|_| is_direct).map(|step| step + u32::from(facts.groups.is_last(root)));
                is_direct = false;
                block = analysis.block_of_inst(owner);
            }
        });
        facts.drop_shared_producers(analysis, plans);
        facts
    }

    /// Drops the producer from the carried sides if it can share the consumer's index.
    fn drop_shared_producers(&mut self, analysis: &SlotAnalysis<'_>, plans: &RingPlans) {
        let is_own =
            |root: &Value, plan: &RingPlan| plan.partitions.is_none() && self.groups.leader(*root) == *root;
        let roots: Vec<Value> =
            plans.iter().filter(|(root, plan)| is_own(root, plan)).map(|(root, _)| *root).collect();
        for (inst, rings) in find_mergeable(analysis, &roots) {
            let Some(sides) = self.advances.get_mut(&inst) else { continue };
            let is_carried = |root: &Value| {
                sides.contains(&(*root, Side::Consumer)) && sides.contains(&(*root, Side::Producer))
            };
            let joined: Vec<(Value, i64)> = rings.into_iter().filter(|(root, _)| is_carried(root)).collect();
            sides.retain(|(root, side)| {
                *side == Side::Consumer || !joined.iter().any(|(other, _)| other == root)
            });
            self.merged.insert(inst, joined);
        }
    }
}

/// Returns the entry instruction that contains a value's definition.
fn outermost(analysis: &SlotAnalysis<'_>, value: Value) -> Inst {
    let owner = analysis.owner(analysis.block_of(value)).expect("the value is defined in a region");
    analysis.ancestor_in(analysis.function.entry, owner).expect("the entry contains all regions")
}

/// Returns whether threads store to shared memory up to an entry instruction.
fn has_stores_up_to(function: &Function, last: Inst) -> bool {
    let entry = &function.blocks[function.entry].insts;
    let position = entry.iter().position(|inst| *inst == last).expect("the instruction is in the entry");
    let mut found = false;
    for inst in &entry[..=position] {
        found |= is_shared_store(&function.insts[*inst].op);
        for region in &function.insts[*inst].regions {
            function.walk(*region, &mut |inner| found |= is_shared_store(&function.insts[inner].op));
        }
    }
    found
}

/// Returns whether threads write shared memory by the generic proxy.
pub fn is_shared_store(op: &Op) -> bool {
    matches!(
        op,
        Op::Gpu(
            GpuOp::LocalStore {}
                | GpuOp::LocalHistogram {}
                | GpuOp::CopyAsync { .. }
                | GpuOp::MakeTensorMap { .. }
        )
    )
}
