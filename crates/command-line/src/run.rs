//! Starts Python for the subcommands that the Python package implements.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use tilewright::Target;
use tilewright::runtime::lock::{Request, begin_recording, recorded_launches};

use crate::output::Failure;

/// Run a Triton program (a Python script) on tilewright
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// Options of `run` (see `tilewright run --help`), the script or `-m module`, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Arguments {
    /// Returns the words after the name of the command.
    pub fn words(&self) -> &[OsString] {
        &self.arguments
    }
}

/// Commands for the simulator of a GPU
#[derive(clap::Subcommand)]
pub enum Simulation {
    /// Run a Triton program on the simulator of a GPU, and print the counters of each kernel
    ///
    /// The same as `tilewright run --device sim:sm_90 --report`; another device may be given.
    Report(Arguments),
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    python(&["run"], arguments)
}

pub fn simulate(simulation: &Simulation) -> Result<(), Failure> {
    let Simulation::Report(arguments) = simulation;
    python(&["sim", "report"], arguments)
}

/// Runs a Python program. Returns a compilation request for `target` for each specialization that
/// it launches. Its output goes to stderr.
pub fn launches_of(program: &Path, target: Target) -> Result<Vec<Request>, Failure> {
    let folder = std::env::temp_dir().join(format!("tilewright-launches-{}", std::process::id()));
    let result = record(program, target, &folder);
    // The error is ignored, because the system empties its temporary folder.
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn record(program: &Path, target: Target, folder: &Path) -> Result<Vec<Request>, Failure> {
    begin_recording(folder, &[target])?;
    let python = interpreter();
    let mut command = Command::new(&python);
    command.args(["-m", "tilewright", "run"]).arg(program).env("TILEWRIGHT_LOCK_RECORD", folder);
    command.stdout(std::io::stderr());
    let status = command.status().map_err(|error| cannot_start(&python, &error))?;
    if !status.success() {
        return Err(Failure::Io(format!("{} ended with {status}", program.display())));
    }
    Ok(recorded_launches(folder)?)
}

fn interpreter() -> OsString {
    std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into())
}

fn cannot_start(python: &OsStr, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("cannot start {}, which the program needs: {error}", python.to_string_lossy()))
}

pub fn python(command_words: &[&str], arguments: &Arguments) -> Result<(), Failure> {
    let python = interpreter();
    let mut command = Command::new(&python);
    command.args(["-m", "tilewright"]).args(command_words).args(&arguments.arguments);
    replace_process(command).map_err(|error| cannot_start(&python, &error))
}

/// Replaces this process by the command. Returns only if the command cannot be started.
#[cfg(unix)]
fn replace_process(mut command: Command) -> std::io::Result<()> {
    use std::os::unix::process::CommandExt;
    Err(command.exec())
}

#[cfg(not(unix))]
fn replace_process(mut command: Command) -> std::io::Result<()> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(1));
}
