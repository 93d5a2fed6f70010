//! Maps each register of each lane to elements of a matrix.
//! All "matrix fragments" of the PTX ISA, except the first-generation `m8n8k4`, are instances of
//! one map. A lane is a group (`lane / 4`) and a thread (`lane % 4`), and a register has
//! consecutive elements. In A, C and D with 16 rows, a lane alternates between the upper and the
//! lower eight rows: after each register in A, and after two columns in C and D. Then it advances
//! to the next columns. For D of f32, for example:
//!
//! ```text
//! lane 5 (group 1, thread 1): rows 1 and 9, columns 2 and 3
//! registers: (1, 2) (1, 3) (9, 2) (9, 3)
//! ```

use super::Element;
use crate::registers::{LANES, Lanes};

/// An operand of `D = A B + C`. C and D have the same layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixRole {
    /// The left operand, of m rows and k columns.
    A,
    /// The right operand, of k rows and n columns.
    B,
    /// C and D, of m rows and n columns.
    Accumulator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    pub operand: MatrixRole,
    /// The rows of the matrix: 8 or 16, or k for B.
    pub rows: usize,
    /// The columns of the matrix: k for A, 8 for B, n for C and D.
    pub columns: usize,
    /// The format of its elements.
    pub element: Element,
}

impl Fragment {
    /// Returns the number of elements of a register. A 64-bit element has a 64-bit register.
    pub fn elements_per_register(self) -> usize {
        (32 / self.element.bits()).max(1) as usize
    }

    /// Returns how many registers of each lane hold the matrix.
    pub fn registers(self) -> usize {
        self.rows * self.columns / (LANES * self.elements_per_register())
    }

    /// Returns the (row, column) of element `element` of register `register` of a lane.
    pub fn position(self, lane: usize, register: usize, element: usize) -> (usize, usize) {
        let (group, thread) = (lane / 4, lane % 4);
        let packed = self.elements_per_register();
        let depth = |step: usize| (step * 4 + thread) * packed + element;
        match self.operand {
            MatrixRole::A if self.rows == 8 => (group, depth(register)),
            MatrixRole::A => (group + 8 * (register % 2), depth(register / 2)),
            MatrixRole::B => (depth(register), group),
            MatrixRole::Accumulator => {
                // Each lane has pairs of adjacent columns, whatever the packing.
                let index = register * packed + element;
                let (pair, column) = (index / 2, thread * 2 + index % 2);
                if self.rows == 8 {
                    (group, column + 8 * pair)
                } else {
                    (group + 8 * (pair % 2), column + 8 * (pair / 2))
                }
            }
        }
    }

    /// Collects the matrix from registers by `decode`.
    pub fn gather<T: Copy + Default>(
        self,
        registers: &[Lanes],
        decode: impl Fn(Element, u64) -> T,
    ) -> Matrix<T> {
        debug_assert_eq!(registers.len(), self.registers(), "{self:?}");
        let mut matrix = Matrix::new(self.rows, self.columns);
        self.visit(|lane, register, element, position| {
            let bits = registers[register][lane] >> (element as u32 * self.element.bits());
            matrix[position] = decode(self.element, bits);
        });
        matrix
    }

    /// Distributes a matrix to registers by `encode`.
    pub fn scatter<T: Copy>(self, matrix: &Matrix<T>, encode: impl Fn(Element, T) -> u64) -> Vec<Lanes> {
        let mut registers = vec![[0; LANES]; self.registers()];
        let mask = u64::MAX >> (64 - self.element.bits());
        self.visit(|lane, register, element, position| {
            let bits = encode(self.element, matrix[position]) & mask;
            registers[register][lane] |= bits << (element as u32 * self.element.bits());
        });
        registers
    }

    fn visit(self, mut each: impl FnMut(usize, usize, usize, (usize, usize))) {
        for register in 0..self.registers() {
            for lane in 0..LANES {
                for element in 0..self.elements_per_register() {
                    each(lane, register, element, self.position(lane, register, element));
                }
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Matrix<T> {
    pub rows: usize,
    pub columns: usize,
    pub elements: Vec<T>,
}

impl<T: Copy + Default> Matrix<T> {
    pub fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns, elements: vec![T::default(); rows * columns] }
    }
}

impl<T> Matrix<T> {
    pub fn transposed(&self) -> Self
    where
        T: Copy,
    {
        let elements =
            (0..self.columns).flat_map(|column| (0..self.rows).map(move |row| self[(row, column)]));
        Self { rows: self.columns, columns: self.rows, elements: elements.collect() }
    }

    pub fn row(&self, row: usize) -> &[T] {
        &self.elements[row * self.columns..][..self.columns]
    }
}

impl<T> std::ops::Index<(usize, usize)> for Matrix<T> {
    type Output = T;

    fn index(&self, (row, column): (usize, usize)) -> &T {
        &self.elements[row * self.columns + column]
    }
}

impl<T> std::ops::IndexMut<(usize, usize)> for Matrix<T> {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut T {
        &mut self.elements[row * self.columns + column]
    }
}

#[cfg(test)]
mod tests;
