//! The device that kernels run on, and what Python asks about it.

use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tilewright_runtime::{Device, Knobs, num_threads};

use crate::errors::to_exception;

static CURRENT: RwLock<Device> = RwLock::new(Device::Cpu);

/// Where kernels run that are launched for the first time from now on.
pub(crate) fn current() -> Device {
    *CURRENT.read().unwrap_or_else(PoisonError::into_inner)
}

/// The name of the device that kernels run on: `cpu`.
#[pyfunction]
pub(crate) fn device() -> String {
    current().to_string()
}

/// Chooses the device for kernels that were not launched yet; an error if this machine does not have it.
#[pyfunction]
pub(crate) fn set_device(py: Python<'_>, name: &str) -> PyResult<()> {
    let found = Device::parse(name).and_then(|device| device.target().map(|_| device));
    let device = found.map_err(|error| to_exception(py, &error))?;
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = device;
    Ok(())
}

/// The back end, architecture and warp size that kernels are compiled for.
#[pyfunction]
pub(crate) fn current_target(py: Python<'_>) -> PyResult<(&'static str, &'static str, u32)> {
    let target = current().target().map_err(|error| to_exception(py, &error))?;
    Ok((target.backend(), target.architecture(), 0))
}

/// Reads the environment anew, for kernels that are launched from now on.
#[pyfunction]
pub(crate) fn reload_knobs() {
    Knobs::from_environment().set();
}

/// What programs ask of a GPU to choose a grid, answered for the processor: a core is a multiprocessor, and the rest is
/// what GPUs of today have, so that occupancy formulas come out with at least one program for each core.
#[pyfunction]
pub(crate) fn device_properties(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let properties = PyDict::new(py);
    for (name, value) in [
        ("max_shared_mem", 101_376),
        ("max_num_regs", 65_536),
        ("multiprocessor_count", num_threads()),
        ("warpSize", 32),
        ("max_threads_per_sm", 2048),
        ("sm_clock_rate", 2_000_000),
        ("mem_clock_rate", 3_200_000),
        ("mem_bus_width", 128),
    ] {
        properties.set_item(name, value)?;
    }
    Ok(properties)
}

/// The command line `tilewright ...`, without `run`; returns the exit code.
#[pyfunction]
pub(crate) fn command_line(py: Python<'_>, arguments: Vec<String>) -> u8 {
    py.detach(|| tilewright_cli::main(std::iter::once("tilewright".to_owned()).chain(arguments)))
}
