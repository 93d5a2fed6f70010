//! Device code by its number, as Triton's driver module deals in it: it is loaded, and launched with arguments that types
//! describe. torch Inductor launches what `triton.compile` made through this, and so does `compiled.run(...)`.
#![expect(unsafe_code, reason = "a stream is known by its number")]

use std::cell::Cell;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyTuple};
use rustc_hash::FxHashMap;
use tilewright_base::{Code, Diagnostic};
use tilewright_cuda::{
    AssembleOptions, Cache, Context, Function, LaunchConfiguration, LaunchOptions, Module, Parameters,
    Settings, StreamRef, assemble_cached,
};
use tilewright_ir::{Dtype, Literal};
use tilewright_runtime::{Device, Error, parse_dtype};

use crate::device::stream_number;
use crate::errors::to_exception;
use crate::tensor_map::TensorMap;

/// Kernels by their number, with the number of their module.
type Kernels = FxHashMap<u64, (u64, Function)>;

/// The kernels that were loaded by [`load_binary`].
static LOADED: Mutex<Option<Kernels>> = Mutex::new(None);

fn loaded() -> MutexGuard<'static, Option<Kernels>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error of the driver as an exception.
pub(crate) fn raised<T>(py: Python<'_>, result: Result<T, tilewright_cuda::Error>) -> PyResult<T> {
    result.map_err(|error| to_exception(py, &error.into()))
}

fn invalid(py: Python<'_>, message: String) -> PyErr {
    to_exception(py, &Diagnostic::new(Code::InvalidArgument, message).into())
}

/// The context that code for a GPU is loaded in: the current one, if it is of that GPU.
fn context_of(py: Python<'_>, device: Device) -> PyResult<Context> {
    let gpu = device.gpu().map_err(|error| to_exception(py, &error))?;
    let current = raised(py, Context::current(gpu.driver()))?;
    match current {
        Some(context) if context.device() == gpu => Ok(context),
        Some(_) => raised(py, Context::primary(gpu)),
        None => raised(py, Context::current_or_primary(gpu)),
    }
}

/// The GPU that this thread works on.
fn current_gpu(py: Python<'_>) -> PyResult<Device> {
    match Device::active().map_err(|error| to_exception(py, &error))? {
        Device::Cuda(_) => Ok(Device::Cuda(crate::device::current_device(py)? as u16)),
        // The error says why there is none.
        _ => Ok(Device::Cuda(0)),
    }
}

/// Assembles PTX for the GPU that this thread works on, unless the cache has the machine code.
#[pyfunction]
#[pyo3(signature = (name, ptx, max_registers = None))]
pub(crate) fn assemble<'py>(
    py: Python<'py>,
    name: &str,
    ptx: &str,
    max_registers: Option<u32>,
) -> PyResult<Bound<'py, PyBytes>> {
    let context = context_of(py, current_gpu(py)?)?;
    let options = AssembleOptions { max_registers, line_info: true, ..AssembleOptions::default() };
    let cache = Cache::new(&Settings::from_environment());
    let cubin = raised(py, py.detach(|| assemble_cached(&cache, context, name, ptx, options)))?;
    if let Some(warning) = cache.take_warning() {
        let class = py.import(intern!(py, "tilewright.errors"))?.getattr(intern!(py, "LaunchWarning"))?;
        PyErr::warn(py, &class, &CString::new(warning.replace('\0', ""))?, 1)?;
    }
    Ok(PyBytes::new(py, &cubin))
}

