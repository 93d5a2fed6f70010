//! Marks last uses, drops dead steps, and hoists grid-invariant steps.
//!
//! The results of a grid-invariant step are the same in every program of the grid.

use crate::program::{Block, BlockId, Program, Slot, Step, Use};

/// Hoists grid-invariant steps into the preamble, drops dead steps, and marks last uses.
pub(crate) fn analyze(program: &mut Program) {
    hoist(program);
    mark(program);
}

pub(crate) fn mark(program: &mut Program) {
    let mut analysis = Analysis {
        owner: vec![PINNED; program.slots.len()],
        live: vec![false; program.slots.len()],
        blocks: std::mem::take(&mut program.blocks),
    };
    analysis.blocks.iter_mut().for_each(unmark);
    let (preamble, body) = (program.preamble, program.body);
    analysis.own(body, body);
    analysis.block(body, body);
    analysis.preamble(preamble);
    program.blocks = analysis.blocks;
    // A scalar holds no memory, so its slot need not be cleared.
    for block in &mut program.blocks {
        let is_tile = |slot: &mut Slot| !program.types[program.slots[*slot as usize] as usize].is_scalar();
        block.kills.retain(is_tile);
        block.steps.iter_mut().for_each(|step| step.kills.retain(is_tile));
    }
}

/// Moves the grid-invariant steps from the body to the preamble.
fn hoist(program: &mut Program) {
    let mut invariant = vec![false; program.slots.len()];
    for parameter in &program.parameters {
        invariant[parameter.slot as usize] = true;
    }
    let steps = std::mem::take(&mut program.blocks[program.body as usize].steps);
    let (once, each): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(|step| {
        let is_invariant =
            step.is_grid_invariant() && step.operands.iter().all(|operand| invariant[operand.slot as usize]);
        for &result in &step.results {
            invariant[result as usize] |= is_invariant;
        }
        is_invariant
    });
    program.blocks[program.preamble as usize].steps = once;
    program.blocks[program.body as usize].steps = each;
}

fn unmark(block: &mut Block) {
    let operands = block.steps.iter_mut().flat_map(|step| &mut step.operands);
    for operand in operands.chain(&mut block.yields) {
        operand.last = false;
    }
    block.kills.clear();
    for step in &mut block.steps {
        step.kills.clear();
    }
}

struct Analysis {
    /// For each slot, the innermost repeated block around its definition, or [`PINNED`]. The body
    /// of the program counts as repeated.
    owner: Vec<BlockId>,
    live: Vec<bool>,
    blocks: Vec<Block>,
}

/// The owner of slots that live as long as the launch: parameters, and results of the preamble.
const PINNED: BlockId = BlockId::MAX;

impl Analysis {
    /// Sets the owner of each slot that `block` or an inner block defines. `root` is the innermost
    /// repeated block around the steps of `block`.
    fn own(&mut self, block: BlockId, root: BlockId) {
        let data = &self.blocks[block as usize];
        let mut inner = Vec::new();
        for &slot in &data.parameters {
            self.owner[slot as usize] = root;
        }
        for step in &data.steps {
            for &slot in &step.results {
                self.owner[slot as usize] = root;
            }
            let repeats = step.repeats_blocks();
            inner.extend(step.blocks.iter().map(|&block| (block, if repeats { block } else { root })));
        }
        for (block, root) in inner {
            self.own(block, root);
        }
    }

    /// Visits a block backwards. `live` has the live slots after the block before the call, and
    /// those before the block after the call.
    ///
    /// The block frees only slots that `root` owns: the next iteration of `root` may read the other
    /// slots.
    fn block(&mut self, block: BlockId, root: BlockId) {
        let mut data = std::mem::take(&mut self.blocks[block as usize]);
        self.uses(&mut data.yields, root);
        let mut kept = Vec::with_capacity(data.steps.len());
        while let Some(mut step) = data.steps.pop() {
            let is_read = step.results.iter().any(|&slot| self.live[slot as usize]);
            if step.is_pure() && !is_read {
                continue;
            }
            for &slot in &step.results {
                if !std::mem::replace(&mut self.live[slot as usize], false) {
                    step.kills.push(slot);
                }
            }
            self.inner_blocks(&mut step, root);
            self.uses(&mut step.operands, root);
            release_shared(&mut step);
            kept.push(step);
        }
        kept.reverse();
        data.steps = kept;
        for &slot in &data.parameters {
            if !std::mem::replace(&mut self.live[slot as usize], false) {
                data.kills.push(slot);
            }
        }
        self.blocks[block as usize] = data;
    }

    fn uses(&mut self, uses: &mut [Use], root: BlockId) {
        for operand in uses.iter_mut().rev() {
            let slot = operand.slot as usize;
            if !self.live[slot] {
                self.live[slot] = true;
                operand.last = self.owner[slot] == root;
            }
        }
    }

    /// Visits the blocks of a step. A slot that dies in them becomes a kill of the step, if `root`
    /// owns the slot.
    fn inner_blocks(&mut self, step: &mut Step, root: BlockId) {
        if step.blocks.is_empty() {
            return;
        }
        let after = self.live.clone();
        let repeats = step.repeats_blocks();
        let mut captured = after.clone();
        for &block in &step.blocks {
            self.live.clone_from(&after);
            self.block(block, if repeats { block } else { root });
            for (all, &live) in captured.iter_mut().zip(&self.live) {
                *all |= live;
            }
        }
        for slot in 0..captured.len() {
            if captured[slot] && !after[slot] && self.owner[slot] == root {
                step.kills.push(slot as Slot);
            }
        }
        self.live = captured;
    }

    /// Drops the dead steps of the preamble. Its results live as long as the launch, so it has no
    /// last uses.
    fn preamble(&mut self, preamble: BlockId) {
        let steps = std::mem::take(&mut self.blocks[preamble as usize].steps);
        let mut kept = Vec::with_capacity(steps.len());
        for step in steps.into_iter().rev() {
            if step.results.iter().any(|&slot| self.live[slot as usize]) {
                for operand in &step.operands {
                    self.live[operand.slot as usize] = true;
                }
                kept.push(step);
            }
        }
        kept.reverse();
        self.blocks[preamble as usize].steps = kept;
    }
}

/// Replaces the mark of a last use by a kill if several operands read the slot. Otherwise, the step
/// could move the value out before it has read the other operands.
fn release_shared(step: &mut Step) {
    for index in 1..step.operands.len() {
        let Use { slot, last, .. } = step.operands[index];
        if last && step.operands[..index].iter().any(|operand| operand.slot == slot) {
            step.operands[index].last = false;
            step.kills.push(slot);
        }
    }
}
