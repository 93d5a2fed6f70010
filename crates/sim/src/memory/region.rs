//! Implements global memory: host memory of the caller, shared by all simulator threads.
//!
//! Kernels may race, so the code refers to this memory only as atomics. It accesses aligned
//! elements by relaxed atomic operations, as the hardware does, and other bytes one by one. Each
//! access is first checked against the regions.
#![expect(
    unsafe_code,
    reason = "user memory is known only by address; every access is checked against a region"
)]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use tilewright_base::memory::Region;

use super::Space;
use crate::fault::FaultKind;
use crate::padding::{PaddedReads, Reader};

#[derive(Debug)]
struct Lent<'a> {
    region: Region<'a>,
    /// The index of the region in the caller's list.
    number: usize,
    /// The device address of a byte minus its host address, wrapping.
    to_device: u64,
}

/// All memory that a launch may access.
#[derive(Debug)]
pub struct Global<'a> {
    /// The regions, by address.
    regions: Vec<Lent<'a>>,
    /// Collects loads from padding, which are faults without a collector.
    padded: Option<&'a PaddedReads>,
    counts_changes: bool,
    /// The number of accesses that changed bytes, if `counts_changes` is set. Writes of more than
    /// 64 bytes always count.
    changes: AtomicU64,
}

/// The alignment of allocations of a driver, in bytes.
const DEVICE_ALIGNMENT: u64 = 256;

