//! Tests the cache with concurrent and killed processes, damaged entries, and full disks.
#![allow(clippy::unwrap_used, reason = "an error is a failed test")]

#[expect(dead_code, reason = "these tests need a part of it")]
mod common;
#[path = "common/cache.rs"]
mod entries;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{env, io, io::Write as _, thread};

use common::{PTX, Stub, TemporaryFolder};
use entries::{cache, cache_of, content, entry, get, key, names_of_one_folder, provenance};
use tilewright_cuda::{AssembleOptions, Cache, Error, Key, Settings, assemble_cached};

#[test]
fn what_was_built_is_found_again() {
    let folder = TemporaryFolder::new();
    assert!(get(&cache(&folder.0), "add"));
    assert!(!get(&cache(&folder.0), "add"), "another process finds it");
    assert!(get(&cache(&folder.0), "softmax"));
    assert_eq!(cache(&folder.0).get(&key("add")), Some(content("add")));
    assert_eq!(cache(&folder.0).get(&key("matmul")), None);
    assert_eq!(cache(&folder.0).take_warning(), None);
}

#[test]
fn an_error_is_passed_on_and_not_kept() {
    let folder = TemporaryFolder::new();
    let error = cache(&folder.0).get_or_build(&key("add"), &provenance(), || Err(Error::Forked));
    assert_eq!(error, Err(Error::Forked));
    assert!(get(&cache(&folder.0), "add"));
}

#[test]
fn keys_tell_apart_what_differs() {
    let parts: [&[(&str, &[u8])]; 7] = [
        &[],
        &[("a", b"bc")],
        &[("ab", b"c")],
        &[("a", b"b"), ("c", b"")],
        &[("a", b"b"), ("", b"c")],
        &[("c", b""), ("a", b"b")],
        &[("a", b"bc"), ("", b"")],
    ];
    for (index, first) in parts.iter().enumerate() {
        for (other, second) in parts.iter().enumerate() {
            assert_eq!(Key::of(first) == Key::of(second), index == other, "{first:?} {second:?}");
        }
    }
    assert_eq!(Key::of(parts[1]).to_hex().len(), 64);
}

#[test]
fn a_damaged_entry_is_built_anew() {
    let folder = TemporaryFolder::new();
    let path = entry(&folder.0, "add");
    assert!(get(&cache(&folder.0), "add"));
    let whole = fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = Vec::new();
    for length in [0, 1, 7, 8, 40, 71, 72, 73, 75, 76, 99, 100, 101, whole.len() - 1] {
        damaged.push(whole[..length].to_vec());
    }
    for byte in (0..110).chain([1000, whole.len() - 1]) {
        let mut bytes = whole.clone();
        bytes[byte] ^= 1;
        damaged.push(bytes);
    }
    damaged.push([&whole[..], b"more"].concat());
    fs::create_dir_all(entry(&folder.0, "other").parent().unwrap()).unwrap();
    for bytes in &damaged {
        fs::write(&path, bytes).unwrap();
        assert_eq!(cache(&folder.0).get(&key("add")), None, "{} bytes", bytes.len());
        assert!(get(&cache(&folder.0), "add"));
        assert!(!get(&cache(&folder.0), "add"), "it is whole again");
    }
    // The bytes of one entry under the name of another. Expected: a damaged entry.
    fs::write(entry(&folder.0, "other"), &whole).unwrap();
    assert_eq!(cache(&folder.0).get(&key("other")), None);
}

#[test]
fn threads_build_once() {
    let folder = TemporaryFolder::new();
    let (cache, builds) = (cache(&folder.0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for name in ["a", "b", "c"] {
                    let build = || {
                        builds.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(20));
                        Ok(content(name))
                    };
                    assert_eq!(cache.get_or_build(&key(name), &provenance(), build), Ok(content(name)));
                }
            });
        }
    });
    assert_eq!(builds.into_inner(), 3);
}

// --- Child processes: they run this executable with the task in an environment variable ---

const CHILD: &str = "TILEWRIGHT_CACHE_TEST_CHILD";

