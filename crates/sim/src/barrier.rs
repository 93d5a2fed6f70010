//! Implements the numbered barriers of a block, and the barrier of a cluster.

use crate::fault::{FaultKind, Outcome};
use crate::memory::Clock;

pub(crate) const BLOCK_BARRIERS: usize = 16;

/// A barrier. When all expected threads have arrived, its generation ends and the next one begins.
#[derive(Clone, Debug)]
pub(crate) struct BlockBarrier {
    /// The number of threads that have arrived in this generation.
    arrived: u32,
    /// The number of threads that complete the barrier, or `None` for all that have not exited.
    expected: Option<u32>,
    /// The number of completed generations.
    pub generation: u64,
    arriving: Clock,
    /// The clock that waiting warps acquire.
    pub completed: Clock,
    /// The number of arrived threads whose predicate is true.
    holding: u32,
    /// The values of `holding` and `arrived` at the end of the last generation.
    pub result: (u32, u32),
}

impl BlockBarrier {
    pub fn new(nothing: Clock) -> Self {
        let (arriving, completed) = (nothing.clone(), nothing);
        Self { arrived: 0, expected: None, generation: 0, arriving, completed, holding: 0, result: (0, 0) }
    }

    /// Records `threads` arrivals, `holding` of them with a true predicate. `expected` threads
    /// complete the barrier.
    pub fn arrive(&mut self, threads: u32, expected: Option<u32>, holding: u32, clock: &Clock) -> Outcome {
        if self.arrived == 0 {
            self.expected = expected;
        } else if self.expected != expected {
            let count =
                |count: Option<u32>| count.map_or("all threads".into(), |count| format!("{count} threads"));
            let (one, other) = (count(self.expected), count(expected));
            return Err(FaultKind::Illegal(format!(
                "a barrier is used for {one} and for {other} at the same time"
            ))
            .into());
        }
        self.arrived += threads;
        self.holding += holding;
        self.arriving.join(clock);
        match expected {
            Some(expected) if self.arrived > expected => {
                let text = format!("{} threads arrive at a barrier that expects {expected}", self.arrived);
                Err(FaultKind::Illegal(text).into())
            }
            _ => Ok(()),
        }
    }

    /// Removes exiting threads that have arrived. The barrier still waits for the others.
    pub fn leave(&mut self, threads: u32) {
        self.arrived -= threads;
    }

    /// Ends the generation if all expected threads have arrived. `alive` threads have not exited;
    /// without a count, the barrier expects all of them.
    pub fn complete(&mut self, alive: u32) {
        if self.arrived != 0 && self.arrived >= self.expected.unwrap_or(alive) {
            self.result = (self.holding, self.arrived);
            (self.arrived, self.holding, self.expected) = (0, 0, None);
            self.generation += 1;
            self.completed.join(&self.arriving);
        }
    }
}
