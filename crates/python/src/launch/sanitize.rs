//! Exports the sanitizer to Python: its checks, the uninitialized memory, and the findings.

use std::sync::PoisonError;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple};
use tilewright_base::{Code, Diagnostic};
use tilewright_runtime::{Check, Checks, Device, MEMORY, SanitizerReport, SourcePlace};

use crate::errors::to_exception;

/// Returns the checks of launches as a list of names.
#[pyfunction]
pub(crate) fn sanitizer_checks() -> String {
    tilewright_runtime::sanitizer_checks().to_string()
}

/// Parses a list of names of checks. Returns their names in the order of `Check::ALL`, separated by
/// commas.
#[pyfunction]
pub(crate) fn sanitizer_parse(list: &str) -> PyResult<String> {
    let known = || Check::ALL.map(Check::name).join(", ");
    let refuse =
        |name: String| PyValueError::new_err(format!("no check is called '{name}': there are {}", known()));
    Checks::parse(list).map(|checks| checks.to_string()).map_err(refuse)
}

/// Sets whether findings are printed to stderr as they occur.
#[pyfunction]
pub(crate) fn sanitizer_print(is_printing: bool) {
    tilewright_runtime::print_findings(is_printing);
}

/// Records an allocation of uninitialized memory.
#[pyfunction]
pub(crate) fn sanitizer_allocated(address: u64, bytes: u64) {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).allocated(address, bytes);
}

/// Records that memory was freed, or initialized as a whole.
#[pyfunction]
pub(crate) fn sanitizer_freed(address: u64, bytes: u64) {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).freed(address, bytes);
}

/// Records that memory was written.
#[pyfunction]
pub(crate) fn sanitizer_written(address: u64, bytes: u64) {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).write(address, bytes);
}

fn place(py: Python<'_>, place: Option<SourcePlace>) -> PyResult<Bound<'_, PyAny>> {
    let Some(SourcePlace { file, line, column }) = place else { return Ok(py.None().into_bound(py)) };
    Ok((file, line, column).into_pyobject(py)?.into_any())
}

/// Returns the findings as dicts, and the number of dropped findings. With `is_taken`, also removes
/// these findings and resets the number.
#[pyfunction]
pub(crate) fn sanitizer_reports(py: Python<'_>, is_taken: bool) -> PyResult<(Vec<Bound<'_, PyDict>>, u64)> {
    let (reports, dropped) = tilewright_runtime::sanitizer_reports(is_taken);
    Ok((dicts(py, reports)?, dropped))
}

fn dicts(py: Python<'_>, reports: Vec<SanitizerReport>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let mut found = Vec::with_capacity(reports.len());
    for report in reports {
        let dict = PyDict::new(py);
        dict.set_item("check", report.check.name())?;
        dict.set_item("code", report.code.name())?;
        dict.set_item("kernel", report.kernel)?;
        dict.set_item("message", report.message)?;
        dict.set_item("text", report.text)?;
        dict.set_item("place", place(py, report.place)?)?;
        dict.set_item("program", PyTuple::new(py, report.program)?)?;
        dict.set_item("lane", PyTuple::new(py, report.lane)?)?;
        dict.set_item("element", report.element)?;
        let other = match report.other {
            Some((at, program)) => Some((place(py, at)?, PyTuple::new(py, program)?)),
            None => None,
        };
        dict.set_item("other", other)?;
        dict.set_item("count", report.count)?;
        found.push(dict);
    }
    Ok(found)
}

/// Returns the checks that the option `sanitize` of a launch requests. `True` requests all checks,
/// and names request some of them. `None`, `False` or an empty list request none.
pub(crate) fn checks_of(value: &Bound<'_, PyAny>) -> PyResult<Checks> {
    let list = if value.is_none() {
        return Ok(Checks::NONE);
    } else if let Ok(all) = value.cast::<PyBool>() {
        return Ok(if all.is_true() { Checks::ALL } else { Checks::NONE });
    } else if let Ok(name) = value.extract::<String>() {
        name
    } else if let Ok(names) = value.extract::<Vec<String>>() {
        names.join(",")
    } else {
        let found = format!("found {}", value.repr()?);
        return Err(refused(value.py(), &found));
    };
    if list.trim().is_empty() {
        return Ok(Checks::NONE);
    }
    Checks::parse(&list).map_err(|name| refused(value.py(), &format!("found '{name}', which is no check")))
}

fn refused(py: Python<'_>, found: &str) -> PyErr {
    let names = Check::ALL.map(Check::name).join(", ");
    let diagnostic = Diagnostic::new(Code::InvalidOption, "the launch option sanitize names no checks")
        .note(format!("{found}; expected True, or names of checks: {names}"))
        .hint("sanitize=\"race,init\", sanitize=(\"race\", \"init\"), or sanitize=True for every check");
    to_exception(py, &diagnostic.into())
}

/// Returns the error for a launch that requests checks but cannot be sanitized.
pub(crate) fn not_here(py: Python<'_>, where_: &str, hint: &str) -> PyErr {
    let diagnostic =
        Diagnostic::new(Code::NotOnThisDevice, format!("the launch option sanitize is set, and {where_}"))
            .note("the sanitizer checks launches on the CPU and in the simulator of a GPU")
            .hint(hint);
    to_exception(py, &diagnostic.into())
}

/// Returns an error if the device is a GPU. Launches on a GPU cannot be sanitized.
pub(crate) fn check_device(py: Python<'_>, device: Device) -> PyResult<()> {
    let Device::Cuda(_) = device else { return Ok(()) };
    let hint = "launch it on the CPU or with `tilewright run --device sim:sm_90`";
    Err(not_here(py, &format!("the launch is on {device}"), hint))
}

/// Runs a launch with its own checks, and raises their findings as an exception.
#[cold]
pub(crate) fn with_checks<R>(
    py: Python<'_>,
    checks: Checks,
    run: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    let (result, reports, dropped) = tilewright_runtime::with_checks(checks, run);
    if reports.is_empty() {
        return result;
    }
    if result.is_err() {
        // Raises the error that ended the launch, and keeps the findings for `sanitizer_reports`.
        tilewright_runtime::keep_reports_of_launch(reports, dropped);
        return result;
    }
    let found = dicts(py, reports)?;
    py.import("tilewright.sanitizer")?.call_method1("_raise", (found, dropped))?;
    result
}
