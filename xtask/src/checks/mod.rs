//! Lists the checks.

mod codes;
mod constants;
mod cycles;
mod documents;
mod examples;
pub mod layering;
pub mod licences;
mod python;
mod sentences;
mod text;
mod tokens;
mod wildcard;
pub mod words;

use crate::tree::{Finding, Tree};

/// A check: a function from the whole tree to its findings.
pub type Check = fn(&Tree) -> Vec<Finding>;

/// All checks of the source text, in the order in which they run.
pub const ALL: &[Check] = &[
    cycles::largest,
    tokens::confined_words,
    wildcard::on_op_enums,
    codes::pages,
    constants::listed,
    constants::evidence,
    text::headers,
    text::lengths,
    text::markers,
    text::machine_paths,
    python::suppressions,
    python::function_lengths,
    python::optional_packages,
    words::ratchet,
    sentences::lengths,
    documents::named_files,
    documents::links,
    documents::decisions,
    documents::sizes,
    documents::widths,
    examples::of_public_items,
    examples::of_c_functions,
];

/// Runs a check on a small tree. Returns each finding as `path:line: rule`.
#[cfg(test)]
fn found(run: Check, files: &[(&str, &str)]) -> Vec<String> {
    run(&Tree::of(files)).iter().map(|f| format!("{}:{}: {}", f.path, f.line, f.rule)).collect()
}
