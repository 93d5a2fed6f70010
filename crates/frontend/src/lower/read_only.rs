//! Parameters that are declared `tl.const`: pointers to memory that is only read, and values
//! derived from them.
//!
//! The IR does not know of them. A pointer is followed to its origin within its function. A
//! function is lowered for the set of its read-only arguments, and returns the set of its read-only
//! results.

use std::sync::Arc;

use ruff_python_ast::Expr;
use tilewright_ir::{ElementwiseFn, Op, Value};

use super::callee::ReadOnly;
use super::lowerer::Lowerer;
use super::template::{self, IrOperand};

/// The maximum number of definitions that are followed.
const MAX_STEPS: usize = 256;

/// Returns whether an annotation declares memory that is only read: `tl.const`, `"const *fp32"`.
fn is_const(annotation: Option<&Expr>) -> bool {
    match annotation {
        Some(Expr::Name(name)) => name.id.as_str() == "const",
        Some(Expr::Attribute(attribute)) => attribute.attr.as_str() == "const",
        Some(Expr::StringLiteral(text)) => {
            let text = text.value.to_str().trim();
            text.starts_with("const ") || text.starts_with("*k") || text.rsplit('.').next() == Some("const")
        }
        Some(Expr::Subscript(subscript)) => is_const(Some(&subscript.value)),
        _ => false,
    }
}

impl Lowerer<'_, '_, '_> {
    /// Returns the values that are such pointers.
    pub(super) fn read_only_among(&self, values: &[Value]) -> ReadOnly {
        if self.read_only.is_empty() {
            return ReadOnly::new();
        }
        let roots = values.iter().enumerate();
        roots.filter_map(|(place, &value)| Some((place, self.read_only_root(value)?))).collect()
    }

    /// Notes the annotation of a parameter.
    pub(super) fn declare_read_only(&mut self, annotation: Option<&Expr>, name: &str, value: &IrOperand) {
        if is_const(annotation) {
            let name: Arc<str> = name.into();
            self.read_only.extend(template::values(value).into_iter().map(|part| (part, Some(name.clone()))));
        }
    }

    /// Marks the results of a loop or branch as read-only if the values that it carries are.
    pub(super) fn pass_on_read_only(&mut self, from: impl Iterator<Item = Value>, to: &[Value]) {
        if self.read_only.is_empty() {
            return;
        }
        for (from, &to) in from.zip(to) {
            if let Some(name) = self.read_only_root(from) {
                self.read_only.insert(to, Some(name));
            }
        }
    }

    /// Notes that a pointer was cast to a type which says whether its memory is only read: its
    /// origin does not matter any more.
    pub(super) fn mark_cast(&mut self, pointer: Value, is_const: bool) {
        self.read_only.insert(pointer, is_const.then(|| "".into()));
    }

    /// Returns the parameter that a pointer comes from, if it is declared so; an empty name if the
    /// program has cast it.
    pub(super) fn read_only_root(&self, pointer: Value) -> Option<Arc<str>> {
        if self.read_only.is_empty() {
            return None;
        }
        let function = &self.builder.function;
        let mut value = pointer;
        for _ in 0..MAX_STEPS {
            if let Some(name) = self.read_only.get(&value) {
                return name.clone();
            }
            let data = &function.insts[function.defining_inst(value)?];
            match data.op {
                Op::PtrAdd {}
                | Op::Splat { .. }
                | Op::ExpandDims { .. }
                | Op::Broadcast { .. }
                | Op::Reshape { .. }
                | Op::Transpose { .. }
                | Op::Cast { .. }
                | Op::Bitcast { .. }
                | Op::Hint { .. } => value = *data.operands.first()?,
                // If one of two pointers is read-only, the result is.
                Op::Elementwise { function: ElementwiseFn::Select } => {
                    let [_, first, second] = data.operands[..] else { return None };
                    return self.read_only_root(first).or_else(|| self.read_only_root(second));
                }
                // tidy: wildcard because the results of other ops are other pointers
                _ => return None,
            }
        }
        None
    }
}
