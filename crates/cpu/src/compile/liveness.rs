//! Liveness: which use of a slot is the last one, what is never used, and what is the same for the whole grid.

use crate::compile::program::{Action, Block, BlockId, Program, Slot, Step, Use};

/// Splits the body into preamble and body, drops what nobody reads, and marks last uses.
pub(crate) fn analyse(program: &mut Program) {
    split(program);
    mark(program);
}

/// Drops what nobody reads, and marks last uses, whatever was marked before.
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
    // Nothing is held by the slot of a scalar: it is as well left as it is.
    for block in &mut program.blocks {
        let is_tile = |slot: &mut Slot| !program.types[program.slots[*slot as usize] as usize].is_scalar();
        block.kills.retain(is_tile);
        block.steps.iter_mut().for_each(|step| step.kills.retain(is_tile));
    }
}

/// Moves the steps that give the same for every program from the body to the preamble.
fn split(program: &mut Program) {
    let mut same = vec![false; program.slots.len()];
    for parameter in &program.parameters {
        same[parameter.slot as usize] = true;
    }
    let steps = std::mem::take(&mut program.blocks[program.body as usize].steps);
    let (once, each): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(|step| {
        let is_same = step.action.is_uniform_over_grid()
            && step.operands.iter().all(|operand| same[operand.slot as usize]);
        for &result in &step.results {
            same[result as usize] |= is_same;
        }
        is_same
    });
    program.blocks[program.preamble as usize].steps = once;
    program.blocks[program.body as usize].steps = each;
}

/// Forgets what was marked.
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
    /// The innermost repeated block (or the body) that the slot is defined in; [`PINNED`] for what lives longer.
    owner: Vec<BlockId>,
    live: Vec<bool>,
    blocks: Vec<Block>,
}

/// Arguments and results of the preamble: they live as long as the launch.
const PINNED: BlockId = BlockId::MAX;

impl Analysis {
    /// Notes which repeated block each slot belongs to.
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
            let repeated = is_repeated(&step.action);
            inner.extend(
                step.action.blocks().iter().map(|&block| (block, if repeated { block } else { root })),
            );
        }
        for (block, root) in inner {
            self.own(block, root);
        }
    }

    /// Walks a block backwards. `live` holds the slots that are read after it, then those that are read from its
    /// beginning on. A slot may be freed in it if it belongs to the same repeated block.
    fn block(&mut self, block: BlockId, root: BlockId) {
        let mut data = std::mem::take(&mut self.blocks[block as usize]);
        self.uses(&mut data.yields, root);
        let mut kept = Vec::with_capacity(data.steps.len());
        while let Some(mut step) = data.steps.pop() {
            let is_read = step.results.iter().any(|&slot| self.live[slot as usize]);
            if step.action.is_pure() && !is_read {
                continue;
            }
            for &slot in &step.results {
                if !std::mem::replace(&mut self.live[slot as usize], false) {
                    step.kills.push(slot);
                }
            }
            self.regions(&mut step, root);
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

    /// The regions of a step. What they capture and nobody reads afterwards is freed after the step.
    fn regions(&mut self, step: &mut Step, root: BlockId) {
        let blocks = step.action.blocks();
        if blocks.is_empty() {
            return;
        }
        let after = self.live.clone();
        let repeated = is_repeated(&step.action);
        let mut captured = after.clone();
        for &block in &blocks {
            self.live.clone_from(&after);
            self.block(block, if repeated { block } else { root });
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

    /// The preamble: what it computes lives as long as the launch, so only what is never read is dropped.
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

/// Whether the regions of an action may run more than once, or one after the other.
fn is_repeated(action: &Action) -> bool {
    matches!(action, Action::For(_) | Action::While(..) | Action::Reduce(_))
}

/// An operand that is the last use of its slot is moved out, in whatever order the step looks at its operands: a slot that
/// several of them have is freed after the step instead.
fn release_shared(step: &mut Step) {
    for index in 1..step.operands.len() {
        let Use { slot, last, .. } = step.operands[index];
        if last && step.operands[..index].iter().any(|operand| operand.slot == slot) {
            step.operands[index].last = false;
            step.kills.push(slot);
        }
    }
}
