//! Reads tensors of torch. This crate never imports torch.
#![expect(unsafe_code, reason = "torch describes its tensors by a function in C, which only takes tensors")]

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};
use tilewright_ir::Dtype;
use tilewright_runtime::Device;

use super::dlpack::{Described, Exchange};
use super::memory::{Tensor, Unfit};

/// Returns a module, or `None` if the program has not imported it. An exception would cost time at
/// every launch.
pub(crate) fn imported<'py>(py: Python<'py>, name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let modules = MODULES.get_or_try_init(py, || -> PyResult<_> {
        let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
        Ok(modules.cast_into::<PyDict>()?.unbind())
    });
    modules.ok()?.bind(py).get_item(name).ok()?
}

/// The objects of the module `torch` that this crate uses.
pub(crate) struct Torch {
    tensor: Py<PyType>,
    parameter: Py<PyType>,
    dtype: Py<PyType>,
    dtypes: Vec<(Py<PyAny>, Dtype)>,
    /// The function that describes tensors, in a quarter of the time of their attributes. Torch has
    /// it since 2.10.
    exchange: Option<Exchange>,
    disable_torch_function: Py<PyAny>,
    /// The function that returns the current stream of a GPU, in builds of torch with CUDA.
    current_stream: Option<Py<PyAny>>,
}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

/// True if our `TorchFunctionMode`, which emulates `cuda` on the CPU, is on.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// The function that returns whether a tensor without a mark is on the CPU.
static IS_ON_CPU: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Records that our `TorchFunctionMode` is on. The mode marks the tensors that the program puts on
/// `cuda`. From then on, launches disable the mode while they read tensors, and call `is_on_cpu`
/// for tensors without a mark.
#[pyfunction]
pub(crate) fn set_torch_function_mode(py: Python<'_>, is_on_cpu: Py<PyAny>) {
    // The mode is enabled once, and never disabled.
    IS_ON_CPU.set(py, is_on_cpu).ok();
    IS_WATCHED.store(true, Ordering::Relaxed);
}

/// Returns whether our `TorchFunctionMode` is on.
#[inline]
pub(crate) fn is_watched() -> bool {
    IS_WATCHED.load(Ordering::Relaxed)
}

/// Returns whether the program has put a tensor on `cuda`; `None` if the tensor is not marked.
#[inline]
pub(crate) fn mark(tensor: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    let py = tensor.py();
    let attributes = tensor.getattr(intern!(py, "__dict__"))?.cast_into::<PyDict>()?;
    let mark = attributes.get_item(intern!(py, "_tilewright_on_cuda"))?;
    mark.map(|mark| mark.is_truthy()).transpose()
}

/// Returns whether an unmarked tensor is in memory of the CPU.
pub(crate) fn is_on_cpu(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    match IS_ON_CPU.get(tensor.py()) {
        Some(function) => function.bind(tensor.py()).call1((tensor,))?.is_truthy(),
        None => Ok(false),
    }
}

const DTYPES: &[(&str, Dtype)] = &[
    ("float32", Dtype::F32),
    ("float16", Dtype::F16),
    ("bfloat16", Dtype::BF16),
    ("int32", Dtype::I32),
    ("int64", Dtype::I64),
    ("float64", Dtype::F64),
    ("bool", Dtype::I1),
    ("uint8", Dtype::U8),
    ("int8", Dtype::I8),
    ("int16", Dtype::I16),
    ("uint16", Dtype::U16),
    ("uint32", Dtype::U32),
    ("uint64", Dtype::U64),
    ("float8_e5m2", Dtype::F8E5),
    ("float8_e4m3fn", Dtype::F8E4NV),
    ("float8_e4m3fnuz", Dtype::F8E4B8),
    ("float8_e5m2fnuz", Dtype::F8E5B16),
];

