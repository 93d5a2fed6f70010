//! Implements `tilewright lock`: writes, verifies, compares and merges locks.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Parser;
use tilewright::Error;
use tilewright::runtime::lock::{Change, Choice, Entry, LockFile, changes, open, pack, verify};

use crate::output::{self, Failure};
use crate::run;

/// Write, verify, compare and merge locks
///
/// `tilewright lock script.py` writes the lock of a program; see `tilewright lock --help`.
#[derive(Parser)]
#[command(name = "tilewright lock")]
enum Command {
    /// List the kernels and the tuned choices of a lock
    List {
        /// The lock
        lock: PathBuf,
    },
    /// Check every artifact and choice of a lock, compile each kernel anew and compare the code
    Verify {
        /// The lock
        lock: PathBuf,
    },
    /// Print the differences between two locks; the exit code is 1 if there are any
    Diff {
        /// The first lock
        before: PathBuf,
        /// The second lock
        after: PathBuf,
    },
    /// Print a digest of each lock, after a check of its artifacts: equal locks have equal digests on
    /// every machine; the timings of choices do not count
    Digest {
        /// The locks
        #[arg(required = true)]
        locks: Vec<PathBuf>,
    },
    /// Merge locks into a new one, with their artifacts
    Merge {
        /// The locks
        #[arg(required = true)]
        locks: Vec<PathBuf>,
        /// The new lock
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Write a lock and its artifacts as one file, a tar archive, which C and Rust programs open
    Pack {
        /// The lock
        lock: PathBuf,
        /// The archive
        #[arg(short, long)]
        output: PathBuf,
    },
}

/// The words after `tilewright lock` that select a command of this module.
const COMMANDS: [&str; 6] = ["list", "verify", "diff", "digest", "merge", "pack"];

pub fn run(arguments: &run::Arguments) -> Result<(), Failure> {
    let words = arguments.words();
    if words.first().is_none_or(|first| !COMMANDS.iter().any(|name| first == name)) {
        return run::python(&["lock"], arguments);
    }
    let name = "tilewright lock".into();
    match Command::try_parse_from(std::iter::once(&name).chain(words)) {
        Ok(Command::List { lock }) => list(&lock),
        Ok(Command::Verify { lock }) => verify_lock(&lock),
        Ok(Command::Diff { before, after }) => diff(&before, &after),
        Ok(Command::Digest { locks }) => digest(&locks),
        Ok(Command::Merge { locks, output }) => merge(&locks, &output),
        Ok(Command::Pack { lock, output }) => pack_lock(&lock, &output),
        Err(error) if error.use_stderr() => Err(Failure::Usage(usage(&error))),
        Err(help) => output::print(&help.to_string()),
    }
}

/// Returns the message about an invalid command line, without the prefix `error: `.
fn usage(error: &clap::Error) -> String {
    let text = error.to_string();
    text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned()
}

fn read(path: &Path) -> Result<LockFile, Failure> {
    Ok(open(path).map_err(Error::from)?.0)
}

fn list(path: &Path) -> Result<(), Failure> {
    let lock = read(path)?;
    let mut text = String::new();
    for entry in &lock.entries {
        let kinds: Vec<_> = entry.code.artifacts().map(|(kind, _)| kind).collect();
        let _ = writeln!(text, "{}: {}", entry.launches, kinds.join(", "));
    }
    for choice in &lock.choices {
        let _ = writeln!(text, "{}", choice_text(choice));
    }
    output::print(&text)
}

fn choice_text(choice: &Choice) -> String {
    let config: Vec<_> = choice.config.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let key = choice.key.join(", ");
    format!("{}({key}) for {}: {}", choice.kernel, choice.target, config.join(", "))
}

fn verify_lock(path: &Path) -> Result<(), Failure> {
    let verified = verify(path)?;
    let (kernels, wrong) = (verified.kernels, verified.mismatches.len());
    let mut text = String::new();
    for mismatch in &verified.mismatches {
        let _ = writeln!(text, "{}: the locked `{}` differs", mismatch.launches, mismatch.part);
    }
    let plural = if kernels == 1 { "kernel" } else { "kernels" };
    for choice in &verified.unmatched {
        let _ = writeln!(text, "{}: no kernel of the lock has this configuration", choice_text(choice));
    }
    let _ = write!(text, "{}: {kernels} {plural}, {wrong} with other code", path.display());
    let choices = verified.unmatched.len();
    if choices > 0 {
        let plural = if choices == 1 { "choice" } else { "choices" };
        let _ = write!(text, ", {choices} tuned {plural} without a kernel");
    }
    text.push('\n');
    output::print(&text)?;
    if wrong > 0 || choices > 0 { Err(Failure::Told) } else { Ok(()) }
}

fn diff(before: &Path, after: &Path) -> Result<(), Failure> {
    let found = changes(&read(before)?, &read(after)?);
    let mut text = String::new();
    for change in &found {
        match change {
            Change::Added(launches) => {
                let _ = writeln!(text, "+ {launches}");
            }
            Change::Removed(launches) => {
                let _ = writeln!(text, "- {launches}");
            }
            Change::Changed(launches, parts) => {
                let _ = writeln!(text, "~ {launches}");
                for part in parts {
                    let _ = writeln!(text, "    {part}");
                }
            }
        }
    }
    output::print(&text)?;
    if found.is_empty() { Ok(()) } else { Err(Failure::Told) }
}

fn digest(paths: &[PathBuf]) -> Result<(), Failure> {
    for path in paths {
        let (lock, artifacts) = open(path).map_err(Error::from)?;
        for (kind, hash) in lock.entries.iter().flat_map(Entry::artifacts) {
            artifacts.read(hash, kind).map_err(|error| Failure::Io(error.to_string()))?;
        }
        output::print(&format!("{}  {}\n", lock.digest(), path.display()))?;
    }
    Ok(())
}

fn merge(paths: &[PathBuf], output: &Path) -> Result<(), Failure> {
    let mut merged: Option<LockFile> = None;
    let mut sources = Vec::new();
    for path in paths {
        let (lock, artifacts) = open(path).map_err(Error::from)?;
        sources.push(artifacts);
        match &mut merged {
            None => merged = Some(lock),
            Some(merged) => merged.merge(&lock).map_err(|conflict| {
                let (launches, path) = (conflict.launches, path.display());
                Failure::Io(format!(
                    "{path} has other code or another choice for {launches}\n  = help: write both locks with \
                     one version of tilewright, and with the same choices: of a tuning file \
                     (TILEWRIGHT_TUNING), or of the timings that are cached on disk; the file \
                     of the kernel must be the same in both programs"
                ))
            })?,
        }
    }
    let merged = merged.unwrap_or_else(|| LockFile::new(env!("CARGO_PKG_VERSION")));
    let unwritable =
        |error: std::io::Error| Failure::Io(format!("cannot write {}: {error}", output.display()));
    let artifacts = LockFile::artifacts(output);
    for (kind, hash) in merged.entries.iter().flat_map(Entry::artifacts) {
        let contents = sources.iter().map(|source| source.read(hash, kind));
        let content = contents.reduce(Result::or).expect("there is a lock");
        let content = content.map_err(|error| Failure::Io(error.to_string()))?;
        artifacts.store(kind, &content).map_err(unwritable)?;
    }
    merged.write(output).map_err(unwritable)?;
    tell(output, &merged)
}

/// Prints the number of kernels and the number of tuned choices in a written lock.
fn tell(output: &Path, lock: &LockFile) -> Result<(), Failure> {
    let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let (kernels, choices) = (count(lock.entries.len(), "kernel"), count(lock.choices.len(), "tuned choice"));
    output::print(&format!("{}: {kernels}, {choices}\n", output.display()))
}

fn pack_lock(path: &Path, output: &Path) -> Result<(), Failure> {
    let (lock, artifacts) = open(path).map_err(Error::from)?;
    let packed = pack(&lock, &artifacts).map_err(|error| Failure::Io(error.to_string()))?;
    let written = tilewright_base::write_file(output, &packed);
    written.map_err(|error| Failure::Io(format!("cannot write {}: {error}", output.display())))?;
    tell(output, &lock)
}
