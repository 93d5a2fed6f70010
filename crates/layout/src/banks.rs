//! Counts bank conflicts of shared memory by executing the accesses.
//!
//! Shared memory has 32 banks of four bytes. A warp's accesses of 4 bytes are served together.
//! Accesses of 8 bytes are served by half warps, and accesses of 16 bytes by quarter warps. These
//! parts are twice as large if each lane accesses the same bytes as one of its neighbors. The
//! indices of two neighbors differ in bit 0, or all in bit 1. Lanes that are served together
//! conflict if they access different words of one bank. Each conflict takes another wavefront: two
//! words of bank 0 take two.

use smallvec::SmallVec;

use crate::ldmatrix::MatrixAccess;
use crate::map::Layout;
use crate::memory::{CHUNK_BYTES, LINE_BYTES};
use crate::space::Input;

const BANKS: usize = 32;
const WORD_BYTES: u32 = 4;

/// The cost of a block's accesses to shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BankUse {
    /// Instructions, summed over the warps.
    pub instructions: u32,
    /// Wavefronts of the instructions.
    pub wavefronts: u32,
    /// Wavefronts that the instructions would take without conflicts.
    pub least_wavefronts: u32,
}

impl BankUse {
    /// Returns the number of additional wavefronts due to conflicts.
    pub fn conflicts(self) -> u32 {
        self.wavefronts - self.least_wavefronts
    }

    fn serve(&mut self, addresses: impl Iterator<Item = u32>, bytes: u32) {
        let mut words: SmallVec<[u32; 64]> = SmallVec::new();
        for address in addresses {
            for word in address / WORD_BYTES..(address + bytes).div_ceil(WORD_BYTES) {
                words.push(word);
            }
        }
        words.sort_unstable();
        words.dedup();
        let mut in_bank = [0; BANKS];
        for word in words {
            in_bank[word as usize % BANKS] += 1;
        }
        self.wavefronts += in_bank.into_iter().max().unwrap_or_default();
        self.least_wavefronts += 1;
    }
}

/// Returns the cost of reading or writing a tile in shared memory. `layout` is the layout of the
/// tile, and `memory` that of the buffer. The accesses are as wide as both layouts allow, up to 16
/// bytes and `width` elements.
///
/// # Panics
/// If the buffer does not hold every element.
pub fn bank_use(memory: &Layout, layout: &Layout, element_bits: u32, width: u32) -> BankUse {
    padded_bank_use(memory, layout, element_bits, (width, &|offset| offset))
}

/// Returns the cost of [`bank_use`] for a buffer with padding. `padded` maps an offset without
/// padding to its offset in the buffer.
pub(crate) fn padded_bank_use(
    memory: &Layout,
    layout: &Layout,
    element_bits: u32,
    (width, padded): (u32, &dyn Fn(u32) -> u32),
) -> BankUse {
    let element_bytes = element_bits / 8;
    let vector = layout.vector_in(memory).at_most(width.min(CHUNK_BYTES / element_bytes));
    let offsets = layout.offsets_in(memory);
    let bytes = vector.width() * element_bytes;
    let (lanes, warps) = (1 << layout.bits_of(Input::Lane), 1 << layout.bits_of(Input::Warp));
    let bases = offsets.bases(Input::Lane).iter().map(|base| offsets.output().part(*base, Input::Offset));
    let have_equal_neighbors = bytes > WORD_BYTES && bases.take(2).any(|offset| offset == 0);
    let served_together = ((LINE_BYTES / bytes) << u32::from(have_equal_neighbors)).min(lanes);
    let mut cost = BankUse::default();
    for warp in 0..warps {
        for access in 0..vector.accesses() {
            cost.instructions += 1;
            let register = vector.registers(access)[0];
            for first in (0..lanes).step_by(served_together as usize) {
                let address = |lane: u32| {
                    let place = [(Input::Register, register), (Input::Lane, lane), (Input::Warp, warp)];
                    padded(offsets.output().part(offsets.at(&place), Input::Offset)) * element_bytes
                };
                cost.serve((first..first + served_together).map(address), bytes);
            }
        }
    }
    cost
}

/// Returns the cost of moving a tile by `ldmatrix` or `stmatrix`. The memory serves the eight rows
/// of a matrix, 16 bytes each, together.
pub fn matrix_bank_use(access: &MatrixAccess, element_bits: u32) -> BankUse {
    let mut cost = BankUse::default();
    for warp in 0..1 << access.addresses.bits_of(Input::Warp) {
        for number in 0..access.registers.accesses() {
            cost.instructions += 1;
            let register = access.registers.registers(number)[0];
            for matrix in 0..access.matrices {
                let address = |row: u32| {
                    let place =
                        [(Input::Register, register), (Input::Lane, 8 * matrix + row), (Input::Warp, warp)];
                    access.addresses.at(&place) * element_bits / 8
                };
                cost.serve((0..8).map(address), CHUNK_BYTES);
            }
        }
    }
    cost
}

/// Returns the cost of reading a buffer of rank 2 by `ldmatrix`. Each matrix has eight consecutive
/// rows, along `row_axis`, of 16 bytes along the other axis.
///
/// The tile must not be smaller than a matrix; the function does not check this.
///
/// # Panics
/// If the rank of the tile is not 2, or the buffer does not hold each element once. The call also
/// panics if an aligned run of 16 bytes of a row is not contiguous in memory.
pub fn ldmatrix_bank_use(memory: &Layout, element_bits: u32, row_axis: usize) -> BankUse {
    let tile = memory.output();
    assert_eq!(tile.rank(), 2, "ldmatrix reads tiles of rank 2");
    let placement = memory.inverse().expect("a buffer holds each element once");
    let column_axis = 1 - row_axis;
    let chunk = CHUNK_BYTES * 8 / element_bits;
    let offset = |row: u32, column: u32| {
        placement.apply(row << tile.shift(row_axis) | column << tile.shift(column_axis))
    };
    let mut cost = BankUse::default();
    for first_row in (0..tile.size(row_axis)).step_by(8) {
        for column in (0..tile.size(column_axis)).step_by(chunk as usize) {
            let start = offset(first_row, column);
            let is_run = (0..chunk).all(|step| offset(first_row, column + step) == start + step);
            assert!(is_run, "16 bytes of a row have to be consecutive");
            cost.instructions += 1;
            let address = |row: u32| offset(row, column) * element_bits / 8;
            cost.serve((first_row..first_row + 8).map(address), CHUNK_BYTES);
        }
    }
    cost
}
