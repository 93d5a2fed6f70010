//! Runs a compiled kernel.

use pyo3::prelude::*;
use tilewright_runtime::{
    Device, Error, Grid, Handle, Interrupt, Region, StreamRef, Value, are_padded_reads_allowed,
    take_padded_reads,
};

use crate::errors::{to_exception, warn};
use crate::signals::SignalCheck;
use crate::values::live::{self, Live};

/// Runs a compiled kernel without the GIL. Ctrl-C stops the kernel. `explain` adds information to
/// an error of the launch.
pub(crate) fn run(
    py: Python<'_>,
    handle: &Handle,
    stream: StreamRef<'static>,
    grid: Grid,
    values: &[Value<'static>],
    explain: impl FnOnce(Error) -> Error,
) -> PyResult<()> {
    run_with(
        py,
        handle,
        |handle, foreign, interrupt| handle.launch_on(stream, grid, values, foreign, interrupt),
        explain,
    )
}

/// Runs a compiled kernel by calling `start` without the GIL. `start` gets the handle, the memory
/// that computed pointers may reach, and the interrupt.
#[inline]
pub(crate) fn run_with(
    py: Python<'_>,
    handle: &Handle,
    start: impl FnOnce(&Handle, &[Region<'_>], Interrupt<'_>) -> Result<(), Error> + Send,
    explain: impl FnOnce(Error) -> Error,
) -> PyResult<()> {
    let signal = SignalCheck::default();
    let is_in_main_memory = !matches!(handle.device(), Device::Cuda(_));
    let live =
        if handle.makes_pointers() && is_in_main_memory { live::tensors(py)? } else { Live::default() };
    let result = py.detach(|| start(handle, &live.regions, Interrupt::Poll(&|| signal.poll())));
    drop(live);
    if let Some(raised) = signal.raised() {
        return Err(raised);
    }
    result.map_err(|error| to_exception(py, &explain(error)))?;
    if are_padded_reads_allowed() {
        take_padded_reads().iter().try_for_each(|read| warn(py, read))?;
    }
    Ok(())
}
