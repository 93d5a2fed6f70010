//! Forms nests: consecutive steps that machine code executes as loops over vectors.
//!
//! ```text
//! steps ── plan ──> phases ── emit ──> vector SSA ── tilewright_native ──> machine code
//! ```
//!
//! - [`plan`] decides which steps form a nest, and which loop computes each tile.
//! - [`emit`] emits the vector code. [`vectors`] has the code of each function, and [`lanes`] that
//!   of the executor's formulas.
//! - [`remarks`] reports the steps in nests, and the [`refusal`] of each other step.
//!
//! A launch generates the machine code when it first executes the nest.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tilewright_native::Target;

use crate::program::nest::{Nest, NestCode, Repeated, Word};
use crate::program::{Action, BlockId, Program, Slot, Step, Use};
use crate::tuning::MAX_ROW_SEARCH;

mod axes;
mod emit;
#[cfg(test)]
mod harness;
mod iterations;
mod lanes;
mod plan;
pub(crate) mod refusal;
mod remarks;
mod segments;
pub(crate) mod trees;
mod vectors;

use axes::Dimensions;
use plan::{Definitions, Form, Plan, Space};
use refusal::Refusal;
pub(crate) use remarks::report_no_target;
use segments::Segments;

/// A nest, and the steps from which it is formed.
struct Formed {
    start: usize,
    end: usize,
    /// The indices of the steps in the range that the executor runs before the nest.
    before: Vec<usize>,
    nest: Nest,
    /// The inputs that only imports read: see [`Plan::imports`].
    operands: SmallVec<[Use; 4]>,
    /// The results that the nest does not write to slots.
    internal: Vec<Slot>,
}

/// The nests of a block, and the refused steps with their reasons.
struct PlannedBlock {
    id: BlockId,
    nests: Vec<Formed>,
    refused: Vec<(usize, Refusal)>,
}

/// Forms the nests of all blocks. The caller then recomputes last uses and calls [`set_frees`].
pub(crate) fn form(program: &mut Program, target: Target) {
    let uses = program.use_counts();
    let mut definitions = Definitions::new(program);
    let parameters = program.parameters.iter().map(|parameter| parameter.slot);
    let once = &program.blocks[program.preamble as usize].steps;
    let invariant: FxHashSet<Slot> =
        parameters.chain(once.iter().flat_map(|step| step.results.iter().copied())).collect();
    let dimensions = Dimensions::new(program);
    let segments = Segments::new(program, &definitions, &dimensions);
    let mut formed = loop {
        let nests = Former {
            program,
            definitions: &definitions,
            dimensions: &dimensions,
            segments: &segments,
            uses: &uses,
            invariant: &invariant,
            target,
        };
        let formed = nests.of_blocks();
        // An import may read a value that another nest does not write. The nests are then formed
        // again without such imports.
        let all = || formed.iter().flat_map(|block| &block.nests);
        let internal: FxHashSet<Slot> = all().flat_map(|nest| nest.internal.iter().copied()).collect();
        let operands = all().flat_map(|nest| &nest.operands).map(|operand| operand.slot);
        let unset: Vec<Slot> = operands.filter(|slot| internal.contains(slot)).collect();
        if unset.is_empty() {
            break formed;
        }
        definitions.unset.extend(unset);
    };
    remarks::report(program, &formed);
    drop(definitions);
    for (index, formed) in formed.iter_mut().flat_map(|block| &mut block.nests).enumerate() {
        formed.nest.index = index;
    }
    for PlannedBlock { id, nests, .. } in formed {
        insert(&mut program.blocks[id as usize].steps, nests);
    }
}

struct Former<'p> {
    program: &'p Program,
    definitions: &'p Definitions<'p>,
    dimensions: &'p Dimensions,
    segments: &'p Segments,
    uses: &'p [u32],
    /// The slots whose values are the same in all programs of a launch.
    invariant: &'p FxHashSet<Slot>,
    target: Target,
}

