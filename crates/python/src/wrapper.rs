//! Launches of kernels whose compile-time arguments are chosen for them: the bases of Python's `Autotuner` and `Heuristics`.
//!
//! What is usual is done here, without a frame of Python's: the choice for the arguments is known, and no hook wants to be called.
//! In all other cases, Python's `run` does the launch, and says what it means.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{Borrowed, intern};
use smallvec::SmallVec;

use crate::launcher::{Call, launcher, start};

/// A kernel, or another wrapper, that is launched with more keyword arguments than the program gives.
#[pyclass(subclass, dict, weakref, frozen, module = "tilewright._native")]
#[derive(Default)]
pub(crate) struct Wrapper {
    /// Which of the constants below.
    kind: AtomicU8,
    /// The forms of calls that were met, first those that are set.
    forms: [OnceLock<Form>; MOST_FORMS],
    /// False in the zeros that an object is before it is made.
    is_made: bool,
}

/// The program has a `run` of its own.
const OWN_RUN: u8 = 0;
/// The configuration that was chosen is added.
const AUTOTUNER: u8 = 1;
/// What functions of the arguments return is added.
const HEURISTICS: u8 = 2;

/// The most forms of a call that are kept for a wrapper.
const MOST_FORMS: usize = 8;

/// A call with so many arguments by position, and these keywords.
struct Form {
    positional: usize,
    keywords: Option<Py<PyTuple>>,
    /// The arguments that the key of an autotuner has, by their number in the call.
    key: Vec<usize>,
    /// The arguments that are parameters of the kernel, likewise.
    parameters: Vec<usize>,
    memo: Mutex<Memo>,
}

/// What the latest launch has found.
#[derive(Default)]
struct Memo {
    /// The dtypes of the parameters, and their names.
    dtypes: Vec<Option<(Py<PyAny>, Py<PyAny>)>>,
    /// The names that were added, and all keywords with them.
    keywords: Option<(Py<PyTuple>, Py<PyTuple>)>,
}

#[pymethods]
impl Wrapper {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { is_made: true, ..Self::default() }
    }

    /// Says what it is, `"autotuner"` or `"heuristics"`, if its `run` is ours.
    fn _set_kind(&self, kind: &str) {
        let kind = match kind {
            "autotuner" => AUTOTUNER,
            "heuristics" => HEURISTICS,
            _ => OWN_RUN,
        };
        self.kind.store(kind, Ordering::Relaxed);
    }

    /// `kernel[grid]`: what launches with this grid.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, grid: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        launcher(slf, grid)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if !self.is_made {
            return Ok(());
        }
        for form in self.forms.iter().map_while(OnceLock::get) {
            visit.call(&form.keywords)?;
        }
        Ok(())
    }
}

impl Form {
    /// Whether a call is of this form. Keywords are the same objects at each execution of a call.
    fn is(&self, py: Python<'_>, call: &Call<'_, '_>) -> bool {
        self.positional == call.positional()
            && match (&self.keywords, call.keywords()) {
                (None, None) => true,
                (Some(known), Some(keywords)) => has_same_items(known.bind_borrowed(py), keywords),
                _ => false,
            }
    }

    fn new(
        call: &Call<'_, '_>,
        arg_names: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Self>> {
        let arg_names: Vec<String> = arg_names.extract()?;
        let mut names: Vec<String> = arg_names.iter().take(call.positional()).cloned().collect();
        if names.len() < call.positional() {
            // The kernel takes any number of arguments, or refuses these.
            return Ok(None);
        }
        names.extend(call.names()?);
        let number = |name: &String| names.iter().position(|other| other == name);
        let parameters = (0..names.len()).filter(|&at| arg_names.contains(&names[at]));
        let keys: Vec<String> = keys.map_or(Ok(vec![]), PyAnyMethods::extract)?;
        let key = keys.iter().filter(|name| arg_names.contains(name)).filter_map(number);
        Ok(Some(Self {
            positional: call.positional(),
            keywords: call.keywords().map(|keywords| keywords.to_owned().unbind()),
            key: key.collect(),
            parameters: parameters.collect(),
            memo: Mutex::default(),
        }))
    }

    /// The keywords of the call with more behind them.
    fn keywords<'py>(
        &self,
        call: &Call<'_, 'py>,
        added: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = added.py();
        let lock = || self.memo.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, keywords)) = &lock().keywords
            && has_same_items(known.bind_borrowed(py), added.as_borrowed())
        {
            return Ok(keywords.bind(py).clone());
        }
        let own = call.keywords();
        let own = own.iter().flat_map(|keywords| keywords.iter_borrowed());
        let all: Vec<_> = own.chain(added.iter_borrowed()).collect();
        let keywords = PyTuple::new(py, all)?;
        let before = lock().keywords.replace((added.clone().unbind(), keywords.clone().unbind()));
        drop(before);
        Ok(keywords)
    }
}

