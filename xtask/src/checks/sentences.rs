//! Limits the length of the sentences in comments of Rust code.
//!
//! A code span counts as one word. Code blocks, headings and tables are not sentences.

use crate::tree::{File, Finding, Tree};

const MAX_WORDS: usize = 28;

/// Checks that no sentence of a comment has more than [`MAX_WORDS`] words.
pub fn lengths(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(long_sentences).collect()
}

/// A sentence: the line on which it begins, and the number of its words.
#[derive(Default)]
struct Sentence {
    line: usize,
    words: usize,
    is_in_code: bool,
}

impl Sentence {
    /// Adds the words of one line of a comment. Passes each sentence that ends on it to `ended`.
    fn add(&mut self, line: usize, text: &str, ended: &mut impl FnMut(&Self)) {
        for word in text.split_whitespace() {
            if self.words == 0 {
                self.line = line;
            }
            if !self.is_in_code {
                self.words += 1;
            }
            self.is_in_code ^= word.matches('`').count() % 2 == 1;
            if !self.is_in_code && word.trim_end_matches([')', '"', '`', ']']).ends_with(['.', '?', '!', ':'])
            {
                self.end(ended);
            }
        }
    }

    fn end(&mut self, ended: &mut impl FnMut(&Self)) {
        ended(self);
        *self = Self::default();
    }
}

fn long_sentences(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut ended = |sentence: &Sentence| {
        if sentence.words > MAX_WORDS {
            let message = format!("a sentence of {} words, at most {MAX_WORDS}: split it", sentence.words);
            findings.push(Finding::new(&file.path, sentence.line, "sentence", message));
        }
    };
    // The backticks of the fence that opened the current code block, or 0.
    let (mut sentence, mut fence) = (Sentence::default(), 0);
    for (line, text) in file.lines() {
        let comment = comment_of(text);
        let text = comment.unwrap_or_default().trim();
        if comment.is_none() {
            fence = 0;
        }
        let backticks = text.len() - text.trim_start_matches('`').len();
        let is_fence = backticks >= 3;
        if text.is_empty() || is_fence || text.starts_with(['#', '|', '-', '*']) {
            sentence.end(&mut ended);
        }
        if is_fence && fence == 0 {
            fence = backticks;
        } else if is_fence && backticks >= fence {
            fence = 0;
        } else if fence == 0 && !text.starts_with(['#', '|']) {
            sentence.add(line, text, &mut ended);
        }
    }
    sentence.end(&mut ended);
    findings
}

fn comment_of(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::found;

    /// Returns `count` words, ten on each line of a comment.
    fn comment(count: usize) -> String {
        let lines: Vec<String> = vec!["word"; count].chunks(10).map(|line| line.join(" ")).collect();
        format!("/// {}\n", lines.join("\n/// "))
    }

    #[test]
    fn long_sentences_are_found() {
        let (fits, long) = (comment(28), comment(29));
        assert_eq!(found(lengths, &[("a.rs", &fits), ("b.rs", &long)]), ["b.rs:1: sentence"]);
    }

    #[test]
    fn sentences_end_at_marks_and_after_paragraphs() {
        let half = comment(20);
        let stopped = format!("{}.\n{half}", half.trim_end());
        let paragraphs = format!("{half}///\n{half}");
        let items = format!("{half}/// - {}", half.trim_start_matches("/// "));
        let code = format!("{half}fn f() {{}}\n{half}");
        let files = [("a.rs", &*stopped), ("b.rs", &paragraphs), ("c.rs", &items), ("d.rs", &code)];
        assert_eq!(found(lengths, &files), [""; 0]);
    }

    #[test]
    fn code_is_not_counted() {
        let span = format!("/// `{}`\n", "word ".repeat(40));
        let block = format!("/// ```\n{}/// ```\n", comment(40));
        let nested = format!("/// ````\n/// ```\n{0}/// ```\n{0}/// ````\n", comment(40));
        assert_eq!(found(lengths, &[("a.rs", &span), ("b.rs", &block), ("c.rs", &nested)]), [""; 0]);
    }
}