/// A child process. Dropping the value kills the process.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    fn succeeds(mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

/// Runs the test `child` in a child process.
fn start(folder: &Path, work: &str) -> Process {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "child"]).env(CHILD, format!("{work} {}", folder.display()));
    Process(command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap())
}

/// The task of a child process: gets 20 entries, and adds a byte to the file `builds` for each
/// entry that it builds.
#[test]
fn child() {
    let Ok(text) = env::var(CHILD) else { return };
    let (work, folder) = text.split_once(' ').unwrap();
    let folder = Path::new(folder);
    let note = |file: &str| {
        let mut file = fs::File::options().create(true).append(true).open(folder.join(file)).unwrap();
        file.write_all(b".").unwrap();
    };
    let pause = match work {
        "hang" => Duration::from_hours(1),
        _ => Duration::from_millis(10),
    };
    for number in 0..20 {
        let name = format!("kernel {number}");
        let build = || {
            note("builds");
            thread::sleep(pause);
            Ok(content(&name))
        };
        assert_eq!(cache(folder).get_or_build(&key(&name), &provenance(), build), Ok(content(&name)));
    }
}

fn builds(folder: &Path) -> usize {
    fs::read(folder.join("builds")).map_or(0, |bytes| bytes.len())
}

fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_mins(10), "nothing happens");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn processes_build_once() {
    let folder = TemporaryFolder::new();
    let processes: Vec<Process> = (0..16).map(|_| start(&folder.0, "build")).collect();
    assert!(processes.into_iter().all(Process::succeeds));
    assert_eq!(builds(&folder.0), 20);
}

#[test]
fn a_process_that_is_killed_while_it_builds_stops_nobody() {
    let folder = TemporaryFolder::new();
    let hanging = start(&folder.0, "hang");
    wait_until(|| builds(&folder.0) == 1);
    let mut waiting = start(&folder.0, "build");
    thread::sleep(Duration::from_millis(100));
    assert_eq!((builds(&folder.0), waiting.has_ended()), (1, false), "it waits for the first");
    drop(hanging);
    assert!(waiting.succeeds());
    assert_eq!(builds(&folder.0), 1 + 20);
}

#[test]
fn processes_that_are_killed_at_any_moment_leave_nothing_wrong() {
    let folder = TemporaryFolder::new();
    for delay in [20, 35, 50, 80, 110, 150] {
        let processes: Vec<Process> = (0..2).map(|_| start(&folder.0, "build")).collect();
        thread::sleep(Duration::from_millis(delay));
        drop(processes);
    }
    assert!(start(&folder.0, "build").succeeds());
    for number in 0..20 {
        let name = format!("kernel {number}");
        assert_eq!(cache(&folder.0).get(&key(&name)), Some(content(&name)));
    }
}

// --- The limit ---

fn entries(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with("lock-")).count()
}

#[test]
fn what_was_not_used_for_longest_is_removed() {
    let folder = TemporaryFolder::new();
    // The limit of each of the 16 folders is three entries of 5100 bytes.
    let cache = cache_of(&folder.0, 16 * 3 * 5100);
    let names: Vec<String> = names_of_one_folder().take(5).collect();
    let age = |name: &str, minutes: u64| {
        let time = SystemTime::now() - Duration::from_mins(minutes);
        fs::File::options().write(true).open(entry(&folder.0, name)).unwrap().set_modified(time).unwrap();
    };
    for (name, minutes) in names.iter().zip([30, 20, 10]) {
        assert!(get(&cache, name));
        age(name, minutes);
    }
    assert!(!get(&cache, &names[0]), "a use makes it new");
    assert!(get(&cache, &names[3]));
    assert_eq!(cache.get(&key(&names[1])), None);
    let parent = entry(&folder.0, &names[0]).parent().unwrap().to_owned();
    assert_eq!(entries(&parent), 3);
    assert!(!get(&cache, &names[0]) && !get(&cache, &names[2]) && !get(&cache, &names[3]));

    // An entry exceeds the limit. Expected: it is not stored, and no other is removed.
    assert!(get(&cache_of(&folder.0, 16 * 5000), &names[4]));
    assert_eq!((entries(&parent), cache.take_warning()), (3, None));
}

