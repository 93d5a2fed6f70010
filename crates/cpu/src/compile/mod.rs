//! Compiles a module of the IR to a program.
//! The passes are, in order: lowering, liveness, sorts, trees, nests, rematerialization and fusion.
//! Analyses then find loads whose elements stay in memory, loops that are one dot, and written
//! parameters.
//!
//! Without machine code for the processor, a program has no nests, and its trees run step by step.

use tilewright_base::Diagnostic;
use tilewright_ir::{Module, Op, OpFamily};
use tilewright_native::Target;

use crate::assembly::Assembler;
use crate::program::Program;

mod fusion;
mod in_place;
pub(crate) mod listing;
mod liveness;
mod lower;
mod nests;
mod print;
pub(crate) mod products;
mod rematerialize;
pub(crate) mod sanitize;
mod sorts;
pub(crate) mod trace_points;
mod written;

/// Compiles the kernel for sanitized launches, without moving or fusing steps. Only one step sets
/// each slot.
pub(crate) fn whole(module: &Module, assembler: Option<&dyn Assembler>) -> Result<Program, Box<Diagnostic>> {
    lower::lower_whole(module, assembler)
}

/// Returns whether the executor can compile machine code for this processor.
pub fn has_machine_code() -> bool {
    Target::host().is_some()
}

/// Returns whether a nest may contain an op, if its types and operands allow it. Returns true for
/// an `if`, because its condition may become constant.
pub fn may_be_in_nest(op: &Op) -> bool {
    matches!(
        op.family(),
        OpFamily::Scalar
            | OpFamily::Source
            | OpFamily::Pointwise
            | OpFamily::Identity
            | OpFamily::Shape
            | OpFamily::Load
            | OpFamily::Store
            | OpFamily::Reduction
            | OpFamily::Scan
            | OpFamily::Check
            | OpFamily::Promise
            | OpFamily::Branch
            | OpFamily::Terminator
    )
}

impl Program {
    /// Compiles the kernel of a verified module. Calls are inlined.
    ///
    /// Fails if calls or regions are nested too deeply (as in a recursion), or if inlining makes
    /// the program too large. Also fails if the kernel has inline assembly.
    pub fn new(module: &Module) -> Result<Self, Box<Diagnostic>> {
        Self::with_assembler(module, None)
    }

    /// Compiles the kernel with an assembler for inline assembly. Fails in the same cases as
    /// [`Program::new`], except that inline assembly is an error only if the assembler rejects it.
    pub fn with_assembler(
        module: &Module,
        assembler: Option<&dyn Assembler>,
    ) -> Result<Self, Box<Diagnostic>> {
        Self::compile(module, assembler, Target::host())
    }

    /// Compiles the kernel with machine code for a target, or without machine code. Tests compare
    /// the results of both programs.
    #[doc(hidden)]
    pub fn with_target(module: &Module, target: Option<Target>) -> Result<Self, Box<Diagnostic>> {
        Self::compile(module, None, target)
    }

    fn compile(
        module: &Module,
        assembler: Option<&dyn Assembler>,
        target: Option<Target>,
    ) -> Result<Self, Box<Diagnostic>> {
        let mut program = lower::lower(module, true, assembler)?;
        liveness::analyze(&mut program);
        sorts::form(&mut program);
        // A program that yields values evaluates one op and runs once, so machine code does not pay
        // off: see [`Program::evaluate`].
        let is_launched = program.blocks[program.body as usize].yields.is_empty();
        if is_launched && target.is_none() {
            nests::report_no_target();
        }
        if let Some(target) = target.filter(|_| is_launched) {
            nests::trees::form(&mut program, target);
            nests::form(&mut program, target);
        }
        rematerialize::rematerialize(&mut program);
        fusion::fuse(&mut program);
        nests::set_frees(&mut program);
        in_place::mark(&mut program);
        products::mark(&mut program);
        program.written = written::parameters(&program);
        Ok(program)
    }

    /// Compiles the kernel for traced launches, only with the passes lowering, liveness and fusion.
    /// Apart from inlining calls, these passes copy no recorded step. A trace therefore records
    /// each execution of an instruction at most once.
    pub fn for_traces(module: &Module, assembler: Option<&dyn Assembler>) -> Result<Self, Box<Diagnostic>> {
        let mut program = lower::lower(module, true, assembler)?;
        liveness::analyze(&mut program);
        fusion::fuse(&mut program);
        Ok(program)
    }

    /// Compiles the kernel without symbolic values, and without the passes after liveness. Tests
    /// compare the results of this program with those of [`Program::new`].
    #[doc(hidden)]
    pub fn without_symbolic_forms(
        module: &Module,
        assembler: Option<&dyn Assembler>,
    ) -> Result<Self, Box<Diagnostic>> {
        let mut program = lower::lower(module, false, assembler)?;
        liveness::analyze(&mut program);
        Ok(program)
    }
}
