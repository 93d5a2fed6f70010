//! Evaluates constants, imported names and decorators of a module without Python.

use std::sync::Arc;

use ruff_python_ast::{BoolOp, Expr, ExprCall, UnaryOp};

use super::gluon::language_name;
use super::math::{call_math, math_constant, math_function};
use super::{Decorator, MAX_DEPTH, SourceHost};
use crate::constexpr;
use crate::host::{Host, HostValue};
use crate::lower::expression::binary_operator;
use crate::lower::known::compare_constants;
use crate::lower::literals::number;
use crate::parse::visit_functions;
use crate::semantic::UnaryOperator;
use crate::value::Constant;

impl SourceHost {
    /// Returns the effect of a decorator, with or without arguments.
    pub(super) fn decorator(&self, expression: &Expr) -> Option<Decorator> {
        let (callee, call) = match expression {
            Expr::Call(call) => (&*call.func, Some(call)),
            other => (other, None),
        };
        match self.dotted(callee)?.as_str() {
            "triton.jit"
            | "triton.runtime.jit"
            | "triton.runtime.jit.jit"
            | "triton.experimental.gluon.jit" => {
                let keyword = call.and_then(|call| call.arguments.find_keyword("noinline"));
                let is_true = |value: &Expr| matches!(value, Expr::BooleanLiteral(literal) if literal.value);
                Some(Decorator::Jit { noinline: keyword.is_some_and(|keyword| is_true(&keyword.value)) })
            }
            "triton.constexpr_function"
            | "triton.runtime.jit.constexpr_function"
            | "triton.experimental.gluon.constexpr_function" => Some(Decorator::Constexpr),
            "triton.autotune" | "triton.heuristics" => Some(Decorator::Wrapper),
            _ => None,
        }
    }

    /// Evaluates `triton.jit(function)` and `triton.autotune(…)(kernel)`.
    pub(super) fn decorated_by_call(&mut self, call: &ExprCall, depth: usize) -> Option<HostValue> {
        let decorator = self.decorator(&call.func)?;
        let [argument] = &call.arguments.args[..] else { return None };
        match self.evaluate(argument, depth + 1)? {
            HostValue::Callable(object) => {
                let (name, index) = self.name_of(object)?;
                let (name, module) = (name.to_owned(), self.scope(index).module.clone());
                let mut definition = None;
                visit_functions(&module.body, &mut |function| {
                    if function.name.as_str() == name {
                        definition = Some(function);
                    }
                });
                let definition = definition?;
                self.within(index, |host| host.decorated(definition, &[decorator]))
            }
            function @ HostValue::Function(_) => Some(function),
            _ => None,
        }
    }

    /// Returns the full path of a decorator or callee, such as `triton.jit`. The module may import
    /// it under another name.
    pub(super) fn dotted(&self, expression: &Expr) -> Option<String> {
        match expression {
            Expr::Name(name) => match self.current.names.get(name.id.as_str())? {
                HostValue::Object(object) | HostValue::ConstexprFunction(object) => {
                    Some(self.path(*object).to_owned())
                }
                HostValue::Language(path) if path.is_empty() => Some("triton.language".into()),
                HostValue::Language(path) => Some(format!("triton.language.{path}")),
                _ => None,
            },
            Expr::Attribute(attribute) => {
                Some(format!("{}.{}", self.dotted(&attribute.value)?, attribute.attr.as_str()))
            }
            _ => None,
        }
    }

    /// Returns the value of a path such as `@2.name.more`, which begins in the module with the
    /// index 2.
    fn value_in_module(&mut self, path: &str) -> Option<HostValue> {
        let mut parts = path.strip_prefix('@')?.split('.');
        let index = parts.next()?.parse().ok()?;
        let mut value = self.member(index, parts.next()?)?;
        for part in parts {
            let HostValue::Object(object) = value else { return None };
            value = self.attribute(object, part)?;
        }
        Some(value)
    }

    pub(super) fn module_value(&mut self, path: &str) -> HostValue {
        if let Some(value) = self.value_in_module(path) {
            return value;
        }
        let path = match path.strip_prefix("tilewright") {
            Some(rest) if rest.is_empty() || rest.starts_with('.') => format!("triton{rest}"),
            _ => path.to_owned(),
        };
        if let Some(rest) = path.strip_prefix("triton.language") {
            if rest.is_empty() {
                return HostValue::Language(Arc::from(""));
            }
            if let Some(name) = rest.strip_prefix('.') {
                return HostValue::Language(Arc::from(name));
            }
        }
        if let Some(name) = language_name(&path) {
            return HostValue::Language(Arc::from(name));
        }
        if let Some(value) = self.value_of_profiler(&path) {
            return value;
        }
        match path.as_str() {
            "triton.cdiv" => return HostValue::Language(Arc::from("builtins.triton.cdiv")),
            "triton.next_power_of_2" => {
                return HostValue::Language(Arc::from("builtins.triton.next_power_of_2"));
            }
            _ => {}
        }
        if let Some(name) = path.strip_prefix("math.") {
            if let Some(value) = math_constant(name) {
                return HostValue::Constant(Constant::Float(value));
            }
            if math_function(name, 1.0).is_some() {
                return HostValue::ConstexprFunction(self.object(path));
            }
        }
        HostValue::Object(self.object(path))
    }

