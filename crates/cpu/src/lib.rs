//! The CPU executor of the tile IR. The executor defines the semantics of every op.
//!
//! ```text
//! ir::Module ── compile ──> Program ── launch ──> threads ── machine ──> ops ── kernels, memory
//! ```
//!
//! - [`Program::new`] compiles a module to lists of *steps* over *slots* (`compile/`, `program`). A
//!   step is one operation, and a slot has one value. A program is compiled once and launched
//!   often, from any thread.
//! - [`Program::launch`] runs the program for each point of a grid (`run/launch.rs`). Each thread
//!   has a machine (`run/machine.rs`). A tile is symbolic, a formula of the indices, as long as
//!   possible (`run/symbolic.rs`). Otherwise, it is a dense buffer (`run/tile.rs`).
//! - [`Program::evaluate`] runs the program once, on values that the caller holds ([`Held`]).
//!   Interpret mode evaluates programs of one op.
//! - `run/ops/` has one file for each family of ops. The loops over elements are in [`kernels`].
//!   Only [`memory`] accesses user memory.
//! - A fault of a running kernel (`run/fault.rs`) becomes a diagnostic.
//!
//! Invariants:
//! - `unsafe` is only in [`memory`], `kernels/instructions` and tests.
//! - After its first programs in a launch, a thread allocates no memory per program.
//! - A store that faults has written nothing.
//! - The number of threads does not change the result of a launch. The exceptions are races, and
//!   atomics whose order matters, such as additions of floats.

mod assembly;
mod compile;
mod program;
mod run;
mod tuning;
mod types;

pub use assembly::{Assembler, Assembly, AssemblyCode, AssemblyError, AssemblyFault};
pub use compile::listing::{MachineLine, MachineListing};
pub use compile::trace_points::TracePoints;
pub use compile::{has_machine_code, may_be_in_nest};
pub use program::Program;
#[doc(hidden)]
pub use program::nest::NestCounts;
pub use run::argument::Argument;
pub use run::evaluate::{EvaluationError, Held, Surroundings};
pub use run::fault::{mask_advice, wrapped_offset};
pub use run::interrupt::Interrupt;
pub use run::launch::Launch;
pub use run::padding::PaddedReads;
pub use run::profile::{Profile, StepCost, StepProfile};
pub use run::sanitize::{Finding, Occurrence, OtherAccess, SanitizedProgram};
pub use run::trace::Tracing;
pub use run::{kernels, memory};
pub use tuning::{MAX_UNROLLED_ITERATIONS, MAX_UNROLLED_LOOP_STEPS};

/// True if Cargo compiles this crate with an `opt-level` other than 0.
pub const IS_OPTIMIZED: bool = cfg!(not(unoptimized));
