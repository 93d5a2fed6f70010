//! Runs the command `tilewright`.
//!
//! It starts Python only for the option `--run` and for subcommands of the Python package.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(tilewright_command_line::main(std::env::args_os()))
}
