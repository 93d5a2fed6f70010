//! Generates machine code for AArch64 with Advanced SIMD (NEON).

mod encode;
mod immediates;
mod instruction;
mod opcodes;
mod registers;
mod select;

#[derive(Debug)]
pub enum Aarch64 {}