/// Whether two tuples have the same objects.
fn has_same_items(one: Borrowed<'_, '_, PyTuple>, other: Borrowed<'_, '_, PyTuple>) -> bool {
    let has_same_items =
        || one.len() == other.len() && one.iter_borrowed().zip(other.iter_borrowed()).all(|(a, b)| a.is(b));
    one.is(other) || has_same_items()
}

/// `wrapper[grid](...)`.
pub(crate) fn launch<'py>(
    wrapper: &Bound<'py, Wrapper>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Py<PyAny>> {
    let launched = match wrapper.get().kind.load(Ordering::Relaxed) {
        AUTOTUNER => launch_autotuner(wrapper, grid, call)?,
        HEURISTICS => launch_heuristics(wrapper, grid, call)?,
        _ => None,
    };
    match launched {
        Some(result) => Ok(result),
        None => run(wrapper.as_any(), grid, call),
    }
}

/// `object.run(..., grid=grid, warmup=False)`: what launches anything that can be launched.
#[cold]
pub(crate) fn run<'py>(
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
    object.call_method(intern!(py, "run"), args, Some(&kwargs)).map(Bound::unbind)
}

/// The form of a call, if it can be kept.
fn form<'a>(wrapper: &'a Bound<'_, Wrapper>, call: &Call<'_, '_>) -> PyResult<Option<&'a Form>> {
    let py = wrapper.py();
    let forms = &wrapper.get().forms;
    if let Some(known) = forms.iter().map_while(OnceLock::get).find(|form| form.is(py, call)) {
        return Ok(Some(known));
    }
    let keys = wrapper.getattr_opt(intern!(py, "keys"))?;
    let arg_names = wrapper.getattr(intern!(py, "arg_names"))?;
    let Some(mut made) = Form::new(call, &arg_names, keys.as_ref())? else { return Ok(None) };
    for place in forms {
        match place.set(made) {
            Ok(()) => return Ok(place.get()),
            Err(refused) => made = refused,
        }
    }
    Ok(None)
}

/// Launches with the configuration that was chosen for arguments like these; nothing if there is more to do than that.
fn launch_autotuner<'py>(
    wrapper: &Bound<'py, Wrapper>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = wrapper.py();
    let Some(form) = form(wrapper, call)? else { return Ok(None) };
    let configs = wrapper.getattr(intern!(py, "configs"))?;
    let config = match configs.cast::<PyList>() {
        Ok(configs) if configs.len() == 1 => configs.get_item(0)?,
        _ => match choice(wrapper, form, call)? {
            Some(config) => config,
            None => return Ok(None),
        },
    };
    if !config.getattr(intern!(py, "pre_hook"))?.is_none() {
        return Ok(None);
    }
    let Some((names, values)) = arguments_of(&config)? else { return Ok(None) };
    let own = call.keywords();
    if own.iter().flat_map(|own| own.iter_borrowed()).any(|own| names.iter_borrowed().any(|n| n.is(own))) {
        return Ok(None);
    }
    let keywords = form.keywords(call, &names)?;
    let best_config = intern!(py, "best_config");
    if !wrapper.getattr(best_config)?.is(&config) {
        wrapper.setattr(best_config, &config)?;
    }
    let kernel = wrapper.getattr(intern!(py, "fn"))?;
    let mut all: SmallVec<[Borrowed<'_, 'py, PyAny>; 32]> = call.values().iter().copied().collect();
    all.extend(values.iter_borrowed());
    start(&kernel, grid, &Call::new(&all, call.positional(), Some(keywords.as_borrowed()))).map(Some)
}

/// What was chosen for the values of the key's arguments, and the dtypes of all.
fn choice<'py>(
    wrapper: &Bound<'py, Wrapper>,
    form: &Form,
    call: &Call<'_, 'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = wrapper.py();
    let mut key: SmallVec<[Bound<'py, PyAny>; 16]> = SmallVec::new();
    key.extend(form.key.iter().map(|&number| call.values()[number].to_owned()));
    let mut place = None;
    for (at, &number) in form.parameters.iter().enumerate() {
        let value = call.values()[number];
        if is_plain(&value) {
            continue;
        }
        let Some(dtype) = value.getattr_opt(intern!(py, "dtype"))? else { continue };
        if dtype.is_none() {
            continue;
        }
        key.push(name_of(form, at, &dtype)?);
        if place.is_none() {
            place = value.getattr_opt(intern!(py, "device"))?;
        }
    }
    let place = place.unwrap_or_else(|| py.None().into_bound(py));
    let known = wrapper.getattr(intern!(py, "_place"))?;
    if !known.is(&place) && !known.eq(&place)? {
        return Ok(None);
    }
    let cache = wrapper.getattr(intern!(py, "cache"))?;
    let Ok(cache) = cache.cast::<PyDict>() else { return Ok(None) };
    match cache.get_item(PyTuple::new(py, key)?) {
        // A list in the key, for instance.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(None),
        found => found,
    }
}

