//! Defines `CompiledKernel`, the handle that a launch or a warm-up returns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use tilewright_runtime::Handle;

use crate::values::function::Function;

/// A compiled variant of a kernel.
// The class is a mapping. Otherwise Python would treat an object as an endless sequence, because of
// `[grid]`.
#[pyclass(frozen, mapping, dict, weakref, module = "tilewright._native")]
pub(crate) struct CompiledKernel {
    pub(crate) handle: Arc<Handle>,
    /// The kernel.
    pub(crate) function: Py<Function>,
    /// The same variant as an object of the class that `triton.compile` returns, created at its
    /// first use.
    pub(crate) twin: OnceLock<Py<PyAny>>,
    /// Attributes that programs read at each launch. Each is computed at its first access.
    pub(crate) attributes: Attributes,
    /// True if the variant was launched, or if a launcher has loaded its code.
    is_launched: AtomicBool,
    /// False while the object is zeroed memory. Python may collect garbage before it is
    /// initialized.
    pub(crate) is_made: bool,
}

/// Attributes that never change, as Python objects.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) metadata: OnceLock<Py<PyAny>>,
    pub(crate) asm: OnceLock<Py<PyAny>>,
    pub(crate) hash: OnceLock<Py<PyAny>>,
}

/// Returns the object in a cell, and computes it at the first access.
pub(crate) fn kept<'py>(
    cell: &OnceLock<Py<PyAny>>,
    py: Python<'py>,
    compute: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(kept) = cell.get() {
        return Ok(kept.bind(py).clone());
    }
    let made = compute()?.unbind();
    // Another thread may have filled the cell meanwhile.
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

    /// Notes that the variant was launched, or that a launcher has loaded its code.
    #[inline]
    pub(crate) fn note_launch(&self) {
        self.is_launched.store(true, Ordering::Relaxed);
    }

    /// Returns whether the variant was launched, or loaded by a launcher. Its code is then loaded.
    pub(crate) fn is_launched(&self) -> bool {
        self.is_launched.load(Ordering::Relaxed)
    }

    /// Returns the same variant as an object of the class that `triton.compile` returns.
    pub(crate) fn twin<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        kept(&slf.get().twin, py, || {
            py.import("tilewright.compiler.compiler")?.call_method1("of_launch", (slf,))
        })
    }
}
