//! Defines the evaluated arguments of a call.

use std::sync::Arc;

use ruff_python_ast::Expr;
use tilewright_base::Span;

use super::template::IrOperand;

/// An argument, and its expression in the source if known.
pub(crate) type Passed<'a> = (IrOperand, Option<&'a Expr>);

#[derive(Default)]
pub(crate) struct Arguments<'a> {
    pub positional: Vec<Passed<'a>>,
    pub keywords: Vec<(Arc<str>, Passed<'a>, Span)>,
}

impl Arguments<'_> {
    /// Returns the values: the positional arguments, then the keyword arguments.
    pub(crate) fn values(&self) -> impl Iterator<Item = &IrOperand> {
        let keywords = self.keywords.iter().map(|(_, (value, _), _)| value);
        self.positional.iter().map(|(value, _)| value).chain(keywords)
    }
}
