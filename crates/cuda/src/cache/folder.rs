//! Locks, writes and removes the files of one folder of the cache.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::trust::{Distrust, Trust};
use super::{Key, disk, entry};

/// The maximum wait for another builder of an entry. A process in a debugger must not block others.
const PATIENCE: Duration = Duration::from_mins(2);

/// The age at which an unfinished file counts as left by a killed process.
const ABANDONED: Duration = Duration::from_hours(1);

/// The maximum difference between the clocks of two hosts.
const SKEW: Duration = Duration::from_mins(1);

const LOCK_PREFIX: &str = "lock-";
const UNFINISHED: &str = "new";

pub(super) struct EntryPaths {
    pub(super) key: Key,
    pub(super) folder: PathBuf,
    entry: PathBuf,
    lock: PathBuf,
}

/// The result of reading an entry.
pub(super) enum Found {
    Content(Vec<u8>),
    /// There is an entry, but it is not trusted.
    Untrusted(Distrust),
    /// There is no entry, or it is damaged or cannot be read.
    Nothing,
}

/// The lock that a thread holds while it builds an entry. `None` if the lock could not be acquired.
pub(super) struct Lock(Option<File>);

impl Drop for Lock {
    fn drop(&mut self) {
        // A child that was forked meanwhile also has the file open, so closing it does not release
        // the lock.
        if let Some(file) = &self.0 {
            let _ = file.unlock();
        }
    }
}

impl EntryPaths {
    pub(super) fn new(root: &Path, key: &Key) -> Self {
        let hex = key.to_hex();
        let folder = root.join(&hex[..1]);
        Self {
            entry: folder.join(&hex),
            lock: folder.join(format!("{LOCK_PREFIX}{}", &hex[1..2])),
            folder,
            key: *key,
        }
    }

    pub(super) fn entry(&self) -> &Path {
        &self.entry
    }

    /// Reads the entry, and records the time of this use.
    pub(super) fn read(&self, trust: Trust) -> Found {
        let accept = |about: &fs::Metadata| trust.reject_file(about).map_or(Ok(()), Err);
        let (file, bytes) = match disk::read(&self.entry, u64::MAX, accept) {
            Ok(Ok(found)) => found,
            Ok(Err(distrust)) => return Found::Untrusted(distrust),
            Err(_) => return Found::Nothing,
        };
        let Some(content) = entry::into_content(&self.key, bytes) else { return Found::Nothing };
        // Entries are never removed from a read-only cache, so the time is not needed there.
        let _ = disk::touch(&file);
        Found::Content(content)
    }

    /// Creates the folder if it does not exist, and waits for the lock.
    pub(super) fn lock(&self) -> io::Result<Lock> {
        let open = || {
            fs::create_dir_all(&self.folder)?;
            disk::open_lock(&self.lock)
        };
        // Another process may clear the cache and remove the folder.
        let opened = open().or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => open(),
            _ => Err(error),
        });
        let file = match opened {
            Ok(file) => file,
            Err(error) if disk::is_transient(&error) => return Ok(Lock(None)),
            Err(error) => return Err(error),
        };
        let (start, mut pause, mut has_waited) = (Instant::now(), Duration::from_micros(200), false);
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                    has_waited = true;
                }
                // The wait was too long, or the file system has no locks. Each process builds the
                // entry itself.
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return Ok(Lock(None)),
            }
        }
        if has_waited {
            // A client of a network file system may have cached that the entry did not exist.
            // Opening the folder makes it query the server. Some systems refuse to open folders.
            let _ = File::open(&self.folder);
        }
        Ok(Lock(Some(file)))
    }

    /// Removes older entries until the folder with the new entry takes at most `limit` bytes. Then
    /// writes the entry. If the system temporarily refuses to replace an old entry, the old entry
    /// stays.
    pub(super) fn write(&self, bytes: &[u8], limit: u64, trust: Trust) -> io::Result<()> {
        let Err(first) = self.try_write(bytes, limit) else { return Ok(()) };
        // The unfinished file may be missing for two reasons: another process cleared the cache, or
        // removed the file because a clock jumped.
        if !disk::is_transient(&first) && first.kind() != io::ErrorKind::NotFound {
            return Err(first);
        }
        fs::create_dir_all(&self.folder)?;
        let Err(second) = self.try_write(bytes, limit) else { return Ok(()) };
        // A server may report an error for a rename that it has executed.
        if disk::is_transient(&second) || matches!(self.read(trust), Found::Content(_)) {
            return Ok(());
        }
        Err(second)
    }

    fn try_write(&self, bytes: &[u8], limit: u64) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.entry.with_extension(format!("{}-{number}.{UNFINISHED}", std::process::id()));
        let write = || {
            let file = disk::create(&temporary, bytes)?;
            // The time of a new file comes from the clock of the file system, which may be on
            // another host.
            let now =
                file.metadata().and_then(|about| about.modified()).unwrap_or_else(|_| SystemTime::now());
            drop(file);
            make_room(&self.folder, limit.saturating_sub(bytes.len() as u64), now)?;
            disk::rename(&temporary, &self.entry)
        };
        let written = write();
        if written.is_err() {
            // If the file was not created, removing it fails. The error of `write` is returned in
            // any case.
            let _ = disk::remove(&temporary);
        }
        written
    }
}

