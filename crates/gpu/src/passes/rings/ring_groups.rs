//! Rings that advance together, as those of the two operands of a product do: in every block slots of each are acquired, published,
//! taken and released in turn, in the order of the rings; roles may release them in any order. All are published before the first is taken,
//! which waits for all, and all are released before the first is acquired: the last release says so.
//!
//! What threads copy for such rings is one group, or arrives at one barrier, and is waited for at once: where nothing is read between
//! one `take` and the next.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir::{Block, Inst, Value};

use super::plan::{Plan, Plans, Writer};
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::{GpuOp, Op, Type};

/// Which rings are a team.
#[derive(Default)]
pub struct Teams {
    /// The rings of the team of each ring, in order.
    of: FxHashMap<Value, Vec<Value>>,
    /// The last releases of turns.
    last_releases: FxHashSet<Inst>,
}

/// What is done with a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Acquire,
    Publish,
    Take,
    Release,
    /// The same of one that was taken elsewhere, as in the iteration before.
    ReleaseLater,
    /// A slot that was taken is read.
    Read,
    /// Slots are made full and taken, or made empty and acquired, in a region of an instruction of the block.
    Within,
}

impl Step {
    fn is_release(self) -> bool {
        matches!(self, Self::Release | Self::ReleaseLater)
    }
}

/// What makes slots full and takes them, or makes them empty and acquires them: in each block, in the order of the text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    Full,
    Empty,
}

type Steps = BTreeMap<(Block, End), Vec<(Step, Value, Inst)>>;

impl Teams {
    /// The teams of a function: each ring that may be in one joins the first whose rings it follows.
    pub fn find(analysis: &SlotAnalysis<'_>, plans: &Plans) -> Self {
        let function = analysis.function;
        let mut steps = Steps::new();
        let mut order = Vec::new();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            let (end, step) = match &data.op {
                Op::Gpu(GpuOp::Alloc { .. }) => {
                    order.extend(data.results.iter().filter(|value| plans.contains_key(value)));
                    return;
                }
                Op::Gpu(GpuOp::Acquire {}) => (End::Empty, Step::Acquire),
                Op::Gpu(GpuOp::Publish {}) => (End::Full, Step::Publish),
                Op::Gpu(GpuOp::Take {}) => (End::Full, Step::Take),
                Op::Gpu(GpuOp::Release {}) => {
                    let taken = function.defining_inst(data.operands[0]);
                    let is_here = taken
                        .is_some_and(|taken| analysis.block_of_inst(taken) == analysis.block_of_inst(inst));
                    (End::Empty, if is_here { Step::Release } else { Step::ReleaseLater })
                }
                // tidy: wildcard because no other op advances a ring
                _ => {
                    let taken =
                        data.operands.iter().filter(|value| matches!(function.ty(**value), Type::Full(_)));
                    for root in taken.filter_map(|value| analysis.root(*value)) {
                        let steps = steps.entry((analysis.block_of_inst(inst), End::Full)).or_default();
                        steps.push((Step::Read, root, inst));
                    }
                    return;
                }
            };
            if let Some(root) = analysis.root(data.operands[0]) {
                let mut block = analysis.block_of_inst(inst);
                steps.entry((block, end)).or_default().push((step, root, inst));
                while let Some(owner) = analysis.owner(block) {
                    block = analysis.block_of_inst(owner);
                    steps.entry((block, end)).or_default().push((Step::Within, root, inst));
                }
            }
        });
        let mut teams: Vec<Vec<Value>> = Vec::new();
        for root in order {
            let team = teams.iter_mut().find(|team| {
                let together: Vec<Value> = team.iter().copied().chain([root]).collect();
                let is_at_once =
                    plans[&root].writer == Writer::Tensor || are_taken_at_once(&steps, &together);
                is_alike(analysis, plans, team[0], root)
                    && advance_in_turn(&steps, &together, &plans[&root])
                    && is_at_once
            });
            match team {
                Some(team) => team.push(root),
                None => teams.push(vec![root]),
            }
        }
        let last_releases =
            teams.iter().flat_map(|team| last_releases(&steps, team, &plans[&team[0]])).collect();
        let of =
            teams.into_iter().flat_map(|team| team.clone().into_iter().map(move |root| (root, team.clone())));
        Self { of: of.collect(), last_releases }
    }

    /// The rings that advance with this one, in order.
    pub fn team(&self, root: Value) -> &[Value] {
        self.of.get(&root).map_or(&[], |team| team)
    }

    /// The ring that has the barriers.
    pub fn first(&self, root: Value) -> Value {
        self.team(root).first().copied().unwrap_or(root)
    }

    /// Whether the team advances with this one.
    pub fn is_last(&self, root: Value) -> bool {
        self.team(root).last().is_none_or(|last| *last == root)
    }

    /// Whether a release is the last of its turn.
    pub fn is_last_release(&self, release: Inst) -> bool {
        self.last_releases.contains(&release)
    }

    /// How many rings.
    pub fn size(&self, root: Value) -> u32 {
        self.team(root).len().max(1) as u32
    }
}

