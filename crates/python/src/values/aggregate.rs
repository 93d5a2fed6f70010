//! Reads instances of classes that `triton.aggregate` decorates.
//!
//! The Python code is in `tilewright.language._aggregate`.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};
use tilewright_frontend::Fields;

/// Returns whether a class itself is decorated. A decorated base is not enough.
pub(crate) fn is_aggregate(class: &Bound<'_, PyType>) -> bool {
    let own = class.getattr(intern!(class.py(), "__dict__"));
    own.is_ok_and(|own| own.contains(intern!(class.py(), "_tilewright_fields")).unwrap_or(false))
}

/// Returns whether an object is an instance of a decorated class.
pub(crate) fn is_instance(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = object.get_type();
    let found = class.getattr_opt(intern!(object.py(), "_tilewright_fields"))?;
    Ok(found.is_some() && is_aggregate(&class))
}

/// Returns the names and the values of the fields of an instance of a decorated class. Returns
/// `None` for other objects.
pub(crate) fn instance<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<(Fields, Bound<'py, PyTuple>)>> {
    let py = object.py();
    if !is_instance(object)? {
        return Ok(None);
    }
    let module = py.import(intern!(py, "tilewright.language._aggregate"))?;
    let values = module.call_method1(intern!(py, "fields"), (object,))?;
    let Ok(values) = values.cast_into::<PyList>() else { return Ok(None) };
    let fields = object.get_type().getattr(intern!(py, "_tilewright_fields"))?;
    let names = fields.try_iter()?.map(|field| Ok(Arc::from(field?.get_item(0)?.extract::<String>()?)));
    Ok(Some((names.collect::<PyResult<Vec<_>>>()?.into(), values.to_tuple())))
}
