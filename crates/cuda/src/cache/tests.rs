//! Tests how the cache handles errors of network file systems.
#![allow(clippy::unwrap_used, reason = "an error is a failed test")]

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::*;

/// A folder for one test. Dropping the value removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tilewright-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn cache(&self) -> Cache {
        Cache::new(&Settings {
            library: None,
            cache_directory: Some(self.0.clone()),
            cache_limit: 1 << 20,
            cache_is_shared: false,
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn key(name: &str) -> Key {
    Key::of(&[("name", name.as_bytes())])
}

/// Gets an entry, and returns whether the call built the entry.
fn get(cache: &Cache, name: &str) -> bool {
    let is_built = Cell::new(false);
    let build = || {
        is_built.set(true);
        Ok(name.as_bytes().to_vec())
    };
    assert_eq!(cache.get_or_build(&key(name), &Provenance::default(), build), Ok(name.as_bytes().to_vec()));
    is_built.get()
}

/// Returns the paths of the files in the folder of an entry, except the files of locks.
fn files(cache: &Cache, name: &str) -> Vec<PathBuf> {
    let folder = cache.paths(&key(name)).unwrap().folder;
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with("lock-")).collect()
}

#[test]
fn a_device_is_not_read() {
    let accept = |_: &fs::Metadata| Ok::<(), ()>(());
    let error = disk::read(Path::new("/dev/null"), 10, accept).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_stale_handle_is_looked_up_again() {
    let folder = Folder::new("stale");
    let cache = folder.cache();
    assert!(get(&cache, "add"));
    for operation in ["open", "read"] {
        disk::fail(operation, libc::ESTALE, 1);
        assert!(!get(&cache, "add"), "{operation}");
    }
    for operation in ["lock", "rename"] {
        disk::fail(operation, libc::ESTALE, 1);
        assert!(get(&cache, operation));
        assert!(!get(&cache, operation), "the entry is stored");
    }
    assert_eq!(cache.take_warning(), None);
}

#[test]
fn a_handle_that_stays_stale_is_no_entry() {
    let folder = Folder::new("stale-for-ever");
    let cache = folder.cache();
    assert!(get(&cache, "add"));
    // The entry is read before and after the lock is acquired, each time with one repetition.
    disk::fail("read", libc::ESTALE, 4);
    assert!(get(&cache, "add"));
    // Opening the lock's file fails twice. Expected: the entry is built without the lock.
    disk::fail("lock", libc::ESTALE, 2);
    assert!(get(&cache, "other"));
    assert!(!get(&cache, "other"));
    assert_eq!(cache.take_warning(), None);
}

#[test]
fn an_entry_that_is_busy_keeps_its_content() {
    let folder = Folder::new("busy");
    let cache = folder.cache();
    assert!(get(&cache, "add"));
    let (path, whole) =
        (cache.paths(&key("add")).unwrap().entry().to_owned(), fs::read(files(&cache, "add").remove(0)));
    let whole = whole.unwrap();
    for code in [libc::EBUSY, libc::ESTALE] {
        fs::write(&path, &whole[..50]).unwrap();
        // The entry is written in two attempts. With a stale handle, each attempt repeats its
        // rename.
        disk::fail("rename", code, if code == libc::ESTALE { 4 } else { 2 });
        assert!(get(&cache, "add"));
        assert_eq!(files(&cache, "add"), std::slice::from_ref(&path), "no unfinished file is left");
        assert_eq!(fs::read(&path).unwrap(), whole[..50]);
        assert!(get(&cache, "add"));
        assert!(!get(&cache, "add"));
    }
    assert_eq!(cache.take_warning(), None);
}

#[test]
fn a_rename_whose_answer_is_lost_counts() {
    let folder = Folder::new("answer");
    let cache = folder.cache();
    // The server executed the first rename, so the second one does not find the file.
    let paths = cache.paths(&key("add")).unwrap();
    let bytes = entry::encode(&key("add"), &Provenance::default(), b"add");
    drop(paths.lock().unwrap());
    fs::write(paths.entry(), &bytes).unwrap();
    disk::fail("rename", libc::ENOENT, 2);
    paths.write(&bytes, 1 << 16, cache.trust).unwrap();
    assert!(!get(&cache, "add"));
    // The entry does not exist after the failed renames. Expected: an error.
    disk::fail("rename", libc::ENOENT, 2);
    assert!(get(&cache, "other"));
    assert!(cache.take_warning().unwrap().contains("os error 2"));
}

#[test]
fn a_file_that_is_removed_meanwhile_is_written_again() {
    let folder = Folder::new("removed");
    let cache = folder.cache();
    disk::fail("rename", libc::ENOENT, 1);
    assert!(get(&cache, "add"));
    assert!(!get(&cache, "add"));
    assert_eq!((files(&cache, "add").len(), cache.take_warning()), (1, None));
    // Another process removed the folder of the lock, so opening the lock fails once.
    disk::fail("lock", libc::ENOENT, 1);
    assert!(get(&cache, "other"));
    assert!(!get(&cache, "other"));
    assert_eq!(cache.take_warning(), None);
}

#[test]
fn other_errors_are_a_warning() {
    let folder = Folder::new("errors");
    for operation in ["create", "rename", "lock"] {
        let cache = folder.cache();
        disk::fail(operation, libc::EIO, 1);
        assert!(get(&cache, operation));
        let warning = cache.take_warning().unwrap();
        assert!(warning.contains("os error 5"), "{operation}: {warning}");
        assert!(get(&cache, operation), "nothing is stored");
    }
}

#[test]
fn a_file_that_is_busy_is_not_removed_and_counts() {
    let folder = Folder::new("room");
    let now = SystemTime::now();
    let files: Vec<_> = (0..3_u64)
        .map(|minutes| {
            let path = folder.0.join(minutes.to_string());
            fs::write(&path, [0; 10]).unwrap();
            StoredFile { path, bytes: 10, used: now - Duration::from_mins(10 - minutes) }
        })
        .collect();
    disk::fail("remove", libc::EBUSY, 1);
    let removed = remove_least_recent(files.clone(), 20, now);
    assert_eq!((removed.files, removed.bytes, removed.failures.len()), (1, 10, 1));
    let exist: Vec<_> = files.iter().map(|file| file.path.exists()).collect();
    assert_eq!(exist, [true, false, true]);
    // Another process has already removed a file. Expected: the file counts as removed.
    disk::fail("remove", libc::ENOENT, 1);
    assert_eq!(remove_least_recent(files[..1].to_vec(), 0, now).failures.len(), 0);
}

#[test]
fn a_time_in_the_future_that_cannot_be_corrected_is_the_oldest() {
    let folder = Folder::new("future");
    let now = SystemTime::now();
    let files = ["future", "old"].map(|name| {
        let path = folder.0.join(name);
        fs::write(&path, [0; 10]).unwrap();
        let day = Duration::from_hours(24);
        let used = if name == "old" { now - day } else { now + day };
        StoredFile { path, bytes: 10, used }
    });
    disk::fail("touch", libc::EPERM, 1);
    assert_eq!(remove_least_recent(files.to_vec(), 10, now).files, 1);
    assert!(!files[0].path.exists() && files[1].path.exists());
}
