//! Maps each register of each lane to elements of a matrix: the "matrix fragments" of the PTX ISA.
//!
//! The ISA has one drawing and one formula for each shape and type. All of them are instances of
//! one map, which this file implements once. The exception is the first-generation `m8n8k4` of f16.
//!
//! A lane is a group (`lane / 4`) and a thread in the group (`lane % 4`). A register holds as many
//! consecutive elements as fit. In A, C and D with 16 rows, the elements of a lane alternate
//! between the upper and the lower eight rows. Then they advance to the next columns. They
//! alternate after each register in A, and after two columns in C and D. The tests compare the map
//! with each formula of the ISA.

use super::Element;
use crate::registers::{LANES, Lanes};

/// An operand of `D = A B + C`; C and D have the same layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixRole {
    /// The left operand, of m rows and k columns.
    A,
    /// The right operand, of k rows and n columns.
    B,
    /// C and D, of m rows and n columns.
    Accumulator,
}

/// The fragment of one operand in the registers of one warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// The operand that the fragment holds.
    pub operand: MatrixRole,
    /// The rows of the matrix: 8 or 16, or k for B.
    pub rows: usize,
    /// The columns of the matrix: k for A, 8 for B, n for C and D.
    pub columns: usize,
    /// The format of its elements.
    pub element: Element,
}

impl Fragment {
    /// Returns how many elements one register holds. A 64-bit element has a 64-bit register.
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
                // Each lane holds pairs of adjacent columns, however many elements a register
                // packs.
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

    /// Collects the matrix from registers; `decode` converts the bits of each element.
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

    /// Distributes a matrix to registers; `encode` returns the bits of each element.
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

/// A dense row-major matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix<T> {
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// The elements, row by row.
    pub elements: Vec<T>,
}

impl<T: Copy + Default> Matrix<T> {
    /// Creates a matrix of zeros.
    pub fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns, elements: vec![T::default(); rows * columns] }
    }
}

impl<T> Matrix<T> {
    /// Returns the transpose.
    pub fn transposed(&self) -> Self
    where
        T: Copy,
    {
        let elements =
            (0..self.columns).flat_map(|column| (0..self.rows).map(move |row| self[(row, column)]));
        Self { rows: self.columns, columns: self.rows, elements: elements.collect() }
    }

    /// Returns the row at index `row`.
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
