//! The direction of dependencies between the crates: the path of a kernel, downwards only.

use crate::tree::{File, Finding, Tree};

/// Which of our crates each crate may depend on: the drawing of the tree in ARCHITECTURE.md as data. Dependencies for
/// development only (tests that compare two stages, say) are free, but for those on the two ends, `cli` and `python`.
const ALLOWED: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("ir", &["base"]),
    ("frontend", &["base", "ir"]),
    ("opt", &["base", "ir"]),
    // What a launch did, as a file: it knows no IR.
    ("trace", &["base"]),
    // What a sanitized launch remembers of memory: the executor and the simulator share it.
    ("sanitize", &[]),
    ("cpu", &["base", "ir", "trace", "sanitize"]),
    ("layout", &["base"]),
    ("gpu", &["base", "ir", "opt", "layout"]),
    ("ptx", &["base", "ir", "layout", "gpu"]),
    ("sim", &["base", "sanitize", "ptx"]),
    ("cuda", &["base"]),
    // Development only: the stand-in for the driver library.
    ("cuda/stub", &[]),
    // Of `sim` what runs inline assembly for the executor.
    ("compiler", &["base", "ir", "frontend", "opt", "cpu", "layout", "gpu", "ptx", "sim"]),
    (
        "runtime",
        &["base", "ir", "frontend", "opt", "trace", "sanitize", "cpu", "ptx", "sim", "cuda", "compiler"],
    ),
    ("tilewright", &["base", "ir", "frontend", "opt", "cpu", "layout", "gpu", "ptx", "compiler", "runtime"]),
    ("command-line", &["base", "tilewright"]),
    ("cli", &["command-line"]),
    // Of `cuda` device code by its number, which Triton's driver module offers.
    (
        "python",
        &[
            "base",
            "ir",
            "layout",
            "frontend",
            "trace",
            "sanitize",
            "cpu",
            "cuda",
            "compiler",
            "runtime",
            "tilewright",
            "command-line",
        ],
    ),
    (
        "testkit",
        &[
            "base",
            "ir",
            "frontend",
            "opt",
            "cpu",
            "layout",
            "gpu",
            "ptx",
            "sim",
            "compiler",
            "runtime",
            "tilewright",
        ],
    ),
    ("xtask", &[]),
];

const RULE: &str = "layering";

/// Dependencies follow the path of a kernel; nothing but tests depends on `testkit`.
pub fn dependencies(tree: &Tree) -> Vec<Finding> {
    tree.files
        .iter()
        .filter_map(|file| Some((file, crate_of_manifest(&file.path)?)))
        .flat_map(check_manifest)
        .collect()
}

fn check_manifest((file, name): (&File, &str)) -> Vec<Finding> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
        let message = format!("the crate `{name}` has no row in the table of xtask/src/checks/layering.rs");
        return vec![Finding::new(&file.path, 1, RULE, message)];
    };
    let forbidden = |entry: &&Entry| match entry.section {
        Section::Normal => !allowed.contains(&entry.name.as_str()),
        Section::Development => ["cli", "python", "xtask"].contains(&entry.name.as_str()),
    };
    let entries = own_dependencies(file);
    let finding = |entry: &Entry| {
        let message =
            format!("`{name}` may not depend on `{}`: dependencies follow the path of a kernel", entry.name);
        Finding::new(&file.path, entry.line, RULE, message)
    };
    entries.iter().filter(forbidden).map(finding).collect()
}

/// The short name of the crate whose manifest this is: the name of its folder.
fn crate_of_manifest(path: &str) -> Option<&str> {
    let folder = path.strip_suffix("/Cargo.toml")?;
    if folder == "xtask" { Some(folder) } else { folder.strip_prefix("crates/") }
}

#[derive(Clone, Copy)]
enum Section {
    Normal,
    Development,
}

struct Entry {
    name: String,
    line: usize,
    section: Section,
}

/// The dependencies on our own crates that a manifest states, line by line.
fn own_dependencies(file: &File) -> Vec<Entry> {
    let mut section = None;
    let mut entries = Vec::new();
    for (line, text) in file.lines() {
        let text = text.split('#').next().unwrap_or_default().trim();
        let stated = if let Some(header) = text.strip_prefix('[') {
            let (kind, package) = parse_header(header.trim_end_matches(']'));
            section = kind;
            package.map(str::to_owned)
        } else {
            stated_package(text)
        };
        if let (Some(section), Some(name)) = (section, stated.as_deref().and_then(own_crate)) {
            entries.push(Entry { name: name.to_owned(), line, section });
        }
    }
    entries
}

