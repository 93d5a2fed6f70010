//! Reads and writes artifacts, files with the hash of their content as name.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tilewright_base::write_file;

/// A folder of artifacts. The name of an artifact consists of the BLAKE3 hash of its content, in
/// hexadecimal digits, and its kind, such as `ptx`.
///
/// Equal contents of one kind are therefore stored in one file. Concurrent writers of an artifact
/// write the same bytes. A reader can detect a damaged file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Artifacts {
    folder: PathBuf,
    /// The contents of the artifacts, by file name, if they come from a packed lock.
    packed: Option<Arc<BTreeMap<String, Vec<u8>>>>,
}

/// The reason why an artifact could not be read.
#[derive(Debug)]
pub enum ArtifactError {
    /// An error of the file system. It is `NotFound` if a packed lock does not contain the
    /// artifact.
    Unreadable(PathBuf, io::Error),
    /// The file is damaged. Its content does not have the hash in its name, or it should be text
    /// and is not UTF-8.
    Damaged(PathBuf),
    /// The lock refers to an artifact by a text that is not a hash. The field is this text.
    NoHash(String),
}

impl fmt::Display for ArtifactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "{} cannot be read: {error}", path.display()),
            Self::Damaged(path) => {
                let path = path.display();
                let problem = "its content does not have the hash in its name, or is not UTF-8";
                write!(f, "{path} is damaged: {problem}")
            }
            Self::NoHash(name) => write!(f, "'{name}' is not the hash of an artifact"),
        }
    }
}

impl Artifacts {
    /// Returns the artifacts in a folder. [`store`](Self::store) creates the folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), packed: None }
    }

    /// Returns the artifacts of a packed lock. The keys are the names that [`name`](Self::name)
    /// returns.
    pub(crate) fn in_memory(contents: BTreeMap<String, Vec<u8>>) -> Self {
        Self { folder: PathBuf::new(), packed: Some(Arc::new(contents)) }
    }

    pub(crate) fn name(hash: &str, kind: &str) -> String {
        format!("{hash}.{kind}")
    }

    /// Returns the folder, or an empty path for a packed lock.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the hash of a content.
    pub fn hash(content: &[u8]) -> String {
        blake3::hash(content).to_hex().to_string()
    }

    /// Writes an artifact, unless the folder already has an undamaged copy. Returns the hash of the
    /// artifact.
    ///
    /// # Errors
    /// Returns the error of the file system. A failed write leaves no partial file.
    pub fn store(&self, kind: &str, content: &[u8]) -> io::Result<String> {
        let hash = Self::hash(content);
        let path = self.path(&hash, kind);
        if fs::read(&path).is_ok_and(|found| found == content) {
            return Ok(hash);
        }
        fs::create_dir_all(&self.folder)?;
        write_file(&path, content)?;
        Ok(hash)
    }

    /// Reads an artifact, and checks its hash.
    ///
    /// # Errors
    /// See [`ArtifactError`].
    pub fn read(&self, hash: &str, kind: &str) -> Result<Vec<u8>, ArtifactError> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if hash.len() != 64 || !hash.bytes().all(is_digit) {
            return Err(ArtifactError::NoHash(hash.to_owned()));
        }
        let path = self.path(hash, kind);
        let content = match &self.packed {
            None => fs::read(&path),
            Some(contents) => {
                let content = contents.get(&Self::name(hash, kind)).cloned();
                content.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
            }
        };
        let content = match content {
            Ok(content) => content,
            Err(error) => return Err(ArtifactError::Unreadable(path, error)),
        };
        if Self::hash(&content) == hash { Ok(content) } else { Err(ArtifactError::Damaged(path)) }
    }

    /// Reads a text artifact.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read). Also returns [`ArtifactError::Damaged`] if the
    /// content is not UTF-8.
    pub fn read_text(&self, hash: &str, kind: &str) -> Result<String, ArtifactError> {
        let content = self.read(hash, kind)?;
        String::from_utf8(content).map_err(|_| ArtifactError::Damaged(self.path(hash, kind)))
    }

    fn path(&self, hash: &str, kind: &str) -> PathBuf {
        self.folder.join(Self::name(hash, kind))
    }
}