#[test]
fn what_killed_writers_left_is_removed_in_time() {
    let folder = TemporaryFolder::new();
    let name = names_of_one_folder().next().unwrap();
    let parent = entry(&folder.0, &name).parent().unwrap().to_owned();
    fs::create_dir_all(&parent).unwrap();
    for (file, minutes) in [("7a.1-0.new", 100), ("7b.2-0.new", 10)] {
        let file = fs::File::create(parent.join(file)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_mins(minutes)).unwrap();
    }
    assert!(get(&cache(&folder.0), &name));
    assert!(!parent.join("7a.1-0.new").exists() && parent.join("7b.2-0.new").exists());
}

// --- Disks that fail ---

/// Checks that an unusable cache still returns entries and warns once.
fn check_warning(cache: &Cache, expect: &str) {
    assert!(get(cache, "add") && get(cache, "add") && get(cache, "softmax"));
    let warning = cache.take_warning().expect("there is a warning");
    assert!(warning.contains(expect) && !warning.contains('\n'), "{warning}");
    assert!(get(cache, "add"));
    assert_eq!(cache.take_warning(), None);
}

#[test]
fn without_a_folder_everything_is_built() {
    let nowhere = Cache::new(&Settings::read(|_| None));
    check_warning(&nowhere, "neither HOME nor TILEWRIGHT_CACHE_DIR is set");
    let off = cache_of(Path::new("unused"), 0);
    assert!(get(&off, "add") && get(&off, "add"));
    assert_eq!(off.take_warning(), None, "it is turned off");
    assert!(!Path::new("unused").exists());
}

#[test]
fn where_nothing_can_be_written_everything_is_built() {
    let folder = TemporaryFolder::new();
    let file = folder.0.join("file");
    fs::write(&file, "a file, where a folder should be").unwrap();
    check_warning(&cache(&file), "file");
    #[cfg(target_os = "linux")]
    check_warning(&cache(Path::new("/proc/tilewright")), "/proc/tilewright");
}

#[test]
#[cfg(unix)]
fn a_folder_that_may_not_be_written_is_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TemporaryFolder::new();
    assert!(get(&cache(&folder.0), "add"));
    let parent = entry(&folder.0, "add").parent().unwrap().to_owned();
    let permit = |mode| fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).unwrap();
    permit(0o555);
    let is_superuser = fs::write(parent.join("probe"), "").is_ok();
    assert!(!get(&cache(&folder.0), "add"));
    let name =
        (0..999).map(|n| format!("{n}")).find(|n| entry(&folder.0, n).parent() == Some(&parent)).unwrap();
    let cache = cache(&folder.0);
    assert!(get(&cache, &name));
    // Permissions do not restrict the superuser.
    assert_eq!(cache.take_warning().is_some(), !is_superuser);
    permit(0o755);
}

#[cfg(target_os = "linux")]
const SMALL: &str = "TILEWRIGHT_CACHE_TEST_SMALL";

/// Runs a test of this file in a child process, after the shell commands `script`. The variable
/// `SMALL` contains the path of `folder`. Returns whether the test succeeds.
#[cfg(target_os = "linux")]
fn again(test: &str, script: &str, folder: &Path) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{script}exec \"$0\" --exact {test}")]).arg(env::current_exe().unwrap());
    let output = command.env(SMALL, folder).output().unwrap();
    io::stderr().write_all(&output.stderr).unwrap();
    output.status.success()
}

/// A limit of file sizes replaces a full disk. Expected: writing an entry fails half-way.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_survived() {
    if let Some(folder) = env::var_os(SMALL).map(PathBuf::from) {
        check_warning(&cache(&folder), "the kernel cache cannot be used");
        assert_eq!(entries(entry(&folder, "add").parent().unwrap()), 0, "half an entry is left");
        return;
    }
    let folder = TemporaryFolder::new();
    assert!(again("a_full_disk_is_survived", "trap '' XFSZ; ulimit -f 2; ", &folder.0));
}