/// Loads a cubin, a fat binary or PTX. Returns the numbers of the module and of the kernel, the registers and the spilled
/// registers of a thread, and the most threads of a block.
#[pyfunction]
pub(crate) fn load_binary(
    py: Python<'_>,
    name: &str,
    kernel: &Bound<'_, PyAny>,
    shared: u32,
    device: u16,
) -> PyResult<(u64, u64, u32, u32, u32)> {
    let text;
    let image = if let Ok(bytes) = kernel.cast::<PyBytes>() {
        bytes.as_bytes()
    } else {
        text = kernel.extract::<String>()?;
        text.as_bytes()
    };
    let context = context_of(py, Device::Cuda(device))?;
    let load = || {
        let module = Module::load(context, name, image)?;
        let function = module.function(name)?;
        // Fails here and not at the first launch if the block is too large.
        function.configure(LaunchOptions { shared_bytes: shared, ..LaunchOptions::new(1) })?;
        Ok((module, function))
    };
    let (module, function) = raised(py, py.detach(load))?;
    let attributes = function.attributes();
    let (module, number) = (module.raw(), function.raw());
    loaded().get_or_insert_default().insert(number, (module, function));
    let spills = attributes.spills();
    Ok((module, number, attributes.registers, spills, attributes.max_threads_per_block))
}

/// Makes a kernel that a launch has loaded known by its number, which is returned, also to [`unload_module`].
pub(crate) fn share(function: &Function) -> u64 {
    let number = function.raw();
    loaded().get_or_insert_default().insert(number, (number, function.clone()));
    number
}

/// Unloads what `load_binary` has loaded.
#[pyfunction]
pub(crate) fn unload_module(py: Python<'_>, module: u64) -> PyResult<()> {
    let mut kernels = loaded();
    let of_module = kernels.iter().flatten().find(|(_, (owner, _))| *owner == module);
    let found = of_module.map(|(&number, _)| number);
    let unloaded = found.and_then(|number| kernels.as_mut()?.remove(&number));
    // The driver is called without the lock.
    drop(kernels);
    match unloaded {
        Some(kernel) => {
            py.detach(|| drop(kernel));
            Ok(())
        }
        None => Err(invalid(py, format!("no module with the number {module:#x} is loaded"))),
    }
}

/// A kernel that was loaded.
fn function_of(py: Python<'_>, number: u64) -> PyResult<Function> {
    let kernels = loaded();
    let found = kernels.as_ref().and_then(|kernels| Some(kernels.get(&number)?.1.clone()));
    drop(kernels);
    found.ok_or_else(|| {
        let message = format!("no kernel with the number {number:#x} is loaded");
        let note = "kernels are loaded by `driver.active.utils.load_binary`, and a compiled kernel's `_init_handles()`";
        to_exception(py, &Diagnostic::new(Code::InvalidArgument, message).note(note).into())
    })
}

/// How many clusters of so many blocks of 128 threads are resident on the GPU at a time.
#[pyfunction]
#[pyo3(name = "cuOccupancyMaxActiveClusters")]
pub(crate) fn max_active_clusters(py: Python<'_>, function: u64, shared: u32, cluster: u32) -> PyResult<u32> {
    let options = LaunchOptions { shared_bytes: shared, cluster: [cluster, 1, 1], ..LaunchOptions::new(128) };
    let function = function_of(py, function)?;
    raised(py, function.configure(options).and_then(|launch| launch.max_active_clusters()))
}

// --- Arguments ---

/// What a kernel takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// An address.
    Pointer,
    Number(Dtype),
    TensorMap,
}

/// The numbers of these kinds in what `build_signature_metadata` returns: a pointer is 1, a tensor map 0.
const NUMBERS: [Dtype; 13] = [
    Dtype::I8,
    Dtype::I16,
    Dtype::I32,
    Dtype::I64,
    Dtype::U8,
    Dtype::U16,
    Dtype::U32,
    Dtype::U64,
    Dtype::F16,
    Dtype::BF16,
    Dtype::F32,
    Dtype::F64,
    Dtype::I1,
];

impl Kind {
    /// The kind of a type as signatures write it: `*fp32`, `i32`, `nvTmaDesc`.
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        let number = || parse_dtype(text).filter(|dtype| NUMBERS.contains(dtype)).map(Self::Number);
        let kind = match text {
            "nvTmaDesc" => Some(Self::TensorMap),
            _ if text.starts_with('*') => Some(Self::Pointer),
            _ => number(),
        };
        kind.ok_or_else(|| invalid(py, format!("'{text}' is no type of an argument that a kernel takes")))
    }

    fn to_byte(self) -> u8 {
        match self {
            Self::TensorMap => 0,
            Self::Pointer => 1,
            Self::Number(dtype) => {
                let place = NUMBERS.iter().position(|&known| known == dtype);
                place.expect("`parse` makes no other") as u8 + 2
            }
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::TensorMap),
            1 => Some(Self::Pointer),
            _ => NUMBERS.get(usize::from(byte) - 2).copied().map(Self::Number),
        }
    }
}