/// Removes the unfinished files of processes that were killed. Then removes the least recently used
/// entries of the folder until the rest takes at most `limit` bytes.
fn make_room(folder: &Path, limit: u64, now: SystemTime) -> io::Result<()> {
    let files = FolderFiles::read(folder)?;
    files.remove_abandoned(now);
    remove_least_recent(files.entries.into_iter().map(|(_, file)| file).collect(), limit, now);
    Ok(())
}

/// A file of a cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredFile {
    /// The path.
    pub path: PathBuf,
    /// The size.
    pub bytes: u64,
    /// The time of the last use, which is the modification time.
    pub used: SystemTime,
}

impl StoredFile {
    /// Returns the file at a path, given its metadata.
    pub fn new(path: PathBuf, about: &fs::Metadata) -> Self {
        let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Self { path, bytes: about.len(), used }
    }

    /// Returns whether this unfinished file belongs to a writer that was killed. A time far in the
    /// future means that a clock has jumped. Such a file also counts as abandoned.
    pub fn is_abandoned(&self, now: SystemTime) -> bool {
        let distance = now.duration_since(self.used).unwrap_or_else(|error| error.duration());
        distance > ABANDONED
    }
}

/// The files that were removed from a cache.
#[derive(Debug, Default)]
pub struct Removed {
    /// The number of removed files.
    pub files: usize,
    /// The sum of the sizes of the removed files.
    pub bytes: u64,
    /// The files that could not be removed, with the errors.
    pub failures: Vec<(PathBuf, io::Error)>,
}

impl Removed {
    /// Removes a file, and counts it.
    pub fn remove(&mut self, file: &StoredFile) {
        match disk::remove(&file.path) {
            Ok(()) => {
                self.files += 1;
                self.bytes += file.bytes;
            }
            Err(error) => self.failures.push((file.path.clone(), error)),
        }
    }

    /// Adds the files of another removal.
    pub fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.failures.extend(other.failures);
    }
}

/// Removes the least recently used files until the rest takes at most `limit` bytes. If a file
/// cannot be removed, the function removes another file instead.
///
/// A time more than a minute in the future is an error of a clock. Such a file gets the current
/// time, so that it ages from now on. If setting the time fails, the file counts as the oldest.
pub fn remove_least_recent(files: Vec<StoredFile>, limit: u64, now: SystemTime) -> Removed {
    let mut total: u64 = files.iter().map(|file| file.bytes).sum();
    let mut by_age: Vec<_> = files
        .into_iter()
        .map(|file| {
            let is_wrong = file.used.duration_since(now).is_ok_and(|ahead| ahead > SKEW);
            let counted = match is_wrong {
                false => file.used,
                true if disk::touch_path(&file.path).is_ok() => now,
                true => SystemTime::UNIX_EPOCH,
            };
            // Files with the same counted time are ordered by their own times.
            (counted, file)
        })
        .collect();
    by_age
        .sort_by(|(a, first), (b, second)| (a, first.used, &first.path).cmp(&(b, second.used, &second.path)));
    let mut removed = Removed::default();
    for (_, file) in by_age {
        if total <= limit {
            break;
        }
        let before = removed.failures.len();
        removed.remove(&file);
        if removed.failures.len() == before {
            total -= file.bytes;
        }
    }
    removed
}

/// The files of one folder of the cache: entries, unfinished files and locks. Files with other
/// names are not part of the cache.
#[derive(Default)]
pub(super) struct FolderFiles {
    pub(super) entries: Vec<(Key, StoredFile)>,
    pub(super) unfinished: Vec<StoredFile>,
    pub(super) locks: Vec<StoredFile>,
}

impl FolderFiles {
    /// Lists the files of a folder. Returns no files for a folder that does not exist.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut files = Self::default();
        let listed = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
            listed => listed?,
        };
        // A file that another process removed meanwhile has no metadata.
        for file in listed.flatten() {
            let Ok(about) = file.metadata() else { continue };
            let name = file.file_name();
            let Some(name) = name.to_str().filter(|_| !about.is_dir()) else { continue };
            let stored = StoredFile::new(file.path(), &about);
            if let Some(key) = Key::from_hex(name) {
                files.entries.push((key, stored));
            } else if Path::new(name).extension().is_some_and(|extension| extension == UNFINISHED) {
                files.unfinished.push(stored);
            } else if name.starts_with(LOCK_PREFIX) {
                files.locks.push(stored);
            }
        }
        Ok(files)
    }

    /// Removes the unfinished files of processes that were killed.
    pub(super) fn remove_abandoned(&self, now: SystemTime) -> Removed {
        let mut removed = Removed::default();
        self.unfinished.iter().filter(|file| file.is_abandoned(now)).for_each(|file| removed.remove(file));
        removed
    }
}

/// Removes the file of a lock, unless a builder holds it.
pub(super) fn remove_lock(lock: &StoredFile, removed: &mut Removed) {
    match disk::open_lock(&lock.path) {
        Ok(file) if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) => {}
        _ => removed.remove(lock),
    }
}
