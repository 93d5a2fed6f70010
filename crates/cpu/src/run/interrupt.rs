//! Interrupts: how a running launch is stopped from outside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::run::fault::{Fault, FaultKind, Outcome};
use crate::run::padding::PaddedReads;

/// What stops a running launch from outside.
#[derive(Clone, Copy)]
pub enum Interrupt<'a> {
    /// Nothing.
    Never,
    /// The flag, once it is true.
    Flag(&'a AtomicBool),
    /// The function, once it returns true. It is called every few milliseconds, on the thread that launches only.
    Poll(&'a (dyn Fn() -> bool + Sync)),
}

/// How often a callback is asked whether to stop.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How many checks may pass before the clock is looked at.
const CHECKS_PER_CLOCK: u32 = 64;

/// How often a program looks for what it waits for until it is another one's turn.
const LOOKS_PER_TURN: u32 = 32;

/// Says whether to go on, when a machine asks at a loop iteration or between programs.
pub(crate) struct Control<'a> {
    stop: &'a AtomicBool,
    /// The lowest program that faulted: those above it stop.
    faulted: Option<&'a AtomicU64>,
    /// The program that runs.
    number: u64,
    flag: Option<&'a AtomicBool>,
    poll: Option<&'a (dyn Fn() -> bool + Sync)>,
    checks: u32,
    last_poll: Option<Instant>,
    /// Lets other programs run, in a launch of programs that wait for each other.
    pass: Option<&'a dyn Fn()>,
    /// How often the program has looked in vain for what it waits for.
    looks: u32,
    /// Where loads from padding are noted, if they are no faults.
    pub padded: Option<&'a PaddedReads>,
}

impl<'a> Control<'a> {
    /// The control of a thread: `stop` ends all threads of the launch, and only the calling thread polls.
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
            pass: None,
            looks: 0,
            padded: None,
        }
    }

    /// Stops programs once one with a lower number than theirs has faulted, which the launch notes here.
    pub(crate) fn below(self, faulted: &'a AtomicU64) -> Self {
        Self { faulted: Some(faulted), ..self }
    }

    /// A program with this number begins. Fails if it is to stop.
    pub(crate) fn begin(&mut self, number: u64) -> Outcome {
        self.number = number;
        self.check()
    }

    /// With a function that lets other programs run.
    pub(crate) fn in_turns(self, pass: &'a dyn Fn()) -> Self {
        Self { pass: Some(pass), ..self }
    }

    /// With what loads from padding are noted in, if they are no faults.
    pub(crate) fn noting(self, padded: Option<&'a PaddedReads>) -> Self {
        Self { padded, ..self }
    }

    /// What becomes true when the launch is to stop, for those who cannot ask.
    pub(crate) fn stop(&self) -> &'a AtomicBool {
        self.flag.unwrap_or(self.stop)
    }

    /// Fails if the launch is to stop.
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

    /// Lets other programs run now and then, as this one may wait for them. Fails if the launch is to stop.
    pub(crate) fn wait(&mut self) -> Outcome {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_PER_TURN)
            && let Some(pass) = self.pass
        {
            pass();
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
            // Few long steps between checks: look at the clock more often.
            if now - last > POLL_INTERVAL / 8 {
                self.checks = CHECKS_PER_CLOCK - 1;
            }
            return false;
        }
        self.last_poll = Some(now);
        self.poll.is_some_and(|poll| poll())
    }
}
