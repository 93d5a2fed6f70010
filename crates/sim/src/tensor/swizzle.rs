//! Implements the swizzles of shared memory that tensor copies write and `wgmma` reads.
//!
//! A swizzle XORs the index of a 16-byte chunk in a line with address bits from bit 7 on. The same
//! chunk of successive lines is then in different banks:
//!
//! ```text
//! 128-byte lines:  row 0: 0 1 2 3 4 5 6 7
//!                  row 1: 1 0 3 2 5 4 7 6
//! ```
//! The swizzle acts on the address, not on the offset in a tile. The pattern repeats after 256, 512
//! or 1024 bytes, and a tile may begin inside of it.

/// The permutation of the chunks of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// No permutation.
    None,
    /// Lines of two chunks: bit 4 of the address is XOR-ed with bit 7.
    Bytes32,
    /// Lines of four chunks: bits 4 and 5 are XOR-ed with bits 7 and 8.
    Bytes64,
    /// Lines of eight chunks: bits 4 to 6 are XOR-ed with bits 7 to 9.
    Bytes128,
    /// Lines of four pairs of chunks: bits 5 and 6 are XOR-ed with bits 7 and 8.
    Bytes128Pairs,
}

impl Swizzle {
    /// Returns the bytes of a permuted line, or of one chunk without a permutation.
    pub fn line_bytes(self) -> u32 {
        match self {
            Self::None => 16,
            Self::Bytes32 => 32,
            Self::Bytes64 => 64,
            Self::Bytes128 | Self::Bytes128Pairs => 128,
        }
    }

    /// Returns the swizzled address, for a pattern that begins at address `origin` (a multiple of
    /// 128).
    pub fn apply(self, address: u32, origin: u32) -> u32 {
        let (shift, mask) = match self {
            Self::Bytes128Pairs => (2, 0x60),
            Self::None | Self::Bytes32 | Self::Bytes64 | Self::Bytes128 => (3, self.line_bytes() - 16),
        };
        address ^ (address.wrapping_sub(origin) >> shift & mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_move_as_the_drawings_of_the_isa_show() {
        // Chunk c of row r of the 128-byte pattern is at index c xor r. For narrower patterns, r is
        // the index of the 128-byte line.
        for row in 0..16 {
            for chunk in 0..8 {
                let address = row * 128 + chunk * 16;
                let place = |swizzle: Swizzle| swizzle.apply(address + 5, 0) - row * 128;
                assert_eq!(place(Swizzle::Bytes128), (chunk ^ (row % 8)) * 16 + 5);
                assert_eq!(place(Swizzle::Bytes64), (chunk ^ (row % 4)) * 16 + 5);
                assert_eq!(place(Swizzle::Bytes32), (chunk ^ (row % 2)) * 16 + 5);
                assert_eq!(place(Swizzle::None), chunk * 16 + 5);
                let pair = (chunk / 2) ^ (row % 4);
                assert_eq!(place(Swizzle::Bytes128Pairs), pair * 32 + chunk % 2 * 16 + 5);
            }
        }
    }

    #[test]
    fn a_shifted_pattern_begins_at_its_origin() {
        for offset in (0..2048).step_by(16) {
            let there = Swizzle::Bytes128.apply(384 + offset, 384);
            assert_eq!(there & !0x70, (384 + offset) & !0x70);
            assert_eq!((there ^ (384 + offset)) >> 4, offset >> 7 & 7);
        }
    }
}
