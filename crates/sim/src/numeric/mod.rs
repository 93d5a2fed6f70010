//! Implements arithmetic on the bits of single values, with the rounding that PTX defines.
//!
//! Values are in the low bits of a `u64`, zero above. The functions depend on types and modifiers,
//! but not on registers.
//!
//! - [`exact`]: numbers with enough bits for exact results, rounded once at the end;
//! - [`float`]: arithmetic on f16, bf16, f32 and f64, with flushed subnormals and saturation;
//! - [`approximate`]: the functions that the hardware approximates, computed in binary64;
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
