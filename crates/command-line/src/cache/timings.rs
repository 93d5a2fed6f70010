//! Handles the timings of tuners in the cache folder.
//! `python/tilewright/runtime/_tuning_cache.py` writes these files, as
//! `<digest>/<kernel>.autotune.json`. The digest is in base 32. The rules of the cubin cache decide
//! which files are trusted ([`Cache::reject_file`]). An untrusted file is listed, but not parsed. A
//! trusted file is damaged if it is not JSON, if its checksum is wrong, or if a row is not a list
//! of times.
//!
//! The official Triton writes files with the same names. JSON without an object `configs_timings`
//! is ignored.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;
use tilewright::runtime::cuda::{Cache, Distrust, Removed, StoredFile, remove_least_recent};

const SUFFIX: &str = ".autotune.json";

/// The prefix of the names of unfinished files.
const UNFINISHED: &str = "tmp.";

/// The text between the timings of a file and its checksum.
const CHECKSUM: &[u8] = b",\n \"crc32\": \"";

/// The number of digits of a digest of 256 bits in base 32.
const DIGEST_DIGITS: usize = 52;

/// The timings of a kernel for one key and one device.
pub struct Timings {
    /// The digest of everything that determines the timings.
    pub digest: String,
    pub kernel: String,
    pub file: StoredFile,
    pub content: Content,
}

/// The content of a file of timings.
pub enum Content {
    Usable(Table),
    Damaged,
    Untrusted(Distrust),
    Unreadable,
}

