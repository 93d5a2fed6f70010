//! Caches cubins on disk.
//!
//! Assembling a cubin may take seconds. The key of a cubin is a hash of everything that it depends
//! on.
//!
//! ```text
//! <directory>/tilewright-2/<first digit of the key>/<the key in hexadecimal>       an entry
//!                                                  /<key>.<process>-<number>.new   an entry that is being written
//!                                                  /lock-<second digit>            held while an entry is built
//! ```
//! - An entry is written under another name and renamed, so that a reader sees all of it or
//!   nothing. It contains its key and a checksum, so that a reader detects damage.
//! - To build an entry, a thread holds the lock that the first two digits of the key select. Other
//!   threads and processes wait, and then read the entry. The system releases the lock of a dead
//!   process. Without the lock, two processes may build the same entry.
//! - Each of the 16 folders may take a 16th of the limit (`TILEWRIGHT_CACHE_LIMIT`). A writer
//!   removes the least recently used entries of its folder.
//! - Entries and folders of other users are not used, except those of the superuser (see `trust`).
//!   `TILEWRIGHT_CACHE_SHARED=1` trusts all users.
//! - After an error of the disk, [`Cache::get_or_build`] still returns the entry, and
//!   [`Cache::take_warning`] returns the error. Transient errors of network file systems (see
//!   `disk`) cause no warning.
//!
//! `docs/cache.md` has the table of all faults.

mod disk;
mod entry;
mod folder;
mod key;
mod maintenance;
#[cfg(all(test, unix))]
mod tests;
mod trust;

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::{Error, Settings};

pub use entry::Provenance;
pub use folder::{Removed, StoredFile, remove_least_recent};
pub use key::Key;
pub use maintenance::{CacheEntry, EntryState};
pub use trust::Distrust;

use folder::{EntryPaths, Found};
use trust::Trust;

/// The version of the format of entries.
const FORMAT: u32 = 2;

/// The number of values of a hexadecimal digit. The first digit of a key selects a folder, and the
/// second digit selects a lock in it.
const DIGITS: usize = 16;

/// Returns the name of the folder for a version of the format, within the cache folder.
fn format_folder(format: u32) -> String {
    format!("tilewright-{format}")
}

/// A cache of cubins in a folder. Any number of processes and threads may use one folder at a time.
#[derive(Debug)]
pub struct Cache {
    /// The folder for this version of the format; `None` if the settings name no cache folder.
    folder: Option<PathBuf>,
    /// The maximum number of bytes of each of the 16 folders; 0 turns the cache off.
    limit: u64,
    trust: Trust,
    warning: Mutex<Warning>,
}

#[derive(Debug)]
enum Warning {
    None,
    Waiting(String),
    Given,
}

impl Cache {
    /// Creates the cache that the settings describe. The disk is accessed only when the cache is
    /// used.
    pub fn new(settings: &Settings) -> Self {
        let folder = settings.cache_directory.as_ref();
        let warning = match folder {
            None if settings.cache_limit > 0 => Warning::Waiting(
                "no folder for the kernel cache: neither HOME nor TILEWRIGHT_CACHE_DIR is set; kernels are compiled anew \
                 in each process"
                    .to_owned(),
            ),
            _ => Warning::None,
        };
        Self {
            folder: folder.map(|folder| folder.join(format_folder(FORMAT))),
            limit: settings.cache_limit / DIGITS as u64,
            trust: Trust { everyone: settings.cache_is_shared },
            warning: Mutex::new(warning),
        }
    }

    /// Returns the first reason why the cache could not be used. Returns `None` without a reason.
    /// Only one call returns the reason; later calls return `None`.
    pub fn take_warning(&self) -> Option<String> {
        let mut warning = self.warning.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*warning, Warning::Waiting(_)) {
            return None;
        }
        match std::mem::replace(&mut *warning, Warning::Given) {
            Warning::Waiting(text) => Some(text),
            Warning::None | Warning::Given => None,
        }
    }

    fn warn(&self, path: &Path, reason: &dyn Display) {
        let mut warning = self.warning.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*warning, Warning::None) {
            let path = path.display();
            *warning = Warning::Waiting(format!("the kernel cache cannot be used: {path}: {reason}"));
        }
    }

    fn warn_of_distrust(&self, path: &Path, distrust: Distrust) {
        self.warn(path, &format_args!("{distrust}; TILEWRIGHT_CACHE_SHARED=1 trusts the files of all users"));
    }

    /// Returns the entry of a key. If there is no entry, builds and stores the entry. Of concurrent
    /// callers with the same key, one calls `build`. All of them call `build` in these cases:
    ///
    /// - The cache is off or rejects a folder.
    /// - The lock cannot be acquired.
    /// - `build` fails.
    /// - The entry cannot be written, or is larger than the limit of its folder.
    ///
    /// The cache stores the provenance with the entry for [`Cache::entries`]. The provenance is not
    /// part of the key.
    ///
    /// # Errors
    /// Only the errors of `build`.
    pub fn get_or_build(
        &self,
        key: &Key,
        provenance: &Provenance,
        build: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<Vec<u8>, Error> {
        let Some(paths) = self.paths(key) else { return build() };
        if let Some((path, distrust)) = self.reject_folders(&paths) {
            self.warn_of_distrust(path, distrust);
            return build();
        }
        match paths.read(self.trust) {
            Found::Content(content) => return Ok(content),
            Found::Untrusted(distrust) => self.warn_of_distrust(paths.entry(), distrust),
            Found::Nothing => {}
        }
        let lock = match paths.lock() {
            Ok(lock) => lock,
            Err(error) => {
                self.warn(&paths.folder, &error);
                return build();
            }
        };
        // Another process may have built the entry since the first read.
        if let Found::Content(content) = paths.read(self.trust) {
            return Ok(content);
        }
        let content = build()?;
        if let Err(error) = self.write(&paths, provenance, &content) {
            self.warn(&paths.folder, &error);
        }
        drop(lock);
        Ok(content)
    }

    /// Returns the entry of a key. Returns `None` if the cache is off, or if no whole and trusted
    /// entry exists.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let paths = self.paths(key)?;
        if self.reject_folders(&paths).is_some() {
            return None;
        }
        match paths.read(self.trust) {
            Found::Content(content) => Some(content),
            Found::Untrusted(_) | Found::Nothing => None,
        }
    }

    /// Returns the reason why a file of the cache's folder is not trusted. Returns `None` for a
    /// trusted file.
    pub fn reject_file(&self, about: &fs::Metadata) -> Option<Distrust> {
        self.trust.reject_file(about)
    }

    fn paths(&self, key: &Key) -> Option<EntryPaths> {
        let folder = self.folder.as_ref().filter(|_| self.limit > 0)?;
        Some(EntryPaths::new(folder, key))
    }

    /// Returns the first untrusted folder of an entry, with the reason. A missing folder is not
    /// rejected.
    fn reject_folders<'a>(&'a self, paths: &'a EntryPaths) -> Option<(&'a Path, Distrust)> {
        let folders = [self.folder.as_deref()?, &paths.folder];
        folders.into_iter().find_map(|folder| {
            let about = fs::metadata(folder).ok()?;
            Some((folder, self.trust.reject_folder(&about)?))
        })
    }

    fn write(&self, paths: &EntryPaths, provenance: &Provenance, content: &[u8]) -> io::Result<()> {
        let bytes = entry::encode(&paths.key, provenance, content);
        if bytes.len() as u64 > self.limit {
            return Ok(());
        }
        paths.write(&bytes, self.limit, self.trust)
    }
}
