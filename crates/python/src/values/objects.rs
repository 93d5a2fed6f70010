//! Assigns a number to each Python object that only Python understands.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyException, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use tilewright_frontend::ObjectRef;

/// The numbers of objects, by which the compiler refers to them.
///
/// Hashable objects that are equal in every part have one number, and each object without a hash
/// has its own. An object is kept until the program ends, because code may depend on it.
struct Registry {
    /// Maps `(type, object)`, or the address of an object without a hash, to the first number for
    /// that key.
    numbers: Py<PyDict>,
    objects: Mutex<Vec<Numbered>>,
}

struct Numbered {
    object: Py<PyAny>,
    /// The next number with the same key. Python considers the objects equal, but a part differs:
    /// `(2,)` and `(2.0,)`.
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

/// Returns the number of an object, and keeps the object alive from now on.
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
    // Another thread may have added an equal object. Two numbers cost only another compilation.
    if let Some(last) = registry.objects().get_mut(number as usize) {
        last.next.get_or_insert(added);
    }
    Ok(ObjectRef(added))
}

const MAX_NESTED: u32 = 8;

/// Returns whether two objects are the same in every part. Returns false for distinct objects that
/// cannot be compared, or that are nested more than `depth` deep.
///
/// Python's `==` is not enough: `2 == 2.0`, but kernels compute in different types. The parts are
/// those of a copy (`__reduce_ex__`).
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
    // A string names a global variable whose only value is the object. The items of an object
    // derived from a list or dict are iterators, which cannot be compared.
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

/// Returns the value of a result, or `None` after an exception. Ctrl-C remains an error.
fn quiet<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the object with a number.
pub(crate) fn object(py: Python<'_>, number: ObjectRef) -> PyResult<Bound<'_, PyAny>> {
    let found = registry(py).get(py, number.0).map(|(object, _)| object);
    found.ok_or_else(|| PyValueError::new_err(format!("this process has no object {}", number.0)))
}
