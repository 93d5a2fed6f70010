//! Prepares the kernels of a lock for fast first launches.
//!
//! A thread prepares one kernel after another. A launch uses a ready kernel, waits for the kernel
//! that the thread is preparing, and prepares any other kernel itself. The errors of the thread are
//! ignored, because the launch finds the same errors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tilewright_compiler::{PreparedKernel, Target};
use tilewright_lock::{Artifacts, Entry, LockFile};

use super::stored::stored;

/// The kernels of a lock that a thread prepares, by their [`key`].
#[derive(Debug, Default)]
pub(crate) struct Preparation {
    kernels: Mutex<FxHashMap<String, State>>,
    changed: Condvar,
}

/// The state of a kernel that the thread or a launch has begun.
#[derive(Debug)]
enum State {
    /// The thread prepares the kernel.
    Running,
    Ready(Box<PreparedKernel>),
    /// A launch has the kernel, or prepares it.
    Taken,
}

/// The longest time that a launch waits for the thread. A fork does not copy the thread.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the hash of the text from which a kernel is prepared: of the program of the GPU dialect,
/// or else of the optimized IR.
pub(super) fn key(entry: &Entry) -> &str {
    entry.code.gpu.as_ref().unwrap_or(&entry.code.opt)
}

impl Preparation {
    /// Removes and returns the kernel with this key, or waits for it. Returns `None` if the launch
    /// has to prepare the kernel.
    pub(crate) fn take(&self, key: &str) -> Option<PreparedKernel> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(State::Running) = kernels.get(key) {
            let is_running =
                |kernels: &mut FxHashMap<String, State>| matches!(kernels.get(key), Some(State::Running));
            let waited = self.changed.wait_timeout_while(kernels, PATIENCE, is_running);
            kernels = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match kernels.insert(key.to_owned(), State::Taken) {
            Some(State::Ready(kernel)) => Some(*kernel),
            Some(State::Running | State::Taken) | None => None,
        }
    }

    /// Prepares the kernels for a target that no launch has taken, until `is_ending` is true.
    pub(super) fn run(&self, file: &LockFile, artifacts: &Artifacts, target: Target, is_ending: &AtomicBool) {
        let name = target.to_string();
        for entry in file.entries.iter().filter(|entry| entry.launches.target == name) {
            if is_ending.load(Ordering::Relaxed) {
                return;
            }
            let Some(running) = Running::begin(self, key(entry)) else { continue };
            let stored = stored(artifacts, entry).ok();
            let kernel = stored.and_then(|stored| PreparedKernel::new(target, stored).ok());
            if let Some(kernel) = &kernel {
                kernel.make_machine_code();
            }
            running.end(kernel);
        }
    }

    fn set(&self, key: &str, kernel: Option<PreparedKernel>) {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        // A launch that has waited for `PATIENCE` prepares the kernel itself.
        if let Some(state @ State::Running) = kernels.get_mut(key) {
            *state = kernel.map_or(State::Taken, |kernel| State::Ready(Box::new(kernel)));
        }
        drop(kernels);
        self.changed.notify_all();
    }
}

/// A kernel that the thread is preparing. If the thread panics, launches prepare the kernel.
struct Running<'a> {
    preparation: &'a Preparation,
    key: &'a str,
    kernel: Option<PreparedKernel>,
}

impl<'a> Running<'a> {
    /// Begins to prepare a kernel, unless it is taken or ready.
    fn begin(preparation: &'a Preparation, key: &'a str) -> Option<Self> {
        let mut kernels = preparation.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if kernels.contains_key(key) {
            return None;
        }
        kernels.insert(key.to_owned(), State::Running);
        drop(kernels);
        Some(Self { preparation, key, kernel: None })
    }

    fn end(mut self, kernel: Option<PreparedKernel>) {
        self.kernel = kernel;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.preparation.set(self.key, self.kernel.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "kernel";

    #[test]
    fn a_launch_waits_for_the_kernel_that_is_being_prepared() {
        let preparation = Preparation::default();
        let running = Running::begin(&preparation, KEY).unwrap();
        assert!(Running::begin(&preparation, KEY).is_none());
        std::thread::scope(|scope| {
            let launch = scope.spawn(|| preparation.take(KEY).is_some());
            running.end(None);
            assert!(!launch.join().unwrap());
        });
        // The kernel belongs to the launch.
        assert!(Running::begin(&preparation, KEY).is_none());
        assert!(preparation.take(KEY).is_none());
    }

    #[test]
    fn a_panic_of_the_thread_leaves_the_kernel_to_the_launch() {
        let preparation = Preparation::default();
        let panics = || {
            let _running = Running::begin(&preparation, KEY);
            panic!("as a compiler may");
        };
        assert!(std::thread::scope(|scope| scope.spawn(panics).join()).is_err());
        assert!(preparation.take(KEY).is_none());
    }
}
