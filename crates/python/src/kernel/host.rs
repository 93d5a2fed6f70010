//! Implements the trait [`Host`] with live Python objects.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyAttributeError, PyException};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule, PySet, PyString, PyTuple, PyType};
use tilewright_base::{Code, Color, Diagnostic, SourceMap};
use tilewright_frontend::{
    Aggregate, CallError, Constant, FunctionRef, FunctionSource, Host, HostValue, Member, NamedTuple,
    ObjectRef,
};
use tilewright_runtime::Error;

use super::aggregate;
use super::dependencies::{Variable, VariableSource};
use crate::errors::{to_exception, warn_text};
use crate::signals::SignalCheck;
use crate::values::aggregate::is_aggregate;
use crate::values::classify::{as_constant, classify, constant, is_constexpr_function, named_tuple};
use crate::values::function::{Function, function};
use crate::values::objects::{object, object_ref};
use crate::values::to_python::{host_value_to_python, to_python};

/// The host of a compilation in Python. The compiler runs without the GIL; each method acquires it.
#[derive(Default)]
pub(crate) struct PyHost {
    findings: Arc<Mutex<Findings>>,
    signal: SignalCheck,
}

/// The results of a compilation, except the code.
#[derive(Default)]
pub(crate) struct Findings {
    /// The variables on which the code depends.
    pub(crate) read: Vec<Variable>,
    /// The exception that ended the compilation, such as Ctrl-C.
    pub(crate) raised: Option<PyErr>,
    /// Exceptions of the program's own code, which explain a failed compilation.
    pub(crate) caught: Vec<Caught>,
}

/// An exception of the program's own code.
pub(crate) struct Caught {
    /// The name that was looked up; `None` if a function was called.
    pub(crate) name: Option<String>,
    /// A note for the diagnostic, such as `reading 'x' raised …`; for a called function, the text
    /// of the exception.
    pub(crate) text: String,
    pub(crate) error: PyErr,
}

