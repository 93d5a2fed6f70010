//! Computes `mma.m8n8k4` of f16: four multiplications of 8x8x4 in a warp.
//! Lanes 4q to 4q + 3 and 4q + 16 to 4q + 19 compute multiplication q. The lanes from 4q + 16 on
//! have the lower four rows of A, C and D. They also have the right four columns of B. A and B may
//! each be stored by rows or by columns.

use super::Element;
use super::fragment::Matrix;
use super::multiply::multiply_floats;
use crate::registers::{LANES, Lanes};

/// The number of multiplications of a warp.
const PRODUCTS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuadMma {
    /// True if a lane has a row of A, false if it has half of a column.
    pub a_by_rows: bool,
    /// True if a lane has half of a row of B, false if it has a column.
    pub b_by_rows: bool,
    pub c: Element,
    pub d: Element,
}

fn product(lane: usize) -> usize {
    lane % 16 / 4
}

/// Returns the first row or column of a lane. Lanes 16 to 31 have the second half.
fn half(lane: usize) -> usize {
    lane / 16 * 4
}

impl QuadMma {
    /// Returns the (row, column) of element `i` of A in a lane.
    fn a_position(self, lane: usize, i: usize) -> (usize, usize) {
        if self.a_by_rows { (lane % 4 + half(lane), i) } else { (i + half(lane), lane % 4) }
    }

    /// Returns the (row, column) of element `i` of B in a lane.
    fn b_position(self, lane: usize, i: usize) -> (usize, usize) {
        if self.b_by_rows { (lane % 4, i + half(lane)) } else { (i, lane % 4 + half(lane)) }
    }

    /// Returns the number of registers of C or D.
    pub fn accumulator_registers(element: Element) -> usize {
        8 * element.bits() as usize / 32
    }

    pub fn execute(self, a: &[Lanes], b: &[Lanes], c: &[Lanes]) -> Vec<Lanes> {
        let mut result = vec![[0; LANES]; Self::accumulator_registers(self.d)];
        for number in 0..PRODUCTS {
            let left = gather(number, a, Element::F16, (8, 4), |lane, i| self.a_position(lane, i));
            let right = gather(number, b, Element::F16, (4, 8), |lane, i| self.b_position(lane, i));
            let before = gather(number, c, self.c, (8, 8), |lane, i| accumulator(self.c, lane, i));
            let sums = multiply_floats(&left, &right.transposed(), Some(&before), self.d);
            let (bits, packed) = (self.d.bits(), (32 / self.d.bits()) as usize);
            for lane in (0..LANES).filter(|lane| product(*lane) == number) {
                for i in 0..8 {
                    let value = sums[accumulator(self.d, lane, i)];
                    result[i / packed][lane] |= value << (bits * (i % packed) as u32);
                }
            }
        }
        result
    }
}

/// Returns the (row, column) of element `i` of C or D in a lane.
fn accumulator(element: Element, lane: usize, i: usize) -> (usize, usize) {
    if element == Element::F32 {
        ((lane & 1) + (i & 2) + half(lane), (i & 4) + (lane & 2) + (i & 1))
    } else {
        (lane % 4 + half(lane), i)
    }
}

fn gather(
    number: usize,
    registers: &[Lanes],
    element: Element,
    (rows, columns): (usize, usize),
    position: impl Fn(usize, usize) -> (usize, usize),
) -> Matrix<f64> {
    let mut matrix = Matrix::new(rows, columns);
    let packed = (32 / element.bits()) as usize;
    for lane in (0..LANES).filter(|lane| product(*lane) == number) {
        for i in 0..registers.len() * packed {
            let bits = registers[i / packed][lane] >> (element.bits() * (i % packed) as u32);
            matrix[position(lane, i)] = element.value(bits);
        }
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a small integer that depends on the arguments.
    fn value(product: usize, row: usize, column: usize, seed: usize) -> f64 {
        ((product * 31 + row * 17 + column * 5 + seed) % 9) as f64 - 4.0
    }

    fn registers(
        element: Element,
        count: usize,
        place: impl Fn(usize, usize) -> (usize, usize),
        seed: usize,
    ) -> Vec<Lanes> {
        let packed = (32 / element.bits()) as usize;
        let register = |number: usize| {
            std::array::from_fn(|lane| {
                let bits = (0..packed).map(|i| {
                    let (row, column) = place(lane, number * packed + i);
                    element.round(value(lane % 16 / 4, row, column, seed)) << (element.bits() as usize * i)
                });
                bits.sum()
            })
        };
        (0..count).map(register).collect()
    }

    #[test]
    fn four_products_in_every_layout() {
        // The positions by the formulas of the ISA, with its `%laneid < 16`.
        let lower = |lane: usize, at: usize| if lane < 16 { at } else { at + 4 };
        for (a_by_rows, b_by_rows) in [(true, true), (true, false), (false, true), (false, false)] {
            for (c, d) in
                [(Element::F32, Element::F32), (Element::F16, Element::F16), (Element::F16, Element::F32)]
            {
                let at_a = |lane: usize, i: usize| {
                    if a_by_rows { (lower(lane, lane % 4), i) } else { (lower(lane, i % 4), lane % 4) }
                };
                let at_b = |lane: usize, i: usize| {
                    if b_by_rows { (lane % 4, lower(lane, i)) } else { (i, lower(lane, lane % 4)) }
                };
                let at_sum = |element: Element| {
                    move |lane: usize, i: usize| {
                        if element == Element::F16 {
                            return (lower(lane, lane % 4), i);
                        }
                        let row = (lane & 0b1) + (i & 0b10);
                        (lower(lane, row), (i & 0b100) + (lane & 0b10) + (i & 0b1))
                    }
                };
                let mma = QuadMma { a_by_rows, b_by_rows, c, d };
                let found = mma.execute(
                    &registers(Element::F16, 2, at_a, 1),
                    &registers(Element::F16, 2, at_b, 2),
                    &registers(c, QuadMma::accumulator_registers(c), at_sum(c), 3),
                );
                let packed = (32 / d.bits()) as usize;
                for i in 0..8 {
                    for (lane, &bits) in found[i / packed].iter().enumerate() {
                        let (product, (row, column)) = (lane % 16 / 4, at_sum(d)(lane, i));
                        let products =
                            (0..4).map(|k| value(product, row, k, 1) * value(product, k, column, 2));
                        let sum: f64 = products.sum::<f64>() + value(product, row, column, 3);
                        let bits = bits >> (d.bits() as usize * (i % packed));
                        assert_eq!(d.value(bits), sum, "{mma:?} lane {lane} element {i}");
                    }
                }
            }
        }
    }
}
