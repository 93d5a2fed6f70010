//! Defines the input of a type rule, and its error.

use std::fmt;

use crate::types::Type;

/// The input of a type rule.
pub struct RuleInput<'a> {
    /// The types of the operands.
    pub operands: &'a [Type],
    /// The types of the regions' parameters and yielded values.
    pub regions: &'a [RegionTypes],
}

/// The types at the entry and the exit of a region.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RegionTypes {
    /// The types of the parameters.
    pub parameters: Vec<Type>,
    /// The types of the yielded values.
    pub yields: Vec<Type>,
}

/// An error in the operands, attributes or regions of an op.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleError {
    /// One sentence.
    pub message: String,
    /// The kind of the error.
    pub kind: RuleErrorKind,
    /// Facts about the operands, such as drawings of their layouts.
    pub notes: Vec<String>,
}

impl RuleError {
    /// Returns an error without notes.
    pub fn new(message: impl Into<String>, kind: RuleErrorKind) -> Self {
        Self { message: message.into(), kind, notes: Vec::new() }
    }
}

/// The kind of a [`RuleError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleErrorKind {
    /// The types or attributes are wrong.
    Types,
    /// The layouts that the program states do not fit together.
    Layouts,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RuleError {}