/// What `launch` needs to know of the types of a kernel's arguments, a byte each.
#[pyfunction]
pub(crate) fn build_signature_metadata<'py>(types: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = types.py();
    let kind = |ty: PyResult<Bound<'_, PyAny>>| Ok(Kind::parse(py, &ty?.extract::<String>()?)?.to_byte());
    let kinds = types.try_iter()?.map(kind).collect::<PyResult<Vec<u8>>>()?;
    Ok(PyBytes::new(py, &kinds))
}

/// An argument of a launch.
#[derive(Debug)]
enum Slot {
    /// Part of the code, and not passed.
    Constexpr,
    Passed(Kind),
    /// Each item is passed.
    Tuple(Vec<Slot>),
}

impl Slot {
    /// From the types of a signature: strings, `constexpr` among them, and tuples of such.
    fn of_type(described: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(items) = described.cast::<PyTuple>() {
            return items.iter().map(|item| Self::of_type(&item)).collect::<PyResult<_>>().map(Self::Tuple);
        }
        let text: String = described.extract()?;
        if text == "constexpr" {
            return Ok(Self::Constexpr);
        }
        Kind::parse(described.py(), &text).map(Self::Passed)
    }

    /// From Triton's `PyKernelArg` objects, and the kinds of what is passed in order.
    fn of_annotation(annotation: &Bound<'_, PyAny>, kinds: &mut impl Iterator<Item = u8>) -> PyResult<Self> {
        let py = annotation.py();
        match annotation.getattr(intern!(py, "type"))?.extract::<u32>()? {
            0 => Ok(Self::Constexpr),
            1 => {
                let kind = kinds.next().and_then(Kind::from_byte);
                let refuse = || invalid(py, "the signature of a launch is not that of its arguments".into());
                kind.map(Self::Passed).ok_or_else(refuse)
            }
            _ => {
                let items = annotation.getattr(intern!(py, "nested_tuple"))?.try_iter()?;
                let items = items.map(|item| Self::of_annotation(&item?, kinds));
                items.collect::<PyResult<_>>().map(Self::Tuple)
            }
        }
    }
}

/// Writes arguments to the buffer of a kernel's parameters.
struct Packer<'a, 'py> {
    py: Python<'py>,
    function: &'a Function,
    parameters: &'a mut Parameters,
    /// How many parameters there are already.
    count: usize,
}

