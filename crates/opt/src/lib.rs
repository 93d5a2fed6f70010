//! Passes on tile IR, and analyses of integers and pointers.
//!
//! [`optimize`] runs the passes of `pipeline.rs`, each in its own file. [`analysis`] computes the
//! contiguity, divisibility, constancy and range of each value. [`bounds`] decides whether accesses
//! are in bounds for every size. Nothing here depends on a target.

mod aliases;
pub mod analysis;
pub mod bounds;
mod canonicalize;
mod cse;
mod dce;
mod fold;
mod inline;
mod licm;
mod narrowing;
mod pipeline;
mod ranges;
mod short_loops;
mod unswitch;

pub use pipeline::{Level, Options, PASSES, optimize};
pub use short_loops::{ShortLoops, unroll_short_loops};
pub use unswitch::{Unswitching, unswitch_loops};
