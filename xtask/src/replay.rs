//! Implements `cargo xtask replay`, which compares generated code before and after a change.
//!
//! ```text
//! cargo xtask replay record        records the tile IR of each kernel that tests, examples and
//!                                  pages compile
//! cargo xtask replay [COMMIT]      compiles the recording with that commit (HEAD if none is named)
//!                                  and with the working tree, and compares the code
//! ```
//! All files of the command are in `build/replay`. `crates/testkit/examples/replay.rs` compiles the
//! recording and compares the code. The command builds the commit in a separate worktree. If the
//! commit lacks `replay.rs`, the command uses `replay.rs` of the working tree.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The usage of the command.
pub const USAGE: &str = "usage: cargo xtask replay record      record the kernels that the tests compile
       cargo xtask replay [COMMIT]    compile them with COMMIT and with the working tree, and
                                      compare the code";

const EXAMPLE: &str = "crates/testkit/examples/replay.rs";

/// Runs the command with its arguments.
pub fn run(root: &Path, arguments: &[&str]) -> ExitCode {
    let done = match arguments {
        ["record"] => record(root).map(|()| true),
        [] => replay(root, "HEAD"),
        [commit] if !commit.starts_with('-') => replay(root, commit),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("replay: {error}");
            ExitCode::from(2)
        }
    }
}

/// Records the tile IR of each kernel that the Python tests, the Markdown pages and the examples
/// compile.
fn record(root: &Path) -> Result<(), String> {
    let recording = root.join("build/replay/recording");
    if recording.exists() {
        std::fs::remove_dir_all(&recording).map_err(|error| format!("{}: {error}", recording.display()))?;
    }
    let python = root.join(".venv/bin/python");
    let raw = |name: &str| recording.join("raw").join(name);
    let dumping = |command: &mut Command, folder: PathBuf| {
        command.current_dir(root).env("TILEWRIGHT_DUMP", "ir").env("TILEWRIGHT_DUMP_DIR", folder).status()
    };
    // A test that reads its own dumps may fail here, but its kernels are recorded.
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "tests/python", "-q", "-p", "replay_recorder", "--numprocesses", "auto"]);
    tests.env("PYTHONPATH", root.join("tests/python/support")).env("TILEWRIGHT_REPLAY", &recording);
    let failed = |error: std::io::Error| format!("{}: {error}", python.display());
    dumping(&mut tests, raw("tests")).map_err(failed)?;
    let mut pages = Command::new("cargo");
    pages.args(["test", "--release", "-q", "-p", "tilewright-testkit", "--test", "pages"]);
    dumping(&mut pages, raw("pages")).map_err(|error| format!("cargo: {error}"))?;
    for example in files_of(&root.join("examples"), "py")? {
        let name = example.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        dumping(Command::new(&python).arg(&example), raw(&name)).map_err(failed)?;
    }
    succeed(
        Command::new(&python)
            .arg(root.join("tests/python/support/replay_recorder.py"))
            .env("TILEWRIGHT_REPLAY", &recording),
    )
}

/// Returns whether a commit and the working tree compile the recorded kernels to the same code.
fn replay(root: &Path, commit: &str) -> Result<bool, String> {
    let folder = root.join("build/replay");
    let corpus = folder.join("recording/ir");
    if !corpus.is_dir() {
        return Err("there is no recording: run `cargo xtask replay record`".into());
    }
    let output = Command::new("git").args(["rev-parse", "--verify", commit]).current_dir(root).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git knows no commit {commit}"));
    }
    let commit = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let tree = folder.join("tree");
    if tree.exists() {
        succeed(Command::new("git").args(["worktree", "remove", "--force"]).arg(&tree).current_dir(root))?;
    }
    succeed(
        Command::new("git")
            .args(["worktree", "add", "--quiet", "--force", "--detach"])
            .arg(&tree)
            .arg(&commit)
            .current_dir(root),
    )?;
    if !tree.join(EXAMPLE).exists() {
        let copies = [EXAMPLE, "crates/testkit/Cargo.toml"];
        for file in copies {
            let to = tree.join(file);
            let parent = to.parent().ok_or("a file has a folder")?;
            std::fs::create_dir_all(parent)
                .and_then(|()| std::fs::copy(root.join(file), &to).map(drop))
                .map_err(|error| format!("{}: {error}", to.display()))?;
        }
    }
    let (before, after) = (folder.join("before"), folder.join("after"));
    for (side, out) in [(tree.as_path(), &before), (root, &after)] {
        if out.exists() {
            std::fs::remove_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
        }
        // Both builds share a target folder, so that their dependencies are built once.
        let build = ["run", "--release", "--quiet", "--package", "tilewright-testkit", "--example", "replay"];
        let mut command = Command::new("cargo");
        command.args(build).args(["--", "compile"]).arg(&corpus).arg(out).current_dir(side);
        succeed(command.env("CARGO_TARGET_DIR", folder.join("target")))?;
    }
    let binary = folder.join("target/release/examples/replay");
    let status = Command::new(&binary).arg("compare").arg(&before).arg(&after).current_dir(root).status();
    match status.map_err(|error| format!("{}: {error}", binary.display()))?.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => Err("the comparison failed".into()),
    }
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed")) }
}

fn files_of(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    Ok(files)
}
