//! The binary of the command `tilewright`. It starts Python only for the subcommands that the
//! Python package implements, and for the option `--run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(tilewright_command_line::main(std::env::args_os()))
}