/// The rows of a file of timings.
pub struct Table {
    /// The device. Empty in a file of an older version.
    pub device: String,
    /// The values of the arguments that `autotune(key=…)` names, in Python's notation.
    pub key: String,
    /// The configurations. Each one has its median, 20 % and 80 % quantile in milliseconds.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// Returns the timings in a cache folder. `cache` decides which files are trusted.
pub fn list(directory: &Path, cache: &Cache) -> io::Result<Vec<Timings>> {
    let mut found = Vec::new();
    for folder in folders(directory)? {
        for file in files(&folder)? {
            found.extend(read(&folder, file, cache));
        }
    }
    Ok(found)
}

/// Removes unfinished files of processes that were killed, and damaged timings. Then removes the
/// least recently used timings, until the rest takes at most `limit` bytes.
pub fn collect_garbage(directory: &Path, cache: &Cache, limit: u64) -> io::Result<Removed> {
    let now = SystemTime::now();
    let mut removed = Removed::default();
    for folder in folders(directory)? {
        let files = files(&folder)?;
        unfinished(&files).filter(|file| file.is_abandoned(now)).for_each(|file| removed.remove(file));
    }
    let (damaged, others): (Vec<_>, Vec<_>) =
        list(directory, cache)?.into_iter().partition(|timings| matches!(timings.content, Content::Damaged));
    for timings in &damaged {
        removed.remove(&timings.file);
    }
    removed.add(remove_least_recent(others.into_iter().map(|timings| timings.file).collect(), limit, now));
    remove_empty_folders(directory)?;
    Ok(removed)
}

/// Removes all timings. Also removes unfinished files, but only in folders without files of other
/// programs.
pub fn clear(directory: &Path, cache: &Cache) -> io::Result<Removed> {
    let mut removed = Removed::default();
    for timings in list(directory, cache)? {
        removed.remove(&timings.file);
    }
    for folder in folders(directory)? {
        unfinished(&files(&folder)?).for_each(|file| removed.remove(file));
    }
    remove_empty_folders(directory)?;
    Ok(removed)
}

fn remove_empty_folders(directory: &Path) -> io::Result<()> {
    for folder in folders(directory)? {
        // The folder may contain other files.
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

/// Returns the folders whose names are digests.
fn folders(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let is_digit = |byte: u8| byte.is_ascii_uppercase() || (b'2'..=b'7').contains(&byte);
    let is_digest = |name: &str| name.len() == DIGEST_DIGITS && name.bytes().all(is_digit);
    let listed = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let folders = listed.flatten().filter(|folder| folder.file_name().to_str().is_some_and(is_digest));
    Ok(folders.map(|folder| folder.path()).collect())
}

/// Returns the files of timings in a folder, and its unfinished files if it contains nothing else.
fn files(folder: &Path) -> io::Result<Vec<StoredFile>> {
    let listed = match fs::read_dir(folder) {
        // Another process has removed the folder, or the path is that of a file.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        listed => listed?,
    };
    let files: Vec<_> = listed
        .flatten()
        .filter_map(|file| {
            file.metadata().ok().map(|about| (about.is_file(), StoredFile::new(file.path(), &about)))
        })
        .collect();
    let is_own = |file: &StoredFile| is_timings(file) || is_unfinished(file);
    let is_only_own = files.iter().all(|(is_regular, file)| *is_regular && is_own(file));
    let files = files.into_iter().filter(|(is_regular, _)| *is_regular).map(|(_, file)| file);
    Ok(files.filter(|file| is_timings(file) || is_only_own).collect())
}

fn name_of(file: &StoredFile) -> &str {
    file.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn is_timings(file: &StoredFile) -> bool {
    name_of(file).ends_with(SUFFIX)
}

fn is_unfinished(file: &StoredFile) -> bool {
    name_of(file).starts_with(UNFINISHED)
}

fn unfinished(files: &[StoredFile]) -> impl Iterator<Item = &StoredFile> {
    files.iter().filter(|file| is_unfinished(file))
}

/// Reads a file of timings. Returns `None` if it no longer exists, or if another program wrote it.
fn read(folder: &Path, file: StoredFile, cache: &Cache) -> Option<Timings> {
    let kernel = name_of(&file).strip_suffix(SUFFIX)?.to_owned();
    let distrust = fs::metadata(&file.path).ok().and_then(|about| cache.reject_file(&about));
    let content = match (distrust, fs::read(&file.path)) {
        (Some(distrust), _) => Content::Untrusted(distrust),
        (None, Ok(bytes)) => parse(&bytes)?,
        (None, Err(error)) if error.kind() == ErrorKind::NotFound => return None,
        (None, Err(_)) => Content::Unreadable,
    };
    let digest = folder.file_name()?.to_str()?.to_owned();
    Some(Timings { digest, kernel, file, content })
}

/// Parses a file of timings. Returns `None` for JSON of another program, without `configs_timings`.
fn parse(bytes: &[u8]) -> Option<Content> {
    let checksum = bytes.windows(CHECKSUM.len()).rposition(|window| window == CHECKSUM).map(|at| {
        let digits = bytes[at + CHECKSUM.len()..].split(|byte| *byte == b'"').next().unwrap_or_default();
        (format!("{:08x}", crc32(&bytes[..at])), digits)
    });
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Some(Content::Damaged) };
    // In files of the official Triton, `configs_timings` is a list.
    let rows = value.get("configs_timings")?.as_object()?;
    if checksum.is_some_and(|(actual, written)| actual.as_bytes() != written) {
        return Some(Content::Damaged);
    }
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let times = |row: &Value| row.as_array().map(|times| times.iter().map(Value::as_f64).collect());
    let rows: Option<Vec<_>> = rows.iter().map(|(config, row)| Some((config.clone(), times(row)?))).collect();
    Some(match rows {
        Some(rows) => Content::Usable(Table { device: text("device"), key: text("key"), rows }),
        None => Content::Damaged,
    })
}

/// Returns the same checksum as `zlib.crc32`.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_zlib() {
        // The check value of CRC-32 in the catalogue of CRC algorithms.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn files_of_other_programs_are_told_apart() {
        let own = br#"{"key": "(1,)", "configs_timings": {"{}": [1.0, null, 2]}}"#;
        let Some(Content::Usable(table)) = parse(own) else { panic!("these are timings") };
        assert_eq!((&*table.key, &*table.device), ("(1,)", ""));
        assert_eq!(table.rows, [("{}".to_owned(), vec![Some(1.0), None, Some(2.0)])]);
        for other in [&br#"{"key": [1], "configs_timings": [[{}, [1.0]]]}"#[..], b"[]", b"{}"] {
            assert!(parse(other).is_none());
        }
        for damaged in [&own[..20], b"", br#"{"configs_timings": {"a": 3}}"#] {
            assert!(matches!(parse(damaged), Some(Content::Damaged)));
        }
    }
}
