//! Mutates the tokens, lines, numbers and bytes of a corpus of texts.

use crate::random::Random;
use crate::split;

/// Boundary values of sizes, shifts and counts.
const NUMBERS: [u64; 20] = [
    0,
    1,
    2,
    3,
    7,
    8,
    31,
    32,
    33,
    63,
    64,
    65,
    255,
    4096,
    1 << 24,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 63,
    u64::MAX,
];

/// Returns the mutation bytes of a seed for [`changed_text`] and [`changed_file`]. Most seeds have
/// one to three mutations, because parsers usually reject a heavily mutated text early.
pub fn changes(seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let count = random.pick(&[1, 1, 1, 2, 2, 3, 4, 8]);
    (0..2 + 6 * count).map(|_| random.bits() as u8).collect()
}

/// Returns a mutated text of the corpus. The first two bytes select the text. Every following six
/// bytes describe a mutation.
///
/// Insertions come from the same text or from another text of the corpus. They are therefore mostly
/// legal parts of the language.
pub fn changed_text(corpus: &[String], bytes: &[u8]) -> String {
    let (head, steps) = bytes.split_at(bytes.len().min(2));
    let index = head.iter().fold(0, |index, &byte| index << 8 | usize::from(byte));
    let mut text = corpus[index % corpus.len()].clone();
    for step in steps.chunks_exact(6).take(8) {
        let [kind, a, b, c, d, other] = step else { continue };
        let place = |high: u8, low: u8| usize::from(high) << 8 | usize::from(low);
        let other = &corpus[usize::from(*other) % corpus.len()];
        let (first, second) = (place(*a, *b), place(*c, *d));
        text = match kind % 8 {
            0..=2 => change_tokens(&text, other, kind / 8, first, second),
            3 | 4 => change_number(&text, kind / 8, first, second),
            5 | 6 => change_lines(&text, other, kind / 8, first, second),
            _ => change_bytes(&text, kind / 8, first, second),
        };
    }
    text
}

fn change_tokens(text: &str, other: &str, kind: u8, first: usize, second: usize) -> String {
    let mut tokens = split(text);
    let is_word = |token: &&str| !token.trim().is_empty();
    let words: Vec<usize> = (0..tokens.len()).filter(|&index| is_word(&tokens[index])).collect();
    let others: Vec<&str> = split(other).into_iter().filter(is_word).collect();
    if words.is_empty() || others.is_empty() {
        return text.to_owned();
    }
    let (at, from) = (words[first % words.len()], words[second % words.len()]);
    match kind % 6 {
        0 => drop(tokens.remove(at)),
        1 => tokens.insert(at, tokens[from]),
        2 => tokens.swap(at, from),
        3 => tokens[at] = tokens[from],
        4 => tokens[at] = others[second % others.len()],
        _ => tokens.insert(at, others[second % others.len()]),
    }
    tokens.concat()
}

fn change_number(text: &str, kind: u8, first: usize, second: usize) -> String {
    let mut tokens: Vec<String> = split(text).into_iter().map(str::to_owned).collect();
    let is_number = |token: &String| token.parse::<u64>().is_ok();
    let numbers: Vec<usize> = (0..tokens.len()).filter(|&index| is_number(&tokens[index])).collect();
    if numbers.is_empty() {
        return text.to_owned();
    }
    let at = numbers[first % numbers.len()];
    let old: u64 = tokens[at].parse().unwrap_or(0);
    tokens[at] = match kind % 8 {
        0 => old.wrapping_add(1).to_string(),
        1 => old.wrapping_sub(1).to_string(),
        2 => old.wrapping_mul(2).to_string(),
        3 => (old / 2).to_string(),
        4 => format!("-{old}"),
        5 => tokens[numbers[second % numbers.len()]].clone(),
        _ => NUMBERS[second % NUMBERS.len()].to_string(),
    };
    tokens.concat()
}

fn change_lines(text: &str, other: &str, kind: u8, first: usize, second: usize) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let others: Vec<&str> = other.split_inclusive('\n').collect();
    if lines.is_empty() || others.is_empty() {
        return text.to_owned();
    }
    let (at, from) = (first % lines.len(), second % lines.len());
    match kind % 6 {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[from]),
        2 => lines.swap(at, from),
        3 => lines.insert(at, others[second % others.len()]),
        4 => lines[at] = others[second % others.len()],
        _ => lines.truncate(at),
    }
    lines.concat()
}

