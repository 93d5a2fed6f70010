//! Defines vector SSA and compiles it to machine code.
//!
//! ```text
//! Builder ──> ir::Function ── compile ──> machine code ── Executable ──> call
//!                  ├── interpret, verify, print
//!                  └── compile_with_origins ──> machine code ── listing ──> text
//! ```

mod aarch64;
mod allocate;
mod builder;
mod code;
mod compile;
mod constants;
mod dominators;
mod encode;
mod executable;
mod interleave;
mod interpret;
pub mod ir;
mod layout;
mod listing;
mod loop_constants;
mod print;
mod select;
mod target;
mod uses;
mod value_numbering;
mod verify;
mod x86;

pub use builder::{Builder, Loop, Place};
pub use code::{Code, CompileError};
pub use compile::{compile, compile_with_origins};
pub use executable::Executable;
pub use interpret::{InterpretError, interpret};
pub use listing::{ListedInstruction, listing};
pub use target::{Isa, Target};
pub use verify::{VerifyError, verify};
