//! Reports statements that discard the result of a function that must be used.

use ruff_python_ast::{Expr, ExprCall};
use tilewright_base::{Code, Diagnostic};

use super::lowerer::{Lower, Lowerer};
use super::template::IrOperand;
use crate::value::Operand;

/// The reason in the official Triton for using the result of `tl.advance`.
const ADVANCE: &str = "`tl.advance` changes no pointer: assign its result to a name";

impl<'a> Lowerer<'a, '_, '_> {
    /// Evaluates an expression whose value the statement discards.
    pub(super) fn discarded(&mut self, expression: &'a Expr) -> Lower<IrOperand> {
        self.discarded_call = expression.as_call_expr().map(|call| self.span_of(call));
        let value = self.expression(expression);
        self.discarded_call = None;
        value
    }

    /// Reports a call whose result the statement discards, if the callee is `tl.advance` or is
    /// marked `must_use_result`.
    pub(super) fn check_discarded(&mut self, callee: &IrOperand, call: &'a ExprCall) -> Lower<()> {
        let reason = match callee {
            Operand::Function(function) => self.session.host.must_use_result(*function),
            Operand::Bound(_, member) => self.session.host.must_use_result(member.function),
            Operand::Language(path) | Operand::Method(_, path)
                if path.rsplit('.').next() == Some("advance") =>
            {
                Some(ADVANCE.to_owned())
            }
            _ => None,
        };
        let Some(reason) = reason else { return Ok(()) };
        let name = self.session.sources.text(self.span_of(&*call.func)).to_owned();
        let message = format!("the result of `{name}` is not used");
        let mut diagnostic = Diagnostic::at(Code::UnusedResult, self.span_of(call), message)
            .note("found a statement that discards the result; `must_use_result` expects a use of it")
            .hint(format!("assign the result to a name: `x = {name}(...)`"));
        if !reason.is_empty() {
            diagnostic = diagnostic.note(reason);
        }
        Err(self.report(diagnostic))
    }
}
