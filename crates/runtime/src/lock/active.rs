//! Reads the lock of this process, and restores kernels from it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tilewright_base::{Code, Diagnostic};
use tilewright_compiler::{
    CompiledKernel, GpuCode, Job, PreparedKernel, ir_digest, restore, restore_variant,
};
use tilewright_frontend::{FunctionSource, Lowered};
use tilewright_lock::{Artifacts, Choice, LockError, LockFile, Request};

use super::prepare::{Preparation, key};
use super::request::Compilation;
use super::stored::stored;
use crate::{Error, Knobs};

/// A lock that a process launches its kernels from.
#[derive(Debug)]
pub(crate) struct ActiveLock {
    path: PathBuf,
    pub(super) file: LockFile,
    pub(super) artifacts: Artifacts,
    pub(super) preparation: Preparation,
}

/// The result of looking for a kernel in a lock.
#[derive(Debug)]
pub(crate) enum Found {
    Restored(CompiledKernel),
    /// The kernel is not in the lock, and may be compiled.
    Missing(Option<FunctionSource>, Lowered),
}

/// The lock that was read last.
static ACTIVE: Mutex<Option<Arc<ActiveLock>>> = Mutex::new(None);

/// Returns the lock that `TILEWRIGHT_LOCK` names; `None` if the variable is not set. The first call
/// reads the lock.
///
/// # Errors
/// If the lock cannot be read.
pub(crate) fn active(knobs: &Knobs) -> Result<Option<Arc<ActiveLock>>, Error> {
    let Some(path) = &knobs.lock else { return Ok(None) };
    let mut active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lock) = active.as_ref().filter(|lock| lock.path == *path) {
        return Ok(Some(Arc::clone(lock)));
    }
    let (file, artifacts) = tilewright_lock::open(path)?;
    let lock =
        Arc::new(ActiveLock { artifacts, path: path.clone(), file, preparation: Preparation::default() });
    *active = Some(Arc::clone(&lock));
    Ok(Some(lock))
}

/// Reads the lock at `path` before the first launch. Returns `None` if the lock cannot be read, or
/// if a launch has read a lock meanwhile.
pub(super) fn open_early(path: &Path) -> Option<Arc<ActiveLock>> {
    let (file, artifacts) = tilewright_lock::open(path).ok()?;
    let lock = ActiveLock { artifacts, path: path.to_owned(), file, preparation: Preparation::default() };
    let mut active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
    if active.is_some() {
        return None;
    }
    let lock = Arc::new(lock);
    *active = Some(Arc::clone(&lock));
    Some(lock)
}

/// Reports work that a process with a lock should not do: fails with the message of `what`, or
/// prints it if `TILEWRIGHT_LOCK_POLICY` permits the work.
pub(crate) fn forbid(what: impl FnOnce() -> String, note: &str) -> Result<(), Error> {
    let knobs = Knobs::current();
    match active(&knobs)? {
        Some(lock) => lock.miss(&knobs, what(), vec![note.to_owned()]),
        None => Ok(()),
    }
}

/// Returns whether this process launches its kernels from a lock.
pub fn is_locked() -> bool {
    Knobs::current().lock.is_some()
}

/// Returns the choice of a tuner in the lock of this process. Returns `None` if there is no lock.
/// Also returns `None` if the lock does not have the choice and `TILEWRIGHT_LOCK_POLICY` permits
/// that.
///
/// # Errors
/// If the lock cannot be read, or if it does not have the choice and the policy requires the
/// choice.
pub fn locked_choice(
    kernel: &str,
    source: &str,
    target: &str,
    key: &[String],
) -> Result<Option<Choice>, Error> {
    let knobs = Knobs::current();
    let Some(lock) = active(&knobs)? else { return Ok(None) };
    if let Some(choice) = lock.file.choice(kernel, source, target, key) {
        return Ok(Some(choice.clone()));
    }
    let of_kernel: Vec<_> = lock.file.choices.iter().filter(|choice| choice.kernel == kernel).collect();
    let note = match of_kernel.first() {
        None => "the lock has no choice of this tuner".to_owned(),
        Some(choice) if choice.target != target => {
            format!("the lock has choices for {}, and this launch is for {target}", choice.target)
        }
        Some(choice) if choice.source != source => "the kernel has changed since it was locked".to_owned(),
        Some(_) => {
            let keys = of_kernel.iter().map(|choice| format!("({})", choice.key.join(", ")));
            format!("the lock has choices for {}", keys.collect::<Vec<_>>().join(", "))
        }
    };
    let message = format!("the tuner of kernel '{kernel}' has no locked choice for ({})", key.join(", "));
    lock.miss(&knobs, message, vec![note]).map(|()| None)
}

