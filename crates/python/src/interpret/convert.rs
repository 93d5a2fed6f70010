//! Between the objects of an interpreted body and the operands of the language.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyTuple};
use tilewright_frontend::{Constant, HostValue, Operand, Tuple, operand_of, semantic, tuple_operand};
use tilewright_ir::Literal;
use tilewright_runtime::interpret::Tile;

use super::objects::{LanguageCall, Structure, Tensor};
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
    let py = value.py();
    if let Ok(tensor) = value.cast_exact::<Tensor>() {
        return Ok(match tensor.get().assigned()? {
            Some(assigned) => Bound::new(py, assigned)?.into_any(),
            None => value.clone(),
        });
    }
    if let Some(scalar) = wrapped_number(value)?.as_ref().and_then(natural) {
        return Ok(Bound::new(py, Tensor::new(scalar))?.into_any());
    }
    let Ok(tuple) = value.cast_exact::<PyTuple>() else { return Ok(value.clone()) };
    let items = tuple.iter().map(|item| interpret_assign(&item)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, items)?.into_any())
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
