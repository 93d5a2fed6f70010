//! Converts diagnostics and other errors to Python exceptions and warnings.

use std::ffi::CString;
use std::io::IsTerminal;

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tilewright_base::{Code, Color, Diagnostic, SourceMap, Span};
use tilewright_runtime::Error;

/// Returns the exception for an error. The kind of the error selects the class.
#[cold]
pub(crate) fn to_exception(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).unwrap_or_else(|failure| failure)
}

/// Converts the error of a result to an exception.
pub(crate) fn raised<T, E: Into<Error>>(py: Python<'_>, result: Result<T, E>) -> PyResult<T> {
    result.map_err(|error| to_exception(py, &error.into()))
}

/// Issues a warning at the current line of the program.
///
/// Fails if the program turns warnings into errors.
#[cold]
pub(crate) fn warn(py: Python<'_>, warning: &Error) -> PyResult<()> {
    warn_text(py, &warning.render(Color::Never))
}

/// Issues a text as a warning at the current line of the program.
#[cold]
pub(crate) fn warn_text(py: Python<'_>, text: &str) -> PyResult<()> {
    let class = py.import(intern!(py, "tilewright.errors"))?.getattr(intern!(py, "LaunchWarning"))?;
    let text = CString::new(text.replace('\0', ""))?;
    PyErr::warn(py, &class, &text, 1)
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let class = |name: &str| py.import(intern!(py, "tilewright.errors"))?.getattr(name);
    match error {
        Error::OutOfResources(error) => {
            let raised = class("OutOfResources")?.call1((error.required, error.limit, error.name))?;
            return Ok(PyErr::from_value(raised));
        }
        Error::Assembler(message) => {
            return Ok(PyErr::from_value(class("PTXASError")?.call1((message,))?));
        }
        Error::Diagnostics(_) | Error::Internal(_) => {}
    }
    let (Error::Diagnostics(failure), Some(kind)) = (error, error.kind()) else {
        return Ok(PyRuntimeError::new_err(error.to_string()));
    };
    let module = py.import(intern!(py, "tilewright.errors"))?;
    let class = module.getattr(intern!(py, "Diagnostic"))?;
    let color = color();
    let mut findings = Vec::new();
    for diagnostic in &failure.diagnostics {
        let text = diagnostic.render(&failure.sources, color);
        let attributes = attributes(py, diagnostic, &failure.sources)?;
        findings.push(class.call((text,), Some(&attributes))?);
    }
    let findings = PyTuple::new(py, findings)?;
    let exception =
        module.getattr(intern!(py, "from_diagnostics"))?.call1((format!("{kind:?}"), findings))?;
    Ok(PyErr::from_value(exception))
}

/// Returns the Python attributes of a diagnostic.
fn attributes<'py>(
    py: Python<'py>,
    diagnostic: &Diagnostic,
    sources: &SourceMap,
) -> PyResult<Bound<'py, PyDict>> {
    let place = |span: Span| {
        let file = sources.file(span.file);
        let (line, column) = file.line_column(span.start);
        (file.name.as_str(), line, column)
    };
    let span = diagnostic.primary.as_ref().map(|label| label.span);
    let start = span.map(place);
    let end = span.map(|span| place(Span { start: span.end, ..span }));
    let end_column = start.zip(end).and_then(|(start, end)| (start.1 == end.1).then_some(end.2));
    let label = diagnostic.primary.as_ref().map_or("", |label| label.text.as_str());
    let labels = diagnostic.secondary.iter().map(|label| {
        let (file, line, column) = place(label.span);
        (file, line, column, label.text.as_str())
    });
    let attributes = PyDict::new(py);
    attributes.set_item("code", diagnostic.code.name())?;
    attributes.set_item("message", &diagnostic.message)?;
    attributes.set_item("file", start.map(|start| start.0))?;
    attributes.set_item("line", start.map(|start| start.1))?;
    attributes.set_item("column", start.map(|start| start.2))?;
    attributes.set_item("end_column", end_column)?;
    attributes.set_item("label", label)?;
    attributes.set_item("labels", PyTuple::new(py, labels.collect::<Vec<_>>())?)?;
    attributes.set_item("notes", PyTuple::new(py, &diagnostic.notes)?)?;
    attributes.set_item("hint", diagnostic.hint.as_deref())?;
    Ok(attributes)
}

/// Returns `Color::Always` only if stderr is a terminal and `NO_COLOR` is unset or empty.
fn color() -> Color {
    let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if is_wanted && std::io::stderr().is_terminal() { Color::Always } else { Color::Never }
}

/// Returns the exception for a function of the language that Python calls outside of a kernel.
#[pyfunction]
pub(crate) fn outside_kernel(py: Python<'_>, name: &str) -> Py<PyAny> {
    let diagnostic = Diagnostic::new(Code::OutsideKernel, format!("'{name}' is called outside of a kernel"))
        .note("the functions of the language are compiled; Python cannot run them")
        .hint("call it in a function that is decorated with @triton.jit");
    to_exception(py, &diagnostic.into()).into_value(py).into_any()
}

/// Returns the exception for a part of Triton that is missing because tilewright replaces it.
/// `message` names the part, and `hint` names a replacement.
#[pyfunction]
#[pyo3(signature = (message, hint = None))]
pub(crate) fn not_available(py: Python<'_>, message: &str, hint: Option<String>) -> Py<PyAny> {
    let diagnostic = Diagnostic { hint, ..Diagnostic::new(Code::Replaced, message) };
    to_exception(py, &diagnostic.into()).into_value(py).into_any()
}
