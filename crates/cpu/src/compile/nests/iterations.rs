//! Finds the nests that can execute the iterations of a loop of the kernel.
//!
//! The nest must execute all steps of the body. Registers carry the scalars of the loop. Each
//! carried tile has two buffers, and each iteration reads one buffer and writes the other.

use rustc_hash::FxHashSet;

use super::Former;
use super::plan::{Form, Plan};
use crate::program::nest::Repeated;
use crate::program::{BlockId, Program, Slot};
use crate::tuning::MAX_ELEMENTS_BETWEEN_CHECKS;

/// The loop whose iterations a nest executes.
pub(super) struct Iterations {
    /// The loop counter: the first parameter of the body.
    pub counter: Slot,
    /// The increment of the counter.
    pub step: i64,
    /// The carried scalars that change: the parameter of the body, and the slot that the body
    /// yields.
    pub scalars: Vec<[Slot; 2]>,
    /// The carried tiles that change: the parameter of the body, and the slot that the body yields.
    pub tiles: Vec<[Slot; 2]>,
}

impl Iterations {
    /// Returns the unit that one call of the nest's function repeats.
    pub fn repeated(&self, program: &Program, plan: &Plan<'_>) -> Repeated {
        let results = plan.members.iter().flat_map(|step| &step.results);
        let elements = results.map(|&slot| program.ty(slot).elements()).max().unwrap_or(1);
        let most = (MAX_ELEMENTS_BETWEEN_CHECKS / elements.max(1)).max(1) as u32;
        Repeated::Iterations { tiles: self.tiles.clone(), most }
    }
}

impl Former<'_> {
    /// Returns the loop with the body `id`, if a nest can run its iterations. `plan` executes all
    /// steps of the body. The increment must be constant, and the nest must be able to carry the
    /// values.
    pub(super) fn iterations(&self, id: BlockId, plan: &Plan<'_>, outputs: &[Slot]) -> Option<Iterations> {
        let block = &self.program.blocks[id as usize];
        let [counter, parameters @ ..] = &block.parameters[..] else { return None };
        let &[_, step] = self.definitions.counters.get(counter)?;
        let step = self.program.ty(step).number.extend(self.definitions.constant(step)?);
        let mut iterations = Iterations { counter: *counter, step, scalars: Vec::new(), tiles: Vec::new() };
        let mut yielded = FxHashSet::default();
        for (&parameter, operand) in parameters.iter().zip(&block.yields) {
            let slot = operand.slot;
            if slot == parameter {
                continue;
            }
            let ty = self.program.ty(parameter);
            let is_same_kind = ty.is_scalar() == self.program.ty(slot).is_scalar();
            if !is_same_kind || ty.is_pointer() || !plan.defines(slot) || !yielded.insert(slot) {
                return None;
            }
            if ty.is_scalar() {
                iterations.scalars.push([parameter, slot]);
                continue;
            }
            let known = plan.known[&slot];
            let is_written = known.form == Form::Dense || (known.form == Form::Uniform && known.by_row);
            if !is_written || !outputs.contains(&slot) || !plan.inputs.contains(&parameter) {
                return None;
            }
            iterations.tiles.push([parameter, slot]);
        }
        Some(iterations)
    }
}
