//! The `tilewright` command, without Python.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(tilewright_command_line::main(std::env::args_os()))
}
