//! Defines source files, and spans of bytes in them.

use std::sync::Arc;

use cranelift_entity::{PrimaryMap, entity_impl};

/// The id of a source file in a [`SourceMap`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u32);
entity_impl!(FileId, "file");

/// A range of bytes in a source file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// The offset of the first byte.
    pub start: u32,
    /// The offset after the last byte.
    pub end: u32,
}

impl Span {
    /// Makes the span from `start` to `end` (exclusive) of `file`.
    pub fn new(file: FileId, start: u32, end: u32) -> Self {
        Self { file, start, end }
    }
}

/// A piece of source: a whole file, or the text of one function in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceFile {
    /// The path, as it is shown to the user.
    pub name: String,
    /// The text, without the indentation that all its lines share in the file.
    pub text: String,
    /// The line of the file, counted from 1, at which `text` begins.
    pub first_line: u32,
    /// The number of columns of common indentation that were removed from each line.
    pub removed_columns: u32,
}

/// The prefix of the names of library files, which are written in the kernel language.
pub const LIBRARY: &str = "tilewright/lib/";

impl SourceFile {
    /// Makes a whole file.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), first_line: 1, removed_columns: 0 }
    }

    /// Returns whether the file belongs to tilewright's library. For an error in a library file,
    /// diagnostics show the line in the user's file that calls the library.
    pub fn is_library(&self) -> bool {
        self.name.starts_with(LIBRARY)
    }

    /// Returns the line and the column that a byte of `text` has in the original file. Both count
    /// from 1; columns count characters.
    pub fn line_column(&self, byte: u32) -> (u32, u32) {
        let mut end = (byte as usize).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &self.text[..end];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() as u32;
        let column = before[line_start..].chars().count() as u32 + 1;
        (self.first_line + line, column + self.removed_columns)
    }
}

/// The source files of one compilation.
#[derive(Clone, Default, Debug)]
pub struct SourceMap {
    files: PrimaryMap<FileId, Arc<SourceFile>>,
}

impl SourceMap {
    /// Adds a file, and returns its id. If an equal file is in the map, returns that file's id.
    pub fn add(&mut self, file: impl Into<Arc<SourceFile>>) -> FileId {
        let file = file.into();
        let known = self.files.iter().find(|(_, other)| **other == file).map(|(id, _)| id);
        known.unwrap_or_else(|| self.files.push(file))
    }

    /// Returns the index of the innermost span of `chain` that is in a user's file. Returns `None`
    /// if all spans are in library files. `chain` has the span of an instruction, then the spans of
    /// the calls that lead to the instruction, innermost first.
    pub fn users_place(&self, chain: &[Span]) -> Option<usize> {
        chain.iter().position(|span| !self.file(span.file).is_library())
    }

    /// Returns the file with this id.
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id]
    }

    /// Returns the same files under other names. `name` maps the name of each file that is not a
    /// library file. The ids stay the same.
    #[must_use]
    pub fn with_names(&self, name: impl Fn(&str) -> String) -> Self {
        let renamed = |file: &Arc<SourceFile>| {
            if file.is_library() {
                return Arc::clone(file);
            }
            Arc::new(SourceFile { name: name(&file.name), ..SourceFile::clone(file) })
        };
        Self { files: self.files.values().map(renamed).collect() }
    }

    /// Returns every file, in the order of insertion.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &SourceFile)> {
        self.files.iter().map(|(id, file)| (id, file.as_ref()))
    }

    /// Returns `path:line:column` of the first byte of a span.
    pub fn position(&self, span: Span) -> String {
        let file = self.file(span.file);
        let (line, column) = file.line_column(span.start);
        format!("{}:{line}:{column}", file.name)
    }

    /// Returns the text that a span covers; empty if the span does not fit the file.
    pub fn text(&self, span: Span) -> &str {
        self.file(span.file).text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
}

impl FromIterator<SourceFile> for SourceMap {
    /// Makes a map in which each file has its own id, in order, even if files are equal.
    fn from_iter<T: IntoIterator<Item = SourceFile>>(files: T) -> Self {
        Self { files: files.into_iter().map(Arc::new).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_and_respect_the_first_line() {
        let file =
            SourceFile { first_line: 10, removed_columns: 4, ..SourceFile::new("k.py", "é = 1\nab = é\n") };
        assert_eq!(file.line_column(0), (10, 5));
        assert_eq!(file.line_column(3), (10, 7));
        assert_eq!(file.line_column(7), (11, 5));
        assert_eq!(file.line_column(1_000), (12, 5));
    }

    #[test]
    fn a_file_is_kept_once() {
        let mut map = SourceMap::default();
        let first = map.add(SourceFile::new("a.py", "x"));
        assert_eq!(map.add(SourceFile::new("a.py", "x")), first);
        assert_ne!(map.add(SourceFile::new("b.py", "x")), first);
        assert_eq!(map.position(Span::new(first, 0, 1)), "a.py:1:1");
    }
}
