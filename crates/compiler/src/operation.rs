//! Compiles the operations of interpret mode, in which Python runs the body of a kernel.
//!
//! An operation is compiled as a function of values that the interpreter has already computed.

use std::sync::Arc;

use tilewright_base::SourceMap;
use tilewright_cpu::{EvaluationError, Program};
use tilewright_frontend::{Failure, Host, LoweredOperation, Operand, Operation, Options, Site, relocate};
use tilewright_ir::Type;

use crate::{CompileError, Stage, cpu_program, verify, with_stack};

/// A compiled operation.
#[derive(Debug)]
pub struct CompiledOperation {
    /// The program of the operation.
    pub program: Program,
    /// The result. A result such as a tuple may consist of several run-time values. The results of
    /// the program are these values, in order.
    pub result: Operand<Type>,
    /// The indices of those run-time values that are constants in the program.
    pub known: Vec<usize>,
    /// The indices of those run-time values that point to const memory. Each index comes with the
    /// name of the kernel parameter that declares the memory const.
    pub read_only: Vec<(usize, Arc<str>)>,
}

/// Compiles an operation for the CPU.
pub fn compile_operation(
    operation: &Operation<'_>,
    options: &Options,
    host: &mut dyn Host,
) -> Result<CompiledOperation, CompileError> {
    let LoweredOperation { mut module, result, known, read_only } =
        tilewright_frontend::lower_operation(operation, options, host).map_err(CompileError::Kernel)?;
    with_stack(|| {
        verify(&module, Stage::Ir)?;
        // A module with one function consists of a single op.
        if module.functions.len() > 1 {
            tilewright_opt::optimize(&mut module, &tilewright_opt::Options::default(), &mut |_, _| {});
            verify(&module, Stage::Opt)?;
        }
        let program = cpu_program(&module).map_err(|diagnostic| crate::failure(*diagnostic, &module))?;
        Ok(CompiledOperation { program, result, known, read_only: read_only.into_vec() })
    })
}

impl CompiledOperation {
    /// Converts an error of an evaluation to an error for the user. The caller then passes the
    /// error to [`locate`], which moves it to the user's source.
    pub fn failure(&self, error: EvaluationError) -> CompileError {
        let sources = SourceMap::clone(self.program.sources());
        CompileError::Kernel(Box::new(Failure { diagnostics: vec![error.diagnostic], sources }))
    }
}

/// Moves diagnostics about an operation to the position of the operation in the user's source.
pub fn locate(error: &mut CompileError, sites: &[Site]) {
    match error {
        CompileError::Kernel(failure) => relocate(failure, sites),
        CompileError::Internal(_) => {}
    }
}
