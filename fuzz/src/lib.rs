//! Contains the common parts of the fuzz targets. Each file in `tests/` is a target. No user input
//! may cause a panic, an abort or a hang.
//!
//! The targets are ordinary tests with a fixed set of inputs, so that every change is tested with
//! the same inputs ([`fuzz!`]). `make fuzz` runs each target for a minute on new inputs.
//! `cargo bolero` runs a target with a coverage-guided fuzzer.
//!
//! - [`mutate`] derives nearly valid text from random bytes. Such text passes more stages than
//!   random text.
//! - [`kernel`] generates valid kernels.
//! - [`matmul`] generates programs that multiply matrices.

pub mod corpus;
pub mod kernel;
pub mod matmul;
pub mod random;

use random::Random;

/// Runs a target, which is a function of `&[u8]`, on `$count` inputs with fixed seeds. With
/// `cargo bolero`, runs the target on new inputs instead. `BOLERO_RANDOM_TEST_TIME_MS` also selects
/// new inputs, and limits the time.
#[macro_export]
macro_rules! fuzz {
    ($count:expr, $target:expr) => {
        if $crate::tries_new_inputs() {
            bolero::check!().for_each($target);
        } else {
            $crate::random::in_parallel(0..$count, |seed| $target(&$crate::fixed_input(seed)));
        }
    };
}

/// Returns whether environment variables of `bolero` select new inputs instead of the fixed inputs.
pub fn tries_new_inputs() -> bool {
    std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("BOLERO_"))
}

/// Returns the input of a seed. An input has less than 256 bytes, and most inputs are short.
pub fn fixed_input(seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let longest = 4 << random.below(7);
    let length = random.below(longest);
    (0..length).map(|_| random.bits() as u8).collect()
}

/// Mutates the tokens of a text. Every four bytes describe a mutation: an action, a position (two
/// bytes) and an operand.
pub fn mutate(text: &str, dictionary: &[&str], bytes: &[u8]) -> String {
    let mut tokens: Vec<&str> = split(text);
    for step in bytes.chunks_exact(4).take(64) {
        if tokens.is_empty() {
            break;
        }
        let count = tokens.len();
        let place = |byte: u8, extra: u8| (usize::from(byte) * 256 + usize::from(extra)) % count;
        let at = place(step[1], step[2]);
        let word = usize::from(step[3]);
        match step[0] % 6 {
            0 => drop(tokens.remove(at)),
            1 => tokens.insert(at, tokens[word % count]),
            2 => tokens.swap(at, word % count),
            3 => tokens[at] = dictionary[word % dictionary.len()],
            4 => tokens.insert(at, dictionary[word % dictionary.len()]),
            _ => tokens.truncate(count - word % count.min(8)),
        }
    }
    tokens.concat()
}

/// Returns the tokens of a text: words, runs of spaces, and single characters.
fn split(text: &str) -> Vec<&str> {
    let class = |c: char| match c {
        _ if c.is_alphanumeric() || c == '_' || c == '.' => 0,
        ' ' => 1,
        _ => 2,
    };
    let mut tokens = Vec::new();
    let mut start = 0;
    let mut last = None;
    for (index, c) in text.char_indices() {
        if index > start && (last != Some(class(c)) || class(c) == 2) {
            tokens.push(&text[start..index]);
            start = index;
        }
        last = Some(class(c));
    }
    tokens.push(&text[start..]);
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_change_nothing() {
        let text = "%a = add %b, %c : int32[16]\n  é\n";
        assert_eq!(mutate(text, &["x"], &[]), text);
        assert_ne!(mutate(text, &["x"], &[3, 0, 2, 0]), text);
    }
}
