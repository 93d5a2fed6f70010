//! Reports loads from the padding after a tensor as warnings instead of errors.
//!
//! The allocator of torch for CUDA rounds each allocation up to a multiple of 512 bytes. The added
//! bytes are *padding*, which a kernel on a GPU can read without harm. After
//! [`allow_padded_reads`], such loads return 0 on the processor and in the simulator. Each line
//! with such a load is reported once.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use tilewright_base::{Diagnostic, SourceMap};

use crate::Error;

/// The unit of allocations of torch for CUDA, in bytes.
const ROUNDED_TO: usize = 512;

static IS_ALLOWED: AtomicBool = AtomicBool::new(false);

/// The reported lines of kernels, each with the name of its file and its number.
static TOLD: LazyLock<Mutex<HashSet<(String, u32)>>> = LazyLock::new(Mutex::default);

thread_local! {
    static KEPT: RefCell<Vec<Error>> = const { RefCell::new(Vec::new()) };
}

/// Sets whether loads may read the padding of tensors from now on.
pub fn allow_padded_reads(is_allowed: bool) {
    IS_ALLOWED.store(is_allowed, Ordering::Relaxed);
}

/// Returns whether loads may read the padding of tensors.
#[inline]
pub fn are_padded_reads_allowed() -> bool {
    IS_ALLOWED.load(Ordering::Relaxed)
}

/// Returns the number of bytes of padding after an allocation of `bytes` bytes; 0 if loads may not
/// read padding.
#[inline]
pub fn padding_of(bytes: usize) -> usize {
    if are_padded_reads_allowed() { bytes.next_multiple_of(ROUNDED_TO) - bytes } else { 0 }
}

/// Keeps the reports about a launch of this thread. Drops a report if the process has already
/// reported the same line of a kernel.
pub fn keep_padded_reads(diagnostics: impl IntoIterator<Item = Diagnostic>, sources: &SourceMap) {
    for diagnostic in diagnostics {
        let place = diagnostic.primary.as_ref().map_or_else(Default::default, |label| {
            let file = sources.file(label.span.file);
            (file.name.clone(), file.line_column(label.span.start).0)
        });
        if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(place) {
            let diagnostic = diagnostic.as_warning().note(format!(
                "it gives 0: an allocator of a GPU rounds allocations up to {ROUNDED_TO} bytes, so the program may work \
                 there; `tilewright run --strict` makes it an error"
            ));
            KEPT.with_borrow_mut(|kept| kept.push(Error::new(diagnostic, SourceMap::clone(sources))));
        }
    }
}

/// Returns the reports of the launches of this thread since the last call.
pub fn take_padded_reads() -> Vec<Error> {
    KEPT.take()
}
