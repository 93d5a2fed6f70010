//! Plans moves of a layout's values by `ldmatrix` and `stmatrix`.
//!
//! The instruction moves 1, 2 or 4 matrices of eight rows of 16 bytes. Lane `8 j + i` has the
//! address of row `i` of matrix `j`. Word `w` of row `i` goes to lane `4 i + w`, so a lane has one
//! 32-bit register for each matrix. With `.trans` and 16-bit elements, element `c` of rows `2 w`
//! and `2 w + 1` goes to lane `4 c + w`.

use smallvec::SmallVec;

use crate::f2;
use crate::map::{Layout, Transfer};
use crate::memory::{CHUNK_BYTES, LINE_BYTES};
use crate::query::Vector;
use crate::space::Input;

const WORD_BITS: u32 = 32;
/// The number of lane bits that index a word in a row.
const WORD_LANES: usize = 2;
const GROUP_LANES: usize = 3;

/// The movement of a value by `ldmatrix` or `stmatrix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixAccess {
    /// True if the instruction has `.trans`.
    pub is_transposed: bool,
    /// The number of matrices of an instruction: 1, 2 or 4.
    pub matrices: u32,
    /// The elements that a lane moves in each instruction. The elements of the first matrix come
    /// first, the lowest bits of its word first.
    pub registers: Vector,
    /// Maps an instruction's first register, a lane and a warp to an offset in elements. The lane
    /// provides the address of the row at this offset. With fewer than four matrices, the higher
    /// lanes repeat addresses.
    pub addresses: Transfer,
}

impl MatrixAccess {
    /// Returns whether two rows of one matrix conflict in their banks.
    pub fn has_conflicts(&self, element_bits: u32) -> bool {
        let rows = &self.addresses.bases(Input::Lane)[..GROUP_LANES];
        let in_line = LINE_BYTES * 8 / element_bits - 1;
        let banks: SmallVec<[u32; GROUP_LANES]> = rows.iter().map(|offset| offset & in_line).collect();
        f2::rank(&banks) < f2::rank(rows)
    }
}

impl Layout {
    /// Returns how `ldmatrix` or `stmatrix` moves a value between registers and a buffer. Returns
    /// `None` if they cannot. `memory` is the layout of the buffer. A warp must have 32 lanes, and
    /// elements have at most 32 bits. Each group of four lanes must hold a row: 16 consecutive,
    /// aligned bytes of the buffer. With `.trans`, elements have 16 bits, and each of the eight
    /// groups holds one element of a row.
    ///
    /// # Panics
    /// If the buffer does not hold every element.
    pub fn matrix_access(&self, memory: &Self, element_bits: u32) -> Option<MatrixAccess> {
        let offsets = self.offsets_in(memory);
        if self.bits_of(Input::Lane) as usize != WORD_LANES + GROUP_LANES || element_bits > WORD_BITS {
            return None;
        }
        matrix_access(&offsets, element_bits, false)
            .or_else(|| (element_bits == 16).then(|| matrix_access(&offsets, element_bits, true))?)
    }
}

fn matrix_access(offsets: &Transfer, element_bits: u32, is_transposed: bool) -> Option<MatrixAccess> {
    let registers = offsets.bases(Input::Register);
    let (words, groups) = offsets.bases(Input::Lane).split_at(WORD_LANES);
    let row_bits = (CHUNK_BYTES * 8 / element_bits).ilog2();
    // Bits of the position in a row come from the element in its word and the lane in its group.
    // With `.trans`, they come from the group.
    let (word_bits, along, across) =
        if is_transposed { (0, groups, words) } else { ((WORD_BITS / element_bits).ilog2(), words, groups) };
    let (mut elements, mut firsts) = offsets.vector(0, word_bits).into_bases();
    let is_row = elements.len() == word_bits as usize
        && along.iter().zip(word_bits..row_bits).all(|(offset, bit)| *offset == 1 << bit);
    // All other bits must select rows, not bytes in a row.
    let starts = firsts.iter().map(|register| f2::multiply(registers, *register));
    let others = starts.chain(across.iter().chain(offsets.bases(Input::Warp)).copied());
    let within_row = others.fold(0, |any, offset| any | offset) & ((1 << row_bits) - 1);
    if !is_row || within_row != 0 || (is_transposed && firsts.is_empty()) {
        return None;
    }
    // The bits of the row in its matrix come first, then those of the matrix.
    let mut rows: SmallVec<[u32; 8]> = across.into();
    if is_transposed {
        let pair = firsts.remove(0);
        elements.push(pair);
        rows.insert(0, f2::multiply(registers, pair));
    }
    let matrix_bits = firsts.len().min(2);
    for matrix in firsts.drain(..matrix_bits) {
        elements.push(matrix);
        rows.push(f2::multiply(registers, matrix));
    }
    rows.resize(WORD_LANES + GROUP_LANES, 0);
    Some(MatrixAccess {
        is_transposed,
        matrices: 1 << matrix_bits,
        registers: Vector::new(elements, firsts),
        addresses: offsets.with_bases(Input::Lane, &rows),
    })
}
