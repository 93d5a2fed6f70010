//! Forms nests: groups consecutive steps that machine code executes as loops over vectors.
//!
//! ```text
//! steps ── plan ──> phases ── emit ──> vector SSA ── tilewright_native ──> machine code
//! ```
//! - [`plan`] decides which steps form a nest and in which loop each tile is computed.
//! - [`emit`] writes the vector code. [`vectors`] has the code of each function, conversion and
//!   reduction; [`lanes`] evaluates the formulas of the executor's kernels in vector SSA, so that
//!   both compute the same bits.
//!
//! The machine code is generated when a launch first executes the nest.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tilewright_native::Target;

use crate::program::nest::{Nest, NestCode, Word};
use crate::program::{Action, BlockId, Program, Slot, Step, Use};
use crate::tuning::MAX_ROW_SEARCH;

mod axes;
mod emit;
#[cfg(test)]
mod harness;
mod lanes;
mod plan;
pub(crate) mod trees;
mod vectors;

use axes::Dimensions;
use plan::{Definitions, Form, Plan, Space};

/// A nest, and the range of steps that it and the steps before it replace.
struct Formed {
    start: usize,
    end: usize,
    /// The indices of the steps in the range that are executed before the nest.
    before: Vec<usize>,
    nest: Nest,
    /// The inputs that no member reads: the operands of steps that the nest repeats.
    operands: SmallVec<[Use; 4]>,
    /// The results of members that the nest does not write.
    internal: Vec<Slot>,
}

/// Forms the nests of all blocks. The caller recomputes last uses, and then calls [`set_frees`].
pub(crate) fn form(program: &mut Program, target: Target) {
    let uses = program.use_counts();
    let mut definitions = Definitions::new(program);
    let parameters = program.parameters.iter().map(|parameter| parameter.slot);
    let once = &program.blocks[program.preamble as usize].steps;
    let invariant: FxHashSet<Slot> =
        parameters.chain(once.iter().flat_map(|step| step.results.iter().copied())).collect();
    let dimensions = Dimensions::new(program);
    let mut formed = loop {
        let nests = Former {
            program,
            definitions: &definitions,
            dimensions: &dimensions,
            uses: &uses,
            invariant: &invariant,
            target,
        };
        let formed = nests.of_blocks();
        // A nest that another nest reads may not keep the value to itself.
        let all = || formed.iter().flat_map(|(_, nests)| nests);
        let internal: FxHashSet<Slot> = all().flat_map(|nest| nest.internal.iter().copied()).collect();
        let operands = all().flat_map(|nest| &nest.operands).map(|operand| operand.slot);
        let unset: Vec<Slot> = operands.filter(|slot| internal.contains(slot)).collect();
        if unset.is_empty() {
            break formed;
        }
        definitions.unset.extend(unset);
    };
    drop(definitions);
    for (index, formed) in formed.iter_mut().flat_map(|(_, nests)| nests).enumerate() {
        formed.nest.index = index;
    }
    for (id, nests) in formed {
        insert(&mut program.blocks[id as usize].steps, nests);
    }
}

/// Forms the nests of a program.
struct Former<'p> {
    program: &'p Program,
    definitions: &'p Definitions<'p>,
    dimensions: &'p Dimensions,
    /// The number of reads of each slot.
    uses: &'p [u32],
    /// The slots that are the same for all programs of a launch.
    invariant: &'p FxHashSet<Slot>,
    target: Target,
}

