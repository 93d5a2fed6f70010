//! Analyzes the accesses to global memory in a sanitized launch.
//!
//! The CPU executor or the simulator reports the accesses and the synchronization. This crate
//! depends on neither IR nor PTX.
//!
//! - [`Checks`] is the set of enabled checks.
//! - [`Shadow`] stores the last accesses to each element, and detects races between them.
//! - [`Clock`] is a vector clock, which orders accesses.
//! - [`Published`] is the clock that a release publishes at an address.
//! - [`InitializedMemory`] tracks the initialized bytes of allocations without initial content.

mod checks;
mod clock;
mod initialized;
mod shadow;

pub use checks::{Check, Checks};
pub use clock::{Clock, Published, Releases};
pub use initialized::{InitializedMemory, MEMORY};
pub use shadow::{Access, Conflict, Mode, Rules, Shadow};
