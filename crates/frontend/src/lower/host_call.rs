//! Calls functions that the host runs at compile time, such as Python functions.
//!
//! A `constexpr_function` may also receive run-time values, and read their type and shape.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ruff_python_ast::Expr;
use tilewright_base::{Code, Diagnostic, Span};

use super::arguments::{Arguments, Passed};
use super::lowerer::{Lower, Lowerer};
use super::template::{self, IrOperand, from_host};
use crate::descriptor::DescriptorKind;
use crate::host::{CallError, HostValue, RunTime};
use crate::reference::ObjectRef;
use crate::semantic;
use crate::value::Operand;

/// The attributes of a tensor or pointer that such a function can read.
const OF_TENSORS: &[&str] = &["dtype", "type", "shape", "numel"];

/// The attributes of a tensor descriptor that such a function can read.
const OF_DESCRIPTORS: &[&str] = &["dtype", "type", "block_type", "block_shape", "shape", "strides", "base"];

/// The attributes of a block pointer that such a function can read.
const OF_BLOCK_POINTERS: &[&str] = &["dtype", "type"];

/// The next id of a run-time value. A function may keep a value until another compilation, so the
/// counter belongs to the process.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A run-time value that a compile-time function received.
struct PassedValue {
    id: u64,
    operand: IrOperand,
}

/// A compile-time function has returned a run-time value that it has not received in this call.
struct ValueOfAnotherCall;

impl<'a> Lowerer<'a, '_, '_> {
    pub(crate) fn call_host(
        &mut self,
        object: ObjectRef,
        arguments: &Arguments<'a>,
        span: Span,
    ) -> Lower<IrOperand> {
        let takes_run_time = self.session.host.takes_run_time(object);
        let mut run_time = Vec::new();
        let mut first = None;
        let mut pass = |this: &mut Self, (value, at): &Passed<'a>| {
            let known = run_time.len();
            let passed = if takes_run_time {
                this.argument_of_host(value, &mut run_time)
            } else {
                this.host_value(value)
            };
            if run_time.len() > known && first.is_none() {
                first = Some((value.clone(), *at));
            }
            match (passed, at) {
                (Some(passed), _) => Ok(passed),
                (None, Some(at)) => {
                    let what = "an argument of a compile-time function";
                    Err(this.not_constant(this.span_of(*at), at, value, what))
                }
                (None, None) => {
                    let message = "a compile-time function takes compile-time values";
                    Err(this.error(Code::NotConstexpr, span, message))
                }
            }
        };
        let positional: Vec<HostValue> =
            arguments.positional.iter().map(|passed| pass(self, passed)).collect::<Lower<_>>()?;
        let keywords: Vec<(String, HostValue)> = arguments
            .keywords
            .iter()
            .map(|(name, passed, _)| Ok((name.to_string(), pass(self, passed)?)))
            .collect::<Lower<_>>()?;
        self.at(span);
        match self.session.host.call(object, &positional, &keywords) {
            Ok(value) => given(value, &run_time).map_err(|ValueOfAnotherCall| {
                let what = self.session.host.describe(object);
                let message = format!("{what} returned a run-time value that is no argument of this call");
                let diagnostic = Diagnostic::new(Code::ConstexprError, message)
                    .primary(span, "the call")
                    .note("a compile-time function may return the run-time values of its arguments only")
                    .hint("pass the value to this call, too; values of earlier calls cannot be kept");
                self.report(diagnostic)
            }),
            Err(error) => {
                let what = self.session.host.describe(object);
                Err(self.report_call(&what, &error, first, span))
            }
        }
    }

    /// Reports the exception of a compile-time function. `first` is its first run-time argument.
    fn report_call(
        &mut self,
        what: &str,
        error: &CallError,
        first: Option<(IrOperand, Option<&'a Expr>)>,
        span: Span,
    ) -> super::lowerer::Reported {
        let message = format!("{what} failed: {}", error.text);
        let Some((value, at)) = first.filter(|_| error.needs_value) else {
            return self.error(Code::ConstexprError, span, message);
        };
        let found = self.describe(&value);
        let place = at.map_or(span, |at| self.span_of(at));
        let says = "an argument of a compile-time function must be known when the kernel is compiled";
        let diagnostic = Diagnostic::new(Code::NotConstexpr, says)
            .primary(place, format!("this is {found}, known at run time only"))
            .note(message)
            .note("of a run-time value, a compile-time function only knows the type and the shape");
        let blamed: Vec<&Expr> = at.into_iter().collect();
        let diagnostic = self.explain_run_time(diagnostic, &blamed);
        self.report(diagnostic)
    }

    /// Converts an argument for a compile-time function, and appends its run-time parts to
    /// `run_time`.
    fn argument_of_host(
        &mut self,
        operand: &IrOperand,
        run_time: &mut Vec<PassedValue>,
    ) -> Option<HostValue> {
        let (is_descriptor, names) = match operand {
            Operand::Tensor(value) => {
                let is_scalar = self.builder.function.ty(*value).is_scalar();
                if let Some(known) = self.host_value(operand).filter(|_| is_scalar) {
                    return Some(known);
                }
                (false, OF_TENSORS)
            }
            Operand::Descriptor(descriptor) => match descriptor.form.kind {
                DescriptorKind::Tensor => (true, OF_DESCRIPTORS),
                DescriptorKind::BlockPointer => (false, OF_BLOCK_POINTERS),
            },
            Operand::Tuple(items) => {
                let values: Option<Vec<HostValue>> =
                    items.iter().map(|item| self.argument_of_host(item, run_time)).collect();
                return Some(HostValue::Tuple(items.with_items(values?)));
            }
            known => return self.host_value(known),
        };
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        run_time.push(PassedValue { id, operand: operand.clone() });
        let mut attributes = Vec::with_capacity(names.len());
        for name in names {
            let found = semantic::attribute(self, operand, name).ok()?;
            attributes.push((*name, self.argument_of_host(&found, run_time)?));
        }
        Some(HostValue::RunTime(Arc::new(RunTime { id, is_descriptor, attributes })))
    }
}

/// Converts the result of a host function. A received run-time value is the passed operand. A value
/// of another call is an error: it may be of another kernel, or of a block that has ended.
fn given(value: HostValue, run_time: &[PassedValue]) -> Result<IrOperand, ValueOfAnotherCall> {
    match value {
        HostValue::RunTime(found) => {
            let passed = run_time.iter().find(|passed| passed.id == found.id);
            passed.map(|passed| passed.operand.clone()).ok_or(ValueOfAnotherCall)
        }
        HostValue::Tuple(items) => {
            let values: Result<Vec<_>, _> = items.iter().map(|item| given(item.clone(), run_time)).collect();
            Ok(template::whole(items.with_items(values?)))
        }
        other => Ok(from_host(other)),
    }
}
