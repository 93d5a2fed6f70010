//! Atomic operations with an address for each element.
//!
//! An operation that reads is an acquire, and one that writes is a release, also if the program
//! requests a weaker order.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use tilewright_ir::{AtomicKind, Dtype, ElementwiseFn};

use super::scattered::{check, check_writable, find};
use super::{AccessError, AccessErrorKind, Region, fence_stores};
use crate::run::kernels::{Operand, elementwise};

/// Combines the element at each address with a value, one element after another, where the mask is
/// absent or not 0. `old` receives the previous elements; masked-off ones stay unchanged.
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
    each_cell(regions, size, addresses, mask, old, |cell, place| {
        let value = word(&values[place]);
        match kind {
            AtomicKind::Add if dtype.is_int() => cell.fetch_add(value),
            AtomicKind::Exchange => cell.swap(value),
            AtomicKind::Add
            | AtomicKind::And
            | AtomicKind::Or
            | AtomicKind::Xor
            | AtomicKind::Max
            | AtomicKind::Min => cell.update(|before| combine(kind, dtype, before, value)),
        }
    })
}

/// Replaces the element of `size` bytes (2, 4 or 8) at each address by a value if its bits equal
/// the expected bits, one element after another. `old` receives the previous elements. See
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
    each_cell(regions, size, addresses, mask, old, |cell, place| {
        cell.compare_exchange(word(&expected[place.clone()]), word(&values[place]))
    })
}

/// Reads the element of `size` bytes (1, 2, 4 or 8) at each address, where the mask is absent or
/// not 0; masked-off elements of `out` stay unchanged. See [`read_modify_write`].
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

/// Writes the element of `size` bytes (1, 2, 4 or 8) at each address, where the mask is absent or
/// not 0. See [`read_modify_write`].
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

/// Checks all accesses, then calls a function for each element under the mask, with the range of
/// its bytes in a tile; `old` receives the results of the function.
fn each_cell(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
    old: &mut [u8],
    access: impl Fn(Cell<'_>, Range<usize>) -> u64,
) -> Result<(), AccessError> {
    check_changes(regions, size, addresses, mask)?;
    each(regions, size, addresses, mask, |cell, place| {
        let before = access(cell, place.clone());
        old[place].copy_from_slice(&before.to_le_bytes()[..size]);
    });
    Ok(())
}

/// Checks that every element under the mask is inside a writable region, and aligned to its size.
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
fn each(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
    mut access: impl FnMut(Cell<'_>, Range<usize>),
) {
    // Earlier non-temporal stores become visible first.
    fence_stores();
    for (element, &address) in addresses.iter().enumerate() {
        if mask.is_none_or(|mask| mask[element] != 0) {
            access(Cell::new(regions, address, size), element * size..(element + 1) * size);
        }
    }
}

/// Computes the bits that an operation stores, from the old bits and the bits of a value.
fn combine(kind: AtomicKind, dtype: Dtype, before: u64, value: u64) -> u64 {
    // Compares floats by their bits. If `value` is positive, the floats have the order of their
    // bits as signed integers. If it is negative, they have the opposite order of their bits as
    // unsigned integers.
    let is_negative = value >> (dtype.bits() - 1) & 1 == 1;
    let ordered = match (dtype.is_float() && kind != AtomicKind::Add, is_negative) {
        (true, true) => integer(dtype.bits(), false),
        (true, false) => integer(dtype.bits(), true),
        (false, _) => dtype,
    };
    let is_reversed = ordered != dtype && is_negative;
    let function = match kind {
        AtomicKind::Exchange => return value,
        AtomicKind::Add => ElementwiseFn::Add,
        AtomicKind::Min if is_reversed => ElementwiseFn::Max,
        AtomicKind::Max if is_reversed => ElementwiseFn::Min,
        AtomicKind::Min => ElementwiseFn::Min,
        AtomicKind::Max => ElementwiseFn::Max,
        AtomicKind::And => ElementwiseFn::And,
        AtomicKind::Or => ElementwiseFn::Or,
        AtomicKind::Xor => ElementwiseFn::Xor,
    };
    let mut bits = [0_u64];
    let out = &mut bytemuck::cast_slice_mut(&mut bits)[..dtype.bytes()];
    elementwise::apply(function, ordered, out, &[Operand::Scalar(before), Operand::Scalar(value)]);
    bits[0]
}

/// Returns the integer type of a width.
fn integer(bits: u32, signed: bool) -> Dtype {
    match (bits, signed) {
        (16, false) => Dtype::U16,
        (16, true) => Dtype::I16,
        (32, false) => Dtype::U32,
        (32, true) => Dtype::I32,
        (64, false) => Dtype::U64,
        (64, true) => Dtype::I64,
        _ => panic!("floats that are compared have 16, 32 or 64 bits"),
    }
}

/// Returns the bits of an element, zero-extended.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn check_alignment(size: usize, addresses: &[i64], mask: Option<&[u8]>) -> Result<(), AccessError> {
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
    /// Returns the element at an address that is inside a region and aligned.
    fn new(regions: &'a [Region<'_>], address: i64, size: usize) -> Self {
        let region = find(regions, address, size).expect("the addresses are checked before");
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

    fn fetch_add(&self, value: u64) -> u64 {
        match self {
            Cell::Bits8(cell) => cell.fetch_add(value as u8, Ordering::AcqRel).into(),
            Cell::Bits16(cell) => cell.fetch_add(value as u16, Ordering::AcqRel).into(),
            Cell::Bits32(cell) => cell.fetch_add(value as u32, Ordering::AcqRel).into(),
            Cell::Bits64(cell) => cell.fetch_add(value, Ordering::AcqRel),
        }
    }

    fn swap(&self, value: u64) -> u64 {
        match self {
            Cell::Bits8(cell) => cell.swap(value as u8, Ordering::AcqRel).into(),
            Cell::Bits16(cell) => cell.swap(value as u16, Ordering::AcqRel).into(),
            Cell::Bits32(cell) => cell.swap(value as u32, Ordering::AcqRel).into(),
            Cell::Bits64(cell) => cell.swap(value, Ordering::AcqRel),
        }
    }

    fn load(&self) -> u64 {
        match self {
            Cell::Bits8(cell) => cell.load(Ordering::Acquire).into(),
            Cell::Bits16(cell) => cell.load(Ordering::Acquire).into(),
            Cell::Bits32(cell) => cell.load(Ordering::Acquire).into(),
            Cell::Bits64(cell) => cell.load(Ordering::Acquire),
        }
    }

    /// Returns the old bits. If they equal the expected bits, `value` has replaced them.
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
