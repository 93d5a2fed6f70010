//! Converts values of the compiler to Python objects.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyString, PyTuple};
use tilewright_frontend::{Constant, HostValue, LanguageType, Tuple};
use tilewright_ir::{Element, Type};

use super::classify::{Classes, RUN_TIME_VALUE};
use super::function::function;
use super::objects::object;

/// Returns the Python object for a compile-time value.
pub(crate) fn to_python<'py>(py: Python<'py>, constant: &Constant) -> PyResult<Bound<'py, PyAny>> {
    Ok(match constant {
        Constant::None => py.None().into_bound(py),
        Constant::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Constant::Int(value) => value.into_pyobject(py)?.into_any(),
        Constant::Float(value) => PyFloat::new(py, *value).into_any(),
        Constant::Str(value) => PyString::new(py, value).into_any(),
        Constant::Type(ty) => type_to_python(py, ty)?,
        Constant::LanguageType(ty) => language_type_to_python(py, ty)?,
        Constant::Tuple(items) => {
            let values = items.iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            tuple_to_python(py, items, values)?
        }
        Constant::Object(number) => object(py, *number)?,
    })
}

/// Returns a tuple of the same kind as `items` with other values: plain, named, or an aggregate.
pub(crate) fn tuple_to_python<'py, T>(
    py: Python<'py>,
    items: &Tuple<T>,
    values: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let names = items.fields().map(|fields| fields.iter().map(|field| PyString::new(py, field)));
    let Some(names) = names else { return Ok(PyTuple::new(py, values)?.into_any()) };
    if let Some(class) = items.class() {
        let fields = PyDict::new(py);
        for (name, value) in names.zip(values) {
            fields.set_item(name, value)?;
        }
        let module = py.import(intern!(py, "tilewright.language._aggregate"))?;
        return module.call_method1(intern!(py, "instance"), (object(py, class)?, fields));
    }
    let names = PyTuple::new(py, names)?;
    let class = py.import("collections")?.call_method1("namedtuple", ("tuple", names))?;
    class.call1(PyTuple::new(py, values)?)
}

/// Returns the Python object for an argument or a global of the compiler.
pub(crate) fn host_value_to_python<'py>(py: Python<'py>, value: &HostValue) -> PyResult<Bound<'py, PyAny>> {
    match value {
        HostValue::Constant(constant) | HostValue::PlainGlobal(constant) => to_python(py, constant),
        HostValue::Tuple(items) => {
            let values = items.iter().map(|item| host_value_to_python(py, item));
            tuple_to_python(py, items, values.collect::<PyResult<_>>()?)
        }
        HostValue::RunTime(value) => {
            let attributes = PyDict::new(py);
            for (name, attribute) in &value.attributes {
                attributes.set_item(*name, host_value_to_python(py, attribute)?)?;
            }
            RUN_TIME_VALUE.get(py)?.call1((value.id, value.is_descriptor, attributes))
        }
        HostValue::Language(path) => {
            let module = if path.starts_with("builtins.") { "builtins" } else { "tilewright.language" };
            let names = path.trim_start_matches("builtins.").split('.').filter(|name| !name.is_empty());
            names.into_iter().try_fold(py.import(module)?.into_any(), |found, name| found.getattr(name))
        }
        HostValue::Function(number) => {
            let gone = || PyValueError::new_err("a function that the program does not have any more");
            function(py, *number).map(Bound::into_any).ok_or_else(gone)
        }
        HostValue::ConstexprFunction(number) | HostValue::Callable(number) | HostValue::Object(number) => {
            object(py, *number)
        }
    }
}

fn language_type_to_python<'py>(py: Python<'py>, ty: &LanguageType) -> PyResult<Bound<'py, PyAny>> {
    let core = py.import("tilewright.language.core")?;
    match ty {
        LanguageType::Void => core.getattr("void"),
        LanguageType::ConstPointer(pointee) => {
            let pointee = type_to_python(py, &Type::scalar(*pointee))?;
            core.getattr("pointer_type")?.call1((pointee, "global", true))
        }
        LanguageType::Constexpr(value) => core.getattr("constexpr_type")?.call1((to_python(py, value)?,)),
        LanguageType::Tuple(types) => {
            let items = types.iter().map(|ty| to_python(py, ty)).collect::<PyResult<Vec<_>>>()?;
            let fields = types.fields().map(|fields| fields.iter().map(|field| &**field).collect::<Vec<_>>());
            core.getattr("tuple_type")?.call1((items, fields))
        }
        LanguageType::Descriptor(parts) => {
            let parts = parts.iter().map(|part| to_python(py, part)).collect::<PyResult<Vec<_>>>()?;
            core.getattr("tensor_descriptor_type")?.call1(PyTuple::new(py, parts)?)
        }
    }
}

fn type_to_python<'py>(py: Python<'py>, ty: &Type) -> PyResult<Bound<'py, PyAny>> {
    let classes = Classes::get(py)?;
    let dtype = |name: &str| py.import("tilewright.language._types")?.getattr("dtype")?.call1((name,));
    let element = match ty.element {
        Element::Value(dtype_) => dtype(dtype_.name())?,
        Element::Pointer(pointee) => py
            .import("tilewright.language._types")?
            .getattr("pointer_type")?
            .call1((dtype(pointee.name())?,))?,
    };
    if ty.is_scalar() {
        return Ok(element);
    }
    let shape = PyTuple::new(py, ty.shape.iter())?;
    classes.block_type.bind(py).call1((element, shape))
}
