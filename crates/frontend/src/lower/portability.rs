//! Warns of calls that the official Triton refuses.
//! An extent is not a power of two, or a shape contains a number from a plain assignment (`n =
//! 16`).

use ruff_python_ast::ExprCall;
use tilewright_base::{Code, Diagnostic, Span};

use super::arguments::Arguments;
use super::lowerer::Lowerer;
use super::template::IrOperand;
use crate::value::Operand;

/// The functions with a shape as an argument, and another parameter that may be a number, if any.
const OF_SHAPES: &[(&str, Option<(usize, &str)>)] = &[
    ("arange", None),
    ("broadcast_to", Some((0, "input"))),
    ("full", Some((1, "value"))),
    ("reshape", Some((0, "input"))),
    ("view", Some((0, "input"))),
    ("zeros", None),
];

impl<'a> Lowerer<'a, '_, '_> {
    /// Returns the spans of shape arguments with a number that only a plain assignment makes known.
    /// Empty without portability warnings.
    pub(super) fn named_extents(&self, callee: &IrOperand, arguments: &Arguments<'a>) -> Vec<Span> {
        let Some((_, other)) = self.function_of_shapes(callee) else { return Vec::new() };
        let is_method = matches!(callee, Operand::Method(..));
        let is_other = |index: usize| other.is_some_and(|(at, _)| !is_method && at == index);
        let positional = arguments.positional.iter().enumerate();
        let positional = positional.filter(|(index, _)| !is_other(*index)).map(|(_, passed)| passed);
        let keywords = arguments.keywords.iter();
        let keywords = keywords.filter(|(name, ..)| other.is_none_or(|(_, other)| **name != *other));
        let all = positional.chain(keywords.map(|(_, passed, _)| passed));
        let named = all.filter(|(value, _)| self.has_named_extent(value));
        named.filter_map(|(_, at)| at.map(|at| self.span_of(at))).collect()
    }

    /// Warns of each of the spans `named`, and of a result with an extent that is no power of two.
    pub(super) fn warn_of_portability(
        &mut self,
        callee: &IrOperand,
        call: &'a ExprCall,
        named: Vec<Span>,
        result: &IrOperand,
    ) {
        let Some((name, _)) = self.function_of_shapes(callee) else { return };
        let span = self.span_of(call);
        for at in named {
            let text = self.session.sources.text(at).to_owned();
            let message =
                format!("the official Triton refuses `{text}` in `{name}`: it is no `tl.constexpr`");
            let diagnostic = Diagnostic::at(Code::NotPortable, at, message)
                .note("found a number that is assigned to a name, expected a literal or a tl.constexpr")
                .hint(
                    "annotate the assignment, `N: tl.constexpr = 16`, or pass the number as a tl.constexpr",
                );
            self.session.warn(diagnostic);
        }
        let Operand::Tensor(value) = result else { return };
        let ty = self.builder.function.ty(*value).clone();
        let odd = ty.shape.0.iter().enumerate().find(|(_, extent)| !extent.is_power_of_two());
        let Some((axis, extent)) = odd else { return };
        let message = format!("the official Triton refuses this tile: {extent} is no power of two");
        let next = extent.next_power_of_two();
        let diagnostic = Diagnostic::at(Code::NotPortable, span, message)
            .note(format!("found {ty}, whose axis {axis} has the extent {extent}; expected a power of two"))
            .hint(format!("make the extent {next} and mask the elements from {extent} on"));
        self.session.warn(diagnostic);
    }

    /// Returns the row of [`OF_SHAPES`] of a callee, if the compilation warns of portability.
    fn function_of_shapes(
        &self,
        callee: &IrOperand,
    ) -> Option<(&'static str, Option<(usize, &'static str)>)> {
        let (Operand::Language(path) | Operand::Method(_, path)) = callee else { return None };
        if !self.session.options.portable {
            return None;
        }
        let name = path.rsplit('.').next()?;
        OF_SHAPES.iter().find(|(known, _)| *known == name).copied()
    }

    /// Returns whether an operand has a number that only a plain assignment makes known.
    fn has_named_extent(&self, operand: &IrOperand) -> bool {
        match operand {
            Operand::Tensor(_) => self.as_constant(operand).is_some(),
            Operand::Tuple(items) => items.iter().any(|item| self.has_named_extent(item)),
            _ => false,
        }
    }
}
