//! Which element of a matrix each register of each lane holds: the "matrix fragments" of the PTX ISA.
//!
//! The ISA gives one drawing and one formula for each shape and type. All of them (except the first-generation
//! `m8n8k4` of f16) are one map, written here once: a lane is a group (`lane / 4`) and a thread in the group
//! (`lane % 4`), a register holds as many consecutive elements as fit, and registers alternate between the upper and the
//! lower eight rows before they go on to the next columns. The tests hold it to the ISA's formulas one by one.

use super::Element;
use crate::registers::{LANES, Lanes};

/// An operand of `D = A B + C`; C and D are laid out alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixRole {
    /// The left factor, of m rows and k columns.
    A,
    /// The right factor, of k rows and n columns.
    B,
    /// C and D, of m rows and n columns.
    Accumulator,
}

/// The fragment of one operand in the registers of one warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Which operand.
    pub operand: MatrixRole,
    /// The rows of the matrix: 8 or 16, or for B the depth of the product.
    pub rows: usize,
    /// The columns of the matrix: 8 for B.
    pub columns: usize,
    /// The format of its elements.
    pub element: Element,
}

impl Fragment {
    /// How many elements one register holds; 64-bit elements take a 64-bit register.
    pub fn elements_per_register(self) -> usize {
        (32 / self.element.bits()).max(1) as usize
    }

    /// How many registers of each lane hold the matrix.
    pub fn registers(self) -> usize {
        self.rows * self.columns / (LANES * self.elements_per_register())
    }

    /// The (row, column) of the element that `lane` holds at place `element` of its register number `register`.
    pub fn position(self, lane: usize, register: usize, element: usize) -> (usize, usize) {
        let (group, thread) = (lane / 4, lane % 4);
        let packed = self.elements_per_register();
        let depth = |step: usize| (step * 4 + thread) * packed + element;
        match self.operand {
            MatrixRole::A if self.rows == 8 => (group, depth(register)),
            MatrixRole::A => (group + 8 * (register % 2), depth(register / 2)),
            MatrixRole::B => (depth(register), group),
            MatrixRole::Accumulator => {
                // Each lane holds pairs of adjacent columns, whatever a register packs.
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

    /// The matrix that the registers hold, each element made from its bits by `decode`.
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

    /// The registers that hold `matrix`, the bits of each element made by `encode`.
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

/// A dense matrix, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix<T> {
    /// How many rows.
    pub rows: usize,
    /// How many columns.
    pub columns: usize,
    /// The elements, row by row.
    pub elements: Vec<T>,
}

impl<T: Copy + Default> Matrix<T> {
    /// A matrix of zeros.
    pub fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns, elements: vec![T::default(); rows * columns] }
    }
}

impl<T> Matrix<T> {
    /// The matrix with rows and columns exchanged.
    pub fn transposed(&self) -> Self
    where
        T: Copy,
    {
        let elements =
            (0..self.columns).flat_map(|column| (0..self.rows).map(move |row| self[(row, column)]));
        Self { rows: self.columns, columns: self.rows, elements: elements.collect() }
    }

    /// Row number `row`.
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
