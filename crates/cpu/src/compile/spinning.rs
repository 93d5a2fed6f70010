//! Loops that wait: whose condition depends on nothing that the loop computes, but on what a plain load finds at one place.
//! Such a loop ends at once, or when another program writes there. Loops that look at memory by atomics or volatile loads may
//! wait too, whatever their conditions are; those are known by their ops.
//!
//! It is asked of a program whose slots are each set at one place, before others reuse them.

use rustc_hash::FxHashSet;
use tilewright_ir::Op;

use crate::program::{Block, BlockId, Program, Slot};

/// The condition blocks of loops that wait by plain loads.
pub(crate) fn find(program: &Program) -> Vec<BlockId> {
    let steps = program.blocks.iter().flat_map(|block| &block.steps);
    let loops = steps.filter(|step| matches!(step.op(), Some(Op::While {})));
    loops.filter(|step| waits(program, step.blocks[0], step.blocks[1])).map(|step| step.blocks[0]).collect()
}

fn waits(program: &Program, condition: BlockId, body: BlockId) -> bool {
    let [condition, body] = [condition, body].map(|block| &program.blocks[block as usize]);
    let mut moving: FxHashSet<Slot> = FxHashSet::default();
    for block in [condition, body] {
        moving.extend(&block.parameters);
    }
    let mut loaded = FxHashSet::default();
    // A carried value stays where it is if it is handed on, or made of what stays; each pass finds one at least.
    for _ in 0..=condition.parameters.len() + 1 {
        for block in [condition, body] {
            settle(block, &mut moving, &mut loaded);
        }
        for (place, next) in body.yields.iter().enumerate() {
            let parameters = [condition.parameters[place], body.parameters[place]];
            if parameters.contains(&next.slot) || !moving.contains(&next.slot) {
                for parameter in parameters {
                    moving.remove(&parameter);
                    if loaded.contains(&next.slot) {
                        loaded.insert(parameter);
                    }
                }
            }
        }
    }
    settle(condition, &mut moving, &mut loaded);
    condition
        .yields
        .first()
        .is_some_and(|holds| !moving.contains(&holds.slot) && loaded.contains(&holds.slot))
}

/// Sorts the results of a block: which are made of what moves, and which of what loads found.
fn settle(block: &Block, moving: &mut FxHashSet<Slot>, loaded: &mut FxHashSet<Slot>) {
    for step in &block.steps {
        let stays = (step.is_pure() || step.is_load())
            && step.blocks.is_empty()
            && step.operands.iter().all(|operand| !moving.contains(&operand.slot));
        let is_loaded = step.is_load() || step.operands.iter().any(|operand| loaded.contains(&operand.slot));
        for result in &step.results {
            if stays {
                moving.remove(result);
                if is_loaded {
                    loaded.insert(*result);
                }
            } else {
                moving.insert(*result);
            }
        }
    }
}
