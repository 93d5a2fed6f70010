//! From a module of the IR to a program: lowering, liveness, rematerialization, fusion.

use tilewright_base::Diagnostic;
use tilewright_ir::Module;

use crate::assembly::Assembler;
use crate::program::Program;

mod fusion;
mod liveness;
mod lower;
pub(crate) mod points;
mod print;
mod rematerialize;
pub(crate) mod sanitize;

/// The kernel with all its steps, each slot of which is set by one.
pub(crate) fn whole(module: &Module, assembler: Option<&dyn Assembler>) -> Result<Program, Box<Diagnostic>> {
    lower::lower_whole(module, assembler)
}

impl Program {
    /// Compiles the kernel of a module, which the verifier accepts. Calls are inlined.
    ///
    /// Fails if functions call each other recursively, or so deeply that the program becomes too large, and if there is inline
    /// assembly.
    pub fn new(module: &Module) -> Result<Self, Box<Diagnostic>> {
        Self::with_assembler(module, None)
    }

    /// The same, with what runs inline assembly. Fails also where that refuses some.
    pub fn with_assembler(
        module: &Module,
        assembler: Option<&dyn Assembler>,
    ) -> Result<Self, Box<Diagnostic>> {
        let mut program = lower::lower(module, true, assembler)?;
        liveness::analyse(&mut program);
        rematerialize::rematerialize(&mut program);
        fusion::fuse(&mut program);
        Ok(program)
    }

    /// The same for launches that are traced: each step of the source is one step, so that nothing is recorded twice.
    pub fn for_traces(module: &Module, assembler: Option<&dyn Assembler>) -> Result<Self, Box<Diagnostic>> {
        let mut program = lower::lower(module, true, assembler)?;
        liveness::analyse(&mut program);
        fusion::fuse(&mut program);
        Ok(program)
    }

    /// The same program without symbolic forms and fusion. For tests: the results must be the same.
    #[doc(hidden)]
    pub fn without_symbolic_forms(
        module: &Module,
        assembler: Option<&dyn Assembler>,
    ) -> Result<Self, Box<Diagnostic>> {
        let mut program = lower::lower(module, false, assembler)?;
        liveness::analyse(&mut program);
        Ok(program)
    }
}
