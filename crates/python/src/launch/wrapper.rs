//! Defines `Wrapper`, the base of Python's `Autotuner` and `Heuristics`.
//!
//! A wrapper adds compile-time arguments to the launches of a kernel.

pub(crate) mod call_shape;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::values::call::{ByCallShape, Call};
use call_shape::CallShape;

/// A wrapper of a kernel or of another wrapper. It launches the wrapped object with more keyword
/// arguments than the program passes.
#[pyclass(subclass, dict, weakref, frozen, module = "tilewright._native")]
#[derive(Default)]
pub(crate) struct Wrapper {
    /// The kind: [`OWN_RUN`], [`AUTOTUNER`] or [`HEURISTICS`].
    pub(crate) kind: AtomicU8,
    /// The shapes of earlier calls.
    pub(crate) shapes: ByCallShape<CallShape, 8>,
    /// The `__dict__` of the object. A lookup in the dict costs less than a lookup in the object.
    pub(crate) attributes: OnceLock<Py<PyDict>>,
    /// The attributes that launches need. Setting an attribute of the object drops them.
    pub(crate) settings: Mutex<Option<Arc<Settings>>>,
    /// False while the object is zeroed memory (see `JitKernel`).
    pub(crate) is_made: bool,
}

/// The kind of a wrapper whose launches call the `run` of a class of the program.
pub(crate) const OWN_RUN: u8 = 0;
/// The kind of a wrapper whose launches add the chosen configuration.
pub(crate) const AUTOTUNER: u8 = 1;
/// The kind of a wrapper whose launches add the results of functions of the arguments.
pub(crate) const HEURISTICS: u8 = 2;

/// The attributes that launches need.
pub(crate) struct Settings {
    /// The wrapped kernel: `fn`.
    pub(crate) kernel: Py<PyAny>,
    /// `configs`, `cache` and `_place` of an autotuner, or `values` of heuristics.
    pub(crate) others: [Option<Py<PyAny>>; 3],
}

impl Settings {
    /// Returns the names of the attributes other than `fn`, by the kind of the wrapper.
    fn names(kind: u8) -> &'static [&'static str] {
        match kind {
            AUTOTUNER => &["configs", "cache", "_place"],
            _ => &["values"],
        }
    }

    /// Returns one of the attributes other than `fn`.
    pub(crate) fn other<'a, 'py>(
        &'a self,
        py: Python<'py>,
        number: usize,
    ) -> PyResult<&'a Bound<'py, PyAny>> {
        let found = self.others[number].as_ref().map(|object| object.bind(py));
        found
            .ok_or_else(|| PyTypeError::new_err("the attributes of an autotuner are not those of heuristics"))
    }
}

impl Wrapper {
    /// Returns the kind: [`OWN_RUN`], [`AUTOTUNER`] or [`HEURISTICS`].
    pub(crate) fn kind(&self) -> u8 {
        self.kind.load(Ordering::Relaxed)
    }
}

/// Returns the shape of a call. Returns `None` if no more shapes can be kept, or if there are too
/// many positional arguments.
pub(crate) fn shape<'a>(
    wrapper: &'a Bound<'_, Wrapper>,
    call: &Call<'_, '_>,
) -> PyResult<Option<&'a CallShape>> {
    let py = wrapper.py();
    let shapes = &wrapper.get().shapes;
    if let Some(known) = shapes.get(py, call) {
        return Ok(Some(known));
    }
    let keys = wrapper.getattr_opt(intern!(py, "keys"))?;
    let arg_names = wrapper.getattr(intern!(py, "arg_names"))?;
    Ok(CallShape::new(call, &arg_names, keys.as_ref())?.and_then(|made| shapes.keep(call, made)))
}

/// Returns an attribute of a wrapper.
#[inline]
fn attribute<'py>(wrapper: &Bound<'py, Wrapper>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    let (py, attributes) = (wrapper.py(), &wrapper.get().attributes);
    if let Some(attributes) = attributes.get() {
        if let Some(found) = attributes.bind(py).get_item(name)? {
            return Ok(found);
        }
    } else if let Ok(found) = wrapper.getattr(intern!(py, "__dict__"))?.cast_into::<PyDict>() {
        attributes.get_or_init(|| found.unbind());
    }
    wrapper.getattr(name)
}

/// Returns the attributes that a launch needs.
#[inline]
pub(crate) fn settings(wrapper: &Bound<'_, Wrapper>) -> PyResult<Arc<Settings>> {
    let known =
        wrapper.get().settings.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Arc::clone);
    // Replacing the kernel in the `__dict__` does not drop the settings.
    if let Some(known) = known
        && attribute(wrapper, intern!(wrapper.py(), "fn"))?.is(&known.kernel)
    {
        return Ok(known);
    }
    read_settings(wrapper)
}

#[cold]
fn read_settings(wrapper: &Bound<'_, Wrapper>) -> PyResult<Arc<Settings>> {
    let py = wrapper.py();
    let mut others = [None, None, None];
    for (other, name) in others.iter_mut().zip(Settings::names(wrapper.get().kind())) {
        *other = Some(attribute(wrapper, &PyString::intern(py, name))?.unbind());
    }
    let kernel = attribute(wrapper, intern!(py, "fn"))?.unbind();
    let found = Arc::new(Settings { kernel, others });
    *wrapper.get().settings.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&found));
    Ok(found)
}

/// Sets the attribute `best_config` to the configuration that a launch uses.
#[inline]
pub(crate) fn set_best_config<'py>(
    wrapper: &Bound<'py, Wrapper>,
    config: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let best_config = intern!(wrapper.py(), "best_config");
    if attribute(wrapper, best_config)?.is(config) {
        return Ok(());
    }
    match wrapper.get().attributes.get().map(|attributes| attributes.bind(wrapper.py())) {
        // Write to the dict directly, because `__setattr__` would drop the settings.
        Some(attributes) if attributes.contains(best_config)? => attributes.set_item(best_config, config),
        _ => wrapper.setattr(best_config, config),
    }
}
