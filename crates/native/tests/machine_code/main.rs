//! Compares machine code with scalar Rust, on edge cases and random inputs.
//!
//! The tests use each instruction set of the processor.

#![cfg(all(unix, any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#![allow(unsafe_code, reason = "machine code is called, and pages without access are mapped")]
#![allow(
    clippy::many_single_char_names,
    clippy::type_complexity,
    clippy::single_match_else,
    clippy::needless_range_loop,
    clippy::naive_bytecount,
    reason = "the references are written as the definitions of the operations"
)]

mod accesses;
mod control;
#[path = "../common/disassembler.rs"]
mod disassembler;
mod harness;
mod integers;
mod vectors;
