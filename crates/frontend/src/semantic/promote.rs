//! Determines the element type in which an operator computes.

use tilewright_ir::Dtype;

use crate::value::Constant;

/// The requirements of an operator on its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rule {
    /// fp16, bf16 and fp8 count as fp32: the result is fp32, or fp64 if an operand is fp64.
    pub upcast_narrow: bool,
    /// Two integers must both be signed or both be unsigned.
    pub same_sign: bool,
}

impl Rule {
    /// The rule of `+`, `-`, `*`, comparisons and bitwise operators.
    pub const PLAIN: Rule = Rule { upcast_narrow: false, same_sign: false };
    /// The rule of `/`.
    pub const DIVIDE: Rule = Rule { upcast_narrow: true, same_sign: false };
    /// The rule of `//` and `%`.
    pub const REMAINDER: Rule = Rule { upcast_narrow: true, same_sign: true };
}

/// The reason why two types have no common type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoCommonType {
    /// An 8-bit float and an integer.
    Fp8WithInteger,
    /// A signed and an unsigned integer, for an operator that refuses them.
    MixedSign,
}

/// The element type of an operand. That of a compile-time number is weak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Side {
    pub dtype: Dtype,
    /// True if the operand is a compile-time number.
    pub is_weak: bool,
}

/// Returns the kind of a type, as a number: bool < integer < float.
fn kind(dtype: Dtype) -> u8 {
    if dtype.is_bool() {
        0
    } else if dtype.is_int() {
        1
    } else {
        2
    }
}

/// Returns the type to which both operands are converted.
pub(crate) fn common_dtype(lhs: Side, rhs: Side, rule: Rule) -> Result<Dtype, NoCommonType> {
    let narrow = |dtype: Dtype| if rule.upcast_narrow { Dtype::F32 } else { dtype };
    if lhs.is_weak != rhs.is_weak {
        let (weak, strong) = if lhs.is_weak { (lhs.dtype, rhs.dtype) } else { (rhs.dtype, lhs.dtype) };
        if kind(weak) <= kind(strong) {
            return Ok(if strong.is_float() && strong.bits() < 32 { narrow(strong) } else { strong });
        }
    }
    let (a, b) = (lhs.dtype, rhs.dtype);
    let either = |dtype: Dtype| a == dtype || b == dtype;
    for wide in [Dtype::F64, Dtype::F32] {
        if either(wide) {
            return Ok(wide);
        }
    }
    if either(Dtype::F16) {
        return Ok(narrow(Dtype::F16));
    }
    if a == Dtype::BF16 && b == Dtype::BF16 {
        return Ok(narrow(Dtype::BF16));
    }
    if either(Dtype::BF16) {
        return Ok(Dtype::F32);
    }
    if a.is_fp8() && b.is_fp8() {
        return Ok(narrow(if a == b { a } else { Dtype::F16 }));
    }
    if a.is_float() || b.is_float() {
        return if rule.upcast_narrow { Ok(Dtype::F32) } else { Err(NoCommonType::Fp8WithInteger) };
    }
    if rule.same_sign && a.is_signed() != b.is_signed() {
        return Err(NoCommonType::MixedSign);
    }
    Ok(common_integer(a, b))
}

/// Returns the wider integer type, or the unsigned one of equal widths. `int1` counts as unsigned.
pub(crate) fn common_integer(a: Dtype, b: Dtype) -> Dtype {
    match (a.is_signed(), b.is_signed()) {
        (true, true) | (false, false) => {
            if a.bits() > b.bits() {
                a
            } else {
                b
            }
        }
        (false, true) => {
            if a.bits() >= b.bits() {
                a
            } else {
                b
            }
        }
        (true, false) => {
            if b.bits() >= a.bits() {
                b
            } else {
                a
            }
        }
    }
}

/// Returns the type of a compile-time number as a tensor. A boolean is `int1`. An integer gets the
/// first of int32, uint32, int64 and uint64 that fits. A float is fp32, or fp64 if it is finite,
/// not 0, and out of the normal range of fp32.
pub fn natural_dtype(constant: &Constant) -> Option<Dtype> {
    match constant {
        Constant::Bool(_) => Some(Dtype::I1),
        Constant::Int(value) => {
            [Dtype::I32, Dtype::U32, Dtype::I64, Dtype::U64].into_iter().find(|dtype| holds(*dtype, *value))
        }
        Constant::Float(value) => {
            let size = value.abs();
            let normal = (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&size);
            let special = size == 0.0 || !size.is_finite();
            Some(if normal || special { Dtype::F32 } else { Dtype::F64 })
        }
        Constant::None
        | Constant::Str(_)
        | Constant::Type(_)
        | Constant::LanguageType(_)
        | Constant::Tuple(_)
        | Constant::Object(_) => None,
    }
}

/// Returns whether an integer type represents a value. Other types always do.
pub(crate) fn holds(dtype: Dtype, value: i128) -> bool {
    dtype.int_range().is_none_or(|(low, high)| (low..=high).contains(&value))
}
