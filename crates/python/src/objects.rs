//! Python objects that kernels refer to: what each is to the compiler, and a number for those that only Python
//! understands.

use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyException, PyRecursionError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyDict, PyFloat, PyFunction, PyInt, PyList, PyModule, PyString, PyTuple, PyType,
    PyWeakrefReference,
};
use tilewright_frontend::{
    Constant, Fields, FunctionRef, HostValue, LanguageType, NamedTuple, ObjectRef, RunTime, Tuple,
};
use tilewright_ir::{Element, Shape, Type};
use tilewright_runtime::parse_dtype;

use crate::aggregate;
use crate::kernel::JitKernel;
use crate::missing::Missing;

/// Numbers for objects. Objects that are equal in every part have one number, so that a value of a user's class is the
/// same compile-time value each time it is passed. An object is kept as long as code may have been compiled for it, which
/// is until the program ends; there are as many as there are compiled forms and names that these read.
struct Registry {
    /// From `(type, object)`, or from the address of an object without a hash, to the first of its numbers.
    numbers: Py<PyDict>,
    objects: Mutex<Vec<Numbered>>,
}

struct Numbered {
    object: Py<PyAny>,
    /// Another object that Python calls equal, and that differs in a part, such as `2` from `2.0`.
    next: Option<u32>,
}

static REGISTRY: PyOnceLock<Registry> = PyOnceLock::new();

/// The `@jit` functions, by their number. They live as long as the program holds them.
static FUNCTIONS: Mutex<Vec<Py<PyWeakrefReference>>> = Mutex::new(Vec::new());

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
        if is_same(&known, object, MOST_NESTED)? {
            return Ok(ObjectRef(number));
        }
        match next {
            Some(next) => number = next,
            None => break,
        }
    }
    let added = registry.add(object);
    // Another thread may have added one meanwhile; then an equal object may get a number of its own, which costs no more
    // than a compilation.
    if let Some(last) = registry.objects().get_mut(number as usize) {
        last.next.get_or_insert(added);
    }
    Ok(ObjectRef(added))
}

const MOST_NESTED: u32 = 8;

/// Whether two objects are the same in every part: Python's `==` says so of `2` and `2.0`, which kernels compute with in
/// different types. The parts of an object are those that Python would copy it by.
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
    // A text stands for a global variable: an object that is there once. Items of lists and dicts come by iterators.
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

/// What there is, where a failure means that there is nothing; Ctrl-C stays what it is.
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

/// A number for a `@jit` function.
pub(crate) fn register_function(function: &Bound<'_, JitKernel>) -> PyResult<FunctionRef> {
    let reference = PyWeakrefReference::new(function)?.unbind();
    let mut functions = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    functions.push(reference);
    Ok(FunctionRef(functions.len() as u32 - 1))
}

/// The `@jit` function with a number, if the program still has it.
pub(crate) fn function(py: Python<'_>, number: FunctionRef) -> Option<Bound<'_, JitKernel>> {
    use pyo3::types::PyWeakrefMethods;
    let functions = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let reference = functions.get(number.0 as usize)?.bind(py).clone();
    drop(functions);
    reference.upgrade_as::<JitKernel>().ok().flatten()
}

/// The classes of the Python side that mean something to the compiler.
pub(crate) struct Classes {
    pub(crate) constexpr: Py<PyType>,
    dtype: Py<PyType>,
    constexpr_function: Py<PyType>,
    run_time_value: Py<PyType>,
    block_type: Py<PyAny>,
    pub(crate) tensor_descriptor: Py<PyType>,
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
                run_time_value: class("tilewright.language._run_time", "RunTimeValue")?,
                block_type: types.getattr("block_type")?.unbind(),
                tensor_descriptor: class("tilewright.tools.tensor_descriptor", "TensorDescriptor")?,
            })
        })
    }
}

/// The value of a plain number, string or such; `None` if the object is something else.
pub(crate) fn plain(object: &Bound<'_, PyAny>) -> Option<Constant> {
    if object.is_none() {
        return Some(Constant::None);
    }
    if object.is_exact_instance_of::<PyBool>() {
        return object.is_truthy().ok().map(Constant::Bool);
    }
    if object.is_instance_of::<PyInt>() {
        // The stable interface of Python has no quick way to 128 bits.
        let narrow = object.extract::<i64>().map(i128::from);
        return narrow.or_else(|_| object.extract()).ok().map(Constant::Int);
    }
    if object.is_instance_of::<PyFloat>() {
        return object.extract().ok().map(Constant::Float);
    }
    let text = object.cast::<PyString>().ok()?;
    Some(Constant::Str(Arc::from(&*text.to_cow().ok()?)))
}

/// How deep tuples and lists may nest: a list may hold itself.
pub(crate) const MAX_NESTING: usize = 64;

/// What an object is to a kernel that reads it as a global, from a closure, or as an attribute.
pub(crate) fn classify(object: &Bound<'_, PyAny>) -> PyResult<HostValue> {
    classify_within(object, 0)
}

