//! Checks the documents that explain the code:
//!
//! - The files and headings that they name exist.
//! - Decisions have their four parts.
//! - Pages and lines do not exceed their maximum length.

use std::path::Path;

use crate::tree::{File, Finding, Tree};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const MAX_ARCHITECTURE_LINES: usize = 250;
const MAX_ARCHITECTURE_WORDS: usize = 2500;
const MAX_STYLE_LINES: usize = 150;
const MAX_DECISION_LINES: usize = 25;
const MAX_COLUMNS: usize = 100;

const PARTS: [&str; 4] = ["**Context.**", "**Decision.**", "**Consequence.**", "**Evidence.**"];

/// The extensions of the files whose paths are checked.
const SOURCES: [&str; 6] = ["rs", "py", "md", "txt", "toml", "js"];

fn is_design(file: &File) -> bool {
    file.path.starts_with("docs/design/") && file.has_extension("md")
}

/// Checks the paths in code spans of `ARCHITECTURE.md` and `docs/design`. Each file or folder with
/// such a path must exist.
pub fn named_files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path == ARCHITECTURE || is_design(file)) {
        for (line, text) in outside_fences(file) {
            for code in text.split('`').skip(1).step_by(2).filter(|code| is_path(code)) {
                let is_here = |prefix: &str| {
                    let path = format!("{prefix}{code}");
                    let folder = format!("{}/", path.trim_end_matches('/'));
                    tree.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
                };
                if !["", "crates/"].into_iter().any(is_here) {
                    let message = format!("`{code}` does not exist: write its present path");
                    findings.push(Finding::new(&file.path, line, "named-files", message));
                }
            }
        }
    }
    findings
}

/// Returns whether a text is a relative path with a `/`. The path must end in the extension of a
/// source file, or in `/` for a folder.
fn is_path(code: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.');
    let extension = Path::new(code).extension().and_then(|extension| extension.to_str());
    code.contains('/')
        && code.chars().all(is_name)
        && !code.starts_with(['/', '.'])
        && (code.ends_with('/') || extension.is_some_and(|extension| SOURCES.contains(&extension)))
}

fn outside_fences(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut in_fence = false;
    file.lines().filter(move |(_, text)| {
        let toggles = text.trim_start().starts_with("```");
        in_fence ^= toggles;
        !in_fence && !toggles
    })
}

/// Checks the links from pages to text files or headings of this project. The target of each link
/// must exist.
pub fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension("md")) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, text) in outside_fences(file) {
            let prose: String = text.split('`').step_by(2).collect();
            let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            for (target, _) in targets.filter(|(target, _)| !target.contains("://")) {
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = if path.is_empty() { file.path.clone() } else { resolve(folder, path) };
                if !has_target(tree, &path, anchor) {
                    let message = format!("`{target}` is neither a file nor a heading: correct the link");
                    findings.push(Finding::new(&file.path, line, "links", message));
                }
            }
        }
    }
    findings
}

/// Resolves a path relative to a folder. The result does not contain `..`.
fn resolve(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

fn has_target(tree: &Tree, path: &str, anchor: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    // Pictures are not text, so the tree does not contain them.
    if extension.is_some_and(|extension| !SOURCES.contains(&extension)) {
        return true;
    }
    if let Some(page) = tree.files.iter().find(|file| file.path == path) {
        return anchor.is_empty()
            || outside_fences(page).any(|(_, text)| text.starts_with('#') && slug(text) == anchor);
    }
    let folder = format!("{path}/");
    anchor.is_empty() && (path == "LICENSE" || tree.files.iter().any(|file| file.path.starts_with(&folder)))
}

/// Returns the anchor that GitHub generates for a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Checks that each decision of `docs/design` has its four parts in order, and that it is short. A
/// section without any of these parts is not a decision.
pub fn decisions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_design(file)) {
        let lines: Vec<&str> = file.text.lines().collect();
        let headings: Vec<usize> = (0..lines.len()).filter(|&line| lines[line].starts_with("## ")).collect();
        for (index, &start) in headings.iter().enumerate() {
            let end = headings.get(index + 1).copied().unwrap_or(lines.len());
            let section = &lines[start..end];
            let parts: Vec<&str> = section
                .iter()
                .filter_map(|line| PARTS.into_iter().find(|part| line.starts_with(part)))
                .collect();
            if !parts.is_empty() && parts != PARTS {
                let message = format!("a decision has the parts {}, in this order", PARTS.join(" "));
                findings.push(Finding::new(&file.path, start + 1, "decisions", message));
            }
            let text_lines = section.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
            if !parts.is_empty() && text_lines > MAX_DECISION_LINES {
                let message =
                    format!("{text_lines} lines, at most {MAX_DECISION_LINES}: divide the decision");
                findings.push(Finding::new(&file.path, start + 1, "decisions", message));
            }
        }
    }
    findings
}

