//! Launches of kernels whose compile-time arguments are chosen for them: the bases of Python's `Autotuner` and `Heuristics`.
//!
//! What is usual is done here, without a frame of Python's: the choice for the arguments is known, and no hook wants to be called.
//! In all other cases, Python's `run` does the launch, and says what it means.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{Borrowed, intern};
use smallvec::SmallVec;
use tilewright_ir::Dtype;
use tilewright_runtime::{Device, Value};

use crate::kernel::JitKernel;
use crate::launcher::{Call, launcher, start};
use crate::torch::{self, Torch};

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
    /// Of each argument, where among the former it is.
    places: Vec<Option<usize>>,
    memo: Mutex<Memo>,
}

/// What the latest launches have found.
#[derive(Default)]
struct Memo {
    /// The dtypes of the parameters, and their names.
    dtypes: Vec<Option<(Py<PyAny>, Py<PyAny>)>>,
    /// The names that were added, and all keywords with them.
    keywords: Option<(Vec<Py<PyAny>>, Py<PyTuple>)>,
    /// The keys of an autotuner, by what launches read of their arguments; the latest one last.
    keys: Vec<Arc<KnownKey>>,
    /// The arguments of a heuristic by name, without values.
    arguments: Option<Py<PyDict>>,
}

/// A key of an autotuner that was looked up before.
struct KnownKey {
    read: Read,
    /// Where the first tensor is, as Python says it.
    place: Py<PyAny>,
    key: Py<PyTuple>,
}

/// The most keys that a form of a call remembers.
const MOST_KEYS: usize = 8;

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
        for form in self.forms.iter().map_while(OnceLock::get) {
            visit.call(&form.keywords)?;
            // Another thread may be about to change it, in which case its objects are in use.
            let Ok(memo) = form.memo.try_lock() else { continue };
            for known in &memo.keys {
                visit.call(&known.place)?;
                visit.call(&known.key)?;
            }
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
        let parameters: Vec<_> = (0..names.len()).filter(|&at| arg_names.contains(&names[at])).collect();
        let keys: Vec<String> = keys.map_or(Ok(vec![]), PyAnyMethods::extract)?;
        let key = keys.iter().filter(|name| arg_names.contains(name)).filter_map(number);
        Ok(Some(Self {
            positional: call.positional(),
            keywords: call.keywords().map(|keywords| keywords.to_owned().unbind()),
            key: key.collect(),
            places: (0..names.len()).map(|number| parameters.iter().position(|&p| p == number)).collect(),
            parameters,
            memo: Mutex::default(),
        }))
    }

    fn memo(&self) -> MutexGuard<'_, Memo> {
        self.memo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keywords of the call with more behind them; nothing if one of these is among them already.
    fn keywords<'py>(
        &self,
        py: Python<'py>,
        call: &Call<'_, 'py>,
        added: &[Borrowed<'_, 'py, PyAny>],
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if let Some((known, keywords)) = &self.memo().keywords
            && known.len() == added.len()
            && known.iter().zip(added).all(|(known, added)| known.is(added))
        {
            return Ok(Some(keywords.bind(py).clone()));
        }
        let own = call.keywords();
        let own: Vec<_> = own.iter().flat_map(|keywords| keywords.iter_borrowed()).collect();
        if own.iter().any(|own| added.iter().any(|added| added.is(own))) {
            return Ok(None);
        }
        let all: Vec<_> = own.iter().chain(added).collect();
        let keywords = PyTuple::new(py, all)?;
        let added = added.iter().map(|name| Borrowed::to_owned(*name).unbind()).collect();
        let before = self.memo().keywords.replace((added, keywords.clone().unbind()));
        drop(before);
        Ok(Some(keywords))
    }

    /// The key that an autotuner looks up for a call that reads as one before.
    fn known_key(&self, read: &Read) -> Option<Arc<KnownKey>> {
        self.memo().keys.iter().find(|known| known.read == *read).map(Arc::clone)
    }

    /// The only key with such values that was looked up so far, whatever the dtypes were.
    #[inline]
    fn likely_key(&self, call: &Call<'_, '_>) -> Option<Arc<KnownKey>> {
        let mut values: SmallVec<[Number; 8]> = SmallVec::new();
        for &number in &self.key {
            values.push(Number::of(&call.values()[number])?);
        }
        let memo = self.memo();
        let mut likely = memo.keys.iter().filter(|known| known.read.values == values);
        let found = likely.next()?;
        likely.next().is_none().then(|| Arc::clone(found))
    }

    /// Remembers a key. It is kept as the cache has it, which is compared with itself at no cost.
    fn remember(
        &self,
        read: Read,
        place: &Bound<'_, PyAny>,
        key: &Bound<'_, PyTuple>,
        cache: &Bound<'_, PyDict>,
    ) {
        let mut kept = key.clone();
        for known in cache.keys() {
            if let Ok(known) = known.cast_into::<PyTuple>()
                && known.eq(key).unwrap_or(false)
            {
                kept = known;
            }
        }
        let known = Arc::new(KnownKey { read, place: place.clone().unbind(), key: kept.unbind() });
        let mut memo = self.memo();
        let oldest = (memo.keys.len() == MOST_KEYS).then(|| memo.keys.remove(0));
        memo.keys.push(known);
        // Dropping may run the program's code.
        drop(memo);
        drop(oldest);
    }

    /// A dict for the functions of heuristics with the arguments of a call by name, and all names that a launch gives besides.
    fn arguments<'py>(
        &self,
        call: &Call<'_, 'py>,
        arg_names: &Bound<'py, PyList>,
        grid: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = arg_names.py();
        let known = self.memo().arguments.as_ref().map(|known| known.clone_ref(py));
        // A copy of a dict with all names has its room at once.
        let arguments = match known {
            Some(known) => known.bind(py).copy()?,
            None => PyDict::new(py),
        };
        let is_new = arguments.is_empty();
        for (name, value) in arg_names.iter().zip(&call.values()[..call.positional()]) {
            arguments.set_item(name, value)?;
        }
        let keywords = call.keywords();
        for (number, name) in keywords.iter().flat_map(|keywords| keywords.iter_borrowed()).enumerate() {
            arguments.set_item(name, call.named(number))?;
        }
        arguments.set_item(intern!(py, "grid"), grid)?;
        arguments.set_item(intern!(py, "warmup"), PyBool::new(py, false))?;
        if is_new {
            // Of the names alone: it must keep no tensor alive.
            let names = PyDict::new(py);
            arguments.keys().iter().try_for_each(|name| names.set_item(name, py.None()))?;
            self.memo().arguments.get_or_insert(names.unbind());
        }
        Ok(arguments)
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

