//! Tracks pointers to read-only memory: `tl.const` parameters, and pointers that derive from them.
//!
//! The types of the IR do not distinguish them. `read_only_root` follows a pointer to its origin.
//! Across calls, the key of a specialization has the read-only arguments, and the specialization
//! has its read-only results.

use std::sync::Arc;

use ruff_python_ast::Expr;
use tilewright_ir::{ElementwiseFn, Op, Value};

use super::callee::ReadOnly;
use super::lowerer::Lowerer;
use super::template::{self, IrOperand};

/// The maximum number of definitions from a pointer to its origin. Longer chains count as writable.
const MAX_STEPS: usize = 256;

/// Returns whether an annotation declares read-only memory: `tl.const`, `"const *fp32"`.
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
    /// Returns the indices of the values that point to read-only memory, each with its parameter.
    pub(super) fn read_only_among(&self, values: &[Value]) -> ReadOnly {
        if self.read_only.is_empty() {
            return ReadOnly::new();
        }
        let roots = values.iter().enumerate();
        roots.filter_map(|(place, &value)| Some((place, self.read_only_root(value)?))).collect()
    }

    /// Marks the pointers of a parameter whose annotation declares read-only memory.
    pub(super) fn declare_read_only(&mut self, annotation: Option<&Expr>, name: &str, value: &IrOperand) {
        if is_const(annotation) {
            let name: Arc<str> = name.into();
            self.read_only.extend(template::values(value).into_iter().map(|part| (part, Some(name.clone()))));
        }
    }

    /// Marks each value of `to` as read-only if the value of `from` at its index is. A loop or
    /// branch carries the values.
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

    /// Records a cast to a pointer type, which determines from then on whether the memory is
    /// read-only.
    pub(super) fn mark_cast(&mut self, pointer: Value, is_const: bool) {
        self.read_only.insert(pointer, is_const.then(|| "".into()));
    }

    /// Returns the `tl.const` parameter of a pointer, "" after a cast to a const type, or `None` if
    /// the kernel may write.
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
                | Op::Slice { .. }
                | Op::Gather { .. }
                | Op::SetLayout { .. }
                | Op::Cast { .. }
                | Op::Bitcast { .. }
                | Op::Hint { .. } => value = *data.operands.first()?,
                // The result is read-only if one of the pointers is.
                Op::Elementwise { function: ElementwiseFn::Select } => {
                    let [_, first, second] = data.operands[..] else { return None };
                    return self.read_only_root(first).or_else(|| self.read_only_root(second));
                }
                // tidy: wildcard because the analysis does not follow other ops, whose results
                // count as writable
                _ => return None,
            }
        }
        None
    }
}
