//! Defines `Missing`, a placeholder for a name of Triton that tilewright does not have.
//!
//! The class is in Rust, so that a traceback ends at the line of the program that uses the name.

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

/// A placeholder for a function or class that tilewright does not have. A call raises an error, and
/// so does an access to an attribute without a leading underscore. The error may have a hint about
/// a replacement.
#[pyclass(frozen, module = "tilewright._native")]
pub(crate) struct Missing {
    /// The path of the name in Triton, with its module.
    path: String,
    /// The hint of the error, which names a replacement.
    hint: Option<String>,
}

impl Missing {
    fn refuse(&self, py: Python<'_>) -> PyErr {
        let message = format!("{} is not available in this version of tilewright", self.path);
        PyErr::from_value(crate::errors::not_available(py, &message, self.hint.clone()).into_bound(py))
    }
}

#[pymethods]
impl Missing {
    #[new]
    #[pyo3(signature = (path, hint = None))]
    fn new(path: String, hint: Option<String>) -> Self {
        Self { path, hint }
    }

    /// The path in Triton.
    #[getter(_path)]
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    #[getter(__name__)]
    fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    #[getter(__qualname__)]
    fn qualified_name(&self) -> &str {
        self.name()
    }

    /// Allows copying and pickling, as for a function.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (String, Option<String>)) {
        let Missing { path, hint } = slf.get();
        (slf.get_type(), (path.clone(), hint.clone()))
    }

    #[pyo3(signature = (*_args, **_kwargs))]
    fn __call__(
        &self,
        py: Python<'_>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        Err(self.refuse(py))
    }

    /// Raises the error for a class that is derived from the placeholder.
    fn __mro_entries__(&self, py: Python<'_>, _bases: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.refuse(py))
    }

    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        // Probes for protocols fail as for any other object.
        if name.starts_with('_') {
            return Err(PyAttributeError::new_err(name.to_owned()));
        }
        Err(self.refuse(py))
    }

    /// Returns false. `isinstance(x, triton.runtime.Autotuner)` needs no error, because no object
    /// is an instance.
    #[expect(clippy::unused_self, reason = "Python passes it")]
    fn __instancecheck__(&self, _instance: &Bound<'_, PyAny>) -> bool {
        false
    }

    #[expect(clippy::unused_self, reason = "Python passes it")]
    fn __subclasscheck__(&self, _class: &Bound<'_, PyAny>) -> bool {
        false
    }

    fn __repr__(&self) -> String {
        format!("<{}, not available in this version of tilewright>", self.path)
    }
}
