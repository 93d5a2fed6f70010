//! Generates machine code for x86-64 with AVX2 or AVX-512.

mod encode;
mod instruction;
mod registers;
mod select;
mod tables;

#[derive(Debug)]
pub enum X86 {}

/// The vector instructions of the architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isa {
    /// AVX2, FMA, F16C, BMI1 and BMI2.
    Avx2,
    /// The instructions of [`Self::Avx2`], and AVX-512 F, BW, DQ, VL and CD.
    Avx512,
}
