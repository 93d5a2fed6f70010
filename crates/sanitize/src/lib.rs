//! What a sanitized launch remembers of global memory. It knows neither IR nor PTX: the executor of the CPU and the simulator
//! tell it who accesses which addresses, and who synchronises with whom.
//!
//! - [`Checks`] says which findings are looked for.
//! - [`Shadow`] has the last accesses of each element, and says which of them race.
//! - [`Clock`] and [`Published`] order accesses: vector clocks that releases leave at addresses.
//! - [`Written`] knows the allocations that began without content, and what has been written to them.

mod checks;
mod clock;
mod shadow;
mod written;

pub use checks::{Check, Checks};
pub use clock::{Clock, Published, Releases};
pub use shadow::{Access, Conflict, Mode, Rules, Shadow};
pub use written::{MEMORY, Written};
