//! The barriers of a block, by number, and that of a cluster: who has arrived, and what they know.

use crate::fault::{FaultKind, Outcome};
use crate::memory::Clock;

/// How many barriers a block has.
pub(crate) const BARRIERS: usize = 16;

/// One barrier. It is used again as soon as it is complete.
#[derive(Clone, Debug)]
pub(crate) struct BlockBarrier {
    /// Threads that have arrived since it was last complete.
    arrived: u32,
    /// The threads that it waits for: so many, or all that have not exited.
    expected: Option<u32>,
    /// How often it was complete.
    pub generation: u64,
    arriving: Clock,
    /// What those who wait learn.
    pub completed: Clock,
    /// How many predicates hold, of those who have arrived.
    holding: u32,
    /// The same of the last generation, and how many threads that had.
    pub result: (u32, u32),
}

impl BlockBarrier {
    pub fn new(nothing: Clock) -> Self {
        let (arriving, completed) = (nothing.clone(), nothing);
        Self { arrived: 0, expected: None, generation: 0, arriving, completed, holding: 0, result: (0, 0) }
    }

    /// So many threads arrive, of so many that take part.
    pub fn arrive(&mut self, threads: u32, expected: Option<u32>, holding: u32, clock: &Clock) -> Outcome {
        if self.arrived == 0 {
            self.expected = expected;
        } else if self.expected != expected {
            let count =
                |count: Option<u32>| count.map_or("all threads".into(), |count| format!("{count} threads"));
            let (one, other) = (count(self.expected), count(expected));
            return Err(FaultKind::Illegal(format!("a barrier of {one} that others use for {other}")).into());
        }
        self.arrived += threads;
        self.holding += holding;
        self.arriving.join(clock);
        match expected {
            Some(expected) if self.arrived > expected => {
                let text = format!("{} threads arrive at a barrier of {expected}", self.arrived);
                Err(FaultKind::Illegal(text).into())
            }
            _ => Ok(()),
        }
    }

    /// Threads exit that have arrived in this generation: it still waits for all others.
    pub fn leave(&mut self, threads: u32) {
        self.arrived -= threads;
    }

    /// Ends the generation if all have arrived; `alive` threads have not exited.
    pub fn complete(&mut self, alive: u32) {
        if self.arrived != 0 && self.arrived >= self.expected.unwrap_or(alive) {
            self.result = (self.holding, self.arrived);
            (self.arrived, self.holding, self.expected) = (0, 0, None);
            self.generation += 1;
            self.completed.join(&self.arriving);
        }
    }
}
