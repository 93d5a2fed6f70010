//! Launches of kernels whose compile-time arguments are chosen for them: the bases of Python's `Autotuner` and `Heuristics`.
//!
//! What is usual is done here, without a frame of Python's: the choice for the arguments is known, and no hook wants to be called.
//! In all other cases, Python's `run` does the launch, and says what it means.

mod form;

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{Borrowed, intern};
use smallvec::SmallVec;
use tilewright_ir::Dtype;
use tilewright_runtime::{Device, Value};

use crate::launcher::{Call, launcher, start};
use crate::torch::{self, Torch};
use form::{Form, name_of};

/// A kernel, or another wrapper, that is launched with more keyword arguments than the program gives.
#[pyclass(subclass, dict, weakref, frozen, module = "tilewright._native")]
#[derive(Default)]
pub(crate) struct Wrapper {
    /// Which of the constants below.
    kind: AtomicU8,
    /// The forms of calls that were met, first those that are set.
    forms: [OnceLock<Form>; MOST_FORMS],
    /// Its `__dict__`, which is asked at less cost than the object.
    attributes: OnceLock<Py<PyDict>>,
    /// What launches need of its attributes, until one of them is set.
    settings: Mutex<Option<Arc<Settings>>>,
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

/// The attributes that launches need.
struct Settings {
    /// What is launched: `fn`.
    kernel: Py<PyAny>,
    /// Of an autotuner: `configs`, `cache` and `_place`. Of heuristics: `values`.
    others: [Option<Py<PyAny>>; 3],
}

impl Settings {
    /// The attributes besides `fn`, by the kind of the wrapper.
    fn names(kind: u8) -> &'static [&'static str] {
        match kind {
            AUTOTUNER => &["configs", "cache", "_place"],
            _ => &["values"],
        }
    }

    /// One of the attributes besides `fn`.
    fn other<'a, 'py>(&'a self, py: Python<'py>, number: usize) -> PyResult<&'a Bound<'py, PyAny>> {
        let found = self.others[number].as_ref().map(|object| object.bind(py));
        found
            .ok_or_else(|| PyTypeError::new_err("the attributes of an autotuner are not those of heuristics"))
    }
}

/// What the key of an autotuner depends on, where it is read without asking Python.
#[derive(PartialEq)]
struct Read {
    /// The values of the key's arguments.
    values: SmallVec<[Number; 8]>,
    /// The dtypes of the tensors; nothing for what is a number.
    dtypes: SmallVec<[Option<Dtype>; 16]>,
    /// Where the first tensor is.
    device: Option<Device>,
}

/// The value of an argument that a key has.
#[derive(PartialEq)]
enum Number {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
}

impl Number {
    #[inline]
    fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        if object.is_exact_instance_of::<PyInt>() {
            return object.extract().ok().map(Self::Int);
        }
        if object.is_exact_instance_of::<PyBool>() {
            return object.is_truthy().ok().map(Self::Bool);
        }
        if object.is_exact_instance_of::<PyFloat>() {
            return object.extract().ok().map(Self::Float);
        }
        object.is_none().then_some(Self::None)
    }
}

/// What the dtypes of a call's arguments are taken to be, until the launch has read them.
pub(crate) struct Expected<'a> {
    form: &'a Form,
    read: &'a Read,
    is_met: Cell<bool>,
}

impl Expected<'_> {
    /// Compares with what a launch has read, which is told of each value the number of its argument in the call.
    #[inline]
    pub(crate) fn check<'v>(&self, mut values: impl Iterator<Item = (usize, &'v Value<'static>)>) -> bool {
        let is_met = values.all(|(number, value)| {
            let Some(&Some(at)) = self.form.places.get(number) else { return true };
            match value {
                Value::Pointer(pointer) => {
                    self.read.dtypes[at] == Some(pointer.pointee) && self.read.device == Some(pointer.device)
                }
                _ => self.read.dtypes[at].is_none(),
            }
        });
        self.is_met.set(is_met);
        is_met
    }
}

