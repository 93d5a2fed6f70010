//! `assert`. Loops and branches are in the machine, because they execute blocks.

use tilewright_ir::Failure;

use crate::program::Step;
use crate::run::fault::{Fault, FaultKind, Outcome};
use crate::run::machine::Machine;
use crate::run::value::Form;

use super::materialize::materialize;

/// Fails where the condition does not hold and the mask does.
pub(crate) fn assert(machine: &mut Machine<'_>, step: &Step, failure: &Failure) -> Outcome {
    let ty = machine.type_of(step.operands[0]);
    let condition = machine.take(step.operands[0]);
    let mask = machine.take_optional(step, 1);
    let is_masked_out = mask.as_ref().is_some_and(|mask| matches!(mask.form, Form::Uniform(0)));
    if is_masked_out || matches!(condition.form, Form::Uniform(1)) {
        return Ok(());
    }
    let condition = materialize(ty, condition);
    let mask = mask.map(|mask| materialize(ty, mask));
    let failed = condition.bytes().iter().enumerate().position(|(element, &holds)| {
        holds == 0 && mask.as_ref().is_none_or(|mask| mask.bytes()[element] != 0)
    });
    match failed {
        None => Ok(()),
        Some(element) => Err(Fault::new(FaultKind::Assertion(failure.clone())).at(ty.lane(element))),
    }
}
