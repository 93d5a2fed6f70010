//! Prepares the kernels of a lock for fast first launches on the CPU.
//!
//! A thread prepares one kernel after another. A launch uses a ready kernel, waits for the kernel
//! that the thread is preparing, and prepares any other kernel itself. The errors of the thread are
//! ignored, because the launch finds the same errors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tilewright_compiler::PreparedKernel;
use tilewright_lock::{Artifacts, LockFile};

/// The kernels of a lock that a thread prepares, by the hash of their optimized IR.
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

impl Preparation {
    /// Removes and returns the kernel with this optimized IR, or waits for it. Returns `None` if
    /// the launch has to prepare the kernel.
    pub(crate) fn take(&self, opt: &str) -> Option<PreparedKernel> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(State::Running) = kernels.get(opt) {
            let is_running =
                |kernels: &mut FxHashMap<String, State>| matches!(kernels.get(opt), Some(State::Running));
            let waited = self.changed.wait_timeout_while(kernels, PATIENCE, is_running);
            kernels = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match kernels.insert(opt.to_owned(), State::Taken) {
            Some(State::Ready(kernel)) => Some(*kernel),
            Some(State::Running | State::Taken) | None => None,
        }
    }

    /// Prepares the kernels for the CPU that no launch has taken, until `is_ending` is true.
    pub(super) fn run(&self, file: &LockFile, artifacts: &Artifacts, is_ending: &AtomicBool) {
        for entry in file.entries.iter().filter(|entry| entry.launches.target == "cpu") {
            if is_ending.load(Ordering::Relaxed) {
                return;
            }
            let opt = &entry.code.opt;
            let Some(running) = Running::begin(self, opt) else { continue };
            let text = artifacts.read_text(opt, "opt").ok();
            running.end(text.and_then(|text| PreparedKernel::new(&text).ok()));
        }
    }

    fn set(&self, opt: &str, kernel: Option<PreparedKernel>) {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        // A launch that has waited for `PATIENCE` prepares the kernel itself.
        if let Some(state @ State::Running) = kernels.get_mut(opt) {
            *state = kernel.map_or(State::Taken, |kernel| State::Ready(Box::new(kernel)));
        }
        drop(kernels);
        self.changed.notify_all();
    }
}

/// A kernel that the thread is preparing. If the thread panics, launches prepare the kernel.
struct Running<'a> {
    preparation: &'a Preparation,
    opt: &'a str,
    kernel: Option<PreparedKernel>,
}

impl<'a> Running<'a> {
    /// Begins to prepare a kernel, unless it is taken or ready.
    fn begin(preparation: &'a Preparation, opt: &'a str) -> Option<Self> {
        let mut kernels = preparation.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if kernels.contains_key(opt) {
            return None;
        }
        kernels.insert(opt.to_owned(), State::Running);
        drop(kernels);
        Some(Self { preparation, opt, kernel: None })
    }

    fn end(mut self, kernel: Option<PreparedKernel>) {
        self.kernel = kernel;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.preparation.set(self.opt, self.kernel.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPT: &str = "kernel";

    #[test]
    fn a_launch_waits_for_the_kernel_that_is_being_prepared() {
        let preparation = Preparation::default();
        let running = Running::begin(&preparation, OPT).unwrap();
        assert!(Running::begin(&preparation, OPT).is_none());
        std::thread::scope(|scope| {
            let launch = scope.spawn(|| preparation.take(OPT).is_some());
            running.end(None);
            assert!(!launch.join().unwrap());
        });
        // The kernel belongs to the launch.
        assert!(Running::begin(&preparation, OPT).is_none());
        assert!(preparation.take(OPT).is_none());
    }

    #[test]
    fn a_panic_of_the_thread_leaves_the_kernel_to_the_launch() {
        let preparation = Preparation::default();
        let panics = || {
            let _running = Running::begin(&preparation, OPT);
            panic!("as a compiler may");
        };
        assert!(std::thread::scope(|scope| scope.spawn(panics).join()).is_err());
        assert!(preparation.take(OPT).is_none());
    }
}
