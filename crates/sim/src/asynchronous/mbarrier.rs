//! Implements the `mbarrier` object, which counts arrivals and bytes, phase by phase.
//!
//! For example, one arrival and 256 bytes complete this phase:
//!
//! ```text
//! init 1                 pending 1, bytes 0
//! expect_tx 256          pending 1, bytes 256
//! arrive                 pending 0, bytes 256
//! complete_tx 256        pending 0, bytes 0: phase 0 is complete, phase 1 begins
//! ```
//!
//! An agent that waits for a phase synchronizes with all agents that arrived in this or an earlier
//! phase.

use crate::fault::FaultKind;
use crate::memory::Clock;

/// The exclusive limit of counts, and of the magnitude of outstanding bytes.
const LIMIT: u32 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Mbarrier {
    /// The arrivals that each phase expects.
    expected: u32,
    /// The arrivals that the current phase still expects.
    pending: u32,
    /// The outstanding bytes of the current phase: expected minus transferred.
    transactions: i64,
    phase: u64,
    /// The joined clocks of all arrivals and completed copies.
    arriving: Clock,
    /// The value of `arriving` at the end of the last complete phase.
    completed: Clock,
}

/// The result of `mbarrier.arrive`: the phase and its pending arrivals before the arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token(pub u64);

impl Token {
    /// Returns the pending arrivals before the arrival.
    pub fn pending(self) -> u32 {
        self.0 as u32 & (LIMIT - 1)
    }

    fn phase(self) -> u64 {
        self.0 >> 20
    }
}

impl Mbarrier {
    /// Creates the object: each phase expects `count` arrivals. `nothing` is a clock that knows no
    /// step.
    ///
    /// # Errors
    /// If the count is out of range.
    pub fn new(count: u32, nothing: Clock) -> Result<Self, FaultKind> {
        if !(1..LIMIT).contains(&count) {
            return Err(illegal(format!(
                "mbarrier.init with a count of {count}: the count has to be 1 to {}",
                LIMIT - 1
            )));
        }
        let (arriving, completed) = (nothing.clone(), nothing);
        Ok(Self { expected: count, pending: count, transactions: 0, phase: 0, arriving, completed })
    }

    pub fn phase(&self) -> u64 {
        self.phase
    }

    /// Returns the arrivals and the bytes that the current phase lacks, and the arrivals that each
    /// phase needs.
    pub fn missing(&self) -> (u32, i64, u32) {
        (self.pending, self.transactions, self.expected)
    }

    /// Returns the bits in memory, whose layout the ISA leaves open. They differ for different
    /// states, except for phases that differ by a multiple of 4.
    pub fn bits(&self) -> u64 {
        let field = u64::from(LIMIT - 1);
        let transactions = self.transactions as u64 & (field << 1 | 1);
        u64::from(self.expected) | u64::from(self.pending) << 20 | transactions << 40 | (self.phase & 3) << 61
    }

    /// `expect_tx`: the current phase expects `bytes` more bytes.
    ///
    /// # Errors
    /// If the number of outstanding bytes reaches `LIMIT`.
    pub fn expect(&mut self, bytes: u32) -> Result<(), FaultKind> {
        self.transact(i64::from(bytes))
    }

    /// `complete_tx`: counts `bytes` transferred bytes, and joins the clock of the copy.
    ///
    /// # Errors
    /// If the transferred bytes exceed the expected bytes by `LIMIT` or more.
    pub fn complete(&mut self, bytes: u32, clock: &Clock) -> Result<(), FaultKind> {
        self.transact(-i64::from(bytes))?;
        self.arriving.join(clock);
        self.turn();
        Ok(())
    }

