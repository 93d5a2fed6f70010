//! Checks that diagnostic codes and pages in `docs/diagnostics` correspond.

use std::collections::BTreeMap;

use crate::tree::{Finding, Tree};

/// The table of codes: a file or a folder.
const TABLE: &str = "crates/base/src/codes";
const PAGES: &str = "docs/diagnostics/";
const RULE: &str = "diagnostic-page";

/// Checks that every code of the table has a page, and that every page has a code.
pub fn pages(tree: &Tree) -> Vec<Finding> {
    let mut codes = BTreeMap::new();
    let table = tree.files.iter().filter(|file| file.path.starts_with(TABLE) && file.has_extension("rs"));
    for file in table {
        for (line, text) in file.lines() {
            for code in codes_in(text) {
                codes.entry(code).or_insert((file.path.as_str(), line));
            }
        }
    }
    let pages: BTreeMap<&str, &str> = tree
        .files
        .iter()
        .filter_map(|file| {
            let name = file.path.strip_prefix(PAGES)?.strip_suffix(".md")?;
            codes_in(name).next().map(|_| (name, file.path.as_str()))
        })
        .collect();
    let without_page =
        codes.iter().filter(|(code, _)| !pages.contains_key(**code)).map(|(code, &(path, line))| {
            Finding::new(path, line, RULE, format!("{code} has no page: write {PAGES}{code}.md"))
        });
    let without_code = pages.iter().filter(|(page, _)| !codes.contains_key(**page)).map(|(page, path)| {
        Finding::new(
            path,
            1,
            RULE,
            format!("{page} is not a code of {TABLE}.rs: remove the page, or add the code"),
        )
    });
    without_page.chain(without_code).collect()
}

/// Returns every separate word that consists of `TW` and four digits.
fn codes_in(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("TW").filter_map(|(start, _)| {
        let code = text.get(start..start + 6)?;
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let stands_alone =
            !is_word(text[..start].chars().next_back()) && !is_word(text[start + 6..].chars().next());
        (stands_alone && code[2..].bytes().all(|digit| digit.is_ascii_digit())).then_some(code)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::found;

    #[test]
    fn codes_and_pages_match() {
        let files = [
            ("crates/base/src/codes.rs", "TW0001 \"a\"\nTW0002 \"b\" // like TW0001\n"),
            ("docs/diagnostics/TW0001.md", ""),
            ("docs/diagnostics/TW0002.md", ""),
            ("docs/diagnostics/README.md", ""),
        ];
        assert_eq!(found(pages, &files), [""; 0]);
        assert_eq!(found(pages, &files[..2]), ["crates/base/src/codes.rs:2: diagnostic-page"]);
        assert_eq!(
            found(pages, &files[1..]),
            [
                "docs/diagnostics/TW0001.md:1: diagnostic-page",
                "docs/diagnostics/TW0002.md:1: diagnostic-page"
            ]
        );
    }

    #[test]
    fn a_code_is_a_word_of_four_digits() {
        let codes: Vec<&str> = codes_in("TW0001, (TW0002) TW003 TW00045 XTW0005 TW0006_a TWxxxx").collect();
        assert_eq!(codes, ["TW0001", "TW0002"]);
    }
}
