//! Evaluates operators of objects: methods of users' classes, and operators of host objects.

use ruff_python_ast::Expr;
use tilewright_base::{Code, Span};

use super::lowerer::{Lower, Lowerer};
use super::template::{self, IrOperand, from_host};
use crate::host::HostValue;
use crate::semantic::{BinaryOperator, CompareOperator, UnaryOperator};
use crate::value::{Constant, Operand};

/// Returns Python's name of an operator.
fn binary_name(operator: BinaryOperator) -> &'static str {
    match operator {
        BinaryOperator::Add => "add",
        BinaryOperator::Sub => "sub",
        BinaryOperator::Mul => "mul",
        BinaryOperator::MatMul => "matmul",
        BinaryOperator::Div => "truediv",
        BinaryOperator::FloorDiv => "floordiv",
        BinaryOperator::Mod => "mod",
        BinaryOperator::Pow => "pow",
        BinaryOperator::Shl => "lshift",
        BinaryOperator::Shr => "rshift",
        BinaryOperator::And => "and_",
        BinaryOperator::Or => "or_",
        BinaryOperator::Xor => "xor",
    }
}

fn compare_names(operator: CompareOperator) -> (&'static str, &'static str) {
    match operator {
        CompareOperator::Eq => ("eq", "eq"),
        CompareOperator::Ne => ("ne", "ne"),
        CompareOperator::Lt => ("lt", "gt"),
        CompareOperator::Le => ("le", "ge"),
        CompareOperator::Gt => ("gt", "lt"),
        CompareOperator::Ge => ("ge", "le"),
    }
}

fn is_object(operand: &IrOperand) -> bool {
    matches!(operand, Operand::Object(_) | Operand::Constant(Constant::Object(_)))
}

impl<'a> Lowerer<'a, '_, '_> {
    /// Converts an operand to a value of the host, if it is known at compile time.
    pub(crate) fn host_value(&self, operand: &IrOperand) -> Option<HostValue> {
        Some(match operand {
            Operand::Function(function) => HostValue::Function(*function),
            Operand::Object(object) => HostValue::Object(*object),
            Operand::Callable(object) => HostValue::Callable(*object),
            Operand::ConstexprFunction(object) => HostValue::ConstexprFunction(*object),
            Operand::Language(path) => HostValue::Language(path.clone()),
            Operand::Tuple(items) => {
                let values: Option<Vec<HostValue>> = items.iter().map(|item| self.host_value(item)).collect();
                HostValue::Tuple(items.with_items(values?))
            }
            Operand::Constant(_) | Operand::Tensor(_) => HostValue::Constant(self.as_constant(operand)?),
            Operand::Descriptor(_)
            | Operand::Shared(_)
            | Operand::Launch(_)
            | Operand::Method(..)
            | Operand::Bound(..)
            | Operand::Super(..)
            | Operand::Range(_) => return None,
        })
    }

    /// Applies an operator of Python on the host. Returns `None` if the host cannot compute it: no
    /// operand is an object of the host, one is only known at run time, or the host has no Python.
    pub(crate) fn operate(
        &mut self,
        operator: &str,
        operands: &[&IrOperand],
        span: Span,
    ) -> Option<Lower<IrOperand>> {
        if !operands.iter().any(|operand| is_object(operand)) {
            return None;
        }
        let values: Option<Vec<HostValue>> =
            operands.iter().map(|operand| self.host_value(operand)).collect();
        let result = self.session.host.operate(operator, &values?)?;
        Some(result.map(from_host).map_err(|message| self.error(Code::ConstexprError, span, message)))
    }

    /// Evaluates `left op right` if an operand is an object with this operator.
    pub(crate) fn object_binary(
        &mut self,
        operator: BinaryOperator,
        left: &IrOperand,
        right: &IrOperand,
        span: Span,
    ) -> Option<Lower<IrOperand>> {
        let name = binary_name(operator);
        let method = name.trim_end_matches('_');
        self.call_operator(left, &format!("__{method}__"), vec![right.clone()], span)
            .or_else(|| self.call_operator(right, &format!("__r{method}__"), vec![left.clone()], span))
            .or_else(|| self.operate(name, &[left, right], span))
    }

    /// Evaluates a comparison if an operand is an object with it.
    pub(crate) fn object_compare(
        &mut self,
        operator: CompareOperator,
        left: &IrOperand,
        right: &IrOperand,
        span: Span,
    ) -> Option<Lower<IrOperand>> {
        let (name, exchanged) = compare_names(operator);
        self.call_operator(left, &format!("__{name}__"), vec![right.clone()], span)
            .or_else(|| self.call_operator(right, &format!("__{exchanged}__"), vec![left.clone()], span))
            .or_else(|| self.operate(name, &[left, right], span))
    }

    /// Evaluates `op value` if the operand is an object with this operator.
    pub(crate) fn object_unary(
        &mut self,
        operator: UnaryOperator,
        value: &IrOperand,
        span: Span,
    ) -> Option<Lower<IrOperand>> {
        let (method, name) = match operator {
            UnaryOperator::Plus => ("__pos__", "pos"),
            UnaryOperator::Neg => ("__neg__", "neg"),
            UnaryOperator::Invert => ("__invert__", "invert"),
            UnaryOperator::Not => ("__not__", "not_"),
        };
        self.call_operator(value, method, Vec::new(), span).or_else(|| self.operate(name, &[value], span))
    }

    /// Evaluates `value[index]` if the value is an object.
    pub(crate) fn object_subscript(
        &mut self,
        value: &IrOperand,
        index: &'a Expr,
        span: Span,
    ) -> Option<Lower<IrOperand>> {
        if template::class_of(value).is_none() && !is_object(value) {
            return None;
        }
        let index = match self.expression(index) {
            Ok(index) => index,
            Err(reported) => return Some(Err(reported)),
        };
        self.call_operator(value, "__getitem__", vec![index.clone()], span)
            .or_else(|| self.operate("getitem", &[value, &index], span))
            .or_else(|| Some(Err(self.no_items(value, span))))
    }

    /// Evaluates `item in container` for an object of the host and a compile-time item. Returns
    /// `None` otherwise.
    pub(crate) fn object_contains(
        &mut self,
        item: &IrOperand,
        container: &IrOperand,
        span: Span,
    ) -> Option<Lower<bool>> {
        if !is_object(container) {
            return None;
        }
        let result = self.operate("contains", &[container, item], span)?;
        Some(result.map(|found| matches!(found, Operand::Constant(Constant::Bool(true)))))
    }
}
