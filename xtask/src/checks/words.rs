//! Limits the uses of words that hide an actor or a term (the ratchet).
//!
//! `STYLE.md` lists the words. `xtask/words.txt` has the maximum number of their uses in each area.
//! A number may only fall; `cargo xtask tidy --bless` lowers it. An area without a row has the
//! maximum 0. Code in Markdown does not count.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::tree::{File, Finding, Tree};

/// The path of the table, relative to the root.
pub const TABLE: &str = "xtask/words.txt";
/// The path of this file, which contains the words themselves.
const SELF: &str = "xtask/src/checks/words.rs";

/// A column of the table: its phrases in lower case, and the text to write instead.
struct Listed {
    name: &'static str,
    phrases: &'static [&'static [&'static str]],
    instead: &'static str,
}

const LISTED: [Listed; 7] = [
    Listed { name: "behind", phrases: &[&["behind"]], instead: "after" },
    Listed { name: "so_many", phrases: &[&["so", "many"]], instead: "the name of the number" },
    Listed {
        name: "nobody",
        phrases: &[&["nobody"], &["somebody"]],
        instead: "the actor, \"unused\" or \"without readers\"",
    },
    Listed { name: "asked_for", phrases: &[&["asked", "for"]], instead: "requested, or required" },
    Listed { name: "stands", phrases: &[&["stands"]], instead: "is, or is placed" },
    Listed { name: "alone", phrases: &[&["alone"]], instead: "only" },
    Listed { name: "of_which", phrases: &[&["of", "which"]], instead: "a second sentence" },
];
/// The name of the last column. It counts sentences that begin with a clause instead of a noun.
const CLAUSE: &str = "clause";
const CLAUSE_WORDS: [&str; 4] = ["What", "Who", "Where", "Whether"];
const COLUMNS: usize = LISTED.len() + 1;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Row([usize; COLUMNS]);

/// An area and a language. An area is a crate, a folder or a page.
type Place = (String, String);
type Counts = BTreeMap<Place, Row>;

/// Checks that no area uses a listed word more often than the table allows.
pub fn ratchet(tree: &Tree) -> Vec<Finding> {
    let maxima = match maxima(tree) {
        Ok(maxima) => maxima,
        Err(finding) => return vec![finding],
    };
    let mut findings = Vec::new();
    for ((area, kind), row) in &counts(tree) {
        let allowed = maxima.get(&(area.clone(), kind.clone())).copied().unwrap_or_default();
        for column in 0..COLUMNS {
            let (found, most) = (row.0[column], allowed.0[column]);
            if found > most {
                let (path, line) = last_use(tree, area, kind, column);
                let message = format!(
                    "{area} ({kind}) has {} {found} times, at most {most}: {}",
                    column_name(column),
                    advice(column)
                );
                findings.push(Finding::new(&path, line, "words", message));
            }
        }
    }
    findings
}

/// Returns the table after lowering every maximum to the current number.
///
/// A new area of code gets a row if the totals of its language do not rise. For example, a crate
/// that was split off is a new area. If any other number rises, returns findings instead.
pub fn lowered(tree: &Tree) -> Result<String, Vec<Finding>> {
    let counts = counts(tree);
    if tree.files.iter().any(|file| file.path == TABLE) {
        let maxima = maxima(tree).map_err(|finding| vec![finding])?;
        let is_moved = |(area, kind): &Place| {
            kind != "md"
                && !maxima.contains_key(&(area.clone(), kind.clone()))
                && (0..COLUMNS).all(|column| total(&counts, kind, column) <= total(&maxima, kind, column))
        };
        let risen: Vec<Finding> = ratchet(tree)
            .into_iter()
            .filter(|finding| place_of_path(&finding.path).is_none_or(|place| !is_moved(&place)))
            .collect();
        if !risen.is_empty() {
            return Err(risen);
        }
    }
    Ok(print(&counts))
}

fn total(counts: &Counts, kind: &str, column: usize) -> usize {
    counts.iter().filter(|((_, of), _)| of == kind).map(|(_, row)| row.0[column]).sum()
}

fn column_name(column: usize) -> String {
    match LISTED.get(column) {
        Some(listed) => format!("`{}`", listed.name.replace('_', " ")),
        None => "a sentence that begins with `What`, `Who`, `Where` or `Whether` as a noun".to_owned(),
    }
}

fn advice(column: usize) -> String {
    match LISTED.get(column) {
        Some(listed) => format!("write {} (STYLE.md)", listed.instead),
        None => "begin with the noun, or with a verb in a doc comment (STYLE.md)".to_owned(),
    }
}

/// Returns the area and the language of a file. Returns `None` if the words of the file do not
/// count.
fn place_of_path(path: &str) -> Option<Place> {
    let (name, kind) = path.rsplit_once('.')?;
    if !matches!(kind, "rs" | "py" | "md") || path == SELF {
        return None;
    }
    let parts: Vec<&str> = name.split('/').collect();
    let area = match parts[..] {
        ["crates", krate, ..] => format!("crates/{krate}"),
        // Each page is a separate area.
        [_] | ["docs", _] if kind == "md" => path.to_owned(),
        ["docs", folder, ..] => format!("docs/{folder}"),
        [folder, _, ..] => folder.to_owned(),
        _ => ".".to_owned(),
    };
    Some((area, kind.to_owned()))
}

fn counts(tree: &Tree) -> Counts {
    let mut counts = Counts::new();
    for file in &tree.files {
        let Some(place) = place_of_path(&file.path) else { continue };
        for (column, _) in uses(file) {
            counts.entry(place.clone()).or_default().0[column] += 1;
        }
    }
    counts
}

fn last_use(tree: &Tree, area: &str, kind: &str, column: usize) -> (String, usize) {
    let place = (area.to_owned(), kind.to_owned());
    let files = tree.files.iter().filter(|file| place_of_path(&file.path).as_ref() == Some(&place));
    let mut found = files.filter_map(|file| {
        let (_, line) = uses(file).into_iter().rfind(|(of, _)| *of == column)?;
        Some((file.path.clone(), line))
    });
    found.next_back().unwrap_or_else(|| (TABLE.to_owned(), 1))
}

/// A word, its line, and the text between this word and the next word.
struct Word<'a> {
    text: &'a str,
    line: usize,
    gap: &'a str,
}

