//! Exports the device that kernels run on, and its properties, to Python.
#![expect(unsafe_code, reason = "a stream is known by its number")]

use std::ffi::OsString;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};
use tilewright_runtime::{Context, Device, Error, Handle, Knobs, StreamRef, Target, num_threads};

use crate::errors::raised;
use crate::values::torch::Torch;

/// Returns the name of the active device, such as `cpu`, `cuda:0` or `sim:sm_90`.
#[pyfunction]
pub(crate) fn device(py: Python<'_>) -> PyResult<String> {
    raised(py, Device::active()).map(|device| device.to_string())
}

/// Returns whether this machine has a GPU that kernels can be compiled for.
#[pyfunction]
pub(crate) fn has_gpu() -> bool {
    Device::Cuda(0).target().is_ok()
}

/// Selects the device for kernels that were not launched yet.
///
/// Fails if this machine does not have the device.
#[pyfunction]
pub(crate) fn set_device(py: Python<'_>, name: &str) -> PyResult<()> {
    raised(py, Device::parse(name).and_then(Device::select))
}

/// Returns the back end, architecture and warp size for which kernels are compiled, such as
/// `("cuda", 90, 32)` or `("cpu", "x86_64", 0)`.
#[pyfunction]
pub(crate) fn current_target(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let target = raised(py, Device::active().and_then(Device::target))?;
    target_tuple(py, target)
}

/// Returns the fields of Triton's `GPUTarget`: back end, architecture and warp size.
pub(crate) fn target_tuple(py: Python<'_>, target: Target) -> PyResult<Bound<'_, PyAny>> {
    let backend = target.backend();
    match target.capability() {
        Some(capability) => Ok((backend, capability, 32).into_pyobject(py)?.into_any()),
        None => Ok((backend, target.architecture(), 0).into_pyobject(py)?.into_any()),
    }
}

/// Returns the major and minor compute capability of a GPU, by default of the active GPU. Returns
/// (0, 0) for the CPU.
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

/// Returns the driver's name of a GPU, by default of the active GPU. For other devices, returns a
/// name such as `cpu` or `sim:sm_90`.
#[pyfunction]
#[pyo3(signature = (number = None))]
pub(crate) fn device_name(py: Python<'_>, number: Option<u16>) -> PyResult<String> {
    let device = raised(py, numbered(number))?;
    match device {
        Device::Cuda(_) => Ok(raised(py, raised(py, device.gpu())?.properties())?.name.clone()),
        _ => Ok(device.to_string()),
    }
}

/// Returns the number of multiprocessors of the simulated GPU with this compute capability. If
/// there is none, uses the next lower capability.
#[pyfunction]
pub(crate) fn multiprocessors_of(major: u32, minor: u32) -> u32 {
    tilewright_runtime::multiprocessors_of(major * 10 + minor)
}

/// Sets the compute capability (times 10) of the GPU that the CPU replaces. In kernels that are
/// compiled for the CPU from now on, `is_cuda()` and `cuda_capability_geq(...)` return the values
/// for this GPU.
#[pyfunction]
pub(crate) fn claim_capability(capability: u32) {
    tilewright_runtime::claim_capability(capability);
}

/// Sets whether loads may read the padding that an allocator of a GPU adds after a tensor. Such
/// loads return 0.
#[pyfunction]
pub(crate) fn allow_padded_reads(is_allowed: bool) {
    tilewright_runtime::allow_padded_reads(is_allowed);
}

/// Returns the active device. If it is a GPU and `number` is set, returns the GPU with this index.
fn numbered(number: Option<u16>) -> Result<Device, Error> {
    Ok(match (Device::active()?, number) {
        (Device::Cuda(_), Some(number)) => Device::Cuda(number),
        (device, _) => device,
    })
}

/// Returns the index of the GPU that this thread uses; 0 for other devices.
#[pyfunction]
pub(crate) fn current_device(py: Python<'_>) -> PyResult<u32> {
    Ok(match raised(py, Device::current())? {
        Device::Cuda(number) => number.into(),
        _ => 0,
    })
}

/// Makes this thread use another GPU. Does nothing for other devices, which have only one index.
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

/// Sets the size in bytes of the buffer for the output of kernels on the current GPU.
#[pyfunction]
pub(crate) fn set_printf_fifo_size(py: Python<'_>, size: usize) -> PyResult<()> {
    let device @ Device::Cuda(_) = raised(py, Device::current())? else { return Ok(()) };
    let gpu = raised(py, device.gpu())?;
    raised(py, Context::current_or_primary(gpu).and_then(|context| context.set_printf_fifo_size(size)))
}

/// Returns the stream with a number that the program passes.
pub(crate) fn stream_of(number: u64) -> StreamRef<'static> {
    // SAFETY: the program passes a stream of the driver, such as `torch.cuda.Stream.cuda_stream`.
    // It keeps the stream as long as it launches kernels on the stream.
    unsafe { StreamRef::from_raw(number) }
}

