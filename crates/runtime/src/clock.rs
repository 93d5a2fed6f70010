//! Measures time for profiles.

use std::sync::OnceLock;
use std::time::Instant;

static EPOCH: OnceLock<Instant> = OnceLock::new();

/// Returns the nanoseconds since the first call of this function. The first call occurs when the
/// process starts its first profile.
pub fn profile_clock() -> u64 {
    EPOCH.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
