//! Tests the patches in `tests/patches/`, which are examples of additions to the compiler.
//!
//! Each patch must apply to the tree, and change exactly the files that its test lists.
//! `CONTRIBUTING.md` names the same files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the files that a patch changes.
fn touched(patch: &str) -> BTreeSet<&str> {
    patch.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect()
}

/// Checks that a patch applies and changes exactly the files of this list.
fn check(name: &str, files: &[&str]) {
    let file = root().join("tests/patches").join(name);
    let text = std::fs::read_to_string(&file).expect("the patch is there");
    assert_eq!(touched(&text), files.iter().copied().collect(), "{name}");
    let git = Command::new("git").args(["apply", "--check"]).arg(&file).current_dir(root()).output();
    let git = git.expect("git runs");
    assert!(git.status.success(), "{name} no longer applies:\n{}", String::from_utf8_lossy(&git.stderr));
}

#[test]
fn an_elementwise_function_is_five_files() {
    let files = [
        "crates/ir/src/elementwise.rs",
        "crates/cpu/src/compile/nests/lanes.rs",
        "crates/cpu/src/run/kernels/float.rs",
        "crates/ptx/src/lower/elementwise.rs",
        "crates/frontend/src/semantic/table.rs",
    ];
    check("elementwise_function.patch", &files);
}

#[test]
fn an_op_that_moves_elements_is_eight_files() {
    let files = [
        "crates/ir/src/ops.rs",
        "crates/ir/src/rules.rs",
        "crates/cpu/src/run/ops/mod.rs",
        "crates/cpu/src/run/ops/shape.rs",
        "crates/ptx/src/lower/mod.rs",
        "crates/frontend/src/semantic/table.rs",
        "crates/frontend/src/semantic/shape.rs",
        "tests/kernels/pick.md",
    ];
    check("structural_op.patch", &files);
}

#[test]
fn a_library_function_is_one_file_and_its_test() {
    let files = ["crates/frontend/src/stdlib/libdevice.py", "tests/python/language/test_libdevice.py"];
    check("library_function.patch", &files);
}