/// Whether two rings can have barriers in common.
fn is_alike(analysis: &SlotAnalysis<'_>, plans: &Plans, one: Value, other: Value) -> bool {
    let [first, second]: [&Plan; 2] = [one, other].map(|root| &plans[&root]);
    let roles =
        |plan: &Plan| plan.roles.as_ref().map(|roles| (roles.inst, roles.producer, roles.consumers.clone()));
    let is_possible = match first.writer {
        Writer::Tensor => true,
        Writer::Copies => first.is_async_read == second.is_async_read,
        Writer::Stores => false,
    };
    is_possible
        && first.writer == second.writer
        && first.buffer.slots == second.buffer.slots
        && first.has_empty() == second.has_empty()
        && roles(first) == roles(second)
        && analysis.block_of(one) == analysis.block_of(other)
}

/// What is done with some rings, in turns of as many steps as there are rings: those steps that count. Between the steps of a turn of a
/// role no ring advances in a loop: who waits for the whole turn at its first step would wait for a role that waits for it in that loop.
fn turns(
    steps: &[(Step, Value, Inst)],
    rings: &[Value],
    has_roles: bool,
    counts: impl Fn(Step) -> bool,
) -> Vec<Vec<(Step, Value, Inst)>> {
    let is_own = |(step, root, _): &&(Step, Value, Inst)| match step {
        Step::Read => false,
        Step::Within if has_roles => true,
        step => counts(*step) && rings.contains(root),
    };
    let own: Vec<_> = steps.iter().filter(is_own).copied().collect();
    let straight = own.split(|(step, ..)| *step == Step::Within);
    straight.flat_map(|own| own.chunks(rings.len()).map(<[_]>::to_vec)).collect()
}

/// Whether the same is done with some rings in turn, in this order, in every block; roles release slots in any order. Where nothing
/// says that a slot is empty but a barrier of the block, it does not matter when they are.
fn advance_in_turn(steps: &Steps, rings: &[Value], plan: &Plan) -> bool {
    let counts = |step: Step| plan.has_empty() || !step.is_release();
    let is_turn = |turn: &Vec<(Step, Value, Inst)>| {
        let is_one = |ring: &Value| turn.iter().filter(|(_, root, _)| root == ring).count() == 1;
        let is_in_order = turn.iter().map(|(_, root, _)| root).eq(rings);
        turn.iter().all(|(step, ..)| *step == turn[0].0)
            && (is_in_order || plan.roles.is_some() && turn[0].0.is_release() && rings.iter().all(is_one))
    };
    steps.values().all(|steps| turns(steps, rings, plan.roles.is_some(), counts).iter().all(is_turn))
}

/// The last release of each turn of a team.
fn last_releases(steps: &Steps, team: &[Value], plan: &Plan) -> Vec<Inst> {
    let is_counted = |step: Step| step.is_release() || step == Step::Within;
    let all = steps.values().flat_map(|steps| turns(steps, team, plan.roles.is_some(), is_counted));
    let lasts = all.filter_map(|turn| turn.last().copied());
    lasts.filter(|(step, ..)| step.is_release()).map(|(_, _, inst)| inst).collect()
}

/// Whether nothing is read of some rings that advance in turn before all are taken.
fn are_taken_at_once(steps: &Steps, rings: &[Value]) -> bool {
    steps.values().all(|steps| {
        let mut left = 0;
        steps.iter().filter(|(_, root, _)| rings.contains(root)).all(|(step, root, _)| {
            if *step == Step::Take {
                left = rings.iter().rev().position(|ring| ring == root).unwrap_or(0);
            }
            *step != Step::Read || left == 0
        })
    })
}