impl<'p> Former<'p> {
    fn plan(&self, space: Space) -> Plan<'p> {
        Plan::new(self.program, self.definitions, self.dimensions, space)
    }

    /// Returns the blocks that have nests, with their nests.
    fn of_blocks(&self) -> Vec<(BlockId, Vec<Formed>)> {
        let blocks = (0..).zip(&self.program.blocks);
        let repeated = blocks.filter(|(id, _)| *id != self.program.preamble);
        let nests = repeated.map(|(id, block)| (id, self.of_steps(&block.steps, id == self.program.body)));
        nests.filter(|(_, nests)| !nests.is_empty()).collect()
    }

    /// Returns the nests of the steps of a block, which may be the body of the program.
    fn of_steps(&self, steps: &'p [Step], is_body: bool) -> Vec<Formed> {
        let mut nests = Vec::new();
        let mut start = 0;
        while start < steps.len() {
            let (plan, end) = self.longest(&steps[start..]);
            let end = start + end;
            if plan.is_worthwhile()
                && let Some(formed) = self.complete(steps, start..end, is_body, &plan)
            {
                nests.push(formed);
            }
            start = end.max(start + 1);
        }
        nests
    }

    /// Returns the plan that executes the most of these steps, and their number: one with the rows
    /// of the first tile that has some, or one without rows.
    fn longest(&self, steps: &'p [Step]) -> (Plan<'p>, usize) {
        let mut results = steps.iter().take(MAX_ROW_SEARCH).flat_map(|step| step.results.iter().copied());
        let with_rows = results.find_map(|slot| Space::of_tile(self.program, self.dimensions, slot));
        let spaces = std::iter::once(Space::line()).chain(with_rows);
        let plans = spaces.map(|space| {
            let mut plan = self.plan(space);
            let count = steps.iter().take_while(|step| plan.add(step)).count();
            (plan, count)
        });
        // The first one of two equally long plans has no rows.
        plans
            .reduce(|best, plan| if plan.1 > best.1 { plan } else { best })
            .expect("there is a plan without rows")
    }

    /// Completes a nest: takes out the steps whose results are index tiles or pointers that other
    /// steps read, and emits the code of the rest. Returns the indices of the steps that are taken
    /// out; `None` if they cannot be executed before the nest.
    fn complete(
        &self,
        block: &'p [Step],
        range: Range<usize>,
        is_body: bool,
        plan: &Plan<'p>,
    ) -> Option<Formed> {
        let steps = &block[range.clone()];
        let mut counts: FxHashMap<Slot, u32> = FxHashMap::default();
        for operand in steps.iter().flat_map(|step| &step.operands) {
            *counts.entry(operand.slot).or_default() += 1;
        }
        let count = |slot: Slot| counts.get(&slot).copied().unwrap_or(0);
        let outside: FxHashSet<Slot> = steps
            .iter()
            .flat_map(|step| step.results.iter().copied())
            .filter(|&slot| self.uses[slot as usize] > count(slot))
            .collect();
        let mut before: Vec<usize> = Vec::new();
        let mut needed: FxHashSet<Slot> = FxHashSet::default();
        for (index, step) in steps.iter().enumerate().rev() {
            let is_index = |slot: Slot| {
                let ty = self.program.ty(slot);
                let known = plan.known[&slot];
                let is_symbolic = match known.form {
                    Form::Affine(_) | Form::Range => true,
                    // Indices of rows, and copies of scalars.
                    Form::Uniform => !ty.is_scalar() && known.phase == 0 && step.is_pure(),
                    Form::Dense => false,
                };
                is_symbolic || ty.is_pointer()
            };
            let is_taken = step
                .results
                .iter()
                .any(|slot| needed.contains(slot) || (outside.contains(slot) && is_index(*slot)));
            if is_taken {
                let is_early = step.results.iter().all(|slot| plan.known[slot].phase == 0);
                if !step.is_pure() || !is_early || !matches!(step.action, Action::Op(_)) {
                    return None;
                }
                needed.extend(step.operands.iter().map(|operand| operand.slot));
                before.push(index);
            }
        }
        before.reverse();
        let mut rest = self.plan(plan.space.clone());
        for (index, step) in steps.iter().enumerate() {
            if before.binary_search(&index).is_err() && !rest.add(step) {
                return None;
            }
        }
        if !rest.is_worthwhile() {
            return None;
        }
        let outputs: Vec<Slot> = rest
            .members
            .iter()
            .flat_map(|step| step.results.iter().copied())
            .filter(|slot| outside.contains(slot))
            .collect();
        let is_written = |&slot: &Slot| rest.layout(slot).is_some_and(|layout| layout.is_contiguous);
        if !outputs.iter().all(is_written) {
            return None;
        }
        let is_whole = is_body && rest.members.len() == block.len() && outputs.is_empty();
        let code = emit::emit(self.program, &rest, &outputs, is_whole, self.target.lanes());
        let is_varying = |word: &Word| !word.is_invariant(|slot| self.invariant.contains(&slot));
        let varying = code.words.iter().enumerate().filter(|(_, word)| is_varying(word));
        let nest = Nest {
            index: 0,
            is_whole,
            members: rest.members.len(),
            varying: varying.map(|(index, _)| index).collect(),
            words: code.words,
            scratch: code.scratch,
            frees: Vec::new(),
            code: Arc::new(NestCode::new(code.function, self.target)),
        };
        let of_members: FxHashSet<Slot> =
            rest.members.iter().flat_map(|step| &step.operands).map(|operand| operand.slot).collect();
        let operands = rest
            .inputs
            .iter()
            .filter(|slot| !of_members.contains(slot))
            .map(|&slot| Use { slot, ty: self.program.slots[slot as usize], last: false })
            .collect();
        let results = rest.members.iter().flat_map(|step| step.results.iter().copied());
        let internal = results.filter(|slot| !outputs.contains(slot)).collect();
        Some(Formed { start: range.start, end: range.end, before, nest, operands, internal })
    }
}

/// Inserts nests before their members.
fn insert(steps: &mut Vec<Step>, nests: Vec<Formed>) {
    let mut old = std::mem::take(steps).into_iter();
    let mut taken = 0;
    for Formed { start, end, before, nest, operands, .. } in nests {
        steps.extend(old.by_ref().take(start - taken));
        let range: Vec<Step> = old.by_ref().take(end - start).collect();
        taken = end;
        let site = range[0].site;
        let (mut first, mut members) = (Vec::new(), Vec::new());
        for (index, step) in range.into_iter().enumerate() {
            let is_before = before.binary_search(&index).is_ok();
            (if is_before { &mut first } else { &mut members }).push(step);
        }
        steps.append(&mut first);
        steps.push(Step {
            action: Action::Nest(Box::new(nest)),
            operands,
            results: SmallVec::new(),
            blocks: SmallVec::new(),
            kills: SmallVec::new(),
            site,
        });
        steps.append(&mut members);
    }
    steps.extend(old);
}

/// Sets the slots that each nest clears, after the last uses have been computed.
pub(crate) fn set_frees(program: &mut Program) {
    let is_tile = |slot: &Slot| !program.types[program.slots[*slot as usize] as usize].is_scalar();
    for block in &mut program.blocks {
        for index in 0..block.steps.len() {
            let Action::Nest(nest) = &block.steps[index].action else { continue };
            let members = &block.steps[index + 1..=index + nest.members];
            let last = members.iter().flat_map(|step| &step.operands).filter(|operand| operand.last);
            let mut frees: Vec<Slot> = last.map(|operand| operand.slot).collect();
            frees.extend(members.iter().flat_map(|step| step.kills.iter().copied()));
            frees.retain(is_tile);
            if let Action::Nest(nest) = &mut block.steps[index].action {
                nest.frees = frees;
            }
        }
    }
}
