//! Schedules programs of the grid that wait for each other, at locks or for stores.
//! A waiting program parks its thread, and another thread runs instead. As many programs run at
//! once as the launch has threads. Every program makes progress, as if all were resident on a GPU.
//!
//! A waiting thread starts a thread for a program that has not begun. If all have begun, it resumes
//! the thread that has been parked longest. When a program ends, the longest-parked thread resumes
//! before a new program begins. Programs that only wait for earlier programs thus need few threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The maximum number of parked threads. At this number, a waiting thread resumes a parked thread
/// and starts no other.
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
    /// Resumes the longest-parked thread in place of the calling thread. Returns false if there is
    /// none.
    pub(crate) fn yield_now(&self) -> bool {
        let next = self.parked.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.is_some_and(|next| {
            next.wake();
            true
        })
    }

    /// Parks the calling thread until another thread resumes it or the launch has to stop.
    ///
    /// First calls `begin`, which starts a thread, if `has_others` is true and fewer than
    /// [`MAX_PARKED`] threads are parked. If it is not called or returns false, resumes the
    /// longest-parked thread. Returns without parking if there is none either.
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
