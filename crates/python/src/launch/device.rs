//! The device that kernels run on, and what Python asks about it.
#![expect(unsafe_code, reason = "a stream is known by its number")]

use std::ffi::OsString;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};
use tilewright_runtime::{Context, Device, Error, Handle, Knobs, StreamRef, Target, num_threads};

use crate::errors::raised;
use crate::values::torch::Torch;

/// The name of the active device: `cpu`, `cuda:0`, `sim:sm_90`.
#[pyfunction]
pub(crate) fn device(py: Python<'_>) -> PyResult<String> {
    raised(py, Device::active()).map(|device| device.to_string())
}

/// Returns whether this machine has a GPU that kernels can be compiled for.
#[pyfunction]
pub(crate) fn has_gpu() -> bool {
    Device::Cuda(0).target().is_ok()
}

/// Chooses the device for kernels that were not launched yet; an error if this machine does not
/// have it.
#[pyfunction]
pub(crate) fn set_device(py: Python<'_>, name: &str) -> PyResult<()> {
    raised(py, Device::parse(name).and_then(Device::select))
}

/// The back end, architecture and warp size that kernels are compiled for: `("cuda", 90, 32)`,
/// `("cpu", "x86_64", 0)`.
#[pyfunction]
pub(crate) fn current_target(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let target = raised(py, Device::active().and_then(Device::target))?;
    target_tuple(py, target)
}

/// What Triton's `GPUTarget` is made of.
pub(crate) fn target_tuple(py: Python<'_>, target: Target) -> PyResult<Bound<'_, PyAny>> {
    let backend = target.backend();
    match target.capability() {
        Some(capability) => Ok((backend, capability, 32).into_pyobject(py)?.into_any()),
        None => Ok((backend, target.architecture(), 0).into_pyobject(py)?.into_any()),
    }
}

/// Major and minor compute capability of a GPU, the active one by default; (0, 0) of the processor.
#[pyfunction]
#[pyo3(signature = (number = None))]
pub(crate) fn device_capability(py: Python<'_>, number: Option<u16>) -> PyResult<(u32, u32)> {
    let device = raised(py, numbered(number))?;
    let target = raised(py, device.target())?;
    let capability = match device {
        Device::Cuda(_) => raised(py, device.gpu())?.capability(),
        _ => return Ok(target.capability().map_or((0, 0), |capability| (capability / 10, capability % 10))),
    };
    Ok((capability.major, capability.minor))
}

/// The multiprocessors of the simulator's GPU with a compute capability, or with the newest one
/// before it.
#[pyfunction]
pub(crate) fn multiprocessors_of(major: u32, minor: u32) -> u32 {
    tilewright_runtime::multiprocessors_of(major * 10 + minor)
}

/// Makes kernels for the processor report the compute capability of a GPU (times 10), as the
/// program sees it.
#[pyfunction]
pub(crate) fn claim_capability(capability: u32) {
    tilewright_runtime::claim_capability(capability);
}

/// Says whether loads may end in the padding that an allocator of a GPU would put after a tensor:
/// they give 0 then.
#[pyfunction]
pub(crate) fn allow_padded_reads(is_allowed: bool) {
    tilewright_runtime::allow_padded_reads(is_allowed);
}

/// The active device; of GPUs that with this number.
fn numbered(number: Option<u16>) -> Result<Device, Error> {
    Ok(match (Device::active()?, number) {
        (Device::Cuda(_), Some(number)) => Device::Cuda(number),
        (device, _) => device,
    })
}

/// The number of the GPU that this thread works on; 0 for other devices.
#[pyfunction]
pub(crate) fn current_device(py: Python<'_>) -> PyResult<u32> {
    Ok(match raised(py, Device::current())? {
        Device::Cuda(number) => number.into(),
        _ => 0,
    })
}

/// Has this thread work on another GPU; other devices are there once.
#[pyfunction]
pub(crate) fn set_current_device(py: Python<'_>, number: u16) -> PyResult<()> {
    let Device::Cuda(_) = raised(py, Device::active())? else { return Ok(()) };
    let gpu = raised(py, Device::Cuda(number).gpu())?;
    raised(py, Context::primary(gpu).and_then(Context::make_current))
}

/// Returns whether a stream is being captured into a graph.
#[pyfunction]
pub(crate) fn is_stream_capturing(py: Python<'_>, stream: u64) -> PyResult<bool> {
    let device @ Device::Cuda(_) = raised(py, Device::current())? else { return Ok(false) };
    let gpu = raised(py, device.gpu())?;
    let answer = Context::current_or_primary(gpu).and_then(|context| context.is_capturing(stream_of(stream)));
    raised(py, answer)
}

/// Sets the bytes that hold what kernels on the current GPU print until it is shown.
#[pyfunction]
pub(crate) fn set_printf_fifo_size(py: Python<'_>, size: usize) -> PyResult<()> {
    let device @ Device::Cuda(_) = raised(py, Device::current())? else { return Ok(()) };
    let gpu = raised(py, device.gpu())?;
    raised(py, Context::current_or_primary(gpu).and_then(|context| context.set_printf_fifo_size(size)))
}

/// The stream of a number that the program gives.
pub(crate) fn stream_of(number: u64) -> StreamRef<'static> {
    // SAFETY: the program says that this is a stream of the driver, as
    // `torch.cuda.Stream.cuda_stream` is, and keeps it as long as it launches on it.
    unsafe { StreamRef::from_raw(number) }
}

