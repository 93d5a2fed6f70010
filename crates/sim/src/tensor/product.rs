//! The arithmetic of the tensor cores: `D = A B + C`.
//!
//! The ISA promises little: products of narrow floats with at least the precision of f32, sums "with at least single
//! precision", the order unspecified. Chosen here: products are exact, they are added to the accumulator in binary64 in
//! the order of k, and the sum is rounded once, to nearest even, into the format of D. Hardware is less exact (it aligns
//! the products of one step to the largest exponent and truncates; single products of random matrices of f16, bf16 and tf32
//! on an H200 differed by one unit in the last place of f32 at most); a program that is right on both does not depend on
//! the difference. binary64 products are fused into the running sum, as the ISA says. Integers are exact, then wrap or,
//! with `.satfinite`, clamp.

use super::{Element, Matrix};

/// How products of integers or bits are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntegerProduct {
    /// Multiply and add; the sum wraps.
    Wrapping,
    /// Multiply and add; the sum clamps to the range of 32 bits (`.satfinite`).
    Saturating,
    /// Count the bits set in the exclusive or of both rows of bits (`.xor.popc`).
    XorPopcount,
    /// Count the bits set in both rows of bits (`.and.popc`).
    AndPopcount,
}

/// The bits of `A B + C` in the format `result`, for floating formats; `b` is given transposed, row by column of B.
pub fn multiply_floats(
    a: &Matrix<f64>,
    b_transposed: &Matrix<f64>,
    c: Option<&Matrix<f64>>,
    result: Element,
) -> Matrix<u64> {
    let fused = result == Element::F64;
    let dot = |start: f64, row: &[f64], column: &[f64]| {
        row.iter()
            .zip(column)
            .fold(start, |sum, (&x, &y)| if fused { x.mul_add(y, sum) } else { x * y + sum })
    };
    combine(a, b_transposed, |position, row, column| {
        result.round(dot(c.map_or(0.0, |c| c[position]), row, column))
    })
}

/// The bits of `A B + C` in 32-bit integers; `b` is given transposed, row by column of B.
pub fn multiply_integers(
    a: &Matrix<i64>,
    b_transposed: &Matrix<i64>,
    c: Option<&Matrix<i64>>,
    product: IntegerProduct,
) -> Matrix<u64> {
    combine(a, b_transposed, |position, row, column| {
        let pairs = row.iter().zip(column);
        let sum: i64 = match product {
            IntegerProduct::Wrapping | IntegerProduct::Saturating => pairs.map(|(x, y)| x * y).sum(),
            IntegerProduct::XorPopcount => pairs.map(|(x, y)| x ^ y).sum(),
            IntegerProduct::AndPopcount => pairs.map(|(x, y)| x & y).sum(),
        };
        let sum = sum + c.map_or(0, |c| c[position]);
        let sum = match product {
            IntegerProduct::Saturating => sum.clamp(i32::MIN.into(), i32::MAX.into()),
            IntegerProduct::Wrapping | IntegerProduct::XorPopcount | IntegerProduct::AndPopcount => sum,
        };
        u64::from(sum as u32)
    })
}

fn combine<T>(
    a: &Matrix<T>,
    b_transposed: &Matrix<T>,
    element: impl Fn((usize, usize), &[T], &[T]) -> u64,
) -> Matrix<u64> {
    let mut result = Matrix::new(a.rows, b_transposed.rows);
    for row in 0..a.rows {
        for column in 0..b_transposed.rows {
            result[(row, column)] = element((row, column), a.row(row), b_transposed.row(column));
        }
    }
    result
}
