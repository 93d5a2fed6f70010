//! Finds the compile-time value of a scalar, or of a tile of equal elements.

use crate::attributes::Literal;
use crate::dialect::{Dialect, Operation};
use crate::function::{Function, Value};
use crate::ops::{Op, OpFamily};
use crate::types::Dtype;

/// Returns the compile-time value of a scalar, or of each element of a tile.
///
/// Follows the value to a constant through three groups of ops:
///
/// - ops that move elements without changing them, such as splats, broadcasts, reshapes, hints and
///   changes of layout;
/// - bitcasts;
/// - casts that do not round, which are casts between integer types and casts of zero.
///
/// Does not evaluate arithmetic, which the crate `opt` folds.
pub fn constant_of<D: Dialect>(function: &Function<D>, value: Value) -> Option<Literal> {
    let inst = &function.insts[function.defining_inst(value)?];
    let of_operand = || constant_of(function, *inst.operands.first()?);
    match (inst.op.as_tile(), inst.op.info().family) {
        (Some(Op::Constant { value }), _) => Some(*value),
        (Some(Op::Splat { .. }), _) | (_, OpFamily::Shape | OpFamily::Identity) => of_operand(),
        (Some(Op::Cast { element, .. }), _) => {
            let (to, from) = (element.value()?, of_operand()?);
            // Positive zero has no bit set in any type.
            if from.bits == 0 {
                return Some(Literal { dtype: to, bits: 0 });
            }
            let number = from.as_int().filter(|_| to.is_int())?;
            Some(if to.is_bool() { Literal::bool(number != 0) } else { Literal::int(to, number) })
        }
        (Some(Op::Bitcast { element }), _) => {
            let (dtype, from) = (element.value()?, of_operand()?);
            (dtype.bits() == from.dtype.bits()).then_some(Literal { dtype, bits: from.bits })
        }
        // tidy: wildcard because other ops compute, or take elements from several tiles
        _ => None,
    }
}

/// Returns the compile-time value of an integer or a boolean; see [`constant_of`].
pub fn constant_int<D: Dialect>(function: &Function<D>, value: Value) -> Option<i128> {
    constant_of(function, value)?.as_int()
}

/// Returns the compile-time value of a floating-point number; see [`constant_of`].
pub fn constant_float<D: Dialect>(function: &Function<D>, value: Value) -> Option<f64> {
    constant_of(function, value)?.as_float()
}

/// Returns the compile-time value of a boolean; see [`constant_of`].
pub fn constant_bool<D: Dialect>(function: &Function<D>, value: Value) -> Option<bool> {
    let literal = constant_of(function, value)?;
    (literal.dtype == Dtype::I1).then_some(literal.bits != 0)
}
