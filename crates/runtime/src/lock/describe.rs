//! Describes a compiled kernel for launchers outside of this project.

use tilewright_compiler::{MachineCode, ir_digest};
use tilewright_lock::{FORMAT, Request};

use super::grid_expressions::{GridExpressions, GridName};
use crate::{Error, Handle};

/// Returns the description of a compiled kernel as JSON. The description has the arguments, the
/// options, the [`Launch`](tilewright_lock::Launch), and the expressions of `grid` if `grid` is
/// given. `docs/locks.md` documents the fields.
///
/// # Errors
/// If `grid` is not three expressions of the kernel's integers.
pub fn describe(handle: &Handle, grid: Option<&str>) -> Result<String, Error> {
    let code = match &*handle.compiled.code {
        MachineCode::Gpu(code) => Some(&**code),
        MachineCode::Cpu(_) => None,
    };
    let compilation = handle.compilation(code.is_some_and(|code| !code.tensor_maps().is_empty()), None);
    let Request { kernel, target, arguments, options, ir } =
        compilation.request(ir_digest(&handle.compiled.lowered));
    let launch = compilation.launch(&handle.compiled, code);
    let mut names = Vec::new();
    for (name, argument) in compilation.parameters.iter().zip(&compilation.arguments) {
        GridName::add(name, argument, &mut names);
    }
    let grid = grid.map(|text| GridExpressions::parse(text, &names)).transpose()?;
    let mut fields = serde_json::json!({
        "format": FORMAT, "tilewright": env!("CARGO_PKG_VERSION"), "kernel": kernel, "target": target,
        "arguments": arguments, "options": options, "ir": ir, "launch": launch,
    });
    if let Some(grid) = grid {
        fields["grid"] = grid.texts().as_slice().into();
    }
    Ok(format!("{fields:#}\n"))
}