/// Launches with the configuration that was chosen for arguments like these; nothing if there is more to do than that.
fn launch_autotuner<'py>(
    wrapper: &Bound<'py, Wrapper>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = wrapper.py();
    let Some(form) = form(wrapper, call)? else { return Ok(None) };
    let kernel = attribute(wrapper, intern!(py, "fn"))?;
    let launch = |config: &Bound<'py, PyAny>, expected: Option<&Expected<'_>>| {
        launch_config(wrapper, form, (&kernel, grid, call), config, expected)
    };
    let configs = attribute(wrapper, intern!(py, "configs"))?;
    if let Ok(configs) = configs.cast::<PyList>()
        && configs.len() == 1
    {
        return launch(&configs.get_item(0)?, None);
    }
    let cache = attribute(wrapper, intern!(py, "cache"))?;
    let Ok(cache) = cache.cast::<PyDict>() else { return Ok(None) };
    let place = attribute(wrapper, intern!(py, "_place"))?;
    // The key has the dtypes of all tensors, which the launch reads anyway.
    if let Some(known) = form.likely_key(call)
        && known.place.is(&place)
        && reads_tensors(&kernel)?
        && let Some(config) = cache.get_item(&known.key)?
    {
        let expected = Expected { form, read: &known.read, is_met: Cell::new(false) };
        let launched = launch(&config, Some(&expected))?;
        if expected.is_met.get() {
            return Ok(launched);
        }
    }
    match choice(form, call, cache, &place)? {
        Some(config) => launch(&config, None),
        None => Ok(None),
    }
}

