//! Exports locks to Python: recording kernels and choices, and writing locks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::prelude::*;
use tilewright_runtime::lock::{self, Choice, GridExpressions, GridName};
use tilewright_runtime::{Device, Error, Target};

use crate::errors::raised;
use crate::kernel::compiled::CompiledKernel;
use crate::kernel::host::PyHost;
use crate::kernel::jit::{JitKernel, state};

/// Returns whether kernels are launched from a lock only.
#[pyfunction]
pub(crate) fn lock_is_active() -> bool {
    lock::is_locked()
}

/// Begins to read the lock in the background, and to prepare its kernels for the CPU.
#[pyfunction]
pub(crate) fn lock_prepare() {
    lock::prepare_in_background();
}

/// Ends the thread of `lock_prepare`. Call this function before a fork.
#[pyfunction]
pub(crate) fn lock_end_preparation(py: Python<'_>) {
    py.detach(lock::end_preparation);
}

/// Returns whether this process records the kernels that it compiles.
#[pyfunction]
pub(crate) fn lock_is_recording() -> bool {
    lock::is_recording()
}

/// Returns the configuration that the lock has for a tuner and a key. Returns `None` without a
/// lock, or if the lock has no such configuration and its policy permits tuning.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python passes a list")]
pub(crate) fn lock_choice(
    py: Python<'_>,
    kernel: &str,
    source: &str,
    key: Vec<String>,
) -> PyResult<Option<BTreeMap<String, String>>> {
    let found = target().and_then(|target| lock::locked_choice(kernel, source, &target, &key));
    Ok(raised(py, found)?.map(|choice| choice.config))
}

/// Records the choice of a tuner.
#[pyfunction]
pub(crate) fn lock_record_choice(
    py: Python<'_>,
    kernel: String,
    source: String,
    key: Vec<String>,
    config: BTreeMap<String, String>,
    timings: BTreeMap<String, Vec<Option<f64>>>,
) -> PyResult<()> {
    let record = |target| lock::record_choice(&Choice { kernel, source, target, key, config, timings });
    raised(py, target().and_then(record))
}

/// Records a compiled kernel that was compiled while recording was suspended.
#[pyfunction]
pub(crate) fn lock_record(compiled: &Bound<'_, CompiledKernel>) -> PyResult<()> {
    let (py, compiled) = (compiled.py(), compiled.get());
    let function = compiled.function.bind(py);
    let kernel = state(function.cast::<JitKernel>()?)?;
    let mut host = PyHost::default();
    raised(py, py.detach(|| kernel.kernel.record(&compiled.handle, &mut host)))
}

/// Stops recording the kernels that this thread compiles, until `lock_resume`.
#[pyfunction]
pub(crate) fn lock_suspend() {
    lock::suspend_recording();
}

/// Ends the effect of one `lock_suspend`.
#[pyfunction]
pub(crate) fn lock_resume() {
    lock::resume_recording();
}

/// Writes a recording as a lock. Returns the number of kernels, the number of choices, and the
/// kernels that have no code for a target.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python passes texts")]
pub(crate) fn lock_collect(
    py: Python<'_>,
    folder: PathBuf,
    path: PathBuf,
) -> PyResult<(usize, usize, Vec<String>)> {
    let collected = raised(py, lock::collect(&folder, &path))?;
    Ok((collected.lock.entries.len(), collected.lock.choices.len(), collected.failures))
}

/// Assembles the kernels of a lock that have no cubin, and returns their number.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python passes texts")]
pub(crate) fn lock_assemble(py: Python<'_>, path: PathBuf, ptxas: PathBuf) -> PyResult<usize> {
    raised(py, py.detach(|| lock::assemble_missing(&path, &ptxas)))
}

/// Returns the three expressions of a grid in C. `names` contains the name of each parameter. It
/// also contains the compile-time value, if any, and a description if the parameter is not an
/// integer.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python passes texts")]
pub(crate) fn grid_in_c(
    py: Python<'_>,
    text: String,
    names: Vec<(String, Option<i64>, Option<String>)>,
) -> PyResult<Vec<String>> {
    let meaning = |value: &Option<i64>, other: &Option<String>| match (value, other) {
        (Some(value), _) => GridName::Value(*value),
        (None, Some(other)) => GridName::Other(other.clone()),
        (None, None) => GridName::Argument,
    };
    let names: Vec<_> =
        names.iter().map(|(name, value, other)| (name.clone(), meaning(value, other))).collect();
    Ok(raised(py, GridExpressions::parse(&text, &names))?.in_c().into())
}

/// Returns the names of the targets that kernels can be compiled for.
#[pyfunction]
pub(crate) fn target_names() -> Vec<&'static str> {
    Target::names()
}

fn target() -> Result<String, Error> {
    Ok(Device::active()?.target()?.to_string())
}
