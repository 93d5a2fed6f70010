//! Records the lock of the kernels that a function launches.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tilewright_runtime::lock::{begin_recording, collect, is_recording_here};
use tilewright_runtime::{Error, Handle, Knobs, Target};

/// The variants that the current recording has.
static RECORDED: Mutex<Vec<Arc<Handle>>> = Mutex::new(Vec::new());

/// Lists a variant as recorded. Returns true if this thread makes a recording that did not have the
/// variant: then the caller records it, unless its compilation has.
pub(crate) fn insert_recorded(handle: &Arc<Handle>) -> bool {
    if !is_recording_here() {
        return false;
    }
    let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = !recorded.iter().any(|known| Arc::ptr_eq(known, handle));
    if is_new {
        recorded.push(Arc::clone(handle));
    }
    is_new
}

/// Runs a function, and writes a lock. The lock contains the kernels that the function launches and
/// the choices of its tuners. It consists of the file at `path` and a folder of artifacts next to
/// this file. Each kernel is compiled for all `targets`. If `targets` is empty, each kernel is
/// compiled for the device of its launch. A process with `TILEWRIGHT_LOCK=path` launches the kernels
/// of the lock, and compiles and tunes nothing.
///
/// ```
/// use tilewright::{Bundle, Device, Module, Target, args, record_lock};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// # let folder = std::env::temp_dir().join(format!("tilewright-record-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("the folder can be made");
/// # let path = folder.join("serve.lock");
/// let targets: Vec<Target> = ["cpu", "sm_90"].into_iter().filter_map(Target::parse).collect();
/// record_lock(&path, &targets, || {
///     let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
///     double.launch(1, args![&mut vec![1.0_f32; 60], 60, BLOCK = 64])
/// })?;
///
/// // Another process, which has the lock and no source:
/// let (bundle, mut x) = (Bundle::open(&path)?.on(Device::Sim(90)), vec![1.0_f32; 60]);
/// bundle.launch("double", 1, args![x_ptr = &mut x, n = 60])?;
/// assert_eq!(x, [2.0; 60]);
/// # std::fs::remove_dir_all(&folder).expect("the folder can be removed");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the lock cannot be written, or if the function returns an error.
pub fn record_lock<R>(
    path: impl AsRef<Path>,
    targets: &[Target],
    run: impl FnOnce() -> Result<R, Error>,
) -> Result<R, Error> {
    /// Restores the knobs when the value is dropped, even after a panic.
    struct Restore(Option<Knobs>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(knobs) = self.0.take() {
                knobs.set();
            }
            RECORDED.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
    // A process can only make one recording at a time.
    static RECORDING: Mutex<()> = Mutex::new(());
    let _recording = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = path.as_ref();
    let folder = path.with_extension(format!("recording-{}", std::process::id()));
    begin_recording(&folder, targets)?;
    let before = Knobs::clone(&Knobs::current());
    let restore = Restore(Some(before.clone()));
    Knobs { lock_record: Some(folder.clone()), ..before }.set();
    let result = run();
    drop(restore);
    let collected = result.and_then(|result| collect(&folder, path).map(|_| result));
    // The lock contains the whole recording.
    let _ = std::fs::remove_dir_all(&folder);
    collected
}
