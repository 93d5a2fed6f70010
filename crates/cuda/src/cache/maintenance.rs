//! Lists, verifies, prunes and clears the cache, for the command `tilewright cache`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::entry::{self, Provenance};
use super::folder::{self, FolderFiles, Removed, StoredFile};
use super::trust::Distrust;
use super::{Cache, DIGITS, FORMAT, Key, disk, format_folder};

/// An entry of the cache, as `tilewright cache` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheEntry {
    /// The key.
    pub key: Key,
    /// The file.
    pub file: StoredFile,
    /// The condition of the file.
    pub state: EntryState,
    /// The inputs from which the cubin was assembled. Empty unless the entry is usable.
    pub provenance: Provenance,
}

/// The condition of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryState {
    /// Launches use the entry.
    Usable,
    /// The bytes differ from the written bytes.
    Damaged,
    /// The entry is not trusted.
    Untrusted(Distrust),
    /// The entry cannot be read.
    Unreadable,
}

/// The part of an entry to read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// The header. Its bytes have no checksum of their own.
    Header,
    Whole,
}

impl Cache {
    /// Returns the entries, the most recently used first. Reads only the headers of entries, so it
    /// does not detect damaged content.
    ///
    /// # Errors
    /// A folder of the cache cannot be listed.
    pub fn entries(&self) -> io::Result<Vec<CacheEntry>> {
        self.inspect(Extent::Header)
    }

    /// Reads all entries, and checks their checksums. Returns the entries, the most recently used
    /// first.
    ///
    /// # Errors
    /// A folder of the cache cannot be listed.
    pub fn verify(&self) -> io::Result<Vec<CacheEntry>> {
        self.inspect(Extent::Whole)
    }

    /// Removes folders of older formats, unfinished files of processes that were killed, and
    /// damaged entries. Then removes the least recently used entries, until the rest takes at most
    /// `limit` bytes.
    ///
    /// # Errors
    /// A folder of the cache cannot be listed.
    pub fn collect_garbage(&self, limit: u64) -> io::Result<Removed> {
        let now = SystemTime::now();
        let mut removed = self.remove_old_formats()?;
        for folder in self.folders() {
            removed.add(FolderFiles::read(&folder)?.remove_abandoned(now));
        }
        let (damaged, others): (Vec<_>, Vec<_>) =
            self.verify()?.into_iter().partition(|entry| entry.state == EntryState::Damaged);
        for entry in &damaged {
            removed.remove(&entry.file);
        }
        let files = others.into_iter().map(|entry| entry.file).collect();
        removed.add(folder::remove_least_recent(files, limit, now));
        Ok(removed)
    }

    /// Removes everything: entries, unfinished files, folders of older formats, and locks that no
    /// process holds.
    ///
    /// # Errors
    /// A folder of the cache cannot be listed.
    pub fn clear(&self) -> io::Result<Removed> {
        let mut removed = self.remove_old_formats()?;
        if let Some(root) = &self.folder {
            removed.add(clear(root)?);
        }
        Ok(removed)
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.folder.as_deref().map(folders).unwrap_or_default()
    }

    fn inspect(&self, extent: Extent) -> io::Result<Vec<CacheEntry>> {
        let mut entries = Vec::new();
        for folder in self.folders() {
            let distrust = fs::metadata(&folder).ok().and_then(|about| self.trust.reject_folder(&about));
            for (key, file) in FolderFiles::read(&folder)?.entries {
                entries.extend(self.inspect_file(key, file, distrust, extent));
            }
        }
        entries.sort_by(|a, b| (b.file.used, a.key).cmp(&(a.file.used, b.key)));
        Ok(entries)
    }

    /// Reads an entry whose folder may be untrusted; `None` if another process has removed the
    /// entry.
    fn inspect_file(
        &self,
        key: Key,
        file: StoredFile,
        folder: Option<Distrust>,
        extent: Extent,
    ) -> Option<CacheEntry> {
        let limit = match extent {
            Extent::Header => entry::MAX_HEADER_BYTES as u64,
            Extent::Whole => u64::MAX,
        };
        let decode = |bytes: &[u8]| match extent {
            Extent::Header => entry::decode_header(&key, bytes),
            Extent::Whole => entry::decode(&key, bytes),
        };
        let accept = |about: &fs::Metadata| folder.or(self.trust.reject_file(about)).map_or(Ok(()), Err);
        let (state, provenance) = match disk::read(&file.path, limit, accept) {
            Ok(Ok((_, bytes))) => match decode(&bytes) {
                Some((provenance, _)) => (EntryState::Usable, provenance),
                None => (EntryState::Damaged, Provenance::default()),
            },
            Ok(Err(distrust)) => (EntryState::Untrusted(distrust), Provenance::default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => (EntryState::Unreadable, Provenance::default()),
        };
        Some(CacheEntry { key, file, state, provenance })
    }

    fn remove_old_formats(&self) -> io::Result<Removed> {
        let mut removed = Removed::default();
        if let Some(parent) = self.folder.as_deref().and_then(Path::parent) {
            for format in 1..FORMAT {
                removed.add(clear(&parent.join(format_folder(format)))?);
            }
        }
        Ok(removed)
    }
}

fn folders(root: &Path) -> Vec<PathBuf> {
    (0..DIGITS).map(|digit| root.join(format!("{digit:x}"))).collect()
}

/// Removes the files of a format. Then removes the empty folders of the format.
fn clear(root: &Path) -> io::Result<Removed> {
    let mut removed = Removed::default();
    for folder in folders(root) {
        let files = FolderFiles::read(&folder)?;
        let entries = files.entries.iter().map(|(_, file)| file);
        entries.chain(&files.unfinished).for_each(|file| removed.remove(file));
        let mut locks = Removed::default();
        files.locks.iter().for_each(|lock| folder::remove_lock(lock, &mut locks));
        // Locks are not entries, so `removed` only contains the locks that remain.
        removed.failures.extend(locks.failures);
        // The folder is not empty if another process uses it.
        let _ = fs::remove_dir(&folder);
    }
    let _ = fs::remove_dir(root);
    Ok(removed)
}
