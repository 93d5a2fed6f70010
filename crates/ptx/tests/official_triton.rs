//! Tests parser and printer on PTX that the official Triton generates, if Triton is installed. The
//! parser accepts it all, and the printed text assembles to the same SASS.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright_testkit::{Ptxas, project_root};

/// Returns the Python of the project's environment, if it has triton.
fn python_with_triton() -> Option<PathBuf> {
    let python = std::env::var_os("TILEWRIGHT_TRITON_PYTHON")
        .map_or_else(|| project_root().join(".venv/bin/python"), PathBuf::from);
    let has_triton =
        Command::new(&python).args(["-c", "import triton.backends.compiler"]).output().ok()?.status.success();
    has_triton.then_some(python)
}

#[test]
#[ignore = "the official compiler takes minutes: make nightly"]
fn what_official_triton_writes_survives() {
    let Some(python) = python_with_triton() else {
        let test = "what_official_triton_writes_survives";
        tilewright_testkit::say_skipped(test, "there is no triton (make test installs it)");
        return;
    };
    let ptxas = Ptxas::find_or_skip("what_official_triton_writes_survives: the assembler's part");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("official_triton");
    // An earlier run's files would be checked again.
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/triton_corpus.py");
    let output = Command::new(python)
        .arg(script)
        .arg(&directory)
        .env("TRITON_CACHE_DIR", directory.join("cache"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut failures = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "ptx") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        if let Err(error) = common::round_trip(&text, ptxas.as_ref()) {
            failures.push(format!("{}: {error}", path.display()));
        }
        count += 1;
    }
    assert!(count > 30, "the script wrote {count} files");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
