//! The 64-bit matrix descriptor of `wgmma` operands in shared memory.
//!
//! | bits | field |
//! |---|---|
//! | 0–13 | start address / 16 |
//! | 16–29 | leading dimension byte offset / 16 |
//! | 32–45 | stride dimension byte offset / 16 |
//! | 49–51 | base offset: the shift of the swizzle's pattern, in units of 128 bytes |
//! | 62–63 | swizzle: none, 128, 64, 32 bytes |
//!
//! A matrix has chunks of 16 bytes, along k if it is K-major, and along m (or n) if it is MN-major.
//! `line` is the line of the swizzle in bytes, and `leading` and `stride` are the byte offsets:
//!
//! - K-major: a group has 8 rows, `line` bytes apart. Groups are `stride` bytes apart. Without a
//!   swizzle, the two chunks of a row are `leading` bytes apart, otherwise adjacent.
//! - MN-major: a line is along m. The lines of 8 successive k form a group (4 with the swizzle of
//!   pairs of chunks, which only `tcgen05` has). Without a swizzle, lines along m are `stride`
//!   bytes apart, and groups `leading` bytes. With a swizzle, the two offsets are exchanged.

use std::ops::Range;

use super::Element;
use super::fragment::Matrix;
use super::swizzle::Swizzle;

/// The contiguous dimension of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Major {
    /// The dimension k: A is stored row by row, and B column by column.
    K,
    /// The dimension m of A or n of B: the layouts are the transposes of the K-major ones.
    Mn,
}

/// The fields of a matrix descriptor, offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// The address of the first element in the shared memory of the block.
    pub start: u32,
    /// The leading dimension byte offset.
    pub leading: u32,
    /// The stride dimension byte offset.
    pub stride: u32,
    /// The shift of the swizzle's pattern, in units of 128 bytes.
    pub base_offset: u32,
    /// The swizzle.
    pub swizzle: Swizzle,
}

impl From<u64> for Descriptor {
    fn from(bits: u64) -> Self {
        let offset = |low: u32| (bits >> low & 0x3fff) as u32 * 16;
        let swizzle = [Swizzle::None, Swizzle::Bytes128, Swizzle::Bytes64, Swizzle::Bytes32];
        Self {
            start: offset(0),
            leading: offset(16),
            stride: offset(32),
            base_offset: (bits >> 49 & 7) as u32,
            swizzle: swizzle[(bits >> 62) as usize],
        }
    }
}

impl Descriptor {
    /// Returns the address of chunk `chunk` along the contiguous dimension, at index `across` of
    /// the other.
    pub fn address(&self, major: Major, across: u32, chunk: u32) -> u32 {
        let line = self.swizzle.line_bytes();
        let none = self.swizzle == Swizzle::None;
        let lines = if self.swizzle == Swizzle::Bytes128Pairs { 4 } else { 8 };
        let (group, row) = (across / lines, across % lines);
        let offset = match major {
            Major::K => {
                let apart = if none { self.leading } else { 16 };
                row * line + group * self.stride + chunk * apart
            }
            Major::Mn => {
                let (next_line, next_group) =
                    if none { (self.stride, self.leading) } else { (self.leading, self.stride) };
                let chunks = line / 16;
                row * line + group * next_group + chunk % chunks * 16 + chunk / chunks * next_line
            }
        };
        self.swizzle.apply(self.start.wrapping_add(offset), self.base_offset * 128)
    }

    /// Reads a matrix of `depth` columns (k). Chunks have `in_chunk` elements from their first bit
    /// on. In an MN-major matrix, the rows begin at a multiple of them. `read` returns the chunk at
    /// an address.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn read<T: Copy + Default, E>(
        &self,
        rows: Range<usize>,
        depth: usize,
        (element, in_chunk): (Element, usize),
        major: Major,
        decode: impl Fn(Element, u64) -> T,
        mut read: impl FnMut(u32) -> Result<u128, E>,
    ) -> Result<Matrix<T>, E> {
        let mut matrix = Matrix::new(rows.len(), depth);
        let (contiguous, across) =
            if major == Major::K { (0..depth, rows.clone()) } else { (rows.clone(), 0..depth) };
        for index in across {
            for chunk in contiguous.start / in_chunk..contiguous.end.div_ceil(in_chunk) {
                let bits = read(self.address(major, index as u32, chunk as u32))?;
                for place in 0..in_chunk {
                    let along = chunk * in_chunk + place;
                    let (row, k) = if major == Major::K { (index, along) } else { (along, index) };
                    if !rows.contains(&row) || k >= depth {
                        continue;
                    }
                    matrix[(row - rows.start, k)] =
                        decode(element, (bits >> (place as u32 * element.bits())) as u64);
                }
            }
        }
        Ok(matrix)
    }
}

#[cfg(test)]
mod tests;
