//! Writes files atomically.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file atomically. A concurrent reader sees the old or the new content, never a part.
/// After an error, the file has its old content. Neither holds if the function writes in place.
///
/// The function writes in place if the path exists and is not a regular file, such as
/// `/dev/stdout`, or if the file exists in a folder in which the process may not create files.
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
    // A symbolic link stays a link: its target is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
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
        // If the removal fails as well, the caller gets the first error.
        let _ = fs::remove_file(&temporary);
    })
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
        fs::write(&target, b"old").unwrap();
        write_file(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
        fs::remove_dir_all(&folder).unwrap();
    }
}
