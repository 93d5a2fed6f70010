//! Numbers for Python objects that only Python understands, by which the compiler knows them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyException, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use tilewright_frontend::ObjectRef;

/// Numbers for objects. Objects that are equal in every part have one number, so that a value of a
/// user's class is the same compile-time value each time it is passed. An object is kept as long as
/// code may have been compiled for it, which is until the program ends; there are as many as there
/// are compiled forms and names that these read.
struct Registry {
    /// From `(type, object)`, or from the address of an object without a hash, to the first of its
    /// numbers.
    numbers: Py<PyDict>,
    objects: Mutex<Vec<Numbered>>,
}

struct Numbered {
    object: Py<PyAny>,
    /// Another object that Python calls equal, and that differs in a part, such as `2` from `2.0`.
    next: Option<u32>,
}

static REGISTRY: PyOnceLock<Registry> = PyOnceLock::new();

fn registry(py: Python<'_>) -> &'static Registry {
    REGISTRY.get_or_init(py, || Registry { numbers: PyDict::new(py).unbind(), objects: Mutex::default() })
}

impl Registry {
    fn objects(&self) -> MutexGuard<'_, Vec<Numbered>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get<'py>(&self, py: Python<'py>, number: u32) -> Option<(Bound<'py, PyAny>, Option<u32>)> {
        self.objects().get(number as usize).map(|known| (known.object.bind(py).clone(), known.next))
    }

    fn add(&self, object: &Bound<'_, PyAny>) -> u32 {
        let mut objects = self.objects();
        objects.push(Numbered { object: object.clone().unbind(), next: None });
        objects.len() as u32 - 1
    }
}

/// The number of an object, which is kept alive from now on.
pub(crate) fn object_ref(object: &Bound<'_, PyAny>) -> PyResult<ObjectRef> {
    let py = object.py();
    let registry = registry(py);
    let numbers = registry.numbers.bind(py);
    let by_value = PyTuple::new(py, [object.get_type().as_any(), object])?.into_any();
    let key = match by_value.hash() {
        Ok(_) => by_value,
        Err(_) => PyInt::new(py, object.as_ptr().addr()).into_any(),
    };
    let Some(first) = numbers.get_item(&key)? else {
        let number = registry.add(object);
        numbers.set_item(key, number)?;
        return Ok(ObjectRef(number));
    };
    let mut number = first.extract()?;
    while let Some((known, next)) = registry.get(py, number) {
        if is_same(&known, object, MAX_NESTED)? {
            return Ok(ObjectRef(number));
        }
        match next {
            Some(next) => number = next,
            None => break,
        }
    }
    let added = registry.add(object);
    // Another thread may have added one meanwhile; then an equal object may get a number of its
    // own, which costs no more than a compilation.
    if let Some(last) = registry.objects().get_mut(number as usize) {
        last.next.get_or_insert(added);
    }
    Ok(ObjectRef(added))
}

const MAX_NESTED: u32 = 8;

/// Returns whether two objects are the same in every part: Python's `==` says so of `2` and `2.0`,
/// which kernels compute with in different types. The parts of an object are those that Python
/// would copy it by.
fn is_same(one: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>, depth: u32) -> PyResult<bool> {
    if one.is(other) {
        return Ok(true);
    }
    if depth == 0 || !one.get_type().is(other.get_type()) {
        return Ok(false);
    }
    if one.is_exact_instance_of::<PyFloat>() {
        return Ok(one.extract::<f64>()?.to_bits() == other.extract::<f64>()?.to_bits());
    }
    if one.is_exact_instance_of::<PyInt>() || one.is_exact_instance_of::<PyString>() {
        return one.eq(other);
    }
    if one.is_exact_instance_of::<PyTuple>() || one.is_exact_instance_of::<PyList>() {
        return is_same_sequence(one, other, depth);
    }
    if let (Ok(one), Ok(other)) = (one.cast_exact::<PyDict>(), other.cast_exact::<PyDict>()) {
        return is_same_sequence(one.items().as_any(), other.items().as_any(), depth);
    }
    let py = one.py();
    let reduce = intern!(py, "__reduce_ex__");
    let one = quiet(py, one.call_method1(reduce, (2,)))?;
    let other = quiet(py, other.call_method1(reduce, (2,)))?;
    let (Some(one), Some(other)) = (one, other) else { return Ok(false) };
    // A text is a global variable: an object that exists once. Items of lists and dicts come by
    // iterators.
    let has_items = |parts: &Bound<'_, PyTuple>| parts.iter().skip(3).any(|items| !items.is_none());
    match (one.cast::<PyTuple>(), other.cast::<PyTuple>()) {
        (Ok(one), Ok(other)) if !has_items(one) && !has_items(other) => {
            is_same_sequence(one.as_any(), other.as_any(), depth)
        }
        _ => Ok(false),
    }
}

fn is_same_sequence(one: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>, depth: u32) -> PyResult<bool> {
    if one.len()? != other.len()? {
        return Ok(false);
    }
    for (one, other) in one.try_iter()?.zip(other.try_iter()?) {
        if !is_same(&one?, &other?, depth - 1)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns a value, or nothing after an exception; Ctrl-C stays an error.
fn quiet<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The object with a number.
pub(crate) fn object(py: Python<'_>, number: ObjectRef) -> PyResult<Bound<'_, PyAny>> {
    let found = registry(py).get(py, number.0).map(|(object, _)| object);
    found.ok_or_else(|| PyValueError::new_err("an object of another program"))
}
