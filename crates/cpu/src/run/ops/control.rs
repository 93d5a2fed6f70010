//! Executes `assert` and `machine`. Loops and branches are in `run/machine.rs`.

use std::time::{SystemTime, UNIX_EPOCH};

use tilewright_ir::{Failure, MachineQuantity};

use crate::program::Step;
use crate::run::fault::{Fault, FaultKind, Outcome};
use crate::run::machine::Machine;
use crate::run::value::Form;

use super::materialize::materialize;

/// Fails if the condition is false at an element where the mask is true.
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

/// Executes `machine`: returns the nanoseconds since 1970, or the index of the thread.
pub(crate) fn machine(machine: &mut Machine<'_>, step: &Step, quantity: MachineQuantity) {
    let bits = match quantity {
        MachineQuantity::GlobalTimer => {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64)
        }
        MachineQuantity::Multiprocessor => rayon::current_thread_index().unwrap_or(0) as u64,
    };
    machine.set_uniform(step.result(), bits);
}
