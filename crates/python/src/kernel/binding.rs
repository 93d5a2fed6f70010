//! Keeps the bindings of calls: arguments bound to parameters, and options.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};
use smallvec::SmallVec;
use tilewright_runtime::{Binding, Kernel, OptionId, Options};

use crate::errors::raised;
use crate::values::call::Call;

/// A binding, and the options that the latest call with it has set.
#[derive(Debug)]
pub(crate) struct KnownBinding {
    binding: Binding,
    options: Mutex<Option<KnownOptions>>,
    /// The index of the keyword `sanitize` among the keywords of the call, if the call has it.
    pub(crate) sanitize: Option<usize>,
}

/// The options of the latest launch, for later launches that pass the same objects as options.
#[derive(Debug)]
struct KnownOptions {
    /// The immutable objects that the call passed as options.
    values: SmallVec<[Py<PyAny>; 4]>,
    /// The options without the values of the call. `options` has the result.
    before: Options,
    options: Options,
}

impl std::ops::Deref for KnownBinding {
    type Target = Binding;

    fn deref(&self) -> &Binding {
        &self.binding
    }
}

impl KnownBinding {
    #[cold]
    pub(crate) fn new(py: Python<'_>, kernel: &Kernel, call: &Call<'_, '_>) -> PyResult<Self> {
        let names = call.names()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let binding = raised(py, kernel.bind(call.positional(), &names))?;
        let sanitize = binding.options.iter().find(|(_, option)| *option == OptionId::Sanitize);
        let sanitize = sanitize.map(|&(number, _)| number);
        Ok(Self { binding, options: Mutex::default(), sanitize })
    }

    /// Returns `before` with the options that these objects set. Returns `None` unless the latest
    /// call passed the same objects and options.
    #[inline]
    pub(crate) fn known_options(
        &self,
        before: &Options,
        mut values: impl ExactSizeIterator<Item = *mut pyo3::ffi::PyObject>,
    ) -> Option<Options> {
        let known = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_ref().filter(|known| known.values.len() == values.len())?;
        let are_same = known.values.iter().all(|known| Some(known.as_ptr()) == values.next());
        (are_same && known.before == *before).then(|| known.options.clone())
    }

    /// Keeps the options of a call, unless one of their objects may be mutable.
    pub(crate) fn keep_options(
        &self,
        before: Options,
        values: impl Iterator<Item = Py<PyAny>>,
        py: Python<'_>,
        options: &Options,
    ) {
        let values: SmallVec<[_; 4]> = values.collect();
        let cannot_change = |value: &Py<PyAny>| {
            let value = value.bind(py);
            value.is_exact_instance_of::<PyInt>() || value.is_exact_instance_of::<PyBool>() || value.is_none()
        };
        if values.iter().all(cannot_change) {
            let known = KnownOptions { values, before, options: options.clone() };
            *self.options.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        }
    }
}
