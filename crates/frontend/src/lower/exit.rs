//! Defines the state of early returns: whether a path has returned, and the result.

use tilewright_base::Span;

use super::template::{IrOperand, constant_truth};
use crate::value::{Constant, Operand};

/// The result of a function, and the position of its `return`.
#[derive(Clone)]
pub(crate) struct Returned {
    pub value: IrOperand,
    pub span: Span,
    /// True if the function returns by a `return`, and not at its end.
    pub is_explicit: bool,
}

/// The exit of a path through a function.
#[derive(Clone)]
pub(crate) struct Exit {
    /// True if the path has returned: a compile-time bool, or an int1.
    pub done: IrOperand,
    /// The returned value, or `None` before any `return`. If `done` is false at run time, it is an
    /// unused placeholder.
    pub result: Option<Returned>,
}

impl Default for Exit {
    fn default() -> Self {
        Self { done: Operand::Constant(Constant::Bool(false)), result: None }
    }
}

impl Exit {
    pub fn returned(result: Returned) -> Self {
        Self { done: Operand::Constant(Constant::Bool(true)), result: Some(result) }
    }

    /// Returns whether the path has returned, if this is known at compile time.
    pub fn is_done(&self) -> Option<bool> {
        constant_truth(&self.done)
    }
}
