//! Caches data of a wrapper for calls of its kernel: shapes, keys, and added arguments.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple};
use pyo3::{Borrowed, intern};
use smallvec::SmallVec;
use tilewright_ir::Dtype;
use tilewright_runtime::Device;

use crate::values::call::Call;
use crate::values::torch::{self, Torch};

/// The shape of a call: the names and order of its arguments.
pub(crate) struct CallShape {
    /// The names of the arguments.
    names: Vec<Py<PyAny>>,
    /// The index in the call of each argument in the key of an autotuner.
    pub(crate) key: Vec<usize>,
    /// The index in the call of each argument that is a parameter of the kernel.
    pub(crate) parameters: Vec<usize>,
    /// The position in `parameters` of each argument of the call; `None` if the kernel has no such
    /// parameter.
    pub(crate) places: Vec<Option<usize>>,
    memo: Mutex<Memo>,
}

/// The cached results of earlier launches.
#[derive(Default)]
struct Memo {
    /// The latest dtype of each parameter, and the name of this dtype.
    dtypes: Vec<Option<(Py<PyAny>, Py<PyAny>)>>,
    /// The added names, and the keywords of the call followed by these names.
    keywords: Option<(Vec<Py<PyAny>>, Py<PyTuple>)>,
    /// The known keys of an autotuner, the latest last, with the values from which they were
    /// derived.
    keys: Vec<Arc<KnownKey>>,
    /// The template for the dicts of arguments that the functions of heuristics get.
    arguments: Option<Arc<Template>>,
    /// The added arguments of configurations, the latest configuration last.
    added: Vec<Arc<Added>>,
}

/// A dict with all names: the template for the dicts that the functions of heuristics get.
struct Template {
    dict: Py<PyDict>,
    /// The values of the plain arguments. The dict has `None` for others, so that it keeps no
    /// tensor alive.
    plain: Vec<Option<Py<PyAny>>>,
}

/// The arguments that a configuration adds to a call.
pub(crate) struct Added {
    /// The result of `Config._merge`: the added names, their values, the dict of the configuration
    /// and its size, and whether the configuration has a hook.
    merged: Py<PyTuple>,
    kwargs: Py<PyDict>,
    count: usize,
    names: Vec<Py<PyAny>>,
    pub(crate) values: Vec<Py<PyAny>>,
    /// The keywords of the call, then the added names.
    pub(crate) keywords: Py<PyTuple>,
}

impl Added {
    /// Returns whether the configuration still has these values, which a program may change.
    #[inline]
    fn is_of(&self, py: Python<'_>, merged: &Bound<'_, PyAny>) -> bool {
        let kwargs = self.kwargs.bind(py);
        let mut pairs = self.names.iter().zip(&self.values);
        self.merged.is(merged)
            && kwargs.len() == self.count
            && kwargs
                .iter()
                .all(|(name, value)| pairs.next().is_some_and(|(n, v)| n.is(&name) && v.is(&value)))
    }
}

/// The maximum number of cached configurations of a shape of a call.
const MAX_ADDED: usize = 8;

/// A key of an autotuner that an earlier launch looked up.
pub(crate) struct KnownKey {
    pub(crate) read: Read,
    /// The Python object that is the device of the first tensor.
    pub(crate) place: Py<PyAny>,
    pub(crate) key: Py<PyTuple>,
}

/// The maximum number of cached keys of a shape of a call.
const MAX_KEYS: usize = 8;

impl CallShape {
    pub(crate) fn new(
        call: &Call<'_, '_>,
        arg_names: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Self>> {
        let py = arg_names.py();
        let arg_names: Vec<String> = arg_names.extract()?;
        let mut names: Vec<String> = arg_names.iter().take(call.positional()).cloned().collect();
        if names.len() < call.positional() {
            // The kernel takes any number of arguments, or refuses these.
            return Ok(None);
        }
        names.extend(call.names()?);
        let mut objects: Vec<_> = names[..call.positional()]
            .iter()
            .map(|name| PyString::intern(py, name).into_any().unbind())
            .collect();
        objects.extend(call.keywords().iter().flat_map(|keywords| keywords.iter()).map(Bound::unbind));
        let number = |name: &String| names.iter().position(|other| other == name);
        let parameters: Vec<_> = (0..names.len()).filter(|&at| arg_names.contains(&names[at])).collect();
        let keys: Vec<String> = keys.map_or(Ok(vec![]), PyAnyMethods::extract)?;
        let key = keys.iter().filter(|name| arg_names.contains(name)).filter_map(number);
        Ok(Some(Self {
            names: objects,
            key: key.collect(),
            places: (0..names.len()).map(|number| parameters.iter().position(|&p| p == number)).collect(),
            parameters,
            memo: Mutex::default(),
        }))
    }

    /// Visits the kept objects for the garbage collector.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A thread that holds the lock keeps the objects alive.
        let Ok(memo) = self.memo.try_lock() else { return Ok(()) };
        for known in &memo.keys {
            visit.call(&known.place)?;
            visit.call(&known.key)?;
        }
        for added in &memo.added {
            visit.call(&added.kwargs)?;
            added.values.iter().try_for_each(|value| visit.call(value))?;
        }
        Ok(())
    }

