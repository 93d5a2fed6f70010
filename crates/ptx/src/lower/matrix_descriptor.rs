//! Matrix descriptors of `wgmma` operands in shared memory. PTX ISA: "Asynchronous Warpgroup Level
//! Matrix Shared Memory Layout: Strides, Swizzling Modes, Matrix Descriptor Format".
//!
//! An instruction's operand consists of lines. They are along k in a K-major matrix, and along m or
//! n in an MN-major matrix. Eight lines are a group. The hardware swizzles a line's 16-byte chunks
//! by address bits:
//!
//! | | along the contiguous dimension | eight lines | further lines |
//! |---|---|---|---|
//! | K-major | 32 bytes; without a swizzle, two chunks `leading` apart | along m or n | groups `stride` apart |
//! | MN-major, swizzled | lines `leading` apart | along k | groups `stride` apart |
//! | MN-major, not swizzled | lines of 16 bytes `stride` apart | along k | groups `leading` apart |
//!
//! [`MatrixForm::of`] compares any layout with each row of the table, for each coordinate bit.

use tilewright_layout::{Layout, SwizzleMode};

/// The bytes of a chunk, the unit that swizzles move.
const CHUNK: u32 = 16;
/// The bytes of one instruction's operand along k.
pub(super) const DEPTH_BYTES: u32 = 32;

/// The fields of a matrix descriptor, except the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MatrixForm {
    pub swizzle: SwizzleMode,
    /// True if m or n is the contiguous dimension.
    pub is_mn_major: bool,
    /// The leading dimension byte offset.
    pub leading: u32,
    /// The stride dimension byte offset.
    pub stride: u32,
}

/// The byte offset of each coordinate bit, along m or n and along k.
struct Images {
    mn: Vec<u32>,
    k: Vec<u32>,
    /// The bits of `mn` and of `k` in one instruction.
    inner: [usize; 2],
    element_bytes: u32,
    /// The least element size of an MN-major matrix, in bytes.
    min_transposed_bytes: u32,
}

impl MatrixForm {
    /// Returns the descriptor fields of a matrix with two axes. `mn_axis` is the axis that is not
    /// reduced. An instruction reads `extent` elements along it. Returns `None` without a
    /// descriptor for the layout.
    pub fn of(memory: &Layout, mn_axis: usize, extent: u32, bits: u32) -> Option<Self> {
        Self::of_instruction(memory, mn_axis, (extent, bits), 2)
    }

    /// Returns the fields for `tcgen05.mma`, which also transposes 8-bit elements.
    pub fn of_tensor_dot(memory: &Layout, mn_axis: usize, extent: u32, bits: u32) -> Option<Self> {
        Self::of_instruction(memory, mn_axis, (extent, bits), 1)
    }

    /// Returns the form of an operand of `tcgen05.mma` that has elements of 4 bits, two in a byte:
    /// eight of these bytes are followed by eight bytes of padding.
    pub fn of_padded(memory: &Layout, mn_axis: usize, extent: u32) -> Option<Self> {
        /// The bits of the offset within the bytes of a chunk.
        const IN_CHUNK: usize = 3;
        let padded = |image: &u32| image & 7 | (image & !7) << 1;
        let mn: Vec<u32> = images(memory, mn_axis, 1)?.iter().map(padded).collect();
        let mut k: Vec<u32> = images(memory, 1 - mn_axis, 1)?.iter().map(padded).collect();
        if k.len() <= IN_CHUNK {
            return None;
        }
        k.insert(IN_CHUNK, CHUNK / 2);
        let inner = [extent.ilog2() as usize, DEPTH_BYTES.ilog2() as usize];
        if mn.len() < inner[0] || k.len() < inner[1] {
            return None;
        }
        let images = Images { mn, k, inner, element_bytes: 1, min_transposed_bytes: 1 };
        SWIZZLES.into_iter().find_map(|swizzle| {
            let form = images.k_major(swizzle)?;
            images.fits_outside(&form).then_some(form)
        })
    }

