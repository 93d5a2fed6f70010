//! Checks headers, lengths, marks of unfinished work, and absolute paths in any text.

use crate::tree::{File, Finding, Tree};

const MAX_FILE_LINES: usize = 800;

/// The extensions of the files that are searched for marks of unfinished work and for paths on a
/// developer's machine.
const TEXT: [&str; 8] = ["rs", "py", "md", "toml", "txt", "yml", "sh", "ir"];

/// Checks that every source file begins with a description of its purpose.
pub fn headers(tree: &Tree) -> Vec<Finding> {
    let rust = tree.rust().filter(|file| !has_rust_header(&file.text)).map(|file| {
        Finding::new(&file.path, 1, "header", "begin the file with `//!` and a line that says its job")
    });
    let python = tree.python().filter(|file| !has_docstring(&file.text)).map(|file| {
        Finding::new(&file.path, 1, "header", "begin the file with a docstring that says its job")
    });
    rust.chain(python).collect()
}

fn has_rust_header(text: &str) -> bool {
    text.strip_prefix("//!").is_some_and(|rest| !rest.lines().next().unwrap_or_default().trim().is_empty())
}

fn has_docstring(text: &str) -> bool {
    let first = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with('#'));
    let first = first.unwrap_or_default().trim_start_matches('r');
    first.starts_with("\"\"\"") || first.starts_with("'''")
}

/// Checks the length of source files.
pub fn lengths(tree: &Tree) -> Vec<Finding> {
    let finding = |file: &File| {
        let lines = file.text.lines().count();
        (lines > MAX_FILE_LINES).then(|| {
            let message = format!("{lines} lines, at most {MAX_FILE_LINES}: split it by what its parts do");
            Finding::new(&file.path, MAX_FILE_LINES + 1, "file-length", message)
        })
    };
    tree.rust().chain(tree.python()).filter_map(finding).collect()
}

/// Checks that there is no mark of unfinished work.
pub fn markers(tree: &Tree) -> Vec<Finding> {
    // The words are concatenated, so that this file does not contain them.
    let markers = [concat!("FIX", "ME"), concat!("X", "XX"), concat!("TO", "DO")];
    let message = |marker: &str| format!("`{marker}`: do it now, or make it an issue");
    find_in_lines(tree, "unfinished", |line| {
        markers.iter().find(|marker| contains_word(line, marker)).map(|m| message(m))
    })
}

fn contains_word(line: &str, word: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(start, _)| {
        !is_word(line[..start].chars().next_back()) && !is_word(line[start + word.len()..].chars().next())
    })
}

/// Checks that there is no absolute path on a developer's machine.
pub fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let roots = [concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];
    let windows = concat!("C:\\Us", "ers");
    find_in_lines(tree, "machine-path", |line| {
        // After a name, the text is part of a relative path or of a URL.
        let is_absolute = |start: usize| {
            !line[..start]
                .ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '*' | ')' | '}'))
        };
        let found = roots.iter().any(|root| line.match_indices(root).any(|(start, _)| is_absolute(start)));
        (found || line.contains(windows)).then(|| "a path of one machine: make it relative".to_owned())
    })
}

fn find_in_lines(tree: &Tree, rule: &'static str, look: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let is_text = |file: &&File| {
        TEXT.iter().any(|extension| file.has_extension(extension))
            || file.path == "Makefile"
            || file.path.starts_with(".ci/")
    };
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(is_text) {
        for (line, text) in file.lines() {
            findings.extend(look(text).map(|message| Finding::new(&file.path, line, rule, message)));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::found;

    #[test]
    fn headers_are_asked_for() {
        let files = [
            ("a.rs", "//! Adds.\n"),
            ("b.rs", "// Adds.\n"),
            ("c.rs", "//!\nfn f() {}\n"),
            ("d.py", "#!/usr/bin/env python3\n\n\"\"\"Adds.\"\"\"\n"),
            ("e.py", "import os\n"),
            ("f.py", ""),
        ];
        assert_eq!(
            found(headers, &files),
            ["b.rs:1: header", "c.rs:1: header", "e.py:1: header", "f.py:1: header"]
        );
    }

    #[test]
    fn long_files_are_found() {
        let (fits, long) = ("\n".repeat(800), "\n".repeat(801));
        assert_eq!(
            found(lengths, &[("a.rs", &fits), ("b.py", &long), ("c.md", &long)]),
            ["b.py:801: file-length"]
        );
    }

    #[test]
    fn marks_of_unfinished_work_are_found() {
        let mark = |word: &str| format!("x\n# {word}: later\n");
        assert_eq!(found(markers, &[("a.py", &mark(concat!("FIX", "ME")))]), ["a.py:2: unfinished"]);
        assert_eq!(found(markers, &[("a.md", &mark(concat!("TO", "DO")))]), ["a.md:2: unfinished"]);
        assert_eq!(found(markers, &[("a.rs", &mark(concat!("TWX", "X", "XX")))]), [""; 0]);
    }

    #[test]
    fn machine_paths_are_found() {
        let line = |path: &str| format!("see \"{path}\"\n");
        assert_eq!(
            found(machine_paths, &[("a.md", &line(concat!("/ho", "me/ann/x")))]),
            ["a.md:1: machine-path"]
        );
        assert_eq!(
            found(machine_paths, &[("Makefile", &line(concat!("/wo", "rk/x")))]),
            ["Makefile:1: machine-path"]
        );
        assert_eq!(found(machine_paths, &[("a.rs", &line(concat!("docs/wo", "rk/x")))]), [""; 0]);
        assert_eq!(found(machine_paths, &[("a.rs", &line("/usr/bin/env"))]), [""; 0]);
    }
}