impl Read {
    /// Of the arguments of a call; nothing if one is neither a number nor a plain tensor.
    #[inline]
    fn of(py: Python<'_>, form: &Form, call: &Call<'_, '_>) -> Option<Self> {
        let torch = Torch::get(py).filter(|_| !torch::is_watched())?;
        let values = form.key.iter().map(|&number| Number::of(&call.values()[number]));
        let mut device = None;
        let dtypes = form.parameters.iter().map(|&number| {
            let value = call.values()[number];
            if let Some(tensor) = torch.describe(&value) {
                device.get_or_insert(tensor.device);
                return Some(Some(tensor.dtype));
            }
            is_plain(&value).then_some(None)
        });
        let (values, dtypes) = (values.collect::<Option<_>>()?, dtypes.collect::<Option<_>>()?);
        Some(Self { values, dtypes, device })
    }
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
        self.forget_settings();
    }

    /// Says that an attribute is another.
    #[pyo3(name = "_forget_settings")]
    fn forget_settings(&self) {
        let before = self.settings.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Dropping may run the program's code.
        drop(before);
    }

    /// `kernel[grid]`: what launches with this grid.
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
        for form in self.forms.iter().map_while(OnceLock::get) {
            form.visit(&visit)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        if self.is_made {
            self.forget_settings();
        }
    }
}

/// `wrapper[grid](...)`.
pub(crate) fn launch<'py>(
    wrapper: &Bound<'py, Wrapper>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Py<PyAny>> {
    let launched = match wrapper.get().kind.load(Ordering::Relaxed) {
        HEURISTICS => launch_heuristics(wrapper, grid, call)?,
        AUTOTUNER if call.expected().is_none() => launch_autotuner(wrapper, grid, call)?,
        _ => None,
    };
    match launched {
        Some(result) => Ok(result),
        // Nobody here compares the arguments with what is expected, so that nothing is launched.
        None if call.expected().is_some() => Ok(wrapper.py().None()),
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

/// An attribute of a wrapper.
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

/// The attributes that a launch needs.
#[inline]
fn settings(wrapper: &Bound<'_, Wrapper>) -> PyResult<Arc<Settings>> {
    let known =
        wrapper.get().settings.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Arc::clone);
    // Programs put another kernel into the dict as well, past the attribute.
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
    for (other, name) in others.iter_mut().zip(Settings::names(wrapper.get().kind.load(Ordering::Relaxed))) {
        *other = Some(attribute(wrapper, &PyString::intern(py, name))?.unbind());
    }
    let kernel = attribute(wrapper, intern!(py, "fn"))?.unbind();
    let found = Arc::new(Settings { kernel, others });
    *wrapper.get().settings.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&found));
    Ok(found)
}

/// Launches with the configuration that was chosen for arguments like these; nothing if there is more to do than that.
fn launch_autotuner<'py>(
    wrapper: &Bound<'py, Wrapper>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = wrapper.py();
    let Some(form) = form(wrapper, call)? else { return Ok(None) };
    let settings = settings(wrapper)?;
    let kernel = settings.kernel.bind(py);
    let launch = |config: &Bound<'py, PyAny>, expected: Option<&Expected<'_>>| {
        launch_config(wrapper, form, (kernel, grid, call), config, expected)
    };
    let configs = settings.other(py, 0)?;
    if let Ok(configs) = configs.cast::<PyList>()
        && configs.len() == 1
    {
        return launch(&configs.get_item(0)?, None);
    }
    let Ok(cache) = settings.other(py, 1)?.cast::<PyDict>() else { return Ok(None) };
    let place = settings.other(py, 2)?;
    // The key has the dtypes of all tensors, which the launch reads anyway.
    if let Some(known) = form.likely_key(call)
        && known.place.is(place)
        && !torch::is_watched()
        && let Some(config) = cache.get_item(&known.key)?
    {
        let expected = Expected { form, read: &known.read, is_met: Cell::new(false) };
        let launched = launch(&config, Some(&expected))?;
        if expected.is_met.get() {
            return Ok(launched);
        }
    }
    match choice(form, call, cache, place)? {
        Some(config) => launch(&config, None),
        None => Ok(None),
    }
}

