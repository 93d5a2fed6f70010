//! Handles signals that arrive while a kernel runs or is compiled: Ctrl-C.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Polls Python for signals, and keeps the exception that a handler has raised.
#[derive(Default)]
pub(crate) struct SignalCheck {
    last: Mutex<Option<Instant>>,
    raised: Mutex<Option<PyErr>>,
}

impl SignalCheck {
    /// The minimum time between two polls of Python. A poll is slow if it waits for the GIL.
    const INTERVAL: Duration = Duration::from_millis(50);

    pub(crate) fn poll(&self) -> bool {
        let now = Instant::now();
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| now - last < Self::INTERVAL) {
                return false;
            }
            *last = Some(now);
        }
        Python::attach(|py| {
            let Err(error) = py.check_signals() else { return false };
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            true
        })
    }

    /// Removes and returns the exception that a handler has raised.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn raised(self) -> Option<PyErr> {
        self.raised.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
