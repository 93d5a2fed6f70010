//! Writes results to stdout, and diagnostics to stderr.

use std::io::{ErrorKind, IsTerminal, Write};

use tilewright::{Color, Diagnostic, Error, SourceMap};

/// The exit code for an error in the command line.
pub const USAGE: u8 = 2;

/// The exit code for an error in the user's program, an error of a file, or a finding.
const FAULT: u8 = 1;

/// The reason why a command ends without a result.
pub enum Failure {
    /// An error in the user's program.
    Program(Error),
    /// An error in the command line. Also used if Python cannot be started.
    Usage(String),
    /// Any other failure, such as a file that cannot be read, or locks that cannot be merged.
    Io(String),
    /// The command has already reported its finding:
    ///
    /// - `tilewright check` has found an access that is out of bounds. With `--strict`, an
    ///   undecided access is also a finding.
    /// - `tilewright lock` has found a difference, or a tuned choice without a kernel.
    /// - `tilewright cache verify` has found a damaged file.
    Told,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Program(error)
    }
}

impl Failure {
    /// Reports the failure to the user, and returns the exit code.
    pub fn report(self) -> u8 {
        let (text, code) = match self {
            Failure::Program(error) => (error.render(color()), FAULT),
            Failure::Usage(message) => (format!("error: {message}"), USAGE),
            Failure::Io(message) => (format!("error: {message}"), FAULT),
            Failure::Told => return FAULT,
        };
        // A closed stderr is not an error.
        let _ = writeln!(std::io::stderr(), "{text}");
        code
    }
}

/// Writes a result to stdout. A closed stdout (`| head`) is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Io(format!("cannot write: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a note about a result to stderr.
pub fn note(text: &str) {
    // A closed stderr is not an error.
    let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
}

/// Writes a diagnostic to stderr.
pub fn tell(diagnostic: &Diagnostic, sources: &SourceMap) {
    // A closed stderr is not an error.
    let _ = writeln!(std::io::stderr(), "{}\n", diagnostic.render(sources, color()));
}

/// Decides whether diagnostics are in color. They are if stderr is a terminal and `NO_COLOR` is
/// unset or empty.
fn color() -> Color {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if std::io::stderr().is_terminal() && !is_refused { Color::Always } else { Color::Never }
}
