//! Schedules programs of the grid that wait for each other, at locks or for stores of another
//! program.
//!
//! A waiting program parks its thread, and another thread runs instead. A launch thus runs as many
//! programs at once as it has threads. Every program of the grid makes progress, as on a GPU on
//! which all programs are resident.
//!
//! A waiting thread starts a thread for a program that has not begun. If every program has begun,
//! it resumes the thread that has been parked longest. When a program ends, other programs may have
//! waited for it. The thread that has been parked longest therefore resumes before a new program
//! begins. Programs that only wait for earlier programs thus need few threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The maximum number of parked threads. While this number of threads is parked, a waiting thread
/// resumes a parked thread instead of starting a new thread.
const MAX_PARKED: usize = 8192;

/// The interval at which a parked thread checks whether the launch has to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(20);

/// The parked threads of a launch, in the order in which they parked.
#[derive(Default)]
pub(crate) struct Scheduler {
    parked: Mutex<VecDeque<Arc<Parked>>>,
}

#[derive(Default)]
struct Parked {
    may_run: Mutex<bool>,
    woken: Condvar,
}

impl Scheduler {
    /// Resumes the thread that has been parked longest, in place of the calling thread. Returns
    /// false if no thread is parked.
    pub(crate) fn yield_now(&self) -> bool {
        let next = self.parked.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.is_some_and(|next| {
            next.wake();
            true
        })
    }

    /// Lets another thread run, and parks the calling thread until another thread resumes it or the
    /// launch has to stop.
    ///
    /// `begin` starts a thread for a program that has not begun, and returns false if the system
    /// refuses the thread. This function calls `begin` if `has_others` is true and fewer than
    /// [`MAX_PARKED`] threads are parked. Otherwise, or if `begin` returns false, it resumes the
    /// thread that has been parked longest. If it neither calls `begin` nor finds a parked thread,
    /// it returns without parking.
    pub(crate) fn park(&self, stop: &AtomicBool, has_others: bool, begin: impl FnOnce() -> bool) {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = has_others && parked.len() < MAX_PARKED;
        let next = if begins { None } else { parked.pop_front() };
        if !begins && next.is_none() {
            drop(parked);
            std::thread::yield_now();
            return;
        }
        let own = Arc::new(Parked::default());
        parked.push_back(own.clone());
        drop(parked);
        match next {
            Some(next) => next.wake(),
            None if begin() => {}
            // The system refuses more threads.
            None => {
                self.yield_now();
            }
        }
        own.sleep(stop);
    }
}

impl Parked {
    fn wake(&self) {
        *self.may_run.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_one();
    }

    fn sleep(&self, stop: &AtomicBool) {
        let mut may_run = self.may_run.lock().unwrap_or_else(PoisonError::into_inner);
        while !*may_run && !stop.load(Ordering::Relaxed) {
            let waited = self.woken.wait_timeout(may_run, STOP_INTERVAL);
            may_run = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
