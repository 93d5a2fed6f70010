//! Implements arithmetic on the bits of single values, with the rounding of PTX.
//!
//! Values are in the low bits of a `u64`; the other bits are zero.
//!
//! - [`exact`]: numbers with enough bits for exact results;
//! - [`float`]: arithmetic on f16, bf16, f32 and f64;
//! - [`approximate`]: the functions that the hardware approximates;
//! - [`convert`]: conversions between all types;
//! - [`integer`]: integer arithmetic and bit manipulation.

pub mod approximate;
pub mod convert;
pub mod exact;
pub mod float;
pub mod integer;

pub use exact::{Format, Number, Rounding};

/// Returns the low bits of a value.
#[inline]
pub fn low(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

/// Sign-extends the low bits of a value.
#[inline]
pub fn signed(value: u64, bits: u32) -> i64 {
    let unused = 64 - bits.min(64);
    ((value << unused) as i64) >> unused
}
