//! Runs of contiguous bytes: checked once, then read and written in blocks, in any order.

use std::marker::PhantomData;

use bytemuck::Pod;

use super::{AccessError, AccessErrorKind, LINE, Region, fetch_next, find_outside, run_axis, stream};

/// Contiguous bytes of user memory or of a tile. Like a [`Region`] it is no reference: others may write there meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct RunReader<'a> {
    first: *const u8,
    len: usize,
    lifetime: PhantomData<&'a ()>,
}

/// Contiguous bytes of user memory or of a tile, to be written.
pub(crate) struct RunWriter<'a> {
    first: *mut u8,
    len: usize,
    passes_caches: bool,
    lifetime: PhantomData<&'a mut ()>,
}

impl<'a> RunReader<'a> {
    /// The bytes of a tile.
    #[inline]
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { first: bytes.as_ptr(), len: bytes.len(), lifetime: PhantomData }
    }

    /// `len` bytes of user memory from an address, which hold elements of `size` bytes.
    #[inline]
    pub(crate) fn new(
        region: &Region<'a>,
        size: usize,
        address: u64,
        len: usize,
    ) -> Result<Self, AccessError> {
        if !region.contains(address, len) {
            return Err(find_outside(region, size, address, &[run_axis(size, len)]));
        }
        fetch_next::<false>(region, address, len);
        Ok(Self { first: region.pointer(address), len, lifetime: PhantomData })
    }

    /// The number of bytes.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The value whose bytes begin at an offset, which must be in the run.
    #[inline(always)]
    pub(crate) fn read<T: Pod>(&self, offset: usize) -> T {
        assert!(size_of::<T>() <= self.len && offset <= self.len - size_of::<T>(), "the value is in the run");
        // SAFETY: the bytes were checked when the run was made; a raw read needs no alignment.
        unsafe { self.first.add(offset).cast::<T>().read_unaligned() }
    }
}

impl<'a> RunWriter<'a> {
    /// The bytes of a tile.
    #[inline]
    pub(crate) fn of(bytes: &'a mut [u8]) -> Self {
        Self { first: bytes.as_mut_ptr(), len: bytes.len(), passes_caches: false, lifetime: PhantomData }
    }

    /// `len` bytes of user memory from an address, which hold elements of `size` bytes. See
    /// [`store_run`](super::store_run) for `passes_caches`.
    #[inline]
    pub(crate) fn new(
        region: &Region<'a>,
        size: usize,
        address: u64,
        len: usize,
        passes_caches: bool,
    ) -> Result<Self, AccessError> {
        if !region.contains(address, len) {
            return Err(find_outside(region, size, address, &[run_axis(size, len)]));
        }
        if !region.is_writable {
            return Err(AccessError { kind: AccessErrorKind::ReadOnly, element: 0, address });
        }
        let first = region.pointer(address);
        let passes_caches = passes_caches && first.addr().is_multiple_of(LINE);
        if !passes_caches {
            fetch_next::<true>(region, address, len);
        }
        Ok(Self { first, len, passes_caches, lifetime: PhantomData })
    }

    /// Puts a value where its bytes begin at an offset, which must be in the run.
    #[inline(always)]
    pub(crate) fn write<T: Pod>(&mut self, offset: usize, value: T) {
        assert!(size_of::<T>() <= self.len && offset <= self.len - size_of::<T>(), "the value is in the run");
        // SAFETY: the bytes were checked when the run was made; a raw write needs no alignment, and a stream begins at a
        // multiple of a line if the value is as long as some lines.
        unsafe {
            let place = self.first.add(offset);
            if self.passes_caches && size_of::<T>().is_multiple_of(LINE) && offset.is_multiple_of(LINE) {
                stream(place, bytemuck::bytes_of(&value));
            } else {
                place.cast::<T>().write_unaligned(value);
            }
        }
    }

    /// The same bytes, to be read.
    #[inline(always)]
    pub(crate) fn reader(&self) -> RunReader<'_> {
        RunReader { first: self.first, len: self.len, lifetime: PhantomData }
    }

    /// Whether what is written here would be read there at another place of the run.
    pub(crate) fn is_shifted_against(&self, read: &RunReader<'_>) -> bool {
        let (first, other) = (self.first.addr(), read.first.addr());
        first != other && first < other + read.len && other < first + self.len
    }
}