impl<'py> Packer<'_, 'py> {
    /// The arguments, one for each slot, or one for each that is not part of the code: releases of Triton differ in that.
    fn all(&mut self, slots: &[Slot], arguments: &Bound<'py, PyTuple>) -> PyResult<()> {
        let is_passed = |slot: &&Slot| !matches!(slot, Slot::Constexpr);
        let mut items = arguments.iter_borrowed();
        if arguments.len() == slots.len() {
            return slots.iter().zip(items).try_for_each(|(slot, item)| self.slot(slot, &item));
        }
        let passed = slots.iter().filter(is_passed).count();
        if arguments.len() != passed {
            let message = format!(
                "kernel '{}' is launched with {} arguments, and takes {} ({passed} without compile-time values)",
                self.function.name(),
                arguments.len(),
                slots.len()
            );
            return Err(invalid(self.py, message));
        }
        slots.iter().filter(is_passed).zip(&mut items).try_for_each(|(slot, item)| self.slot(slot, &item))
    }

    fn slot(&mut self, slot: &Slot, object: &Bound<'py, PyAny>) -> PyResult<()> {
        match slot {
            Slot::Constexpr => Ok(()),
            Slot::Passed(kind) => self.one(*kind, object),
            Slot::Tuple(slots) => {
                let items: Vec<Bound<'py, PyAny>> =
                    object.extract().map_err(|_| self.other(object, "a tuple"))?;
                self.all(slots, &PyTuple::new(self.py, items)?)
            }
        }
    }

    #[inline]
    fn one(&mut self, kind: Kind, object: &Bound<'py, PyAny>) -> PyResult<()> {
        match kind {
            Kind::Pointer => {
                let address = self.address(object)?;
                self.parameters.push(address);
            }
            Kind::Number(dtype) => {
                let Some(bits) = bits(dtype, object) else {
                    return Err(self.other(object, &format!("a number of type {dtype}")));
                };
                match dtype.bytes() {
                    1 => self.parameters.push(bits as u8),
                    2 => self.parameters.push(bits as u16),
                    4 => self.parameters.push(bits as u32),
                    _ => self.parameters.push(bits),
                };
            }
            Kind::TensorMap => {
                let map = object.cast::<TensorMap>().map_err(|_| self.other(object, "a tensor map"))?;
                let offset = raised(self.py, self.function.parameter_offset(self.count))?;
                self.parameters.push_tensor_map(&map.get().0, offset);
            }
        }
        self.count += 1;
        Ok(())
    }

    /// The address that an argument is: a number, `None`, or of an object that says its address.
    #[inline]
    fn address(&self, object: &Bound<'py, PyAny>) -> PyResult<u64> {
        let py = self.py;
        if object.is_none() {
            return Ok(0);
        }
        if object.is_instance_of::<PyInt>() {
            return object.extract().map_err(|_| self.other(object, "an address of 64 bits"));
        }
        if let Some(data_ptr) = object.getattr_opt(intern!(py, "data_ptr"))? {
            let address: u64 = data_ptr.call0()?.extract()?;
            return if address == 0 || is_on_gpu(object)? { Ok(address) } else { Err(self.on_cpu(object)) };
        }
        if let Some(interface) = object.getattr_opt(intern!(py, "__cuda_array_interface__"))? {
            return interface.get_item(intern!(py, "data"))?.get_item(0)?.extract();
        }
        Err(self.other(object, "a tensor or an address"))
    }

    /// What Triton's own kernels take behind their arguments, if this is one: two addresses.
    fn scratch(&mut self, addresses: [&Bound<'py, PyAny>; 2]) -> PyResult<()> {
        let expected = self.function.attributes().parameter_bytes.unwrap_or_default();
        for object in addresses {
            let used = self.parameters.as_bytes().len().next_multiple_of(size_of::<u64>());
            if used + size_of::<u64>() <= expected {
                self.one(Kind::Pointer, object)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn other(&self, object: &Bound<'py, PyAny>, expected: &str) -> PyErr {
        let found = match object.get_type().name() {
            _ if object.is_instance_of::<PyInt>() => format!("the int {object}"),
            Ok(name) => format!("a {name}"),
            Err(error) => return error,
        };
        let (count, name) = (self.count, self.function.name());
        let message = format!("parameter {count} of kernel '{name}' cannot be passed");
        let note = format!("found {found}, expected {expected}; parameters are counted from 0");
        to_exception(self.py, &Diagnostic::new(Code::InvalidArgument, message).note(note).into())
    }

    #[cold]
    fn on_cpu(&self, object: &Bound<'py, PyAny>) -> PyErr {
        let (count, name) = (self.count, self.function.name());
        let message = format!("parameter {count} of kernel '{name}' is on device 'cpu'");
        let class = object.get_type().name().map_or_else(|_| "tensor".into(), |name| name.to_string());
        let note = format!(
            "found a {class} in main memory, which the GPU cannot read; parameters are counted from 0"
        );
        let hint = "move it with `.to('cuda')`, or pin it";
        to_exception(self.py, &Diagnostic::new(Code::WrongDevice, message).note(note).hint(hint).into())
    }
}

/// Whether a GPU can read the memory of what behaves like a tensor.
fn is_on_gpu(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    let is_on_cpu = match object.getattr_opt(intern!(py, "is_cpu"))? {
        Some(is_on_cpu) => is_on_cpu.is_truthy()?,
        None => match object.getattr_opt(intern!(py, "device"))? {
            Some(device) => device.str()?.to_cow()? == "cpu",
            None => false,
        },
    };
    if !is_on_cpu {
        return Ok(true);
    }
    match object.getattr_opt(intern!(py, "is_pinned"))? {
        Some(is_pinned) => is_pinned.call0()?.is_truthy(),
        None => Ok(false),
    }
}

/// The bits of a number of a type, if the object is one that the type holds.
fn bits(dtype: Dtype, object: &Bound<'_, PyAny>) -> Option<u64> {
    if dtype.is_bool() {
        return object.is_truthy().ok().map(u64::from);
    }
    match dtype.int_range() {
        Some((least, most)) => {
            let value = object.extract::<i128>().ok().filter(|value| (least..=most).contains(value))?;
            Some(Literal::int(dtype, value).bits)
        }
        None => Literal::float(dtype, object.extract().ok()?).map(|literal| literal.bits),
    }
}

// --- Launches ---

/// How a kernel is launched, but for its grid, stream and arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Manner {
    function: u64,
    /// Warps of a program, programs of a cluster, bytes of shared memory: Triton's packed metadata.
    packed: (u32, u32, u32),
    is_cooperative: bool,
    is_programmatic: bool,
}

impl Manner {
    fn configure(self, py: Python<'_>) -> PyResult<LaunchConfiguration> {
        let (warps, cluster, shared_bytes) = self.packed;
        let options = LaunchOptions {
            shared_bytes,
            cluster: [cluster.max(1), 1, 1],
            programmatic: self.is_programmatic,
            cooperative: self.is_cooperative,
            ..LaunchOptions::new(warps.saturating_mul(32))
        };
        raised(py, function_of(py, self.function)?.configure(options))
    }
}

/// What a launch gets beside its arguments.
struct Call<'a, 'py> {
    grid: [i64; 3],
    stream: &'a Bound<'py, PyAny>,
    scratch: [&'a Bound<'py, PyAny>; 2],
}

impl<'py> Call<'_, 'py> {
    fn start(
        &self,
        launch: &LaunchConfiguration,
        slots: &[Slot],
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<()> {
        thread_local! {
            /// Its room is kept from launch to launch. Reading an argument may run code that launches a kernel as well.
            static PARAMETERS: Cell<Parameters> = Cell::new(Parameters::new());
        }
        let py = arguments.py();
        let stream = stream_number(self.stream)?.unwrap_or(0);
        // SAFETY: the program says that this is a stream of the driver, and keeps it as long as it launches on it.
        let stream = unsafe { StreamRef::from_raw(stream) };
        let mut parameters = PARAMETERS.take();
        parameters.clear();
        let function = launch.function();
        let mut packer = Packer { py, function, parameters: &mut parameters, count: 0 };
        packer.all(slots, arguments)?;
        packer.scratch(self.scratch)?;
        let grid = self.grid(launch.options().cluster[0]).map_err(|error| to_exception(py, &error))?;
        let started = py.detach(|| launch.launch(grid, stream, parameters.as_bytes()));
        PARAMETERS.set(parameters);
        raised(py, started)
    }

    /// The blocks along each axis; a program is a cluster of blocks.
    fn grid(&self, cluster: u32) -> Result<[u32; 3], Error> {
        let programs = tilewright_runtime::Grid::new(&self.grid.map(i128::from))?.extents();
        Ok([programs[0].saturating_mul(cluster), programs[1], programs[2]])
    }
}

/// Calls a hook of a launch, if there is one.
fn call_hook(hook: &Bound<'_, PyAny>, metadata: &Bound<'_, PyAny>) -> PyResult<()> {
    if hook.is_none() { Ok(()) } else { hook.call1((metadata,)).map(|_| ()) }
}

/// What launches device code for arguments of certain types: `compiled.run`.
#[pyclass(frozen, subclass, module = "tilewright._native")]
pub(crate) struct CudaLauncher {
    slots: Vec<Slot>,
    is_cooperative: bool,
    is_programmatic: bool,
    /// How it launched last, which is how it launches next.
    last: Mutex<Option<(Manner, LaunchConfiguration)>>,
}

#[pymethods]
impl CudaLauncher {
    /// For these types, one for each parameter: strings, and tuples of such.
    #[new]
    #[pyo3(signature = (types, launch_cooperative_grid = false, launch_pdl = false))]
    fn new(types: &Bound<'_, PyAny>, launch_cooperative_grid: bool, launch_pdl: bool) -> PyResult<Self> {
        Ok(Self {
            slots: types.try_iter()?.map(|ty| Slot::of_type(&ty?)).collect::<PyResult<_>>()?,
            is_cooperative: launch_cooperative_grid,
            is_programmatic: launch_pdl,
            last: Mutex::new(None),
        })
    }

    /// Launches a kernel by its number.
    #[pyo3(signature = (grid_x, grid_y, grid_z, stream, function, kernel_metadata, launch_metadata, launch_enter_hook,
                        launch_exit_hook, *args))]
    #[expect(clippy::too_many_arguments, reason = "Triton's protocol")]
    fn __call__(
        &self,
        py: Python<'_>,
        grid_x: i64,
        grid_y: i64,
        grid_z: i64,
        stream: &Bound<'_, PyAny>,
        function: u64,
        kernel_metadata: (u32, u32, u32),
        launch_metadata: &Bound<'_, PyAny>,
        launch_enter_hook: &Bound<'_, PyAny>,
        launch_exit_hook: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let launch = self.configuration(py, function, kernel_metadata)?;
        let none = py.None().into_bound(py);
        call_hook(launch_enter_hook, launch_metadata)?;
        let call = Call { grid: [grid_x, grid_y, grid_z], stream, scratch: [&none, &none] };
        call.start(&launch, &self.slots, args)?;
        call_hook(launch_exit_hook, launch_metadata)
    }
}