    /// Returns the form of a matrix of 8-bit scales, `[row, k]`, that copies to tensor memory read: 32
    /// rows of 16 bytes. The bytes of a row are those of four columns of tensor memory, which hold
    /// the next scales along k, or the scales of the next 32 rows.
    pub fn of_scales(memory: &Layout) -> Option<Self> {
        const ROW_BITS: usize = 5;
        const IN_CELL_BITS: usize = 2;
        const CHUNK_BITS: usize = 4;
        let [rows, columns] = [0, 1].map(|axis| images(memory, axis, 1));
        let (rows, columns) = (rows?, columns?);
        if rows.len() < ROW_BITS || columns.len() < IN_CELL_BITS {
            return None;
        }
        let (lanes, further) = rows.split_at(ROW_BITS);
        let (in_cell, cells) = columns.split_at(IN_CELL_BITS);
        let k: Vec<u32> = in_cell.iter().chain(further).chain(cells).copied().collect();
        let inner = [ROW_BITS, CHUNK_BITS];
        if k.len() < CHUNK_BITS {
            return None;
        }
        let images = Images { mn: lanes.to_vec(), k, inner, element_bytes: 1, min_transposed_bytes: 1 };
        SWIZZLES.into_iter().find_map(|swizzle| {
            let form = images.chunks(swizzle)?;
            images.fits_outside(&form).then_some(form)
        })
    }

    fn of_instruction(
        memory: &Layout,
        mn_axis: usize,
        (extent, bits): (u32, u32),
        min_transposed_bytes: u32,
    ) -> Option<Self> {
        let element_bytes = bits / 8;
        let inner = [extent.ilog2() as usize, (DEPTH_BYTES / element_bytes).ilog2() as usize];
        let (mn, k) = (images(memory, mn_axis, element_bytes)?, images(memory, 1 - mn_axis, element_bytes)?);
        let images = Images { mn, k, inner, element_bytes, min_transposed_bytes };
        if images.mn.len() < inner[0] || images.k.len() < inner[1] {
            return None;
        }
        SWIZZLES.into_iter().find_map(|swizzle| {
            let form = images.k_major(swizzle).or_else(|| images.mn_major(swizzle))?;
            images.fits_outside(&form).then_some(form)
        })
    }

    /// Returns the low and the high word of the descriptor, without the address.
    pub fn words(&self) -> [u32; 2] {
        let mode = match self.swizzle {
            SwizzleMode::None => 0,
            SwizzleMode::Bytes128 => 1,
            SwizzleMode::Bytes64 => 2,
            SwizzleMode::Bytes32 => 3,
        };
        [(self.leading / CHUNK) << 16, (self.stride / CHUNK) | mode << 30]
    }
}

/// The modes, the longest lines first.
const SWIZZLES: [SwizzleMode; 4] =
    [SwizzleMode::Bytes128, SwizzleMode::Bytes64, SwizzleMode::Bytes32, SwizzleMode::None];

/// Returns the offset in bytes that each bit of a coordinate adds; `None` if the layout repeats
/// elements.
fn images(memory: &Layout, axis: usize, element_bytes: u32) -> Option<Vec<u32>> {
    let placement = memory.inverse()?;
    let tile = memory.output();
    let first = tile.shift(axis) as usize;
    let columns = &placement.columns()[first..first + tile.bits_of(axis) as usize];
    Some(columns.iter().map(|image| image * element_bytes).collect())
}

/// Returns the length of a line, in bytes.
fn line_bytes(swizzle: SwizzleMode) -> u32 {
    swizzle.row_bytes().unwrap_or(CHUNK)
}

/// Returns an address with its chunk swizzled.
fn swizzled(swizzle: SwizzleMode, address: u32) -> u32 {
    let chunks = line_bytes(swizzle) / CHUNK - 1;
    address ^ (address >> 7 & chunks) << 4
}

