//! Implements `triton.compile`: compiles a kernel for stated types of arguments.

use std::sync::Arc;

use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use tilewright_base::{Code, Diagnostic};
use tilewright_frontend::{Argument, Tuple};
use tilewright_runtime::{Device, Error, Knobs, OPTIONS, OptionId, Options, Target, parse_argument};

use super::compiled::CompiledKernel;
use super::host::{PyHost, finish};
use super::jit::{self, JitKernel, state};
use crate::errors::to_exception;
use crate::values::classify::constant;
use crate::values::to_python::to_python;

/// Compiles a kernel for a back end and the compute capability (times 10) of a GPU.
///
/// Each argument is one of these:
///
/// - a type (`"*fp32:16"`);
/// - a compile-time value (`(value,)`);
/// - a tuple, as a list of arguments and the field names of a `NamedTuple` or `None`
///   (`([...], fields)`).
///
/// With `tensor_maps`, the code may use tensor maps. Only launches by this project create these.
#[pyfunction]
#[pyo3(signature = (kernel, backend, capability, arguments, options, tensor_maps = false))]
pub(crate) fn compile(
    kernel: &Bound<'_, JitKernel>,
    backend: &str,
    capability: u32,
    arguments: &Bound<'_, PyList>,
    options: &Bound<'_, PyDict>,
    tensor_maps: bool,
) -> PyResult<CompiledKernel> {
    let py = kernel.py();
    let device = match backend {
        "cpu" => Device::Cpu,
        _ => device_of(capability).map_err(|error| to_exception(py, &error))?,
    };
    let arguments = arguments.iter().map(|described| argument(&described)).collect::<PyResult<Vec<_>>>()?;
    let options = options_of(kernel, options)?;
    let compiling = state(kernel)?.kernel.on(device);
    let mut host = PyHost::default();
    let findings = host.findings();
    let compiled = py.detach(|| compiling.compile_for(arguments, &options, tensor_maps, &mut host));
    let caught = finish(py, &findings)?;
    let handle = compiled.map_err(|error| {
        let exception = to_exception(py, &error);
        if let Some(caught) = caught.into_iter().next() {
            exception.set_cause(py, Some(caught.error));
        }
        exception
    })?;
    state(kernel)?.warn_of_options(py, &handle)?;
    Ok(CompiledKernel::new(Arc::new(handle), kernel.as_super()))
}

/// Compiles a kernel from the text of its stage `ir`. Another process has lowered this text for
/// these arguments and options.
///
/// `gpu` is the index of a GPU of this machine. With it, the code is for launches on this GPU, and
/// the launches create its tensor maps.
#[pyfunction]
#[pyo3(signature = (kernel, backend, capability, arguments, options, text, gpu = None))]
pub(crate) fn compile_ir(
    kernel: &Bound<'_, JitKernel>,
    backend: &str,
    capability: u32,
    arguments: &Bound<'_, PyList>,
    options: &Bound<'_, PyDict>,
    text: &str,
    gpu: Option<u16>,
) -> PyResult<CompiledKernel> {
    let py = kernel.py();
    let device = match (backend, gpu) {
        ("cpu", _) => Device::Cpu,
        (_, Some(number)) => Device::Cuda(number),
        _ => device_of(capability).map_err(|error| to_exception(py, &error))?,
    };
    let arguments = arguments.iter().map(|described| argument(&described)).collect::<PyResult<Vec<_>>>()?;
    let options = options_of(kernel, options)?;
    let compiling = state(kernel)?.kernel.on(device);
    let compiled = py.detach(|| compiling.compile_ir(arguments, &options, gpu.is_some(), text));
    let handle = compiled.map_err(|error| to_exception(py, &error))?;
    Ok(CompiledKernel::new(Arc::new(handle), kernel.as_super()))
}

/// Returns the simulator of a GPU of this compute capability, which every machine has.
fn device_of(capability: u32) -> Result<Device, Error> {
    Target::for_capability(capability).and_then(Device::simulating).ok_or_else(|| {
        let message = format!("no code can be made for a GPU of compute capability {capability}");
        Diagnostic::new(Code::NoDevice, message)
            .note("7.5 (sm_75) or newer is needed")
            .hint("GPUTarget(\"cuda\", 90, 32) is a GPU of compute capability 9.0")
            .into()
    })
}

fn argument(described: &Bound<'_, PyAny>) -> PyResult<Argument> {
    let py = described.py();
    if let Ok(text) = described.cast::<PyString>() {
        return parse_argument(&text.to_cow()?, false).map_err(|error| to_exception(py, &error));
    }
    let parts = described.cast::<PyTuple>()?;
    if parts.len() == 1 {
        let value = parts.get_item(0)?;
        // The key of a variant contains the compile-time values.
        value.hash().map_err(|_| PyTypeError::new_err(format!("{value} is no compile-time value")))?;
        return constant(&value).map(Argument::Constexpr);
    }
    let (items, fields): (Vec<Bound<'_, PyAny>>, Option<Vec<String>>) = parts.extract()?;
    let items = items.iter().map(argument).collect::<PyResult<Vec<_>>>()?;
    let fields = fields.map(|names| names.into_iter().map(Into::into).collect());
    Ok(Argument::Tuple(Tuple::new(items, fields)))
}

fn options_of(kernel: &Bound<'_, JitKernel>, given: &Bound<'_, PyDict>) -> PyResult<Options> {
    let mut options = jit::options(kernel);
    for (name, value) in given {
        let Some(option) = OptionId::parse(&name.extract::<String>()?) else { continue };
        jit::set_option(&mut options, option, &value)?;
    }
    Ok(options)
}

/// Returns the options of a compilation with the defaults that the environment sets, sorted by
/// name.
#[pyfunction]
pub(crate) fn compile_options(py: Python<'_>) -> PyResult<Vec<(&'static str, Bound<'_, PyAny>)>> {
    let defaults = Options::new(&Knobs::current());
    let rows = OPTIONS.iter().filter(|info| !info.id.is_for_launcher());
    rows.map(|info| Ok((info.name, to_python(py, &defaults.get(info.id))?))).collect()
}

/// Returns the built-in default of an option, which does not depend on the environment.
#[pyfunction]
pub(crate) fn default_option<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let option = OptionId::parse(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
    to_python(py, &option.info().default.into())
}
