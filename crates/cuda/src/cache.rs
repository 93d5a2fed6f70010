//! Caches cubins on disk, because assembling a cubin may take seconds. The key of a cubin is a hash
//! of everything that the cubin depends on.
//!
//! ```text
//! <directory>/tilewright-1/<first digit of the key>/
//!     <the key in hexadecimal>        an entry
//!     <key>.<process>-<number>.new    an entry that is being written
//!     lock-<second digit>             the lock that a builder of an entry holds
//! ```
//! - An entry is written under another name and renamed, so that readers see all of it or nothing.
//!   An entry contains its key and a checksum, so that a reader detects a damaged entry
//!   and builds it again.
//! - To build an entry, a thread holds the lock that the first two digits of the key select. If
//!   several processes or threads request the entry, one builds it; the others wait and then read
//!   it. The system releases the lock of a process that dies. If a lock cannot be acquired, an
//!   entry may be built twice, but is never wrong.
//! - Each of the 16 folders may take a 16th of the limit. A writer removes the least recently used
//!   entries of its folder, so that its work depends only on the size of one folder.
//! - After an error of the disk, [`Cache::get_or_build`] still returns contents;
//!   [`Cache::take_warning`] returns the error.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::{Error, Settings};

/// The folder for this format of entries, within a cache folder that other programs may use too.
const FOLDER: &str = "tilewright-1";

/// The number of values of a hexadecimal digit. The first digit of a key selects one of this many
/// folders, the second digit one of this many locks in the folder.
const DIGITS: usize = 16;

/// The first bytes of an entry.
const MAGIC: [u8; 8] = *b"TWCUBIN1";
const HEADER_BYTES: usize = MAGIC.len() + 32 + 32;

/// The maximum time to wait for another builder of an entry. It is longer than an assembler takes,
/// but finite: a process that is stopped in a debugger must not block all others.
const PATIENCE: Duration = Duration::from_mins(2);

/// The age at which an unfinished file of an entry is assumed to belong to a process that was
/// killed.
const ABANDONED: Duration = Duration::from_hours(1);

/// The hash of everything that an entry depends on, 256 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key([u8; 32]);

impl Key {
    /// Hashes everything that an entry depends on, as pairs of a name and a value. The version of
    /// this crate is part of every key.
    pub fn of(parts: &[(&str, &[u8])]) -> Self {
        let mut hasher =
            blake3::Hasher::new_derive_key(concat!("tilewright cache ", env!("CARGO_PKG_VERSION")));
        for (name, content) in parts {
            for text in [name.as_bytes(), content] {
                hasher.update(&(text.len() as u64).to_le_bytes());
                hasher.update(text);
            }
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// Returns the key in hexadecimal digits.
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

/// A cache of cubins in a folder. Any number of processes and threads may use one folder at a time.
#[derive(Debug)]
pub struct Cache {
    /// The folder of this cache; `None` if there is no cache.
    folder: Option<PathBuf>,
    /// The maximum number of bytes of each of the 16 folders.
    limit: u64,
    warning: Mutex<Warning>,
}

#[derive(Debug)]
enum Warning {
    None,
    Waiting(String),
    Given,
}

impl Cache {
    /// Creates the cache that the settings describe. It accesses the disk only when it is used.
    pub fn new(settings: &Settings) -> Self {
        let folder = settings.cache_directory.as_ref().filter(|_| settings.cache_limit > 0);
        let warning = match folder {
            None if settings.cache_limit > 0 => Warning::Waiting(
                "no folder for the kernel cache: neither HOME nor TILEWRIGHT_CACHE_DIR is set; kernels are compiled anew \
                 in each process"
                    .to_owned(),
            ),
            _ => Warning::None,
        };
        Self {
            folder: folder.map(|folder| folder.join(FOLDER)),
            limit: settings.cache_limit / DIGITS as u64,
            warning: Mutex::new(warning),
        }
    }

    /// Returns the first reason why the cache cannot be used, if there is one. Returns it only
    /// once; later calls return `None`.
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

    fn warn(&self, path: &Path, error: &io::Error) {
        let mut warning = self.warning.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*warning, Warning::None) {
            let path = path.display();
            *warning = Warning::Waiting(format!("the kernel cache cannot be used: {path}: {error}"));
        }
    }

    /// Returns the entry of a key, and builds it if there is none. Of concurrent callers with the
    /// same key, only one calls `build`, unless the lock cannot be acquired.
    ///
    /// # Errors
    /// Only those of `build`.
    pub fn get_or_build(
        &self,
        key: &Key,
        build: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<Vec<u8>, Error> {
        let Some(paths) = self.paths(key) else { return build() };
        if let Some(content) = paths.read() {
            return Ok(content);
        }
        let lock = match paths.lock() {
            Ok(lock) => lock,
            Err(error) => {
                self.warn(&paths.folder, &error);
                return build();
            }
        };
        // Another process may have built the entry while this one waited.
        if let Some(content) = paths.read() {
            return Ok(content);
        }
        let content = build()?;
        if let Err(error) = self.write(&paths, &content) {
            self.warn(&paths.folder, &error);
        }
        drop(lock);
        Ok(content)
    }

    /// Returns the entry of a key, if there is one.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        self.paths(key)?.read()
    }

    fn paths(&self, key: &Key) -> Option<EntryPaths> {
        let hex = key.to_hex();
        let folder = self.folder.as_ref()?.join(&hex[..1]);
        Some(EntryPaths {
            entry: folder.join(&hex),
            lock: folder.join(format!("lock-{}", &hex[1..2])),
            folder,
            key: *key,
        })
    }

    fn write(&self, paths: &EntryPaths, content: &[u8]) -> io::Result<()> {
        let bytes = (HEADER_BYTES + content.len()) as u64;
        if bytes > self.limit {
            return Ok(());
        }
        paths.make_room(self.limit - bytes)?;
        paths.write(content)
    }
}

/// The paths of an entry.
struct EntryPaths {
    key: Key,
    folder: PathBuf,
    entry: PathBuf,
    lock: PathBuf,
}

/// The lock that is held while an entry is built; `None` if it could not be acquired.
struct Lock(Option<File>);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file does not release the lock if a child that was forked meanwhile still has
        // the file open.
        if let Some(file) = &self.0 {
            let _ = file.unlock();
        }
    }
}