impl<'a> Global<'a> {
    /// Creates the memory of these regions. Regions may overlap; an access has to lie within one of
    /// them.
    pub fn new(regions: &[Region<'a>]) -> Self {
        let mut numbered: Vec<_> =
            regions.iter().copied().zip(0..).filter(|(region, _)| !region.is_empty()).collect();
        numbered.sort_by_key(|(region, _)| (region.address(), region.len()));
        // Overlapping regions are parts of one allocation, which begins at the first region.
        let (mut end, mut device_end, mut to_device) = (0, 0_u64, 0);
        let place = |(region, number): (Region<'a>, usize)| {
            let address = region.address();
            if address >= end {
                to_device = device_end.next_multiple_of(DEVICE_ALIGNMENT).wrapping_sub(address);
            }
            end = end.max(address + region.len() as u64);
            device_end = end.wrapping_add(to_device);
            Lent { region, number, to_device }
        };
        let regions = numbered.into_iter().map(place).collect();
        Self { regions, padded: None, counts_changes: false, changes: AtomicU64::new(0) }
    }

    /// Sets the collector of loads from padding.
    pub fn noting(self, padded: Option<&'a PaddedReads>) -> Self {
        Self { padded, ..self }
    }

    /// Reads bytes. `at` returns the instruction and the reader. In a launch with a collector of
    /// loads from padding, padding reads as 0, and the collector records the load.
    #[inline]
    pub fn load(
        &self,
        hint: &mut usize,
        address: u64,
        to: &mut [u8],
        at: impl FnOnce() -> (u32, Reader),
    ) -> Result<(), FaultKind> {
        match (self.read(hint, address, to), self.padded) {
            (Err(kind @ FaultKind::OutOfBounds { .. }), Some(padded)) => {
                let is_padding = |lent: &&Lent<'_>| lent.region.pads(address, to.len());
                let Some(lent) = self.regions.iter().find(is_padding) else { return Err(kind) };
                let end = lent.region.address() + lent.region.len() as u64;
                let (inside, outside) = to.split_at_mut(end.saturating_sub(address) as usize);
                if !inside.is_empty() {
                    self.read(hint, address, inside)?;
                }
                outside.fill(0);
                let (instruction, reader) = at();
                padded.note(instruction, reader, kind);
                Ok(())
            }
            (outcome, _) => outcome,
        }
    }

    /// Returns the device address of an accessed byte. Allocations begin at multiples of 256 there,
    /// so the sectors of an access do not depend on the host's allocator.
    pub fn device_address(&self, hint: &mut usize, address: u64) -> u64 {
        let is_hit = self.regions.get(*hint).is_some_and(|lent| lent.region.contains(address, 1));
        if !is_hit && self.find(hint, address, 1, false).is_err() {
            return address;
        }
        address.wrapping_add(self.regions[*hint].to_device)
    }

    /// Returns a pointer to the bytes at an address, if a region contains them. `hint` caches the
    /// last region.
    #[inline]
    fn check(
        &self,
        hint: &mut usize,
        address: u64,
        bytes: usize,
        is_store: bool,
    ) -> Result<*mut u8, FaultKind> {
        let region = match self.regions.get(*hint) {
            Some(lent) if lent.region.contains(address, bytes) => &lent.region,
            _ => self.find(hint, address, bytes, is_store)?,
        };
        if is_store && !region.is_writable() {
            return Err(FaultKind::ReadOnly { address });
        }
        Ok(region.pointer(address))
    }

    #[cold]
    fn find(
        &self,
        hint: &mut usize,
        address: u64,
        bytes: usize,
        is_store: bool,
    ) -> Result<&Region<'a>, FaultKind> {
        let end = self.regions.partition_point(|lent| lent.region.address() <= address);
        // Overlapping regions are rare, so a search through all earlier regions is fast enough.
        for index in (0..end).rev() {
            if self.regions[index].region.contains(address, bytes) {
                *hint = index;
                return Ok(&self.regions[index].region);
            }
        }
        let miss = |Lent { region, number, .. }: &Lent<'a>| {
            let start = address.wrapping_sub(region.address()) as i64;
            let past = start.saturating_add(bytes as i64).saturating_sub(region.len() as i64);
            let distance = if start < 0 { start } else { past };
            // An access that misses a region by more than its size probably has another target.
            (distance.unsigned_abs() <= region.len() as u64).then_some((*number, distance))
        };
        let misses = self.regions.iter().filter_map(miss);
        let nearest = misses.min_by_key(|(_, distance)| distance.unsigned_abs());
        Err(FaultKind::OutOfBounds { space: Space::Global, is_store, address, bytes: bytes as u32, nearest })
    }

    /// Reads bytes in elements as wide as the alignment allows.
    #[inline]
    pub fn read(&self, hint: &mut usize, address: u64, to: &mut [u8]) -> Result<(), FaultKind> {
        let pointer = self.check(hint, address, to.len(), false)?;
        let mut at = 0;
        while at < to.len() {
            // SAFETY: `check` has shown that the bytes lie in a region, and `element_size` that the
            // element is aligned.
            unsafe {
                let from = pointer.add(at);
                match element_size(from, to.len() - at) {
                    8 => {
                        to[at..at + 8].copy_from_slice(&atomic64(from).load(Ordering::Relaxed).to_le_bytes());
                    }
                    4 => {
                        to[at..at + 4].copy_from_slice(&atomic32(from).load(Ordering::Relaxed).to_le_bytes());
                    }
                    2 => {
                        to[at..at + 2].copy_from_slice(&atomic16(from).load(Ordering::Relaxed).to_le_bytes());
                    }
                    _ => to[at] = AtomicU8::from_ptr(from).load(Ordering::Relaxed),
                }
                at += element_size(from, to.len() - at);
            }
        }
        Ok(())
    }

    /// Writes bytes in elements as wide as the alignment allows.
    #[inline]
    pub fn write(&self, hint: &mut usize, address: u64, from: &[u8]) -> Result<(), FaultKind> {
        let pointer = self.check(hint, address, from.len(), true)?;
        let mut old = [0; 64];
        let old = if self.counts_changes && from.len() <= old.len() {
            self.read(hint, address, &mut old[..from.len()])?;
            Some(&old[..from.len()])
        } else {
            None
        };
        let mut at = 0;
        while at < from.len() {
            let rest = &from[at..];
            // SAFETY: the same as in `read`.
            let size = unsafe {
                let to = pointer.add(at);
                let size = element_size(to, rest.len());
                match size {
                    8 => atomic64(to).store(u64::from_le_bytes(array(rest)), Ordering::Relaxed),
                    4 => atomic32(to).store(u32::from_le_bytes(array(rest)), Ordering::Relaxed),
                    2 => atomic16(to).store(u16::from_le_bytes(array(rest)), Ordering::Relaxed),
                    _ => AtomicU8::from_ptr(to).store(rest[0], Ordering::Relaxed),
                }
                size
            };
            at += size;
        }
        if self.counts_changes && old.is_none_or(|old| old != from) {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Applies a function to an aligned element of 1, 2, 4 or 8 bytes, atomically. Returns the old
    /// element.
    pub fn update(
        &self,
        hint: &mut usize,
        address: u64,
        size: usize,
        mut change: impl FnMut(u64) -> u64,
    ) -> Result<u64, FaultKind> {
        if !address.is_multiple_of(size as u64) {
            let alignment = size as u32;
            return Err(FaultKind::Misaligned { space: Space::Global, is_store: true, address, alignment });
        }
        let pointer = self.check(hint, address, size, true)?;
        let order = Ordering::SeqCst;
        let mut has_changed = false;
        let mut change = |old| {
            let new = change(old);
            has_changed = new != old;
            new
        };
        // SAFETY: the element lies in a region and is aligned.
        let old = unsafe {
            match size {
                8 => atomic64(pointer)
                    .fetch_update(order, order, |old| Some(change(old)))
                    .unwrap_or_else(|old| old),
                4 => atomic32(pointer)
                    .fetch_update(order, order, |old| Some(change(u64::from(old)) as u32))
                    .map_or_else(u64::from, u64::from),
                2 => atomic16(pointer)
                    .fetch_update(order, order, |old| Some(change(u64::from(old)) as u16))
                    .map_or_else(u64::from, u64::from),
                _ => AtomicU8::from_ptr(pointer)
                    .fetch_update(order, order, |old| Some(change(u64::from(old)) as u8))
                    .map_or_else(u64::from, u64::from),
            }
        };
        if has_changed && self.counts_changes {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
        Ok(old)
    }

    /// Begins to count the accesses that change bytes.
    pub fn count_changes(&mut self) {
        self.counts_changes = true;
    }

    /// Returns how many accesses have changed bytes while they were counted.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }
}

/// Returns the size of the widest aligned element at a pointer, at most `bytes`.
#[inline]
fn element_size(pointer: *mut u8, bytes: usize) -> usize {
    let alignment = pointer.addr() | 8;
    let aligned = 1_usize << alignment.trailing_zeros();
    let mut size = aligned.min(8);
    while size > bytes {
        size /= 2;
    }
    size
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("an element is within the bytes")
}

/// # Safety
///
/// The pointer is valid and aligned for the element.
#[inline]
unsafe fn atomic64<'a>(pointer: *mut u8) -> &'a AtomicU64 {
    // SAFETY: the caller guarantees it.
    unsafe { AtomicU64::from_ptr(pointer.cast()) }
}

/// # Safety
///
/// The pointer is valid and aligned for the element.
#[inline]
unsafe fn atomic32<'a>(pointer: *mut u8) -> &'a AtomicU32 {
    // SAFETY: the caller guarantees it.
    unsafe { AtomicU32::from_ptr(pointer.cast()) }
}

/// # Safety
///
/// The pointer is valid and aligned for the element.
#[inline]
unsafe fn atomic16<'a>(pointer: *mut u8) -> &'a AtomicU16 {
    // SAFETY: the caller guarantees it.
    unsafe { AtomicU16::from_ptr(pointer.cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_changes_one_element() {
        for (size, last) in [(1, 3), (2, 2), (4, 0)] {
            let mut bytes = [0xff_u8; 8];
            let memory = Global::new(&[Region::of(&mut bytes)]);
            let address = memory.regions[0].region.address();
            let old = memory.update(&mut 0, address + last, size, |old| old - 1).unwrap();
            assert_eq!(old, u64::MAX >> (64 - 8 * size), "{size}");
            let mut expected = [0xff_u8; 8];
            expected[last as usize] = 0xfe;
            assert_eq!(bytes, expected, "{size}");
        }
    }
}
