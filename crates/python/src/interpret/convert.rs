//! Converts between Python objects of an interpreted body and operands of the language.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use tilewright_frontend::{Constant, HostValue, Operand, Tuple, operand_of, semantic, tuple_operand};
use tilewright_ir::Literal;
use tilewright_runtime::interpret::Tile;

use super::objects::{LanguageCall, Structure, Tensor, Transition};
use crate::values::aggregate;
use crate::values::classify::{Classes, classify, fields, plain};
use crate::values::objects::{object, object_ref};
use crate::values::to_python::{self, host_value_to_python, tuple_to_python};

/// Converts a plain Python number, or Python's `None`, to a constant. Returns `None` for other
/// objects and for ints beyond 64 bits.
pub(crate) fn number(object: &Bound<'_, PyAny>) -> Option<Constant> {
    if object.is_exact_instance_of::<PyInt>() {
        return object.extract::<i64>().ok().map(|value| Constant::Int(value.into()));
    }
    if object.is_exact_instance_of::<PyFloat>() {
        return object.extract().ok().map(Constant::Float);
    }
    if object.is_exact_instance_of::<PyBool>() {
        return object.is_truthy().ok().map(Constant::Bool);
    }
    object.is_none().then_some(Constant::None)
}

/// Converts an object to an operand.
pub(crate) fn to_operand(object: &Bound<'_, PyAny>) -> PyResult<Operand<Tile>> {
    if let Ok(tensor) = object.cast_exact::<Tensor>() {
        return tensor.get().operand();
    }
    if let Some(constant) = number(object) {
        return Ok(Operand::Constant(constant));
    }
    if let Ok(structure) = object.cast_exact::<Structure>() {
        return structure.get().operand();
    }
    if let Ok(function) = object.cast::<LanguageCall>() {
        return Ok(function.get().operand());
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        let items = tuple.iter_borrowed().map(|item| to_operand(&item)).collect::<PyResult<Vec<_>>>()?;
        return Ok(tuple_operand(Tuple::new(items, fields(tuple)?)));
    }
    if let Ok(list) = object.cast::<PyList>() {
        let items = list.iter().map(|item| to_operand(&item)).collect::<PyResult<Vec<_>>>()?;
        return Ok(tuple_operand(Tuple::from(items)));
    }
    if let Some(constant) = plain(object) {
        return Ok(Operand::Constant(constant));
    }
    if let Some((fields, items)) = aggregate::instance(object)? {
        let items = items.iter_borrowed().map(|item| to_operand(&item)).collect::<PyResult<Vec<_>>>()?;
        let class = object_ref(object.get_type().as_any())?;
        return Ok(tuple_operand(Tuple::instance(items, fields, class)));
    }
    Ok(operand_of(classify(object)?))
}

/// Converts an operand to an object.
pub(crate) fn to_python<'py>(py: Python<'py>, operand: &Operand<Tile>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match operand {
        Operand::Tensor(tile) => Bound::new(py, Tensor::new(tile.clone()))?.into_any(),
        Operand::Constant(constant) => to_python::to_python(py, constant)?,
        Operand::Tuple(items) => {
            let values = items.iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            tuple_to_python(py, items, values)?
        }
        Operand::Descriptor(_)
        | Operand::Shared(_)
        | Operand::Launch(_)
        | Operand::Range(_)
        | Operand::Method(..)
        | Operand::Bound(..)
        | Operand::Super(..) => Bound::new(py, Structure::new(py, operand)?)?.into_any(),
        Operand::Language(path) => host_value_to_python(py, &HostValue::Language(path.clone()))?,
        Operand::Function(number) => host_value_to_python(py, &HostValue::Function(*number))?,
        Operand::ConstexprFunction(number) | Operand::Object(number) | Operand::Callable(number) => {
            object(py, *number)?
        }
    })
}

/// Returns a value as an assignment stores it.
///
/// A compile-time number becomes a scalar of its natural type, also in a tuple.
#[pyfunction]
pub(crate) fn interpret_assign<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    apply(value, Transition { decays: true, makes_dynamic: false })
}

/// Returns a value after branches or iterations that may yield different values.
///
/// It becomes a run-time value.
#[pyfunction]
pub(crate) fn interpret_merged<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    apply(value, Transition { decays: true, makes_dynamic: true })
}

/// Returns an argument as the callee receives it.
///
/// Compile-time values stay compile-time values. A scalar that was assigned from a compile-time
/// value becomes a run-time value, but a `tl.constexpr` parameter receives the number of such a
/// scalar.
#[pyfunction]
pub(crate) fn interpret_passed<'py>(
    value: &Bound<'py, PyAny>,
    is_constexpr: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if is_constexpr && let Some(constant) = known(value)? {
        return Ok(constant);
    }
    apply(value, Transition { decays: false, makes_dynamic: true })
}

/// Returns the result of a function as its caller receives it.
///
/// The rules of [`interpret_passed`] apply. The parts of a block pointer or descriptor also become
/// run-time values.
#[pyfunction]
pub(crate) fn interpret_returned<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    apply(value, Transition { decays: value.is_exact_instance_of::<Structure>(), makes_dynamic: true })
}

/// Returns the value of `name` after `name: tl.constexpr = value`. The value is the compile-time
/// value of `value` if it is known, else `value` itself.
#[pyfunction]
pub(crate) fn interpret_known<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    Ok(known(value)?.unwrap_or_else(|| value.clone()))
}

