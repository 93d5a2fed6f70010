//! Tests the rows of `docs/cache.md` about users, clocks and special files.
//!
//! `cache.rs` tests the rows about processes and disks. The unit tests of the crate test the rows
//! about network file systems.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "an error is a failed test")]

#[expect(dead_code, reason = "these tests need a part of it")]
mod common;
#[path = "common/cache.rs"]
mod entries;

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use std::{env, fs, io::Write as _};

use common::TemporaryFolder;
use entries::{cache, cache_of, content, entry, get, key, names_of_one_folder, provenance};
use tilewright_cuda::{Cache, EntryState, Settings};

/// The id of another user, for tests that run as the superuser.
const OTHER: u32 = 65534;

/// Changes the owner of a file to another user. Returns false if this process lacks the permission.
fn give_away(path: &Path) -> bool {
    let is_given = chown(path, Some(OTHER), Some(OTHER)).is_ok();
    if !is_given {
        eprintln!("skipped: only the superuser can give files to another user");
    }
    is_given
}

fn shared(folder: &Path) -> Cache {
    Cache::new(&Settings {
        library: None,
        cache_directory: Some(folder.to_owned()),
        cache_limit: 1 << 30,
        cache_is_shared: true,
    })
}

fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn set_time(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

fn used(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

// --- Users ---

#[test]
fn an_entry_of_another_user_is_built_anew() {
    let folder = TemporaryFolder::new();
    let path = entry(&folder.0, "add");
    assert!(get(&cache(&folder.0), "add"));
    if !give_away(&path) {
        return;
    }
    let first = cache(&folder.0);
    assert_eq!(first.entries().unwrap()[0].state, first.verify().unwrap()[0].state);
    assert!(matches!(first.entries().unwrap()[0].state, EntryState::Untrusted(_)));
    assert_eq!(first.get(&key("add")), None);
    assert_eq!(shared(&folder.0).get(&key("add")), Some(content("add")), "a shared cache is trusted");
    assert!(get(&first, "add"));
    let warning = first.take_warning().unwrap();
    let parts = [path.to_str().unwrap(), "it belongs to user 65534", "TILEWRIGHT_CACHE_SHARED=1"];
    assert!(parts.iter().all(|part| warning.contains(part)) && !warning.contains('\n'), "{warning}");
    // The new entry belongs to this user.
    let again = cache(&folder.0);
    assert!(!get(&again, "add"));
    assert_eq!((again.take_warning(), first.take_warning()), (None, None));
}

#[test]
fn a_folder_of_another_user_is_not_used() {
    for is_root in [false, true] {
        let folder = TemporaryFolder::new();
        let path = entry(&folder.0, "add");
        assert!(get(&cache(&folder.0), "add"));
        let parent = path.parent().unwrap();
        let given = if is_root { parent.parent().unwrap() } else { parent };
        if !give_away(given) {
            return;
        }
        let before = used(&path);
        let cache = cache(&folder.0);
        assert!(get(&cache, "add") && get(&cache, "add"), "nothing is read");
        assert_eq!((cache.get(&key("add")), used(&path)), (None, before), "nothing is written");
        let warning = cache.take_warning().unwrap();
        assert!(warning.contains(given.to_str().unwrap()), "{warning}");
        assert_eq!(cache.take_warning(), None);
        assert!(!get(&shared(&folder.0), "add"));
    }
}

#[test]
fn an_entry_that_other_users_may_write_is_built_anew() {
    let folder = TemporaryFolder::new();
    let path = entry(&folder.0, "add");
    assert!(get(&cache(&folder.0), "add"));
    permit(&path, 0o666);
    assert!(get(&cache(&folder.0), "add"));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o002, 0);
    // The group may write the file, as with the umask 002.
    permit(&path, 0o664);
    assert!(!get(&cache(&folder.0), "add"));
    // Expected: a folder of this user is trusted.
    permit(path.parent().unwrap(), 0o777);
    assert!(!get(&cache(&folder.0), "add"));
}

const WORK: &str = "TILEWRIGHT_CACHE_TEST_WORK";

/// Runs a test of this file in a child process, as `user`, after the shell commands `script`. The
/// variable `WORK` has the value `work`. Returns whether the test succeeds.
fn again(test: &str, work: &str, user: Option<u32>, script: &str) -> bool {
    // The other user may execute this copy.
    let folder = TemporaryFolder::new();
    permit(&folder.0, 0o755);
    let program = folder.0.join("test");
    // The system does not execute a file that is open for writing. A child of another test inherits
    // the open files of this process, so `cp` writes the copy.
    let copied = Command::new("cp").arg(env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success());
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{script} exec \"$0\" --exact {test}")]).arg(&program).env(WORK, work);
    command.current_dir("/");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let output = command.output().unwrap();
    if !output.status.success() {
        std::io::stderr().write_all(&[output.stdout, output.stderr].concat()).unwrap();
    }
    output.status.success()
}

