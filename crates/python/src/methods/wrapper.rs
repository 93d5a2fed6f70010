//! Implements the Python methods of `Wrapper`.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::launch::launcher::launcher;
use crate::launch::wrapper::{AUTOTUNER, HEURISTICS, OWN_RUN, Wrapper};

#[pymethods]
impl Wrapper {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { is_made: true, ..Self::default() }
    }

    /// Sets the kind of the wrapper, `"autotuner"` or `"heuristics"`. With any other kind, a class
    /// of the program replaces `run`, and launches call this method.
    fn _set_kind(&self, kind: &str) {
        let kind = match kind {
            "autotuner" => AUTOTUNER,
            "heuristics" => HEURISTICS,
            _ => OWN_RUN,
        };
        self.kind.store(kind, Ordering::Relaxed);
        self.forget_settings();
    }

    /// Drops the cached settings, after an attribute was set.
    #[pyo3(name = "_forget_settings")]
    fn forget_settings(&self) {
        let before = self.settings.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Dropping may run the program's code.
        drop(before);
    }

    /// Returns `kernel[grid]`: a function that launches the wrapper with this grid.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, grid: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        launcher(slf, grid)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if !self.is_made {
            return Ok(());
        }
        self.attributes.get().map_or(Ok(()), |attributes| visit.call(attributes))?;
        if let Ok(settings) = self.settings.try_lock()
            && let Some(settings) = settings.as_ref()
        {
            visit.call(&settings.kernel)?;
            settings.others.iter().flatten().try_for_each(|object| visit.call(object))?;
        }
        self.shapes.iter().try_for_each(|shape| shape.visit(&visit))
    }

    fn __clear__(&self) {
        if self.is_made {
            self.forget_settings();
        }
    }
}