    /// Evaluates a constant expression of the module; `None` if it needs Python.
    pub(super) fn evaluate(&mut self, expression: &Expr, depth: usize) -> Option<HostValue> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut constant = |expression: &Expr| match self.evaluate(expression, depth + 1)? {
            HostValue::PlainGlobal(constant) | HostValue::Constant(constant) => Some(constant),
            _ => None,
        };
        let plain = match expression {
            Expr::NumberLiteral(literal) => number(&literal.value).ok()?,
            Expr::BooleanLiteral(literal) => Constant::Bool(literal.value),
            Expr::NoneLiteral(_) => Constant::None,
            Expr::StringLiteral(literal) => Constant::Str(literal.value.to_str().into()),
            Expr::Tuple(tuple) => Constant::Tuple(tuple.elts.iter().map(constant).collect::<Option<_>>()?),
            Expr::List(list) => Constant::Tuple(list.elts.iter().map(constant).collect::<Option<_>>()?),
            Expr::UnaryOp(unary) => {
                let operator = match unary.op {
                    UnaryOp::USub => UnaryOperator::Neg,
                    UnaryOp::UAdd => UnaryOperator::Plus,
                    UnaryOp::Invert => UnaryOperator::Invert,
                    UnaryOp::Not => UnaryOperator::Not,
                };
                constexpr::unary(operator, &constant(&unary.operand)?).ok()?
            }
            Expr::BinOp(binary) => {
                let (left, right) = (constant(&binary.left)?, constant(&binary.right)?);
                constexpr::binary(binary_operator(binary.op), &left, &right).ok()?
            }
            Expr::Compare(compare) => {
                let mut left = constant(&compare.left)?;
                let mut holds = true;
                for (operator, right) in compare.ops.iter().zip(&compare.comparators[..]) {
                    let right = constant(right)?;
                    holds &= compare_constants(*operator, &left, &right)?;
                    left = right;
                }
                Constant::Bool(holds)
            }
            Expr::BoolOp(boolean) => {
                let stops_at = boolean.op == BoolOp::Or;
                let mut last = None;
                for value in &boolean.values {
                    let value = constant(value)?;
                    let stops = value.is_true() == stops_at;
                    last = Some(value);
                    if stops {
                        break;
                    }
                }
                last?
            }
            Expr::If(ternary) => {
                let chosen = if constant(&ternary.test)?.is_true() { &ternary.body } else { &ternary.orelse };
                return self.evaluate(chosen, depth + 1);
            }
            Expr::Name(name) => return self.current.names.get(name.id.as_str()).cloned(),
            Expr::Attribute(_) => {
                let path = self.dotted(expression)?;
                return Some(self.module_value(&path));
            }
            Expr::Call(call) => return self.evaluate_call(call, depth),
            _ => return None,
        };
        Some(HostValue::PlainGlobal(plain))
    }

    fn evaluate_call(&mut self, call: &ExprCall, depth: usize) -> Option<HostValue> {
        if let Some(function) = self.decorated_by_call(call, depth) {
            return Some(function);
        }
        let path = match &*call.func {
            Expr::Name(name) if !self.current.names.contains_key(name.id.as_str()) => {
                name.id.as_str().to_owned()
            }
            other => self.dotted(other)?,
        };
        let callee = self.object(path.clone());
        if self.is_layout_callable(callee) {
            let positional = call.arguments.args.iter().map(|argument| self.evaluate(argument, depth + 1));
            let positional = positional.collect::<Option<Vec<_>>>()?;
            let keywords = call.arguments.keywords.iter().map(|keyword| {
                Some((keyword.arg.as_ref()?.to_string(), self.evaluate(&keyword.value, depth + 1)?))
            });
            let keywords = keywords.collect::<Option<Vec<_>>>()?;
            return self.call_layout(callee, &positional, &keywords)?.ok();
        }
        let is_constexpr = matches!(
            path.as_str(),
            "triton.language.constexpr"
                | "triton.language.core.constexpr"
                | "triton.experimental.gluon.language.constexpr"
        );
        let mut values = Vec::new();
        for argument in &call.arguments.args {
            match self.evaluate(argument, depth + 1)? {
                HostValue::PlainGlobal(constant) | HostValue::Constant(constant) => values.push(constant),
                other if is_constexpr => return Some(other),
                _ => return None,
            }
        }
        if is_constexpr {
            return values.pop().map(HostValue::Constant);
        }
        if path.starts_with("math.") {
            return call_math(&path, &values).ok().map(HostValue::PlainGlobal);
        }
        let name = path.strip_prefix("triton.language.builtins.").unwrap_or(&path);
        crate::lower::python::evaluate(name, &values).ok().map(HostValue::PlainGlobal)
    }
}
