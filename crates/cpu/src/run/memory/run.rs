//! Reads and writes runs of contiguous bytes, which are checked once, at creation.

use std::marker::PhantomData;

use bytemuck::Pod;

use super::{AccessError, LINE, Region, prefetch_after, readable_run, stream, writable_run};

/// Contiguous bytes of user memory or of a tile. Like a [`Region`], it is not a reference: other
/// threads may write to the bytes at the same time.
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
    /// 1 if stores are non-temporal, otherwise 0. It is a whole word, because store forwarding
    /// fails for a copy that loads a byte with other fields.
    non_temporal: usize,
    lifetime: PhantomData<&'a mut ()>,
}

impl<'a> RunReader<'a> {
    pub(crate) const EMPTY: Self = Self { first: std::ptr::dangling(), len: 0, lifetime: PhantomData };

    #[inline]
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { first: bytes.as_ptr(), len: bytes.len(), lifetime: PhantomData }
    }

    /// Returns a reader of `len` bytes of user memory, in elements of `size` bytes. Fails if a byte
    /// is outside of the region.
    #[inline(always)]
    pub(crate) fn new(
        region: &Region<'a>,
        size: usize,
        address: u64,
        len: usize,
    ) -> Result<Self, AccessError> {
        let first = readable_run(region, size, address, len)?;
        prefetch_after::<false>(region, address, len);
        Ok(Self { first, len, lifetime: PhantomData })
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Reads the value at an offset in bytes. The value has to be in the run.
    #[inline(always)]
    pub(crate) fn read<T: Pod>(&self, offset: usize) -> T {
        assert!(size_of::<T>() <= self.len && offset <= self.len - size_of::<T>(), "the value is in the run");
        // SAFETY: the bytes were checked when the run was created; a raw read needs no alignment.
        unsafe { self.first.add(offset).cast::<T>().read_unaligned() }
    }

    /// Copies bytes from an offset. The bytes have to be in the run.
    #[inline]
    pub(crate) fn copy_to(&self, offset: usize, out: &mut [u8]) {
        assert!(out.len() <= self.len && offset <= self.len - out.len(), "the bytes are in the run");
        // SAFETY: the bytes were checked when the run was created; `out` is the only reference to
        // its bytes.
        unsafe { self.first.add(offset).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
    }

    /// Returns N values at an offset in bytes. The values have to be in the run.
    #[inline(always)]
    pub(crate) fn part<T: Pod, const N: usize>(&self, offset: usize) -> RunPart<'a, T, N> {
        let bytes = N * size_of::<T>();
        assert!(bytes <= self.len && offset <= self.len - bytes, "the values are in the run");
        RunPart { first: self.first.wrapping_add(offset).cast(), lifetime: PhantomData }
    }
}

/// N values of a run, which are read one by one.
#[derive(Clone, Copy)]
pub(crate) struct RunPart<'a, T, const N: usize> {
    first: *const T,
    lifetime: PhantomData<&'a T>,
}

impl<T: Pod, const N: usize> RunPart<'_, T, N> {
    #[inline(always)]
    pub(crate) fn read(&self, index: usize) -> T {
        assert!(index < N, "the value is in the part");
        // SAFETY: the run has N values from `first` on. Its bytes were checked when it was created.
        // A raw read needs no alignment.
        unsafe { self.first.add(index).read_unaligned() }
    }
}

impl<'a> RunWriter<'a> {
    #[inline]
    pub(crate) fn of(bytes: &'a mut [u8]) -> Self {
        Self { first: bytes.as_mut_ptr(), len: bytes.len(), non_temporal: 0, lifetime: PhantomData }
    }

    /// Returns a writer of `len` bytes of user memory, in elements of `size` bytes. Fails if a byte
    /// is outside of the region, or if the region is read-only. See [`store_run`](super::store_run)
    /// for `non_temporal`.
    #[inline(always)]
    pub(crate) fn new(
        region: &Region<'a>,
        size: usize,
        address: u64,
        len: usize,
        non_temporal: bool,
    ) -> Result<Self, AccessError> {
        let first = writable_run(region, size, address, len)?;
        let non_temporal = non_temporal && first.addr().is_multiple_of(LINE);
        Ok(Self { first, len, non_temporal: non_temporal.into(), lifetime: PhantomData })
    }

    /// Writes bytes at an offset. The bytes have to be in the run.
    #[inline]
    pub(crate) fn copy_from(&mut self, offset: usize, bytes: &[u8]) {
        assert!(bytes.len() <= self.len && offset <= self.len - bytes.len(), "the bytes are in the run");
        // SAFETY: the bytes of the run were checked when the run was created. They do not overlap
        // `bytes`: no reference to user memory exists, and a writer of a tile borrows the tile
        // mutably.
        unsafe { self.first.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Returns N values at an offset in bytes, for writing. The values have to be in the run.
    #[inline(always)]
    pub(crate) fn part<T: Pod, const N: usize>(&mut self, offset: usize) -> RunPartMut<'_, T, N> {
        let bytes = N * size_of::<T>();
        assert!(bytes <= self.len && offset <= self.len - bytes, "the values are in the run");
        let first = self.first.wrapping_add(offset);
        let non_temporal = self.non_temporal != 0 && offset.is_multiple_of(LINE);
        RunPartMut { first: first.cast(), non_temporal, lifetime: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn reader(&self) -> RunReader<'a> {
        RunReader { first: self.first, len: self.len, lifetime: PhantomData }
    }

    /// Returns whether the runs overlap but begin at different addresses. A loop would then read
    /// what it has overwritten.
    pub(crate) fn is_shifted_against(&self, read: &RunReader<'_>) -> bool {
        let (first, other) = (self.first.addr(), read.first.addr());
        read.len > 0 && first != other && first < other + read.len && other < first + self.len
    }
}

/// N values of a run, which are written one by one.
pub(crate) struct RunPartMut<'a, T, const N: usize> {
    first: *mut T,
    non_temporal: bool,
    lifetime: PhantomData<&'a mut T>,
}

impl<T: Pod, const N: usize> RunPartMut<'_, T, N> {
    /// Returns whether the caller should write by [`stream`](Self::stream): the writer is
    /// non-temporal, the values begin at a cache line, and each fills whole lines.
    #[inline(always)]
    pub(crate) fn non_temporal(&self) -> bool {
        self.non_temporal && size_of::<T>().is_multiple_of(LINE)
    }

    #[inline(always)]
    pub(crate) fn write(&mut self, index: usize, value: T) {
        assert!(index < N, "the value is in the part");
        // SAFETY: the run has N values from `first` on. Its bytes were checked when it was created.
        // A raw write needs no alignment.
        unsafe { self.first.add(index).write_unaligned(value) };
    }

    /// Writes the value at an index with a non-temporal store.
    #[inline(always)]
    pub(crate) fn stream(&mut self, index: usize, value: T) {
        assert!(index < N && self.non_temporal(), "the value is in the part, and as long as some lines");
        // SAFETY: the run has N checked values from `first` on. `first` is a multiple of a line,
        // and each value fills whole lines.
        unsafe { stream(self.first.add(index).cast(), bytemuck::bytes_of(&value)) };
    }
}
