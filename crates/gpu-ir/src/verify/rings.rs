//! Rings: nobody waits for an empty slot when all are held, or for a full one when none was published, counted on the steady
//! state of loops. Branches count as if the better one were taken, since a tail may be left out by a condition.
//!
//! Of a ring that several roles use, only what one role holds at once is counted.

use std::collections::BTreeMap;

use tilewright_ir::{Inst, Value};

use crate::analysis::dataflow::{Check, Meet, Rule, walk};
use crate::analysis::slots::{Edge, Names};
use crate::{GpuOp, Op};

/// The slots of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Count {
    /// In use: acquired and not released.
    held: i64,
    /// Published and not taken.
    full: i64,
}

/// Checks the rings of a function.
pub fn check(names: &Names<'_>) -> Check {
    let function = names.function;
    let mut users: BTreeMap<Value, Vec<Option<(Inst, usize)>>> = BTreeMap::new();
    function.walk(function.entry, &mut |inst| {
        if let Some((root, _)) = ring_op(names, inst) {
            users.entry(root).or_default().push(names.role(inst));
        }
    });
    let shared = users
        .into_iter()
        .filter(|(_, roles)| roles.windows(2).any(|pair| pair[0] != pair[1]))
        .map(|(root, _)| root)
        .collect();
    walk(names, &mut Rings { names, shared }, BTreeMap::new())
}

/// The ring that an instruction is about.
fn ring_op<'a>(names: &Names<'a>, inst: Inst) -> Option<(Value, &'a GpuOp)> {
    let data = &names.function.insts[inst];
    let op = data.op.as_gpu()?;
    let is_ring_op = matches!(op, GpuOp::Acquire {} | GpuOp::Publish {} | GpuOp::Take {} | GpuOp::Release {});
    if is_ring_op { Some((names.root(data.operands[0])?, op)) } else { None }
}

struct Rings<'a> {
    names: &'a Names<'a>,
    /// Those that several roles use.
    shared: Vec<Value>,
}

impl Rule for Rings<'_> {
    type State = BTreeMap<Value, Count>;

    fn step(&mut self, inst: Inst, state: &mut Self::State) -> Check {
        if let Some(Op::Gpu(GpuOp::Alloc { .. })) = Some(&self.names.function.insts[inst].op) {
            state.remove(&self.names.function.insts[inst].results[0]);
        }
        let Some((root, op)) = ring_op(self.names, inst) else { return Ok(()) };
        let (slots, text) = (self.names.slots(root), self.names.text(root));
        let is_shared = self.shared.contains(&root);
        let count = state.entry(root).or_default();
        match op {
            GpuOp::Acquire {} => {
                if count.held >= slots {
                    return Err(format!(
                        "acquire waits for ever: all {slots} slots of {text} are in use, release one before"
                    ));
                }
                count.held += 1;
            }
            GpuOp::Publish {} if is_shared => count.held -= 1,
            GpuOp::Publish {} => count.full = (count.full + 1).min(slots),
            GpuOp::Take {} if is_shared => {
                if count.held >= slots {
                    return Err(format!(
                        "take waits for ever: all {slots} slots of {text} are held, release one before"
                    ));
                }
                count.held += 1;
            }
            GpuOp::Take {} => {
                if count.full <= 0 {
                    return Err(format!(
                        "take waits for ever: no slot of {text} is full, and no other role publishes one"
                    ));
                }
                count.full -= 1;
            }
            // tidy: wildcard because the fourth op of rings is release
            _ => count.held = (count.held - 1).max(0),
        }
        Ok(())
    }

    fn join(&self, state: &mut Self::State, other: &Self::State, meet: Meet) {
        for root in other.keys() {
            state.entry(*root).or_default();
        }
        for (root, count) in state {
            let other = other.get(root).copied().unwrap_or_default();
            *count = match meet {
                Meet::Branch => Count { held: count.held.min(other.held), full: count.full.max(other.full) },
                Meet::Loop => Count { held: count.held.max(other.held), full: count.full.min(other.full) },
            };
        }
    }

    fn rename(&self, _state: &mut Self::State, _edge: &Edge) {}
}