impl<'p> Former<'p> {
    fn plan(&self, space: Space) -> Plan<'p> {
        Plan::new(self.program, self.definitions, self.dimensions, space)
    }

    /// Returns the nests of all blocks except the preamble, which runs only once per thread.
    fn of_blocks(&self) -> Vec<PlannedBlock> {
        let blocks = (0..).zip(&self.program.blocks);
        let repeated = blocks.filter(|(id, _)| *id != self.program.preamble);
        repeated.map(|(id, block)| self.of_steps(id, &block.steps)).collect()
    }

    fn of_steps(&self, id: BlockId, steps: &'p [Step]) -> PlannedBlock {
        let (mut nests, mut refused) = (Vec::new(), Vec::new());
        let mut start = 0;
        // The reason why the previous plan ended.
        let mut last: Option<Refusal> = None;
        while start < steps.len() {
            let (plan, count, refusal) = self.longest(&steps[start..]);
            let range = start..start + count;
            start = range.end.max(start + 1);
            if count == 0 {
                refused.push((range.end, refusal.unwrap_or(Refusal::Op)));
            } else {
                let formed = if plan.is_worthwhile() {
                    self.complete(id, steps, range.clone(), &plan)
                } else {
                    Err(Refusal::TooSmall)
                };
                match formed {
                    Ok(formed) => {
                        let before = formed.before.iter().map(|index| range.start + index);
                        refused.extend(before.map(|index| (index, Refusal::SharedIndices)));
                        nests.push(formed);
                    }
                    Err(reason) => {
                        // The first step gets the reason why the previous plan refused it.
                        let first = last.filter(|_| reason == Refusal::TooSmall).unwrap_or(reason);
                        refused.push((range.start, first));
                        refused.extend(range.skip(1).map(|index| (index, reason)));
                    }
                }
            }
            last = refusal.filter(|_| count > 0);
        }
        PlannedBlock { id, nests, refused }
    }

    /// Returns the longest of three plans, the number of its steps, and the reason why it ends. The
    /// first plan has no rows. The second has the rows of the first tile with rows. The rows of the
    /// third are segments.
    fn longest(&self, steps: &'p [Step]) -> (Plan<'p>, usize, Option<Refusal>) {
        let results = || steps.iter().take(MAX_ROW_SEARCH).flat_map(|step| step.results.iter().copied());
        let with_rows = results()
            .filter_map(|slot| Space::of_tile(self.program, self.dimensions, slot))
            .find(|space| !space.rows.is_empty());
        let in_segments = results()
            .filter_map(|slot| self.segments.space(self.program, self.dimensions, slot))
            .reduce(|best, space| if space.rows.len() > best.rows.len() { space } else { best });
        let spaces = std::iter::once(Space::line()).chain(with_rows).chain(in_segments);
        let plans = spaces.map(|space| {
            let mut plan = self.plan(space);
            let refused = (0..).zip(steps).find_map(|(count, step)| Some((count, plan.add(step).err()?)));
            let (count, refusal) = refused.map_or((steps.len(), None), |(count, why)| (count, Some(why)));
            (plan, count, refusal)
        });
        // The first of equally long plans wins. If it ends for lack of a loop, the reason of the
        // next plan is the better one.
        plans
            .reduce(|best, plan| match plan.1.cmp(&best.1) {
                Ordering::Greater => plan,
                Ordering::Equal if best.2 == Some(Refusal::Axes) => (best.0, best.1, plan.2),
                Ordering::Equal | Ordering::Less => best,
            })
            .expect("there is a plan without rows")
    }

    /// Completes a nest and emits its code.
    ///
    /// Later steps may read index tiles of the plan. The executor then computes these tiles before
    /// the nest, and the other steps become the members. Fails if the executor cannot compute them
    /// first, or if too few steps remain.
    fn complete(
        &self,
        id: BlockId,
        block: &'p [Step],
        range: Range<usize>,
        plan: &Plan<'p>,
    ) -> Result<Formed, Refusal> {
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
                    // Copies of scalars are uniform, and so are indices along the rows.
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
                    return Err(Refusal::LateSharedIndices);
                }
                needed.extend(step.operands.iter().map(|operand| operand.slot));
                before.push(index);
            }
        }
        before.reverse();
        let mut rest = self.plan(plan.space.clone());
        for (index, step) in steps.iter().enumerate() {
            if before.binary_search(&index).is_err() {
                rest.add(step)?;
            }
        }
        if !rest.is_worthwhile() {
            return Err(Refusal::TooSmall);
        }
        let outputs: Vec<Slot> = rest
            .members
            .iter()
            .flat_map(|step| step.results.iter().copied())
            .filter(|slot| outside.contains(slot))
            .collect();
        let is_written = |&slot: &Slot| rest.layout(slot).is_some_and(|layout| layout.is_contiguous);
        if !outputs.iter().all(is_written) {
            return Err(Refusal::TransposedOutput);
        }
        let is_all = rest.members.len() == block.len();
        let iterations = if is_all { self.iterations(id, &rest, &outputs) } else { None };
        let repeated = match &iterations {
            Some(iterations) => iterations.repeated(self.program, &rest),
            None if is_all && id == self.program.body && outputs.is_empty() => Repeated::Programs,
            None => Repeated::Once,
        };
        let code =
            emit::emit(self.program, &rest, &outputs, &repeated, iterations.as_ref(), self.target.lanes());
        let is_varying = |word: &Word| !word.is_invariant(|slot| self.invariant.contains(&slot));
        let varying = code.words.iter().enumerate().filter(|(_, word)| is_varying(word));
        let nest = Nest {
            index: 0,
            repeated,
            members: rest.members.len(),
            varying: varying.map(|(index, _)| index).collect(),
            words: code.words,
            scratch: code.scratch,
            frees: Vec::new(),
            imports: rest.imports.iter().map(|step| step.results[0]).collect(),
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
        Ok(Formed { start: range.start, end: range.end, before, nest, operands, internal })
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

/// Sets the slots that each nest clears, from the last uses.
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
