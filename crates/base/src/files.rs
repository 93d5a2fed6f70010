//! Writes files atomically.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file atomically. A concurrent reader sees the old or the new content, never a part of
/// either. After an error, the file has its old content. A symbolic link remains a link: the
/// function replaces or creates its target.
///
/// The function writes in place, and not atomically, in two cases. In the first, the path exists
/// and is not a regular file, such as `/dev/stdout`. In the second, the file exists in a folder in
/// which the process may not create files.
///
/// # Errors
///
/// Returns the error of the file system, for example if the disk is full.
pub fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let before = fs::metadata(path);
    if before.as_ref().is_ok_and(|about| !about.is_file()) {
        return fs::write(path, content);
    }
    let target = if before.is_ok() { fs::canonicalize(path).ok() } else { missing_target(path) };
    // A removed file that is open, such as the target of `/dev/stdout`, has no path.
    let Some(path) = target else { return fs::write(path, content) };
    let Some(name) = path.file_name() else { return fs::write(path, content) };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut beside = OsString::from(format!(".{}-{number}.", std::process::id()));
    beside.push(name);
    let temporary = path.with_file_name(beside);
    let mut file = match File::options().create_new(true).write(true).open(&temporary) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied && before.is_ok() => {
            return fs::write(path, content);
        }
        opened => opened?,
    };
    let write = || {
        if let Ok(about) = before {
            file.set_permissions(about.permissions())?;
        }
        file.write_all(content)?;
        fs::rename(&temporary, &path)
    };
    write().inspect_err(|_| {
        // The caller gets the first error.
        let _ = fs::remove_file(&temporary);
    })
}

/// Returns the path that a write creates if `path` does not exist: `path`, or the end of its chain
/// of symbolic links. Returns `None` if there are too many links.
fn missing_target(path: &Path) -> Option<PathBuf> {
    /// The number of links that Linux follows.
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..=MAX_LINKS {
        let Ok(target) = fs::read_link(&path) else { return Some(path) };
        path.pop();
        path.push(target);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = std::env::temp_dir().join(format!("tilewright-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.txt");
        for content in [&b"first"[..], b"2"] {
            write_file(&path, content).unwrap();
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        // A file cannot replace a folder.
        let taken = folder.join("taken");
        fs::create_dir_all(&taken).unwrap();
        write_file(&taken, b"x").unwrap_err();
        write_file(&folder.join("no").join("file"), b"x").unwrap_err();
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_leaves_links_and_devices_as_they_are() {
        let folder = std::env::temp_dir().join(format!("tilewright-links-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (full, target, link) = (folder.join("full"), folder.join("target"), folder.join("link"));
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert_eq!(write_file(&full, b"x").unwrap_err().kind(), ErrorKind::StorageFull);
        assert!(fs::symlink_metadata(&full).unwrap().is_symlink());
        // The target does not exist before the first write.
        for content in [&b"first"[..], b"2"] {
            write_file(&link, content).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read(&target).unwrap(), content);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_to_missing_files_stay_links() {
        use std::os::unix::fs::symlink;
        let folder = std::env::temp_dir().join(format!("tilewright-dangling-{}", std::process::id()));
        fs::create_dir_all(folder.join("inner")).unwrap();
        let chain = ["a", "inner/b", "c"].map(|name| folder.join(name));
        // Targets are relative to the folder of their link.
        for (link, target) in chain.iter().zip(["inner/b", "../c", "inner/file"]) {
            symlink(target, link).unwrap();
        }
        write_file(&chain[0], b"x").unwrap();
        assert!(chain.iter().all(|link| fs::symlink_metadata(link).unwrap().is_symlink()));
        assert!(fs::symlink_metadata(folder.join("inner/file")).unwrap().is_file());
        assert_eq!(fs::read(&chain[0]).unwrap(), b"x");
        let names: Vec<_> = fs::read_dir(folder.join("inner")).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(names.len(), 2, "{names:?}");

        // Links that refer to each other, and a link into a folder that does not exist.
        let (one, two, nowhere) = (folder.join("one"), folder.join("two"), folder.join("nowhere"));
        symlink("two", &one).unwrap();
        symlink("one", &two).unwrap();
        symlink("no/file", &nowhere).unwrap();
        for link in [&one, &two, &nowhere] {
            write_file(link, b"x").unwrap_err();
            assert!(fs::symlink_metadata(link).unwrap().is_symlink());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
