//! Reads, writes, searches and merges lock files.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tilewright_base::write_file;

use crate::artifacts::Artifacts;
use crate::choice::Choice;
use crate::entry::{Entry, Request};

/// The version of the format. A reader rejects other versions.
pub const FORMAT: u32 = 1;

/// A lock: the compiled kernels and the tuned choices of a program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockFile {
    /// The version of the format, which is [`FORMAT`].
    pub format: u32,
    /// The version of tilewright that compiled the kernels.
    pub tilewright: String,
    /// The compiled kernels, sorted.
    pub entries: Vec<Entry>,
    /// The choices of tuners, sorted.
    #[serde(default)]
    pub choices: Vec<Choice>,
}

/// The reason why a lock could not be read.
#[derive(Debug)]
pub enum LockError {
    /// An error of the file system.
    Unreadable(PathBuf, io::Error),
    /// The content is not a lock. If the JSON parser found the error, such as a missing field, the
    /// message contains the line and the column.
    Malformed(PathBuf, String),
    /// The lock has another version of the format.
    OtherFormat(PathBuf, u64),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "the lock {} cannot be read: {error}", path.display()),
            Self::Malformed(path, error) => write!(f, "{} is not a lock file: {error}", path.display()),
            Self::OtherFormat(path, found) => write!(
                f,
                "the lock {} has format {found}, and this version of tilewright reads format {FORMAT}",
                path.display()
            ),
        }
    }
}

/// The error for two locks that cannot be merged, because they have different entries or different
/// choices for the same launches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The name of the launches in an error message.
    pub launches: String,
}

impl LockFile {
    /// Creates a lock without entries and choices.
    pub fn new(version: impl Into<String>) -> Self {
        Self { format: FORMAT, tilewright: version.into(), entries: Vec::new(), choices: Vec::new() }
    }

    /// Reads a lock that is not packed.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn read(path: &Path) -> Result<Self, LockError> {
        let text = fs::read_to_string(path).map_err(|error| LockError::Unreadable(path.to_owned(), error))?;
        Self::parse(path, &text)
    }

    /// Parses the text of a lock. Errors contain `path`.
    ///
    /// # Errors
    /// See [`LockError`].
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, LockError> {
        let malformed = |error: serde_json::Error| LockError::Malformed(path.to_owned(), error.to_string());
        let parsed = match serde_json::from_str::<Self>(text) {
            Ok(lock) if lock.format == FORMAT => return Ok(lock),
            parsed => parsed,
        };
        // A lock of another format may have other fields. Report its format, not these fields.
        let value: serde_json::Value = serde_json::from_str(text).map_err(malformed)?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => parsed.map_err(malformed),
            Some(format) => Err(LockError::OtherFormat(path.to_owned(), format)),
            None => Err(LockError::Malformed(path.to_owned(), "it has no \"format\"".to_owned())),
        }
    }

    /// Writes the lock atomically, sorted and without duplicates.
    ///
    /// # Errors
    /// Returns the error of the file system. After an error, the file has its previous content,
    /// unless [`write_file`] writes in place.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_file(path, self.to_text().as_bytes())
    }

    /// Returns the hash of the lock's text, without the timings of the choices. The text refers to
    /// each artifact by its hash, so locks with equal digests launch the same code.
    pub fn digest(&self) -> String {
        let mut lock = self.clone();
        for choice in &mut lock.choices {
            choice.timings.clear();
        }
        Artifacts::hash(lock.to_text().as_bytes())
    }

    /// Returns the text of the lock. The text is sorted, so that equal locks have equal bytes.
    pub fn to_text(&self) -> String {
        let mut sorted = self.clone();
        sorted.sort();
        let mut text = serde_json::to_string_pretty(&sorted).expect("every field has a JSON form");
        text.push('\n');
        text
    }

    /// Returns the artifacts of the lock at a path. The folder of `name.lock` is `name.artifacts`.
    pub fn artifacts(path: &Path) -> Artifacts {
        Artifacts::new(path.with_extension("artifacts"))
    }

    /// Returns the entry whose code a launch runs.
    pub fn find(&self, request: &Request) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.launches.runs_same_code(request))
    }

    /// Returns the choice for the launches of a kernel with this key.
    pub fn choice(&self, kernel: &str, source: &str, target: &str, key: &[String]) -> Option<&Choice> {
        self.choices.iter().find(|choice| choice.sort_key() == (kernel, target, source, key))
    }

    /// Explains why a launch is not in the lock.
    ///
    /// Returns the differences between the launch and the most similar entry of the same kernel and
    /// target. If the lock has entries of the kernel for other targets only, returns one text with
    /// these targets. Returns `None` if the lock has no entry of the kernel.
    pub fn explain(&self, request: &Request) -> Option<Vec<String>> {
        let of_kernel = || self.entries.iter().filter(|entry| entry.launches.kernel == request.kernel);
        let of_target = of_kernel().filter(|entry| entry.launches.target == request.target);
        if let Some(differences) =
            of_target.map(|entry| request.differences(&entry.launches)).min_by_key(Vec::len)
        {
            return Some(differences);
        }
        let targets: BTreeSet<_> = of_kernel().map(|entry| entry.launches.target.as_str()).collect();
        let listed = targets.iter().copied().collect::<Vec<_>>().join(", ");
        (!targets.is_empty()).then(|| vec![format!("target: {} here, {listed} in the lock", request.target)])
    }

    /// Adds the entries and choices of another lock.
    ///
    /// # Errors
    /// Fails if the two locks have different entries or choices for the same launches. In this
    /// case, nothing is added.
    pub fn merge(&mut self, other: &Self) -> Result<(), Conflict> {
        let (mut entries, mut choices) = (Vec::new(), Vec::new());
        for entry in &other.entries {
            match self.find(&entry.launches) {
                None => entries.push(entry.clone()),
                Some(own) if own == entry => {}
                Some(_) => return Err(Conflict { launches: entry.launches.to_string() }),
            }
        }
        for choice in &other.choices {
            match self.choices.iter().find(|own| own.has_same_key(choice)) {
                None => choices.push(choice.clone()),
                Some(own) if own.config == choice.config => {}
                Some(_) => {
                    let launches = format!("{}, tuned for {}", choice.kernel, choice.key.join(", "));
                    return Err(Conflict { launches });
                }
            }
        }
        self.entries.append(&mut entries);
        self.choices.append(&mut choices);
        self.sort();
        Ok(())
    }

    /// Keeps only the fastest choice for the same launches. There may be several choices, because
    /// processes that tune at the same time may choose differently.
    pub fn keep_fastest_choices(&mut self) {
        let time = |choice: &Choice| {
            let medians = choice.timings.values().filter_map(|timing| *timing.first()?);
            medians.fold(f64::INFINITY, f64::min)
        };
        self.choices.sort_by(|first, second| {
            let by_key = first.sort_key().cmp(&second.sort_key());
            let by_time = || time(first).total_cmp(&time(second));
            by_key.then_with(by_time).then_with(|| first.config.cmp(&second.config))
        });
        self.choices.dedup_by(|second, first| second.has_same_key(first));
    }

    fn sort(&mut self) {
        self.entries.sort();
        self.entries.dedup();
        self.choices.sort_by(|first, second| first.sort_key().cmp(&second.sort_key()));
        self.choices.dedup_by(|second, first| second.has_same_key(first));
    }
}
