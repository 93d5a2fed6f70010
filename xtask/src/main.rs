//! Runs the development tools of the project:
//!
//! - `cargo xtask tidy` checks the project's own rules.
//! - `cargo xtask cycles` prints the cycles of module graphs.
//! - `cargo xtask replay` compares the code that two commits generate.
//!
//! `Cargo.toml` and `clippy.toml` have the rules that the compiler and clippy can check. A check of
//! this crate is a function from the text of the tree to findings, with a test in which it reports
//! one.

mod checks;
mod metadata;
mod modules;
mod replay;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tree::{Finding, Tree};

const USAGE: &str = "usage: cargo xtask tidy    check the project's invariants
       cargo xtask cycles [CRATE]    print the cycles of each module graph
       cargo xtask tidy --bless    lower the maxima of xtask/words.txt to the present numbers";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        ["cycles"] => cycles(None),
        ["cycles", name] => cycles(Some(name)),
        ["tidy", "--bless"] => bless(),
        ["replay", ref rest @ ..] => replay::run(&project_root(), rest),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}\n{}", replay::USAGE);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}\n{}", replay::USAGE);
            ExitCode::from(2)
        }
    }
}

/// Reads the source tree. On failure, prints an error and returns the exit code.
fn read_tree(root: &Path) -> Result<Tree, ExitCode> {
    Tree::read(root).map_err(|error| {
        eprintln!("xtask: cannot read {}: {error}", root.display());
        ExitCode::from(2)
    })
}

fn cycles(only: Option<&str>) -> ExitCode {
    match read_tree(&project_root()) {
        Ok(tree) => {
            print!("{}", modules::print_cycles(&tree, only));
            ExitCode::SUCCESS
        }
        Err(code) => code,
    }
}

fn tidy() -> ExitCode {
    let root = project_root();
    let tree = match read_tree(&root) {
        Ok(tree) => tree,
        Err(code) => return code,
    };
    let mut findings: Vec<_> = checks::ALL.iter().flat_map(|check| check(&tree)).collect();
    match check_packages(&root) {
        Ok(found) => findings.extend(found),
        Err(error) => {
            eprintln!("tidy: cannot list the dependencies: {error}");
            return ExitCode::from(2);
        }
    }
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    let (files, checks) = (tree.files.len(), checks::ALL.len() + 2);
    if findings.is_empty() {
        println!("tidy: {files} files, {checks} checks, nothing found");
        ExitCode::SUCCESS
    } else {
        println!("tidy: {files} files, {checks} checks, {} found", findings.len());
        ExitCode::FAILURE
    }
}

/// Lowers the maxima of the word table to the current numbers. If a number would rise, prints this
/// number and does not change the table.
fn bless() -> ExitCode {
    let root = project_root();
    let written = Tree::read(&root).map(|tree| match checks::words::lowered(&tree) {
        Ok(table) => std::fs::write(root.join(checks::words::TABLE), table).map(|()| Vec::new()),
        Err(risen) => Ok(risen),
    });
    match written.and_then(|result| result) {
        Ok(risen) if risen.is_empty() => ExitCode::SUCCESS,
        Ok(risen) => {
            for finding in &risen {
                println!("{finding}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: cannot lower {}: {error}", checks::words::TABLE);
            ExitCode::from(2)
        }
    }
}

fn check_packages(root: &Path) -> Result<Vec<Finding>, String> {
    let packages = metadata::read(root)?.packages;
    let config = std::fs::read_to_string(root.join("deny.toml")).map_err(|error| error.to_string())?;
    let accepted = checks::licences::accepted(&config)?;
    let mut findings = checks::licences::check(&packages, &accepted);
    findings.extend(checks::layering::check(&packages));
    Ok(findings)
}

/// Returns the root of the workspace. Cargo sets `CARGO_MANIFEST_DIR` at run time. The binary does
/// not contain the path, because several checkouts may use one target directory.
fn project_root() -> PathBuf {
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("xtask"), PathBuf::from);
    package.parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}