    fn memo(&self) -> MutexGuard<'_, Memo> {
        self.memo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the keywords of the call, followed by added names; `None` if a name occurs twice.
    pub(crate) fn keywords<'py>(
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
        for (own, added) in own.iter().flat_map(|own| added.iter().map(move |added| (own, added))) {
            if own.is(added) || own.eq(added)? {
                return Ok(None);
            }
        }
        let all: Vec<_> = own.iter().chain(added).collect();
        let keywords = PyTuple::new(py, all)?;
        let added = added.iter().map(|name| Borrowed::to_owned(*name).unbind()).collect();
        let before = self.memo().keywords.replace((added, keywords.clone().unbind()));
        drop(before);
        Ok(Some(keywords))
    }

    /// Returns the key that was looked up for an earlier call with the same values.
    pub(crate) fn known_key(&self, read: &Read) -> Option<Arc<KnownKey>> {
        self.memo().keys.iter().find(|known| known.read == *read).map(Arc::clone)
    }

    /// Returns the known key of the same values as in this call, with any dtypes. Returns `None` if
    /// it is not unique, or if an argument in the key is neither a number nor `None`.
    #[inline]
    pub(crate) fn likely_key(&self, call: &Call<'_, '_>) -> Option<Arc<KnownKey>> {
        let mut values: SmallVec<[Number; 8]> = SmallVec::new();
        for &number in &self.key {
            values.push(Number::of(&call.values()[number])?);
        }
        let memo = self.memo();
        let mut likely = memo.keys.iter().filter(|known| known.read.values == values);
        let found = likely.next()?;
        likely.next().is_none().then(|| Arc::clone(found))
    }

    /// Keeps a key. If `cache` has an equal key, keeps that object, because a lookup by identity
    /// compares no items.
    pub(crate) fn remember(
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
        let oldest = (memo.keys.len() == MAX_KEYS).then(|| memo.keys.remove(0));
        memo.keys.push(known);
        // Dropping may run the program's code.
        drop(memo);
        drop(oldest);
    }

    /// Returns a dict for the functions of heuristics: the arguments of a call by name, `grid` and
    /// `warmup`.
    pub(crate) fn arguments<'py>(
        &self,
        call: &Call<'_, 'py>,
        grid: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = grid.py();
        let template = self.memo().arguments.clone();
        // A copy of a dict with all names need not grow, and most numbers are unchanged.
        let (arguments, plain) = match &template {
            Some(template) => (template.dict.bind(py).copy()?, &*template.plain),
            None => (PyDict::new(py), &[][..]),
        };
        for (number, (name, value)) in self.names.iter().zip(call.values()).enumerate() {
            if !plain.get(number).is_some_and(|plain| plain.as_ref().is_some_and(|plain| plain.is(value))) {
                arguments.set_item(name, value)?;
            }
        }
        arguments.set_item(intern!(py, "grid"), grid)?;
        if template.is_none() {
            arguments.set_item(intern!(py, "warmup"), PyBool::new(py, false))?;
            self.keep(call, &arguments)?;
        }
        Ok(arguments)
    }

    /// Keeps the arguments of the first launch as the template for the dicts of later launches.
    #[cold]
    fn keep(&self, call: &Call<'_, '_>, arguments: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = arguments.py();
        let dict = arguments.copy()?;
        dict.set_item(intern!(py, "grid"), py.None())?;
        let mut plain = vec![];
        for (name, value) in self.names.iter().zip(call.values()) {
            let is_plain = is_plain(value);
            if !is_plain {
                dict.set_item(name, py.None())?;
            }
            plain.push(is_plain.then(|| Borrowed::to_owned(*value).unbind()));
        }
        let template = Arc::new(Template { dict: dict.unbind(), plain });
        self.memo().arguments.get_or_insert(template);
        Ok(())
    }

    /// Returns the arguments that a configuration adds. Returns `None` if it has a hook before the
    /// launch, or sets an argument of the call.
    #[inline]
    pub(crate) fn added<'py>(
        &self,
        call: &Call<'_, 'py>,
        config: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Arc<Added>>> {
        let py = config.py();
        let merged = config.getattr(intern!(py, "_merged"))?;
        let known = self.memo().added.iter().find(|known| known.merged.is(&merged)).map(Arc::clone);
        match known.filter(|known| known.is_of(py, &merged)) {
            Some(known) => Ok(Some(known)),
            None => self.add(call, config, &merged),
        }
    }

    #[cold]
    fn add<'py>(
        &self,
        call: &Call<'_, 'py>,
        config: &Bound<'py, PyAny>,
        merged: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Arc<Added>>> {
        let py = config.py();
        let Some(parts) = merged_parts(config, merged)? else { return Ok(None) };
        let (names, values) =
            (parts.get_item(0)?.cast_into::<PyTuple>()?, parts.get_item(1)?.cast_into::<PyTuple>()?);
        let listed: SmallVec<[_; 16]> = names.iter_borrowed().collect();
        let Some(keywords) = self.keywords(py, call, &listed)? else { return Ok(None) };
        let Ok(kwargs) = parts.get_item(2)?.cast_into::<PyDict>() else { return Ok(None) };
        let added = Arc::new(Added {
            merged: parts.unbind(),
            count: kwargs.len(),
            kwargs: kwargs.unbind(),
            names: names.iter().map(Bound::unbind).collect(),
            values: values.iter().map(Bound::unbind).collect(),
            keywords: keywords.unbind(),
        });
        let mut memo = self.memo();
        let oldest = (memo.added.len() == MAX_ADDED).then(|| memo.added.remove(0));
        memo.added.push(Arc::clone(&added));
        drop(memo);
        drop(oldest);
        Ok(Some(added))
    }
}

