//! The numeric inner loops of each op on dense tiles.
//!
//! A dense tile is a byte slice with its elements in row-major order, aligned to the size of an
//! element. Only [`buffer`] allocates memory for elements. Only `instructions` has `unsafe` code.
//!
//! | module | what it does | entry |
//! |---|---|---|
//! | [`elementwise`] | every row of the elementwise table on every element type | [`elementwise::apply`] |
//! | [`cast`] | every element type to every other | [`cast::cast`] |
//! | [`bitonic`] | bitonic merges and sorts along one axis | [`bitonic::merge`], [`bitonic::sort`] |
//! | [`scan`] | scan by a known combine function along one axis | [`scan::scan`] |
//! | [`reduce`] | reduction by a known combine function along one axis | [`reduce::reduce`] |
//! | [`dot`] | dot with an accumulator | [`dot::dot`] |
//! | [`buffer`] | aligned storage of tiles | |
//!
//! `fused` is the loop of a fused group, with the functions of `fused_math`. Helper modules:
//!
//! - `simd` selects the instruction set and splits tiles into blocks.
//! - `integer` and `float` are the loops of the elementwise table.
//! - `narrow` computes 16- and 8-bit floats in binary32.
//! - `math`, `math32` and `math64` are the functions of one element. They are branch-free, so that
//!   a block of elements is vectorized.
//! - `formats` converts one element between floating-point formats.
//! - `shuffle` transposes blocks of registers.
//!
//! The formulas of one element are generic over the traits of `lanes`, so that nests compute the
//! same formulas.
//!
//! The results do not depend on the instruction set, except those of a dot of bf16 (see [`dot`]).
//! Sums have a fixed order. Every fused multiply-add is explicit, and emulated where the processor
//! lacks the instruction.
#![allow(
    clippy::inline_always,
    reason = "only inlined functions are compiled for the instruction set of the caller"
)]
#![allow(
    clippy::many_single_char_names,
    clippy::similar_names,
    reason = "formulas are read in their usual letters"
)]
#![allow(clippy::needless_range_loop, reason = "loops over several arrays of one length read best by index")]

pub mod bitonic;
pub mod buffer;
pub mod cast;
pub mod dot;
pub mod elementwise;
mod float;
pub(crate) mod formats;
pub(crate) mod fused;
pub(crate) mod fused_math;
pub mod instructions;
mod integer;
pub(crate) mod lanes;
pub(crate) mod math;
pub(crate) mod math32;
pub(crate) mod math64;
pub(crate) mod narrow;
pub mod reduce;
pub mod scan;
pub(crate) mod shuffle;
mod simd;

use bytemuck::Pod;

/// An operand of an elementwise function.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A dense tile with the number of elements of the result.
    Tile(&'a [u8]),
    /// One value for all elements. Bits above its width are ignored.
    Scalar(u64),
    /// The current content of the result buffer: the function works in place.
    Out,
}

trait Element: Pod + Default {
    fn from_word(bits: u64) -> Self;
}

macro_rules! element {
    ($($ty:ty, $bits:ident => $value:expr;)*) => {$(
        impl Element for $ty {
            fn from_word($bits: u64) -> Self { $value }
        }
    )*};
}
element! {
    u8, bits => bits as u8; u16, bits => bits as u16; u32, bits => bits as u32; u64, bits => bits;
    i8, bits => bits as i8; i16, bits => bits as i16; i32, bits => bits as i32; i64, bits => bits as i64;
    f32, bits => f32::from_bits(bits as u32); f64, bits => f64::from_bits(bits);
}

#[derive(Clone, Copy)]
enum Source<'a, T> {
    Tile(&'a [T]),
    Scalar(T),
    Out,
}

impl<'a, T: Element> Source<'a, T> {
    fn new(operand: Operand<'a>) -> Self {
        match operand {
            Operand::Tile(bytes) => Source::Tile(typed(bytes)),
            Operand::Scalar(bits) => Source::Scalar(T::from_word(bits)),
            Operand::Out => Source::Out,
        }
    }
}

fn typed<T: Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(bytes)
}

fn typed_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}