/// Whether what is launched reads the tensors that it is given as a launch does, and compares them with what is expected.
fn reads_tensors(kernel: &Bound<'_, PyAny>) -> PyResult<bool> {
    if kernel.is_instance_of::<JitKernel>() {
        return Ok(!torch::is_watched());
    }
    match kernel.cast::<Wrapper>() {
        Ok(beneath) if beneath.get().kind.load(Ordering::Relaxed) == HEURISTICS => {
            reads_tensors(&attribute(beneath, intern!(kernel.py(), "fn"))?)
        }
        _ => Ok(false),
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
    let Some((names, values)) = arguments_of(config)? else { return Ok(None) };
    let names: SmallVec<[_; 16]> = names.iter_borrowed().collect();
    let Some(keywords) = form.keywords(py, call, &names)? else { return Ok(None) };
    let best_config = intern!(py, "best_config");
    if !attribute(wrapper, best_config)?.is(config) {
        wrapper.setattr(best_config, config)?;
    }
    let mut all: SmallVec<[Borrowed<'_, 'py, PyAny>; 32]> = call.values().iter().copied().collect();
    all.extend(values.iter_borrowed());
    let call = Call::new(&all, call.positional(), Some(keywords.as_borrowed()), expected);
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

/// `str(dtype)`, which torch makes anew each time.
fn name_of<'py>(form: &Form, at: usize, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static NAME_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = dtype.py();
    if let Some(Some((known, name))) = form.memo().dtypes.get(at)
        && known.is(dtype)
    {
        return Ok(name.bind(py).clone());
    }
    let name_of = NAME_OF.import(py, "tilewright.runtime.autotuner", "_name_of")?;
    let name = name_of.call1((dtype,))?;
    let mut memo = form.memo();
    if memo.dtypes.len() <= at {
        memo.dtypes.resize_with(at + 1, || None);
    }
    let before = memo.dtypes[at].replace((dtype.clone().unbind(), name.clone().unbind()));
    // Dropping may run the program's code.
    drop(memo);
    drop(before);
    Ok(name)
}

/// The names and the values that a configuration adds to a launch; nothing if it wants a function called before. It keeps them
/// until it is changed.
fn arguments_of<'py>(
    config: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)>> {
    let py = config.py();
    let merged = config.getattr(intern!(py, "_merged"))?;
    if let Ok(merged) = merged.cast::<PyTuple>()
        && let Ok(kwargs) = merged.get_item(2)?.cast::<PyDict>()
    {
        let (names, values) = (merged.get_item(0)?.cast_into()?, merged.get_item(1)?.cast_into()?);
        // A program may change the dict itself.
        if kwargs.len() == merged.get_item(3)?.extract::<usize>()? && is_beginning(kwargs, &names, &values) {
            let has_hook = merged.get_item(4)?.is_truthy()?;
            return Ok((!has_hook).then_some((names, values)));
        }
    }
    if !config.getattr(intern!(py, "pre_hook"))?.is_none() {
        return Ok(None);
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
    let arg_names = attribute(wrapper, intern!(py, "arg_names"))?;
    let functions = attribute(wrapper, intern!(py, "values"))?;
    let (Ok(arg_names), Ok(functions)) = (arg_names.cast::<PyList>(), functions.cast::<PyDict>()) else {
        return Ok(None);
    };
    let keywords = call.keywords();
    for name in keywords.iter().flat_map(|keywords| keywords.iter_borrowed()) {
        if functions.contains(name)? {
            // What the program passes is computed all the same, and takes the place of it.
            return Ok(None);
        }
    }
    let arguments = form.arguments(call, arg_names, grid)?;
    let mut names: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
    let mut computed: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
    for (name, function) in functions {
        // Each sees what those before it computed.
        let value = function.call1((&arguments,))?;
        arguments.set_item(&name, &value)?;
        names.push(name);
        computed.push(value);
    }
    let names: SmallVec<[_; 8]> = names.iter().map(Bound::as_borrowed).collect();
    let Some(keywords) = form.keywords(py, call, &names)? else { return Ok(None) };
    let kernel = attribute(wrapper, intern!(py, "fn"))?;
    let mut all: SmallVec<[Borrowed<'_, 'py, PyAny>; 32]> = call.values().iter().copied().collect();
    all.extend(computed.iter().map(|value| value.as_borrowed()));
    let call = Call::new(&all, call.positional(), Some(keywords.as_borrowed()), call.expected());
    start(&kernel, grid, &call).map(Some)
}
