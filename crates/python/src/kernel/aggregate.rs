//! Describes the classes that `triton.aggregate` decorates for the compiler.
//!
//! The Python code is in `tilewright.language._aggregate`.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use tilewright_frontend::{Aggregate, FieldKind, Member, MemberFunction};

use crate::values::aggregate::is_aggregate;
use crate::values::classify::constant;
use crate::values::function::Function;
use crate::values::objects::object_ref;

/// Returns the name, the fields and the defaults of a class that `triton.aggregate` decorates.
/// Returns `None` for other objects.
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

/// Resolves a name in a class. With `after`, the search begins after that base class.
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
    let function = value.cast::<Function>().ok().and_then(|function| function.get().number());
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
