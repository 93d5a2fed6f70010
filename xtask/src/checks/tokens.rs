//! Checks identifiers and keywords that only some files may use, such as `unsafe`.
//!
//! The check searches tokens: the bodies of macros, but no comments and strings.

use proc_macro2::{TokenStream, TokenTree};

use crate::tree::{File, Finding, Tree};

/// A word with its rule: the prefixes of the paths of files that may use the word, and the message
/// for other files.
struct Confined {
    word: &'static str,
    /// True if the word counts only as the name of a macro before `!`.
    is_macro: bool,
    places: &'static [&'static str],
    rule: &'static str,
    message: &'static str,
}

const CONFINED: &[Confined] = &[
    Confined {
        word: "unsafe",
        is_macro: false,
        places: &[
            "crates/base/src/memory.rs",
            "crates/c/",
            "crates/cuda/",
            "crates/python/",
            "crates/cpu/src/compile/nests/harness.rs",
            "crates/cpu/src/run/kernels/instructions/",
            "crates/cpu/src/run/memory/",
            "crates/native/src/executable.rs",
            "crates/native/src/interpret.rs",
            "crates/native/src/interpret/",
            "crates/native/tests/",
            "crates/sim/src/memory.rs",
            "crates/sim/src/memory/",
        ],
        rule: "unsafe",
        message: "`unsafe` is confined to the files that xtask/src/checks/tokens.rs lists",
    },
    Confined {
        word: "pyo3",
        is_macro: false,
        places: &["crates/python/"],
        rule: "pyo3",
        message: "only crates/python names PyO3: everything else works without Python",
    },
    Confined {
        word: "todo",
        is_macro: true,
        places: &[],
        rule: "unfinished",
        message: "finish it, or say in a diagnostic what is not supported",
    },
    Confined {
        word: "unimplemented",
        is_macro: true,
        places: &[],
        rule: "unfinished",
        message: "finish it, or say in a diagnostic what is not supported",
    },
];

/// Checks that files use a confined word only if the word's rule allows it. A manifest that names
/// PyO3 also counts as a use.
pub fn confined_words(tree: &Tree) -> Vec<Finding> {
    let manifests =
        tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml")).flat_map(pyo3_in_manifest);
    tree.rust().flat_map(check_file).chain(manifests).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    match file.text.parse::<TokenStream>() {
        Ok(tokens) => walk(tokens, file, &mut findings),
        Err(error) => {
            let line = error.span().start().line;
            findings.push(Finding::new(&file.path, line, "syntax", format!("not Rust: {error}")));
        }
    }
    findings
}

fn walk(tokens: TokenStream, file: &File, findings: &mut Vec<Finding>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => walk(group.stream(), file, findings),
            TokenTree::Ident(ident) => {
                let before_bang =
                    matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == '!');
                let is_confined = |row: &&Confined| {
                    ident == row.word
                        && (before_bang || !row.is_macro)
                        && !row.places.iter().any(|place| file.path.starts_with(place))
                };
                if let Some(row) = CONFINED.iter().find(is_confined) {
                    findings.push(Finding::new(&file.path, ident.span().start().line, row.rule, row.message));
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn pyo3_in_manifest(file: &File) -> Vec<Finding> {
    if file.path == "crates/python/Cargo.toml" {
        return Vec::new();
    }
    let names_pyo3 = |(_, line): &(usize, &str)| line.split('#').next().unwrap_or_default().contains("pyo3");
    let finding = |(line, _)| Finding::new(&file.path, line, "pyo3", "only crates/python depends on PyO3");
    file.lines().filter(names_pyo3).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::found;

    fn check(path: &str, text: &str, expect: &[&str]) {
        assert_eq!(found(confined_words, &[(path, text)]), expect);
    }

    #[test]
    fn unsafe_is_found_outside_its_places() {
        let block = "fn f() {\n    unsafe { g() }\n}\n";
        check("crates/ir/src/lib.rs", block, &["crates/ir/src/lib.rs:2: unsafe"]);
        check("crates/cpu/src/run/memory_map.rs", block, &["crates/cpu/src/run/memory_map.rs:2: unsafe"]);
        check("crates/cpu/src/run/memory/copy.rs", block, &[]);
        check("crates/cuda/src/lib.rs", block, &[]);
    }

    #[test]
    fn unsafe_in_macros_counts_and_in_prose_does_not() {
        let path = "crates/ir/src/lib.rs";
        check(path, "macro_rules! m { () => { unsafe {} } }\n", &["crates/ir/src/lib.rs:1: unsafe"]);
        check(path, "//! unsafe\n#![deny(unsafe_code)]\nconst S: &str = \"unsafe\";\n", &[]);
    }

    #[test]
    fn pyo3_is_found_in_code_and_in_manifests() {
        check("crates/cli/src/lib.rs", "use pyo3::Python;\n", &["crates/cli/src/lib.rs:1: pyo3"]);
        check(
            "crates/cli/Cargo.toml",
            "[dependencies]\npyo3.workspace = true\n",
            &["crates/cli/Cargo.toml:2: pyo3"],
        );
        check("crates/python/src/lib.rs", "use pyo3::Python;\n", &[]);
        check("Cargo.toml", "pyo3 = \"1\"\n", &[]);
    }

    #[test]
    fn unfinished_code_is_found() {
        check("xtask/src/a.rs", "fn f() { todo!() }\n", &["xtask/src/a.rs:1: unfinished"]);
        check("xtask/src/a.rs", "fn f() {\n unimplemented!(\"x\")\n}\n", &["xtask/src/a.rs:2: unfinished"]);
        check("xtask/src/a.rs", "fn f() { let todo = 1; }\n", &[]);
    }

    #[test]
    fn what_is_not_rust_is_found() {
        check("xtask/src/a.rs", "fn f() {\n", &["xtask/src/a.rs:1: syntax"]);
    }
}
