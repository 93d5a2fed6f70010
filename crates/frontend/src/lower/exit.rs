//! Early returns: whether a way through a function has returned, and with what.

use tilewright_base::Span;

use super::template::{IrOperand, constant_truth};
use crate::value::{Constant, Operand};

/// What a function returns, and where it says so.
#[derive(Clone)]
pub(crate) struct Returned {
    pub value: IrOperand,
    pub span: Span,
    /// Whether there is a `return`, not just the end of the function.
    pub is_explicit: bool,
}

/// Whether a way through a function has returned, and with what.
#[derive(Clone)]
pub(crate) struct Exit {
    /// A compile-time bool, or an int1.
    pub done: IrOperand,
    /// What it returned; a stand-in where it has not.
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

    /// Whether it certainly has or has not returned.
    pub fn is_done(&self) -> Option<bool> {
        constant_truth(&self.done)
    }
}
