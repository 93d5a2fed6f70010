//! Describes a compiled kernel for launchers that are not of this project.

use tilewright_compiler::{MachineCode, ir_digest};
use tilewright_lock::{FORMAT, Request};

use crate::Handle;

/// Returns the description of a compiled kernel as JSON: its arguments, options and [`Launch`](tilewright_lock::Launch). `docs/locks.md` documents the fields.
pub fn describe(handle: &Handle) -> String {
    let code = match &*handle.compiled.code {
        MachineCode::Gpu(code) => Some(&**code),
        MachineCode::Cpu(_) => None,
    };
    let compilation = handle.compilation(code.is_some_and(|code| !code.tensor_maps().is_empty()), None);
    let Request { kernel, target, arguments, options, ir } =
        compilation.request(ir_digest(&handle.compiled.lowered));
    let launch = compilation.launch(&handle.compiled, code);
    let fields = serde_json::json!({
        "format": FORMAT, "tilewright": env!("CARGO_PKG_VERSION"), "kernel": kernel, "target": target,
        "arguments": arguments, "options": options, "ir": ir, "launch": launch,
    });
    format!("{fields:#}\n")
}