/// Tests a cache that an administrator installs and other users read.
#[test]
fn a_cache_of_the_superuser_is_read_by_others() {
    const TEST: &str = "a_cache_of_the_superuser_is_read_by_others";
    if let Ok(text) = env::var(WORK) {
        let (work, folder) = text.split_once(' ').unwrap();
        let cache = cache(Path::new(folder));
        if work == "trusted" {
            assert!(!get(&cache, "add"));
            assert_eq!(cache.take_warning(), None);
            // The folder is read-only. Expected: one warning, and other kernels are built each
            // time.
            let name = names_of_one_folder().next().unwrap();
            assert!(get(&cache, &name) && get(&cache, &name));
            assert!(cache.take_warning().unwrap().contains("Permission denied"));
        } else {
            assert!(get(&cache, "add"));
            assert!(cache.take_warning().unwrap().contains("other users may write it"));
        }
        return;
    }
    let folder = TemporaryFolder::new();
    assert!(get(&cache(&folder.0), "add"));
    let path = entry(&folder.0, "add");
    if fs::metadata(&path).unwrap().uid() != 0 {
        eprintln!("skipped: only the superuser can write a cache of the superuser");
        return;
    }
    let parent = path.parent().unwrap();
    for part in [&folder.0, parent.parent().unwrap(), parent] {
        permit(part, 0o755);
    }
    permit(&path, 0o644);
    let run = |work: &str| assert!(again(TEST, &format!("{work} {}", folder.0.display()), Some(OTHER), ""));
    run("trusted");
    for (part, mode) in
        [(&path, 0o664), (&parent.to_owned(), 0o777), (&parent.parent().unwrap().to_owned(), 0o775)]
    {
        let before = fs::metadata(part).unwrap().mode();
        permit(part, mode);
        run("writable");
        permit(part, before);
    }
    run("trusted");
}

/// With the umask 0, all users may write new files.
#[test]
fn a_new_entry_may_not_be_written_by_other_users() {
    if let Ok(folder) = env::var(WORK) {
        assert!(get(&cache(Path::new(&folder)), "add"));
        assert!(!get(&cache(Path::new(&folder)), "add"));
        return;
    }
    let folder = TemporaryFolder::new();
    let test = "a_new_entry_may_not_be_written_by_other_users";
    assert!(again(test, folder.0.to_str().unwrap(), None, "umask 0;"));
}

// --- Special files ---

#[test]
fn a_file_that_is_not_regular_is_no_entry() {
    let folder = TemporaryFolder::new();
    let path = entry(&folder.0, "add");
    assert!(get(&cache(&folder.0), "add"));
    // No process writes to this pipe. Expected: opening it does not wait.
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(cache(&folder.0).get(&key("add")), None);
    assert!(get(&cache(&folder.0), "add"), "the entry replaces the pipe");
    assert!(!get(&cache(&folder.0), "add"));
    fs::remove_file(&path).unwrap();
    for target in ["/dev/zero", "/nowhere", path.to_str().unwrap()] {
        symlink(target, &path).unwrap();
        assert!(get(&cache(&folder.0), "add"), "{target}");
        assert!(!get(&cache(&folder.0), "add"), "the entry replaces the link");
        fs::remove_file(&path).unwrap();
    }
    // The cache cannot replace a folder.
    fs::create_dir(&path).unwrap();
    let cache = cache(&folder.0);
    assert!(get(&cache, "add"));
    assert!(cache.take_warning().is_some());
    assert!(cache.verify().unwrap().is_empty());
    assert!(cache.clear().is_ok() && path.is_dir());
}

#[test]
fn files_of_other_names_are_left_alone() {
    let folder = TemporaryFolder::new();
    // A 16th of the limit holds one entry of 5100 bytes.
    let cache = cache_of(&folder.0, 16 * 5100);
    let names: Vec<String> = names_of_one_folder().take(3).collect();
    assert!(get(&cache, &names[0]));
    let parent = entry(&folder.0, &names[0]).parent().unwrap().to_owned();
    let others = [parent.join("notes.txt"), parent.join(".nfs0001"), parent.join("7".repeat(63))];
    for path in &others {
        fs::write(path, [0; 9000]).unwrap();
        set_time(path, SystemTime::UNIX_EPOCH);
    }
    assert!(get(&cache, &names[1]) && get(&cache, &names[2]));
    assert_eq!(cache.entries().unwrap().len(), 1);
    assert_eq!(cache.collect_garbage(0).unwrap().files, 1);
    cache.clear().unwrap();
    assert!(others.iter().all(|path| path.exists()));
}

