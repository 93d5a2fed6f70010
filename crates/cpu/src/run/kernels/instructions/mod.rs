//! Instructions that multiply words of narrow elements, and their tokens.
//!
//! A word of 32 bits has 2 or 4 elements with consecutive k. An instruction adds the products of
//! two words to a lane of the accumulator. The existence of a token proves that the processor has
//! the instructions. `run::memory::multiply` is generic over tokens.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction may only be executed if the processor has it")
)]
#![allow(
    clippy::inline_always,
    reason = "only inlined functions are compiled for the instruction set of the caller"
)]

mod amx;
mod vectors;

pub(crate) use amx::{Amx, TileProduct};
pub(crate) use vectors::{Avx512Bf16, Avx512Vnni, AvxVnni, MultiplyAdd, WordToken};

/// The most capable instructions that a dot of narrow elements may use. The dot may also use the
/// instructions of all lower levels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Level {
    /// The instructions that dots of wide elements use.
    Wide,
    /// `vpmaddwd` of AVX2.
    MultiplyAdd,
    /// `vpdpbusd` of AVX-VNNI.
    AvxVnni,
    /// `vpdpbusd` of AVX512-VNNI, `vdpbf16ps` of AVX512-BF16.
    Avx512,
    /// The tiles of AMX.
    #[default]
    Amx,
}

impl Level {
    /// All levels, the least capable one first.
    pub const ALL: [Self; 5] = [Self::Wide, Self::MultiplyAdd, Self::AvxVnni, Self::Avx512, Self::Amx];

    /// Returns whether this processor has the instructions of the level. `is_bf16` selects those
    /// for elements of bf16; otherwise, they are those for 8-bit integers.
    pub fn is_available(self, is_bf16: bool) -> bool {
        match self {
            Self::Wide => true,
            Self::MultiplyAdd => !is_bf16 && MultiplyAdd::new().is_some(),
            Self::AvxVnni => !is_bf16 && AvxVnni::new().is_some(),
            Self::Avx512 if is_bf16 => Avx512Bf16::new().is_some(),
            Self::Avx512 => Avx512Vnni::new().is_some(),
            Self::Amx => Amx::new().is_some(),
        }
    }
}