/// Returns the first offset in `images`, if each one is twice the previous one. A descriptor must
/// be able to store them, and the swizzle must not change them. For empty `images`, returns any
/// valid offset.
fn doubling(swizzle: SwizzleMode, images: &[u32]) -> Option<u32> {
    let Some(&first) = images.first() else { return Some(CHUNK) };
    // A descriptor stores an offset in 14 bits, in units of 16 bytes.
    let is_offset = |image: u32| image.is_power_of_two() && (CHUNK..CHUNK << 14).contains(&image);
    let fits = images
        .iter()
        .enumerate()
        .all(|(bit, &image)| is_offset(image) && image == first << bit && swizzled(swizzle, image) == image);
    fits.then_some(first)
}

impl Images {
    fn inner_mn(&self) -> &[u32] {
        &self.mn[..self.inner[0]]
    }

    fn inner_k(&self) -> &[u32] {
        &self.k[..self.inner[1]]
    }

    /// Returns whether `images` are the offsets of consecutive elements.
    fn is_contiguous(&self, images: &[u32]) -> bool {
        images.iter().enumerate().all(|(bit, &image)| image == self.element_bytes << bit)
    }

    /// Returns whether the first three offsets are those of a group's lines.
    fn are_lines(swizzle: SwizzleMode, images: &[u32]) -> bool {
        let line = |bit: usize| swizzled(swizzle, line_bytes(swizzle) << bit);
        images.len() >= 3 && (0..3).all(|bit| images[bit] == line(bit))
    }

    fn k_major(&self, swizzle: SwizzleMode) -> Option<MatrixForm> {
        let (mn, k) = (self.inner_mn(), self.inner_k());
        let in_line = if swizzle == SwizzleMode::None { k.len() - 1 } else { k.len() };
        if !Self::are_lines(swizzle, mn) || !self.is_contiguous(&k[..in_line]) {
            return None;
        }
        let (leading, stride) = (doubling(swizzle, &k[in_line..])?, doubling(swizzle, &mn[3..])?);
        Some(MatrixForm { swizzle, is_mn_major: false, leading, stride })
    }

    /// Returns the form of rows of one chunk.
    fn chunks(&self, swizzle: SwizzleMode) -> Option<MatrixForm> {
        let mn = self.inner_mn();
        if !Self::are_lines(swizzle, mn) || !self.is_contiguous(self.inner_k()) {
            return None;
        }
        let stride = doubling(swizzle, &mn[3..])?;
        Some(MatrixForm { swizzle, is_mn_major: false, leading: CHUNK, stride })
    }

    fn mn_major(&self, swizzle: SwizzleMode) -> Option<MatrixForm> {
        let (mn, k) = (self.inner_mn(), self.inner_k());
        let in_line = ((line_bytes(swizzle) / self.element_bytes).ilog2() as usize).min(mn.len());
        let is_transposable = (self.min_transposed_bytes..=2).contains(&self.element_bytes);
        if !is_transposable || !Self::are_lines(swizzle, k) || !self.is_contiguous(&mn[..in_line]) {
            return None;
        }
        let (lines, groups) = (doubling(swizzle, &mn[in_line..])?, doubling(swizzle, &k[3..])?);
        let (leading, stride) = if swizzle == SwizzleMode::None { (groups, lines) } else { (lines, groups) };
        Some(MatrixForm { swizzle, is_mn_major: true, leading, stride })
    }

    /// Returns whether further instructions' parts of the tile have valid offsets. Each offset is a
    /// multiple of a chunk, which the swizzle does not change. It shares no bits with the offsets
    /// of other coordinate bits.
    fn fits_outside(&self, form: &MatrixForm) -> bool {
        let unswizzled = |image: u32| swizzled(form.swizzle, image);
        let inner = self.inner_mn().iter().chain(self.inner_k()).map(|&image| unswizzled(image));
        let mut taken = inner.fold(0, |taken, image| taken | image);
        self.mn[self.inner[0]..].iter().chain(&self.k[self.inner[1]..]).all(|&image| {
            let is_free = image & taken == 0 && image.is_multiple_of(CHUNK) && unswizzled(image) == image;
            taken |= image;
            is_free
        })
    }
}
