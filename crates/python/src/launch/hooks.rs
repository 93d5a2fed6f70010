//! Calls the functions of `triton.knobs.runtime` around launches and compilations.
//!
//! `tilewright.runtime._hooks` keeps the functions. This module only records whether there are any,
//! so that a launch without hooks costs nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tilewright_runtime::{Grid, StreamRef};

use crate::kernel::compiled::CompiledKernel;
use crate::kernel::jit::JitKernel;

static AROUND_LAUNCHES: AtomicBool = AtomicBool::new(false);
static AROUND_COMPILATIONS: AtomicBool = AtomicBool::new(false);
static AROUND_LOADS: AtomicBool = AtomicBool::new(false);
static CAPTURING: AtomicBool = AtomicBool::new(false);
/// True if `AROUND_LOADS` or `CAPTURING` is true. Launches check this flag instead of both.
static BEFORE_LAUNCHES: AtomicBool = AtomicBool::new(false);

/// Sets whether there are hooks around launches, compilations and loads.
#[pyfunction]
pub(crate) fn set_hooks(launch: bool, compilation: bool, load: bool) {
    AROUND_LOADS.store(load, Ordering::Relaxed);
    BEFORE_LAUNCHES.store(load || is_capturing(), Ordering::Relaxed);
    AROUND_LAUNCHES.store(launch, Ordering::Relaxed);
    AROUND_COMPILATIONS.store(compilation, Ordering::Relaxed);
}

/// Returns whether there are hooks around launches.
#[inline]
pub(crate) fn around_launches() -> bool {
    AROUND_LAUNCHES.load(Ordering::Relaxed)
}

/// Returns whether there are hooks around compilations.
pub(crate) fn around_compilations() -> bool {
    AROUND_COMPILATIONS.load(Ordering::Relaxed)
}

/// Sets whether launches are recorded in a graph of torch instead of run.
#[pyfunction]
pub(crate) fn set_capturing(is_capturing: bool) {
    CAPTURING.store(is_capturing, Ordering::Relaxed);
    BEFORE_LAUNCHES.store(is_capturing || around_loads(), Ordering::Relaxed);
}

/// Returns whether launches are recorded in a graph of torch instead of run.
pub(crate) fn is_capturing() -> bool {
    CAPTURING.load(Ordering::Relaxed)
}

/// Records a launch in a graph of torch.
#[cold]
pub(crate) fn note_launch(
    launched: &Bound<'_, PyAny>,
    grid: Grid,
    (args, kwargs): (Bound<'_, PyTuple>, Bound<'_, PyDict>),
) -> PyResult<()> {
    let [x, y, z] = grid.extents();
    let graphs = launched.py().import(intern!(launched.py(), "tilewright._cuda_on_cpu.graphs"))?;
    graphs.call_method1("note_launch", (launched, (x, y, z), args, kwargs))?;
    Ok(())
}

/// Returns whether there are hooks around loads, or launches are recorded instead of run.
#[inline]
pub(crate) fn before_launches() -> bool {
    BEFORE_LAUNCHES.load(Ordering::Relaxed)
}

/// Returns whether there are hooks around the loading of kernels.
pub(crate) fn around_loads() -> bool {
    AROUND_LOADS.load(Ordering::Relaxed)
}

/// Loads a kernel between its two hooks, unless it is loaded. Returns whether code of the program
/// has run.
#[cold]
pub(crate) fn load(handle: &Bound<'_, CompiledKernel>) -> PyResult<bool> {
    let twin = CompiledKernel::twin(handle)?;
    if handle.get().is_launched() || !twin.getattr("module")?.is_none() {
        return Ok(false);
    }
    twin.call_method0("_init_handles")?;
    Ok(true)
}

/// Runs a launch between its two hooks. The hooks get the metadata that the kernel's
/// `launch_metadata` returns for the arguments.
#[cold]
pub(crate) fn around<T>(
    handle: &Bound<'_, CompiledKernel>,
    grid: Grid,
    stream: StreamRef<'_>,
    arguments: &Bound<'_, PyDict>,
    start: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    let hooks = module(handle.py())?;
    let [x, y, z] = grid.extents();
    let about = (CompiledKernel::twin(handle)?, (x, y, z), stream.raw(), arguments);
    let metadata = hooks.call_method1("launch_metadata", about)?;
    hooks.call_method1("launch_enter", (&metadata,))?;
    let started = start()?;
    hooks.call_method1("launch_exit", (&metadata,))?;
    Ok(started)
}

/// Calls the hook before (`before_compile`) or after (`after_compile`) a compilation. Returns
/// whether the hook forbids the compilation.
#[cold]
pub(crate) fn compilation(
    name: &str,
    kernel: &Bound<'_, JitKernel>,
    arguments: &Bound<'_, PyDict>,
    is_warmup: bool,
) -> PyResult<bool> {
    module(kernel.py())?.call_method1(name, (kernel, arguments, is_warmup))?.is_truthy()
}

fn module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "tilewright.runtime._hooks"))
}
