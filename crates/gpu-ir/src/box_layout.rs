//! Layouts that tensor copies read and write (PTX ISA, "Tensors: Swizzling Modes").

use smallvec::SmallVec;
use tilewright_layout::{Layout, SwizzleMode, swizzled};

use crate::layout_rules::GATHERED_ROWS_PER_COPY;

/// The most elements of a box along an axis.
pub const MAX_BOX_EXTENT: u32 = 256;
/// The alignment of a box that is not swizzled.
const BOX_ALIGNMENT: u32 = 128;
/// The fewest bytes of a row of a box.
const MIN_ROW_BYTES: u32 = 16;

/// Returns the layout of a matrix for tensor copies, with rows along an axis.
pub fn rows_of_box(shape: &[u32], axis: usize, element_bits: u32) -> Layout {
    let mode = SwizzleMode::widest(shape[axis] * element_bits / 8);
    swizzled(shape, &[axis, 1 - axis], element_bits, mode)
}

/// The division of a slot into boxes of equal size. One tensor copy moves each box.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoxLayout {
    /// The axes of the tile, from the fastest to the slowest in memory. The rows are along the
    /// first one.
    pub order: SmallVec<[usize; 5]>,
    /// Elements of a row of a box.
    pub row: u32,
    /// The number of boxes. Boxes are neighbors along the rows, and follow each other in memory.
    pub count: u32,
    /// The bytes of a box.
    pub bytes: u32,
    /// The alignment of a slot, in bytes.
    pub alignment: u32,
    /// The swizzle of the rows.
    pub swizzle: SwizzleMode,
}

impl BoxLayout {
    /// Returns the boxes of a tile, if tensor copies can write its layout.
    pub fn of(memory: &Layout, element_bits: u32) -> Option<Self> {
        let rank = memory.output().rank();
        (0..rank).rev().find_map(|axis| Self::along(memory, element_bits, axis))
    }

    /// Returns the boxes with rows along an axis.
    fn along(memory: &Layout, bits: u32, axis: usize) -> Option<Self> {
        let shape = memory.output().shape();
        let others = (0..shape.len()).rev().filter(|other| *other != axis);
        let order: SmallVec<[usize; 5]> = [axis].into_iter().chain(others).collect();
        let longest = shape[axis];
        let modes = [SwizzleMode::None, SwizzleMode::Bytes128, SwizzleMode::Bytes64, SwizzleMode::Bytes32];
        let (row, swizzle) = modes.into_iter().find_map(|mode| {
            let row = mode.row_bytes().map_or(longest, |bytes| bytes * 8 / bits);
            // With several boxes along the rows, memory has all rows along the second axis of
            // `order` before the next box. So all further axes must have extent 1.
            let is_one_tensor = row == longest || order.iter().skip(2).all(|other| shape[*other] == 1);
            let fits = row <= longest && is_one_tensor && *memory == swizzled(&shape, &order, bits, mode);
            fits.then_some((row, mode))
        })?;
        let lines: SmallVec<[u32; 5]> = order[1..].iter().map(|other| shape[*other]).collect();
        let is_possible =
            row * bits / 8 >= MIN_ROW_BYTES && lines.iter().chain([&row]).all(|size| *size <= MAX_BOX_EXTENT);
        let alignment = swizzle.row_bytes().map_or(BOX_ALIGNMENT, |bytes| 8 * bytes);
        let bytes = lines.iter().product::<u32>() * row * bits / 8;
        is_possible.then_some(Self { order, row, count: longest / row, bytes, alignment, swizzle })
    }

    /// Returns whether `tile::gather4` can fill the boxes. The tile is a matrix, and four rows have
    /// a multiple of 128 bytes.
    pub fn can_gather_rows(&self, element_bits: u32) -> bool {
        let bytes = GATHERED_ROWS_PER_COPY * self.row * element_bits / 8;
        self.order.len() == 2 && bytes.is_multiple_of(BOX_ALIGNMENT)
    }

    /// Returns the extents of a box along the axes of the tile.
    pub fn extents(&self, shape: &[u32]) -> SmallVec<[u32; 5]> {
        let mut extents = SmallVec::from_slice(shape);
        extents[self.order[0]] = self.row;
        extents
    }
}
