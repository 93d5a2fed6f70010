//! Selects the tiles of a nest that a later phase reads from scratch memory.

use rustc_hash::FxHashSet;
use tilewright_ir::Op;

use super::super::vectors;
use super::{Form, Plan};
use crate::program::{Action, Slot};
use crate::tuning::MAX_REMATERIALIZED_STEPS;

impl Plan<'_> {
    /// Returns the dense tiles that the nest keeps for a later phase, because recomputing them
    /// takes long.
    pub fn kept(&self) -> FxHashSet<Slot> {
        let mut kept = FxHashSet::default();
        for (index, step) in self.members.iter().enumerate() {
            let phase = self.phases.get(&index).copied().or_else(|| {
                step.results.first().and_then(|slot| self.known.get(slot)).map(|known| known.phase)
            });
            for operand in &step.operands {
                let Some(known) = self.known.get(&operand.slot) else { continue };
                if known.form == Form::Dense && phase.is_some_and(|phase| phase > known.phase) {
                    self.keep(operand.slot, &mut kept);
                }
            }
        }
        kept
    }

    fn keep(&self, slot: Slot, kept: &mut FxHashSet<Slot>) {
        if self.program.ty(slot).is_pointer() {
            // The scatter reads only the offsets.
            let offsets = self.definitions.get(slot).map(|add| add.operands[1].slot);
            if let Some(offsets) = offsets {
                self.keep(offsets, kept);
            }
        } else if self.defines(slot) && self.cost(slot, MAX_REMATERIALIZED_STEPS).is_none() {
            kept.insert(slot);
        }
    }

    /// Returns the number of cheap steps that recompute a dense tile from memory. Returns `None` if
    /// it is above `most`, or if a step is not cheap.
    fn cost(&self, slot: Slot, most: usize) -> Option<usize> {
        if self.form(slot) != Some(Form::Dense) || !self.defines(slot) {
            return Some(0);
        }
        let step = self.definitions.get(slot)?;
        let own = match &step.action {
            Action::Op(Op::Load { .. } | Op::Cast { .. } | Op::Bitcast { .. }) => 1,
            Action::Op(Op::ExpandDims { .. } | Op::Broadcast { .. } | Op::Reshape { .. }) => 0,
            Action::Op(Op::Elementwise { function }) if vectors::is_cheap(*function) => 1,
            // tidy: wildcard because recomputing the other actions takes long
            _ => return None,
        };
        let mut sum = own;
        for operand in &step.operands {
            sum += self.cost(operand.slot, most.checked_sub(sum)?)?;
        }
        (sum <= most).then_some(sum)
    }
}
