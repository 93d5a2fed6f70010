//! Evaluates Python's operator methods: `x.__add__(y)` is `x + y`.

use std::sync::Arc;

use ruff_python_ast::{CmpOp, UnaryOp};
use tilewright_base::{Code, Span};

use super::arguments::{Arguments, Passed};
use super::lowerer::{Lower, Lowerer};
use super::template::{self, IrOperand, constant_truth};
use crate::repr::type_str;
use crate::semantic::{self, BinaryOperator, Index};
use crate::types::LanguageType;
use crate::value::{Constant, Operand, to_str};

/// The prefix that marks the path in an `Operand::Method` as an operator method: `operator.__add__`.
pub(crate) const OPERATORS: &str = "operator.";

/// The operation of an operator method.
#[derive(Clone, Copy)]
enum Method {
    Binary(BinaryOperator),
    Compare(CmpOp),
    Unary(UnaryOp),
    /// Evaluates to the object itself, as `__index__` does.
    Identity,
    Truth,
    Item,
    Length,
    Hash,
    Text,
    Call,
}

/// Returns the operation of an operator method. The boolean is true if the receiver is the right
/// operand, as in `__radd__`.
fn method(name: &str) -> Option<(Method, bool)> {
    use BinaryOperator as B;
    let name = name.strip_prefix("__")?.strip_suffix("__")?;
    let plain = match name {
        "neg" => Method::Unary(UnaryOp::USub),
        "pos" => Method::Unary(UnaryOp::UAdd),
        "invert" => Method::Unary(UnaryOp::Invert),
        "not" => Method::Unary(UnaryOp::Not),
        "index" => Method::Identity,
        "bool" => Method::Truth,
        "getitem" => Method::Item,
        "len" => Method::Length,
        "hash" => Method::Hash,
        "str" | "repr" => Method::Text,
        "call" => Method::Call,
        _ => {
            let of_two = |name: &str| {
                Some(match name {
                    "add" => Method::Binary(B::Add),
                    "sub" => Method::Binary(B::Sub),
                    "mul" => Method::Binary(B::Mul),
                    "matmul" => Method::Binary(B::MatMul),
                    "truediv" => Method::Binary(B::Div),
                    "floordiv" => Method::Binary(B::FloorDiv),
                    "mod" => Method::Binary(B::Mod),
                    "pow" => Method::Binary(B::Pow),
                    "lshift" => Method::Binary(B::Shl),
                    "rshift" => Method::Binary(B::Shr),
                    "and" => Method::Binary(B::And),
                    "or" => Method::Binary(B::Or),
                    "xor" => Method::Binary(B::Xor),
                    "eq" => Method::Compare(CmpOp::Eq),
                    "ne" => Method::Compare(CmpOp::NotEq),
                    "lt" => Method::Compare(CmpOp::Lt),
                    "le" => Method::Compare(CmpOp::LtE),
                    "gt" => Method::Compare(CmpOp::Gt),
                    "ge" => Method::Compare(CmpOp::GtE),
                    _ => return None,
                })
            };
            return match of_two(name) {
                Some(method) => Some((method, false)),
                None => Some((of_two(name.strip_prefix('r')?)?, true)),
            };
        }
    };
    Some((plain, false))
}

impl<'a> Lowerer<'a, '_, '_> {
    /// Returns an operator method such as `value.__add__`, if the value has it.
    pub(crate) fn operator_method(value: &IrOperand, name: &str) -> Option<IrOperand> {
        let (method, _) = method(name)?;
        let has = match value {
            Operand::Tensor(_) => !matches!(method, Method::Call | Method::Identity | Method::Truth),
            Operand::Constant(Constant::Object(_)) => false,
            Operand::Constant(_) | Operand::Tuple(_) => {
                template::class_of(value).is_none() && !matches!(method, Method::Call)
            }
            Operand::Function(_) => matches!(method, Method::Call | Method::Hash),
            // tidy: wildcard because other values have no operators
            _ => false,
        };
        has.then(|| Operand::Method(Box::new(value.clone()), Arc::from(format!("{OPERATORS}{name}"))))
    }

