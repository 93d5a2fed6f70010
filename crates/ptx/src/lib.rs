//! PTX, the assembly language of NVIDIA GPUs. [`isa`] is the language as typed data, with a printer and a parser.

pub mod isa;
