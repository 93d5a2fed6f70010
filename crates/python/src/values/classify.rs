//! Classifies Python objects for the compiler, such as constants, types and functions.

use std::sync::Arc;

use pyo3::exceptions::PyRecursionError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyFunction, PyInt, PyList, PyModule, PyString, PyTuple, PyType};
use tilewright_frontend::{Constant, Fields, HostValue, LanguageType, NamedTuple, RunTime, Tuple};
use tilewright_ir::{Shape, Type};
use tilewright_runtime::parse_dtype;

use super::aggregate;
use super::function::Function;
use super::objects::object_ref;
use crate::unsupported::Missing;

/// The classes of the Python code that the compiler treats specially.
pub(crate) struct Classes {
    pub(crate) constexpr: Py<PyType>,
    dtype: Py<PyType>,
    constexpr_function: Py<PyType>,
    pub(super) block_type: Py<PyAny>,
}

/// A class of a module that few programs import.
pub(crate) struct RareClass {
    module: &'static str,
    name: &'static str,
    class: PyOnceLock<Py<PyType>>,
}

pub(crate) static RUN_TIME_VALUE: RareClass = RareClass::new("tilewright.language._run_time", "RunTimeValue");
pub(crate) static TENSOR_DESCRIPTOR: RareClass =
    RareClass::new("tilewright.tools.tensor_descriptor", "TensorDescriptor");

impl RareClass {
    const fn new(module: &'static str, name: &'static str) -> Self {
        Self { module, name, class: PyOnceLock::new() }
    }

    /// Returns the class. Imports its module if necessary.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyType>> {
        self.class.import(py, self.module, self.name)
    }

    /// Returns whether an object is an instance. Returns false if the module has not been imported.
    pub(crate) fn has_instance(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = object.py();
        if self.class.get(py).is_none() {
            let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
            if !modules.contains(self.module)? {
                return Ok(false);
            }
        }
        object.is_instance(self.get(py)?)
    }
}