// --- Clocks ---

const DAY: Duration = Duration::from_hours(24);

#[test]
fn a_time_in_the_future_keeps_no_entry_for_ever() {
    let folder = TemporaryFolder::new();
    // A 16th of the limit holds two entries of 5100 bytes.
    let cache = cache_of(&folder.0, 16 * 2 * 5100);
    let names: Vec<String> = names_of_one_folder().take(6).collect();
    let path = |index: usize| entry(&folder.0, &names[index]);
    // The clock of the writer was a year ahead.
    assert!(get(&cache, &names[0]));
    set_time(&path(0), SystemTime::now() + 365 * DAY);
    // Expected: the next writer corrects the time.
    assert!(get(&cache, &names[1]));
    assert!(used(&path(0)) <= SystemTime::now());
    for index in [2, 3] {
        std::thread::sleep(Duration::from_millis(30));
        assert!(get(&cache, &names[index]));
    }
    assert!(!path(0).exists() && !path(1).exists() && path(3).exists());
    // A read also corrects the time.
    set_time(&path(3), SystemTime::now() + 365 * DAY);
    assert!(!get(&cache, &names[3]));
    assert!(used(&path(3)) <= SystemTime::now() + Duration::from_secs(1));
    // The clock has jumped back. Expected: the order of the entries does not change, and the new
    // entry stays.
    set_time(&path(2), SystemTime::now() + 8 * DAY);
    set_time(&path(3), SystemTime::now() + 9 * DAY);
    assert!(get(&cache, &names[4]));
    assert!(!path(2).exists() && path(3).exists() && path(4).exists());
}

#[test]
fn a_time_far_in_the_past_is_no_fault() {
    let folder = TemporaryFolder::new();
    let cache = cache_of(&folder.0, 16 * 2 * 5100);
    let names: Vec<String> = names_of_one_folder().take(4).collect();
    let path = |index: usize| entry(&folder.0, &names[index]);
    for index in [0, 1] {
        assert!(get(&cache, &names[index]));
        set_time(&path(index), SystemTime::UNIX_EPOCH);
    }
    assert!(!get(&cache, &names[1]), "a use makes it new");
    assert!(used(&path(1)) > SystemTime::now() - DAY);
    assert!(get(&cache, &names[2]));
    assert!(!path(0).exists() && path(1).exists() && path(2).exists());
    // If the limit is not reached, an old entry stays.
    set_time(&path(2), SystemTime::UNIX_EPOCH);
    assert_eq!(cache.collect_garbage(1 << 20).unwrap().files, 0);
}

#[test]
fn unfinished_files_of_any_time_are_removed() {
    let folder = TemporaryFolder::new();
    let name = names_of_one_folder().next().unwrap();
    assert!(get(&cache(&folder.0), &name));
    let parent = entry(&folder.0, &name).parent().unwrap().to_owned();
    let now = SystemTime::now();
    let write = || {
        for (file, time) in [
            ("1.new", SystemTime::UNIX_EPOCH),
            ("2.new", now - 2 * Duration::from_hours(1)),
            ("3.new", now),
            ("4.new", now + Duration::from_mins(30)),
            ("5.new", now + 365 * DAY),
        ] {
            fs::write(parent.join(file), "").unwrap();
            set_time(&parent.join(file), time);
        }
    };
    let rest = || {
        let names = (1..=5).map(|number| format!("{number}.new"));
        names.filter(|name| parent.join(name).exists()).collect::<Vec<_>>()
    };
    write();
    let name = names_of_one_folder().nth(1).unwrap();
    assert!(get(&cache(&folder.0), &name));
    assert_eq!(rest(), ["3.new", "4.new"]);
    write();
    assert_eq!(cache(&folder.0).collect_garbage(1 << 30).unwrap().files, 3);
    assert_eq!(rest(), ["3.new", "4.new"]);
}

// --- Maintenance ---

#[test]
fn entries_are_listed_with_their_provenance() {
    let folder = TemporaryFolder::new();
    let cache = cache(&folder.0);
    assert!(cache.entries().unwrap().is_empty(), "there is no folder yet");
    for (name, minutes) in [("add", 20), ("softmax", 10)] {
        assert!(get(&cache, name));
        set_time(&entry(&folder.0, name), SystemTime::now() - Duration::from_mins(minutes));
    }
    let entries = cache.entries().unwrap();
    assert_eq!(entries.iter().map(|entry| entry.key).collect::<Vec<_>>(), [key("softmax"), key("add")]);
    assert_eq!((entries[1].state, &entries[1].provenance), (EntryState::Usable, &provenance()));
    assert_eq!((entries[1].file.bytes, &entries[1].file.path), (5100, &entry(&folder.0, "add")));
    assert_eq!(cache.verify().unwrap(), entries);
    // A cache that is turned off is listed too.
    assert_eq!(cache_of(&folder.0, 0).entries().unwrap(), entries);
    assert!(Cache::new(&Settings::read(|_| None)).entries().unwrap().is_empty());
}

