//! Loads from and stores to user memory, in `unsafe` code.
//!
//! Programs of the grid may access user memory at the same time without synchronization. The code
//! therefore never creates a reference to it, and copies only through raw pointers. If programs
//! race, a loaded element may mix the bytes of different stores. Only atomic operations need
//! aligned addresses.
//!
//! A [`Region`] is memory that may be accessed. Its creator guarantees that it stays valid. Each
//! function checks all its accesses before the first one. If an access is illegal
//! ([`AccessErrorKind`]), the function writes nothing.
//!
//! - `run` accesses contiguous elements.
//! - `block` accesses strided blocks, with the loops that `plan` determines.
//! - `matrix` reads, packs and multiplies matrices.
//! - `scattered` gathers and scatters elements.
//! - `atomics` accesses elements that other programs change at the same time.
//! - `machine_code` calls machine code, which itself checks its accesses to user memory.
#![expect(
    unsafe_code,
    reason = "user memory is known only by address; every access is checked against a region"
)]
#![allow(
    clippy::inline_always,
    reason = "only inlined functions are compiled for the instruction set of the caller"
)]

mod atomics;
mod block;
mod machine_code;
mod matrix;
mod plan;
mod run;
mod scattered;

pub use atomics::{compare_exchange, load_each, read_modify_write, store_each};
pub use block::{load_block, rearrange, store_block};
pub(crate) use machine_code::call_machine_code;
pub use matrix::MatrixReader;
pub(crate) use matrix::{MatrixIdentity, Multiply, Real, is_inside, multiply};
pub use plan::{Axis, dense_axes, extent};
pub(crate) use run::{RunPart, RunReader, RunWriter};
pub use scattered::{gather, in_padding, scatter};
pub use tilewright_base::memory::Region;

use crate::tuning::PREFETCHED_BYTES;

/// The size of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// The reason why an access is illegal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessErrorKind {
    /// A byte of the access is outside of the regions.
    OutOfBounds,
    /// The access is atomic, and its address is not a multiple of its size.
    Misaligned,
    /// The access writes to a read-only region.
    ReadOnly,
}

/// The first illegal access of a function that has failed. Nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessError {
    /// The reason why the access is illegal.
    pub kind: AccessErrorKind,
    /// The row-major index of the element.
    pub element: usize,
    /// The address of the element.
    pub address: u64,
}

/// Reads a run of contiguous elements. This is a fast path of [`load_block`] for one axis.
#[inline]
pub fn load_run(region: &Region<'_>, size: usize, address: u64, tile: &mut [u8]) -> Result<(), AccessError> {
    let memory = readable_run(region, size, address, tile.len())?;
    // SAFETY: the region has at least the tile's bytes from `memory` on.
    unsafe { memory.copy_to_nonoverlapping(tile.as_mut_ptr(), tile.len()) };
    prefetch_after::<false>(region, address, tile.len());
    Ok(())
}

/// Writes a run of contiguous elements. This is a fast path of [`store_block`] for one axis.
///
/// `non_temporal` is for data that no thread reads soon. Other threads may see the data only after
/// this thread has executed a store fence or an atomic operation on memory. A launch executes a
/// store fence before it returns.
#[inline]
pub fn store_run(
    region: &Region<'_>,
    size: usize,
    address: u64,
    tile: &[u8],
    non_temporal: bool,
) -> Result<(), AccessError> {
    let memory = writable_run(region, size, address, tile.len())?;
    if non_temporal && memory.addr().is_multiple_of(LINE) {
        // SAFETY: the region has at least the tile's bytes from `memory` on, which is a multiple of
        // a line.
        unsafe { stream(memory, tile) };
        return Ok(());
    }
    // SAFETY: the region has at least the tile's bytes from `memory` on.
    unsafe { memory.copy_from_nonoverlapping(tile.as_ptr(), tile.len()) };
    prefetch_after::<true>(region, address, tile.len());
    Ok(())
}

