//! Performs atomic operations with an address for each element.
//!
//! Reads are acquires and writes are releases, even if the program requests a weaker order.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use tilewright_ir::{AtomicKind, Dtype, ElementwiseFn};

use super::scattered::{check, check_writable, find};
use super::{AccessError, AccessErrorKind, Region, fence_stores};
use crate::run::kernels::{Operand, elementwise};

/// Combines the element at each address with a value, one element after another. Skips the elements
/// whose mask is 0. `old` receives the previous elements; its masked-off elements stay unchanged.
///
/// `dtype` has 16, 32 or 64 bits. Fails, with nothing written, if an element is outside the
/// regions, in a read-only region, or not aligned to its size. Panics if the slices have different
/// numbers of elements.
pub fn read_modify_write(
    regions: &[Region<'_>],
    kind: AtomicKind,
    dtype: Dtype,
    addresses: &[i64],
    mask: Option<&[u8]>,
    values: &[u8],
    old: &mut [u8],
) -> Result<(), AccessError> {
    let size = dtype.bytes();
    assert!(
        values.len() == addresses.len() * size && old.len() == values.len(),
        "as many elements as addresses"
    );
    // Each arm compiles a separate loop.
    macro_rules! update {
        ($next:expr) => {{
            let next = $next;
            each_cell(regions, size, addresses, mask, ([values], old), |cell, [value]| {
                cell.update(|before| next(before, value))
            })
        }};
    }
    match (kind, dtype) {
        (AtomicKind::Exchange, _) => {
            each_cell(regions, size, addresses, mask, ([values], old), |cell, [value]| cell.swap(value))
        }
        (AtomicKind::Add, _) if dtype.is_int() => {
            each_cell(regions, size, addresses, mask, ([values], old), |cell, [value]| cell.fetch_add(value))
        }
        (AtomicKind::Add, Dtype::F32) => update!(|x, y| {
            let sum = f32::from_bits(x as u32) + f32::from_bits(y as u32);
            sum.to_bits().into()
        }),
        (AtomicKind::Add, Dtype::F64) => {
            update!(|x, y| (f64::from_bits(x) + f64::from_bits(y)).to_bits())
        }
        (AtomicKind::Add, _) => update!(|x, y| narrow_sum(dtype, x, y)),
        (AtomicKind::And, _) => update!(|x, y| x & y),
        (AtomicKind::Or, _) => update!(|x, y| x | y),
        (AtomicKind::Xor, _) => update!(|x, y| x ^ y),
        (AtomicKind::Max | AtomicKind::Min, _) => {
            update!(|x, y| extreme(dtype, kind == AtomicKind::Min, x, y))
        }
    }
}

/// Replaces each element whose bits equal the expected bits with a value, one element after
/// another. Elements have 2, 4 or 8 bytes. `old` receives the previous elements. See
/// [`read_modify_write`].
pub fn compare_exchange(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
    expected: &[u8],
    values: &[u8],
    old: &mut [u8],
) -> Result<(), AccessError> {
    let bytes = addresses.len() * size;
    assert!(
        expected.len() == bytes && values.len() == bytes && old.len() == bytes,
        "as many elements as addresses"
    );
    each_cell(regions, size, addresses, mask, ([expected, values], old), |cell, [expected, value]| {
        cell.compare_exchange(expected, value)
    })
}

/// Reads the element of `size` bytes (1, 2, 4 or 8) at each address. Skips the elements whose mask
/// is 0: these elements of `out` stay unchanged. See [`read_modify_write`].
pub fn load_each(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
    out: &mut [u8],
) -> Result<(), AccessError> {
    assert!(out.len() == addresses.len() * size, "as many elements as addresses");
    check(regions, size, addresses, mask)?;
    check_alignment(size, addresses, mask)?;
    each(regions, size, addresses, mask, |cell, place| {
        out[place].copy_from_slice(&cell.load().to_le_bytes()[..size]);
    });
    Ok(())
}

/// Writes the element of `size` bytes (1, 2, 4 or 8) at each address. Skips the elements whose mask
/// is 0. See [`read_modify_write`].
pub fn store_each(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
    values: &[u8],
) -> Result<(), AccessError> {
    assert!(values.len() == addresses.len() * size, "as many elements as addresses");
    check_changes(regions, size, addresses, mask)?;
    each(regions, size, addresses, mask, |cell, place| {
        cell.swap(word(&values[place]));
    });
    Ok(())
}

/// Checks all accesses, then calls a function for each element under the mask. `old` receives the
/// results.
fn each_cell<const N: usize>(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
    (operands, old): ([&[u8]; N], &mut [u8]),
    access: impl Fn(Cell<'_>, [u64; N]) -> u64,
) -> Result<(), AccessError> {
    check_changes(regions, size, addresses, mask)?;
    // Each arm compiles a separate loop, without a branch on the width.
    macro_rules! of_size {
        ($size:literal) => {
            each(regions, $size, addresses, mask, |cell, place| {
                let mut words = [0; N];
                for (word_of, bytes) in words.iter_mut().zip(operands) {
                    *word_of = word(&bytes[place.start..][..$size]);
                }
                let before = access(cell, words);
                old[place.start..][..$size].copy_from_slice(&before.to_le_bytes()[..$size]);
            })
        };
    }
    match size {
        2 => of_size!(2),
        4 => of_size!(4),
        8 => of_size!(8),
        _ => panic!("atomic operations that compute have 2, 4 or 8 bytes"),
    }
    Ok(())
}

/// Checks that every element under the mask is writable and aligned.
fn check_changes(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
) -> Result<(), AccessError> {
    check(regions, size, addresses, mask)?;
    check_alignment(size, addresses, mask)?;
    check_writable(regions, size, addresses, mask)
}

/// Calls a function for each element under the mask, with the range of its bytes in a tile.
#[inline(always)]
fn each(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
    mut access: impl FnMut(Cell<'_>, Range<usize>),
) {
    // Earlier non-temporal stores become visible first.
    fence_stores();
    let mut last = None;
    for (element, &address) in addresses.iter().enumerate() {
        if mask.is_none_or(|mask| mask[element] != 0) {
            let holds = |region: &&Region<'_>| region.contains(address as u64, size);
            let region = last.filter(holds).or_else(|| find(regions, address, size));
            let region = region.expect("the addresses are checked before");
            last = Some(region);
            access(Cell::new(region, address, size), element * size..(element + 1) * size);
        }
    }
}

/// Returns the bits of the sum of two 16-bit floats.
fn narrow_sum(dtype: Dtype, before: u64, value: u64) -> u64 {
    let mut bits = [0_u64];
    let out = &mut bytemuck::cast_slice_mut(&mut bits)[..dtype.bytes()];
    elementwise::apply(ElementwiseFn::Add, dtype, out, &[Operand::Scalar(before), Operand::Scalar(value)]);
    bits[0]
}

/// Returns the lesser or the greater of two elements.
///
/// Floats are compared by their bits: as signed integers if `value` is positive, and in the reverse
/// order of unsigned integers if it is negative.
fn extreme(dtype: Dtype, is_min: bool, before: u64, value: u64) -> u64 {
    let unused = 64 - dtype.bits();
    let signed = |bits: u64| (bits << unused) as i64;
    let is_reversed = dtype.is_float() && signed(value) < 0;
    let is_signed = if dtype.is_float() { !is_reversed } else { dtype.is_signed() };
    let is_less = if is_signed { signed(before) < signed(value) } else { before < value };
    if is_less == (is_min != is_reversed) { before } else { value }
}

#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn check_alignment(size: usize, addresses: &[i64], mask: Option<&[u8]>) -> Result<(), AccessError> {
    let bits = addresses.iter().fold(0, |bits, address| bits | address);
    if (bits as u64).is_multiple_of(size as u64) {
        return Ok(());
    }
    for (element, &address) in addresses.iter().enumerate() {
        let on = mask.is_none_or(|mask| mask[element] != 0);
        if on && !(address as u64).is_multiple_of(size as u64) {
            return Err(AccessError { kind: AccessErrorKind::Misaligned, element, address: address as u64 });
        }
    }
    Ok(())
}

/// An element of memory as an atomic integer of its width.
enum Cell<'a> {
    Bits8(&'a AtomicU8),
    Bits16(&'a AtomicU16),
    Bits32(&'a AtomicU32),
    Bits64(&'a AtomicU64),
}

impl<'a> Cell<'a> {
    /// Returns the element at an address that is inside the region and aligned.
    #[inline(always)]
    fn new(region: &'a Region<'_>, address: i64, size: usize) -> Self {
        let pointer = region.pointer(address as u64);
        assert!(pointer.addr().is_multiple_of(size), "the alignment is checked before");
        // SAFETY: the element is inside a region, which lives for 'a, and aligned. The reference is
        // to an atomic, and this module allows racing accesses that are not atomic.
        unsafe {
            match size {
                1 => Cell::Bits8(AtomicU8::from_ptr(pointer)),
                2 => Cell::Bits16(AtomicU16::from_ptr(pointer.cast())),
                4 => Cell::Bits32(AtomicU32::from_ptr(pointer.cast())),
                8 => Cell::Bits64(AtomicU64::from_ptr(pointer.cast())),
                _ => panic!("atomic elements have 1, 2, 4 or 8 bytes"),
            }
        }
    }

    #[inline(always)]
    fn fetch_add(&self, value: u64) -> u64 {
        match self {
            Cell::Bits8(cell) => cell.fetch_add(value as u8, Ordering::AcqRel).into(),
            Cell::Bits16(cell) => cell.fetch_add(value as u16, Ordering::AcqRel).into(),
            Cell::Bits32(cell) => cell.fetch_add(value as u32, Ordering::AcqRel).into(),
            Cell::Bits64(cell) => cell.fetch_add(value, Ordering::AcqRel),
        }
    }

    #[inline(always)]
    fn swap(&self, value: u64) -> u64 {
        match self {
            Cell::Bits8(cell) => cell.swap(value as u8, Ordering::AcqRel).into(),
            Cell::Bits16(cell) => cell.swap(value as u16, Ordering::AcqRel).into(),
            Cell::Bits32(cell) => cell.swap(value as u32, Ordering::AcqRel).into(),
            Cell::Bits64(cell) => cell.swap(value, Ordering::AcqRel),
        }
    }

    #[inline(always)]
    fn load(&self) -> u64 {
        match self {
            Cell::Bits8(cell) => cell.load(Ordering::Acquire).into(),
            Cell::Bits16(cell) => cell.load(Ordering::Acquire).into(),
            Cell::Bits32(cell) => cell.load(Ordering::Acquire).into(),
            Cell::Bits64(cell) => cell.load(Ordering::Acquire),
        }
    }

    /// Returns the old bits. If they equal the expected bits, `value` has replaced them.
    #[inline(always)]
    fn compare_exchange(&self, expected: u64, value: u64) -> u64 {
        const ORDER: Ordering = Ordering::AcqRel;
        const FAILED: Ordering = Ordering::Acquire;
        match self {
            Cell::Bits8(cell) => match cell.compare_exchange(expected as u8, value as u8, ORDER, FAILED) {
                Ok(before) | Err(before) => before.into(),
            },
            Cell::Bits16(cell) => match cell.compare_exchange(expected as u16, value as u16, ORDER, FAILED) {
                Ok(before) | Err(before) => before.into(),
            },
            Cell::Bits32(cell) => match cell.compare_exchange(expected as u32, value as u32, ORDER, FAILED) {
                Ok(before) | Err(before) => before.into(),
            },
            Cell::Bits64(cell) => match cell.compare_exchange(expected, value, ORDER, FAILED) {
                Ok(before) | Err(before) => before,
            },
        }
    }

    #[inline(always)]
    fn update(&self, next: impl Fn(u64) -> u64) -> u64 {
        let mut before = self.load();
        loop {
            let found = self.compare_exchange(before, next(before));
            if found == before {
                return before;
            }
            before = found;
        }
    }
}
