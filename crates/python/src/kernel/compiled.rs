//! `CompiledKernel`: the handle that a launch or a warm-up returns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use tilewright_runtime::Handle;

use crate::values::function::Function;

/// A compiled variant of a kernel.
// It is a mapping, or Python would take it for an endless sequence because of its `[grid]`.
#[pyclass(frozen, mapping, dict, weakref, module = "tilewright._native")]
pub(crate) struct CompiledKernel {
    pub(crate) handle: Arc<Handle>,
    /// The kernel.
    pub(crate) function: Py<Function>,
    /// The same as `triton.compile` returns it, made at the first request for an attribute that
    /// only the twin has.
    pub(crate) twin: OnceLock<Py<PyAny>>,
    /// Attributes that programs read at each launch: computed at the first access.
    pub(crate) attributes: Attributes,
    /// True if it was launched.
    is_launched: AtomicBool,
    /// False in the zeros that an object is before it is made: Python makes its `__dict__` first,
    /// and may collect garbage then.
    pub(crate) is_made: bool,
}

/// Attributes that never change, as Python's objects.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) metadata: OnceLock<Py<PyAny>>,
    pub(crate) asm: OnceLock<Py<PyAny>>,
    pub(crate) hash: OnceLock<Py<PyAny>>,
}

/// The kept object; computed at the first access.
pub(crate) fn kept<'py>(
    cell: &OnceLock<Py<PyAny>>,
    py: Python<'py>,
    compute: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(kept) = cell.get() {
        return Ok(kept.bind(py).clone());
    }
    let made = compute()?.unbind();
    // Another thread may have been faster.
    Ok(cell.get_or_init(|| made).bind(py).clone())
}

impl CompiledKernel {
    pub(crate) fn new(handle: Arc<Handle>, function: &Bound<'_, Function>) -> Self {
        Self {
            handle,
            function: function.clone().unbind(),
            twin: OnceLock::new(),
            attributes: Attributes::default(),
            is_launched: AtomicBool::new(false),
            is_made: true,
        }
    }

    /// Notes that it was launched.
    #[inline]
    pub(crate) fn note_launch(&self) {
        self.is_launched.store(true, Ordering::Relaxed);
    }

    /// Returns whether it was launched, and therefore loaded.
    pub(crate) fn is_launched(&self) -> bool {
        self.is_launched.load(Ordering::Relaxed)
    }

    /// The same as `triton.compile` returns it.
    pub(crate) fn twin<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        kept(&slf.get().twin, py, || {
            py.import("tilewright.compiler.compiler")?.call_method1("of_launch", (slf,))
        })
    }
}
