//! Implements `object[grid]` for a kernel, a compiled variant or a wrapper.
//!
//! A wrapper adds arguments and launches the kernel that it wraps. Two kinds of wrapper launch
//! without a Python frame:
//!
//! - a `Heuristics`, if the program does not pass its arguments;
//! - an `Autotuner` with one configuration, or with a chosen one for the key. The configuration has
//!   no hook before the launch, and sets no argument of the call.
//!
//! In all other cases, the wrapper's `run` in Python launches.

use std::ffi::CStr;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use pyo3::{Borrowed, intern};
use smallvec::SmallVec;

use super::builtin::{Builtin, make};
use super::wrapper::call_shape::{CallShape, Read, is_plain, name_of};
use super::wrapper::{self, Wrapper, set_best_config, settings, shape};
use super::{compiled, jit};
use crate::kernel::compiled::CompiledKernel;
use crate::kernel::jit::JitKernel;
use crate::values::call::{Call, Expected};
use crate::values::torch;

/// Launches an object with a grid. The target is the tuple of the object and the grid.
struct Launcher;

impl Builtin for Launcher {
    const NAME: &'static CStr = c"launch";
    const DOC: &'static CStr = c"Runs the kernel for every program of the grid.";

    fn answer(target: Borrowed<'_, '_, PyAny>, call: &Call<'_, '_>) -> PyResult<Py<PyAny>> {
        let target = target.cast::<PyTuple>()?;
        start(&*target.get_borrowed_item(0)?, &*target.get_borrowed_item(1)?, call)
    }
}

/// Returns `object[grid]`: a function that launches the object with this grid.
pub(crate) fn launcher<'py>(
    object: &Bound<'py, PyAny>,
    grid: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    make::<Launcher>(PyTuple::new(object.py(), [object, grid])?.as_any())
}

/// Launches the object with the grid.
fn start<'py>(
    object: &Bound<'py, PyAny>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Py<PyAny>> {
    let py = object.py();
    if let Ok(kernel) = object.cast::<JitKernel>() {
        let handle = jit::launch(kernel, Some(grid), call, false)?;
        return Ok(handle.map_or_else(|| py.None(), Py::into_any));
    }
    if let Ok(wrapper) = object.cast::<Wrapper>() {
        return launch_wrapper(wrapper, grid, call);
    }
    match object.cast::<CompiledKernel>() {
        // An autotuner launches the configuration of a likely key, which is right only for the
        // expected dtypes and device. Only a `JitKernel` compares these, so `launch_autotuner` must
        // look up the configuration.
        _ if call.expected().is_some() => Ok(py.None()),
        Ok(compiled) => compiled::launch(compiled, grid, call).map(|()| py.None()),
        Err(_) => run(object, grid, call),
    }
}

/// Launches a wrapper: `wrapper[grid](...)`.
fn launch_wrapper<'py>(
    wrapper: &Bound<'py, Wrapper>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Py<PyAny>> {
    let launched = match wrapper.get().kind() {
        wrapper::HEURISTICS => launch_heuristics(wrapper, grid, call)?,
        wrapper::AUTOTUNER if call.expected().is_none() => launch_autotuner(wrapper, grid, call)?,
        _ => None,
    };
    match launched {
        Some(result) => Ok(result),
        // `run` does not compare the dtypes and the device that an autotuner expects.
        None if call.expected().is_some() => Ok(wrapper.py().None()),
        None => run(wrapper.as_any(), grid, call),
    }
}

/// Launches any object that has a `run`: `object.run(..., grid=grid, warmup=False)`.
#[cold]
fn run<'py>(
    object: &Bound<'py, PyAny>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Py<PyAny>> {
    let py = object.py();
    let (args, kwargs) = call.to_python(py)?;
    for name in ["grid", "warmup"] {
        if kwargs.contains(name)? {
            let message = format!("a launch `kernel[grid](...)` does not take the keyword argument '{name}'");
            return Err(PyTypeError::new_err(message));
        }
    }
    kwargs.set_item(intern!(py, "grid"), grid)?;
    kwargs.set_item(intern!(py, "warmup"), false)?;
    let launched = object.call_method(intern!(py, "run"), args, Some(&kwargs));
    launched.map(Bound::unbind).map_err(|error| hide_own_frames(py, &error))
}

/// Removes the frames of tilewright from the traceback of an error about the program.
#[cold]
fn hide_own_frames(py: Python<'_>, error: &PyErr) -> PyErr {
    let value = error.value(py).clone().into_any();
    let hide = || -> PyResult<()> {
        let errors = py.import(intern!(py, "tilewright.errors"))?;
        if value.is_instance(&errors.getattr(intern!(py, "TritonError"))?)? {
            errors.call_method1(intern!(py, "hide_own_frames"), (&value,))?;
        }
        Ok(())
    };
    match hide() {
        // The new error has the traceback of `value`, without the removed frames.
        Ok(()) => PyErr::from_value(value),
        Err(other) => other,
    }
}

