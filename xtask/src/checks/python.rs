//! Checks rules for Python files that ruff does not check.

use crate::tree::{File, Finding, Tree};

const MAX_FUNCTION_LINES: usize = 100;

/// The optional dependencies of the package. Files may import them only inside functions.
/// `import tilewright` therefore works without them, and is fast.
const OPTIONAL: [&str; 5] = ["torch", "triton", "numpy", "matplotlib", "pandas"];

/// Checks that each suppression names the codes that it suppresses.
pub fn suppressions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.python() {
        for (line, text) in file.lines() {
            for (comment, code_begins) in [("# noqa", ':'), ("# type: ignore", '[')] {
                let bare = text.match_indices(comment).any(|(start, _)| {
                    let rest = &text[start + comment.len()..];
                    !rest.starts_with(code_begins) && !rest.starts_with(char::is_alphanumeric)
                });
                if bare {
                    let message = format!("`{comment}` without a code hides what it was not written for");
                    findings.push(Finding::new(&file.path, line, "suppression", message));
                }
            }
        }
    }
    findings
}

/// Checks the length of functions. For Rust, clippy checks the length.
pub fn function_lengths(tree: &Tree) -> Vec<Finding> {
    tree.python().flat_map(long_functions).collect()
}

/// Checks that no import statement without indentation imports an optional package. If a statement
/// imports several modules, the check reads only the first module.
pub fn optional_packages(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.python().filter(|file| file.path.starts_with("python/")) {
        for statement in statements(&file.text).into_iter().filter(|statement| statement.indent == 0) {
            let mut words = statement.text.split([' ', '.', ',']);
            let imports = matches!(words.next(), Some("import" | "from"));
            if let Some(package) = words.next().filter(|word| imports && OPTIONAL.contains(word)) {
                let message = format!("import {package} inside the function that needs it: it may be absent");
                findings.push(Finding::new(&file.path, statement.line, "optional-package", message));
            }
        }
    }
    findings
}

fn long_functions(file: &File) -> Vec<Finding> {
    let statements = statements(&file.text);
    let mut findings = Vec::new();
    for (index, first) in statements.iter().enumerate() {
        if !first.text.starts_with("def ") && !first.text.starts_with("async def ") {
            continue;
        }
        let body = statements[index + 1..].iter().take_while(|statement| statement.indent > first.indent);
        let last_line = body.last().map_or(first.last_line, |last| last.last_line);
        let lines = last_line + 1 - first.line;
        if lines > MAX_FUNCTION_LINES {
            let message = format!("a function of {lines} lines, at most {MAX_FUNCTION_LINES}");
            findings.push(Finding::new(&file.path, first.line, "function-length", message));
        }
    }
    findings
}

/// A logical line of Python. It may extend over several lines of text.
struct Statement<'a> {
    line: usize,
    last_line: usize,
    indent: usize,
    /// The first line of text without its indentation.
    text: &'a str,
}

/// Splits a file into logical lines. Open brackets, open triple quotes and a backslash at the end
/// of a line continue a logical line. Comments and blank lines are skipped.
fn statements(text: &str) -> Vec<Statement<'_>> {
    let mut statements: Vec<Statement<'_>> = Vec::new();
    let mut scanner = Scanner::default();
    for (index, line) in text.lines().enumerate() {
        let content = line.trim_start();
        if scanner.is_inside() {
            if let Some(last) = statements.last_mut() {
                last.last_line = index + 1;
            }
        } else if !content.is_empty() && !content.starts_with('#') {
            let indent = line.len() - content.len();
            statements.push(Statement { line: index + 1, last_line: index + 1, indent, text: content });
        }
        scanner.scan(line);
    }
    statements
}

/// The state of a scan of Python text after a line.
#[derive(Default)]
struct Scanner {
    depth: usize,
    /// The quotes that end the open triple-quoted string.
    open_string: Option<&'static str>,
    continued: bool,
}

impl Scanner {
    fn is_inside(&self) -> bool {
        self.depth > 0 || self.open_string.is_some() || self.continued
    }