/// Whether it is a number, a text or nothing, which have no dtype.
fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyString>()
        || value.is_none()
}

/// `str(dtype)`, which torch makes anew each time.
fn name_of<'py>(form: &Form, at: usize, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static NAME_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = dtype.py();
    let lock = || form.memo.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Some((known, name))) = lock().dtypes.get(at)
        && known.is(dtype)
    {
        return Ok(name.bind(py).clone());
    }
    let name_of = NAME_OF.import(py, "tilewright.runtime.autotuner", "_name_of")?;
    let name = name_of.call1((dtype,))?;
    let mut memo = lock();
    if memo.dtypes.len() <= at {
        memo.dtypes.resize_with(at + 1, || None);
    }
    let before = memo.dtypes[at].replace((dtype.clone().unbind(), name.clone().unbind()));
    // Dropping may run the program's code.
    drop(memo);
    drop(before);
    Ok(name)
}

/// The names and the values that a configuration adds to a launch. It keeps them until it is changed.
fn arguments_of<'py>(
    config: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)>> {
    let py = config.py();
    let kwargs = config.getattr(intern!(py, "kwargs"))?;
    let merged = config.getattr(intern!(py, "_merged"))?;
    if let (Ok(kwargs), Ok(merged)) = (kwargs.cast::<PyDict>(), merged.cast::<PyTuple>()) {
        let (names, values) = (merged.get_item(0)?.cast_into()?, merged.get_item(1)?.cast_into()?);
        // A program may change the dict itself.
        if kwargs.len() == merged.get_item(2)?.extract::<usize>()? && is_beginning(kwargs, &names, &values) {
            return Ok(Some((names, values)));
        }
    }
    config.call_method0(intern!(py, "_merge"))?;
    let Ok(merged) = config.getattr(intern!(py, "_merged"))?.cast_into::<PyTuple>() else { return Ok(None) };
    Ok(Some((merged.get_item(0)?.cast_into()?, merged.get_item(1)?.cast_into()?)))
}

/// Whether the items of a dict are those that two tuples begin with.
fn is_beginning(kwargs: &Bound<'_, PyDict>, names: &Bound<'_, PyTuple>, values: &Bound<'_, PyTuple>) -> bool {
    let mut pairs = names.iter_borrowed().zip(values.iter_borrowed());
    kwargs.iter().all(|(name, value)| pairs.next().is_some_and(|(n, v)| n.is(&name) && v.is(&value)))
}

/// Launches with the computed arguments.
fn launch_heuristics<'py>(
    wrapper: &Bound<'py, Wrapper>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = wrapper.py();
    let Some(form) = form(wrapper, call)? else { return Ok(None) };
    let arg_names = wrapper.getattr(intern!(py, "arg_names"))?;
    let functions = wrapper.getattr(intern!(py, "values"))?;
    let (Ok(arg_names), Ok(functions)) = (arg_names.cast::<PyList>(), functions.cast::<PyDict>()) else {
        return Ok(None);
    };
    let arguments = PyDict::new(py);
    for (name, value) in arg_names.iter().zip(&call.values()[..call.positional()]) {
        arguments.set_item(name, value)?;
    }
    let keywords = call.keywords();
    for (number, name) in keywords.iter().flat_map(|keywords| keywords.iter_borrowed()).enumerate() {
        if functions.contains(name)? {
            // What the program passes is computed all the same, and takes the place of it.
            return Ok(None);
        }
        arguments.set_item(name, call.named(number))?;
    }
    arguments.set_item(intern!(py, "grid"), grid)?;
    arguments.set_item(intern!(py, "warmup"), PyBool::new(py, false))?;
    let mut names: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
    let mut computed: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
    for (name, function) in functions {
        // Each sees what those before it computed.
        let value = function.call1((&arguments,))?;
        arguments.set_item(&name, &value)?;
        names.push(name);
        computed.push(value);
    }
    let keywords = form.keywords(call, &PyTuple::new(py, names)?)?;
    let kernel = wrapper.getattr(intern!(py, "fn"))?;
    let mut all: SmallVec<[Borrowed<'_, 'py, PyAny>; 32]> = call.values().iter().copied().collect();
    all.extend(computed.iter().map(|value| value.as_borrowed()));
    start(&kernel, grid, &Call::new(&all, call.positional(), Some(keywords.as_borrowed()))).map(Some)
}
