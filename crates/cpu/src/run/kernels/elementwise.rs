//! The elementwise table: every function on every element type, on whole tiles.
//!
//! The row of a function ([`ElementwiseFn`]) defines its meaning. This module decides the details
//! that the rows leave open:
//!
//! - `shl` and `shr` read the shift count as an unsigned number of the operand's width. A negative
//!   count is therefore larger than the width.
//! - A NaN result is some quiet or signaling NaN. Its payload is unspecified, but does not depend
//!   on the processor's vector width.
//! - Booleans are integers modulo 2: `add` and `sub` are exclusive or, `neg` and `abs` are the
//!   identity.
//! - 16- and 8-bit floats are computed in binary32 and rounded once to nearest even. fp8 saturates
//!   to the largest finite value, as in casts. `add`, `sub`, `mul`, `div` and `sqrt` are correctly
//!   rounded, because binary32 has more than twice their precision. `fma` is correctly rounded,
//!   because it is computed in binary64 with rounding to odd. `neg`, `abs`, minima, maxima,
//!   comparisons and `float_rem` are also correctly rounded.
//! - `div` and `sqrt` of binary32 and binary64 are correctly rounded.
//!
//! `math32` and `math64` state the error of each transcendental function.

use tilewright_ir::{
    ArithmeticFn, ComparisonFn, Dtype, Element, ElementwiseFamily as Family, ElementwiseFn, FloatFn, MathFn,
    SelectionFn,
};

use super::{Operand, float, integer, narrow};

/// Applies a function of the table: `out[i] = function(operands[0][i], operands[1][i], …)`.
///
/// `dtype` is the element type of the operands. For `select`, `dtype` is the type of `x` and `y`,
/// and the condition is `int1`. Pass [`Dtype::U64`] for pointers. `out` has the length of each tile
/// operand. It also has the type of the operands, or `int1` for comparisons. [`Operand::Out`] may
/// replace any operand, except the operands of a comparison and the condition of a selection.
///
/// Panics if the function does not take the element type or the number of operands. Also panics if
/// a tile has the wrong length or alignment. The verifier excludes all of these.
#[inline]
pub fn apply(function: ElementwiseFn, dtype: Dtype, out: &mut [u8], operands: &[Operand<'_>]) {
    let info = function.info();
    assert!(operands.len() == info.operands.len(), "{} takes {:?}", info.name, info.operands);
    assert!(info.domain.contains(Element::Value(dtype)), "{} does not take {dtype}", info.name);
    let mut all = [Operand::Scalar(0); 3];
    all[..operands.len()].copy_from_slice(operands);
    let [x, y, z] = all;
    let integer = (dtype.bytes(), dtype.is_signed());
    match function.family() {
        Family::Arithmetic(function) if dtype.is_float() => arithmetic_of_floats(function, dtype, out, x, y),
        Family::Arithmetic(function) if dtype.is_bool() => {
            integer::arithmetic_of_booleans(function, out, x, y);
        }
        Family::Arithmetic(function) => integer::arithmetic(function, integer, out, x, y),
        Family::Division(function) if dtype.is_bool() => integer::division_of_booleans(function, out, x, y),
        Family::Division(function) => integer::division(function, integer, out, x, y),
        Family::Bitwise(function) if dtype.is_bool() => integer::bitwise_of_booleans(function, out, x, y),
        Family::Bitwise(function) => integer::bitwise(function, integer, out, x, y),
        Family::WideProduct(function) => integer::wide_product(function, integer, out, x, y),
        Family::Comparison(function) if dtype.is_float() => compare_floats(function, dtype, out, x, y),
        Family::Comparison(function) => integer::compare_integers(function, integer, out, x, y),
        Family::Selection(SelectionFn::Select) => integer::select(dtype.bytes(), out, x, y, z),
        Family::Float(function) => float_function(function, dtype, out, all),
        Family::Math(function) => math(function, dtype, out, x),
    }
}

fn arithmetic_of_floats(
    function: ArithmeticFn,
    dtype: Dtype,
    out: &mut [u8],
    x: Operand<'_>,
    y: Operand<'_>,
) {
    let is_half = matches!(dtype, Dtype::F16 | Dtype::BF16);
    match dtype {
        Dtype::F32 => float::arithmetic_32(function, out, x, y),
        Dtype::F64 => float::arithmetic_64(function, out, x, y),
        _ if is_half && function == ArithmeticFn::Neg => integer::negate_float(dtype.bytes(), out, x),
        _ if is_half && function == ArithmeticFn::Abs => integer::absolute_float(dtype.bytes(), out, x),
        _ => narrow::apply(dtype, out, [x, y], &|out, x, y| float::arithmetic_32(function, out, x, y)),
    }
}

fn compare_floats(function: ComparisonFn, dtype: Dtype, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) {
    match dtype {
        Dtype::F32 => float::compare_32(function, out, x, y),
        Dtype::F64 => float::compare_64(function, out, x, y),
        _ => narrow::compare(function, dtype, out, x, y),
    }
}

fn float_function(function: FloatFn, dtype: Dtype, out: &mut [u8], operands: [Operand<'_>; 3]) {
    let [x, y, z] = operands;
    match dtype {
        Dtype::F32 => float::float_32(function, out, operands),
        Dtype::F64 => float::float_64(function, out, operands),
        // Computing `fma` in binary32 would round twice.
        _ if function == FloatFn::Fma => narrow::fma(dtype, out, x, y, z),
        _ => narrow::apply(dtype, out, [x, y], &|out, x, y| float::float_32(function, out, [x, y, z])),
    }
}

fn math(function: MathFn, dtype: Dtype, out: &mut [u8], x: Operand<'_>) {
    match dtype {
        Dtype::F32 => float::math_32(function, out, x),
        Dtype::F64 => float::math_64(function, out, x),
        _ => {
            narrow::apply(dtype, out, [x, Operand::Scalar(0)], &|out, x, _| float::math_32(function, out, x));
        }
    }
}

/// Fills a tile with the scalar that has these bits. The elements of the tile have `bytes` bytes.
pub fn fill(bytes: usize, out: &mut [u8], bits: u64) {
    match bytes {
        1 => out.fill(bits as u8),
        2 => super::typed_mut::<u16>(out).fill(bits as u16),
        4 => super::typed_mut::<u32>(out).fill(bits as u32),
        _ => super::typed_mut::<u64>(out).fill(bits),
    }
}

/// Writes `base + step * i`, wrapped, to the element at each index i of an integer tile. The
/// elements have `bytes` bytes (1, 2, 4 or 8).
pub fn ramp(bytes: usize, out: &mut [u8], base: i64, step: i64) {
    /// The number of elements that an iteration of the loop writes.
    const BLOCK: usize = 16;
    macro_rules! write {
        ($ty:ty) => {
            super::simd::vectorize(
                #[inline(always)]
                || {
                    // Adding to the previous block avoids a multiplication, which takes several
                    // cycles.
                    let step = step as $ty;
                    let mut next: [$ty; BLOCK] =
                        std::array::from_fn(|i| (base as $ty).wrapping_add(step.wrapping_mul(i as $ty)));
                    let (blocks, rest) = super::typed_mut::<$ty>(out).as_chunks_mut::<BLOCK>();
                    for block in blocks {
                        *block = next;
                        for number in &mut next {
                            *number = number.wrapping_add(step.wrapping_mul(BLOCK as $ty));
                        }
                    }
                    rest.copy_from_slice(&next[..rest.len()]);
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
