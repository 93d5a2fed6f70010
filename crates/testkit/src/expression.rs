//! Parses and evaluates the expressions of test cases, in binary64.
//!
//! An expression has Python's syntax:
//!
//! - `i`, `j`, `k` and `l` are the indices of the element.
//! - `x[i, j]` is an element of an input.
//! - `sum(k, 8, …)`, `max(k, 8, …)` and `min(k, 8, …)` evaluate their last argument for `k` from 0
//!   to 7.
//! - `tdiv` and `tmod` truncate, like `//` and `%` on integers in kernels.

use ruff_python_ast::{CmpOp, Expr, Number, Operator, UnaryOp};
use ruff_python_parser::parse_expression;

use crate::Array;

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Expression {
    tree: Expr,
    text: String,
}

/// The values of the names in an expression.
struct Scope<'a> {
    arrays: &'a [(String, Array)],
    variables: Vec<(String, f64)>,
}

type Number64 = Result<f64, String>;

impl Expression {
    /// Parses an expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed = parse_expression(text).map_err(|error| format!("'{text}': {error}"))?;
        Ok(Self { tree: *parsed.into_syntax().body, text: text.to_owned() })
    }

    /// Returns the value of the expression for the element with these indices.
    pub fn evaluate(&self, indices: &[usize], arrays: &[(String, Array)]) -> Number64 {
        let names = ["i", "j", "k", "l"];
        let variables = names.iter().zip(indices).map(|(name, &index)| ((*name).to_owned(), index as f64));
        let mut scope = Scope { arrays, variables: variables.collect() };
        scope.evaluate(&self.tree).map_err(|error| format!("'{}': {error}", self.text))
    }
}

impl Scope<'_> {
    fn evaluate(&mut self, expression: &Expr) -> Number64 {
        match expression {
            Expr::NumberLiteral(literal) => match &literal.value {
                Number::Int(value) => value.to_string().parse().map_err(|_| "number too large".into()),
                Number::Float(value) => Ok(*value),
                Number::Complex { .. } => Err("complex number".into()),
            },
            Expr::BooleanLiteral(literal) => Ok(f64::from(u8::from(literal.value))),
            Expr::Name(name) => self.name(name.id.as_str()),
            Expr::UnaryOp(unary) => {
                let value = self.evaluate(&unary.operand)?;
                Ok(match unary.op {
                    UnaryOp::USub => -value,
                    UnaryOp::UAdd => value,
                    UnaryOp::Not => f64::from(u8::from(value == 0.0)),
                    UnaryOp::Invert => !(value as i64) as f64,
                })
            }
            Expr::BinOp(binary) => {
                let (left, right) = (self.evaluate(&binary.left)?, self.evaluate(&binary.right)?);
                arithmetic(binary.op, left, right)
            }
            Expr::Compare(comparison) => match (&comparison.ops[..], &comparison.comparators[..]) {
                ([op], [right]) => {
                    let (left, right) = (self.evaluate(&comparison.left)?, self.evaluate(right)?);
                    compare(*op, left, right)
                }
                _ => Err("chained comparison".into()),
            },
            Expr::BoolOp(operation) => {
                let is_and = operation.op == ruff_python_ast::BoolOp::And;
                for value in &operation.values {
                    if (self.evaluate(value)? != 0.0) != is_and {
                        return Ok(f64::from(u8::from(!is_and)));
                    }
                }
                Ok(f64::from(u8::from(is_and)))
            }
            Expr::If(choice) => {
                let is_true = self.evaluate(&choice.test)? != 0.0;
                self.evaluate(if is_true { &choice.body } else { &choice.orelse })
            }
            Expr::Subscript(subscript) => {
                let name = name_of(&subscript.value).ok_or("only inputs have elements")?;
                match &*subscript.slice {
                    Expr::Tuple(tuple) => self.element(name, &tuple.elts),
                    index => self.element(name, std::slice::from_ref(index)),
                }
            }
            Expr::Call(call) => {
                let function = name_of(&call.func).ok_or("not a function")?;
                self.call(function, &call.arguments.args)
            }
            _ => Err("not supported in a test".into()),
        }
    }

    fn name(&self, name: &str) -> Number64 {
        let found = self.variables.iter().rev().find(|(other, _)| other == name);
        match (found, name) {
            (Some((_, value)), _) => Ok(*value),
            (None, "inf") => Ok(f64::INFINITY),
            (None, "nan") => Ok(f64::NAN),
            (None, "pi") => Ok(std::f64::consts::PI),
            (None, _) => Err(format!("unknown name {name}")),
        }
    }

    fn element(&mut self, name: &str, indices: &[Expr]) -> Number64 {
        let arrays = self.arrays;
        let (_, array) = arrays.iter().find(|(other, _)| other == name).ok_or(format!("no input {name}"))?;
        if indices.len() != array.shape.len() {
            return Err(format!("{name} has {} axes", array.shape.len()));
        }
        let mut flat = 0;
        for (index, &extent) in indices.iter().zip(&array.shape) {
            let index = self.evaluate(index)?;
            if index < 0.0 || index >= extent as f64 {
                return Err(format!(
                    "index {index} is out of range: {name} has {extent} elements along this axis"
                ));
            }
            flat = flat * extent + index as usize;
        }
        Ok(array.get(flat))
    }

    fn call(&mut self, function: &str, arguments: &[Expr]) -> Number64 {
        if let ("sum" | "max" | "min", [Expr::Name(variable), count, body]) = (function, arguments) {
            return self.fold(function, variable.id.as_str(), count, body);
        }
        let values: Vec<f64> =
            arguments.iter().map(|argument| self.evaluate(argument)).collect::<Result<_, _>>()?;
        Ok(match (function, &values[..]) {
            ("abs", [x]) => x.abs(),
            ("ceil", [x]) => x.ceil(),
            ("cos", [x]) => x.cos(),
            ("erf", [x]) => erf(*x),
            ("exp", [x]) => x.exp(),
            ("exp2", [x]) => x.exp2(),
            ("float", [x]) => *x,
            ("floor", [x]) => x.floor(),
            ("int", [x]) => x.trunc(),
            ("log", [x]) => x.ln(),
            ("log2", [x]) => x.log2(),
            ("max", [x, y]) => x.max(*y),
            ("min", [x, y]) => x.min(*y),
            ("rsqrt", [x]) => x.sqrt().recip(),
            ("sin", [x]) => x.sin(),
            ("sqrt", [x]) => x.sqrt(),
            ("tanh", [x]) => x.tanh(),
            ("tdiv", [x, y]) => (x / y).trunc(),
            ("tmod", [x, y]) => x % y,
            _ => return Err(format!("no function {function} of {} arguments", values.len())),
        })
    }

    fn fold(&mut self, function: &str, variable: &str, count: &Expr, body: &Expr) -> Number64 {
        let count = self.evaluate(count)?;
        let mut result = match function {
            "sum" => 0.0,
            "max" => f64::NEG_INFINITY,
            _ => f64::INFINITY,
        };
        for index in 0..count as usize {
            self.variables.push((variable.to_owned(), index as f64));
            let value = self.evaluate(body);
            self.variables.pop();
            let value = value?;
            result = match function {
                "sum" => result + value,
                "max" => f64::max(result, value),
                _ => f64::min(result, value),
            };
        }
        Ok(result)
    }
}

