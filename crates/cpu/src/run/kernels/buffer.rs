//! Stores tiles, aligned to a cache line, so that no vector access straddles two lines.
//!
//! Buffers of half a page or more begin at different offsets in their pages, to avoid 4K aliasing:
//! a load waits for a pending store if their addresses differ by a multiple of 4096. A loop over
//! two aliasing tiles takes twice as long.

use std::cell::Cell;

use bytemuck::{Pod, Zeroable};

/// The alignment of tiles in bytes.
pub const ALIGNMENT: usize = 64;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// The number of cache lines in a page.
const PAGE: usize = 4096 / ALIGNMENT;

/// The distance in lines between the page offsets of successive buffers. It is odd, so that all
/// offsets occur. It is not close to a half, a third or a quarter of a page, so that a few
/// successive offsets are far apart.
const STAGGER: usize = 25;

fn next_page_offset(lines: usize) -> usize {
    thread_local! {
        static OFFSET: Cell<usize> = const { Cell::new(0) };
    }
    if lines < PAGE / 2 {
        return 0;
    }
    OFFSET.try_with(|offset| offset.replace((offset.get() + STAGGER) % PAGE)).unwrap_or(0)
}

/// The payload of the panic after a failed allocation. The launch catches it and returns an error.
#[derive(Clone, Copy, Debug)]
pub struct OutOfMemory;

/// Bytes aligned to [`ALIGNMENT`].
#[derive(Clone, Default)]
pub struct Buffer {
    lines: Vec<Line>,
    /// The number of unused lines before the first byte.
    skipped: usize,
    len: usize,
    /// The length in bytes of the varying prefix. The rest consists of copies of one binary32
    /// number.
    varying: usize,
}

impl Buffer {
    /// Creates a buffer of `len` zero bytes. Unwinds with [`OutOfMemory`] if the allocation fails.
    pub fn new(len: usize) -> Self {
        let skipped = next_page_offset(len.div_ceil(ALIGNMENT));
        let mut buffer = Self { lines: Vec::new(), skipped, len: 0, varying: 0 };
        buffer.resize(len);
        buffer
    }

    /// Sets the length and grows the storage if necessary. The content is unspecified afterwards.
    pub fn resize(&mut self, len: usize) {
        let lines = self.skipped + len.div_ceil(ALIGNMENT);
        if lines > self.lines.len() {
            if self.lines.try_reserve_exact(lines - self.lines.len()).is_err() {
                std::panic::resume_unwind(Box::new(OutOfMemory));
            }
            self.lines.resize(lines, Line::zeroed());
        }
        (self.len, self.varying) = (len, len);
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[self.skipped * ALIGNMENT..][..self.len]
    }

    /// Returns the bytes for writing.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.varying = self.len;
        &mut bytemuck::cast_slice_mut(&mut self.lines)[self.skipped * ALIGNMENT..][..self.len]
    }
}

impl Buffer {
    /// Returns the length in bytes of the varying prefix. The rest consists of copies of one
    /// binary32 number.
    pub(crate) fn varying(&self) -> usize {
        self.varying
    }

    /// Sets the length of the varying prefix, in bytes. [`Self::bytes_mut`] and [`Self::resize`]
    /// reset it to the whole buffer.
    pub(crate) fn set_varying(&mut self, bytes: usize) {
        self.varying = bytes;
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_begin_at_different_places_of_their_pages() {
        let buffers: Vec<Buffer> = (0..8).map(|_| Buffer::new(4096)).collect();
        let places: Vec<usize> = buffers.iter().map(|buffer| buffer.skipped).collect();
        for (index, place) in places.iter().enumerate() {
            assert!(!places[..index].contains(place), "{places:?}");
            assert_eq!(buffers[index].bytes().as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(buffers[index].bytes().len(), 4096);
        }
        assert_eq!(Buffer::new(64).skipped, 0);
    }
}