    pub(crate) fn call_operator_method(
        &mut self,
        receiver: &IrOperand,
        path: &str,
        arguments: Arguments<'a>,
        span: Span,
        callee_span: Span,
    ) -> Lower<IrOperand> {
        let name = path.strip_prefix(OPERATORS).unwrap_or(path);
        let Some((method, is_reflected)) = method(name) else {
            return Err(self.error(Code::NotCallable, callee_span, format!("there is no operator {name}")));
        };
        if let Method::Call = method {
            return self.call_operand(receiver, arguments, span, callee_span);
        }
        let takes = usize::from(matches!(method, Method::Binary(_) | Method::Compare(_) | Method::Item));
        if arguments.positional.len() != takes || !arguments.keywords.is_empty() {
            let found = arguments.values().count();
            let message =
                format!("{name} takes {takes} argument{}, found {found}", if takes == 1 { "" } else { "s" });
            return Err(self.error(Code::WrongArguments, span, message));
        }
        let own: Passed<'a> = (receiver.clone(), None);
        let other = arguments.positional.into_iter().next();
        match (method, other) {
            (Method::Binary(operator), Some(other)) => {
                let (left, right) = if is_reflected { (other, own) } else { (own, other) };
                self.binary(operator, (&left.0, left.1), (&right.0, right.1), span)
            }
            (Method::Compare(operator), Some(other)) => {
                let (left, right) = if is_reflected { (other, own) } else { (own, other) };
                self.compare(operator, (&left.0, left.1), (&right.0, right.1), span)
            }
            (Method::Item, Some((index, at))) => {
                self.item(receiver, &index, at.map(|at| self.span_of(at)), span)
            }
            (Method::Unary(operator), _) => self.unary_value(operator, receiver, None, span),
            (Method::Length, _) => self.length(receiver, span),
            (Method::Truth, _) => {
                let truth = constant_truth(receiver).unwrap_or(true);
                Ok(Constant::Bool(truth).into())
            }
            (Method::Hash, _) => {
                let hash = template::hash(&[template::of(receiver, &self.builder.function)]);
                Ok(Constant::Int(i128::from(hash >> 1)).into())
            }
            (Method::Text, _) => Ok(Constant::Str(self.text_of(receiver, name).into()).into()),
            (Method::Identity | Method::Call | Method::Binary(_) | Method::Compare(_) | Method::Item, _) => {
                Ok(receiver.clone())
            }
        }
    }

    /// Returns `str` or `repr` of a value.
    fn text_of(&mut self, value: &IrOperand, name: &str) -> String {
        match (value, self.as_constant(value)) {
            (Operand::Tensor(value), _) => type_str(self.builder.function.ty(*value), true),
            (_, Some(constant)) if name == "__str__" => to_str(&constant),
            (_, Some(constant)) => constant.to_string(),
            _ => self.describe(value),
        }
    }

    /// Evaluates `value[index]` for an evaluated index.
    fn item(
        &mut self,
        value: &IrOperand,
        index: &IrOperand,
        at: Option<Span>,
        span: Span,
    ) -> Lower<IrOperand> {
        if let Operand::Tensor(_) = value {
            self.at(span);
            let result = semantic::subscript(self, value, &indices_of(index));
            return result.map_err(|error| self.semantic_error(error, span, &[]));
        }
        self.tuple_item(value, index, at.unwrap_or(span), span)
    }

    /// Evaluates `value.type` for a tuple or an instance of a user's class. Returns `None`
    /// otherwise.
    pub(crate) fn type_of_parts(&self, value: &IrOperand, name: &str) -> Option<IrOperand> {
        let parts = template::parts(value).filter(|_| name == "type")?;
        let types: Option<Vec<Constant>> = parts.iter().map(|part| self.type_of(part)).collect();
        Some(LanguageType::Tuple(parts.with_items(types?)).into_constant().into())
    }

    /// Returns the type of a value, as `value.type` does. A compile-time value has a
    /// `tl.constexpr_type`.
    fn type_of(&self, value: &IrOperand) -> Option<Constant> {
        if let Some(Operand::Constant(ty)) = self.type_of_parts(value, "type") {
            return Some(ty);
        }
        match value {
            Operand::Tensor(value) => {
                let ty = self.builder.function.ty(*value).clone();
                let pointee = ty.element.pointee().filter(|_| ty.is_scalar());
                Some(match pointee.filter(|_| self.read_only_root(*value).is_some()) {
                    Some(pointee) => LanguageType::ConstPointer(pointee).into_constant(),
                    None => Constant::Type(ty),
                })
            }
            other => self.as_constant(other).map(|value| LanguageType::Constexpr(value).into_constant()),
        }
    }
}

/// Converts the value in the brackets of a subscript to indices.
pub(crate) fn indices_of<V: Clone>(index: &Operand<V>) -> Vec<Index<V>> {
    let of_one = |index: &Operand<V>| match (index, semantic::slice_parts(index)) {
        (Operand::Constant(Constant::None), _) => Index::NewAxis,
        (_, Some(parts)) => {
            let [start, stop, by] = parts
                .map(|part| Some(part).filter(|part| !matches!(part, Operand::Constant(Constant::None))));
            if start.is_none() && stop.is_none() && by.is_none() {
                Index::All
            } else {
                Index::Slice { start, stop, step: by }
            }
        }
        (value, None) => Index::Value(value.clone()),
    };
    match template::items(index).filter(|_| semantic::slice_parts(index).is_none()) {
        Some(items) => items.iter().map(of_one).collect(),
        None => vec![of_one(index)],
    }
}