/// Launches with a configuration; nothing if there is more to do than that.
#[inline]
fn launch_config<'py>(
    wrapper: &Bound<'py, Wrapper>,
    form: &Form,
    (kernel, grid, call): (&Bound<'py, PyAny>, &Bound<'py, PyAny>, &Call<'_, 'py>),
    config: &Bound<'py, PyAny>,
    expected: Option<&Expected<'_>>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = wrapper.py();
    let Some(added) = form.added(call, config)? else { return Ok(None) };
    let best_config = intern!(py, "best_config");
    if !attribute(wrapper, best_config)?.is(config) {
        match wrapper.get().attributes.get() {
            // Past `__setattr__`, which forgets what is known of all attributes.
            Some(attributes) if attributes.bind(py).contains(best_config)? => {
                attributes.bind(py).set_item(best_config, config)?;
            }
            _ => wrapper.setattr(best_config, config)?,
        }
    }
    let mut all: SmallVec<[Borrowed<'_, 'py, PyAny>; 32]> = SmallVec::from_slice(call.values());
    for value in &added.values {
        all.push(value.bind_borrowed(py));
    }
    let keywords = added.keywords.bind_borrowed(py);
    let call = Call::new(&all, call.positional(), Some(keywords), expected);
    start(kernel, grid, &call).map(Some)
}

/// What was chosen for the values of the key's arguments, and the dtypes of all.
#[cold]
fn choice<'py>(
    form: &Form,
    call: &Call<'_, 'py>,
    cache: &Bound<'py, PyDict>,
    known_place: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = cache.py();
    let read = Read::of(py, form, call);
    if let Some(known) = read.as_ref().and_then(|read| form.known_key(read))
        && known.place.is(known_place)
    {
        return cache.get_item(&known.key);
    }
    let Some((place, key)) = key(form, call)? else { return Ok(None) };
    let place = place.unwrap_or_else(|| py.None().into_bound(py));
    if !known_place.is(&place) && !known_place.eq(&place)? {
        return Ok(None);
    }
    let key = PyTuple::new(py, key)?;
    match cache.get_item(&key) {
        // A list in the key, for instance.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(None),
        Ok(Some(config)) => {
            if let Some(read) = read {
                form.remember(read, known_place, &key, cache);
            }
            Ok(Some(config))
        }
        found => found,
    }
}

/// Where a tensor is, and the items of the key.
type Key<'py> = (Option<Bound<'py, PyAny>>, SmallVec<[Bound<'py, PyAny>; 16]>);

/// The key of an autotuner for a call, as Python makes it, and where the first tensor is.
#[cold]
fn key<'py>(form: &Form, call: &Call<'_, 'py>) -> PyResult<Option<Key<'py>>> {
    let mut key: SmallVec<[Bound<'py, PyAny>; 16]> = SmallVec::new();
    key.extend(form.key.iter().map(|&number| call.values()[number].to_owned()));
    let mut place = None;
    for (at, &number) in form.parameters.iter().enumerate() {
        let value = call.values()[number];
        let py = value.py();
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
    Ok(Some((place, key)))
}

/// Whether it is a number, a text or nothing, which have no dtype.
fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyString>()
        || value.is_none()
}

/// Launches with the computed arguments.
fn launch_heuristics<'py>(
    wrapper: &Bound<'py, Wrapper>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = wrapper.py();
    let Some(form) = form(wrapper, call)? else { return Ok(None) };
    let settings = settings(wrapper)?;
    let Ok(functions) = settings.other(py, 0)?.cast::<PyDict>() else { return Ok(None) };
    let (mut names, mut calls) = (SmallVec::<[Bound<'py, PyAny>; 8]>::new(), SmallVec::<[_; 8]>::new());
    for (name, function) in functions {
        names.push(name);
        calls.push(function);
    }
    let borrowed: SmallVec<[_; 8]> = names.iter().map(Bound::as_borrowed).collect();
    // What the program passes is computed all the same, and takes the place of it: nothing is launched here then.
    let Some(keywords) = form.keywords(py, call, &borrowed)? else { return Ok(None) };
    let arguments = form.arguments(call, grid)?;
    let mut computed: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
    for (number, function) in calls.iter().enumerate() {
        let value = function.call1((&arguments,))?;
        if number + 1 < calls.len() {
            // Each sees what those before it computed.
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
