//! Provides the memory of a module's variables, which lives as long as the module.
#![expect(unsafe_code, reason = "kernels write variables by address, as they do the caller's memory")]

use std::sync::atomic::AtomicU64;

use super::Region;

/// The alignment of the storage in bytes. A module with a greater alignment is rejected.
pub const ALIGNMENT: u64 = 128;

#[derive(Debug)]
pub struct Storage {
    /// Several threads write the words through a shared reference.
    words: Box<[AtomicU64]>,
    bytes: usize,
}

impl Storage {
    /// Creates `bytes` bytes of zeros.
    pub fn new(bytes: usize) -> Self {
        let words = bytes.div_ceil(8) + ALIGNMENT as usize / 8;
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), bytes }
    }

    /// Returns the bytes as a region, at a multiple of [`ALIGNMENT`].
    pub fn region(&self) -> Region<'_> {
        let start = self.words.as_ptr().cast::<u8>().cast_mut();
        let offset = start.align_offset(ALIGNMENT as usize);
        // SAFETY: the words are atomics, so they may be written through a shared reference. The
        // bytes after the first aligned address fit into the words, and the words live as long as
        // the region.
        unsafe { Region::new(start.wrapping_add(offset), self.bytes) }
    }
}
