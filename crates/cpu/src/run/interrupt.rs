//! Stops a running launch from outside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::run::fault::{Fault, FaultKind, Outcome};
use crate::run::padding::PaddedReads;
use crate::tuning::{CHECKS_PER_CLOCK, POLLS_PER_TURN};

/// The source of an interrupt.
#[derive(Clone, Copy)]
pub enum Interrupt<'a> {
    /// No source: the launch cannot be interrupted.
    Never,
    /// Interrupts when the flag is true.
    Flag(&'a AtomicBool),
    /// Interrupts when the function returns true. The launching thread calls it every few
    /// milliseconds.
    Poll(&'a (dyn Fn() -> bool + Sync)),
}

/// The interval between calls of an interrupt function.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Decides whether a machine continues, at each loop iteration and between programs.
pub(crate) struct Control<'a> {
    stop: &'a AtomicBool,
    /// The lowest index of a faulting program. Programs with higher indices stop.
    faulted: Option<&'a AtomicU64>,
    number: u64,
    flag: Option<&'a AtomicBool>,
    poll: Option<&'a (dyn Fn() -> bool + Sync)>,
    checks: u32,
    last_poll: Option<Instant>,
    /// Lets other programs run, in launches whose programs wait for each other.
    park: Option<&'a dyn Fn()>,
    polls: u32,
    /// Records loads from padding; if absent, such loads are faults.
    pub padded: Option<&'a PaddedReads>,
    /// True if machine code may execute the steps of nests.
    pub machine_code: bool,
}

impl<'a> Control<'a> {
    /// Creates the control of a thread. `stop` ends all threads. Only the calling thread polls an
    /// interrupt function.
    pub(crate) fn new(stop: &'a AtomicBool, interrupt: Interrupt<'a>, is_caller: bool) -> Self {
        let flag = match interrupt {
            Interrupt::Flag(flag) => Some(flag),
            Interrupt::Never | Interrupt::Poll(_) => None,
        };
        let poll = match interrupt {
            Interrupt::Poll(poll) if is_caller => Some(poll),
            Interrupt::Never | Interrupt::Flag(_) | Interrupt::Poll(_) => None,
        };
        Self {
            stop,
            faulted: None,
            number: 0,
            flag,
            poll,
            checks: 0,
            last_poll: None,
            park: None,
            polls: 0,
            padded: None,
            machine_code: false,
        }
    }

    /// Makes the programs above the index in `faulted` stop.
    pub(crate) fn below(self, faulted: &'a AtomicU64) -> Self {
        Self { faulted: Some(faulted), ..self }
    }

    /// Begins the program with the index `number`. Fails if the launch or this program has to stop.
    pub(crate) fn begin(&mut self, number: u64) -> Outcome {
        self.number = number;
        self.check()
    }

    pub(crate) fn with_scheduler(self, park: &'a dyn Fn()) -> Self {
        Self { park: Some(park), ..self }
    }

    pub(crate) fn with_machine_code(self, machine_code: bool) -> Self {
        Self { machine_code, ..self }
    }

    pub(crate) fn noting(self, padded: Option<&'a PaddedReads>) -> Self {
        Self { padded, ..self }
    }

    /// Returns a flag that stops code which cannot call [`Control::check`]: that of the interrupt,
    /// or the one that ends all threads.
    pub(crate) fn stop(&self) -> &'a AtomicBool {
        self.flag.unwrap_or(self.stop)
    }

    /// Fails if the launch has to stop, or if a program with a lower index has faulted.
    #[inline]
    pub(crate) fn check(&mut self) -> Outcome {
        let flagged = self.flag.is_some_and(|flag| flag.load(Ordering::Relaxed));
        if flagged || self.stop.load(Ordering::Relaxed) || (self.poll.is_some() && self.polled()) {
            return Err(Fault::new(FaultKind::Interrupted));
        }
        if self.faulted.is_some_and(|faulted| self.number > faulted.load(Ordering::Relaxed)) {
            return Err(Fault::new(FaultKind::Superseded));
        }
        Ok(())
    }

    /// Lets other programs run, at every [`POLLS_PER_TURN`]-th call. Fails if the launch has to
    /// stop.
    pub(crate) fn wait(&mut self) -> Outcome {
        self.polls += 1;
        if self.polls.is_multiple_of(POLLS_PER_TURN)
            && let Some(park) = self.park
        {
            park();
        }
        self.check()
    }

    fn polled(&mut self) -> bool {
        self.checks += 1;
        if self.checks < CHECKS_PER_CLOCK {
            return false;
        }
        self.checks = 0;
        let now = Instant::now();
        let last = *self.last_poll.get_or_insert(now);
        if now - last < POLL_INTERVAL {
            // Long steps make checks rare, so the next check already reads the clock.
            if now - last > POLL_INTERVAL / 8 {
                self.checks = CHECKS_PER_CLOCK - 1;
            }
            return false;
        }
        self.last_poll = Some(now);
        self.poll.is_some_and(|poll| poll())
    }
}
