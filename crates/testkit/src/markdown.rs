//! Runs the test cases in Markdown pages.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::case::{Case, Outcome};
use crate::snapshot::{difference, is_blessing};

/// A fenced block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The info string after the opening backquotes.
    pub info: String,
    /// The line of the opening fence, from 1.
    pub line: usize,
    /// The byte range of the content in the page.
    pub body: Range<usize>,
}

/// Returns the root of the project. Without Cargo, tests run in the root.
pub fn project_root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let root = package.map_or_else(|| ".".into(), |package| PathBuf::from(package).join("../.."));
    root.canonicalize().unwrap_or(root)
}

/// Runs the cases of every page in a directory. If any case fails, panics with the text of all
/// failures.
#[track_caller]
pub fn run_directory(path: &Path) {
    let entries = std::fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut pages: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    assert!(!pages.is_empty(), "no pages in {}", path.display());
    let findings: Vec<String> = pages.iter().flat_map(|page| run_markdown(page)).collect();
    assert!(findings.is_empty(), "{} failed\n\n{}", findings.len(), findings.join("\n\n"));
}

/// Runs the cases of a page, and returns the failures.
pub fn run_markdown(path: &Path) -> Vec<String> {
    let mut page = match std::fs::read_to_string(path) {
        Ok(page) => page,
        Err(error) => return vec![format!("{}: {error}", path.display())],
    };
    let mut findings = Vec::new();
    let mut blessed = Vec::new();
    for (case, text) in parse(&page) {
        let place = format!("{}:{}", path.display(), case.as_ref().map_or(0, |case| case.line));
        let outcome = case.and_then(|case| case.run());
        match (outcome, text) {
            (Err(error) | Ok(Outcome::Wrong(error)), _) => findings.push(format!("{place}: {error}")),
            (Ok(Outcome::Right), None) => {}
            (Ok(Outcome::Right), Some(_)) => {
                findings.push(format!("{place}: expected a diagnostic, but there is none"));
            }
            (Ok(Outcome::Diagnostics(found)), None) => {
                findings.push(format!("{place}: an unexpected diagnostic\n{found}"));
            }
            (Ok(Outcome::Diagnostics(found)), Some(range)) => {
                let found = with_newline(&found);
                if page[range.clone()] != found && is_blessing() {
                    blessed.push((range, found));
                } else if page[range.clone()] != found {
                    findings.push(difference(&place, &page[range], &found));
                }
            }
        }
    }
    if !blessed.is_empty() {
        for (range, found) in blessed.into_iter().rev() {
            page.replace_range(range, &found);
        }
        if let Err(error) = std::fs::write(path, page) {
            findings.push(format!("cannot write {}: {error}", path.display()));
        }
    }
    findings
}

/// Returns the cases of a page.
pub fn cases(page: &str) -> Result<Vec<Case>, String> {
    parse(page).into_iter().map(|(case, _)| case).collect()
}

/// A case, and the byte range in the page of its expected diagnostics. The range is `None` if the
/// case expects no diagnostics.
type Expected = (Result<Case, String>, Option<Range<usize>>);

fn parse(page: &str) -> Vec<Expected> {
    let fences = fences(page);
    let is_start = |fence: &Fence| fence.info.starts_with("python") && fence.info.contains("kernel=");
    let mut found = Vec::new();
    for (number, fence) in fences.iter().enumerate().filter(|(_, fence)| is_start(fence)) {
        let rest = fences[number + 1..].iter().take_while(|fence| !fence.info.starts_with("py"));
        let (mut inputs, mut expect, mut text) = ("", "", None);
        for block in rest {
            match block.info.as_str() {
                "inputs" => inputs = &page[block.body.clone()],
                "expect" => expect = &page[block.body.clone()],
                "text" if text.is_none() => text = Some(block.body.clone()),
                _ => {}
            }
        }
        let case = Case::parse(fence.line, &fence.info, &page[fence.body.clone()], inputs, expect);
        found.push((case, text));
    }
    found
}

/// Returns the fenced blocks of a page, in order.
pub fn fences(page: &str) -> Vec<Fence> {
    let mut found: Vec<Fence> = Vec::new();
    let mut open: Option<Fence> = None;
    let mut offset = 0;
    for (number, line) in page.split_inclusive('\n').enumerate() {
        let next = offset + line.len();
        match (line.trim_end().strip_prefix("```"), open.take()) {
            (Some(info), None) => {
                open = Some(Fence { info: info.trim().to_owned(), line: number + 1, body: next..next });
            }
            (Some(_), Some(fence)) => found.push(Fence { body: fence.body.start..offset, ..fence }),
            (None, fence) => open = fence,
        }
        offset = next;
    }
    found
}

/// Converts text to the content of a fenced block. Its lines have no trailing spaces, and it ends
/// with a newline.
fn with_newline(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Title\n\n```python kernel=k signature=*fp32\ndef k(x): pass\n```\n\nprose\n\n```text\nerror\n```\n\n```python\nnot a case\n```\n";

    #[test]
    fn blocks_are_found() {
        let found = parse(PAGE);
        assert_eq!(found.len(), 1);
        let (case, text) = &found[0];
        assert_eq!(case.as_ref().unwrap().line, 3);
        assert_eq!(text.clone().map(|range| &PAGE[range]), Some("error\n"));
        assert_eq!(cases(PAGE).unwrap().len(), 1);
    }
}
