//! Makes random decisions that depend only on a seed. Tests identify a random program by its seed.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Returns the seeds of `TILEWRIGHT_SEEDS=7..9`, which replace the seeds of a test.
pub fn chosen_seeds() -> Option<Range<u64>> {
    let seeds = std::env::var("TILEWRIGHT_SEEDS").ok()?;
    let (start, end) = seeds.split_once("..").expect("TILEWRIGHT_SEEDS is two numbers, `7..9`");
    let [start, end] = [start, end].map(|number| number.parse().expect("TILEWRIGHT_SEEDS has numbers"));
    Some(start..end)
}

/// Seeds that threads take one at a time.
struct Seeds {
    next: AtomicU64,
    end: u64,
}

impl Seeds {
    fn check_all(&self, check: &(impl Fn(u64) + Sync)) {
        let _stop = StopOnPanic(self);
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.end {
                return;
            }
            check(seed);
        }
    }
}

struct StopOnPanic<'a>(&'a Seeds);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.next.store(self.0.end, Ordering::Relaxed);
        }
    }
}

/// Checks the seeds in parallel on all cores. After a failure, no thread starts another seed.
pub fn in_parallel(seeds: Range<u64>, check: impl Fn(u64) + Sync) {
    let seeds = Seeds { next: AtomicU64::new(seeds.start), end: seeds.end };
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(|| seeds.check_all(&check))).collect();
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// A seeded random number generator (`SplitMix64`). All tests of the workspace that need random
/// numbers use it.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number less than `end`. `end` must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Returns a number that is at least `low` and less than `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * ((self.bits() >> 11) as f64 / (1_u64 << f64::MANTISSA_DIGITS) as f64)
    }

    /// Returns one of the items. There must be at least one item.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Returns true with a probability of 1 in `one_in`.
    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}
