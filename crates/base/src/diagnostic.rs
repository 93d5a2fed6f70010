//! Defines diagnostics: errors and warnings with positions, values and advice.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::{Code, Kind, SourceMap, Span};

/// A position in the source and a text about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The columns that are underlined.
    pub span: Span,
    /// The text after the underline; may be empty.
    pub text: String,
}

/// An error or a warning about a user's program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// The code, which also selects the page that explains the finding.
    pub code: Code,
    /// One sentence that states the error.
    pub message: String,
    /// The position of the error. `None` if the error has no position in a source file, such as an
    /// error about a launch option.
    pub primary: Option<Label>,
    /// Other positions that explain the finding. Examples are the definition of a value, and the
    /// calls that lead to the primary position.
    pub secondary: Vec<Label>,
    /// Facts, such as the found and the expected value.
    pub notes: Vec<String>,
    /// Advice on how to repair the program.
    pub hint: Option<String>,
    /// True if the finding is a warning although its code is that of an error.
    pub is_warning: bool,
}

/// The choice of ANSI colors in rendered text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Color {
    /// Plain text.
    Never,
    /// ANSI escapes, for a terminal.
    Always,
}

impl Diagnostic {
    /// Makes a diagnostic without a position.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            primary: None,
            secondary: Vec::new(),
            notes: Vec::new(),
            hint: None,
            is_warning: false,
        }
    }

    /// Makes a diagnostic at a position.
    pub fn at(code: Code, span: Span, message: impl Into<String>) -> Self {
        Self::new(code, message).primary(span, "")
    }

    /// Sets the primary position.
    #[must_use]
    pub fn primary(mut self, span: Span, text: impl Into<String>) -> Self {
        self.primary = Some(Label { span, text: text.into() });
        self
    }

    /// Adds a secondary position.
    #[must_use]
    pub fn secondary(mut self, span: Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Sets the advice.
    #[must_use]
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }

    /// Makes the finding a warning.
    #[must_use]
    pub fn as_warning(mut self) -> Self {
        self.is_warning = true;
        self
    }

    /// Formats the diagnostic for a terminal: the code and message, the source with carets, the
    /// notes and the hint.
    pub fn render(&self, sources: &SourceMap, color: Color) -> String {
        let is_warning = self.is_warning || self.code.kind() == Kind::Warning;
        let level = if is_warning { Level::WARNING } else { Level::ERROR };
        let mut title = level.primary_title(self.message.as_str()).id(self.code.name());
        if color == Color::Always {
            title = title.id_url(self.code.url());
        }
        let mut group = Group::with_title(title);
        for file in self.files() {
            let source = sources.file(file);
            let labels = (self.primary.iter().map(|label| (AnnotationKind::Primary, label)))
                .chain(self.secondary.iter().map(|label| (AnnotationKind::Context, label)))
                .filter(|(_, label)| label.span.file == file);
            let annotations = count_equal(labels).into_iter().map(|(kind, label, count)| {
                let range = clamp(label.span, &source.text);
                let text = match count {
                    1 => label.text.clone(),
                    _ => format!("{}, {count} times", label.text),
                };
                kind.span(range).label((!label.text.is_empty()).then_some(text))
            });
            let snippet = Snippet::source(source.text.as_str())
                .line_start(source.first_line as usize)
                .path(source.name.as_str())
                .annotations(annotations);
            group = group.element(snippet);
        }
        for note in &self.notes {
            group = group.element(Level::NOTE.message(note.as_str()));
        }
        if let Some(hint) = &self.hint {
            group = group.element(Level::HELP.message(hint.as_str()));
        }
        let renderer = match color {
            Color::Never => Renderer::plain(),
            Color::Always => Renderer::styled(),
        };
        renderer.render(&[group])
    }

    /// Returns the files that the labels point into, the file of the primary label first.
    fn files(&self) -> Vec<crate::FileId> {
        let mut files = Vec::new();
        for label in self.primary.iter().chain(&self.secondary) {
            if !files.contains(&label.span.file) {
                files.push(label.span.file);
            }
        }
        files
    }
}

/// Returns each distinct label with its count. All calls of a recursion have the same label.
fn count_equal<'a>(
    labels: impl Iterator<Item = (AnnotationKind, &'a Label)>,
) -> Vec<(AnnotationKind, &'a Label, usize)> {
    let mut counted: Vec<(AnnotationKind, &Label, usize)> = Vec::new();
    for (kind, label) in labels {
        match counted.iter_mut().find(|(_, known, _)| *known == label) {
            Some((_, _, count)) => *count += 1,
            None => counted.push((kind, label, 1)),
        }
    }
    counted
}

/// Returns the byte range of a span, within the text and at character boundaries.
fn clamp(span: Span, text: &str) -> std::ops::Range<usize> {
    let boundary = |mut byte: usize| {
        byte = byte.min(text.len());
        while !text.is_char_boundary(byte) {
            byte -= 1;
        }
        byte
    };
    let start = boundary(span.start as usize);
    start..boundary(span.end as usize).max(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SourceFile;

    #[test]
    fn carets_stand_under_the_columns() {
        let mut sources = SourceMap::default();
        let file = sources.add(SourceFile { first_line: 7, ..SourceFile::new("k.py", "z = x + y\n") });
        let diagnostic = Diagnostic::at(Code::IncompatibleShapes, Span::new(file, 6, 7), "shapes differ")
            .secondary(Span::new(file, 4, 5), "this has shape [128]")
            .note("found [128] and [64]")
            .hint("add an axis");
        let expected = "\
error[TW0004]: shapes differ
 --> k.py:7:7
  |
7 | z = x + y
  |     - ^
  |     |
  |     this has shape [128]
  |
  = note: found [128] and [64]
  = help: add an axis";
        let text = diagnostic.render(&sources, Color::Never);
        assert_eq!(text, expected);
    }

    #[test]
    fn equal_labels_are_one() {
        let mut sources = SourceMap::default();
        let file = sources.add(SourceFile::new("k.py", "f(f(x))\n"));
        let mut diagnostic =
            Diagnostic::at(Code::RecursiveCall, Span::new(file, 2, 6), "calls nest too deep");
        for _ in 0..60 {
            diagnostic = diagnostic.secondary(Span::new(file, 2, 6), "called from here");
        }
        let expected = "\
error[TW0021]: calls nest too deep
 --> k.py:1:3
  |
1 | f(f(x))
  |   ^^^^
  |   |
  |   called from here, 60 times";
        assert_eq!(diagnostic.render(&sources, Color::Never), expected);
    }

    #[test]
    fn spans_outside_the_text_do_not_panic() {
        let mut sources = SourceMap::default();
        let file = sources.add(SourceFile::new("k.py", "é"));
        let diagnostic = Diagnostic::at(Code::UndefinedName, Span::new(file, 1, 99), "?");
        assert!(!diagnostic.render(&sources, Color::Always).is_empty());
    }
}
