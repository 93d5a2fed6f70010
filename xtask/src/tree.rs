//! Reads the source tree into memory, and defines the findings of checks.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// The folders without source files of the project. Hidden folders are excluded, too, except
/// `HIDDEN_SOURCE`.
const NOT_SOURCE: [&str; 7] =
    ["target", "build", "dist", "venv", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];
const HIDDEN_SOURCE: [&str; 3] = [".cargo", ".ci", ".github"];

/// The folder of users' programs, which must not be changed.
const USER_PROGRAMS: &str = "tests/programs/";

/// A text file. `path` is relative to the root, with `/` between folders.
#[derive(Debug, Clone)]
pub struct File {
    pub path: String,
    pub text: String,
}

impl File {
    /// Returns whether the name of the file ends in `.extension`.
    pub fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    /// Returns the lines with their numbers, which begin at 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// The text files to which the rules apply, sorted by path.
#[derive(Debug, Default)]
pub struct Tree {
    pub files: Vec<File>,
}

impl Tree {
    /// Reads the tree below `root`. Skips files that are not UTF-8.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if is_source_folder(&path) {
                    self.read_folder(&entry.path(), &format!("{path}/"))?;
                }
            } else if kind.is_file()
                && !path.starts_with(USER_PROGRAMS)
                && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
            {
                self.files.push(File { path, text });
            }
        }
        Ok(())
    }

    /// Returns the Rust files.
    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.has_extension("rs"))
    }

    /// Returns the Python files. Stubs are not included, because they are generated.
    pub fn python(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.has_extension("py"))
    }

    /// Creates a tree of the given paths and texts, for the tests of the checks.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|&(path, text)| File { path: path.into(), text: text.into() }).collect();
        Self { files }
    }
}

fn is_source_folder(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    if name.starts_with('.') {
        return HIDDEN_SOURCE.contains(&path);
    }
    name != "__pycache__" && !NOT_SOURCE.contains(&path)
}

/// A violation of a rule: its position, the rule, and a message with advice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub rule: &'static str,
    pub message: String,
}

impl Finding {
    /// Creates a finding at a line of a file.
    pub fn new(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line, self.rule, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_and_built_folders_are_no_source() {
        for name in [".venv", ".git", "target", "fuzz/target", "tests/__pycache__", "tests/.cache"] {
            assert!(!is_source_folder(name), "{name}");
        }
        for name in [".ci", "crates", "crates/gpu/src/target"] {
            assert!(is_source_folder(name), "{name}");
        }
    }

    #[test]
    fn a_finding_prints_as_editors_read_it() {
        let finding = Finding::new("crates/ir/src/lib.rs", 7, "unsafe", "move it");
        assert_eq!(finding.to_string(), "crates/ir/src/lib.rs:7: [unsafe] move it");
    }
}
