//! `tilewright run script.py`: hands over to Python, where the script belongs.

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

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(&python);
    command.args(["-m", "tilewright", "run"]).args(&arguments.arguments);
    let message = |error: std::io::Error| {
        Failure::Usage(format!("cannot start {}, which `run` needs: {error}", python.to_string_lossy()))
    };
    replace_process(command).map_err(message)
}

/// Becomes the command, so that signals, the terminal and the exit code are its own.
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
