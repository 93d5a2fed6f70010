//! The sanitizer's checks of launches, cached in one byte: a launch without any pays for one load.

use std::sync::atomic::{AtomicU8, Ordering};

use tilewright_sanitize::Checks;

/// The checks of launches; `UNREAD` until the environment has been read.
static CACHED: AtomicU8 = AtomicU8::new(UNREAD);
const UNREAD: u8 = u8::MAX;

/// The cached checks; none before the environment has been read.
#[inline]
pub(crate) fn cached() -> Option<Checks> {
    match CACHED.load(Ordering::Relaxed) {
        0 => Some(Checks::NONE),
        UNREAD => None,
        bits => Some(Checks::from_bits(bits)),
    }
}

/// Keeps the checks of launches from now on.
pub(crate) fn cache(checks: Checks) {
    CACHED.store(checks.bits(), Ordering::Relaxed);
}

/// Has the environment read again by the next launch.
pub(crate) fn forget() {
    CACHED.store(UNREAD, Ordering::Relaxed);
}
