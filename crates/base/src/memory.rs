//! Defines the CPU memory that a caller lends to a launch of a kernel.
#![expect(
    unsafe_code,
    reason = "user memory is known by its address only; the caller of `Region::new` promises that \
              it may be accessed"
)]

use std::marker::PhantomData;

/// A range of user memory that a launch may access during `'a`.
#[derive(Clone, Copy)]
pub struct Region<'a> {
    base: *mut u8,
    len: usize,
    /// Bit 0 is 1 if the region may be written; the other bits are the number of bytes of padding.
    /// They share a word, because a copy of the region loads whole words. A CPU cannot forward the
    /// store of a single byte to such a load.
    flags: usize,
    lifetime: PhantomData<&'a ()>,
}

// SAFETY: a region is an address range; its constructor requires that all threads may access it.
unsafe impl Send for Region<'_> {}
// SAFETY: see `Send`.
unsafe impl Sync for Region<'_> {}

impl<'a> Region<'a> {
    /// Makes the region of `len` bytes from `base`.
    ///
    /// # Safety
    ///
    /// For `'a`, these bytes are one allocation that all threads may read and write through `base`.
    /// No Rust reference points into the allocation while a kernel runs. (The memory may be
    /// read-only if no kernel stores to it.)
    #[inline]
    pub unsafe fn new(base: *mut u8, len: usize) -> Self {
        Self { base, len, flags: 1, lifetime: PhantomData }
    }

    /// Makes the region of a slice.
    #[inline]
    pub fn of(bytes: &'a mut [u8]) -> Self {
        Self { base: bytes.as_mut_ptr(), len: bytes.len(), flags: 1, lifetime: PhantomData }
    }

    /// Makes the region of a shared slice, which may only be read.
    #[inline]
    pub fn read_only(bytes: &'a [u8]) -> Self {
        Self { base: bytes.as_ptr().cast_mut(), len: bytes.len(), flags: 0, lifetime: PhantomData }
    }

    /// Returns the same region followed by `bytes` bytes of padding. Padding is not memory: a
    /// launch that allows padding reads zeros from it.
    #[must_use]
    #[inline]
    pub fn with_padding(self, bytes: usize) -> Self {
        Self { flags: bytes << 1 | self.flags & 1, ..self }
    }

    /// Returns the number of bytes of padding after the region.
    #[inline]
    pub fn padding(&self) -> usize {
        self.flags >> 1
    }

    /// Returns whether the `bytes` bytes at `address` begin in the region or its padding, and end
    /// in the padding.
    #[inline]
    pub fn pads(&self, address: u64, bytes: usize) -> bool {
        let end = address.wrapping_sub(self.address()).saturating_add(bytes as u64);
        address >= self.address() && end > self.len as u64 && end <= (self.len + self.padding()) as u64
    }

    /// Returns whether the region may also be written.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn address(&self) -> u64 {
        self.base.addr() as u64
    }

    /// Returns the length in bytes, without the padding.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the region contains all of the `bytes` bytes at `address`.
    #[inline]
    pub fn contains(&self, address: u64, bytes: usize) -> bool {
        let offset = address.wrapping_sub(self.address());
        bytes <= self.len && offset <= (self.len - bytes) as u64
    }

    /// Returns whether two regions have bytes in common.
    pub fn overlaps(&self, other: &Region<'_>) -> bool {
        let end = |region: &Region<'_>| region.address() + region.len as u64;
        self.address().max(other.address()) < end(self).min(end(other))
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // SAFETY: the region may be read while it exists, and the vector is new memory.
        unsafe { std::ptr::copy_nonoverlapping(self.base, bytes.as_mut_ptr(), self.len) };
        bytes
    }

    /// Writes `bytes` to the start of the region, but not past its end. Does nothing if the region
    /// may only be read.
    pub fn write(&self, bytes: &[u8]) {
        if !self.is_writable() {
            return;
        }
        let len = self.len.min(bytes.len());
        // SAFETY: the region may be written while it exists, and no reference points into it.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.base, len) };
    }

    /// Returns the pointer to an address in the region, with the provenance of its base.
    #[inline]
    pub fn pointer(&self, address: u64) -> *mut u8 {
        self.base.wrapping_add(address.wrapping_sub(self.address()) as usize)
    }
}

impl std::fmt::Debug for Region<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({:#x}, {} bytes)", self.address(), self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::Region;

    #[test]
    fn regions_overlap_if_they_have_common_bytes() {
        let bytes = [0; 16];
        let whole = Region::read_only(&bytes);
        for (range, expected) in [(0..1, true), (8..16, true), (8..8, false), (0..0, false), (16..16, false)]
        {
            let part = Region::read_only(&bytes[range.clone()]);
            assert_eq!((whole.overlaps(&part), part.overlaps(&whole)), (expected, expected), "{range:?}");
        }
        let [first, second] = [0..8, 8..16].map(|range| Region::read_only(&bytes[range]));
        assert!(!first.overlaps(&second) && !second.overlaps(&first), "neighbors");
    }
}
