//! Passes from tile IR to tile IR, and what is known of integers and pointers.
//!
//! [`optimize`] runs the passes that `pipeline.rs` lists, one file a pass. [`analysis`] says, for each value, how its
//! elements lie: contiguity, divisibility, constancy, range. [`bounds`] decides whether accesses are in bounds for every size. Nothing here knows a target.

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

pub use pipeline::{Level, Options, PASSES, optimize};
