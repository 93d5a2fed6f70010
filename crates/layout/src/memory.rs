//! Layouts of shared memory: the swizzles of TMA and `wgmma`.

use crate::f2::Columns;
use crate::layout::assert_permutation;
use crate::map::Layout;
use crate::space::{Hardware, Input, Space, Tile};

/// The bytes of a chunk, the unit that swizzles move.
///
/// A chunk is also a row of a matrix of `ldmatrix`, and the widest access of a lane.
pub(crate) const CHUNK_BYTES: u32 = 16;
/// The bytes of a line: a four-byte word in each of the 32 banks.
pub(crate) const LINE_BYTES: u32 = 128;

/// The permutation of the 16-byte chunks of a row. The PTX ISA defines it for tensor copies
/// ("Swizzling Modes") and for the matrix descriptors of `wgmma`. The buffer is aligned to 8 times
/// the bytes of the mode's row. In line `l` of 128 bytes, chunk `c` is at position `c ^ (l % n)`,
/// where a row has `n` chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SwizzleMode {
    /// No permutation.
    None,
    /// Rows of 32 bytes; address bit 4 is XOR-ed with bit 7.
    Bytes32,
    /// Rows of 64 bytes; address bits 4 and 5 are XOR-ed with 7 and 8.
    Bytes64,
    /// Rows of 128 bytes; address bits 4 to 6 are XOR-ed with 7 to 9.
    Bytes128,
}

impl SwizzleMode {
    /// Returns the bytes of a row; `None` if any size is allowed.
    pub fn row_bytes(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }

    /// Returns the widest mode for rows of `row_bytes` bytes. Chunks at one position of eight
    /// consecutive rows are then in different banks, so `ldmatrix` and `stmatrix` have no
    /// conflicts.
    pub fn widest(row_bytes: u32) -> Self {
        match row_bytes {
            128.. => Self::Bytes128,
            64.. => Self::Bytes64,
            32.. => Self::Bytes32,
            _ => Self::None,
        }
    }
}

/// Returns the layout, swizzled by `mode`, of a buffer for `shape`. `order` lists the axes from the
/// fastest-varying to the slowest. A row along `order[0]` may be longer than the mode's row. The
/// tile is then split into boxes with rows of the mode's length. The boxes follow each other, as
/// tensor copies write them.
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
    // A swizzle XORs bit `j` of the line to bit `j` of the chunk. So the image of the line bit
    // includes that of the chunk bit.
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

/// Returns the layout of a buffer whose offset bits have these images in the tile.
pub(crate) fn buffer(tile: &Tile, columns: Columns) -> Layout {
    debug_assert!(columns.len() <= tile.bits() as usize, "a buffer holds no element twice");
    Layout::new(Hardware::new(&[(Input::Offset, columns.len() as u32)]), tile.clone(), columns)
}
