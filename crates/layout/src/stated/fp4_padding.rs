//! Shared memory with elements of 4 bits for dots that also have elements of 8 bits: the hardware
//! reads 16 elements from the first half of each 16 bytes.

use super::{Misfit, Sizes, StatedBuffer};
use crate::f2::Columns;
use crate::map::Layout;
use crate::space::{Hardware, Input, Tile};

/// The bytes of elements of 4 bits between paddings of the same size.
pub(super) const FP4_INTERVAL: u32 = 8;

impl StatedBuffer {
    /// Returns the linear layout of bytes with elements of 4 bits, without their padding.
    pub(super) fn fp4_padded(&self, shape: &[u32], element_bits: u32) -> Result<Layout, Misfit> {
        const LINE_BYTES: u32 = 128;
        let mut own = self.clone();
        let Self::Nvmma { swizzle_byte_width, transposed, fp4_padded, .. } = &mut own else {
            return Err(format!("{self} has no padding of elements of 4 bits"));
        };
        *fp4_padded = false;
        if *swizzle_byte_width != LINE_BYTES || *transposed {
            return Err(format!(
                "{self} needs a swizzle of {LINE_BYTES} bytes, and rows along the last axis"
            ));
        }
        let last = shape.len() - 1;
        let mut padded = Sizes::from_slice(shape);
        padded[last] *= 2;
        let whole = own.linear(&padded, element_bits).map_err(|error| format!("{self}: {error}"))?;
        let tile = Tile::new(shape);
        let bases = whole.bases(Input::Offset).iter().enumerate();
        let used = bases.filter(|(bit, _)| 1 << bit != FP4_INTERVAL).map(|(_, column)| {
            let mut at: Sizes = whole.output().coordinates(*column).iter().copied().collect();
            at[last] = at[last] & (FP4_INTERVAL - 1) | (at[last] / 2) & !(FP4_INTERVAL - 1);
            tile.index(&at)
        });
        let columns: Columns = used.collect();
        let bits = columns.len() as u32;
        Ok(Layout::new(Hardware::new(&[(Input::Offset, bits)]), tile, columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_swizzle_is_that_of_the_padded_bytes() {
        let memory: StatedBuffer = "NVMMASharedLayout(128, 8, 2, False, True)".parse().unwrap();
        assert_eq!(memory.padding().collect::<Vec<_>>(), [(8, 8)]);
        let placement = memory.linear(&[16, 128], 8).unwrap().inverse().unwrap();
        for (row, byte) in [(0, 5), (3, 9), (7, 63), (9, 70)] {
            let offset = placement.apply(placement.input().index(&[row, byte]));
            let padded = offset + offset / 8 * 8;
            // Lines of 128 bytes, in which the row moves chunks of 16 bytes; then the next columns.
            let (line, chunk) = (byte / 64, byte % 64 / 8);
            let expected = (line * 16 + row) * 128 + (chunk ^ (row % 8)) * 16 + byte % 8;
            assert_eq!(padded, expected, "{row} {byte}");
        }
    }

    #[test]
    fn other_layouts_are_an_error() {
        for (text, shape) in [
            ("NVMMASharedLayout(64, 8, 2, False, True)", [16, 64]),
            ("NVMMASharedLayout(128, 8, 2, True, True)", [64, 16]),
            ("NVMMASharedLayout(128, 16, 2, False, True)", [16, 64]),
            ("NVMMASharedLayout(128, 8, 2, False, True)", [16, 32]),
        ] {
            let memory: StatedBuffer = text.parse().unwrap();
            assert!(memory.linear(&shape, 8).is_err(), "{text}");
        }
    }
}