/// Launches with the only or the chosen configuration of the autotuner. Returns `None` if only
/// `run` in Python can launch.
fn launch_autotuner<'py>(
    wrapper: &Bound<'py, Wrapper>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = wrapper.py();
    let Some(shape) = shape(wrapper, call)? else { return Ok(None) };
    let settings = settings(wrapper)?;
    let kernel = settings.kernel.bind(py);
    let launch = |config: &Bound<'py, PyAny>, expected: Option<&Expected<'_>>| {
        launch_config(wrapper, shape, (kernel, grid, call), config, expected)
    };
    let configs = settings.other(py, 0)?;
    if let Ok(configs) = configs.cast::<PyList>()
        && configs.len() == 1
    {
        return launch(&configs.get_item(0)?, None);
    }
    let Ok(cache) = settings.other(py, 1)?.cast::<PyDict>() else { return Ok(None) };
    let place = settings.other(py, 2)?;
    // The key contains the dtypes of all tensors, which the launch reads anyway. The launch uses
    // the likely key, and stops if the dtypes differ.
    if let Some(known) = shape.likely_key(call)
        && known.place.is(place)
        && !torch::is_watched()
        && let Some(config) = cache.get_item(&known.key)?
    {
        let expected = Expected::new(&shape.places, &known.read.dtypes, known.read.device);
        let launched = launch(&config, Some(&expected))?;
        if expected.is_met() {
            return Ok(launched);
        }
    }
    match choice(shape, call, cache, place)? {
        Some(config) => launch(&config, None),
        None => Ok(None),
    }
}

/// Launches with a configuration. Returns `None` if only `run` in Python can launch.
#[inline]
fn launch_config<'py>(
    wrapper: &Bound<'py, Wrapper>,
    shape: &CallShape,
    (kernel, grid, call): (&Bound<'py, PyAny>, &Bound<'py, PyAny>, &Call<'_, 'py>),
    config: &Bound<'py, PyAny>,
    expected: Option<&Expected<'_>>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = wrapper.py();
    let Some(added) = shape.added(call, config)? else { return Ok(None) };
    set_best_config(wrapper, config)?;
    let mut all: SmallVec<[Borrowed<'_, 'py, PyAny>; 32]> = SmallVec::from_slice(call.values());
    for value in &added.values {
        all.push(value.bind_borrowed(py));
    }
    let keywords = added.keywords.bind_borrowed(py);
    let call = Call::new(&all, call.positional(), Some(keywords), expected);
    start(kernel, grid, &call).map(Some)
}

/// Returns the configuration that was chosen for the key's arguments and the dtypes, if it is
/// known.
#[cold]
fn choice<'py>(
    shape: &CallShape,
    call: &Call<'_, 'py>,
    cache: &Bound<'py, PyDict>,
    known_place: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = cache.py();
    let read = Read::of(py, shape, call);
    if let Some(known) = read.as_ref().and_then(|read| shape.known_key(read))
        && known.place.is(known_place)
    {
        return cache.get_item(&known.key);
    }
    let Some((place, key)) = key(shape, call)? else { return Ok(None) };
    let place = place.unwrap_or_else(|| py.None().into_bound(py));
    if !known_place.is(&place) && !known_place.eq(&place)? {
        return Ok(None);
    }
    let key = PyTuple::new(py, key)?;
    match cache.get_item(&key) {
        // The key has no hash, for example because of a list.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(None),
        Ok(Some(config)) => {
            if let Some(read) = read {
                shape.remember(read, known_place, &key, cache);
            }
            Ok(Some(config))
        }
        found => found,
    }
}

/// The device of the first tensor, and the items of the key.
type Key<'py> = (Option<Bound<'py, PyAny>>, SmallVec<[Bound<'py, PyAny>; 16]>);

/// Returns the device of the first tensor, and the items of the key, as the Python code computes
/// them.
#[cold]
fn key<'py>(shape: &CallShape, call: &Call<'_, 'py>) -> PyResult<Option<Key<'py>>> {
    let mut key: SmallVec<[Bound<'py, PyAny>; 16]> = SmallVec::new();
    key.extend(shape.key.iter().map(|&number| call.values()[number].to_owned()));
    let mut place = None;
    for (at, &number) in shape.parameters.iter().enumerate() {
        let value = call.values()[number];
        let py = value.py();
        if is_plain(&value) {
            continue;
        }
        let Some(dtype) = value.getattr_opt(intern!(py, "dtype"))? else { continue };
        if dtype.is_none() {
            continue;
        }
        key.push(name_of(shape, at, &dtype)?);
        if place.is_none() {
            place = value.getattr_opt(intern!(py, "device"))?;
        }
    }
    Ok(Some((place, key)))
}

/// Launches with the arguments that heuristics compute. Returns `None` if only `run` in Python can
/// launch.
fn launch_heuristics<'py>(
    wrapper: &Bound<'py, Wrapper>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = wrapper.py();
    let Some(shape) = shape(wrapper, call)? else { return Ok(None) };
    let settings = settings(wrapper)?;
    let Ok(functions) = settings.other(py, 0)?.cast::<PyDict>() else { return Ok(None) };
    let (mut names, mut calls) = (SmallVec::<[Bound<'py, PyAny>; 8]>::new(), SmallVec::<[_; 8]>::new());
    for (name, function) in functions {
        names.push(name);
        calls.push(function);
    }
    let borrowed: SmallVec<[_; 8]> = names.iter().map(Bound::as_borrowed).collect();
    // The program passes an argument with the name of a heuristic, which the heuristic replaces.
    let Some(keywords) = shape.keywords(py, call, &borrowed)? else { return Ok(None) };
    let arguments = shape.arguments(call, grid)?;
    let mut computed: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
    for (number, function) in calls.iter().enumerate() {
        let value = function.call1((&arguments,))?;
        if number + 1 < calls.len() {
            // Each function receives the results of the functions before it.
            arguments.set_item(&names[number], &value)?;
        }
        computed.push(value);
    }
    let mut all: SmallVec<[Borrowed<'_, 'py, PyAny>; 32]> = SmallVec::from_slice(call.values());
    for value in &computed {
        all.push(value.as_borrowed());
    }
    let call = Call::new(&all, call.positional(), Some(keywords.as_borrowed()), call.expected());
    start(settings.kernel.bind(py), grid, &call).map(Some)
}