impl EntryPaths {
    /// Returns the content, if the entry exists and is undamaged.
    fn read(&self) -> Option<Vec<u8>> {
        let mut file = File::open(&self.entry).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let content = bytes.get(HEADER_BYTES..)?;
        if bytes[..HEADER_BYTES] != self.header(content) {
            return None;
        }
        // Records the time of the last use, for `make_room`. An error is ignored: nothing is
        // removed from a cache that cannot be written.
        let _ = file.set_modified(SystemTime::now());
        bytes.drain(..HEADER_BYTES);
        Some(bytes)
    }

    fn header(&self, content: &[u8]) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let (magic, rest) = header.split_at_mut(MAGIC.len());
        let (key, checksum) = rest.split_at_mut(32);
        magic.copy_from_slice(&MAGIC);
        key.copy_from_slice(&self.key.0);
        checksum.copy_from_slice(blake3::hash(content).as_bytes());
        header
    }

    /// Creates the folder if there is none, and waits for the lock.
    fn lock(&self) -> io::Result<Lock> {
        fs::create_dir_all(&self.folder)?;
        let file = File::options().create(true).truncate(false).write(true).open(&self.lock)?;
        let (start, mut pause) = (Instant::now(), Duration::from_micros(200));
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock(Some(file))),
                Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
                // The wait was too long, or the file system has no locks. Each process then builds
                // the entry itself.
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return Ok(Lock(None)),
            }
        }
    }

    fn write(&self, content: &[u8]) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.entry.with_extension(format!("{}-{number}.new", std::process::id()));
        let write = || {
            let mut file = File::options().create_new(true).write(true).open(&temporary)?;
            file.write_all(&self.header(content))?;
            file.write_all(content)?;
            drop(file);
            fs::rename(&temporary, &self.entry)
        };
        let written = write();
        if written.is_err() {
            // Removing the file fails if it was not created; the error of `write` is returned.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Removes the unfinished files of processes that were killed. Then removes the least recently
    /// used entries of the folder until the rest takes at most `limit` bytes.
    fn make_room(&self, limit: u64) -> io::Result<()> {
        let now = SystemTime::now();
        let (mut entries, mut total) = (Vec::new(), 0);
        for file in fs::read_dir(&self.folder)? {
            let file = file?;
            let Ok(about) = file.metadata() else { continue };
            let (path, used) = (file.path(), about.modified().unwrap_or(now));
            if path.extension().is_some_and(|extension| extension == "new") {
                if now.duration_since(used).is_ok_and(|age| age > ABANDONED) {
                    let _ = fs::remove_file(&path);
                }
            } else if !file.file_name().to_string_lossy().starts_with("lock-") {
                total += about.len();
                entries.push((used, about.len(), path));
            }
        }
        entries.sort_unstable();
        for (_, bytes, path) in entries {
            if total <= limit {
                break;
            }
            // Another process may have removed the entry already.
            let _ = fs::remove_file(path);
            total -= bytes;
        }
        Ok(())
    }
}
