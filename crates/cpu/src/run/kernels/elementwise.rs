//! The elementwise table: every function on every element type, on whole tiles.
//!
//! The meaning of each function is in its row ([`ElementwiseFn`]). What the rows leave open is decided here:
//!
//! - `shl` and `shr` read the shift count as an unsigned number of the operand's width, so a negative count is a large
//!   one.
//! - A NaN result is some quiet or signalling NaN: its payload is unspecified, but does not depend on the processor's
//!   vector width.
//! - Booleans are integers modulo 2: `add` and `sub` are exclusive or, `neg` and `abs` are the identity.
//! - 16- and 8-bit floats are computed in binary32 and rounded once to nearest even, fp8 saturating to the largest
//!   finite value as casts do. This is exact (correctly rounded) for `add`, `sub`, `mul`, `div` and `sqrt`, because
//!   binary32 has more than twice their precision; `fma` is computed in binary64 with rounding to odd, which is exact
//!   too; so are `neg`, `abs`, minima, maxima, comparisons and `float_rem`.
//! - `div` of binary32 and binary64 is the correctly rounded quotient, `sqrt` the correctly rounded root.
//!
//! The errors of the transcendental functions are stated in `math32` and `math64` at each function.

use tilewright_ir::{Dtype, ElementwiseFn};

use super::{Operand, float, integer, narrow};

/// Applies a function of the table: `out[i] = function(operands[0][i], operands[1][i], …)`.
///
/// `dtype` is the element type of the operands (of `x` and `y` for `select`, whose condition is `int1`); pass
/// [`Dtype::U64`] for pointers. `out` holds as many elements as each operand that is a tile, of the same type, or of
/// `int1` for comparisons. [`Operand::Out`] may stand for any operand but those of a comparison and the condition of a
/// selection.
///
/// Panics if the function does not take the element type or so many operands, or if a tile has the wrong length or
/// alignment: the verifier excludes all that.
#[inline]
pub fn apply(function: ElementwiseFn, dtype: Dtype, out: &mut [u8], operands: &[Operand<'_>]) {
    use ElementwiseFn as F;
    match (function, operands) {
        (F::Select, &[condition, x, y]) => {
            integer::select(dtype.bytes(), out, condition, x, y);
        }
        (F::Fma, &[x, y, z]) => match dtype {
            Dtype::F32 => float::fma_f32(out, x, y, z),
            Dtype::F64 => float::fma_f64(out, x, y, z),
            _ => narrow::fma(dtype, out, x, y, z),
        },
        (F::Eq | F::Ne | F::Lt | F::Le | F::Gt | F::Ge, &[x, y]) => match dtype {
            Dtype::F32 => float::compare_f32(function, out, x, y),
            Dtype::F64 => float::compare_f64(function, out, x, y),
            _ if dtype.is_float() => narrow::compare(function, dtype, out, x, y),
            _ => integer::compare_integers(function, dtype.bytes(), dtype.is_signed(), out, x, y),
        },
        (_, &[x, y]) => binary(function, dtype, out, x, y),
        (_, &[x]) => binary(function, dtype, out, x, Operand::Scalar(0)),
        _ => panic!("{} does not take {} operands", function.name(), operands.len()),
    }
}

/// A function of one operand, for which `y` is not read, or of two.
fn binary(function: ElementwiseFn, dtype: Dtype, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) {
    use ElementwiseFn as F;
    let done = match (dtype, function) {
        (Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64, F::Neg | F::Abs) => {
            integer::sign(function, dtype.bytes(), out, x);
            true
        }
        (Dtype::F32, _) => float::apply_32(function, out, x, y),
        (Dtype::F64, _) => float::apply_64(function, out, x, y),
        _ if dtype.is_float() => narrow::apply(function, dtype, out, x, y),
        _ if dtype.is_bool() => integer::apply_bool(function, out, x, y),
        _ => integer::apply(function, dtype.bytes(), dtype.is_signed(), out, x, y),
    };
    assert!(done, "{} does not take {dtype}", function.name());
}

/// Writes a scalar to every element: the splat. `bits` are those of the scalar.
pub fn fill(bytes: usize, out: &mut [u8], bits: u64) {
    match bytes {
        1 => out.fill(bits as u8),
        2 => super::typed_mut::<u16>(out).fill(bits as u16),
        4 => super::typed_mut::<u32>(out).fill(bits as u32),
        _ => super::typed_mut::<u64>(out).fill(bits),
    }
}

/// Writes `base + step * i` to the i-th element of an integer tile of 1, 2, 4 or 8 bytes an element; it wraps.
pub fn ramp(bytes: usize, out: &mut [u8], base: i64, step: i64) {
    macro_rules! write {
        ($ty:ty) => {
            super::simd::vectorize(
                #[inline(always)]
                || {
                    for (i, value) in super::typed_mut::<$ty>(out).iter_mut().enumerate() {
                        *value = (base as $ty).wrapping_add((step as $ty).wrapping_mul(i as $ty));
                    }
                },
            )
        };
    }
    match bytes {
        1 => write!(u8),
        2 => write!(u16),
        4 => write!(u32),
        _ => write!(u64),
    }
}
