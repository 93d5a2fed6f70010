//! Packs a lock and its artifacts into one tar archive, and unpacks it.
//!
//! A program can ship the archive as one file, or embed it in its binary.
//!
//! ```text
//! tilewright.lock        the lock, always the first member
//! artifacts/3f0c….ptx    its artifacts, sorted
//! ```
//! The members have no times, owners or other metadata, so equal locks produce equal archives.

use std::collections::{BTreeMap, btree_map};
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use crate::artifacts::{ArtifactError, Artifacts};
use crate::entry::Entry;
use crate::file::{LockError, LockFile};

/// The name of the first member.
const LOCK: &str = "tilewright.lock";
/// The folder of the other members.
const ARTIFACTS: &str = "artifacts/";

/// Packs a lock and its artifacts.
///
/// # Errors
/// Returns an error if an artifact cannot be read.
pub fn pack(lock: &LockFile, artifacts: &Artifacts) -> Result<Vec<u8>, ArtifactError> {
    let mut members = BTreeMap::new();
    for (kind, hash) in lock.entries.iter().flat_map(Entry::artifacts) {
        if let btree_map::Entry::Vacant(member) = members.entry(Artifacts::name(hash, kind)) {
            member.insert(artifacts.read(hash, kind)?);
        }
    }
    let mut archive = tar::Builder::new(Vec::new());
    append(&mut archive, LOCK, lock.to_text().as_bytes());
    for (name, content) in &members {
        append(&mut archive, &format!("{ARTIFACTS}{name}"), content);
    }
    Ok(archive.into_inner().expect("writing to memory does not fail"))
}

fn append(archive: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, name, content).expect("writing to memory does not fail");
}

/// Unpacks a packed lock. Errors contain `path`. This function does not check the hashes of the
/// artifacts; [`Artifacts::read`] checks them.
///
/// # Errors
/// Returns an error if the bytes are not a packed lock.
pub fn unpack(path: &Path, bytes: &[u8]) -> Result<(LockFile, Artifacts), LockError> {
    let malformed = |error: io::Error| LockError::Malformed(path.to_owned(), error.to_string());
    let (mut lock, mut contents) = (None, BTreeMap::new());
    for member in tar::Archive::new(bytes).entries().map_err(malformed)? {
        let mut member = member.map_err(malformed)?;
        let name = String::from_utf8_lossy(&member.path_bytes()).into_owned();
        let mut content = Vec::new();
        member.read_to_end(&mut content).map_err(malformed)?;
        match name.strip_prefix(ARTIFACTS) {
            Some(name) => {
                contents.insert(name.to_owned(), content);
            }
            None if name == LOCK => lock = Some(LockFile::parse(path, &String::from_utf8_lossy(&content))?),
            None => {}
        }
    }
    let missing = || LockError::Malformed(path.to_owned(), format!("the archive has no member {LOCK}"));
    Ok((lock.ok_or_else(missing)?, Artifacts::in_memory(contents)))
}

/// Reads a lock, which may be packed. The artifacts of a packed lock are kept in memory. The
/// artifacts of other locks remain in their folder until [`Artifacts::read`] reads them.
///
/// # Errors
/// Returns an error if the file cannot be read. Also fails if it is neither a lock nor a packed
/// lock.
pub fn open(path: &Path) -> Result<(LockFile, Artifacts), LockError> {
    let bytes = fs::read(path).map_err(|error| LockError::Unreadable(path.to_owned(), error))?;
    // An archive begins with the name of its first member, and JSON with a brace.
    if bytes.starts_with(LOCK.as_bytes()) {
        return unpack(path, &bytes);
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| LockError::Malformed(path.to_owned(), "it is not UTF-8".to_owned()))?;
    Ok((LockFile::parse(path, &text)?, LockFile::artifacts(path)))
}
