//! Atomic operations: an address for each element.
//!
//! Every operation acquires and releases, whatever weaker order the program asks for.

use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use tilewright_ir::{Dtype, ElementwiseFn};

use super::scattered::{check, check_writable, find};
use super::{AccessError, AccessErrorKind, Region};
use crate::run::kernels::{Operand, elementwise};

/// How an atomic operation changes what is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicOp {
    /// The sum; integers wrap, floats round to nearest even.
    Add,
    /// The smaller one; NaN is ignored.
    Min,
    /// The larger one; NaN is ignored.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// The value.
    Exchange,
}

/// Replaces the element at each address by its combination with a value, one element after the other, where the mask is
/// not 0 or there is no mask; `old` receives what was there before. (Elsewhere `old` stays as it is.)
///
/// `dtype` is of 16, 32 or 64 bits. Fails, with nothing written, if an element is outside the regions or not aligned to
/// its size. Panics if the slices do not have equally many elements.
pub fn read_modify_write(
    regions: &[Region<'_>],
    op: AtomicOp,
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
        match op {
            AtomicOp::Add if dtype.is_int() => cell.fetch_add(value),
            AtomicOp::Exchange => cell.swap(value),
            _ => cell.update(|before| combine(op, dtype, before, value)),
        }
    })
}

/// Replaces the element of `size` bytes (2, 4 or 8) at each address by a value if its bits are the expected ones, one
/// element after the other; `old` receives what was there before. See [`read_modify_write`].
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

/// Checks all accesses, then calls a function for each element under the mask, with the place of its bytes in a tile; `old`
/// receives what the function returns.
fn each_cell(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
    old: &mut [u8],
    access: impl Fn(Cell<'_>, Range<usize>) -> u64,
) -> Result<(), AccessError> {
    check(regions, size, addresses, mask)?;
    check_alignment(size, addresses, mask)?;
    check_writable(regions, size, addresses, mask)?;
    for (element, &address) in addresses.iter().enumerate() {
        if mask.is_some_and(|mask| mask[element] == 0) {
            continue;
        }
        let place = element * size..(element + 1) * size;
        let before = access(Cell::new(regions, address, size), place.clone());
        old[place].copy_from_slice(&before.to_le_bytes()[..size]);
    }
    Ok(())
}

/// The function of the elementwise table that an operation is, on the bits in memory and those of a value.
fn combine(op: AtomicOp, dtype: Dtype, before: u64, value: u64) -> u64 {
    let function = match op {
        AtomicOp::Exchange => return value,
        AtomicOp::Add => ElementwiseFn::Add,
        AtomicOp::Min => ElementwiseFn::Min,
        AtomicOp::Max => ElementwiseFn::Max,
        AtomicOp::And => ElementwiseFn::And,
        AtomicOp::Or => ElementwiseFn::Or,
        AtomicOp::Xor => ElementwiseFn::Xor,
    };
    let mut bits = [0_u64];
    let out = &mut bytemuck::cast_slice_mut(&mut bits)[..dtype.bytes()];
    elementwise::apply(function, dtype, out, &[Operand::Scalar(before), Operand::Scalar(value)]);
    bits[0]
}

/// The bits of an element, zero-extended.
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
    Bits16(&'a AtomicU16),
    Bits32(&'a AtomicU32),
    Bits64(&'a AtomicU64),
}

impl<'a> Cell<'a> {
    /// The element at an address that is inside a region and aligned.
    fn new(regions: &'a [Region<'_>], address: i64, size: usize) -> Self {
        let region = find(regions, address, size).expect("the addresses are checked before");
        let pointer = region.pointer(address as u64);
        assert!(pointer.addr().is_multiple_of(size), "the alignment is checked before");
        // SAFETY: the element is inside a region, which lives for 'a, and aligned. The reference is to an atomic, and
        // racing accesses that are not atomic are what this module allows for.
        unsafe {
            match size {
                2 => Cell::Bits16(AtomicU16::from_ptr(pointer.cast())),
                4 => Cell::Bits32(AtomicU32::from_ptr(pointer.cast())),
                8 => Cell::Bits64(AtomicU64::from_ptr(pointer.cast())),
                _ => panic!("atomic elements have 2, 4 or 8 bytes"),
            }
        }
    }

    fn fetch_add(&self, value: u64) -> u64 {
        match self {
            Cell::Bits16(cell) => cell.fetch_add(value as u16, Ordering::AcqRel).into(),
            Cell::Bits32(cell) => cell.fetch_add(value as u32, Ordering::AcqRel).into(),
            Cell::Bits64(cell) => cell.fetch_add(value, Ordering::AcqRel),
        }
    }

    fn swap(&self, value: u64) -> u64 {
        match self {
            Cell::Bits16(cell) => cell.swap(value as u16, Ordering::AcqRel).into(),
            Cell::Bits32(cell) => cell.swap(value as u32, Ordering::AcqRel).into(),
            Cell::Bits64(cell) => cell.swap(value, Ordering::AcqRel),
        }
    }

    fn load(&self) -> u64 {
        match self {
            Cell::Bits16(cell) => cell.load(Ordering::Acquire).into(),
            Cell::Bits32(cell) => cell.load(Ordering::Acquire).into(),
            Cell::Bits64(cell) => cell.load(Ordering::Acquire),
        }
    }

    /// What was there before; it was replaced if it was the expected one.
    fn compare_exchange(&self, expected: u64, value: u64) -> u64 {
        const ORDER: Ordering = Ordering::AcqRel;
        const FAILED: Ordering = Ordering::Acquire;
        match self {
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
