//! Asynchronous products: nothing writes a slot that a product under way may still read, or gives it up, and `finish` waits
//! for the product whose accumulator it gives. Products that follow each other in the same registers are told apart by when they
//! were begun.
//!
//! Products end in the order in which they were begun: `finish {pending = n}` ends all but the n latest ones. Until a pass
//! fills in the number, it counts as the largest that ends the product.

use std::collections::BTreeMap;

use tilewright_ir::{Inst, Operation, Value};

use crate::analysis::dataflow::{Check, Meet, Rule, walk};
use crate::analysis::slots::{Edge, Names, Slot};
use crate::{Deferred, GpuOp, Op};

/// Products beyond this count as this many.
const MOST_LATER: u32 = 64;

/// Products under way that have one accumulator.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Product {
    /// The slots that it may still read: so many were begun after the one of its registers that does, at least.
    reads: BTreeMap<Slot, u32>,
    /// How many were begun after it, at least.
    later: u32,
}

impl Product {
    fn join(&mut self, other: &Self) {
        for (slot, later) in &other.reads {
            let known = self.reads.entry(*slot).or_insert(*later);
            *known = (*known).min(*later);
        }
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
                    for later in product.reads.values_mut().chain([&mut product.later]) {
                        *later = (*later + 1).min(MOST_LATER);
                    }
                }
                let before = state.remove(&data.operands[2]);
                let mut reads = before.map(|before| before.reads).unwrap_or_default();
                let own = data.operands[..2].iter().filter_map(|value| self.names.slot(*value));
                reads.extend(own.map(|slot| (slot, 0)));
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
                finish(pending, state);
                Ok(())
            }
            GpuOp::Settle { pending } => {
                let Some(product) = state.remove(&data.operands[0]) else { return Ok(()) };
                state.insert(data.results[0], product);
                finish(*pending, state);
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
            let mut reads = BTreeMap::new();
            for (slot, later) in product.reads {
                let known = reads.entry(self.names.rename(slot, edge)).or_insert(later);
                *known = later.min(*known);
            }
            product.reads = reads;
            let token = edge.token(token).unwrap_or(token);
            state.entry(token).or_insert_with(|| product.clone()).join(&product);
        }
    }
}

/// All products are done but so many of the latest.
fn finish(pending: u32, state: &mut State) {
    for product in state.values_mut() {
        product.reads.retain(|_, later| *later < pending);
    }
}

impl Products<'_> {
    /// No product under way may read what is written or given up.
    fn unread(&self, inst: Inst, state: &State, is_it: impl Fn(&Slot) -> bool) -> Check {
        let Some((token, _)) = state.iter().find(|(_, product)| product.reads.keys().any(&is_it)) else {
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
