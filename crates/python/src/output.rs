//! Sends the output of kernels to the program's `sys.stdout`, like Python's own.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::intern;
use pyo3::prelude::*;

/// Takes text that a kernel prints, or leaves it to the output of the process, after the text that
/// Python still holds. Kernels run without the GIL, on threads of their own.
pub(crate) fn print(text: &str) -> bool {
    Python::try_attach(|py| write(py, text).unwrap_or_else(|error| failed(py, &error))).unwrap_or(false)
}

/// Writes to a `sys.stdout` that is not the one of the process: a notebook has one for each cell,
/// tests and `contextlib.redirect_stdout` put one in its place.
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

/// A program may have closed its output, which is no reason to stop a kernel. Ctrl-C is for the
/// launch.
fn failed(py: Python<'_>, error: &PyErr) -> bool {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        let main = py.import(intern!(py, "_thread"));
        // Without that function the interrupt cannot be delivered.
        let _ = main.and_then(|main| main.call_method0(intern!(py, "interrupt_main")));
        return true;
    }
    false
}
