//! Memory of the host that a caller lends to a launch: the executor and the simulator access it
//! through regions.
#![expect(unsafe_code, reason = "user memory is known by address only; whoever makes a region promises it")]

use std::marker::PhantomData;

/// User memory that may be accessed, for as long as `'a`.
#[derive(Clone, Copy)]
pub struct Region<'a> {
    base: *mut u8,
    len: usize,
    /// The lowest bit is 1 if it may be written; the others are the bytes of padding. They share a
    /// word: store forwarding fails for a word if only a part of it was just written.
    flags: usize,
    lifetime: PhantomData<&'a ()>,
}

// SAFETY: a region is an address range; its constructor requires that all threads may access it.
unsafe impl Send for Region<'_> {}
// SAFETY: as above.
unsafe impl Sync for Region<'_> {}

impl<'a> Region<'a> {
    /// Makes the region of `len` bytes from `base`.
    ///
    /// # Safety
    ///
    /// For `'a`, these bytes are one allocation that may be read and written through `base` by all
    /// threads, and that is not referenced while a kernel runs. (Read-only memory is fine if no
    /// kernel stores to it.)
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

    /// Returns the same region followed by padding: these bytes are not memory. A launch that
    /// allows padding reads 0 there.
    #[must_use]
    #[inline]
    pub fn with_padding(self, bytes: usize) -> Self {
        Self { flags: bytes << 1 | self.flags & 1, ..self }
    }

    /// Returns the bytes of padding after it.
    #[inline]
    pub fn padding(&self) -> usize {
        self.flags >> 1
    }

    /// Returns whether `bytes` bytes from an address end in its padding, and begin in it or in the
    /// region.
    #[inline]
    pub fn pads(&self, address: u64, bytes: usize) -> bool {
        let end = address.wrapping_sub(self.address()).saturating_add(bytes as u64);
        address >= self.address() && end > self.len as u64 && end <= (self.len + self.padding()) as u64
    }

    /// Returns whether it may also be written.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Returns the address of its first byte.
    #[inline]
    pub fn address(&self) -> u64 {
        self.base.addr() as u64
    }

    /// Returns its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether `bytes` bytes from an address are in it.
    #[inline]
    pub fn contains(&self, address: u64, bytes: usize) -> bool {
        let offset = address.wrapping_sub(self.address());
        bytes <= self.len && offset <= (self.len - bytes) as u64
    }

    /// Returns the pointer to an address in it, with the provenance of the region.
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
