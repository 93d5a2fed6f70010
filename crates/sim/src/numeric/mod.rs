//! Arithmetic on the bits of single values, with the rounding that PTX defines.
//!
//! Values stand in the low bits of a `u64`, zero above. The functions know types and modifiers, but no registers.
//!
//! - [`exact`]: numbers with as many bits as an operation gives, rounded once at the end;
//! - [`float`]: arithmetic on f16, bf16, f32, f64, with subnormals flushed and results saturated where asked;
//! - [`approximate`]: the functions that the hardware computes approximately, here as good as binary64 gives;
//! - [`convert`]: conversions between all types;
//! - [`integer`]: arithmetic and bits of integers.

pub mod approximate;
pub mod convert;
pub mod exact;
pub mod float;
pub mod integer;

pub use exact::{Format, Number, Rounding};

/// The low bits of a value.
#[inline]
pub fn low(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

/// The signed value of so many low bits.
#[inline]
pub fn signed(value: u64, bits: u32) -> i64 {
    let unused = 64 - bits.min(64);
    ((value << unused) as i64) >> unused
}