impl Classes {
    pub(crate) fn get(py: Python<'_>) -> PyResult<&'static Classes> {
        static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
        CLASSES.get_or_try_init(py, || {
            let class = |module: &str, name: &str| -> PyResult<Py<PyType>> {
                Ok(py.import(module)?.getattr(name)?.cast_into::<PyType>()?.unbind())
            };
            let types = py.import("tilewright.language._types")?;
            Ok(Classes {
                constexpr: class("tilewright.language._constexpr", "constexpr")?,
                dtype: class("tilewright.language._types", "dtype")?,
                constexpr_function: class("tilewright.runtime.jit", "ConstexprFunction")?,
                block_type: types.getattr("block_type")?.unbind(),
            })
        })
    }
}

/// Returns the value of a number, a string or Python's `None`. Returns `None` for other objects.
pub(crate) fn plain(object: &Bound<'_, PyAny>) -> Option<Constant> {
    if object.is_none() {
        return Some(Constant::None);
    }
    if object.is_exact_instance_of::<PyBool>() {
        return object.is_truthy().ok().map(Constant::Bool);
    }
    if object.is_instance_of::<PyInt>() {
        // Python's stable interface has no fast conversion to 128 bits.
        let narrow = object.extract::<i64>().map(i128::from);
        return narrow.or_else(|_| object.extract()).ok().map(Constant::Int);
    }
    if object.is_instance_of::<PyFloat>() {
        return object.extract().ok().map(Constant::Float);
    }
    let text = object.cast::<PyString>().ok()?;
    Some(Constant::Str(Arc::from(&*text.to_cow().ok()?)))
}

/// The deepest nesting of tuples and lists. A list may contain itself.
pub(crate) const MAX_NESTING: usize = 64;

/// Classifies an object that a kernel reads as a global, from a closure, or as an attribute.
pub(crate) fn classify(object: &Bound<'_, PyAny>) -> PyResult<HostValue> {
    classify_within(object, 0)
}

/// Classifies an object that is nested in `depth` other objects.
fn classify_within(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<HostValue> {
    let py = object.py();
    if depth > MAX_NESTING {
        return Err(PyRecursionError::new_err(format!(
            "more than {MAX_NESTING} tuples or lists in one another"
        )));
    }
    if object.is_none() {
        return Ok(HostValue::Constant(Constant::None));
    }
    if let Some(constant) = plain(object) {
        return Ok(HostValue::PlainGlobal(constant));
    }
    let classes = Classes::get(py)?;
    if is_constexpr(classes, object) {
        let held = classify_within(&object.getattr(intern!(py, "value"))?, depth + 1)?;
        return Ok(match as_constant(held) {
            // `@tl.constexpr` above a function declares that it computes compile-time values.
            HostValue::Callable(number) => HostValue::ConstexprFunction(number),
            other => other,
        });
    }
    if let Some(ty) = type_constant(classes, object)? {
        return Ok(HostValue::Constant(ty));
    }
    if let Some(constant) = member(object) {
        return Ok(HostValue::Constant(constant));
    }
    if RUN_TIME_VALUE.has_instance(object)? {
        let id = object.getattr(intern!(py, "_id"))?.extract()?;
        let value = RunTime { id, is_descriptor: false, attributes: Vec::new() };
        return Ok(HostValue::RunTime(Arc::new(value)));
    }
    if let Ok(function) = object.cast::<Function>() {
        return Ok(match function.get().number() {
            Some(function) => HostValue::Function(function),
            None => HostValue::Object(object_ref(object)?),
        });
    }
    if let Some(path) = language_path(object)? {
        return Ok(HostValue::Language(path));
    }
    if object.is_instance(classes.constexpr_function.bind(py))? {
        return Ok(HostValue::ConstexprFunction(object_ref(object)?));
    }
    if object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>() {
        return sequence(object, depth);
    }
    let is_class = object.is_instance_of::<PyType>();
    if !is_class && let Some((fields, values)) = aggregate::instance(object)? {
        let values = values.iter().map(|value| classify_within(&value, depth + 1).map(as_constant));
        let class = object_ref(object.get_type().as_any())?;
        return Ok(HostValue::Tuple(Tuple::instance(values.collect::<PyResult<_>>()?, fields, class)));
    }
    let number = object_ref(object)?;
    // A kernel may read the members of an `Enum`, so classes are objects.
    let is_native = || object.get_type().name().is_ok_and(|name| name == "builtin_function_or_method");
    Ok(if object.is_instance_of::<PyFunction>() {
        HostValue::Callable(number)
    } else if object.is_instance_of::<PyModule>() || !is_native() {
        HostValue::Object(number)
    } else if object.getattr(intern!(py, "__module__")).is_ok_and(|module| module.eq("math").unwrap_or(false))
    {
        // The functions of `math` only take numbers.
        HostValue::ConstexprFunction(number)
    } else {
        HostValue::Callable(number)
    })
}

/// Returns the names of the fields, if the class of a tuple is a `NamedTuple`.
pub(crate) fn fields(tuple: &Bound<'_, PyTuple>) -> PyResult<Option<Fields>> {
    if tuple.is_exact_instance_of::<PyTuple>() {
        return Ok(None);
    }
    fields_of(&tuple.get_type())
}

fn fields_of(class: &Bound<'_, PyType>) -> PyResult<Option<Fields>> {
    let Some(fields) = class.getattr_opt(intern!(class.py(), "_fields"))? else { return Ok(None) };
    let Ok(fields) = fields.cast_into::<PyTuple>() else { return Ok(None) };
    let names = fields.iter().map(|name| Some(Arc::from(&*name.cast::<PyString>().ok()?.to_cow().ok()?)));
    Ok(names.collect::<Option<Vec<_>>>().map(Fields::from))
}

/// Describes a `NamedTuple` class for kernels that call it; `None` for any other object.
pub(crate) fn named_tuple(object: &Bound<'_, PyAny>) -> PyResult<Option<NamedTuple>> {
    let py = object.py();
    let Ok(class) = object.cast::<PyType>() else { return Ok(None) };
    if !class.is_subclass_of::<PyTuple>()? {
        return Ok(None);
    }
    let Some(fields) = fields_of(class)? else { return Ok(None) };
    let defaults = class.getattr_opt(intern!(py, "_field_defaults"))?;
    let defaults = match defaults.as_ref().and_then(|defaults| defaults.cast::<PyDict>().ok()) {
        Some(defaults) => defaults.values().iter().map(|value| constant(&value)).collect::<PyResult<_>>()?,
        None => Vec::new(),
    };
    Ok(Some(NamedTuple { name: class.name()?.extract()?, fields, defaults }))
}

/// Classifies a tuple or list. Constants form a constant. Constants and plain globals form a plain
/// global. Other items form a tuple.
fn sequence(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<HostValue> {
    let items = object.try_iter()?.map(|item| classify_within(&item?, depth + 1));
    let items = items.collect::<PyResult<Vec<_>>>()?;
    let fields = object.cast::<PyTuple>().map_or(Ok(None), fields)?;
    let is_plain = items.iter().any(|item| matches!(item, HostValue::PlainGlobal(_)));
    let constants: Option<Vec<Constant>> = items
        .iter()
        .map(|item| match item {
            HostValue::PlainGlobal(constant) | HostValue::Constant(constant) => Some(constant.clone()),
            _ => None,
        })
        .collect();
    Ok(match constants {
        Some(constants) => {
            let tuple = Constant::Tuple(Tuple::new(constants, fields));
            if is_plain { HostValue::PlainGlobal(tuple) } else { HostValue::Constant(tuple) }
        }
        None => HostValue::Tuple(Tuple::new(items, fields)),
    })
}

/// Classifies an object as a compile-time value. The object is a default, an argument, or the
/// content of `tl.constexpr(...)`.
pub(crate) fn constant(object: &Bound<'_, PyAny>) -> PyResult<HostValue> {
    Ok(as_constant(classify(object)?))
}

/// Converts a value to a compile-time value, also a plain global, which a kernel must not read.
pub(crate) fn as_constant(value: HostValue) -> HostValue {
    match value {
        HostValue::PlainGlobal(constant) => HostValue::Constant(constant),
        HostValue::Tuple(items) => HostValue::Tuple(items.map(|item| as_constant(item.clone()))),
        other => other,
    }
}

fn is_constexpr(classes: &Classes, object: &Bound<'_, PyAny>) -> bool {
    let py = object.py();
    object.is_instance(classes.constexpr.bind(py)).unwrap_or(false) || is_official(object, "constexpr")
}

/// Returns whether an object is an instance of a class of the official triton's language, created
/// before tilewright replaced the module `triton`.
fn is_official(object: &Bound<'_, PyAny>, class: &str) -> bool {
    let found = object.get_type();
    found.name().is_ok_and(|name| name == class)
        && found.module().is_ok_and(|module| module == "triton.language.core")
}

/// Returns the language's value of a member of `PropagateNan`. As a Python object, even
/// `PropagateNan.NONE` is truthy.
fn member(object: &Bound<'_, PyAny>) -> Option<Constant> {
    let class = object.get_type();
    let is_ours = class.name().is_ok_and(|name| name == "PropagateNan")
        && class
            .module()
            .is_ok_and(|module| module == "tilewright.language.core" || module == "triton.language.core");
    if !is_ours {
        return None;
    }
    let name: String = object.getattr(intern!(object.py(), "name")).ok()?.extract().ok()?;
    match tilewright_frontend::semantic::language(&format!("PropagateNan.{name}")) {
        Some(tilewright_frontend::semantic::LanguageItem::Constant(constant)) => Some(constant),
        // tidy: wildcard because a member is a constant.
        _ => None,
    }
}

/// Returns whether an object is exactly a `dtype` of the language, not a pointer or block type.
pub(crate) fn is_scalar_dtype(classes: &Classes, object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance(classes.dtype.bind(object.py()))
}

/// Returns the type that a dtype, pointer type or block type of the language describes. Returns
/// `None` for other objects.
pub(crate) fn language_type(classes: &Classes, object: &Bound<'_, PyAny>) -> PyResult<Option<Type>> {
    let py = object.py();
    let is_type = object.is_instance(classes.dtype.bind(py))?
        || ["dtype", "pointer_type", "block_type"].iter().any(|class| is_official(object, class));
    if !is_type {
        return Ok(None);
    }
    let is_scalar = is_scalar_dtype(classes, object);
    if !is_scalar && object.call_method0(intern!(py, "is_block"))?.is_truthy()? {
        let element = language_type(classes, &object.getattr(intern!(py, "element_ty"))?)?;
        let shape: Vec<u32> = object.getattr(intern!(py, "shape"))?.extract()?;
        return Ok(element.map(|ty| ty.with_shape(Shape::from_iter(shape))));
    }
    let is_pointer = !is_scalar && object.call_method0(intern!(py, "is_ptr"))?.is_truthy()?;
    let scalar = if is_pointer { object.getattr(intern!(py, "element_ty"))? } else { object.clone() };
    let name = scalar.getattr(intern!(py, "name"))?;
    Ok(parse_dtype(&name.cast::<PyString>()?.to_cow()?)
        .map(|dtype| if is_pointer { Type::pointer(dtype) } else { Type::scalar(dtype) }))
}

/// Converts a dtype, pointer type or block type to a compile-time value, including `void` and
/// pointers to read-only memory. Returns `None` for other objects.
fn type_constant(classes: &Classes, object: &Bound<'_, PyAny>) -> PyResult<Option<Constant>> {
    let py = object.py();
    if let Some(ty) = language_type(classes, object)? {
        let is_const = || object.getattr(intern!(py, "const"))?.is_truthy();
        return Ok(Some(match ty.element.pointee() {
            Some(pointee) if ty.is_scalar() && is_const()? => {
                LanguageType::ConstPointer(pointee).into_constant()
            }
            _ => Constant::Type(ty),
        }));
    }
    let is_void = object.is_exact_instance(classes.dtype.bind(py))
        && object.call_method0(intern!(py, "is_void"))?.is_truthy()?;
    Ok(is_void.then(|| LanguageType::Void.into_constant()))
}

/// Returns the path relative to `triton.language` of a function, class or module of the language.
fn language_path(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<str>>> {
    let py = object.py();
    let path = |text: String| Some(Arc::from(text.strip_prefix("triton.language.").unwrap_or(&text)));
    if let Ok(module) = object.cast::<PyModule>() {
        // `Display` would swallow a Ctrl-C.
        let name: String = module.name()?.extract()?;
        let below = name.strip_prefix("tilewright.language").or_else(|| name.strip_prefix("triton.language"));
        return Ok(match below {
            Some("" | ".core" | ".standard" | ".semantic" | ".random") => Some(Arc::from("")),
            Some(".extra.cpu.libdevice" | ".extra.cuda.libdevice" | ".extra.hip.libdevice") => {
                Some(Arc::from("extra.libdevice"))
            }
            Some(".math" | ".extra" | ".extra.libdevice" | ".extra.cpu" | ".extra.cuda" | ".target_info") => {
                path(name.replacen("tilewright", "triton", 1))
            }
            _ => None,
        });
    }
    if let Ok(missing) = object.cast::<Missing>() {
        return Ok(path(missing.get().path().to_owned()));
    }
    // The path is in the `__dict__` itself, so that instances and derived classes do not have it.
    let own = match object.cast::<PyType>() {
        Ok(class) => class.getattr(intern!(py, "__dict__"))?,
        Err(_) => match object.getattr_opt(intern!(py, "__dict__"))? {
            Some(dict) => dict,
            None => return builtin_path(object),
        },
    };
    if let Ok(text) = own.get_item(intern!(py, "_tilewright_path")) {
        return Ok(path(text.extract()?));
    }
    if let Some(module) = object.getattr_opt(intern!(py, "__module__"))?
        && let Ok(module) = module.extract::<String>()
        && module.starts_with("triton.language")
        && let Some(name) = object.getattr_opt(intern!(py, "__name__"))?
    {
        return Ok(path(name.extract()?));
    }
    builtin_path(object)
}

/// Returns `builtins.name` for a builtin of Python that is a global.
fn builtin_path(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<str>>> {
    let py = object.py();
    let module = object.getattr_opt(intern!(py, "__module__"))?;
    if !module.is_some_and(|module| module.eq("builtins").unwrap_or(false)) {
        return Ok(None);
    }
    let Some(name) = object.getattr_opt(intern!(py, "__name__"))? else { return Ok(None) };
    let name: String = name.extract()?;
    let found = py.import(intern!(py, "builtins"))?.getattr_opt(name.as_str())?;
    Ok(found.is_some_and(|found| found.is(object)).then(|| Arc::from(format!("builtins.{name}"))))
}

/// Returns whether an object is a function with the decorator `constexpr_function`.
pub(crate) fn is_constexpr_function(object: &Bound<'_, PyAny>) -> bool {
    let py = object.py();
    Classes::get(py)
        .is_ok_and(|classes| object.is_instance(classes.constexpr_function.bind(py)).unwrap_or(false))
}