impl Torch {
    /// Returns torch, if the program has imported it.
    #[inline]
    pub(crate) fn get(py: Python<'_>) -> Option<&'static Torch> {
        match TORCH.get(py) {
            Some(torch) => Some(torch),
            None => Self::find(py),
        }
    }

    #[cold]
    fn find(py: Python<'_>) -> Option<&'static Torch> {
        let module = imported(py, intern!(py, "torch"))?;
        // This fails while torch is still being imported.
        let torch = Self::new(&module).ok()?;
        TORCH.set(py, torch).ok();
        TORCH.get(py)
    }

    fn new(module: &Bound<'_, PyAny>) -> PyResult<Self> {
        let class = |module: &Bound<'_, PyAny>, name: &str| -> PyResult<Py<PyType>> {
            Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
        };
        let dtypes =
            DTYPES.iter().filter_map(|(name, dtype)| Some((module.getattr(*name).ok()?.unbind(), *dtype)));
        let tensor = class(module, "Tensor")?;
        Ok(Self {
            exchange: Exchange::of(tensor.bind(module.py())),
            tensor,
            parameter: class(&module.getattr("nn")?, "Parameter")?,
            dtype: class(module, "dtype")?,
            dtypes: dtypes.collect(),
            disable_torch_function: module.getattr("_C")?.getattr("DisableTorchFunction")?.unbind(),
            current_stream: module
                .getattr("_C")?
                .getattr_opt("_cuda_getCurrentRawStream")?
                .map(Bound::unbind),
        })
    }

    /// Returns whether the class of an object is exactly `Tensor` or `Parameter`, not a derived
    /// class.
    #[inline]
    pub(crate) fn is_plain_tensor(&self, object: &Bound<'_, PyAny>) -> bool {
        let class = object.get_type_ptr().cast();
        class == self.tensor.as_ptr() || class == self.parameter.as_ptr()
    }

    /// Returns torch's description of a plain tensor from its C function, if there is one for it.
    #[inline]
    pub(crate) fn describe(&self, tensor: &Bound<'_, PyAny>) -> Option<Described> {
        let exchange = self.exchange.filter(|_| self.is_plain_tensor(tensor))?;
        // SAFETY: the object is a plain tensor, and the function belongs to the class of the
        // tensor.
        unsafe { exchange.describe(tensor) }
    }

    /// Returns whether an object is a tensor of any class.
    pub(crate) fn is_tensor(&self, object: &Bound<'_, PyAny>) -> bool {
        object.is_instance(self.tensor.bind(object.py())).unwrap_or(false)
    }

    /// Returns the dtype for a `torch.dtype`. Returns `None` for other objects, or if the language
    /// does not have the dtype.
    pub(crate) fn dtype(&self, object: &Bound<'_, PyAny>) -> Option<Dtype> {
        self.dtypes.iter().find(|(known, _)| known.is(object)).map(|(_, dtype)| *dtype)
    }

    /// Returns whether an object is a `torch.dtype`.
    pub(crate) fn is_dtype(&self, object: &Bound<'_, PyAny>) -> bool {
        object.is_exact_instance(self.dtype.bind(object.py()))
    }

    /// Returns the handle of the current stream of a GPU, or 0 in builds of torch without CUDA.
    #[inline]
    pub(crate) fn current_stream(&self, py: Python<'_>, device: u16) -> PyResult<u64> {
        self.current_stream.as_ref().map_or(Ok(0), |function| function.bind(py).call1((device,))?.extract())
    }

    /// Returns whether torch uses no GPU, because it was built without CUDA or `cuda` is emulated
    /// on the CPU.
    pub(crate) fn is_without_gpu(&self) -> bool {
        self.current_stream.is_none() || is_watched()
    }

    /// Disables our `TorchFunctionMode`, if it is on, until the result is dropped.
    pub(crate) fn unwatched<'py>(&self, py: Python<'py>) -> PyResult<Option<Unwatched<'py>>> {
        if !IS_WATCHED.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let guard = self.disable_torch_function.bind(py).call0()?;
        guard.call_method0(intern!(py, "__enter__"))?;
        Ok(Some(Unwatched(guard)))
    }
}

/// A guard that disables our `TorchFunctionMode` (see [`Torch::unwatched`]).
pub(crate) struct Unwatched<'py>(Bound<'py, PyAny>);

impl Drop for Unwatched<'_> {
    fn drop(&mut self) {
        let py = self.0.py();
        let none = py.None();
        if let Err(error) = self.0.call_method1(intern!(py, "__exit__"), (&none, &none, &none)) {
            error.write_unraisable(py, Some(&self.0));
        }
    }
}

