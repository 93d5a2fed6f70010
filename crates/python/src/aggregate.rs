//! Classes that `triton.aggregate` decorates, as the compiler sees them. What they are is `tilewright.language._aggregate`.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};
use tilewright_frontend::{Aggregate, FieldKind, Fields, HostValue, Member, MemberFunction, Tuple};

use crate::kernel::JitKernel;
use crate::objects::{constant, host_value_to_python, object_ref};

/// Whether a class is decorated itself, not just derived from one that is.
pub(crate) fn is_aggregate(class: &Bound<'_, PyType>) -> bool {
    let own = class.getattr(intern!(class.py(), "__dict__"));
    own.is_ok_and(|own| own.contains(intern!(class.py(), "_tilewright_fields")).unwrap_or(false))
}

/// The fields of a class, if it is decorated.
pub(crate) fn aggregate(object: &Bound<'_, PyAny>) -> PyResult<Option<Aggregate>> {
    let Ok(class) = object.cast::<PyType>() else { return Ok(None) };
    if !is_aggregate(class) {
        return Ok(None);
    }
    let mut fields = Vec::new();
    for field in class.getattr(intern!(class.py(), "_tilewright_fields"))?.cast::<PyTuple>()? {
        let (name, kind, class): (String, String, Option<Bound<'_, PyType>>) = field.extract()?;
        let kind = match (kind.as_str(), class) {
            ("constexpr", _) => FieldKind::Constexpr,
            ("tensor", _) => FieldKind::Tensor,
            (_, Some(class)) => FieldKind::Aggregate(object_ref(&class)?),
            _ => FieldKind::Any,
        };
        fields.push((Arc::from(name), kind));
    }
    let known = class.getattr(intern!(class.py(), "_tilewright_defaults"))?.cast_into::<PyDict>()?;
    let default =
        |(name, _): &(Arc<str>, FieldKind)| known.get_item(&**name)?.as_ref().map(constant).transpose();
    let defaults = fields.iter().map(default).collect::<PyResult<_>>()?;
    Ok(Some(Aggregate { name: class.name()?.extract()?, fields, defaults }))
}

/// What a name is in a class.
pub(crate) fn member(
    class: &Bound<'_, PyAny>,
    after: Option<&Bound<'_, PyAny>>,
    name: &str,
) -> PyResult<Option<Member>> {
    let py = class.py();
    let module = py.import(intern!(py, "tilewright.language._aggregate"))?;
    let found = module.call_method1(intern!(py, "member"), (class, after, name))?;
    if found.is_none() {
        return Ok(None);
    }
    let (kind, value, callable): (String, Bound<'_, PyAny>, Bound<'_, PyAny>) = found.extract()?;
    let function = value.cast::<JitKernel>().ok().and_then(|kernel| kernel.get().function());
    let Some(function) = function.filter(|_| kind != "static") else {
        return constant(&value).map(|value| Some(Member::Static(value)));
    };
    let at_compile_time = if callable.is_none() { None } else { Some(object_ref(&callable)?) };
    let member = MemberFunction { function, at_compile_time };
    Ok(Some(match kind.as_str() {
        "property" => Member::Property(member),
        "class" => Member::ClassMethod(member),
        _ => Member::Method(member),
    }))
}

/// Whether an object is an instance of a decorated class.
pub(crate) fn is_instance(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = object.get_type();
    let found = class.getattr_opt(intern!(object.py(), "_tilewright_fields"))?;
    Ok(found.is_some() && is_aggregate(&class))
}

/// The fields of an instance of a decorated class: their names and their values.
pub(crate) fn instance<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<(Fields, Bound<'py, PyTuple>)>> {
    let py = object.py();
    let class = object.get_type();
    if class.getattr_opt(intern!(py, "_tilewright_fields"))?.is_none() || !is_aggregate(&class) {
        return Ok(None);
    }
    let Some(described) = aggregate(class.as_any())? else { return Ok(None) };
    let module = py.import(intern!(py, "tilewright.language._aggregate"))?;
    let values = module.call_method1(intern!(py, "fields"), (object,))?;
    let Ok(values) = values.cast_into::<PyList>() else { return Ok(None) };
    let names: Vec<Arc<str>> = described.fields.into_iter().map(|(name, _)| name).collect();
    Ok(Some((names.into(), values.to_tuple())))
}

/// The Python object for an instance whose fields are known.
pub(crate) fn to_python<'py>(py: Python<'py>, items: &Tuple<HostValue>) -> PyResult<Bound<'py, PyAny>> {
    let class = items.class().map(|class| crate::objects::object(py, class)).transpose()?;
    let values = PyDict::new(py);
    for (name, item) in items.fields().into_iter().flat_map(|fields| fields.iter()).zip(items) {
        values.set_item(PyString::new(py, name), host_value_to_python(py, item)?)?;
    }
    let module = py.import(intern!(py, "tilewright.language._aggregate"))?;
    module.call_method1(intern!(py, "instance"), (class, values))
}