#[test]
fn damaged_entries_are_found_and_removed() {
    let folder = TemporaryFolder::new();
    let cache = cache(&folder.0);
    for name in ["add", "softmax", "matmul"] {
        assert!(get(&cache, name));
    }
    let (content, header) = (entry(&folder.0, "add"), entry(&folder.0, "softmax"));
    for (path, index) in [(&content, 3000), (&header, 3)] {
        let mut bytes = fs::read(path).unwrap();
        bytes[index] ^= 4;
        fs::write(path, bytes).unwrap();
    }
    let damaged = |entries: Vec<tilewright_cuda::CacheEntry>| {
        let damaged = entries.into_iter().filter(|entry| entry.state == EntryState::Damaged);
        let mut paths: Vec<PathBuf> = damaged.map(|entry| entry.file.path).collect();
        paths.sort();
        paths
    };
    let mut both = vec![content, header.clone()];
    both.sort();
    assert_eq!(damaged(cache.entries().unwrap()), [header], "a listing reads the headers");
    assert_eq!(damaged(cache.verify().unwrap()), both);
    let removed = cache.collect_garbage(1 << 30).unwrap();
    assert_eq!((removed.files, removed.bytes), (2, 2 * 5100));
    assert_eq!(cache.verify().unwrap().len(), 1);
    assert!(!get(&cache, "matmul"));
}

#[test]
fn garbage_is_what_was_not_used_for_longest() {
    let folder = TemporaryFolder::new();
    let cache = cache(&folder.0);
    for minutes in 0..10 {
        let name = format!("kernel {minutes}");
        assert!(get(&cache, &name));
        set_time(&entry(&folder.0, &name), SystemTime::now() - Duration::from_mins(minutes));
    }
    let total: u64 = cache.entries().unwrap().iter().map(|entry| entry.file.bytes).sum();
    assert_eq!(cache.collect_garbage(total).unwrap().files, 0);
    assert_eq!(cache.collect_garbage(total - 1).unwrap().files, 1);
    assert!(!entry(&folder.0, "kernel 9").exists());
    let removed = cache.collect_garbage(total / 2).unwrap();
    assert_eq!((removed.files, removed.failures.len()), (4, 0));
    assert!((0..10).all(|minutes| entry(&folder.0, &format!("kernel {minutes}")).exists() == (minutes < 5)));
}

#[test]
fn clearing_removes_all_formats() {
    let folder = TemporaryFolder::new();
    let cache = cache(&folder.0);
    assert!(get(&cache, "add"));
    let parent = entry(&folder.0, "add").parent().unwrap().to_owned();
    fs::write(parent.join("x.new"), "").unwrap();
    let old = folder.0.join("tilewright-1").join("a");
    let write_old = || {
        fs::create_dir_all(&old).unwrap();
        fs::write(old.join("a".repeat(64)), "old").unwrap();
        fs::write(old.join("lock-b"), "").unwrap();
    };
    // Folders of a newer version of the format and of other programs.
    let others = [folder.0.join("tilewright-3").join("a"), folder.0.join("ABC")];
    for path in &others {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("a".repeat(64)), "other").unwrap();
    }
    write_old();
    assert_eq!(cache.collect_garbage(1 << 30).unwrap().files, 1);
    assert!(!folder.0.join("tilewright-1").exists());
    write_old();
    assert_eq!(cache.clear().unwrap().files, 3);
    assert!(!folder.0.join("tilewright-1").exists() && !folder.0.join("tilewright-2").exists());
    assert!(others.iter().all(|path| path.join("a".repeat(64)).exists()));
    assert_eq!(cache.clear().unwrap().files, 0);
    assert!(get(&cache, "add"));
}

#[test]
fn a_lock_in_use_survives_clearing() {
    let folder = TemporaryFolder::new();
    let cache = cache(&folder.0);
    let parent = entry(&folder.0, "add").parent().unwrap().to_owned();
    let built = cache.get_or_build(&key("add"), &provenance(), || {
        cache.clear().unwrap();
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 1, "the lock");
        Ok(content("add"))
    });
    assert_eq!(built, Ok(content("add")));
    assert!(!get(&cache, "add"));
    assert_eq!(cache.take_warning(), None);
}
