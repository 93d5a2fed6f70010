//! Asynchronous products: nothing writes a slot that a product under way may still read, or gives it up, and `finish` waits
//! for the product whose accumulator it gives.
//!
//! Products end in the order in which they were begun: `finish {pending = n}` ends all but the n latest ones. Until a pass
//! fills in the number, it counts as the largest that ends the product.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_ir::{Inst, Operation, Value};

use super::super::{Deferred, GpuOp, Op};
use super::flow::{Check, Meet, Rule, walk};
use super::slots::{Edge, Names, Slot};

/// Products beyond this count as this many.
const MOST_LATER: u32 = 64;

/// Products under way that have one accumulator.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Product {
    /// The slots that it may still read.
    reads: BTreeSet<Slot>,
    /// How many were begun after it, at least.
    later: u32,
}

impl Product {
    fn join(&mut self, other: &Self) {
        self.reads.extend(&other.reads);
        self.later = self.later.min(other.later);
    }
}

/// Checks the products of a function.
pub fn check(names: &Names<'_>) -> Check {
    walk(names, &mut Products { names }, BTreeMap::new())
}

/// By the token of the accumulator.
type State = BTreeMap<Value, Product>;

struct Products<'a> {
    names: &'a Names<'a>,
}

impl Rule for Products<'_> {
    type State = State;

    fn step(&mut self, inst: Inst, state: &mut State) -> Check {
        let data = &self.names.function.insts[inst];
        let Op::Gpu(op) = &data.op else { return Ok(()) };
        match op {
            GpuOp::Wgmma { .. } => {
                for product in state.values_mut() {
                    product.later = (product.later + 1).min(MOST_LATER);
                }
                let mut reads: BTreeSet<Slot> =
                    data.operands[..2].iter().filter_map(|value| self.names.slot(*value)).collect();
                if let Some(before) = state.remove(&data.operands[2]) {
                    reads.extend(before.reads);
                }
                state.insert(data.results[0], Product { reads, later: 0 });
                Ok(())
            }
            GpuOp::Finish { pending: Deferred(pending) } => {
                let Some(product) = state.remove(&data.operands[0]) else { return Ok(()) };
                let pending = pending.unwrap_or(product.later);
                if pending > product.later {
                    let text = self.names.text(data.operands[0]);
                    return Err(format!(
                        "finish leaves {pending} products under way, and {text} may be one of them: {} were begun after it",
                        product.later
                    ));
                }
                for product in state.values_mut().filter(|product| product.later >= pending) {
                    product.reads.clear();
                }
                Ok(())
            }
            GpuOp::LocalStore {}
            | GpuOp::LocalCount {}
            | GpuOp::CopyAsync { .. }
            | GpuOp::TensorLoad {}
            | GpuOp::Release {} => {
                let memory = data.operands[0];
                let slot = self.names.slot(memory);
                self.unread(inst, state, |read| Some(*read) == slot)
            }
            GpuOp::Dealloc {} => self.unread(inst, state, |read| read.root == data.operands[0]),
            // tidy: wildcard because no other op writes shared memory
            _ => Ok(()),
        }
    }

    fn join(&self, state: &mut State, other: &State, _meet: Meet) {
        for (token, product) in other {
            state.entry(*token).or_insert_with(|| product.clone()).join(product);
        }
    }

    fn rename(&self, state: &mut State, edge: &Edge) {
        for (token, mut product) in std::mem::take(state) {
            product.reads = product.reads.iter().map(|slot| self.names.rename(*slot, edge)).collect();
            let token = edge.token(token).unwrap_or(token);
            state.entry(token).or_insert_with(|| product.clone()).join(&product);
        }
    }
}

impl Products<'_> {
    /// No product under way may read what is written or given up.
    fn unread(&self, inst: Inst, state: &State, is_it: impl Fn(&Slot) -> bool) -> Check {
        let Some((token, _)) = state.iter().find(|(_, product)| product.reads.iter().any(&is_it)) else {
            return Ok(());
        };
        let data = &self.names.function.insts[inst];
        let [memory, token] = [data.operands[0], *token].map(|value| self.names.text(value));
        let what = match data.op {
            Op::Gpu(GpuOp::Release {} | GpuOp::Dealloc {}) => "gives up",
            // tidy: wildcard because the others write
            _ => "writes",
        };
        let name = data.op.name();
        Err(format!("{name} {what} {memory}, which the product {token} may still read: finish it before"))
    }
}