/// Copies a tile with non-temporal stores: the processor writes cache lines without reading them
/// first.
///
/// # Safety
///
/// The memory is valid for writes of the tile's length, and aligned to a cache line.
#[allow(clippy::cast_ptr_alignment, reason = "the caller promises the alignment")]
unsafe fn stream(memory: *mut u8, tile: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{__m128i, _mm_stream_si128};
        let (words, rest) = tile.as_chunks::<16>();
        for (index, word) in words.iter().enumerate() {
            // SAFETY: the caller guarantees the memory. A word of 16 bytes at a multiple of 16 is
            // within a line.
            unsafe {
                let memory = memory.add(index * 16).cast::<__m128i>();
                _mm_stream_si128(memory, bytemuck::cast::<[u8; 16], __m128i>(*word));
            }
        }
        // SAFETY: the caller keeps the contract of this function.
        unsafe { memory.add(words.len() * 16).copy_from_nonoverlapping(rest.as_ptr(), rest.len()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller keeps the contract of this function.
    unsafe {
        memory.copy_from_nonoverlapping(tile.as_ptr(), tile.len());
    };
}

/// Advises huge pages for a region: in new memory, one page fault then replaces hundreds.
pub(crate) fn advise_large_pages(region: &Region<'_>) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        /// The size of huge pages, or a divisor of this size.
        const LARGE: u64 = 2 << 20;
        let first = region.address().next_multiple_of(LARGE);
        let end = (region.address() + region.len() as u64) / LARGE * LARGE;
        if first < end {
            // SAFETY: these pages are inside of the region, and keep their content.
            unsafe {
                libc::madvise(region.pointer(first).cast(), (end - first) as usize, libc::MADV_HUGEPAGE);
            }
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = region;
}

/// Orders non-temporal stores before later synchronization with other threads.
pub(crate) fn fence_stores() {
    // SAFETY: every processor of this architecture has the instruction, and it touches no memory.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    };
}

/// Prefetches the memory after a long run, which the next program of this thread probably accesses.
/// The hardware prefetcher does not cross pages.
#[inline]
fn prefetch_after<const STORE: bool>(region: &Region<'_>, address: u64, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= PREFETCHED_BYTES && region.contains(address, bytes + PREFETCHED_BYTES) {
        use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T1, _mm_prefetch};
        for line in (0..PREFETCHED_BYTES).step_by(LINE) {
            let line = region.pointer(address).wrapping_add(bytes + line).cast::<i8>();
            // SAFETY: a prefetch of any address is allowed.
            unsafe {
                if STORE { _mm_prefetch::<_MM_HINT_ET0>(line) } else { _mm_prefetch::<_MM_HINT_T1>(line) }
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (region, address, bytes, PREFETCHED_BYTES);
}

/// Checks a run to read. Returns the address of its first byte.
#[inline(always)]
fn readable_run(
    region: &Region<'_>,
    size: usize,
    address: u64,
    bytes: usize,
) -> Result<*mut u8, AccessError> {
    if !region.contains(address, bytes) {
        let axis = Axis { count: bytes / size, stride: size as i64, tile: 1 };
        return Err(find_outside(region, size, address, &[axis]));
    }
    Ok(region.pointer(address))
}

/// Checks a run to write. Returns the address of its first byte.
#[inline(always)]
fn writable_run(
    region: &Region<'_>,
    size: usize,
    address: u64,
    bytes: usize,
) -> Result<*mut u8, AccessError> {
    let memory = readable_run(region, size, address, bytes)?;
    if !region.is_writable() {
        return Err(AccessError { kind: AccessErrorKind::ReadOnly, element: 0, address });
    }
    Ok(memory)
}

/// Returns the error for the first element, in row-major order, outside of the region.
#[cold]
fn find_outside(region: &Region<'_>, size: usize, address: u64, axes: &[Axis]) -> AccessError {
    let elements: usize = axes.iter().map(|axis| axis.count).product();
    let mut first = None;
    for element in 0..elements {
        let (mut rest, mut at) = (element, address);
        for axis in axes.iter().rev() {
            at = at.wrapping_add_signed(((rest % axis.count) as i64).wrapping_mul(axis.stride));
            rest /= axis.count;
        }
        if !region.contains(at, size) {
            first = Some((element, at));
            break;
        }
    }
    // If no element is outside, the extent of the block overflows 64 bits. The error names the
    // first element.
    let (element, address) = first.unwrap_or((0, address));
    AccessError { kind: AccessErrorKind::OutOfBounds, element, address }
}

#[cfg(test)]
mod tests;
