//! The CPU executor of the tile IR: the definition of what every op does.
//!
//! ```text
//! ir::Module ── lower ──> Program ── launch ──> threads ── machine ──> ops ── kernels, memory
//! ```
//! - [`Program::new`] lowers a module, before or after optimisation, to straight lists of steps over dense slots
//!   (`lower`, `liveness`, `fuse`, `program`). A program is compiled once and launched often, from any thread.
//! - [`Program::launch`] runs it for every point of a grid (`launch`); each thread has a machine that executes the steps
//!   (`machine`) over values (`value`): tiles that stay symbolic while they can (`symbolic`), otherwise dense buffers
//!   that are recycled (`tile`).
//! - `ops/` holds one file per family of ops. They decide between symbolic and dense execution; the loops over elements
//!   are in [`kernels`], and [`memory`] alone touches memory of the user.
//! - What goes wrong in a running kernel is a `Fault` (`fault`), which becomes a diagnostic.
//!
//! Invariants: no `unsafe` outside of [`memory`]; nothing is allocated per program once a thread is warm; a store that
//! fails has written nothing; the result of a launch does not depend on the number of threads, unless the program races.

mod fault;
mod fuse;
pub mod kernels;
mod launch;
mod liveness;
mod lower;
mod machine;
pub mod memory;
mod ops;
mod program;
mod repeat;
mod scalar;
mod symbolic;
mod tile;
mod value;

pub use launch::{Argument, Interrupt, Launch};
pub use program::Program;
