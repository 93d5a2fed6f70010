//! The binary of the command `tilewright`. It starts Python only for the option `--run` and for
//! subcommands that the Python package implements.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(tilewright_command_line::main(std::env::args_os()))
}
