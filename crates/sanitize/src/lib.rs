//! Analyzes the global-memory accesses of a sanitized launch, which the CPU executor or the
//! simulator reports together with the synchronization. This crate depends on neither IR nor PTX.
//!
//! - [`Checks`] is the set of enabled checks.
//! - [`Shadow`] keeps the last accesses to each element and detects races between them.
//! - [`Clock`] and [`Published`] order accesses: vector clocks that releases publish at addresses.
//! - [`InitializedMemory`] tracks the initialized bytes of allocations without initial content.

mod checks;
mod clock;
mod initialized;
mod shadow;

pub use checks::{Check, Checks};
pub use clock::{Clock, Published, Releases};
pub use initialized::{InitializedMemory, MEMORY};
pub use shadow::{Access, Conflict, Mode, Rules, Shadow};
