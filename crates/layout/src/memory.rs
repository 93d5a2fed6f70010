//! Layouts of shared memory: the swizzles that TMA and `wgmma` know, which are also what `ldmatrix` wants.

use crate::f2::Columns;
use crate::layout::assert_permutation;
use crate::map::Layout;
use crate::space::{Hardware, Input, Space, Tile};

/// Bytes of the unit that swizzles move: what one row of an 8x8 matrix of `ldmatrix` has, and one lane's widest access.
pub(crate) const CHUNK_BYTES: u32 = 16;
/// Bytes of all banks: 32 banks of four bytes.
pub(crate) const LINE_BYTES: u32 = 128;

/// How the 16-byte chunks of a row are permuted, after the PTX ISA ("Swizzling Modes" of tensor copies, and the matrix
/// descriptors of `wgmma`). In a buffer that is aligned to 8 times the mode's bytes, chunk `c` of the line of 128 bytes
/// number `l` is at `c ^ l`, as far as the mode's row reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SwizzleMode {
    /// Rows one after the other.
    None,
    /// Rows of 32 bytes; address bit 4 is XOR-ed with bit 7.
    Bytes32,
    /// Rows of 64 bytes; address bits 4 and 5 are XOR-ed with bits 7 and 8.
    Bytes64,
    /// Rows of 128 bytes; address bits 4 to 6 are XOR-ed with bits 7 to 9.
    Bytes128,
}

impl SwizzleMode {
    /// The bytes of a row, or `None` if any will do.
    pub fn row_bytes(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }

    /// The widest mode for rows of so many bytes. Under it, any eight chunks at one position of eight consecutive rows are
    /// in different banks: `ldmatrix` and `stmatrix` have no conflicts.
    pub fn widest(row_bytes: u32) -> Self {
        match row_bytes {
            128.. => Self::Bytes128,
            64.. => Self::Bytes64,
            32.. => Self::Bytes32,
            _ => Self::None,
        }
    }
}

/// A buffer for `shape` in which the axes in `order` are contiguous from the first to the last, swizzled by `mode`. Where a
/// row along `order[0]` is longer than the mode's, the tile is cut into boxes with rows of the mode's length, box after
/// box, as tensor copies write them.
///
/// # Panics
/// If a row is shorter than the mode's, or `order` is not a permutation of the axes.
pub fn swizzled(shape: &[u32], order: &[usize], element_bits: u32, mode: SwizzleMode) -> Layout {
    let Some(row_bytes) = mode.row_bytes() else { return Layout::strided(shape, order) };
    assert_permutation(order, shape.len());
    let row = row_bytes * 8 / element_bits;
    let (fast, rank) = (order[0], shape.len());
    assert!(shape[fast] >= row, "rows of {} elements are shorter than those of {mode:?}", shape[fast]);
    let count = |axis: usize, size: u32| Layout::identity(rank, axis, Input::Offset, size);
    let mut layout = count(fast, row);
    if let Some(slow) = order.get(1) {
        layout = layout.product(&count(*slow, shape[*slow]));
    }
    layout = layout.product(&count(fast, shape[fast] / row));
    for axis in order.iter().skip(2) {
        layout = layout.product(&count(*axis, shape[*axis]));
    }
    // Bit `j` of the chunk is XOR-ed with bit `j` of the line; so an offset in line `2^j` is in chunk `2^j` as well.
    let bit_of = |bytes: u32| (bytes * 8 / element_bits).ilog2() as usize;
    let mut columns = Columns::from_slice(layout.columns());
    for bit in 0..(row_bytes / CHUNK_BYTES).ilog2() as usize {
        let chunk = columns[bit_of(CHUNK_BYTES) + bit];
        if let Some(line) = columns.get_mut(bit_of(LINE_BYTES) + bit) {
            *line ^= chunk;
        }
    }
    layout.with_bases(Input::Offset, &columns)
}

/// The buffer whose offset bits have these images, of the tile.
pub(crate) fn buffer(tile: &Tile, columns: Columns) -> Layout {
    debug_assert!(columns.len() <= tile.bits() as usize, "a buffer holds no element twice");
    Layout::new(Hardware::new(&[(Input::Offset, columns.len() as u32)]), tile.clone(), columns)
}
