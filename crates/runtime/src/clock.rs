//! The clock of profiles.

use std::sync::OnceLock;
use std::time::Instant;

static EPOCH: OnceLock<Instant> = OnceLock::new();

/// Nanoseconds since it was first asked: since the first profile of the process was started.
pub fn profile_clock() -> u64 {
    EPOCH.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