impl ActiveLock {
    /// Restores the kernel of a launch, whose IR is `lowered`. Returns [`Found::Missing`] if the
    /// lock does not have the kernel and the policy permits compiling it.
    ///
    /// # Errors
    /// If the policy forbids compiling it, or if the artifacts cannot be read.
    pub(crate) fn restore(
        &self,
        (name, job): (&str, &Job),
        source: Option<FunctionSource>,
        lowered: Lowered,
        knobs: &Knobs,
    ) -> Result<Found, Error> {
        let request = Compilation::of(name, job).request(ir_digest(&lowered.module));
        let Some(entry) = self.file.find(&request) else {
            self.explain(&request, knobs)?;
            return Ok(Found::Missing(source, lowered));
        };
        let prepared = if let Some(prepared) = self.preparation.take(key(entry)) {
            prepared
        } else {
            let stored = stored(&self.artifacts, entry).map_err(|error| unusable(&error))?;
            PreparedKernel::new(job.target, stored)?
        };
        Ok(Found::Restored(restore(job, source, lowered, prepared)))
    }

    /// Restores a variant of a kernel. Returns `None` if the lock does not have the variant and the
    /// policy permits compiling it.
    ///
    /// # Errors
    /// If the policy forbids compiling it, or if the artifacts cannot be read.
    pub(crate) fn restore_variant(
        &self,
        kernel: &CompiledKernel,
        compilation: &Compilation,
        knobs: &Knobs,
    ) -> Result<Option<GpuCode>, Error> {
        let request = compilation.request(ir_digest(&kernel.lowered));
        let stored = match self.file.find(&request) {
            Some(entry) => stored(&self.artifacts, entry).map_err(|error| unusable(&error))?.gpu,
            None => None,
        };
        let Some(stored) = stored else {
            self.explain(&request, knobs)?;
            return Ok(None);
        };
        Ok(Some(restore_variant(kernel, stored)?))
    }

    /// Reports a launch that is not in the lock, with the differences to the most similar entry.
    fn explain(&self, request: &Request, knobs: &Knobs) -> Result<(), Error> {
        let message = format!("this launch of kernel '{}' is not in the lock", request.kernel);
        let notes = match self.file.explain(request) {
            None => {
                let mut names: Vec<_> =
                    self.file.entries.iter().map(|entry| entry.launches.kernel.as_str()).collect();
                names.dedup();
                vec![format!("the lock has the kernels {}", names.join(", "))]
            }
            Some(differences) => differences,
        };
        self.miss(knobs, message, notes)
    }

    /// Fails with a message, or prints it if the policy permits kernels that are not in the lock.
    fn miss(&self, knobs: &Knobs, message: String, notes: Vec<String>) -> Result<(), Error> {
        if knobs.lock_permits_misses {
            eprintln!("tilewright: {message}: {}", notes.join("; "));
            return Ok(());
        }
        let mut diagnostic = Diagnostic::new(Code::NotLocked, message);
        diagnostic.notes = notes;
        let hint = format!(
            "lock this launch too, with `tilewright lock -o new.lock …`, and add it: `tilewright lock merge {0} new.lock -o {0}`",
            self.path.display()
        );
        Err(diagnostic.hint(hint).into())
    }
}

/// Returns the error about a lock that cannot be used.
pub(crate) fn unusable(error: &impl std::fmt::Display) -> Error {
    Diagnostic::new(Code::InvalidLock, error.to_string())
        .hint("write the lock anew with `tilewright lock`, or copy it again with its folder of artifacts")
        .into()
}

impl From<LockError> for Error {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Unreadable(..) => Diagnostic::new(Code::InvalidLock, error.to_string())
                .hint(
                    "check the path of the lock; `tilewright lock` writes tilewright.lock, or the file of -o",
                )
                .into(),
            LockError::Malformed(..) | LockError::OtherFormat(..) => unusable(&error),
        }
    }
}
