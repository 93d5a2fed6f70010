//! Computes elementwise functions of single numbers, with the results of the loops over tiles.
//!
//! These numbers are indices, loop counters and uniform tiles. A function that is not implemented
//! here calls its loop in [`kernels::elementwise`](crate::run::kernels::elementwise).

use tilewright_ir::{
    ArithmeticFn, BitwiseFn, ComparisonFn, DivisionFn, Dtype, ElementwiseFamily as Family, ElementwiseFn,
    FloatFn, Rounding, SelectionFn, Signature,
};

use crate::run::kernels::elementwise::apply;
use crate::run::kernels::{Operand, cast};
use crate::types::Number;

/// Applies a function to numbers. For `select`, `number` is the type of `x` and `y`.
pub(crate) fn elementwise(function: ElementwiseFn, number: Number, operands: &[u64]) -> u64 {
    let dtype = number.dtype;
    let known = match (function.family(), operands) {
        (Family::Selection(SelectionFn::Select), &[condition, x, y]) => {
            return if condition == 0 { y } else { x };
        }
        (Family::Float(FloatFn::Sqrt | FloatFn::SqrtRn), &[x]) if dtype == Dtype::F32 => {
            return u64::from(f32::from_bits(x as u32).sqrt().to_bits());
        }
        (family, &[x, y]) if dtype.is_int() => integers(family, number, x, y),
        (family, &[x, y]) if dtype == Dtype::F32 => floats(family, x, y),
        // tidy: wildcard because the loop over tiles computes the functions that are not
        // implemented here
        _ => None,
    };
    known.unwrap_or_else(|| by_kernel(function, dtype, operands))
}

/// Applies a function of two integers that takes a few instructions, otherwise returns `None`.
fn integers(family: Family, number: Number, x: u64, y: u64) -> Option<u64> {
    use {ArithmeticFn as A, BitwiseFn as B, ComparisonFn as C, DivisionFn as D};
    let (signed, width) = (number.is_signed(), u64::from(number.bits()));
    let (left, right) = (number.extend(x), number.extend(y));
    let less = if signed { left < right } else { x < y };
    Some(match family {
        Family::Arithmetic(function) => match function {
            A::Add => number.truncate(x.wrapping_add(y)),
            A::Sub => number.truncate(x.wrapping_sub(y)),
            A::Mul => number.truncate(x.wrapping_mul(y)),
            A::Min => [y, x][usize::from(less)],
            A::Max => [x, y][usize::from(less)],
            A::Neg | A::Abs => return None,
        },
        Family::Division(function) => match function {
            D::IntDiv | D::IntRem if y == 0 => number.truncate(u64::MAX),
            D::IntDiv if signed => number.truncate(left.wrapping_div(right) as u64),
            D::IntDiv => x / y,
            D::IntRem if signed => number.truncate(left.wrapping_rem(right) as u64),
            D::IntRem => x % y,
        },
        Family::Bitwise(function) => match function {
            B::And => x & y,
            B::Or => x | y,
            B::Xor => x ^ y,
            B::Shl if y < width => number.truncate(x << y),
            B::Shr if signed => number.truncate((number.sign_extend(x) >> y.min(width - 1)) as u64),
            B::Shr if y < width => x >> y,
            B::Shl | B::Shr => 0,
            B::Not => return None,
        },
        Family::Comparison(function) => u64::from(match function {
            C::Eq => x == y,
            C::Ne => x != y,
            C::Lt => less,
            C::Ge => !less,
            C::Le => less || x == y,
            C::Gt => !less && x != y,
        }),
        Family::WideProduct(_) | Family::Selection(_) | Family::Float(_) | Family::Math(_) => return None,
    })
}

/// Applies a function of two binary32 numbers that takes one instruction, otherwise returns `None`.
fn floats(family: Family, x: u64, y: u64) -> Option<u64> {
    use {ArithmeticFn as A, ComparisonFn as C, FloatFn as F};
    let (x, y) = (f32::from_bits(x as u32), f32::from_bits(y as u32));
    let number = |value: f32| Some(u64::from(value.to_bits()));
    match family {
        Family::Arithmetic(A::Add) => number(x + y),
        Family::Arithmetic(A::Sub) => number(x - y),
        Family::Arithmetic(A::Mul) => number(x * y),
        Family::Float(F::Div | F::DivRn) => number(x / y),
        Family::Comparison(function) => Some(u64::from(match function {
            C::Eq => x == y,
            C::Ne => x != y,
            C::Lt => x < y,
            C::Le => x <= y,
            C::Gt => x > y,
            C::Ge => x >= y,
        })),
        // tidy: wildcard because the loop over tiles computes the functions that are not
        // implemented here
        _ => None,
    }
}

/// Applies a function with its loop, on one element.
pub(crate) fn by_kernel(function: ElementwiseFn, dtype: Dtype, operands: &[u64]) -> u64 {
    let mut scalars = [Operand::Scalar(0); 3];
    for (scalar, &bits) in scalars.iter_mut().zip(operands) {
        *scalar = Operand::Scalar(bits);
    }
    let size = match function.info().signature {
        Signature::Compare => 1,
        Signature::Same | Signature::Select => dtype.bytes(),
    };
    let mut out = [0_u64];
    apply(function, dtype, &mut bytemuck::cast_slice_mut(&mut out)[..size], &scalars[..operands.len()]);
    u64::from_le(out[0])
}

pub(crate) fn convert(from: Dtype, to: Dtype, rounding: Rounding, bits: u64) -> u64 {
    if to.is_bool() && from.is_int() {
        return u64::from(bits != 0);
    }
    if from.is_int() && to.is_int() {
        return Number::new(to).truncate(Number::new(from).extend(bits) as u64);
    }
    let input = [bits.to_le()];
    let mut out = [0_u64];
    cast::cast(
        from,
        to,
        rounding,
        &mut bytemuck::cast_slice_mut(&mut out)[..to.bytes()],
        &bytemuck::cast_slice(&input)[..from.bytes()],
    );
    u64::from_le(out[0])
}