    fn scan(&mut self, line: &str) {
        let mut rest = line;
        self.continued = false;
        while let Some(first) = rest.chars().next() {
            rest = match self.open_string {
                Some(quotes) => match find_unescaped(rest, quotes) {
                    Some(end) => {
                        self.open_string = None;
                        &rest[end + quotes.len()..]
                    }
                    None => return,
                },
                None => match self.scan_code(rest, first) {
                    Some(rest) => rest,
                    None => return,
                },
            };
        }
    }

    /// Scans one piece of code. Returns `None` at the end of the line.
    fn scan_code<'a>(&mut self, rest: &'a str, first: char) -> Option<&'a str> {
        match first {
            '#' => return None,
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            '\\' if rest.len() == 1 => self.continued = true,
            '"' | '\'' => {
                for quotes in ["\"\"\"", "'''"] {
                    if let Some(rest) = rest.strip_prefix(quotes) {
                        self.open_string = Some(quotes);
                        return Some(rest);
                    }
                }
                let quote = if first == '"' { "\"" } else { "'" };
                return find_unescaped(&rest[1..], quote).map(|end| &rest[end + 2..]);
            }
            _ => {}
        }
        Some(&rest[first.len_utf8()..])
    }
}

/// Returns the position of the first unescaped occurrence of `quotes`.
fn find_unescaped(text: &str, quotes: &str) -> Option<usize> {
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        if !escaped && text[index..].starts_with(quotes) {
            return Some(index);
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::found;

    #[test]
    fn bare_suppressions_are_found() {
        let bare = concat!("x = 1  # no", "qa\ny = 2  # type", ": ignore\n");
        assert_eq!(found(suppressions, &[("a.py", bare)]), ["a.py:1: suppression", "a.py:2: suppression"]);
        let coded = concat!("x = 1  # no", "qa: E501\ny = 2  # type", ": ignore[attr-defined]\n");
        assert_eq!(found(suppressions, &[("a.py", coded)]), [""; 0]);
    }

    fn function(header: &str, body_lines: usize) -> String {
        format!("{header}\n{}x = 1\n", "    y = 2\n".repeat(body_lines))
    }

    #[test]
    fn long_functions_are_found() {
        assert_eq!(found(function_lengths, &[("a.py", &function("def f():", 99))]), [""; 0]);
        assert_eq!(
            found(function_lengths, &[("a.py", &function("def f():", 100))]),
            ["a.py:1: function-length"]
        );
        let signature = "async def f(\n    a=\"(\",\n) -> int:";
        assert_eq!(
            found(function_lengths, &[("a.py", &function(signature, 98))]),
            ["a.py:1: function-length"]
        );
    }

    #[test]
    fn strings_and_comments_do_not_end_a_function() {
        for inside in ["    s = \"\"\"\n(dedented\n\"\"\"", "    s = '\\'('  # (\n# dedented"] {
            let text = function(&format!("def f():\n{inside}"), 98);
            assert_eq!(found(function_lengths, &[("a.py", &text)]), ["a.py:1: function-length"], "{inside}");
        }
    }

    #[test]
    fn a_method_ends_where_the_next_begins() {
        let method = function("    def f(self):", 0).replace("x = 1\n", &"        y = 2\n".repeat(60));
        assert_eq!(found(function_lengths, &[("a.py", &format!("class C:\n{method}{method}"))]), [""; 0]);
    }

    #[test]
    fn optional_packages_are_imported_late() {
        let path = "python/tilewright/testing.py";
        assert_eq!(
            found(
                optional_packages,
                &[(path, "\"\"\"Tests.\"\"\"\nimport torch.nn as nn\nfrom numpy import array\n")]
            ),
            [format!("{path}:2: optional-package"), format!("{path}:3: optional-package")]
        );
        assert_eq!(found(optional_packages, &[(path, "def f():\n    import torch\n")]), [""; 0]);
        assert_eq!(found(optional_packages, &[("tests/a.py", "import torch\n")]), [""; 0]);
    }
}