/// Checks the length of the pages that a new contributor reads completely.
pub fn sizes(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let (lines, words) = (file.text.lines().count(), file.text.split_whitespace().count());
        let limits = match file.path.as_str() {
            ARCHITECTURE => {
                [(lines, MAX_ARCHITECTURE_LINES, "lines"), (words, MAX_ARCHITECTURE_WORDS, "words")]
            }
            "STYLE.md" => [(lines, MAX_STYLE_LINES, "lines"), (words, usize::MAX, "words")],
            _ => continue,
        };
        for (found, most, unit) in limits.into_iter().filter(|(found, most, _)| found > most) {
            let message = format!("{found} {unit}, at most {most}: move decisions to docs/design");
            findings.push(Finding::new(&file.path, 1, "document-size", message));
        }
    }
    findings
}

/// Checks that lines of pages have at most 100 columns. Tables, code blocks and lines without a
/// space, such as a link, may be longer.
pub fn widths(tree: &Tree) -> Vec<Finding> {
    let pages = ["README.md", ARCHITECTURE, "STYLE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    let is_page = |file: &&File| {
        pages.contains(&file.path.as_str()) || file.path.starts_with("docs/") && file.has_extension("md")
    };
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(is_page) {
        for (line, text) in outside_fences(file) {
            let columns = text.chars().count();
            if columns > MAX_COLUMNS && !text.starts_with('|') && text.trim().contains(' ') {
                let message = format!("{columns} columns, at most {MAX_COLUMNS}");
                findings.push(Finding::new(&file.path, line, "width", message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::found;

    #[test]
    fn files_that_do_not_exist_are_found() {
        let page = "See `ir/src/ops.rs`, `gone/src/a.rs`, `gpu/src/` and `a / b`.\n```text\nx/y.rs\n```\n";
        let files = [("docs/design/a.md", page), ("crates/ir/src/ops.rs", ""), ("crates/gpu/src/lib.rs", "")];
        assert_eq!(found(named_files, &files), ["docs/design/a.md:1: named-files"]);
    }

    #[test]
    fn links_without_a_target_are_found() {
        let page = "# A `b`: c\n[x](#a-b-c) [y](../src/a.rs) [z](https://a.b) [p](p.png)\n[q](gone.md)\n[r](b.md#d)\n";
        let files = [("docs/a.md", page), ("src/a.rs", ""), ("docs/b.md", "# C\n")];
        assert_eq!(found(links, &files), ["docs/a.md:3: links", "docs/a.md:4: links"]);
    }

    #[test]
    fn decisions_without_a_part_or_too_long_are_found() {
        let parts = PARTS.map(|part| format!("{part} X.\n")).concat();
        let long = format!("## A\n{parts}{}x\n", "y\n".repeat(20));
        assert_eq!(found(decisions, &[("docs/design/a.md", &format!("## A\n{parts}\n"))]), [""; 0]);
        assert_eq!(found(decisions, &[("docs/design/a.md", "## A\nFree text.\n")]), [""; 0]);
        assert_eq!(found(decisions, &[("docs/design/a.md", &long)]), ["docs/design/a.md:1: decisions"]);
        let missing = "# T\n## A\n**Context.** X.\n**Decision.** Y.\n";
        assert_eq!(found(decisions, &[("docs/design/a.md", missing)]), ["docs/design/a.md:2: decisions"]);
    }

    #[test]
    fn long_pages_and_lines_are_found() {
        let long = "x\n".repeat(251);
        assert_eq!(
            found(sizes, &[("ARCHITECTURE.md", &long), ("docs/a.md", &long)]),
            ["ARCHITECTURE.md:1: document-size"]
        );
        let wide = format!("| {}|\n{}\n", "x ".repeat(60), "x ".repeat(60));
        assert_eq!(found(widths, &[("docs/a.md", &wide), ("b.md", &wide)]), ["docs/a.md:2: width"]);
    }
}