/// Ends a compilation, and returns the exceptions of the program's own code.
///
/// Fails if an exception such as Ctrl-C ended the compilation.
pub(crate) fn finish(py: Python<'_>, findings: &Mutex<Findings>) -> PyResult<Vec<Caught>> {
    let Findings { raised, caught, .. } =
        std::mem::take(&mut *findings.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(raised) = raised {
        return Err(raised);
    }
    // The user may have pressed Ctrl-C meanwhile.
    py.check_signals()?;
    Ok(caught)
}

/// Returns the exception for a failed compilation, with the exceptions of the program's own code.
#[cold]
pub(crate) fn failure(py: Python<'_>, mut error: Error, caught: Vec<Caught>) -> PyErr {
    let mut cause = None;
    if let Error::Diagnostics(failure) = &mut error {
        for Caught { name, text, error } in caught {
            let is_about = |diagnostic: &&mut Diagnostic| match &name {
                Some(name) => diagnostic.message.contains(&format!("'{name}'")),
                None => diagnostic.code == Code::ConstexprError,
            };
            let Some(diagnostic) = failure.diagnostics.iter_mut().find(is_about) else { continue };
            if name.is_some() {
                diagnostic.notes.push(text);
            }
            cause.get_or_insert(error);
        }
    }
    let exception = to_exception(py, &error);
    if cause.is_some() {
        exception.set_cause(py, cause);
    }
    exception
}

impl PyHost {
    /// Returns the findings, to which the compilation still adds.
    pub(crate) fn findings(&self) -> Arc<Mutex<Findings>> {
        Arc::clone(&self.findings)
    }

    fn lock(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the compilation stop at a signal, or at an exception such as `KeyboardInterrupt`.
    /// Returns any other exception.
    fn stop(&self, py: Python<'_>, error: PyErr) -> Option<PyErr> {
        // Formatting the error would swallow a Ctrl-C.
        if let Err(signal) = py.check_signals() {
            self.lock().raised.get_or_insert(signal);
        }
        if error.is_instance_of::<PyException>(py) {
            return Some(error);
        }
        self.lock().raised.get_or_insert(error);
        None
    }

    /// Records an exception that code of the program raised, and returns its text.
    fn raised(&self, py: Python<'_>, error: PyErr) -> String {
        let text = error.to_string();
        if let Some(error) = self.stop(py, error) {
            self.lock().caught.push(Caught { name: None, text: text.clone(), error });
        }
        text
    }

    /// Returns the result of a lookup in Python, or `None` if it found nothing or raised an
    /// exception.
    ///
    /// Such an attribute counts as absent. The exception is recorded for the diagnostic about the
    /// name.
    fn found<T>(
        &self,
        py: Python<'_>,
        name: &str,
        what: impl Fn() -> String,
        result: PyResult<Option<T>>,
    ) -> Option<T> {
        result.unwrap_or_else(|error| {
            let is_plainly_absent =
                error.is_instance_of::<PyAttributeError>(py) && error.traceback(py).is_none();
            let error = self.stop(py, error).filter(|_| !is_plainly_absent)?;
            let text = format!("{} raised {}", what(), one_line(&error.to_string()));
            self.lock().caught.push(Caught { name: Some(name.to_owned()), text, error });
            None
        })
    }

    /// Looks up a name in the closure, then in the globals.
    fn find_name(&self, python: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<HostValue>> {
        let py = python.py();
        let free: Vec<String> =
            python.getattr(intern!(py, "__code__"))?.getattr(intern!(py, "co_freevars"))?.extract()?;
        if let Some(position) = free.iter().position(|variable| variable == name) {
            let cell = python.getattr(intern!(py, "__closure__"))?.get_item(position)?;
            // The cell is empty if the variable has no value yet.
            let Ok(value) = cell.getattr(intern!(py, "cell_contents")) else { return Ok(None) };
            let classified = classify(&value)?;
            self.note(VariableSource::Cell(cell.unbind()), &value, &classified);
            return Ok(Some(classified));
        }
        let globals = python.getattr(intern!(py, "__globals__"))?.cast_into::<PyDict>()?;
        let Some(value) = globals.get_item(name)? else { return Ok(None) };
        let classified = classify(&value)?;
        let source = VariableSource::Global(globals.clone().unbind(), PyString::intern(py, name).unbind());
        self.note(source, &value, &classified);
        let may_change =
            value.is_instance_of::<PyDict>() || value.is_instance_of::<PySet>() || is_array(&value)?;
        Ok(Some(match classified {
            HostValue::Object(number) if may_change => HostValue::PlainGlobal(Constant::Object(number)),
            other => other,
        }))
    }

    fn find_attribute(&self, object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<HostValue>> {
        let py = object.py();
        let name = PyString::intern(py, name);
        let value = object.getattr(&name)?;
        let classified = classify(&value)?;
        let source = match module_dict(object, &name) {
            Some(dict) => VariableSource::Global(dict.unbind(), name.unbind()),
            None => VariableSource::Attribute(object.clone().unbind(), name.unbind()),
        };
        self.note(source, &value, &classified);
        // A method of another object, such as a dict, runs at compile time.
        let is_namespace = object.is_instance_of::<PyModule>() || object.is_instance_of::<PyType>();
        Ok(Some(match classified {
            HostValue::Callable(number) if !is_namespace => HostValue::ConstexprFunction(number),
            other => other,
        }))
    }

    /// Records a variable, unless its value is an object of the language or a module, to which
    /// programs do not assign again.
    fn note(&self, source: VariableSource, value: &Bound<'_, PyAny>, classified: &HostValue) {
        if matches!(classified, HostValue::Language(_)) || value.is_instance_of::<PyModule>() {
            return;
        }
        let variable = Variable::new(source, value, classified.clone());
        let mut findings = self.lock();
        if !findings.read.iter().any(|known| known.is_same_variable(&variable)) {
            findings.read.push(variable);
        }
    }
}

/// Returns the dict of a module, if it contains the name. Reading it runs no code of the program.
fn module_dict<'py>(object: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> Option<Bound<'py, PyDict>> {
    let dict = object.cast::<PyModule>().ok()?.dict();
    dict.contains(name).is_ok_and(|is_there| is_there).then_some(dict)
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

impl Host for PyHost {
    fn source(&mut self, number: FunctionRef) -> Result<FunctionSource, String> {
        Python::attach(|py| {
            let function = function(py, number).ok_or("the function does not exist any more")?;
            function.get().source().ok_or_else(|| "the function has no source".into())
        })
    }

    fn name(&mut self, number: FunctionRef, name: &str) -> Option<HostValue> {
        Python::attach(|py| {
            let found = self.find_name(&python_function(py, number)?, name);
            self.found(py, name, || format!("reading '{name}'"), found)
        })
    }

    fn names(&mut self, number: FunctionRef) -> Vec<String> {
        Python::attach(|py| {
            let Some(python) = python_function(py, number) else { return Vec::new() };
            visible_names(&python).unwrap_or_default()
        })
    }

    fn attribute(&mut self, number: ObjectRef, name: &str) -> Option<HostValue> {
        Python::attach(|py| {
            let object = object(py, number).ok()?;
            let what = || {
                let owner = describe(&object).unwrap_or_else(|_| "an object".into());
                format!("reading '{name}' of {owner}")
            };
            self.found(py, name, what, self.find_attribute(&object, name))
        })
    }

    fn method(&mut self, value: &Constant, name: &str) -> Option<HostValue> {
        Python::attach(|py| {
            let what = || format!("reading '{name}' of {value}");
            self.found(py, name, what, method(py, value, name))
        })
    }

    fn named_tuple(&mut self, number: ObjectRef) -> Option<NamedTuple> {
        Python::attach(|py| {
            let class = object(py, number).ok()?;
            self.found(py, "_fields", || "reading the fields of a tuple".into(), named_tuple(&class))
        })
    }

    fn default(&mut self, number: FunctionRef, parameter: &str) -> Option<HostValue> {
        Python::attach(|py| {
            let found = default(&function(py, number)?, parameter);
            self.found(py, parameter, || format!("the default of '{parameter}'"), found)
        })
    }

    fn call(
        &mut self,
        callee: ObjectRef,
        arguments: &[HostValue],
        keywords: &[(String, HostValue)],
    ) -> Result<HostValue, CallError> {
        Python::attach(|py| {
            call(py, callee, arguments, keywords).map_err(|error| {
                let needs_value = is_about_value(py, &error);
                CallError { text: self.raised(py, error), needs_value }
            })
        })
    }

    fn takes_run_time(&mut self, callee: ObjectRef) -> bool {
        Python::attach(|py| object(py, callee).is_ok_and(|callee| is_constexpr_function(&callee)))
    }

    fn aggregate(&mut self, class: ObjectRef) -> Option<Aggregate> {
        Python::attach(|py| {
            let class = object(py, class).ok()?;
            let found = aggregate::aggregate(&class);
            self.found(py, "_tilewright_fields", || "reading the fields of a class".into(), found)
        })
    }

    fn member(&mut self, class: ObjectRef, after: Option<ObjectRef>, name: &str) -> Option<Member> {
        Python::attach(|py| {
            let class = object(py, class).ok()?;
            let after = after.and_then(|after| object(py, after).ok());
            let found = aggregate::member(&class, after.as_ref(), name);
            self.found(py, name, || format!("reading '{name}' of a class"), found)
        })
    }

    fn is_callable(&mut self, number: ObjectRef) -> bool {
        Python::attach(|py| object(py, number).is_ok_and(|object| object.is_callable()))
    }

    fn is_instance(&mut self, value: &HostValue, class: ObjectRef) -> bool {
        Python::attach(|py| {
            let Ok(class) = object(py, class) else { return false };
            let Ok(value) = host_value_to_python(py, value) else { return false };
            let found = match (value.cast::<PyType>(), class.cast::<PyType>()) {
                (Ok(value), Ok(class)) if is_aggregate(class) => value.is_subclass(class),
                _ => value.is_instance(&class),
            };
            self.found(py, "isinstance", || "isinstance".into(), found.map(Some)).unwrap_or(false)
        })
    }

    fn operate(&mut self, operator: &str, operands: &[HostValue]) -> Option<Result<HostValue, String>> {
        Some(Python::attach(|py| operate(py, operator, operands).map_err(|error| self.raised(py, error))))
    }

    fn layout(&mut self, text: &str) -> Option<HostValue> {
        Python::attach(|py| {
            let found = py.import(intern!(py, "tilewright.experimental.gluon._layouts")).and_then(|module| {
                let layout = module.call_method1(intern!(py, "_from_text"), (text,))?;
                Ok(Some(HostValue::Object(object_ref(&layout)?)))
            });
            self.found(py, "layout", || format!("making the layout {text}"), found)
        })
    }

    fn must_use_result(&mut self, number: FunctionRef) -> Option<String> {
        Python::attach(|py| {
            let name = intern!(py, "_must_use_result");
            let marked = function(py, number)?.getattr_opt(name).ok()?;
            let mark = marked.or_else(|| python_function(py, number)?.getattr_opt(name).ok()?)?;
            let is_marked = mark.is_truthy().unwrap_or(false);
            is_marked.then(|| mark.extract().unwrap_or_default())
        })
    }

    fn describe(&mut self, number: ObjectRef) -> String {
        Python::attach(|py| {
            let text = object(py, number).and_then(|object| describe(&object));
            text.unwrap_or_else(|_| "an object".into())
        })
    }

    fn print(&mut self, text: &str) {
        Python::attach(|py| {
            if let Err(error) = write(py, text) {
                error.write_unraisable(py, None);
            }
        });
    }

    fn warn(&mut self, diagnostic: &Diagnostic, sources: &SourceMap) {
        static WARNED: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let warned = || WARNED.lock().unwrap_or_else(PoisonError::into_inner);
        let text = diagnostic.render(sources, Color::Never);
        {
            let mut warned = warned();
            if warned.contains(&text) {
                return;
            }
            warned.push(text.clone());
        }
        Python::attach(|py| {
            if let Err(error) = warn_text(py, &text) {
                // The exception ends the compilation. The next compilation warns again.
                warned().retain(|other| *other != text);
                self.lock().raised.get_or_insert(error);
            }
        });
    }

    fn interrupted(&mut self) -> bool {
        if self.lock().raised.is_some() {
            return true;
        }
        let is_raised = self.signal.poll();
        if is_raised {
            self.lock().raised = self.signal.take();
        }
        is_raised
    }
}

/// Prints a text that a kernel prints while it is compiled. The text includes its end of line.
fn write(py: Python<'_>, text: &str) -> PyResult<()> {
    let how = PyDict::new(py);
    how.set_item(intern!(py, "end"), "")?;
    py.import(intern!(py, "builtins"))?.getattr(intern!(py, "print"))?.call((text,), Some(&how))?;
    Ok(())
}

fn python_function(py: Python<'_>, number: FunctionRef) -> Option<Bound<'_, PyAny>> {
    function(py, number)?.getattr(intern!(py, "fn")).ok()
}

/// Returns whether an object is an array of numpy or a tensor of torch, whose elements may change.
fn is_array(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = value.get_type();
    let (module, name) = (class.module()?, class.name()?);
    Ok(matches!(
        (module.to_cow()?.as_ref(), name.to_cow()?.as_ref()),
        ("numpy", "ndarray") | ("torch", "Tensor") | ("torch.nn.parameter", "Parameter")
    ))
}

fn visible_names(python: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let py = python.py();
    let free = python.getattr(intern!(py, "__code__"))?.getattr(intern!(py, "co_freevars"))?;
    let mut names: Vec<String> = free.extract()?;
    let globals = python.getattr(intern!(py, "__globals__"))?.cast_into::<PyDict>()?;
    for name in globals.keys() {
        names.extend(name.extract::<String>().ok().filter(|name| !name.starts_with("__")));
    }
    Ok(names)
}

fn default(function: &Bound<'_, Function>, parameter: &str) -> PyResult<Option<HostValue>> {
    let py = function.py();
    let parameters = function.getattr(intern!(py, "signature"))?.getattr(intern!(py, "parameters"))?;
    let found = parameters.get_item(parameter)?;
    let value = found.getattr(intern!(py, "default"))?;
    if value.is(found.getattr(intern!(py, "empty"))?) {
        return Ok(None);
    }
    constant(&value).map(Some)
}

fn call(
    py: Python<'_>,
    callee: ObjectRef,
    arguments: &[HostValue],
    keywords: &[(String, HostValue)],
) -> PyResult<HostValue> {
    let callee = object(py, callee)?;
    let arguments = arguments.iter().map(|argument| host_value_to_python(py, argument));
    let arguments = arguments.collect::<PyResult<Vec<_>>>()?;
    let named = PyDict::new(py);
    for (name, value) in keywords {
        named.set_item(name, host_value_to_python(py, value)?)?;
    }
    constant(&callee.call(PyTuple::new(py, arguments)?, Some(&named))?)
}

/// Returns whether an exception is about a value that is known only at run time.
fn is_about_value(py: Python<'_>, error: &PyErr) -> bool {
    let class = py.import(intern!(py, "tilewright.language._run_time"));
    let class = class.and_then(|module| module.getattr(intern!(py, "RunTimeValueError")));
    class.is_ok_and(|class| error.is_instance(py, &class))
}

/// Applies Python's operator of this name to the operands.
fn operate(py: Python<'_>, operator: &str, operands: &[HostValue]) -> PyResult<HostValue> {
    let operands = operands.iter().map(|operand| host_value_to_python(py, operand));
    let operands = PyTuple::new(py, operands.collect::<PyResult<Vec<_>>>()?)?;
    let function = match operator {
        "iter" => py.import(intern!(py, "builtins"))?.getattr(intern!(py, "tuple"))?,
        "len" => py.import(intern!(py, "builtins"))?.getattr(intern!(py, "len"))?,
        name => py.import(intern!(py, "operator"))?.getattr(name)?,
    };
    constant(&function.call1(operands)?)
}

/// Returns the public attribute with this name of a number or string; `None` if there is none.
fn method(py: Python<'_>, value: &Constant, name: &str) -> PyResult<Option<HostValue>> {
    let value = to_python(py, value)?;
    let is_public = !name.starts_with('_');
    let Some(found) = (if is_public { value.getattr_opt(name)? } else { None }) else { return Ok(None) };
    Ok(Some(match classify(&found)? {
        HostValue::Callable(object) => HostValue::ConstexprFunction(object),
        other => as_constant(other),
    }))
}

fn describe(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = object.py();
    if let Ok(module) = object.cast::<PyModule>() {
        return Ok(format!("module '{}'", module.name()?.to_cow()?));
    }
    let name = object.getattr_opt(intern!(py, "__qualname__"))?;
    // Programs often pass a dtype of torch or numpy in place of a dtype of the language.
    if object.get_type().name()?.to_cow()?.to_ascii_lowercase().ends_with("dtype") {
        return Ok(object.repr()?.to_cow()?.into_owned());
    }
    Ok(match (object.cast::<PyType>(), name) {
        (Ok(class), _) => format!("class '{}'", class.name()?.to_cow()?),
        (Err(_), Some(name)) => format!("function '{name}'"),
        (Err(_), None) => format!("an object of class '{}'", object.get_type().name()?.to_cow()?),
    })
}
