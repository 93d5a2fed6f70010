//! Vector SSA and its machine code.
//!
//! ```text
//! Builder ──> ir::Function ── compile ──> machine code ── Executable ──> call
//! ```

mod builder;
pub mod ir;

pub use builder::{Builder, Loop, Place};