/// The same for an object in so many others.
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
            // `@tl.constexpr` above a function says that compile-time values are computed with it.
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
    if object.get_type().is(classes.run_time_value.bind(py)) {
        let number = object.getattr(intern!(py, "_number"))?.extract()?;
        let value = RunTime { number, is_descriptor: false, attributes: Vec::new() };
        return Ok(HostValue::RunTime(Arc::new(value)));
    }
    if let Ok(kernel) = object.cast::<JitKernel>() {
        return Ok(match kernel.get().function() {
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
    // Classes are objects: an `Enum` is asked for its members.
    let is_native = || object.get_type().name().is_ok_and(|name| name == "builtin_function_or_method");
    Ok(if object.is_instance_of::<PyFunction>() {
        HostValue::Callable(number)
    } else if object.is_instance_of::<PyModule>() || !is_native() {
        HostValue::Object(number)
    } else if object.getattr(intern!(py, "__module__")).is_ok_and(|module| module.eq("math").unwrap_or(false))
    {
        // Those of `math` are functions of numbers alone.
        HostValue::ConstexprFunction(number)
    } else {
        HostValue::Callable(number)
    })
}

/// The names of the fields, if the class of a tuple is a `NamedTuple`.
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

/// What kernels need of a `NamedTuple` class to call it; nothing of any other object.
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

/// A tuple or list: a plain global if something in it is plain.
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

/// What an object is as a compile-time value: a default, an argument, what `tl.constexpr(...)` holds.
pub(crate) fn constant(object: &Bound<'_, PyAny>) -> PyResult<HostValue> {
    Ok(as_constant(classify(object)?))
}

/// The same value, where a plain number may be read.
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

/// Whether an object is an instance of a class of the official triton's language: programs may have got one before
/// tilewright took the name.
fn is_official(object: &Bound<'_, PyAny>, class: &str) -> bool {
    let found = object.get_type();
    found.name().is_ok_and(|name| name == class)
        && found.module().is_ok_and(|module| module == "triton.language.core")
}

/// The language's value of a member of `PropagateNan`: as an object each member would be true.
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

/// Whether an object is a dtype of elements, of the language itself.
pub(crate) fn is_scalar_dtype(classes: &Classes, object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance(classes.dtype.bind(object.py()))
}

/// The type that a dtype of the language stands for.
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

/// A dtype, pointer or block as a compile-time value: `void` and pointers to what is only read too.
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

/// The path below `triton.language` of a function, class or module of the language.
fn language_path(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<str>>> {
    let py = object.py();
    let path = |text: String| Some(Arc::from(text.strip_prefix("triton.language.").unwrap_or(&text)));
    if let Ok(module) = object.cast::<PyModule>() {
        // Not by `Display`, which would swallow a Ctrl-C that Python notices when it makes the text.
        let name: String = module.name()?.extract()?;
        let below = name.strip_prefix("tilewright.language").or_else(|| name.strip_prefix("triton.language"));
        return Ok(match below {
            Some("" | ".core" | ".standard" | ".semantic" | ".random") => Some(Arc::from("")),
            Some(".extra.cuda.libdevice" | ".extra.hip.libdevice") => Some(Arc::from("extra.libdevice")),
            Some(".math" | ".extra" | ".extra.libdevice" | ".extra.cuda" | ".target_info") => {
                path(name.replacen("tilewright", "triton", 1))
            }
            _ => None,
        });
    }
    if let Ok(missing) = object.cast::<Missing>() {
        return Ok(path(missing.get().path().to_owned()));
    }
    // A class has it itself; its instances and the classes that users derive from it do not have it.
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

/// A function of Python itself that was found under another name, such as `from builtins import max`.
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

/// The Python object for a compile-time value.
pub(crate) fn to_python<'py>(py: Python<'py>, constant: &Constant) -> PyResult<Bound<'py, PyAny>> {
    Ok(match constant {
        Constant::None => py.None().into_bound(py),
        Constant::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Constant::Int(value) => value.into_pyobject(py)?.into_any(),
        Constant::Float(value) => PyFloat::new(py, *value).into_any(),
        Constant::Str(value) => PyString::new(py, value).into_any(),
        Constant::Type(ty) => type_to_python(py, ty)?,
        Constant::LanguageType(ty) => language_type_to_python(py, ty)?,
        Constant::Tuple(items) if items.class().is_some() => {
            aggregate::to_python(py, &items.map(|item| HostValue::Constant(item.clone())))?
        }
        Constant::Tuple(items) => {
            let values = items.iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            tuple_to_python(py, values, items.fields())?
        }
        Constant::Object(number) => object(py, *number)?,
    })
}

/// A tuple of Python's, or a `NamedTuple`.
fn tuple_to_python<'py>(
    py: Python<'py>,
    values: Vec<Bound<'py, PyAny>>,
    fields: Option<&Fields>,
) -> PyResult<Bound<'py, PyAny>> {
    let values = PyTuple::new(py, values)?;
    let Some(fields) = fields else { return Ok(values.into_any()) };
    let fields = PyTuple::new(py, fields.iter().map(|field| &**field))?;
    py.import("collections")?.call_method1("namedtuple", ("tuple", fields))?.call1(values)
}

/// Whether an object is a function that is decorated as one of compile time.
pub(crate) fn is_constexpr_function(object: &Bound<'_, PyAny>) -> bool {
    let py = object.py();
    Classes::get(py)
        .is_ok_and(|classes| object.is_instance(classes.constexpr_function.bind(py)).unwrap_or(false))
}

/// The Python object for what an argument or a global is to the compiler.
pub(crate) fn host_value_to_python<'py>(py: Python<'py>, value: &HostValue) -> PyResult<Bound<'py, PyAny>> {
    match value {
        HostValue::Constant(constant) | HostValue::PlainGlobal(constant) => to_python(py, constant),
        HostValue::Tuple(items) if items.class().is_some() => aggregate::to_python(py, items),
        HostValue::Tuple(items) => {
            let values = items.iter().map(|item| host_value_to_python(py, item));
            tuple_to_python(py, values.collect::<PyResult<Vec<_>>>()?, items.fields())
        }
        HostValue::RunTime(value) => {
            let attributes = PyDict::new(py);
            for (name, attribute) in &value.attributes {
                attributes.set_item(*name, host_value_to_python(py, attribute)?)?;
            }
            Classes::get(py)?.run_time_value.bind(py).call1((value.number, value.is_descriptor, attributes))
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
