//! Checks that the largest cycle in the module graph of each crate does not grow.
//!
//! `cargo xtask cycles` prints the cycles, and the paths that close them.

use crate::modules::{CrateModules, Cycle};
use crate::tree::{Finding, Tree};

/// The number of files in the largest cycle of each crate. A number may only fall. Other crates
/// have no cycle.
const LARGEST: &[(&str, usize)] = &[
    ("compiler", 2),
    ("cpu", 20),
    ("cuda", 8),
    ("cuda/stub", 3),
    ("frontend", 3),
    ("gpu", 4),
    ("ir", 6),
    ("layout", 2),
    ("opt", 2),
    ("ptx", 14),
    ("sim", 7),
    ("trace", 4),
];

const RULE: &str = "cycle";

/// Checks that the largest cycle of each crate has the number of files in its row.
pub fn largest(tree: &Tree) -> Vec<Finding> {
    CrateModules::of(tree).iter().filter_map(|modules| check(modules, LARGEST)).collect()
}

fn check(modules: &CrateModules, rows: &[(&str, usize)]) -> Option<Finding> {
    let allowed = rows.iter().find(|(name, _)| *name == modules.name).map_or(1, |(_, files)| *files);
    let cycles = modules.cycles();
    let found = cycles.first().map_or(1, |cycle| cycle.files.len());
    if found == allowed {
        return None;
    }
    let name = &modules.name;
    Some(match cycles.first() {
        Some(Cycle { files, .. }) if found > allowed => {
            let message = format!(
                "the largest cycle of `{name}` grew from {allowed} files to {found}: {}; \
                 `cargo xtask cycles {name}` prints its arrows",
                files.join(", ")
            );
            Finding::new(files[0], 1, RULE, message)
        }
        _ => {
            let message =
                format!("the largest cycle of `{name}` fell to {found}: lower its row from {allowed}");
            Finding::new("xtask/src/checks/cycles.rs", 1, RULE, message)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(b: &str, rows: &[(&str, usize)]) -> Vec<String> {
        let tree = Tree::of(&[
            ("crates/x/src/lib.rs", "mod a;\nmod b;\n"),
            ("crates/x/src/a.rs", "use crate::b::B;\npub struct A(B);\n"),
            ("crates/x/src/b.rs", b),
        ]);
        let found =
            CrateModules::of(&tree).iter().filter_map(|modules| check(modules, rows)).collect::<Vec<_>>();
        found.iter().map(|finding| format!("{}: {}", finding.path, finding.message)).collect()
    }

    #[test]
    fn a_cycle_that_grows_is_found_with_its_files() {
        let apart = "pub struct B;\n";
        let cycle = "use super::a::A;\npub struct B(Box<A>);\n";
        assert!(found(apart, &[]).is_empty());
        assert!(found(cycle, &[("x", 2)]).is_empty());
        let grown = found(cycle, &[]);
        assert!(grown[0].starts_with("crates/x/src/a.rs: the largest cycle of `x` grew from 1 files to 2"));
        assert!(grown[0].contains("crates/x/src/a.rs, crates/x/src/b.rs"));
    }

    #[test]
    fn a_row_that_is_too_large_is_found() {
        let fallen = found("pub struct B;\n", &[("x", 2)]);
        assert!(fallen[0].starts_with("xtask/src/checks/cycles.rs: the largest cycle of `x` fell to 1"));
    }
}
