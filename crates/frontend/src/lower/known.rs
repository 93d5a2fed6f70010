//! Predicts the values of conditions from known names, without lowering anything.
//!
//! Loops then carry fewer names. The predictions also select how an `if` with a `return` is
//! lowered. A prediction may always be `None`.

use ruff_python_ast::{BoolOp, CmpOp, Expr, UnaryOp};

use super::literals::number;
use super::lowerer::Lowerer;
use super::scope::NameState;
use crate::constexpr;
use crate::semantic::CompareOperator;
use crate::value::{Constant, Operand};

/// The known value of an expression that has not been lowered.
enum KnownValue {
    Constant(Constant),
    /// A run-time value, which is not `None`.
    RunTime,
}

impl Lowerer<'_, '_, '_> {
    /// Returns the names that statements may assign, without branches that compile-time conditions
    /// exclude.
    pub(crate) fn assigned<'b>(&self, body: &'b [ruff_python_ast::Stmt]) -> Vec<&'b str> {
        // A condition may read a name after the body has assigned it, so that name is unknown.
        let any = super::scope::assigned(body, &|_| None);
        super::scope::assigned(body, &|test| match self.foresee(test, &any, 0)? {
            KnownValue::Constant(constant) => Some(constant.is_true()),
            KnownValue::RunTime => None,
        })
    }

    /// Returns the value of the next condition, if it is known.
    pub(crate) fn foreseen(&self, test: &Expr) -> Option<bool> {
        match self.foresee(test, &[], 0)? {
            KnownValue::Constant(constant) => Some(constant.is_true()),
            KnownValue::RunTime => None,
        }
    }

    fn foresee(&self, expression: &Expr, assigned: &[&str], depth: usize) -> Option<KnownValue> {
        if depth > 20 {
            return None;
        }
        let constant = |expression: &Expr| match self.foresee(expression, assigned, depth + 1)? {
            KnownValue::Constant(constant) => Some(constant),
            KnownValue::RunTime => None,
        };
        match expression {
            Expr::Name(name) if !assigned.contains(&name.id.as_str()) => {
                match &self.scope.get(name.id.as_str())?.state {
                    NameState::Value(Operand::Constant(constant)) => {
                        Some(KnownValue::Constant(constant.clone()))
                    }
                    NameState::Value(
                        Operand::Tensor(_) | Operand::Descriptor(_) | Operand::Shared(_) | Operand::Launch(_),
                    ) => Some(KnownValue::RunTime),
                    _ => None,
                }
            }
            Expr::BooleanLiteral(literal) => Some(KnownValue::Constant(Constant::Bool(literal.value))),
            Expr::NoneLiteral(_) => Some(KnownValue::Constant(Constant::None)),
            Expr::StringLiteral(literal) => {
                Some(KnownValue::Constant(Constant::Str(literal.value.to_str().into())))
            }
            Expr::NumberLiteral(literal) => number(&literal.value).ok().map(KnownValue::Constant),
            Expr::UnaryOp(unary) if unary.op == UnaryOp::Not => {
                Some(KnownValue::Constant(Constant::Bool(!constant(&unary.operand)?.is_true())))
            }
            Expr::BoolOp(bool_op) => {
                let stops_at = bool_op.op == BoolOp::Or;
                let values: Vec<Option<Constant>> = bool_op.values.iter().map(constant).collect();
                let decided = values.iter().flatten().any(|value| value.is_true() == stops_at);
                let all_known = values.iter().all(Option::is_some);
                let value = if decided { stops_at } else { !stops_at };
                (decided || all_known).then_some(KnownValue::Constant(Constant::Bool(value)))
            }
            Expr::Compare(compare) => {
                let ([operator], [right]) = (&compare.ops[..], &compare.comparators[..]) else { return None };
                let left = self.foresee(&compare.left, assigned, depth + 1)?;
                let right = self.foresee(right, assigned, depth + 1)?;
                Some(KnownValue::Constant(Constant::Bool(compare_known(*operator, &left, &right)?)))
            }
            _ => None,
        }
    }
}

fn compare_known(operator: CmpOp, left: &KnownValue, right: &KnownValue) -> Option<bool> {
    let (left, right) = match (left, right) {
        (KnownValue::Constant(left), KnownValue::Constant(right)) => (left, right),
        (KnownValue::RunTime, KnownValue::Constant(Constant::None))
        | (KnownValue::Constant(Constant::None), KnownValue::RunTime) => {
            return match operator {
                CmpOp::Is => Some(false),
                CmpOp::IsNot => Some(true),
                _ => None,
            };
        }
        _ => return None,
    };
    compare_constants(operator, left, right)
}

/// Computes `left op right`, or returns `None` if Python raises an error.
pub(crate) fn compare_constants(operator: CmpOp, left: &Constant, right: &Constant) -> Option<bool> {
    let ordered = |operator| match constexpr::compare(operator, left, right).ok()? {
        Constant::Bool(holds) => Some(holds),
        _ => None,
    };
    match operator {
        CmpOp::Is => Some(constexpr::identical(left, right)),
        CmpOp::IsNot => Some(!constexpr::identical(left, right)),
        CmpOp::In => constexpr::contains(right, left).ok(),
        CmpOp::NotIn => constexpr::contains(right, left).ok().map(|found| !found),
        CmpOp::Eq => ordered(CompareOperator::Eq),
        CmpOp::NotEq => ordered(CompareOperator::Ne),
        CmpOp::Lt => ordered(CompareOperator::Lt),
        CmpOp::LtE => ordered(CompareOperator::Le),
        CmpOp::Gt => ordered(CompareOperator::Gt),
        CmpOp::GtE => ordered(CompareOperator::Ge),
    }
}
