//! Elementwise functions of single numbers: what index arithmetic, loop counters and uniform tiles consist of.
//!
//! The meaning is that of [`kernels::elementwise`](crate::run::kernels::elementwise), which a test compares against, and
//! which computes what is not written here.

use tilewright_ir::{Dtype, ElementwiseFn, Rounding};

use crate::run::kernels::elementwise::apply;
use crate::run::kernels::{Operand, cast};
use crate::types::Number;

/// The function of these numbers, whose type is `dtype` (that of `x` and `y` for `select`).
pub(crate) fn elementwise(function: ElementwiseFn, number: Number, operands: &[u64]) -> u64 {
    let dtype = number.dtype;
    match (function, operands) {
        (ElementwiseFn::Select, &[condition, x, y]) => return if condition == 0 { y } else { x },
        (ElementwiseFn::Sqrt | ElementwiseFn::SqrtRn, &[x]) if dtype == Dtype::F32 => {
            return u64::from(f32::from_bits(x as u32).sqrt().to_bits());
        }
        (_, &[x, y]) if dtype.is_int() => {
            if let Some(result) = integers(function, number, x, y) {
                return result;
            }
        }
        (_, &[x, y]) if dtype == Dtype::F32 => {
            if let Some(result) = floats(function, x, y) {
                return result;
            }
        }
        // tidy: wildcard because the loop over tiles computes what is not written here.
        _ => {}
    }
    by_kernel(function, dtype, operands)
}

/// The functions of two integers that are a few instructions.
fn integers(function: ElementwiseFn, number: Number, x: u64, y: u64) -> Option<u64> {
    use ElementwiseFn as F;
    let (signed, width) = (number.is_signed(), u64::from(number.bits()));
    let (left, right) = (number.extend(x), number.extend(y));
    let less = if signed { left < right } else { x < y };
    Some(match function {
        F::Add => number.truncate(x.wrapping_add(y)),
        F::Sub => number.truncate(x.wrapping_sub(y)),
        F::Mul => number.truncate(x.wrapping_mul(y)),
        F::IntDiv if y == 0 => number.truncate(u64::MAX),
        F::IntRem if y == 0 => x,
        F::IntDiv if signed => number.truncate(left.wrapping_div(right) as u64),
        F::IntDiv => x / y,
        F::IntRem if signed => number.truncate(left.wrapping_rem(right) as u64),
        F::IntRem => x % y,
        F::Min => {
            if less {
                x
            } else {
                y
            }
        }
        F::Max => {
            if less {
                y
            } else {
                x
            }
        }
        F::And => x & y,
        F::Or => x | y,
        F::Xor => x ^ y,
        F::Shl => {
            if y < width {
                number.truncate(x << y)
            } else {
                0
            }
        }
        F::Shr if signed => number.truncate((number.sign_extend(x) >> y.min(width - 1)) as u64),
        F::Shr => {
            if y < width {
                x >> y
            } else {
                0
            }
        }
        F::Eq => u64::from(x == y),
        F::Ne => u64::from(x != y),
        F::Lt => u64::from(less),
        F::Ge => u64::from(!less),
        F::Le => u64::from(less || x == y),
        F::Gt => u64::from(!less && x != y),
        _ => return None,
    })
}

/// The functions of two binary32 numbers that are one instruction.
fn floats(function: ElementwiseFn, x: u64, y: u64) -> Option<u64> {
    use ElementwiseFn as F;
    let (x, y) = (f32::from_bits(x as u32), f32::from_bits(y as u32));
    let number = |value: f32| Some(u64::from(value.to_bits()));
    let truth = |value: bool| Some(u64::from(value));
    match function {
        F::Add => number(x + y),
        F::Sub => number(x - y),
        F::Mul => number(x * y),
        F::Div | F::DivRn => number(x / y),
        F::Eq => truth(x == y),
        F::Ne => truth(x != y),
        F::Lt => truth(x < y),
        F::Le => truth(x <= y),
        F::Gt => truth(x > y),
        F::Ge => truth(x >= y),
        _ => None,
    }
}

/// By the loop over tiles, on a tile of one element.
pub(crate) fn by_kernel(function: ElementwiseFn, dtype: Dtype, operands: &[u64]) -> u64 {
    use ElementwiseFn as F;
    let mut scalars = [Operand::Scalar(0); 3];
    for (scalar, &bits) in scalars.iter_mut().zip(operands) {
        *scalar = Operand::Scalar(bits);
    }
    let size = match function {
        F::Eq | F::Ne | F::Lt | F::Le | F::Gt | F::Ge => 1,
        _ => dtype.bytes(),
    };
    let mut out = [0_u64];
    apply(function, dtype, &mut bytemuck::cast_slice_mut(&mut out)[..size], &scalars[..operands.len()]);
    u64::from_le(out[0])
}

/// The conversion of one number.
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
