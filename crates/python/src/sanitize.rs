//! The sanitizer for Python: which checks there are, what memory has no content yet, and what was found.

use std::sync::PoisonError;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tilewright_runtime::{Check, Checks, MEMORY, SourcePlace};

/// The checks of launches from now on, as a list of names.
#[pyfunction]
pub(crate) fn sanitizer_checks() -> String {
    tilewright_runtime::sanitizer_checks().to_string()
}

/// The checks that a list names, in their order.
#[pyfunction]
pub(crate) fn sanitizer_parse(list: &str) -> PyResult<String> {
    let known = || Check::ALL.map(Check::name).join(", ");
    let refuse =
        |name: String| PyValueError::new_err(format!("no check is called '{name}': there are {}", known()));
    Checks::parse(list).map(|checks| checks.to_string()).map_err(refuse)
}

/// Has findings printed to stderr when they come, or not.
#[pyfunction]
pub(crate) fn sanitizer_print(is_printing: bool) {
    tilewright_runtime::print_findings(is_printing);
}

/// An allocation that begins without content.
#[pyfunction]
pub(crate) fn sanitizer_allocated(address: u64, bytes: u64) {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).allocated(address, bytes);
}

/// Memory that is given back, or has content from its beginning.
#[pyfunction]
pub(crate) fn sanitizer_freed(address: u64, bytes: u64) {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).freed(address, bytes);
}

/// Memory that somebody has written.
#[pyfunction]
pub(crate) fn sanitizer_written(address: u64, bytes: u64) {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).write(address, bytes);
}

fn place(py: Python<'_>, place: Option<SourcePlace>) -> PyResult<Bound<'_, PyAny>> {
    let Some(SourcePlace { file, line, column }) = place else { return Ok(py.None().into_bound(py)) };
    Ok((file, line, column).into_pyobject(py)?.into_any())
}

/// What was found, as dicts, and how many findings more there were than are kept.
#[pyfunction]
pub(crate) fn sanitizer_reports(py: Python<'_>, is_taken: bool) -> PyResult<(Vec<Bound<'_, PyDict>>, u64)> {
    let (reports, dropped) = tilewright_runtime::sanitizer_reports(is_taken);
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
    Ok((found, dropped))
}
