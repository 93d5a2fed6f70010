//! Computes `mma.sync`: the matrix multiplication of a warp in registers.

use super::Element;
use super::fragment::{Fragment, Matrix, MatrixRole};
use super::multiply::{IntegerProduct, multiply_floats, multiply_integers};
use crate::registers::Lanes;

/// The shape and the formats of an `mma.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mma {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Element,
    pub b: Element,
    pub c: Element,
    pub d: Element,
    /// The arithmetic of integers or bits, such as `.satfinite`.
    pub product: IntegerProduct,
}

impl Mma {
    /// Returns whether the ISA has this dense `mma`. `m8n8k4` of f16 is a [`super::QuadMma`].
    pub fn exists(&self) -> bool {
        use Element::{B1, Bf16, E2m1, E2m3, E3m2, E4m3, E5m2, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};
        let shape = (self.m, self.n, self.k);
        let formats = match (self.a, self.b) {
            (F64, F64) => matches!(shape, (8, 8, 4) | (16, 8, 4 | 8 | 16)),
            (Tf32, Tf32) => matches!(shape, (16, 8, 4 | 8)),
            (F16, F16) | (Bf16, Bf16) => matches!(shape, (16, 8, 8 | 16)),
            (E4m3 | E5m2, E4m3 | E5m2) => matches!(shape, (16, 8, 16 | 32)),
            (S8 | U8, S8 | U8) => matches!(shape, (8, 8, 16) | (16, 8, 16 | 32)),
            (S4 | U4, S4 | U4) => matches!(shape, (8, 8, 32) | (16, 8, 32 | 64)),
            (B1, B1) => matches!(shape, (8, 8, 128) | (16, 8, 128 | 256)),
            _ => false,
        };
        let accumulators = match self.a {
            F64 => self.c == F64 && self.d == F64,
            Tf32 | Bf16 => self.c == F32 && self.d == F32,
            F16 | E4m3 | E5m2 => matches!((self.c, self.d), (F32, F32) | (F16, F16)),
            S8 | U8 | S4 | U4 | B1 => self.c == S32 && self.d == S32,
            F32 | S32 | E2m3 | E3m2 | E2m1 => false,
        };
        formats && accumulators
    }

    /// Returns the fragment of an operand; `Accumulator` is C.
    pub fn fragment(&self, operand: MatrixRole) -> Fragment {
        let (rows, columns, element) = match operand {
            MatrixRole::A => (self.m, self.k, self.a),
            MatrixRole::B => (self.k, self.n, self.b),
            MatrixRole::Accumulator => (self.m, self.n, self.c),
        };
        Fragment { operand, rows, columns, element }
    }

    /// Returns the registers of `D = A B + C`.
    pub fn execute(&self, a: &[Lanes], b: &[Lanes], c: &[Lanes]) -> Vec<Lanes> {
        let result = Fragment { element: self.d, ..self.fragment(MatrixRole::Accumulator) };
        let fragments =
            [MatrixRole::A, MatrixRole::B, MatrixRole::Accumulator].map(|operand| self.fragment(operand));
        let product = if self.a.is_integer() {
            let [a, b, c] = gather(fragments, [a, b, c], Element::integer);
            multiply_integers(&a, &b.transposed(), Some(&c), self.product)
        } else {
            let [a, b, c] = gather(fragments, [a, b, c], Element::value);
            multiply_floats(&a, &b.transposed(), Some(&c), self.d)
        };
        result.scatter(&product, |_, bits| bits)
    }
}

fn gather<T: Copy + Default>(
    fragments: [Fragment; 3],
    registers: [&[Lanes]; 3],
    decode: fn(Element, u64) -> T,
) -> [Matrix<T>; 3] {
    std::array::from_fn(|operand| fragments[operand].gather(registers[operand], decode))
}

#[cfg(test)]
mod tests;
