//! The CPU executor of the tile IR: the definition of what every op does.
//!
//! ```text
//! ir::Module ── lower ──> Program ── launch ──> threads ── machine ──> ops ── kernels, memory
//! ```
//! - [`Program::new`] lowers a module, before or after optimisation, to straight lists of steps over dense slots
//!   (`compile/`). A program is compiled once and launched often, from any thread.
//! - [`Program::launch`] runs it for every point of a grid (`run/launch.rs`); each thread has a machine that executes the
//!   steps (`run/machine.rs`) over values (`value`): tiles that stay symbolic while they can (`symbolic`), otherwise
//!   dense buffers that are recycled (`tile`).
//! - `run/ops/` holds one file per family of ops. They decide between symbolic and dense execution; the loops over
//!   elements are in [`kernels`], and [`memory`] alone touches memory of the user.
//! - What goes wrong in a running kernel is a `Fault` (`run/fault.rs`), which becomes a diagnostic.
//!
//! Invariants: no `unsafe` outside of [`memory`]; nothing is allocated per program once a thread is warm; a store that
//! fails has written nothing; the result of a launch does not depend on the number of threads, unless the program races.

mod compile;
mod run;

pub use compile::program::Program;
pub use run::launch::{Argument, Interrupt, Launch};
pub use run::{kernels, memory};
