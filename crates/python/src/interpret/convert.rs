//! Between the objects of an interpreted body and the operands of the language.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use tilewright_frontend::{Constant, HostValue, Operand, Tuple, operand_of, semantic, tuple_operand};
use tilewright_ir::Literal;
use tilewright_runtime::interpret::Tile;

use super::objects::{LanguageCall, Passage, Structure, Tensor};
use crate::values::aggregate;
use crate::values::classify::{Classes, classify, fields, plain};
use crate::values::objects::{object, object_ref};
use crate::values::to_python::{self, host_value_to_python, tuple_to_python};

/// A plain number.
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

/// An object as an operand.
pub(crate) fn given(object: &Bound<'_, PyAny>) -> PyResult<Operand<Tile>> {
    if let Ok(tensor) = object.cast_exact::<Tensor>() {
        return tensor.get().given();
    }
    if let Some(constant) = number(object) {
        return Ok(Operand::Constant(constant));
    }
    if let Ok(structure) = object.cast_exact::<Structure>() {
        return structure.get().given();
    }
    if let Ok(function) = object.cast::<LanguageCall>() {
        return Ok(function.get().operand());
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        let items = tuple.iter_borrowed().map(|item| given(&item)).collect::<PyResult<Vec<_>>>()?;
        return Ok(tuple_operand(Tuple::new(items, fields(tuple)?)));
    }
    if let Ok(list) = object.cast::<PyList>() {
        let items = list.iter().map(|item| given(&item)).collect::<PyResult<Vec<_>>>()?;
        return Ok(tuple_operand(Tuple::from(items)));
    }
    if let Some(constant) = plain(object) {
        return Ok(Operand::Constant(constant));
    }
    if let Some((fields, items)) = aggregate::instance(object)? {
        let items = items.iter_borrowed().map(|item| given(&item)).collect::<PyResult<Vec<_>>>()?;
        let class = object_ref(object.get_type().as_any())?;
        return Ok(tuple_operand(Tuple::instance(items, fields, class)));
    }
    Ok(operand_of(classify(object)?))
}

/// The object for an operand.
pub(crate) fn to_python<'py>(py: Python<'py>, operand: &Operand<Tile>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match operand {
        Operand::Tensor(tile) => Bound::new(py, Tensor::new(tile.clone()))?.into_any(),
        Operand::Constant(constant) => to_python::to_python(py, constant)?,
        Operand::Tuple(items) => {
            let values = items.iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            tuple_to_python(py, items, values)?
        }
        Operand::Descriptor(_)
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

/// What an assignment makes of a value: of a compile-time number a scalar of its natural type, also in a tuple.
#[pyfunction]
pub(crate) fn interpret_assign<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    carried(value, Passage { decays: true, forgets: false })
}

/// A value after branches or iterations that may each give another one: known at run time only.
#[pyfunction]
pub(crate) fn interpret_merged<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    carried(value, Passage { decays: true, forgets: true })
}

/// A value on the other side of a call: compile-time values stay so, and scalars that an
/// assignment made of them are run-time values. `is_constexpr` if the parameter is declared so,
/// which takes such a scalar as the number.
#[pyfunction]
pub(crate) fn interpret_passed<'py>(
    value: &Bound<'py, PyAny>,
    is_constexpr: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if is_constexpr && let Some(constant) = known(value)? {
        return Ok(constant);
    }
    carried(value, Passage { decays: false, forgets: true })
}

/// The result of a function: as [`interpret_passed`], and the parts of a block pointer or descriptor
/// are run-time values.
#[pyfunction]
pub(crate) fn interpret_returned<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    carried(value, Passage { decays: value.is_exact_instance_of::<Structure>(), forgets: true })
}

/// The result of `name: tl.constexpr = value`: the number where the code has a constant.
#[pyfunction]
pub(crate) fn interpret_known<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    Ok(known(value)?.unwrap_or_else(|| value.clone()))
}

/// The compile-time value that a value has in a compiled kernel where one is required: a number, or
/// a tuple of such values.
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

/// A tuple of the same class with other items.
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

/// A value after a passage.
fn carried<'py>(value: &Bound<'py, PyAny>, passage: Passage) -> PyResult<Bound<'py, PyAny>> {
    Ok(changed(value, passage)?.unwrap_or_else(|| value.clone()))
}

/// A value after a passage, if that makes another object of it.
fn changed<'py>(value: &Bound<'py, PyAny>, passage: Passage) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    if let Ok(tensor) = value.cast_exact::<Tensor>() {
        let changed = tensor.get().carried(passage)?;
        return changed.map(|tensor| Ok(Bound::new(py, tensor)?.into_any())).transpose();
    }
    if passage.decays
        && let Some(scalar) = wrapped_number(value)?.as_ref().and_then(natural)
    {
        let scalar = Tile { is_known: !passage.forgets, ..scalar };
        return Ok(Some(Bound::new(py, Tensor::new(scalar))?.into_any()));
    }
    if let Ok(structure) = value.cast_exact::<Structure>() {
        let changed = structure.get().carried(py, passage)?;
        return changed.map(|structure| Ok(Bound::new(py, structure)?.into_any())).transpose();
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        let is_ours = tuple.is_exact_instance_of::<PyTuple>() || fields(tuple)?.is_some();
        let items = if is_ours { changed_items(tuple, passage)? } else { None };
        return items.map(|items| tuple_like(tuple, items)).transpose();
    }
    // A list that the program made is its own: an assignment takes it as it is.
    if passage.forgets
        && let Ok(list) = value.cast_exact::<PyList>()
    {
        let items = changed_items(&list.to_tuple(), passage)?;
        return items.map(|items| Ok(PyList::new(py, items)?.into_any())).transpose();
    }
    if passage.forgets && aggregate::is_instance(value)? {
        return changed_instance(value, passage);
    }
    Ok(None)
}

/// The items of a tuple after a passage, if one of them is another object then.
fn changed_items<'py>(
    tuple: &Bound<'py, PyTuple>,
    passage: Passage,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let mut is_changed = false;
    let mut items = Vec::with_capacity(tuple.len());
    for item in tuple.iter() {
        let changed = changed(&item, passage)?;
        is_changed |= changed.is_some();
        items.push(changed.unwrap_or(item));
    }
    Ok(is_changed.then_some(items))
}

/// An instance of an aggregate after a passage: its compile-time fields stay what they are.
fn changed_instance<'py>(value: &Bound<'py, PyAny>, passage: Passage) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    let passage = Passage { decays: false, ..passage };
    let mut is_changed = false;
    let held = PyDict::new(py);
    for name in value.get_type().getattr(intern!(py, "__aggregate_fields__"))?.try_iter()? {
        let name = name?.cast_into::<PyString>()?;
        // While it is made, fields have no value yet.
        let Some(field) = value.getattr_opt(&name)? else { return Ok(None) };
        let changed = changed(&field, passage)?;
        is_changed |= changed.is_some();
        held.set_item(name, changed.unwrap_or(field))?;
    }
    if !is_changed {
        return Ok(None);
    }
    let module = py.import(intern!(py, "tilewright.language._aggregate"))?;
    module.call_method1(intern!(py, "instance"), (value.get_type(), held)).map(Some)
}

/// A plain number, or that in a `tl.constexpr`.
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

/// A number as a scalar of its natural type, known as such.
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