/// The stream of a launch: what the call says, else torch's current one, else the default stream.
#[inline]
pub(crate) fn stream(
    py: Python<'_>,
    handle: &Handle,
    stated: impl FnOnce() -> PyResult<Option<u64>>,
) -> PyResult<StreamRef<'static>> {
    let Device::Cuda(number) = handle.device() else { return Ok(StreamRef::DEFAULT) };
    if let Some(stated) = stated()? {
        return Ok(stream_of(stated));
    }
    match Torch::get(py) {
        Some(torch) => Ok(stream_of(torch.current_stream(py, number)?)),
        None => Ok(StreamRef::DEFAULT),
    }
}

/// The number that a program gives as a stream: an int, or an object of torch.
pub(crate) fn stream_number(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if object.is_none() {
        return Ok(None);
    }
    // Asking an int for an attribute costs as much as the rest of a launch's arguments.
    if object.is_exact_instance_of::<PyInt>() {
        return object.extract().map(Some);
    }
    match object.getattr_opt(intern!(object.py(), "cuda_stream"))? {
        Some(number) => number.extract().map(Some),
        None => object.extract().map(Some),
    }
}

/// A variable of the environment, as `os.environ.get` returns it: Python writes what a program
/// assigns to that of the process.
#[pyfunction]
pub(crate) fn environment_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Reads the environment anew, for kernels that are launched from now on.
#[pyfunction]
pub(crate) fn reload_knobs() {
    Knobs::from_environment().set();
}

/// The properties of a GPU by which programs choose a grid. A core of a processor counts as a
/// multiprocessor; the other properties are those of a present GPU, so that occupancy formulas give
/// at least one program for each core; a simulated GPU has the same.
#[pyfunction]
#[pyo3(signature = (number = None))]
pub(crate) fn device_properties(py: Python<'_>, number: Option<u16>) -> PyResult<Bound<'_, PyDict>> {
    let device = raised(py, numbered(number))?;
    let (cores, shared) = (num_threads() as u32, 101_376);
    let values = match (device, raised(py, device.target())?) {
        (Device::Cuda(_), _) => {
            let properties = raised(py, raised(py, device.gpu())?.properties())?;
            [
                properties.shared_memory_per_block_optin,
                properties.registers_per_block,
                properties.multiprocessors,
                properties.warp_size,
                properties.max_threads_per_multiprocessor,
                properties.clock_rate,
                properties.memory_clock_rate,
                properties.memory_bus_width,
            ]
        }
        (_, Target::Gpu(gpu)) => [gpu.max_shared_bytes, 65_536, cores, 32, 2048, 2_000_000, 3_200_000, 128],
        (_, Target::Cpu) => [shared, 65_536, cores, 32, 2048, 2_000_000, 3_200_000, 128],
    };
    let names = [
        "max_shared_mem",
        "max_num_regs",
        "multiprocessor_count",
        "warpSize",
        "max_threads_per_sm",
        "sm_clock_rate",
        "mem_clock_rate",
        "mem_bus_width",
    ];
    let properties = PyDict::new(py);
    for (name, value) in names.into_iter().zip(values) {
        properties.set_item(name, value)?;
    }
    Ok(properties)
}

/// Keeps what the simulator counts from now on.
#[pyfunction]
pub(crate) fn keep_reports() {
    tilewright_runtime::keep_reports();
}

/// Returns the counters of the simulator, as tables.
#[pyfunction]
pub(crate) fn take_reports() -> String {
    tilewright_runtime::take_reports()
}

/// Measures launches from now on. `cupti_folders` are folders with CUPTI that the system does not
/// know.
#[pyfunction]
#[pyo3(signature = (cupti_folders = Vec::new()))]
pub(crate) fn start_profile(cupti_folders: Vec<std::path::PathBuf>) {
    tilewright_runtime::set_cupti_folders(cupti_folders);
    tilewright_runtime::start_profile();
}

/// Measures no more; what was measured stays until it is taken.
#[pyfunction]
pub(crate) fn stop_profile() {
    tilewright_runtime::stop_profile();
}

/// Returns the measurements since the last call, as JSON; launches on the simulator are estimated
/// for a GPU by its name.
#[pyfunction]
#[pyo3(signature = (gpu = None))]
pub(crate) fn take_profile(py: Python<'_>, gpu: Option<&str>) -> PyResult<String> {
    let taken = py.detach(|| tilewright_runtime::take_profile(gpu));
    raised(py, taken)
}

/// Sets the scope of later launches of this thread; returns the one before.
#[pyfunction]
pub(crate) fn set_profile_scope(scope: u64) -> u64 {
    tilewright_runtime::set_scope(scope)
}

/// Nanoseconds on the clock of profiles.
#[pyfunction]
pub(crate) fn profile_clock() -> u64 {
    tilewright_runtime::profile_clock()
}

/// The command line `tilewright ...`, without `run`; returns the exit code.
#[pyfunction]
pub(crate) fn command_line(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| tilewright_command_line::main(std::iter::once("tilewright".into()).chain(arguments)))
}
