//! Checks the direction of dependencies between the crates.
//!
//! A crate may depend only on the crates in its row of `ALLOWED`, which have earlier rows.

use crate::metadata::{Dependency, Package};
use crate::tree::Finding;

/// The crates of the project on which each crate may depend. This is the tree of `ARCHITECTURE.md`
/// as data. For its tests, a crate may depend on every crate except `cli`, `python` and `xtask`.
const ALLOWED: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("layout", &["base"]),
    ("ir", &["base", "layout"]),
    ("frontend", &["base", "ir"]),
    ("opt", &["base", "ir"]),
    // The file format of a recorded launch. It does not need the IR.
    ("trace", &[]),
    // The file format of locks. It does not need the compiler.
    ("lock", &["base"]),
    // The shadow memory of sanitized launches. Both the executor and the simulator use it.
    ("sanitize", &[]),
    // Vector SSA and its machine code. It does not need the IR.
    ("native", &[]),
    ("cpu", &["base", "ir", "trace", "sanitize", "native"]),
    ("gpu-ir", &["base", "ir", "layout"]),
    ("gpu", &["base", "ir", "opt", "layout", "gpu-ir"]),
    ("ptx", &["base", "ir", "layout", "gpu-ir"]),
    ("sim", &["base", "sanitize", "ptx"]),
    ("cuda", &["base"]),
    // A replacement for the driver library, only for development.
    ("cuda-stub", &[]),
    // The executor uses `sim` to run inline assembly.
    ("compiler", &["base", "ir", "frontend", "opt", "cpu", "layout", "gpu-ir", "gpu", "ptx", "sim"]),
    (
        "runtime",
        &[
            "base", "ir", "frontend", "opt", "trace", "lock", "sanitize", "cpu", "ptx", "sim", "cuda",
            "compiler",
        ],
    ),
    // The macro `include_kernels!`. Cargo runs the macro when it builds a user's program.
    ("macros", &["base", "ir", "frontend", "runtime"]),
    (
        "tilewright",
        &["base", "ir", "frontend", "opt", "cpu", "layout", "gpu", "ptx", "compiler", "runtime", "macros"],
    ),
    // The C interface. Its header is its documentation.
    ("c", &["base", "runtime"]),
    ("command-line", &["base", "tilewright"]),
    ("cli", &["command-line"]),
    // Triton's driver module uses `cuda` to load device code by its handle.
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
    // Random numbers and programs for the tests of the other crates.
    ("fuzz", &["base", "ir"]),
    ("xtask", &[]),
];

const RULE: &str = "layering";

/// Returns the dependencies between crates that the table does not allow. Only tests may depend on
/// `testkit`.
pub fn check(packages: &[Package]) -> Vec<Finding> {
    let ours = packages.iter().filter(|package| package.source.is_none());
    ours.filter_map(|package| Some((package, own_crate(&package.name)?))).flat_map(check_package).collect()
}

fn check_package((package, name): (&Package, &str)) -> Vec<Finding> {
    let finding = |message: String| Finding::new("Cargo.lock", 1, RULE, message);
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
        let message = format!("the crate `{name}` has no row in the table of xtask/src/checks/layering.rs");
        return vec![finding(message)];
    };
    let forbidden = |dependency: &Dependency| {
        let other = own_crate(&dependency.name)?;
        let is_forbidden = match dependency.kind.as_deref() {
            Some("dev") => ["cli", "python", "xtask"].contains(&other),
            _ => !allowed.contains(&other),
        };
        let message =
            format!("`{name}` may not depend on `{other}`: dependencies follow the path of a kernel");
        is_forbidden.then(|| finding(message))
    };
    package.dependencies.iter().filter_map(forbidden).collect()
}

/// Returns the short name of a package of the project.
fn own_crate(package: &str) -> Option<&str> {
    match package {
        "tilewright" | "xtask" => Some(package),
        _ => package.strip_prefix("tilewright-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the messages about a package with these dependencies. A dependency consists of a
    /// name and a kind.
    fn found(name: &str, dependencies: &[(&str, Option<&str>)]) -> Vec<String> {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency { name: (*name).into(), kind: kind.map(Into::into) })
            .collect();
        let package = Package { name: name.into(), dependencies, ..Package::default() };
        check(&[package]).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn downwards_is_fine() {
        assert!(found("tilewright-opt", &[("tilewright-ir", None), ("half", None)]).is_empty());
    }

    #[test]
    fn upwards_is_found() {
        let message =
            |name: &str| format!("`{name}` may not depend on `ir`: dependencies follow the path of a kernel");
        for kind in [None, Some("build")] {
            assert_eq!(found("tilewright-layout", &[("tilewright-ir", kind)]), [message("layout")]);
        }
        assert_eq!(found("xtask", &[("tilewright-ir", None)]), [message("xtask")]);
    }

    #[test]
    fn only_tests_use_the_testkit() {
        let testkit = "tilewright-testkit";
        assert!(
            found("tilewright-opt", &[(testkit, Some("dev")), ("tilewright-cpu", Some("dev"))]).is_empty()
        );
        assert_eq!(found("tilewright-opt", &[(testkit, None)]).len(), 1);
        assert_eq!(found("tilewright-opt", &[("tilewright-python", Some("dev"))]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        let message = "the crate `new` has no row in the table of xtask/src/checks/layering.rs";
        assert_eq!(found("tilewright-new", &[]), [message]);
    }

    #[test]
    fn packages_of_others_are_free() {
        let registry = Some("registry+x".to_owned());
        let package = Package { name: "tilewright-new".into(), source: registry, ..Package::default() };
        assert!(check(&[package]).is_empty());
    }

    #[test]
    fn the_table_itself_has_no_cycle() {
        // A row may name only crates of earlier rows.
        for (index, (name, allowed)) in ALLOWED.iter().enumerate() {
            for lower in *allowed {
                assert!(ALLOWED[..index].iter().any(|(earlier, _)| earlier == lower), "{name} -> {lower}");
            }
        }
    }
}
