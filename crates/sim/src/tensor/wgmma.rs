//! Computes `wgmma.mma_async` for one of the four warps of a warpgroup.
//!
//! Each warp has 16 of the 64 rows of D, and reads its rows of A and all of B. The warps exchange
//! no data.

use super::Element;
use super::fragment::{Fragment, Matrix, MatrixRole};
use super::multiply::{IntegerProduct, multiply_floats, multiply_integers};
use crate::registers::Lanes;

pub const ROWS: usize = 64;
pub const WARPS: usize = 4;
pub const WARP_ROWS: usize = ROWS / WARPS;

/// The shape, formats and options of a `wgmma.mma_async`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wgmma {
    pub n: usize,
    pub a: Element,
    pub b: Element,
    pub d: Element,
    /// True if A is negated (`imm-scale-a` of -1).
    pub negates_a: bool,
    /// True if B is negated.
    pub negates_b: bool,
    /// True if the result is added to D (`scale-d`); else it replaces D.
    pub accumulates: bool,
    /// The arithmetic of integers or bits. Floating-point formats ignore it.
    pub product: IntegerProduct,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Elements of an integer format.
    Integers(Matrix<i64>),
    /// Elements of a floating-point format.
    Floats(Matrix<f64>),
}

impl Wgmma {
    /// Returns k, the number of elements in 32 bytes.
    pub fn k(&self) -> usize {
        (256 / self.a.bits()) as usize
    }

    /// Returns whether the ISA has this dense `wgmma.mma_async`.
    pub fn exists(&self) -> bool {
        use Element::{B1, Bf16, E2m1, E2m3, E3m2, E4m3, E5m2, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};
        let multiple = |of: usize| self.n.is_multiple_of(of) && (of..=256).contains(&self.n);
        match (self.a, self.b) {
            (F16, F16) | (E4m3 | E5m2, E4m3 | E5m2) => multiple(8) && matches!(self.d, F16 | F32),
            (Bf16, Bf16) | (Tf32, Tf32) => multiple(8) && self.d == F32,
            (S8 | U8, S8 | U8) | (B1, B1) => (multiple(16) || matches!(self.n, 8 | 24)) && self.d == S32,
            (
                F64 | F32 | Tf32 | F16 | Bf16 | E4m3 | E5m2 | E2m3 | E3m2 | E2m1 | S32 | S8 | U8 | S4 | U4
                | B1,
                _,
            ) => false,
        }
    }

    pub fn a_fragment(&self) -> Fragment {
        Fragment { operand: MatrixRole::A, rows: WARP_ROWS, columns: self.k(), element: self.a }
    }

    pub fn d_fragment(&self) -> Fragment {
        Fragment { operand: MatrixRole::Accumulator, rows: WARP_ROWS, columns: self.n, element: self.d }
    }

    /// Returns the new registers of D of one warp, from its rows of A, all of B (transposed: n rows
    /// of k elements), and the old D.
    ///
    /// # Panics
    /// If the values do not match the formats of the instruction.
    pub fn execute(&self, a: &Values, b_transposed: &Values, d: &[Lanes]) -> Vec<Lanes> {
        let fragment = self.d_fragment();
        let sums = match (a, b_transposed) {
            (Values::Integers(a), Values::Integers(b)) => {
                let d = self.accumulates.then(|| fragment.gather(d, Element::integer));
                multiply_integers(a, b, d.as_ref(), self.product)
            }
            (Values::Floats(a), Values::Floats(b)) => {
                let d = self.accumulates.then(|| fragment.gather(d, Element::value));
                if self.negates_a == self.negates_b {
                    multiply_floats(a, b, d.as_ref(), self.d)
                } else {
                    let mut negated = a.clone();
                    negated.elements.iter_mut().for_each(|x| *x = -*x);
                    multiply_floats(&negated, b, d.as_ref(), self.d)
                }
            }
            (Values::Integers(_), Values::Floats(_)) | (Values::Floats(_), Values::Integers(_)) => {
                unreachable!("A and B are both integers or both not: {self:?}")
            }
        };
        fragment.scatter(&sums, |_, bits| bits)
    }
}

#[cfg(test)]
mod tests;
