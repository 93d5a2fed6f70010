//! Implements the Python methods of `JitKernel`.

use std::sync::PoisonError;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tilewright_base::SourceFile;

use crate::errors::to_exception;
use crate::interpret;
use crate::kernel::compiled::CompiledKernel;
use crate::kernel::jit::{JitKernel, State, state};
use crate::launch::jit::launch;
use crate::launch::launcher::launcher;
use crate::launch::warm_up::warm_up;
use crate::values::call::Call;
use crate::values::function::Function;

#[pymethods]
impl JitKernel {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Function::default()).add_subclass(Self { is_made: true, ..Self::default() })
    }

    /// Replaces the text and position of the function, and drops its compiled variants. Kernels
    /// that call the function and are already compiled keep the old text.
    #[pyo3(signature = (*, name, file, text, first_line, removed_columns))]
    fn _replace_source(
        slf: &Bound<'_, Self>,
        name: String,
        file: String,
        text: String,
        first_line: u32,
        removed_columns: u32,
    ) {
        let file = SourceFile { name: file, text, first_line, removed_columns };
        slf.as_super().get().replace_source(name, file);
        slf.get().clear_cache();
    }

    /// Sets the functions that are called with the arguments before each launch.
    fn _set_pre_run_hooks(&self, hooks: Bound<'_, PyTuple>) {
        let hooks = (!hooks.is_empty()).then(|| hooks.unbind());
        *self.pre_run_hooks.lock().unwrap_or_else(PoisonError::into_inner) = hooks;
    }

    /// Returns `kernel[grid]`: a function that launches the kernel with this grid.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, grid: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        launcher(slf, grid)
    }

    /// Calls the function as a Python function while this thread interprets a kernel. Otherwise
    /// raises an error, because a launch needs a grid: `kernel[grid](…)`.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if interpret::is_running() {
            return interpret::body(slf)?.call(args, kwargs);
        }
        let state = state(slf)?;
        Err(to_exception(slf.py(), &state.kernel.signature().no_grid()))
    }

    /// Launches the kernel with a grid. With `warmup=True`, only compiles the kernel.
    #[pyo3(signature = (*args, grid = None, warmup = false, **kwargs))]
    fn run(
        slf: &Bound<'_, Self>,
        args: &Bound<'_, PyTuple>,
        grid: Option<&Bound<'_, PyAny>>,
        warmup: bool,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Py<CompiledKernel>>> {
        Call::with(args, kwargs, |call| launch(slf, grid, call, warmup))
    }

    /// The function `warmup(*args, grid=None, **kwargs)`. It compiles the kernel for arguments like
    /// these, and does not run it (see `triton.AsyncCompileMode`).
    #[getter]
    fn warmup<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        warm_up(slf)
    }

    /// Drops all compiled variants.
    fn clear_cache(&self) {
        self.states().for_each(State::forget_all);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if !self.is_made {
            return Ok(());
        }
        let hooks = self.pre_run_hooks.try_lock();
        if let Some(hooks) = hooks.ok().as_ref().and_then(|hooks| hooks.as_ref()) {
            visit.call(hooks)?;
        }
        self.states().try_for_each(|state| state.visit(&visit))
    }

    fn __clear__(&self) {
        *self.pre_run_hooks.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.clear_cache();
    }
}
