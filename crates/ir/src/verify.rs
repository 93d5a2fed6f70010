//! The verifier: what every function must satisfy, at every stage.

use tilewright_base::entity::EntitySet;

use crate::builder::expected_types;
use crate::function::{Block, Function, Inst, Module, Value};
use crate::ops::Op;
use crate::types::Type;

/// A breach of the IR's rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyError {
    /// The function.
    pub function: String,
    /// What is wrong, with the text of the instruction.
    pub message: String,
}

impl std::fmt::Display for VerifyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "in function {}: {}", self.function, self.message)
    }
}

impl std::error::Error for VerifyError {}

/// Checks every function: definitions dominate uses, blocks end in the right terminator, each instruction stands once,
/// and types are those that the rules give.
pub fn verify(module: &Module) -> Result<(), VerifyError> {
    for function in module.functions.values() {
        let mut verifier = Verifier { module, function, defined: EntitySet::new(), placed: EntitySet::new() };
        verifier
            .block(function.entry, true)
            .map_err(|message| VerifyError { function: function.name.clone(), message })?;
        if function.parameters.len() != function.blocks[function.entry].parameters.len() {
            let message = "the entry block and the signature differ in the number of parameters".into();
            return Err(VerifyError { function: function.name.clone(), message });
        }
    }
    Ok(())
}

struct Verifier<'a> {
    module: &'a Module,
    function: &'a Function,
    defined: EntitySet<Value>,
    placed: EntitySet<Inst>,
}

impl Verifier<'_> {
    fn block(&mut self, block: Block, is_entry: bool) -> Result<(), String> {
        let data = &self.function.blocks[block];
        let mut local: Vec<Value> = data.parameters.to_vec();
        for &parameter in &data.parameters {
            self.defined.insert(parameter);
        }
        let Some((&last, _)) = data.insts.split_last() else { return Err(format!("{block} is empty")) };
        for &inst in &data.insts {
            if !self.placed.insert(inst) {
                return Err(format!("{inst} stands twice"));
            }
            let op = &self.function.insts[inst].op;
            if op.is_terminator() != (inst == last) {
                return Err(format!("{block} must end in its only terminator"));
            }
            if op.is_terminator() && matches!(op, Op::Return {}) != is_entry {
                return Err(format!("{} cannot end {block}", op.name()));
            }
            self.inst(inst)?;
            for &result in &self.function.insts[inst].results {
                self.defined.insert(result);
                local.push(result);
            }
        }
        // What a region defines is not visible after it.
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
        let expected = expected_types(self.function, data).map_err(|error| error.message)?;
        let found: Vec<&Type> = data.results.iter().map(|&value| self.function.ty(value)).collect();
        if found != expected.iter().collect::<Vec<_>>() {
            return Err(format!("{name} has results {found:?}, its rule says {expected:?}"));
        }
        match &data.op {
            Op::Return {} => self.types_match(&data.operands, &self.function.results, "results"),
            Op::Call { callee, results } => {
                let callee = self.module.functions.get(*callee).ok_or("the callee does not exist")?;
                let entry = &callee.blocks[callee.entry];
                let parameters: Vec<Type> =
                    entry.parameters.iter().map(|&value| callee.ty(value).clone()).collect();
                if callee.results != results.0 {
                    return Err(format!("{} returns {:?}", callee.name, callee.results));
                }
                self.types_match(&data.operands, &parameters, "arguments")
            }
            // tidy: wildcard because the type rules say all there is to check of the other ops.
            _ => Ok(()),
        }
    }

    fn types_match(&self, values: &[Value], types: &[Type], what: &str) -> Result<(), String> {
        let found: Vec<&Type> = values.iter().map(|&value| self.function.ty(value)).collect();
        if found == types.iter().collect::<Vec<_>>() {
            Ok(())
        } else {
            Err(format!("{what} are {found:?}, expected {types:?}"))
        }
    }
}