fn uses(file: &File) -> Vec<(usize, usize)> {
    let prose = if file.has_extension("md") { without_code(&file.text) } else { file.text.clone() };
    let words = words(&prose);
    let mut uses = Vec::new();
    for (index, word) in words.iter().enumerate() {
        for (column, listed) in LISTED.iter().enumerate() {
            let is_here = |phrase: &[&str]| {
                phrase[0].eq_ignore_ascii_case(word.text)
                    && phrase[1..].iter().enumerate().all(|(offset, part)| {
                        is_within_sentence(words[index + offset].gap)
                            && words.get(index + offset + 1).is_some_and(|next| next.text == *part)
                    })
            };
            if listed.phrases.iter().any(|phrase| is_here(phrase)) {
                uses.push((column, word.line));
            }
        }
        if CLAUSE_WORDS.contains(&word.text) && begins_clause(&words[index..]) {
            uses.push((LISTED.len(), word.line));
        }
    }
    uses
}

/// Returns whether a sentence with these words begins with a clause. The second word of such a
/// sentence is in lower case, and the sentence is not a question.
fn begins_clause(words: &[Word<'_>]) -> bool {
    let Some(next) = words.get(1) else { return false };
    if !is_within_sentence(words[0].gap) || !next.text.starts_with(char::is_lowercase) {
        return false;
    }
    let end = words.iter().map(|word| word.gap).find(|gap| gap.contains(['.', '?', '!', ';']));
    !end.is_some_and(|gap| gap.trim_start_matches(['`', ')', '*', '\'']).starts_with('?'))
}

/// Returns whether the text between two words consists only of spaces, line breaks and comment
/// marks.
fn is_within_sentence(gap: &str) -> bool {
    !gap.is_empty() && gap.chars().all(|c| c.is_whitespace() || matches!(c, '/' | '!' | '#' | '>' | '\\'))
}

fn words(text: &str) -> Vec<Word<'_>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words: Vec<Word<'_>> = Vec::new();
    let (mut rest, mut line) = (text, 1);
    loop {
        let start = rest.find(is_word).unwrap_or(rest.len());
        if let Some(last) = words.last_mut() {
            last.gap = &rest[..start];
        }
        line += rest[..start].matches('\n').count();
        rest = &rest[start..];
        if rest.is_empty() {
            return words;
        }
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        words.push(Word { text: &rest[..end], line, gap: "" });
        rest = &rest[end..];
    }
}

/// Removes fences and code spans from Markdown. The remaining text keeps its line numbers.
fn without_code(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let (mut in_fence, mut in_span) = (false, false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence {
            in_span &= !line.trim().is_empty();
            for c in line.chars() {
                if c == '`' {
                    in_span = !in_span;
                }
                prose.push(if in_span || c == '`' { '`' } else { c });
            }
        }
        prose.push('\n');
    }
    prose
}

