//! Compares the kernels with oracles that share no code with them.

#![allow(clippy::unreadable_literal, reason = "bit patterns of floats and constants of generators")]
#![allow(
    clippy::manual_midpoint,
    reason = "the midpoint of two formats' values must be exact, which this shows"
)]
#![allow(
    clippy::many_single_char_names,
    clippy::similar_names,
    reason = "formulas are read in their usual letters"
)]

mod casts;
mod dots;
mod elementwise;
mod functions;
mod merges;
mod oracle;
mod reductions;
mod scans;
