//! `tilewright run`, `sim report`, `profile`, `bench`, `activate`, `deactivate` and `status`: start
//! Python, which runs the same command of the Python package.

use std::ffi::OsString;
use std::process::Command;

use crate::output::Failure;

/// Run a Triton program (a Python script) on tilewright
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// Options of `run` (see `tilewright run --help`), the script or `-m module`, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
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

pub fn python(command_words: &[&str], arguments: &Arguments) -> Result<(), Failure> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(&python);
    command.args(["-m", "tilewright"]).args(command_words).args(&arguments.arguments);
    let message = |error: std::io::Error| {
        Failure::Usage(format!("cannot start {}, which the program needs: {error}", python.to_string_lossy()))
    };
    replace_process(command).map_err(message)
}

/// Replaces this process by the command. The command then has this process's terminal, receives its
/// signals, and determines its exit code. Returns only if the command cannot be started.
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
