//! Checks that no warp waits forever for a slot of a ring. It would wait for an empty slot while
//! all are in use, or for a full slot that nothing publishes.
//!
//! The check counts slots in use and full slots ([`RingCount`]). In a loop, it assumes the worse
//! counts of the entry and earlier iterations: more in use, fewer full. After a branch, it assumes
//! the better counts, because a condition may skip the ops in the last iterations.
//!
//! For a ring of several partitions, it counts only the slots that the current one holds.

use std::collections::BTreeMap;

use tilewright_ir::{Inst, Value};

use crate::analysis::dataflow::{Check, JoinPoint, Transfer, walk};
use crate::analysis::slots::{Edge, SlotAnalysis};
use crate::{GpuOp, Op};

/// Counts of the slots of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct RingCount {
    /// The number of slots in use: acquired and not released. For a ring between partitions, only
    /// the current partition's slots count.
    held: i64,
    /// The number of full slots: published and not taken.
    full: i64,
}

/// Checks the rings of a function.
pub fn check(analysis: &SlotAnalysis<'_>) -> Check {
    let function = analysis.function;
    let mut users: BTreeMap<Value, Vec<Option<(Inst, usize)>>> = BTreeMap::new();
    function.walk(function.entry, &mut |inst| {
        if let Some((root, _)) = ring_op(analysis, inst) {
            users.entry(root).or_default().push(analysis.partition(inst));
        }
    });
    let shared = users
        .into_iter()
        .filter(|(_, partitions)| partitions.windows(2).any(|pair| pair[0] != pair[1]))
        .map(|(root, _)| root)
        .collect();
    walk(analysis, &mut Rings { analysis, shared }, BTreeMap::new())
}

/// Returns the ring and op of an instruction that advances or releases a slot.
fn ring_op<'a>(analysis: &SlotAnalysis<'a>, inst: Inst) -> Option<(Value, &'a GpuOp)> {
    let data = &analysis.function.insts[inst];
    let op = data.op.as_gpu()?;
    let is_ring_op = matches!(op, GpuOp::Acquire {} | GpuOp::Publish {} | GpuOp::Take {} | GpuOp::Release {});
    if is_ring_op { Some((analysis.root(data.operands[0])?, op)) } else { None }
}

struct Rings<'a> {
    analysis: &'a SlotAnalysis<'a>,
    /// The rings that several partitions use.
    shared: Vec<Value>,
}

impl Transfer for Rings<'_> {
    type State = BTreeMap<Value, RingCount>;

    fn step(&mut self, inst: Inst, state: &mut Self::State) -> Check {
        if let Some(Op::Gpu(GpuOp::Alloc { .. })) = Some(&self.analysis.function.insts[inst].op) {
            state.remove(&self.analysis.function.insts[inst].results[0]);
        }
        let Some((root, op)) = ring_op(self.analysis, inst) else { return Ok(()) };
        let (slots, text) = (self.analysis.slots(root), self.analysis.text(root));
        let is_shared = self.shared.contains(&root);
        let count = state.entry(root).or_default();
        match op {
            GpuOp::Acquire {} => {
                if count.held >= slots {
                    return Err(format!(
                        "acquire waits forever: all {slots} slots of {text} are in use, release one first"
                    ));
                }
                count.held += 1;
            }
            GpuOp::Publish {} if is_shared => count.held -= 1,
            GpuOp::Publish {} => count.full = (count.full + 1).min(slots),
            GpuOp::Take {} if is_shared => {
                if count.held >= slots {
                    return Err(format!(
                        "take waits forever: all {slots} slots of {text} are held, release one first"
                    ));
                }
                count.held += 1;
            }
            GpuOp::Take {} => {
                if count.full <= 0 {
                    return Err(format!(
                        "take waits forever: no slot of {text} is full, and no other partition publishes one"
                    ));
                }
                count.full -= 1;
            }
            // tidy: wildcard because the fourth op of rings is release
            _ => count.held = (count.held - 1).max(0),
        }
        Ok(())
    }

    fn join(&self, state: &mut Self::State, other: &Self::State, point: JoinPoint) {
        for root in other.keys() {
            state.entry(*root).or_default();
        }
        for (root, count) in state {
            let other = other.get(root).copied().unwrap_or_default();
            *count = match point {
                JoinPoint::Branch => {
                    RingCount { held: count.held.min(other.held), full: count.full.max(other.full) }
                }
                JoinPoint::Loop => {
                    RingCount { held: count.held.max(other.held), full: count.full.min(other.full) }
                }
            };
        }
    }

    fn rename(&self, _state: &mut Self::State, _edge: &Edge) {}
}
