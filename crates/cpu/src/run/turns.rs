//! Programs that wait for each other, at locks or for what another one stores.
//!
//! A program that waits keeps its thread, parked, and another thread takes its turn: so many run at once as a launch has
//! threads, and every program of the grid makes progress, as on a GPU that holds them all. Who waits lets a program begin that
//! has not, or else the one run that has been parked the longest. When a program ends, which is what others may wait for, the
//! longest parked one goes on before a new one begins: programs that wait for earlier ones alone keep few threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// So many threads are parked at the most. Those that find no room go on looking for what they wait for.
const MOST_PARKED: usize = 8192;

/// How often a parked thread looks whether the launch is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(20);

/// The threads of a launch that are parked, the longest first.
#[derive(Default)]
pub(crate) struct Turns {
    parked: Mutex<VecDeque<Arc<Parked>>>,
}

#[derive(Default)]
struct Parked {
    may_run: Mutex<bool>,
    woken: Condvar,
}

impl Turns {
    /// Lets the longest parked thread run in place of this one. False if there is none.
    pub(crate) fn hand_over(&self) -> bool {
        let next = self.parked.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.is_some_and(|next| {
            next.wake();
            true
        })
    }

    /// Parks this thread until it is its turn again, or until the launch is to stop; `begin` starts a thread for another program
    /// if there is one that has not begun, and says whether it could.
    pub(crate) fn pass(&self, stop: &AtomicBool, has_others: bool, begin: impl FnOnce() -> bool) {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = has_others && parked.len() < MOST_PARKED;
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
            // The system has no more threads.
            None => {
                self.hand_over();
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
