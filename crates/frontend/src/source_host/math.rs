//! Computes functions of Python's module `math` on compile-time values, without Python.

use crate::constexpr;
use crate::semantic::BinaryOperator;
use crate::value::Constant;

pub(super) fn math_constant(name: &str) -> Option<f64> {
    match name {
        "pi" => Some(std::f64::consts::PI),
        "e" => Some(std::f64::consts::E),
        "tau" => Some(std::f64::consts::TAU),
        "inf" => Some(f64::INFINITY),
        "nan" => Some(f64::NAN),
        _ => None,
    }
}

pub(super) fn math_function(name: &str, x: f64) -> Option<f64> {
    Some(match name {
        "sqrt" => x.sqrt(),
        "exp" => x.exp(),
        "log" => x.ln(),
        "log2" => x.log2(),
        "log10" => x.log10(),
        "log1p" => x.ln_1p(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "tanh" => x.tanh(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "trunc" => x.trunc(),
        "fabs" => x.abs(),
        "pow" => x,
        _ => return None,
    })
}

pub(super) fn call_math(path: &str, arguments: &[Constant]) -> Result<Constant, String> {
    let name = path.strip_prefix("math.").ok_or_else(|| format!("{path} is not known without Python"))?;
    let number = |value: &Constant| match value {
        Constant::Bool(value) => Ok(f64::from(u8::from(*value))),
        Constant::Int(value) => Ok(*value as f64),
        Constant::Float(value) => Ok(*value),
        other => Err(format!("must be a number, not '{}'", other.type_name())),
    };
    match (name, arguments) {
        ("pow", [base, power]) => Ok(Constant::Float(number(base)?.powf(number(power)?))),
        ("floor" | "ceil" | "trunc", [Constant::Int(value)]) => Ok(Constant::Int(*value)),
        ("log", [value, base]) => Ok(Constant::Float(number(value)?.ln() / number(base)?.ln())),
        (_, [value]) => {
            let x = number(value)?;
            let result =
                math_function(name, x).ok_or_else(|| format!("{path} is not known without Python"))?;
            if result.is_nan() && !x.is_nan() || result.is_infinite() && x.is_finite() {
                return Err("math domain error".into());
            }
            if matches!(name, "floor" | "ceil" | "trunc") {
                return constexpr::binary(
                    BinaryOperator::FloorDiv,
                    &Constant::Int(result as i128),
                    &Constant::Int(1),
                );
            }
            Ok(Constant::Float(result))
        }
        _ => Err("the function does not take this number of arguments".into()),
    }
}
