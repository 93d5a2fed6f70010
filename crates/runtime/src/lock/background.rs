//! Reads the lock of a process, and prepares its kernels, in threads.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tilewright_compiler::Target;
use tilewright_lock::Entry;

use super::active::{self, ActiveLock};

/// The threads that read the lock and prepare its kernels.
static THREADS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());
/// True if a thread prepares kernels, or has prepared them. A process prepares for one target.
static IS_PREPARING: AtomicBool = AtomicBool::new(false);
/// True if the thread ends after its current kernel.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Begins to read the lock that `TILEWRIGHT_LOCK` names, and to prepare its kernels for the CPU.
/// Does nothing without a lock. Prepares kernels if `TILEWRIGHT_DEVICE` is `cpu`, or if it is not
/// set and the lock has only kernels for the CPU. On a GPU, the first launch begins to prepare
/// them. Reads both variables, and does not fix the settings of later launches.
pub fn prepare_in_background() {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let Some(path) = variable("TILEWRIGHT_LOCK").map(PathBuf::from) else { return };
    let device = variable("TILEWRIGHT_DEVICE");
    start(move || {
        let Some(lock) = active::open_early(&path) else { return };
        let is_cpu = |entry: &Entry| entry.launches.target == "cpu";
        if device.map_or_else(|| lock.file.entries.iter().all(is_cpu), |device| device == "cpu")
            && !IS_PREPARING.swap(true, Ordering::Relaxed)
        {
            lock.preparation.run(&lock.file, &lock.artifacts, Target::Cpu, &IS_ENDING);
        }
    });
}

/// Begins to prepare the kernels of a lock for a GPU, unless the process has prepared kernels.
pub(crate) fn prepare_for(lock: &Arc<ActiveLock>, target: Target) {
    if target != Target::Cpu && !IS_PREPARING.swap(true, Ordering::Relaxed) {
        let lock = Arc::clone(lock);
        start(move || lock.preparation.run(&lock.file, &lock.artifacts, target, &IS_ENDING));
    }
}

fn start(work: impl FnOnce() + Send + 'static) {
    // If no thread can be started, each launch prepares its kernel.
    if let Ok(thread) = std::thread::Builder::new().name("tilewright-lock".into()).spawn(work) {
        THREADS.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    }
}

/// Ends the threads after their current kernels.
/// Call this function before a fork: a fork copies the locks of other threads, but not the threads
/// that would release them.
pub fn end_preparation() {
    IS_ENDING.store(true, Ordering::Relaxed);
    let threads = std::mem::take(&mut *THREADS.lock().unwrap_or_else(PoisonError::into_inner));
    for thread in threads {
        // The thread ignores its errors.
        let _ = thread.join();
    }
}