    /// `arrive`: counts `count` arrivals of an agent with this clock. `may_complete` is false for
    /// `.noComplete`.
    ///
    /// # Errors
    /// If the count is out of range, or above the pending arrivals. Also if the phase completes
    /// although `may_complete` is false.
    pub fn arrive(&mut self, count: u32, may_complete: bool, clock: &Clock) -> Result<Token, FaultKind> {
        if !(1..LIMIT).contains(&count) {
            return Err(illegal(format!(
                "mbarrier.arrive with a count of {count}: the count has to be 1 to {}",
                LIMIT - 1
            )));
        }
        if count > self.pending {
            return Err(illegal(format!(
                "{count} arrivals at an mbarrier that expects {} more in its phase {} ({} in all)",
                self.pending, self.phase, self.expected
            )));
        }
        let token = Token(self.phase << 20 | u64::from(self.pending));
        self.pending -= count;
        self.arriving.join(clock);
        if self.turn() && !may_complete {
            return Err(illegal("mbarrier.arrive.noComplete completed the phase".into()));
        }
        Ok(token)
    }

    /// `arrive_drop`: arrives, and lowers the expected count of later phases by `count`.
    ///
    /// # Errors
    /// The errors of [`Self::arrive`].
    pub fn drop(&mut self, count: u32, may_complete: bool, clock: &Clock) -> Result<Token, FaultKind> {
        let before = self.expected;
        self.expected = before.saturating_sub(count);
        self.arrive(count, may_complete, clock).inspect_err(|_| self.expected = before)
    }

    /// Joins the clock of tracked copies to the current phase, without an arrival. Without
    /// `.noinc`, `cp.async.mbarrier.arrive` increments the pending count and then arrives, which
    /// leaves the count unchanged.
    pub fn track(&mut self, clock: &Clock) {
        self.arriving.join(clock);
    }

    /// Returns the clock to acquire if the phase of a token is complete.
    ///
    /// # Errors
    /// If the token is of neither the current nor the previous phase.
    pub fn test(&self, token: Token) -> Result<Option<&Clock>, FaultKind> {
        match self.phase.checked_sub(token.phase()) {
            Some(0) => Ok(None),
            Some(1) => Ok(Some(&self.completed)),
            _ => Err(illegal(format!(
                "a wait for phase {} of an mbarrier in phase {}: a wait has to be for the current phase or the previous one",
                token.phase(),
                self.phase
            ))),
        }
    }

    /// Returns the clock to acquire if the phase with this parity, current or previous, is
    /// complete.
    pub fn test_parity(&self, is_odd: bool) -> Option<&Clock> {
        ((self.phase & 1 == 1) != is_odd).then_some(&self.completed)
    }

    fn transact(&mut self, bytes: i64) -> Result<(), FaultKind> {
        let sum = self.transactions + bytes;
        if sum.unsigned_abs() >= u64::from(LIMIT) {
            return Err(illegal(format!(
                "an mbarrier counts {sum} outstanding bytes: the ISA allows -{max} to {max}",
                max = LIMIT - 1
            )));
        }
        self.transactions = sum;
        Ok(())
    }

    /// Begins the next phase if the current one is complete. Returns whether it was.
    fn turn(&mut self) -> bool {
        let is_complete = self.pending == 0 && self.transactions == 0;
        if is_complete {
            self.phase += 1;
            self.pending = self.expected;
            self.completed.clone_from(&self.arriving);
        }
        is_complete
    }
}

