//! Limits the work of one compilation.
//!
//! The number of evaluation steps is limited, so that the compilation ends, and the host is polled
//! for an interrupt every few thousand steps. The instructions and the nesting of the code are
//! limited as if every call were inlined.

use tilewright_base::{Code, Diagnostic, Span};
use tilewright_ir::{FuncId, Value};

use super::lowerer::{Budget, Extent, Lower, Lowerer, Reported};
use crate::value::Operand;

/// The maximum number of evaluated statements and expressions of a compilation.
const MAX_STEPS: u64 = 1 << 22;

/// The number of steps between two polls for an interrupt, which then take no measurable time.
const STEPS_BETWEEN_POLLS: u64 = 1 << 12;

/// The maximum number of instructions of a kernel with all calls inlined.
const MAX_INSTRUCTIONS: usize = 1 << 18;

/// The maximum number of instructions of all functions, each with its calls inlined.
const MAX_INSTRUCTIONS_OF_ALL: usize = 1 << 20;

/// The maximum nesting of loops, branches and the bodies of calls after inlining.
const MAX_NESTING: usize = 256;

impl Budget {
    /// Returns the code of the diagnostic that stopped the compilation, if one did.
    pub fn stopped(&self) -> Option<Code> {
        self.stopped
    }
}

impl Lowerer<'_, '_, '_> {
    /// Counts a step. Reports an error if the limit is exceeded.
    pub(crate) fn step(&mut self, span: Span) -> Lower<()> {
        self.steps(1, span)
    }

    /// Counts steps in proportion to the size of a compile-time value.
    pub(crate) fn pay_for(&mut self, value: &Operand<Value>, span: Span) -> Lower<()> {
        let size = value.size();
        if size < 4 {
            return Ok(());
        }
        self.check_size(size, span)?;
        self.steps(size as u64 / 4, span)
    }

    fn steps(&mut self, count: u64, span: Span) -> Lower<()> {
        let budget = &mut self.session.budget;
        if budget.stopped.is_some() {
            return Err(Reported);
        }
        budget.steps += count;
        if budget.steps > MAX_STEPS {
            budget.stopped = Some(Code::TooLarge);
            let message = "compiling this kernel takes too long";
            let diagnostic = Diagnostic::at(Code::TooLarge, span, message)
                .note(format!("{MAX_STEPS} statements and expressions were evaluated before this one"))
                .hint("let compile-time loops run less often, or use range, which makes a loop at run time");
            return Err(self.report(diagnostic));
        }
        if budget.steps < budget.next_poll {
            return Ok(());
        }
        budget.next_poll = budget.steps + STEPS_BETWEEN_POLLS;
        if !self.session.host.interrupted() {
            return Ok(());
        }
        self.session.budget.stopped = Some(Code::Interrupted);
        self.session.diagnostics.clear();
        let message = "interrupted while the kernel was compiled";
        Err(self.report(Diagnostic::at(Code::Interrupted, span, message)))
    }

    /// Returns whether the function with all its calls, or the whole compilation, exceeds a limit.
    pub(crate) fn is_too_large(&self) -> bool {
        let own = self.instructions();
        own > MAX_INSTRUCTIONS || own + self.session.budget.instructions > MAX_INSTRUCTIONS_OF_ALL
    }

    fn instructions(&self) -> usize {
        self.builder.function.insts.len() + self.inlined.instructions
    }

    fn limit_message(&self) -> String {
        if self.instructions() > MAX_INSTRUCTIONS {
            format!("the kernel has more than {MAX_INSTRUCTIONS} operations")
        } else {
            format!("the functions of the kernel have more than {MAX_INSTRUCTIONS_OF_ALL} operations in all")
        }
    }

    pub(crate) fn too_large(&mut self, span: Span) -> Reported {
        let message = self.limit_message();
        let diagnostic = Diagnostic::at(Code::TooLarge, span, message);
        self.report(
            diagnostic.hint("use range in the place of static_range where the loop need not be unrolled"),
        )
    }

    /// Counts the code of the callee, as if the call were inlined.
    pub(crate) fn count_call(&mut self, callee: FuncId, name: &str, span: Span) -> Lower<()> {
        let Extent { instructions, nesting } = self.session.budget.extents[callee];
        let nesting = self.region_depth + nesting;
        let Extent { instructions: before, nesting: deepest } = self.inlined;
        let after = before.saturating_add(instructions);
        self.inlined = Extent { instructions: after, nesting: deepest.max(nesting) };
        if nesting > MAX_NESTING {
            let message =
                format!("the call of '{name}' nests loops and branches more than {MAX_NESTING} deep");
            let diagnostic = Diagnostic::at(Code::TooLarge, span, message);
            return Err(self.report(diagnostic.hint("call it outside of some of the loops and branches")));
        }
        if !self.is_too_large() {
            return Ok(());
        }
        let message = self.limit_message();
        let diagnostic = Diagnostic::at(Code::TooLarge, span, message)
            .note(format!(
                "calls are inlined, and '{name}' has {instructions} operations with all that it calls"
            ))
            .hint("compute the result once and use it again, or call the function in a loop at run time");
        Err(self.report(diagnostic))
    }

    pub(crate) fn extent(&self) -> Extent {
        Extent {
            instructions: self.builder.function.insts.len() + self.inlined.instructions,
            nesting: self.inlined.nesting,
        }
    }

    /// Opens a region. Returns its block, and the outer block for [`end_region`](Self::end_region).
    pub(crate) fn begin_region(
        &mut self,
        parameters: impl IntoIterator<Item = tilewright_ir::Type>,
    ) -> (tilewright_ir::Block, tilewright_ir::Block) {
        self.region_depth += 1;
        self.inlined.nesting = self.inlined.nesting.max(self.region_depth);
        self.builder.begin_region(parameters)
    }

    pub(crate) fn end_region(&mut self, outer: tilewright_ir::Block) {
        self.region_depth -= 1;
        self.builder.switch_to(outer);
    }
}

impl Budget {
    pub fn count_function(&mut self, function: FuncId, extent: Extent) {
        self.instructions = self.instructions.saturating_add(extent.instructions);
        self.extents[function] = extent;
    }
}
