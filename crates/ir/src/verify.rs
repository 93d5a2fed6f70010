//! Checks the rules that every function satisfies at every stage.

use tilewright_base::entity::EntitySet;

use crate::dialect::{Dialect, Operation};
use crate::function::{Block, Function, Inst, Module, Value};
use crate::ops::{Effect, Op};

/// A violation of the IR's rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyError {
    /// The function.
    pub function: String,
    /// The error, one sentence.
    pub message: String,
}

impl std::fmt::Display for VerifyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "in function {}: {}", self.function, self.message)
    }
}

impl std::error::Error for VerifyError {}

/// Checks every function. Definitions dominate uses, blocks end in the right terminator, and no
/// instruction occurs twice in blocks. Types follow the rules, and the signature has as many
/// parameters as the entry block.
pub fn verify<D: Dialect>(module: &Module<D>) -> Result<(), VerifyError> {
    for function in module.functions.values() {
        let mut verifier = Verifier { module, function, defined: EntitySet::new(), placed: EntitySet::new() };
        verifier
            .block(function.entry, true)
            .map_err(|message| VerifyError { function: function.name.clone(), message })?;
        D::check_function(module, function)
            .map_err(|message| VerifyError { function: function.name.clone(), message })?;
        if function.parameters.len() != function.blocks[function.entry].parameters.len() {
            let message = "the entry block and the signature differ in the number of parameters".into();
            return Err(VerifyError { function: function.name.clone(), message });
        }
    }
    Ok(())
}

struct Verifier<'a, D: Dialect> {
    module: &'a Module<D>,
    function: &'a Function<D>,
    defined: EntitySet<Value>,
    placed: EntitySet<Inst>,
}

impl<D: Dialect> Verifier<'_, D> {
    fn block(&mut self, block: Block, is_entry: bool) -> Result<(), String> {
        let data = &self.function.blocks[block];
        let mut local: Vec<Value> = data.parameters.to_vec();
        for &parameter in &data.parameters {
            self.defined.insert(parameter);
        }
        let Some((&last, _)) = data.insts.split_last() else { return Err(format!("{block} is empty")) };
        for &inst in &data.insts {
            if !self.placed.insert(inst) {
                return Err(format!("{inst} is in a block twice"));
            }
            let op = &self.function.insts[inst].op;
            let is_terminator = op.info().effect == Effect::Terminator;
            if is_terminator != (inst == last) {
                return Err(format!("{block} must end in its only terminator"));
            }
            if is_terminator && matches!(op.as_tile(), Some(Op::Return {})) != is_entry {
                return Err(format!("{} cannot end {block}", op.name()));
            }
            self.inst(inst)?;
            for &result in &self.function.insts[inst].results {
                self.defined.insert(result);
                local.push(result);
            }
        }
        // Values of a region are not visible after it.
        for value in local {
            self.defined.remove(value);
        }
        Ok(())
    }

    fn inst(&mut self, inst: Inst) -> Result<(), String> {
        let data = &self.function.insts[inst];
        let name = data.op.name();
        for &operand in &data.operands {
            if !self.defined.contains(operand) {
                return Err(format!("{name} uses {operand} where it is not defined"));
            }
        }
        for &region in &data.regions {
            self.block(region, false)?;
        }
        D::check(self.module, self.function, data)?;
        if matches!(data.op.as_tile(), Some(Op::Return {})) {
            return self.function.check_types(&data.operands, &self.function.results, "results");
        }
        Ok(())
    }
}
