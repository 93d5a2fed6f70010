//! Evaluates literals: numbers, and f-strings of compile-time values.

use ruff_python_ast::{
    ConversionFlag, ExprFString, ExprNumberLiteral, FStringPart, InterpolatedElement,
    InterpolatedStringElement, InterpolatedStringElements, Number,
};
use tilewright_base::Code;

use super::lowerer::{Lower, Lowerer, Reported};
use super::template::IrOperand;
use crate::format;
use crate::value::{Constant, Operand, to_str};

/// Returns the value of a number, or the reason why it is an error.
pub(crate) fn number(number: &Number) -> Result<Constant, &'static str> {
    match number {
        Number::Int(value) => {
            if let Some(value) = value.as_u64() {
                return Ok(Constant::Int(i128::from(value)));
            }
            let text = value.to_string().replace('_', "").to_ascii_lowercase();
            let digits = |radix| i128::from_str_radix(&text[2..], radix);
            let parsed = match text.get(..2) {
                Some("0x") => digits(16),
                Some("0o") => digits(8),
                Some("0b") => digits(2),
                _ => text.parse(),
            };
            parsed.map(Constant::Int).map_err(|_| "an integer needs at most 128 bits")
        }
        Number::Float(value) => Ok(Constant::Float(*value)),
        Number::Complex { .. } => Err("complex numbers are not supported"),
    }
}

impl<'a> Lowerer<'a, '_, '_> {
    pub(crate) fn number_literal(&mut self, literal: &ExprNumberLiteral) -> Lower<IrOperand> {
        number(&literal.value).map(Operand::Constant).map_err(|message| {
            let span = self.span_of(literal);
            self.error(Code::ConstexprError, span, message)
        })
    }

    pub(crate) fn f_string(&mut self, string: &'a ExprFString) -> Lower<IrOperand> {
        let mut text = String::new();
        for part in string.value.as_slice() {
            match part {
                FStringPart::Literal(literal) => text.push_str(&literal.value),
                FStringPart::FString(string) => self.interpolate(&string.elements, &mut text)?,
            }
        }
        Ok(Operand::Constant(Constant::Str(text.into())))
    }

    fn interpolate(&mut self, elements: &'a InterpolatedStringElements, text: &mut String) -> Lower<()> {
        for element in elements {
            match element {
                InterpolatedStringElement::Literal(literal) => text.push_str(&literal.value),
                InterpolatedStringElement::Interpolation(element) => self.interpolated(element, text)?,
            }
        }
        Ok(())
    }

    fn interpolated(&mut self, element: &'a InterpolatedElement, text: &mut String) -> Lower<()> {
        let span = self.span_of(&*element.expression);
        let value = self.expression(&element.expression)?;
        if let Some(debug) = &element.debug_text {
            text.push_str(debug.as_str());
        }
        let Some(constant) = self.as_constant(&value) else {
            let what = "a value in an f-string";
            let mut diagnostic = self.describe_not_constant(span, &element.expression, &value, what);
            diagnostic.hint.get_or_insert_with(|| {
                "to print a run-time value, call `tl.device_print(\"x\", x)`, or set `TRITON_INTERPRET=1`, \
                 with which Python's `print` runs"
                    .into()
            });
            return Err(self.report(diagnostic));
        };
        let mut spec = String::new();
        if let Some(format_spec) = &element.format_spec {
            self.interpolate(&format_spec.elements, &mut spec)?;
        }
        let converted = |text: String| Constant::Str(text.into());
        let constant = match element.conversion {
            ConversionFlag::Repr => converted(constant.to_string()),
            ConversionFlag::Ascii => converted(match &constant {
                Constant::Str(text) => crate::repr::string_repr(text, true),
                other => other.to_string(),
            }),
            // `{x=}` shows the repr.
            ConversionFlag::None if element.debug_text.is_some() && spec.is_empty() => {
                converted(constant.to_string())
            }
            ConversionFlag::None => constant,
            ConversionFlag::Str => converted(to_str(&constant)),
        };
        let formatted = format::format(&constant, &spec);
        text.push_str(
            &formatted.map_err(|message| -> Reported { self.error(Code::ConstexprError, span, message) })?,
        );
        Ok(())
    }
}
