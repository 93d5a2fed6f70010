//! PTX, the assembly language of NVIDIA GPUs: [`isa`] is the language as typed data, with a printer and a parser; [`lower`]
//! makes it of a plan for a GPU.

pub mod isa;
mod lower;

pub use lower::lower;
