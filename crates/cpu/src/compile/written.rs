//! Finds the parameters through which the programs of a launch may write to memory.

use rustc_hash::FxHashMap;
use tilewright_ir::{Effect, Op, OpFamily};

use crate::program::{Action, Program, Slot, Step};

/// Returns the indices of the parameters through which stores write.
///
/// Returns `None` if the parameter of a store is unknown, or if another op may change memory. Also
/// returns `None` for atomic or volatile accesses: the kernel may wait for a flag and then read
/// what another launch writes.
pub(crate) fn parameters(program: &Program) -> Option<Vec<usize>> {
    let steps = || program.blocks.iter().flat_map(|block| &block.steps);
    let definitions: FxHashMap<Slot, &Step> =
        steps().flat_map(|step| step.results.iter().map(move |&result| (result, step))).collect();
    let mut written = Vec::new();
    for step in steps() {
        match &step.action {
            Action::Op(Op::Store { .. }) => {
                let mut slot = step.operands[0].slot;
                while let Some(step) = definitions.get(&slot) {
                    slot = step.moved_pointer()?;
                }
                let parameter = program.parameters.iter().position(|parameter| parameter.slot == slot)?;
                if !written.contains(&parameter) {
                    written.push(parameter);
                }
            }
            Action::Op(op) if op.is_volatile() || changes_memory(op) => return None,
            Action::Assembly(assembly) if !assembly.is_pure => return None,
            // tidy: wildcard because no other step changes memory
            _ => {}
        }
    }
    Some(written)
}

fn changes_memory(op: &Op) -> bool {
    let is_other =
        matches!(op.family(), OpFamily::Check | OpFamily::Promise | OpFamily::Barrier | OpFamily::Scalar);
    op.info().effect == Effect::Write && !is_other
}