/// A mounted file system is full after a few entries. Does nothing if this process may not mount.
#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_becomes_full_keeps_what_it_has() {
    let names: Vec<String> = (0..40).map(|number| format!("kernel {number}")).collect();
    if let Some(folder) = env::var_os(SMALL).map(PathBuf::from) {
        let cache = cache(&folder);
        assert!(names.iter().all(|name| get(&cache, name)));
        let kept = names.iter().filter(|name| !get(&cache, name)).count();
        assert!((1..names.len()).contains(&kept), "{kept}");
        let warning = cache.take_warning().expect("there is a warning");
        assert!(warning.contains("No space left") && !warning.contains('\n'), "{warning}");
        return;
    }
    let folder = TemporaryFolder::new();
    let mount = |then: &str| {
        let inside = format!("mount -t tmpfs -o size=64k none '{}' && {then}", folder.0.display());
        format!("unshare -rm sh -c \"{inside}\"")
    };
    let is_allowed = Command::new("sh").args(["-c", &mount("true")]).output().unwrap().status.success();
    if is_allowed {
        let script = mount("exec '$0' --exact a_disk_that_becomes_full_keeps_what_it_has");
        assert!(again("nothing", &format!("{script} || exit 1; "), &folder.0));
    }
}

/// The system kills the process with a signal while it writes an entry.
#[test]
#[cfg(target_os = "linux")]
fn a_process_that_is_killed_while_it_writes_leaves_no_entry() {
    const TEST: &str = "a_process_that_is_killed_while_it_writes_leaves_no_entry";
    if let Some(folder) = env::var_os(SMALL).map(PathBuf::from) {
        get(&cache(&folder), "add");
        return;
    }
    let folder = TemporaryFolder::new();
    assert!(!again(TEST, "ulimit -c 0; ulimit -f 2; ", &folder.0), "it was not killed");
    assert_eq!(cache(&folder.0).get(&key("add")), None);
    assert_eq!(entries(entry(&folder.0, "add").parent().unwrap()), 1, "the part that was written");
    assert!(get(&cache(&folder.0), "add"), "its lock is free");
    assert!(!get(&cache(&folder.0), "add"));
}

// --- The assembler with the cache ---

#[test]
fn cubins_are_kept() {
    let folder = TemporaryFolder::new();
    let cache = cache(&folder.0);
    let stub = Stub::new("");
    let options = AssembleOptions::default();
    let cubin = assemble_cached(&cache, stub.context(), "scale", PTX, options).unwrap();
    // Expected: a cached cubin is not assembled again, and any difference in the key creates an
    // entry.
    let again = |words: &str, ptx: &str, options: AssembleOptions| {
        let stub = Stub::new(words);
        let context = stub.context();
        stub.configure(&format!("{words},fail=cuLinkCreate_v2:999"));
        assemble_cached(&cache, context, "scale", ptx, options).ok()
    };
    assert_eq!(again("", PTX, options), Some(cubin));
    assert_eq!(again("", &PTX.replace("sm_80", "sm_75"), options), None);
    assert_eq!(again("", PTX, AssembleOptions { line_info: true, ..options }), None);
    assert_eq!(again("", PTX, AssembleOptions { max_registers: Some(32), ..options }), None);
    assert_eq!(again("version=12090", PTX, options), None);
    assert_eq!(again("capability=8.0", PTX, options), None);

    // The cache also records that the assembler serializes the wgmma instructions.
    let short = format!("{PTX}// too few registers");
    let asynchronous = AssembleOptions { asynchronous: true, ..options };
    for words in ["", "fail=cuLinkCreate_v2:999"] {
        let stub = Stub::new("");
        let context = stub.context();
        stub.configure(words);
        let error = assemble_cached(&cache, context, "scale", &short, asynchronous).unwrap_err();
        assert_eq!(error, Error::SerializedWgmma { kernel: "scale".into() });
    }
    assert!(assemble_cached(&cache, stub.context(), "scale", &short, options).is_ok());
}
