//! Sends the output of kernels to the program's `sys.stdout`, like the output of Python.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::intern;
use pyo3::prelude::*;

/// Writes text that a kernel prints to `sys.stdout`. Returns false if the caller has to write the
/// text to the output of the process. If `sys.stdout` is that output, flushes it first.
///
/// Kernels run without the GIL, on their own threads.
pub(crate) fn print(text: &str) -> bool {
    Python::try_attach(|py| write(py, text).unwrap_or_else(|error| failed(py, &error))).unwrap_or(false)
}

/// Writes text to `sys.stdout` if the program has replaced `sys.stdout`, as notebooks, tests and
/// `contextlib.redirect_stdout` do. Returns whether the program has replaced it. Flushes
/// `sys.stdout`, unless it is `None`.
fn write(py: Python<'_>, text: &str) -> PyResult<bool> {
    let sys = py.import(intern!(py, "sys"))?;
    let out = sys.getattr(intern!(py, "stdout"))?;
    if out.is_none() {
        return Ok(false);
    }
    let is_other = !out.is(&sys.getattr(intern!(py, "__stdout__"))?);
    if is_other {
        out.call_method1(intern!(py, "write"), (text,))?;
    }
    out.call_method0(intern!(py, "flush"))?;
    Ok(is_other)
}

/// Handles an exception of `sys.stdout`. Forwards Ctrl-C to the launch, and ignores other
/// exceptions, because a closed output is no reason to stop a kernel.
fn failed(py: Python<'_>, error: &PyErr) -> bool {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        let main = py.import(intern!(py, "_thread"));
        // Without `interrupt_main`, the interrupt cannot be delivered.
        let _ = main.and_then(|main| main.call_method0(intern!(py, "interrupt_main")));
        return true;
    }
    false
}