impl CudaLauncher {
    #[inline]
    fn configuration(
        &self,
        py: Python<'_>,
        function: u64,
        packed: (u32, u32, u32),
    ) -> PyResult<LaunchConfiguration> {
        let (is_cooperative, is_programmatic) = (self.is_cooperative, self.is_programmatic);
        let manner = Manner { function, packed, is_cooperative, is_programmatic };
        let lock = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((last, launch)) = &*lock()
            && *last == manner
        {
            return Ok(launch.clone());
        }
        let launch = manner.configure(py)?;
        let before = lock().replace((manner, launch.clone()));
        // What it keeps loaded is unloaded without the lock.
        drop(before);
        Ok(launch)
    }
}

/// Launches a kernel by its number, with the types as `build_signature_metadata` made them. The two addresses of scratch
/// memory are passed to a kernel that takes them.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Triton's protocol")]
pub(crate) fn launch_function(
    py: Python<'_>,
    grid: (i64, i64, i64),
    stream: &Bound<'_, PyAny>,
    function: u64,
    is_cooperative: bool,
    is_programmatic: bool,
    packed: (u32, u32, u32),
    global_scratch: &Bound<'_, PyAny>,
    profile_scratch: &Bound<'_, PyAny>,
    annotations: &Bound<'_, PyAny>,
    signature: &[u8],
    arguments: &Bound<'_, PyTuple>,
) -> PyResult<()> {
    let mut kinds = signature.iter().copied();
    let slots = annotations.try_iter()?.map(|annotation| Slot::of_annotation(&annotation?, &mut kinds));
    let slots = slots.collect::<PyResult<Vec<_>>>()?;
    let launch = Manner { function, packed, is_cooperative, is_programmatic }.configure(py)?;
    let call = Call { grid: grid.into(), stream, scratch: [global_scratch, profile_scratch] };
    call.start(&launch, &slots, arguments)
}
