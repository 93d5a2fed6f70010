//! Lays out the 8x8 matrices of `ldmatrix`, `stmatrix` and `movmatrix`.

use crate::registers::{LANES, Lanes};

/// Eight rows of eight 16-bit elements.
pub type Block = [[u16; 8]; 8];

/// Returns the lane that provides the address of a row of a matrix.
pub fn address_lane(matrix: usize, row: usize) -> usize {
    matrix * 8 + row
}

/// Returns the register with `block`. Lane l has elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4,
/// or of the transposed block.
pub fn distribute(block: &Block, transposed: bool) -> Lanes {
    std::array::from_fn(|lane| {
        let [low, high] = [0, 1].map(|element| {
            let (row, column) = position(lane, element, transposed);
            u64::from(block[row][column])
        });
        low | high << 16
    })
}

/// Returns the block of a register, the inverse of [`distribute`].
pub fn collect(register: &Lanes, transposed: bool) -> Block {
    let mut block = Block::default();
    for (lane, bits) in register.iter().enumerate() {
        for element in 0..2 {
            let (row, column) = position(lane, element, transposed);
            block[row][column] = (bits >> (16 * element)) as u16;
        }
    }
    block
}

/// `movmatrix`: returns the register of the transposed block.
pub fn transpose(register: &Lanes) -> Lanes {
    distribute(&collect(register, false), true)
}

fn position(lane: usize, element: usize, transposed: bool) -> (usize, usize) {
    debug_assert!(lane < LANES);
    let (row, column) = (lane / 4, 2 * (lane % 4) + element);
    if transposed { (column, row) } else { (row, column) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers the elements by row and column.
    fn numbered() -> Block {
        std::array::from_fn(|row| std::array::from_fn(|column| (row * 8 + column) as u16))
    }

    #[test]
    fn lanes_hold_pairs_of_a_row() {
        // By the drawing of the ISA, row 0 is in threads 0 to 3, two elements each, and row 1 in
        // threads 4 to 7.
        let register = distribute(&numbered(), false);
        assert_eq!(register[0], 1 << 16);
        assert_eq!(register[3], 6 | 7 << 16);
        assert_eq!(register[4], 8 | 9 << 16);
        assert_eq!(register[31], 0x3f_003e);
    }

    #[test]
    fn transposed_lanes_hold_pairs_of_a_column() {
        let register = distribute(&numbered(), true);
        assert_eq!(register[0], 8 << 16);
        assert_eq!(register[1], 0x18_0010);
        assert_eq!(register[4], 1 | 9 << 16);
    }

    #[test]
    fn collecting_inverts_distributing() {
        for transposed in [false, true] {
            assert_eq!(collect(&distribute(&numbered(), transposed), transposed), numbered());
        }
        assert_eq!(transpose(&distribute(&numbered(), false)), distribute(&numbered(), true));
    }
}
