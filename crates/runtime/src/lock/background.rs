//! Prepares the kernels of a process's lock in a thread.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tilewright_compiler::Target;

use super::active::{self, ActiveLock};

/// The thread that prepares kernels, if it was started. A process starts one.
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
/// True if the thread was started.
static IS_STARTED: AtomicBool = AtomicBool::new(false);
/// True if the thread ends after its current kernel.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Begins to prepare the kernels for the CPU of the lock that `TILEWRIGHT_LOCK` names. Does nothing
/// without a lock, or if the process may launch its kernels on a GPU, whose first launch begins
/// ([`prepare_for`]). `TILEWRIGHT_DEVICE` must be `cpu`, or it is not set and the lock has only
/// kernels for the CPU. Reads both variables, and does not fix the settings of later launches.
pub fn prepare_in_background() {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let Some(path) = variable("TILEWRIGHT_LOCK").map(PathBuf::from) else { return };
    let device = variable("TILEWRIGHT_DEVICE");
    if device.as_ref().is_some_and(|device| device != "cpu") {
        return;
    }
    start(move || {
        let Some(lock) = active::open_early(&path) else { return };
        let has_others = || lock.file.entries.iter().any(|entry| entry.launches.target != "cpu");
        if device.is_some() || !has_others() {
            lock.preparation.run(&lock.file, &lock.artifacts, Target::Cpu, &IS_ENDING);
        }
    });
}

/// Begins to prepare the kernels of a lock for a target, unless the process has prepared kernels.
pub(super) fn prepare_for(lock: &Arc<ActiveLock>, target: Target) {
    if !IS_STARTED.load(Ordering::Relaxed) {
        let lock = Arc::clone(lock);
        start(move || lock.preparation.run(&lock.file, &lock.artifacts, target, &IS_ENDING));
    }
}

fn start(prepare: impl FnOnce() + Send + 'static) {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if !IS_STARTED.swap(true, Ordering::Relaxed) {
        // If no thread can be started, each launch prepares its kernel.
        *thread = std::thread::Builder::new().name("tilewright-lock".into()).spawn(prepare).ok();
    }
}

/// Ends the thread that prepares kernels, after its current kernel.
/// Call this function before a fork: a fork copies the locks of other threads, but not the threads
/// that would release them.
pub fn end_preparation() {
    IS_ENDING.store(true, Ordering::Relaxed);
    let thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(thread) = thread {
        // The thread ignores its errors.
        let _ = thread.join();
    }
}
