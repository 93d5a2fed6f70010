//! Performs the cache's operations on files, also on network file systems.
//!
//! - `ESTALE`: the server has replaced or removed the file of a handle. A read, a
//!   rename or the opening of a lock is repeated once, by name. A removal counts as done.
//! - `EBUSY`: the system uses the file, so the cache does not change it.
//! - On Unix, the times of files come from the clock of the file system.
#![cfg_attr(unix, expect(unsafe_code, reason = "a function of the C library"))]

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

#[cfg(all(test, unix))]
pub(super) use faults::fail;

/// Repeats an operation once if the server has replaced or removed the file of a handle.
fn retry_stale<T>(operation: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match operation() {
        Err(error) if error.kind() == ErrorKind::StaleNetworkFileHandle => operation(),
        result => result,
    }
}

/// Returns whether a later attempt at the operation may succeed.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StaleNetworkFileHandle | ErrorKind::ResourceBusy | ErrorKind::Interrupted
    )
}

/// Reads the first `limit` bytes of a regular file that `accept` accepts. Returns the open file,
/// too.
pub(super) fn read<E>(
    path: &Path,
    limit: u64,
    accept: impl Fn(&Metadata) -> Result<(), E>,
) -> io::Result<Result<(File, Vec<u8>), E>> {
    retry_stale(|| {
        let file = open(path)?;
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(ErrorKind::InvalidInput.into());
        }
        if let Err(reason) = accept(&about) {
            return Ok(Err(reason));
        }
        let mut bytes = Vec::with_capacity(about.len().min(limit) as usize);
        check("read")?;
        (&file).take(limit).read_to_end(&mut bytes)?;
        Ok(Ok((file, bytes)))
    })
}

/// Opens a file for reading, without waiting for the writer of a pipe.
fn open(path: &Path) -> io::Result<File> {
    check("open")?;
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.read(true).open(path)
}

/// Opens the file of a lock, or creates it. Opens a file of another user only for reading, if this
/// process may not write to it.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    retry_stale(|| {
        check("lock")?;
        match OpenOptions::new().create(true).truncate(false).write(true).open(path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => open(path).map_err(|_| error),
            opened => opened,
        }
    })
}

/// Writes a new file that only its owner and its group may write.
pub(super) fn create(path: &Path, bytes: &[u8]) -> io::Result<File> {
    check("create")?;
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o664);
    let mut file = options.create_new(true).write(true).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Renames a file. Replaces the file at `to`.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    retry_stale(|| {
        check("rename")?;
        fs::rename(from, to)
    })
}

/// Removes a file. Also succeeds if there is no such file.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let removed = check("remove").and_then(|()| fs::remove_file(path));
    match removed {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::StaleNetworkFileHandle) => {
            Ok(())
        }
        result => result,
    }
}

/// Sets the modification time of a file to the current time of the file system's clock.
#[cfg(unix)]
pub(super) fn touch(file: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open, and a null pointer means the current time.
    match unsafe { libc::futimens(file.as_raw_fd(), std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the modification time of a file to the current time.
#[cfg(not(unix))]
pub(super) fn touch(file: &File) -> io::Result<()> {
    file.set_modified(std::time::SystemTime::now())
}

/// Sets the modification time of the file at a path to the current time.
pub(super) fn touch_path(path: &Path) -> io::Result<()> {
    check("touch")?;
    touch(&open(path)?)
}

/// Returns the error that a test injects; none outside of tests.
#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "it fails in tests")]
fn check(_operation: &str) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
use faults::check;

#[cfg(test)]
mod faults {
    //! Injects errors of network file systems into the operations of this thread.

    use std::cell::RefCell;
    use std::io;

    thread_local! {
        static FAULTS: RefCell<Vec<(&'static str, i32)>> = const { RefCell::new(Vec::new()) };
    }

    /// Makes the next `count` operations of this name fail with the error number `code` of the
    /// system.
    pub(in crate::cache) fn fail(operation: &'static str, code: i32, count: usize) {
        FAULTS.with_borrow_mut(|faults| faults.extend(std::iter::repeat_n((operation, code), count)));
    }

    pub(super) fn check(operation: &str) -> io::Result<()> {
        FAULTS.with_borrow_mut(|faults| match faults.iter().position(|(name, _)| *name == operation) {
            Some(index) => Err(io::Error::from_raw_os_error(faults.remove(index).1)),
            None => Ok(()),
        })
    }
}