fn maxima(tree: &Tree) -> Result<Counts, Finding> {
    let file = tree.files.iter().find(|file| file.path == TABLE);
    let Some(file) = file else { return Ok(Counts::new()) };
    let mut maxima = Counts::new();
    for (line, text) in file.lines().filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
        let cells: Vec<&str> = text.split_whitespace().collect();
        let row: Option<Vec<usize>> =
            cells.get(2..).and_then(|cells| cells.iter().map(|cell| cell.parse().ok()).collect());
        let Some(Ok(row)) = row.map(<[usize; COLUMNS]>::try_from) else {
            let message = format!("not an area, a language and {COLUMNS} numbers");
            return Err(Finding::new(TABLE, line, "words", message));
        };
        maxima.insert((cells[0].to_owned(), cells[1].to_owned()), Row(row));
    }
    Ok(maxima)
}

fn print(counts: &Counts) -> String {
    let mut table = String::from(
        "# How often each area has the words of STYLE.md.\n\
         # Numbers may only fall: `cargo xtask tidy --bless` lowers them.\n",
    );
    let mut line = |area: &str, kind: &str, cells: &[String]| {
        write!(table, "{area:<24}{kind:<5}").expect("a string takes text");
        for cell in cells {
            write!(table, "{cell:>10}").expect("a string takes text");
        }
        table.push('\n');
    };
    let names = LISTED.iter().map(|listed| listed.name).chain([CLAUSE]);
    line("# area", "", &names.map(str::to_owned).collect::<Vec<_>>());
    for ((area, kind), row) in counts {
        line(area, kind, &row.0.map(|count| count.to_string()));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::found;

    fn columns(path: &str, text: &str) -> Vec<(usize, usize)> {
        uses(&Tree::of(&[(path, text)]).files[0])
    }

    #[test]
    fn listed_words_are_found_across_lines() {
        let text = "// Waits for so\n// many slots behind it.\nfn behind_it() {}\n";
        assert_eq!(columns("a.rs", text), [(1, 1), (0, 2)]);
        assert_eq!(columns("a.py", "x = so; many = 1  # asked, for\n"), []);
    }

    #[test]
    fn clauses_in_place_of_a_noun_are_found() {
        let clause = LISTED.len();
        assert_eq!(columns("a.rs", "/// Whether it\n/// is full.\nenum Where { A }\n"), [(clause, 1)]);
        assert_eq!(columns("a.md", "Where do I add a pass?\n\n**What is kept** is here.\n"), [(clause, 3)]);
        assert_eq!(columns("a.md", "Say where it is. What?\n"), []);
    }

    #[test]
    fn code_in_pages_does_not_count() {
        let text = "Not `behind` the\n```text\nalone\n```\nloop: alone\n";
        assert_eq!(columns("a.md", text), [(5, 5)]);
    }

    #[test]
    fn more_words_than_the_table_are_found() {
        let table = |number: usize| format!("# area\ncrates/ir rs {number} 0 0 0 0 0 0 0\n");
        let text = "// behind\n// behind\n";
        let check = |number| found(ratchet, &[("crates/ir/src/a.rs", text), (TABLE, &table(number))]);
        assert_eq!(check(1), ["crates/ir/src/a.rs:2: words"]);
        assert_eq!(check(2), [""; 0]);
        assert_eq!(found(ratchet, &[("README.md", "alone\n"), (TABLE, "")]), ["README.md:1: words"]);
        assert_eq!(found(ratchet, &[(TABLE, "README.md md 1\n")]), ["xtask/words.txt:1: words"]);
    }

    #[test]
    fn the_table_is_lowered_and_never_raised() {
        let bless = |files: &[(&str, &str)]| lowered(&Tree::of(files));
        let table = "crates/ir rs 2 0 0 0 0 0 0 0\n";
        let fewer = bless(&[("crates/ir/src/a.rs", "// behind\n"), (TABLE, table)]).expect("it falls");
        assert!(
            fewer.lines().any(|line| line.split_whitespace().eq("crates/ir rs 1 0 0 0 0 0 0 0".split(' ')))
        );
        // Code that moves to a new crate takes its words along.
        let moved =
            bless(&[("crates/new/src/a.rs", "// behind behind\n"), (TABLE, table)]).expect("it moves");
        assert!(moved.contains("crates/new") && !moved.contains("crates/ir"), "{moved}");
        for (path, text) in [
            ("crates/ir/src/a.rs", "// behind behind behind\n"),
            ("crates/new/src/a.rs", "// behind behind behind\n"),
            ("README.md", "behind\n"),
        ] {
            assert!(bless(&[(path, text), (TABLE, table)]).is_err(), "{path}");
        }
    }
}
