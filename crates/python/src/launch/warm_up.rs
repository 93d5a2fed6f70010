//! Implements `kernel.warmup`, which compiles the variant for a call and does not run it.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::{Borrowed, intern};
use smallvec::SmallVec;

use super::builtin::{Builtin, make};
use super::jit;
use crate::kernel::jit::JitKernel;
use crate::values::call::Call;

/// True if the program has imported the module of `triton.AsyncCompileMode`.
static HAS_ASYNC_MODE: AtomicBool = AtomicBool::new(false);

/// Compiles a kernel. The target is the kernel.
struct WarmUp;

impl Builtin for WarmUp {
    const NAME: &'static CStr = c"warmup";
    const DOC: &'static CStr = c"Compiles for arguments like these, and does not run the kernel.";

    fn answer(target: Borrowed<'_, '_, PyAny>, call: &Call<'_, '_>) -> PyResult<Py<PyAny>> {
        let py = target.py();
        if HAS_ASYNC_MODE.load(Ordering::Relaxed) {
            let (args, kwargs) = call.to_python(py)?;
            let handle = target.call_method(intern!(py, "_warmup_in_mode"), args, Some(&kwargs))?;
            return Ok(handle.unbind());
        }
        let kernel = target.cast::<JitKernel>()?;
        let handle = without_grid(py, call, |call| jit::launch(&kernel, None, call, true))?;
        Ok(handle.map_or_else(|| py.None(), Py::into_any))
    }
}

/// Returns `kernel.warmup`.
pub(crate) fn warm_up<'py>(kernel: &Bound<'py, JitKernel>) -> PyResult<Bound<'py, PyAny>> {
    make::<WarmUp>(kernel.as_any())
}

/// Makes later warm-ups look for an active `triton.AsyncCompileMode`.
#[pyfunction]
pub(crate) fn note_async_mode() {
    HAS_ASYNC_MODE.store(true, Ordering::Relaxed);
}

/// Calls a function with a copy of a call without the argument `grid`, which a warm-up ignores.
fn without_grid<'py, R>(
    py: Python<'py>,
    call: &Call<'_, 'py>,
    function: impl FnOnce(&Call<'_, 'py>) -> PyResult<R>,
) -> PyResult<R> {
    let Some(keywords) = call.keywords() else { return function(call) };
    let grid = intern!(py, "grid");
    let is_grid = |name: &Borrowed<'_, 'py, PyAny>| {
        name.is(grid) || name.cast::<PyString>().is_ok_and(|name| name == "grid")
    };
    let Some(place) = keywords.iter_borrowed().position(|name| is_grid(&name)) else { return function(call) };
    let others = || (0..keywords.len()).filter(|index| *index != place);
    let names: SmallVec<[Borrowed<'_, 'py, PyAny>; 16]> =
        others().map(|index| keywords.get_borrowed_item(index)).collect::<PyResult<_>>()?;
    let mut values: SmallVec<[Borrowed<'_, 'py, PyAny>; 32]> = SmallVec::from_slice(call.values());
    values.remove(call.positional() + place);
    let names = (!names.is_empty()).then(|| PyTuple::new(py, &names)).transpose()?;
    let names = names.as_ref().map(|names| names.as_borrowed());
    function(&Call::new(&values, call.positional(), names, None))
}