fn change_bytes(text: &str, kind: u8, first: usize, second: usize) -> String {
    let mut bytes = text.as_bytes().to_vec();
    if bytes.is_empty() {
        return String::new();
    }
    let at = first % bytes.len();
    match kind % 4 {
        0 => bytes[at] ^= 1 << (second % 8),
        1 => bytes[at] = second as u8,
        2 => drop(bytes.remove(at)),
        _ => bytes.insert(at, second as u8),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns all mutations that replace one number by 0 or by a number at which sizes, shifts and
/// counts overflow. A mutation consists of the index of the text, the index of the number's token,
/// and the new number. Lines have the same pattern if they differ only in digits. Of the numbers at
/// the same position in such lines, only the first in the corpus is replaced.
pub fn changed_numbers(corpus: &[String]) -> Vec<(usize, usize, u64)> {
    let mut known = std::collections::HashSet::new();
    let mut found = Vec::new();
    for (text, content) in corpus.iter().enumerate() {
        let (mut form, mut in_line) = (String::new(), 0);
        let tokens = split(content);
        let mut sites = Vec::new();
        for (at, token) in tokens.iter().enumerate() {
            if *token == "\n" || at + 1 == tokens.len() {
                for (place, site) in sites.drain(..).enumerate() {
                    if known.insert((form.clone(), place)) {
                        found
                            .extend([0, 1 << 31, (1 << 32) - 1, u64::MAX].map(|number| (text, site, number)));
                    }
                }
                (form, in_line) = (String::new(), 0);
            } else if token.parse::<u64>().is_ok() {
                sites.push(at);
                form.push('#');
                in_line += 1;
            } else if in_line < 64 {
                // The digits of names are not part of the pattern, because names of registers and
                // values differ only in their digits.
                form.extend(token.chars().filter(|c| !c.is_ascii_digit()));
            }
        }
    }
    found
}

/// Returns a text after the replacement of one number. `site` is the index of the number's token,
/// as [`changed_numbers`] returns it.
pub fn with_number(text: &str, site: usize, number: u64) -> String {
    let number = number.to_string();
    let mut tokens = split(text);
    tokens[site] = &number;
    tokens.concat()
}

/// Returns the bytes of a file after mutations. Every six of `bytes` describe a mutation.
pub fn changed_file(file: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    for step in bytes.chunks_exact(6).take(8) {
        let [kind, places @ .., last] = step else { continue };
        if file.is_empty() {
            break;
        }
        let place = |at: usize| (usize::from(places[at]) << 8 | usize::from(places[at + 1])) % file.len();
        let (first, second, length) = (place(0), place(2), usize::from(*last) % 64);
        let part = file[second..(second + length).min(file.len())].to_vec();
        match kind % 8 {
            0..=2 => file[first] ^= 1 << (last % 8),
            3 => file[first] = *last,
            4 => drop(file.drain(first..(first + length).min(file.len()))),
            5 => drop(file.splice(first..first, part)),
            6 => drop(file.splice(first..first, [0xff; 9])),
            _ => file.truncate(first),
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_change_nothing() {
        let corpus = ["add 1, 2\n".to_owned(), "sub 3\n".to_owned()];
        assert_eq!(changed_text(&corpus, &[0, 1]), corpus[1]);
        assert_eq!(changed_file(b"abc", &[]), b"abc");
    }

    #[test]
    fn each_level_is_changed() {
        let corpus = ["add 1, 2\n".to_owned(), "sub 3\n".to_owned()];
        let changed = |kind: u8, second: u8| changed_text(&corpus, &[0, 0, kind, 0, 0, 0, second, 1]);
        assert_eq!(changed(32, 0), "sub 1, 2\n");
        assert_eq!(changed(3, 0), "add 2, 2\n");
        assert_eq!(changed(5 + 24, 0), "sub 3\nadd 1, 2\n");
        assert_eq!(changed(7, 1), "cdd 1, 2\n");
        assert_eq!(changed_file(b"abc", &[0, 0, 1, 0, 0, 0]), b"acc");
    }
}