fn illegal(text: String) -> FaultKind {
    FaultKind::Illegal(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Agent;

    fn clock() -> Clock {
        Clock::new(3)
    }

    fn barrier(count: u32) -> Mbarrier {
        Mbarrier::new(count, clock()).unwrap()
    }

    #[test]
    fn a_phase_completes_with_its_last_arrival() {
        let mut barrier = barrier(3);
        let token = barrier.arrive(2, true, &clock()).unwrap();
        assert_eq!(token.pending(), 3);
        assert!(barrier.test(token).unwrap().is_none() && barrier.test_parity(false).is_none());
        // The phase before phase 0 counts as complete, so that a producer passes its first wait.
        assert!(barrier.test_parity(true).is_some());
        assert_eq!(barrier.arrive(1, true, &clock()).unwrap().pending(), 1);
        assert!(barrier.test(token).unwrap().is_some() && barrier.test_parity(false).is_some());
        assert!(barrier.test_parity(true).is_none());
        assert_eq!((barrier.phase, (barrier.pending, barrier.transactions)), (1, (3, 0)));
    }

    #[test]
    fn bytes_hold_a_phase_open() {
        let mut barrier = barrier(1);
        barrier.expect(1024).unwrap();
        barrier.arrive(1, true, &clock()).unwrap();
        assert_eq!(barrier.phase, 0);
        barrier.complete(1000, &clock()).unwrap();
        assert_eq!((barrier.phase, (barrier.pending, barrier.transactions)), (0, (0, 24)));
        barrier.complete(24, &clock()).unwrap();
        assert_eq!(barrier.phase, 1);
    }

    #[test]
    fn bytes_may_come_before_they_are_announced() {
        let mut barrier = barrier(1);
        barrier.complete(64, &clock()).unwrap();
        assert_eq!((barrier.phase, (barrier.pending, barrier.transactions)), (0, (1, -64)));
        barrier.expect(64).unwrap();
        assert_eq!(barrier.phase, 0);
        barrier.arrive(1, true, &clock()).unwrap();
        assert_eq!(barrier.phase, 1);
    }

    #[test]
    fn dropping_lowers_the_next_phases() {
        let mut barrier = barrier(3);
        barrier.drop(1, true, &clock()).unwrap();
        barrier.arrive(2, true, &clock()).unwrap();
        assert_eq!((barrier.phase, (barrier.pending, barrier.transactions)), (1, (2, 0)));
    }

    #[test]
    fn counts_that_the_isa_forbids_are_faults() {
        assert!(Mbarrier::new(0, clock()).is_err() && Mbarrier::new(1 << 20, clock()).is_err());
        let mut barrier = barrier(2);
        assert!(barrier.arrive(3, true, &clock()).is_err());
        assert!(barrier.arrive(0, true, &clock()).is_err());
        assert!(barrier.arrive(2, false, &clock()).is_err());
        let mut barrier = Mbarrier::new(1, clock()).unwrap();
        barrier.expect((1 << 20) - 1).unwrap();
        assert!(barrier.expect(1).is_err());
        // All arrivals have happened, but bytes are outstanding. Another arrival is a fault.
        barrier.arrive(1, true, &clock()).unwrap();
        assert!(barrier.arrive(1, true, &clock()).is_err());
    }

    #[test]
    fn old_tokens_are_faults() {
        let mut barrier = barrier(1);
        let first = barrier.arrive(1, true, &clock()).unwrap();
        assert!(barrier.test(first).unwrap().is_some());
        barrier.arrive(1, true, &clock()).unwrap();
        assert!(barrier.test(first).is_err());
    }

    #[test]
    fn waiters_acquire_the_arrivals_of_their_phase() {
        let mut agents = [Agent::new(0, 3), Agent::new(1, 3)];
        let mut barrier = barrier(1);
        let step = agents[0].step();
        barrier.arrive(1, true, &agents[0].release()).unwrap();
        let later = agents[1].step();
        barrier.expect(16).unwrap();
        barrier.arrive(1, true, &agents[1].release()).unwrap();
        let known = barrier.test_parity(false).unwrap();
        assert!(known.knows(0, step) && !known.knows(1, later), "the second phase is not complete");
    }

    #[test]
    fn states_differ_in_memory() {
        let mut barrier = barrier(7);
        let fresh = barrier.bits();
        barrier.arrive(1, true, &clock()).unwrap();
        let arrived = barrier.bits();
        barrier.expect(5).unwrap();
        assert!(fresh != arrived && arrived != barrier.bits());
    }
}