/// Returns `str(dtype)` from the cache, because torch creates the string anew.
pub(crate) fn name_of<'py>(
    shape: &CallShape,
    at: usize,
    dtype: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static NAME_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = dtype.py();
    if let Some(Some((known, name))) = shape.memo().dtypes.get(at)
        && known.is(dtype)
    {
        return Ok(name.bind(py).clone());
    }
    let name_of = NAME_OF.import(py, "tilewright.runtime.autotuner", "_name_of")?;
    let name = name_of.call1((dtype,))?;
    let mut memo = shape.memo();
    if memo.dtypes.len() <= at {
        memo.dtypes.resize_with(at + 1, || None);
    }
    let before = memo.dtypes[at].replace((dtype.clone().unbind(), name.clone().unbind()));
    // Dropping may run the program's code.
    drop(memo);
    drop(before);
    Ok(name)
}

/// Returns the result of `Config._merge`, which the configuration keeps. Returns `None` if it has a
/// hook before the launch.
#[cold]
fn merged_parts<'py>(
    config: &Bound<'py, PyAny>,
    merged: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let py = config.py();
    if let Ok(merged) = merged.cast::<PyTuple>()
        && let Ok(kwargs) = merged.get_item(2)?.cast::<PyDict>()
    {
        let (names, values) = (merged.get_item(0)?.cast_into()?, merged.get_item(1)?.cast_into()?);
        // A program may change the dict itself.
        if kwargs.len() == merged.get_item(3)?.extract::<usize>()? && is_beginning(kwargs, &names, &values) {
            let has_hook = merged.get_item(4)?.is_truthy()?;
            return Ok((!has_hook).then(|| merged.clone()));
        }
    }
    if !config.getattr(intern!(py, "pre_hook"))?.is_none() {
        return Ok(None);
    }
    config.call_method0(intern!(py, "_merge"))?;
    Ok(config.getattr(intern!(py, "_merged"))?.cast_into::<PyTuple>().ok())
}

/// Returns whether the items of a dict are the same objects as the first items of two tuples.
fn is_beginning(kwargs: &Bound<'_, PyDict>, names: &Bound<'_, PyTuple>, values: &Bound<'_, PyTuple>) -> bool {
    let mut pairs = names.iter_borrowed().zip(values.iter_borrowed());
    kwargs.iter().all(|(name, value)| pairs.next().is_some_and(|(n, v)| n.is(&name) && v.is(&value)))
}

/// The values on which the key of an autotuner depends, read without calling Python code.
#[derive(PartialEq)]
pub(crate) struct Read {
    /// The values of the key's arguments.
    values: SmallVec<[Number; 8]>,
    /// The dtypes of the parameters that are tensors; `None` for numbers.
    pub(crate) dtypes: SmallVec<[Option<Dtype>; 16]>,
    /// The device of the first tensor.
    pub(crate) device: Option<Device>,
}

/// The value of an argument in the key.
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

impl Read {
    /// Reads the arguments of a call. Returns `None` in these cases:
    ///
    /// - An argument in the key is neither a number nor `None`.
    /// - Another parameter is neither plain nor a tensor of torch.
    /// - Torch is not imported.
    /// - Our `TorchFunctionMode`, which emulates `cuda` on the CPU, is on.
    #[inline]
    pub(crate) fn of(py: Python<'_>, shape: &CallShape, call: &Call<'_, '_>) -> Option<Self> {
        let torch = Torch::get(py).filter(|_| !torch::is_watched())?;
        let values = shape.key.iter().map(|&number| Number::of(&call.values()[number]));
        let mut device = None;
        let dtypes = shape.parameters.iter().map(|&number| {
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

/// Returns whether a value is a number, a string or `None`. These have no dtype.
pub(crate) fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyString>()
        || value.is_none()
}
