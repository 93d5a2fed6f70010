//! Caches the checks of launches in one byte. A launch without checks costs one load.

use std::sync::atomic::{AtomicU8, Ordering};

use tilewright_sanitize::Checks;

/// The bits of the checks of launches; `UNREAD` before they are determined.
static CACHED: AtomicU8 = AtomicU8::new(UNREAD);
const UNREAD: u8 = u8::MAX;

/// Returns the cached checks; `None` if no checks are cached.
#[inline]
pub(crate) fn cached() -> Option<Checks> {
    match CACHED.load(Ordering::Relaxed) {
        0 => Some(Checks::NONE),
        UNREAD => None,
        bits => Some(Checks::from_bits(bits)),
    }
}

pub(crate) fn cache(checks: Checks) {
    CACHED.store(checks.bits(), Ordering::Relaxed);
}

/// Clears the cache, so that the next launch determines its checks again.
pub(crate) fn forget() {
    CACHED.store(UNREAD, Ordering::Relaxed);
}