/// Reads `dependencies`, `target.'cfg(unix)'.dev-dependencies`, or `dependencies.half`: the section, and the package
/// where the header names one.
fn parse_header(header: &str) -> (Option<Section>, Option<&str>) {
    for (word, section) in [
        ("dev-dependencies", Section::Development),
        ("build-dependencies", Section::Normal),
        ("dependencies", Section::Normal),
    ] {
        if header == word || header.ends_with(&format!(".{word}")) {
            return (Some(section), None);
        }
        if let Some((before, package)) = header.split_once(&format!("{word}."))
            && (before.is_empty() || before.ends_with('.'))
        {
            return (Some(section), Some(package));
        }
    }
    (None, None)
}

/// The package that a line such as `half.workspace = true` or `x = { package = "half" }` names.
fn stated_package(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    if let Some((_, renamed)) = line.split_once("package") {
        return renamed.split('"').nth(1).map(str::to_owned);
    }
    let _ = value;
    Some(key.trim().split('.').next().unwrap_or_default().trim_matches('"').to_owned())
}

/// The short name of a package of ours.
fn own_crate(package: &str) -> Option<&str> {
    match package {
        "tilewright" | "xtask" => Some(package),
        _ => package.strip_prefix("tilewright-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::found;

    fn check(path: &str, manifest: &str, expect: &[&str]) {
        assert_eq!(found(dependencies, &[(path, manifest)]), expect);
    }

    #[test]
    fn downwards_is_fine() {
        check(
            "crates/opt/Cargo.toml",
            "[dependencies]\ntilewright-ir.workspace = true\nhalf.workspace = true\n",
            &[],
        );
    }

    #[test]
    fn upwards_is_found_in_every_spelling() {
        let line = ["crates/layout/Cargo.toml:2: layering"];
        let path = "crates/layout/Cargo.toml";
        check(path, "[dependencies]\ntilewright-ir.workspace = true\n", &line);
        check(path, "[dependencies]\ntilewright-ir = { path = \"../ir\" }\n", &line);
        check(path, "[dependencies]\nir = { package = \"tilewright-ir\", version = \"1\" }\n", &line);
        check(path, "[build-dependencies]\ntilewright.workspace = true\n", &line);
        check(path, "[target.'cfg(unix)'.dependencies]\ntilewright-ir.workspace = true\n", &line);
        check(path, "\n[dependencies.tilewright-ir]\npath = \"../ir\"\n", &line);
        check(
            "xtask/Cargo.toml",
            "[dependencies]\ntilewright-ir.workspace = true\n",
            &["xtask/Cargo.toml:2: layering"],
        );
    }

    #[test]
    fn only_tests_use_the_testkit() {
        let path = "crates/opt/Cargo.toml";
        check(
            path,
            "[dev-dependencies]\ntilewright-testkit.workspace = true\ntilewright-cpu.workspace = true\n",
            &[],
        );
        check(
            path,
            "[dependencies]\ntilewright-testkit.workspace = true\n",
            &["crates/opt/Cargo.toml:2: layering"],
        );
        check(
            path,
            "[dev-dependencies]\ntilewright-python.workspace = true\n",
            &["crates/opt/Cargo.toml:2: layering"],
        );
    }

    #[test]
    fn comments_and_other_sections_do_not_count() {
        check(
            "crates/ir/Cargo.toml",
            "[package]\nname = \"tilewright-ir\"\n[dependencies]\n# tilewright-opt = 1\n",
            &[],
        );
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        check("crates/new/Cargo.toml", "[package]\n", &["crates/new/Cargo.toml:1: layering"]);
    }

    #[test]
    fn the_table_itself_has_no_cycle() {
        // A row may name only crates of earlier rows, but for the two that stand apart.
        for (index, (name, allowed)) in ALLOWED.iter().enumerate() {
            for lower in *allowed {
                assert!(ALLOWED[..index].iter().any(|(earlier, _)| earlier == lower), "{name} -> {lower}");
            }
        }
    }
}