/// Returns the compile-time value that a compiled kernel would use for a value, or `None` if the
/// value is known only at run time.
///
/// A tuple or list has a compile-time value if all of its items have compile-time values.
pub(super) fn known<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    if let Ok(tensor) = value.cast_exact::<Tensor>() {
        return tensor.get().known_number(py);
    }
    if value.is_instance(Classes::get(py)?.constexpr.bind(py))? {
        return value.getattr(intern!(py, "value")).map(Some);
    }
    if value.is_exact_instance_of::<Structure>() || aggregate::is_instance(value)? {
        return Ok(None);
    }
    let (items, list) = match (value.cast::<PyTuple>(), value.cast_exact::<PyList>()) {
        (Ok(tuple), _) => (tuple.clone(), None),
        (_, Ok(list)) => (list.to_tuple(), Some(list)),
        _ => return Ok(Some(value.clone())),
    };
    let mut all = Vec::with_capacity(items.len());
    for item in items.iter_borrowed() {
        let Some(item) = known(&item)? else { return Ok(None) };
        all.push(item);
    }
    match list {
        Some(list) => Ok(Some(PyList::new(list.py(), all)?.into_any())),
        None => tuple_like(&items, all).map(Some),
    }
}

/// Returns a tuple of the same class with other items.
fn tuple_like<'py>(
    tuple: &Bound<'py, PyTuple>,
    items: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let items = PyTuple::new(tuple.py(), items)?;
    if tuple.is_exact_instance_of::<PyTuple>() {
        return Ok(items.into_any());
    }
    tuple.get_type().call1(items)
}

/// Returns a value after a transition: an assignment, control flow or a call.
fn apply<'py>(value: &Bound<'py, PyAny>, transition: Transition) -> PyResult<Bound<'py, PyAny>> {
    Ok(changed(value, transition)?.unwrap_or_else(|| value.clone()))
}

/// Returns a value after a transition, or `None` if the object stays the same.
fn changed<'py>(value: &Bound<'py, PyAny>, transition: Transition) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    if let Ok(tensor) = value.cast_exact::<Tensor>() {
        let changed = tensor.get().after(transition)?;
        return changed.map(|tensor| Ok(Bound::new(py, tensor)?.into_any())).transpose();
    }
    if transition.decays
        && let Some(scalar) = wrapped_number(value)?.as_ref().and_then(natural)
    {
        let scalar = Tile { is_known: !transition.makes_dynamic, ..scalar };
        return Ok(Some(Bound::new(py, Tensor::new(scalar))?.into_any()));
    }
    if let Ok(structure) = value.cast_exact::<Structure>() {
        let changed = structure.get().after(py, transition)?;
        return changed.map(|structure| Ok(Bound::new(py, structure)?.into_any())).transpose();
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        let is_ours = tuple.is_exact_instance_of::<PyTuple>() || fields(tuple)?.is_some();
        let items = if is_ours { changed_items(tuple, transition)? } else { None };
        return items.map(|items| tuple_like(tuple, items)).transpose();
    }
    // An assignment does not change the items of a list.
    if transition.makes_dynamic
        && let Ok(list) = value.cast_exact::<PyList>()
    {
        let items = changed_items(&list.to_tuple(), transition)?;
        return items.map(|items| Ok(PyList::new(py, items)?.into_any())).transpose();
    }
    if transition.makes_dynamic && aggregate::is_instance(value)? {
        return changed_instance(value, transition);
    }
    Ok(None)
}

/// Returns the items of a tuple after a transition, or `None` if all stay the same objects.
fn changed_items<'py>(
    tuple: &Bound<'py, PyTuple>,
    transition: Transition,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let mut is_changed = false;
    let mut items = Vec::with_capacity(tuple.len());
    for item in tuple.iter() {
        let changed = changed(&item, transition)?;
        is_changed |= changed.is_some();
        items.push(changed.unwrap_or(item));
    }
    Ok(is_changed.then_some(items))
}

/// Returns an aggregate after a transition, or `None` if no field changes. Compile-time numbers
/// stay so.
fn changed_instance<'py>(
    value: &Bound<'py, PyAny>,
    transition: Transition,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    let transition = Transition { decays: false, ..transition };
    let mut is_changed = false;
    let held = PyDict::new(py);
    for name in value.get_type().getattr(intern!(py, "__aggregate_fields__"))?.try_iter()? {
        let name = name?.cast_into::<PyString>()?;
        // During construction, some fields have no value yet.
        let Some(field) = value.getattr_opt(&name)? else { return Ok(None) };
        let changed = changed(&field, transition)?;
        is_changed |= changed.is_some();
        held.set_item(name, changed.unwrap_or(field))?;
    }
    if !is_changed {
        return Ok(None);
    }
    let module = py.import(intern!(py, "tilewright.language._aggregate"))?;
    module.call_method1(intern!(py, "instance"), (value.get_type(), held)).map(Some)
}

/// Returns a plain number, or the number in a `tl.constexpr`.
pub(crate) fn wrapped_number(value: &Bound<'_, PyAny>) -> PyResult<Option<Constant>> {
    let py = value.py();
    Ok(match number(value) {
        Some(constant) => Some(constant),
        None if value.is_instance(Classes::get(py)?.constexpr.bind(py))? => {
            number(&value.getattr(intern!(py, "value"))?)
        }
        None => None,
    })
}

/// Returns a number as a scalar of its natural type, whose value is known at compile time.
pub(crate) fn natural(constant: &Constant) -> Option<Tile> {
    let dtype = semantic::natural_dtype(constant)?;
    let literal = match constant {
        Constant::Bool(value) => Some(Literal::int(dtype, i128::from(*value))),
        Constant::Int(value) => Some(Literal::int(dtype, *value)),
        Constant::Float(value) => Literal::float(dtype, *value),
        Constant::None
        | Constant::Str(_)
        | Constant::Type(_)
        | Constant::LanguageType(_)
        | Constant::Tuple(_)
        | Constant::Object(_) => None,
    };
    literal.map(Tile::constant)
}