/// Returns the stream of a launch: the stream that the call names, else torch's current stream,
/// else the default stream. On other devices than GPUs, returns the default stream.
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

/// Returns the number of a stream that a program passes as an int or as a stream of torch.
pub(crate) fn stream_number(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if object.is_none() {
        return Ok(None);
    }
    // For an int, an attribute lookup takes as long as all other work on a launch's arguments.
    if object.is_exact_instance_of::<PyInt>() {
        return object.extract().map(Some);
    }
    match object.getattr_opt(intern!(object.py(), "cuda_stream"))? {
        Some(number) => number.extract().map(Some),
        None => object.extract().map(Some),
    }
}

/// Returns a variable of the process environment. This agrees with `os.environ.get`, because Python
/// writes the assignments of a program to the process environment.
#[pyfunction]
pub(crate) fn environment_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Reads the environment again, for later launches.
#[pyfunction]
pub(crate) fn reload_knobs() {
    Knobs::from_environment().set();
}

/// Returns the properties of a device by which programs choose a grid.
///
/// For the CPU and simulated GPUs, `multiprocessor_count` is the number of threads that run
/// kernels. The other properties are fixed values of a typical GPU. With these values, formulas for
/// the occupancy yield at least one program for each thread. Only `max_shared_mem` of a simulated
/// GPU is the actual value of its target.
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

/// Makes the simulator keep its counters for `take_reports` from now on.
#[pyfunction]
pub(crate) fn keep_reports() {
    tilewright_runtime::keep_reports();
}

/// Returns the counters of the simulator since `keep_reports` or the last call, as tables.
#[pyfunction]
pub(crate) fn take_reports() -> String {
    tilewright_runtime::take_reports()
}

/// Measures launches from now on. `cupti_folders` are further folders in which CUPTI may be.
#[pyfunction]
#[pyo3(signature = (cupti_folders = Vec::new()))]
pub(crate) fn start_profile(cupti_folders: Vec<std::path::PathBuf>) {
    tilewright_runtime::set_cupti_folders(cupti_folders);
    tilewright_runtime::start_profile();
}

/// Stops measuring launches. The measurements remain until `take_profile`.
#[pyfunction]
pub(crate) fn stop_profile() {
    tilewright_runtime::stop_profile();
}

/// Returns the measurements since the last call, as JSON. `gpu` is the name of a GPU. The times of
/// simulated launches are estimates for this GPU.
#[pyfunction]
#[pyo3(signature = (gpu = None))]
pub(crate) fn take_profile(py: Python<'_>, gpu: Option<&str>) -> PyResult<String> {
    let taken = py.detach(|| tilewright_runtime::take_profile(gpu));
    raised(py, taken)
}

/// Sets the profile scope of later launches of this thread. Returns the previous scope.
#[pyfunction]
pub(crate) fn set_profile_scope(scope: u64) -> u64 {
    tilewright_runtime::set_scope(scope)
}

/// Returns the time on the clock of profiles, in nanoseconds.
#[pyfunction]
pub(crate) fn profile_clock() -> u64 {
    tilewright_runtime::profile_clock()
}

/// Runs the command line `tilewright ...`, except `tilewright run`. Returns the exit code.
#[pyfunction]
pub(crate) fn command_line(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| tilewright_command_line::main(std::iter::once("tilewright".into()).chain(arguments)))
}