/// Reads the device, dtype, address and allocation of a tensor.
#[inline]
pub(crate) fn read(torch: &Torch, tensor: &Bound<'_, PyAny>) -> Result<Tensor, Unfit> {
    let Described { device, dtype, address, may_be_negated } = match torch.describe(tensor) {
        Some(found) => found,
        None => by_attributes(torch, tensor)?,
    };
    if may_be_negated
        && dtype.is_float()
        && tensor.call_method0(intern!(tensor.py(), "is_neg"))?.is_truthy()?
    {
        return Err(Unfit::Negated);
    }
    let allocation = match device {
        Device::Cuda(_) => (0, 0),
        _ => allocation(tensor).map_err(without_memory)?,
    };
    Ok(Tensor::of_torch(device, dtype, address, allocation))
}

/// Describes a tensor by its Python attributes.
fn by_attributes(torch: &Torch, tensor: &Bound<'_, PyAny>) -> Result<Described, Unfit> {
    let py = tensor.py();
    let is = |name: &Bound<'_, PyString>| tensor.getattr(name)?.is_truthy();
    let is_on_gpu = torch.current_stream.is_some() && is(intern!(py, "is_cuda"))?;
    if !is_on_gpu && !is(intern!(py, "is_cpu"))? {
        return Err(Unfit::Device(text(&tensor.getattr(intern!(py, "device"))?)?));
    }
    let dtype = tensor.getattr(intern!(py, "dtype"))?;
    let dtype = torch.dtype(&dtype).ok_or_else(|| Unfit::Dtype(dtype.to_string()))?;
    let address = tensor.call_method0(intern!(py, "data_ptr")).map_err(without_memory)?.extract()?;
    let device = if is_on_gpu {
        Device::Cuda(tensor.call_method0(intern!(py, "get_device"))?.extract()?)
    } else {
        Device::Cpu
    };
    Ok(Described { device, dtype, address, may_be_negated: true })
}

/// Converts torch's error about a tensor without memory of its own, such as a sparse tensor.
#[cold]
fn without_memory(error: PyErr) -> Unfit {
    Python::attach(|py| {
        let says_so =
            error.is_instance_of::<PyRuntimeError>(py) || error.is_instance_of::<PyNotImplementedError>(py);
        if says_so { Unfit::NoMemory } else { Unfit::Raised(error) }
    })
}

/// Returns the address and the bytes of the storage of a tensor.
#[inline]
pub(crate) fn allocation(tensor: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    extent(&tensor.call_method0(intern!(tensor.py(), "untyped_storage"))?)
}

/// Returns the address and the bytes of a storage, or (0, 0) for a storage without memory.
#[inline]
fn extent(storage: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    let py = storage.py();
    let address = storage.call_method0(intern!(py, "data_ptr"))?.extract()?;
    let bytes = storage.call_method0(intern!(py, "nbytes"))?.extract()?;
    // A `FakeTensor` has a size but no memory.
    Ok((address, if address == 0 { 0 } else { bytes }))
}

fn text(object: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(object.str()?.to_cow()?.into_owned())
}

/// Describes the memory of an object that behaves like a tensor, such as a wrapper with another
/// dtype. It has `data_ptr()`, and a dtype of torch or of the language.
pub(crate) fn read_similar(object: &Bound<'_, PyAny>, dtype: Dtype) -> Result<Tensor, Unfit> {
    let py = object.py();
    let address: usize = object.call_method0(intern!(py, "data_ptr"))?.extract()?;
    if let Ok(device) = object.getattr(intern!(py, "device")) {
        let name = device.str()?;
        let name = name.to_cow()?;
        match Device::parse(&name) {
            _ if name == "cpu" || is_claimed(&name) => {}
            Ok(device @ Device::Cuda(_)) => {
                return Ok(Tensor::of_torch(device, dtype, address, (0, 0)));
            }
            _ => return Err(Unfit::Device(name.into_owned())),
        }
    }
    let storage = object.getattr_opt(intern!(py, "untyped_storage"))?;
    let storage = storage.map(|storage| storage.call0()).transpose()?;
    let allocation = if let Some(storage) = storage
        && storage.hasattr(intern!(py, "nbytes"))?
    {
        extent(&storage)?
    } else if address == 0 {
        // An object without memory, such as `MockTensor`.
        (0, 0)
    } else {
        return Err(Unfit::NoMemory);
    };
    Ok(Tensor::of_torch(Device::Cpu, dtype, address, allocation))
}

/// Returns whether a device is the emulated `cuda`, whose memory is on the CPU.
fn is_claimed(device: &str) -> bool {
    IS_WATCHED.load(Ordering::Relaxed) && device.starts_with("cuda")
}
