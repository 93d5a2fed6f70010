//! Determines the number of threads that run the programs of a grid on the CPU.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::knobs::{Knobs, MAX_THREADS};

/// The number of threads; 0 if the next query has to determine it.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of threads of launches, at most 1024. The first of these numbers that is set
/// applies: [`set_num_threads`], `TILEWRIGHT_NUM_THREADS`, `TRITON_CPU_MAX_THREADS`,
/// `OMP_NUM_THREADS`, the number of hardware threads.
pub fn num_threads() -> usize {
    match THREADS.load(Ordering::Relaxed) {
        0 => {
            let available = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
            let knobs = Knobs::current();
            let count = knobs.num_threads.unwrap_or_else(available).clamp(1, MAX_THREADS);
            if let Some(text) = &knobs.invalid_threads {
                eprintln!(
                    "tilewright: TILEWRIGHT_NUM_THREADS is '{text}', expected an int from 1 to {MAX_THREADS}: running on {count}"
                );
            }
            THREADS.store(count, Ordering::Relaxed);
            count
        }
        count => count,
    }
}

/// Sets the number of threads of later launches. 0 restores the default; a number above 1024 counts
/// as 1024.
pub fn set_num_threads(count: usize) {
    THREADS.store(count.min(MAX_THREADS), Ordering::Relaxed);
}
