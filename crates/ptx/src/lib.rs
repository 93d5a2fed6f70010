//! PTX, the assembly language of NVIDIA GPUs. [`isa`] is the language as typed data, with a printer
//! and a parser. [`lower`] translates the GPU dialect to PTX, and [`passes`] optimize the code of a
//! thread.

pub mod isa;
mod lower;
pub mod passes;

pub use lower::{entry_name, lower};