fn name_of(expression: &Expr) -> Option<&str> {
    expression.as_name_expr().map(|name| name.id.as_str())
}

fn arithmetic(op: Operator, left: f64, right: f64) -> Number64 {
    Ok(match op {
        Operator::Add => left + right,
        Operator::Sub => left - right,
        Operator::Mult => left * right,
        Operator::Div => left / right,
        Operator::FloorDiv => (left / right).floor(),
        Operator::Mod => left - right * (left / right).floor(),
        Operator::Pow => left.powf(right),
        Operator::BitAnd => (left as i64 & right as i64) as f64,
        Operator::BitOr => (left as i64 | right as i64) as f64,
        Operator::BitXor => (left as i64 ^ right as i64) as f64,
        Operator::LShift => ((left as i64) << (right as u32).min(63)) as f64,
        Operator::RShift => (left as i64 >> (right as u32).min(63)) as f64,
        Operator::MatMult => return Err("no @ in a test: write the sum".into()),
    })
}

fn compare(op: CmpOp, left: f64, right: f64) -> Number64 {
    let holds = match op {
        CmpOp::Eq => left == right,
        CmpOp::NotEq => left != right,
        CmpOp::Lt => left < right,
        CmpOp::LtE => left <= right,
        CmpOp::Gt => left > right,
        CmpOp::GtE => left >= right,
        CmpOp::Is | CmpOp::IsNot | CmpOp::In | CmpOp::NotIn => {
            return Err("no `is` and `in` in a test".into());
        }
    };
    Ok(f64::from(u8::from(holds)))
}

/// Returns the error function of `x` by the Taylor series, for small arguments.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright::Dtype;

    fn value(text: &str) -> Number64 {
        let mut x = Array::zeros(Dtype::F32, &[2, 2]);
        (0..4).for_each(|index| x.set(index, index as f64));
        Expression::parse(text)?.evaluate(&[1, 0], &[("x".into(), x)])
    }

    #[test]
    fn expressions_are_evaluated() {
        assert_eq!(value("2 * i + j - 1"), Ok(1.0));
        assert_eq!(value("x[i, 1]"), Ok(3.0));
        assert_eq!(value("sum(k, 2, x[k, 0])"), Ok(2.0));
        assert_eq!(value("max(k, 2, x[0, k]) if i > 0 else 7"), Ok(1.0));
        assert_eq!(value("-7 // 2"), Ok(-4.0));
        assert_eq!(value("tdiv(-7, 2)"), Ok(-3.0));
        assert_eq!(value("tmod(-7, 2)"), Ok(-1.0));
        assert!((value("erf(1)").unwrap() - 0.842_700_792_949_714_9).abs() < 1e-12);
        for wrong in ["x[5, 5]", "x[0]", "y[0]", "f(1)", "1 +", "'a'"] {
            assert!(value(wrong).is_err(), "{wrong}");
        }
    }
}
