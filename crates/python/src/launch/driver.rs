//! Implements Triton's driver module, which loads and launches device code.
//!
//! torch Inductor and `compiled.run(...)` use this module. `tilewright_runtime::binary` does the
//! work.

use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyInt, PyList, PyTuple, PyType};
use pyo3::{Borrowed, intern};
use smallvec::SmallVec;
use tilewright_ir::Dtype;
use tilewright_runtime::binary::{self, ArgumentType, Call as BinaryCall, Manner, Slot};
use tilewright_runtime::{Device, Handle, LaunchConfiguration, Value};

use super::builtin::{Builtin, make};
use super::device::{stream_number, stream_of};
use super::tensor_map::TensorMap;
use crate::errors::{raised, to_exception};
use crate::kernel::compiled::CompiledKernel;
use crate::values::call::Call;
use crate::values::torch::Torch;

/// Assembles PTX for the GPU of this thread, unless the cache has the cubin. `block` has the number
/// of threads and the bytes of shared memory of a block.
#[pyfunction]
#[pyo3(signature = (name, ptx, max_registers, block))]
pub(crate) fn assemble<'py>(
    py: Python<'py>,
    name: &str,
    ptx: &str,
    max_registers: Option<u32>,
    block: (u32, u32),
) -> PyResult<Bound<'py, PyBytes>> {
    let gpu = match raised(py, Device::current())? {
        gpu @ Device::Cuda(_) => gpu,
        // There is no GPU. The error for GPU 0 states the reason.
        _ => Device::Cuda(0),
    };
    let (cubin, warning) = raised(py, py.detach(|| binary::assemble(gpu, name, ptx, max_registers, block)))?;
    if let Some(warning) = warning {
        let class = py.import(intern!(py, "tilewright.errors"))?.getattr(intern!(py, "LaunchWarning"))?;
        PyErr::warn(py, &class, &CString::new(warning.replace('\0', ""))?, 1)?;
    }
    Ok(PyBytes::new(py, &cubin))
}

/// Loads a cubin, a fat binary or PTX. Returns the driver handles of the module and of the kernel.
/// Also returns the numbers of registers and of spilled registers of a thread, and the maximum
/// number of threads of a block.
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
    let loaded = raised(py, py.detach(|| binary::load(Device::Cuda(device), name, image, shared)))?;
    let takes = loaded.attributes;
    Ok((loaded.module, loaded.function, takes.registers, takes.spills(), takes.max_threads_per_block))
}

/// Unloads the module that `load_binary` has loaded.
#[pyfunction]
pub(crate) fn unload_module(py: Python<'_>, module: u64) -> PyResult<()> {
    raised(py, py.detach(|| binary::unload(module)))
}

/// Returns the maximum number of clusters that are resident on the GPU at a time. A cluster has
/// `cluster` blocks of 128 threads.
#[pyfunction]
#[pyo3(name = "cuOccupancyMaxActiveClusters")]
pub(crate) fn max_active_clusters(py: Python<'_>, function: u64, shared: u32, cluster: u32) -> PyResult<u32> {
    raised(py, binary::max_active_clusters(function, shared, cluster))
}

/// Encodes the types of a kernel's arguments for `launch`, one byte for each.
#[pyfunction]
pub(crate) fn build_signature_metadata<'py>(types: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = types.py();
    let byte = |ty: PyResult<Bound<'_, PyAny>>| {
        raised(py, ArgumentType::parse(&ty?.extract::<String>()?)).map(ArgumentType::to_byte)
    };
    Ok(PyBytes::new(py, &types.try_iter()?.map(byte).collect::<PyResult<Vec<u8>>>()?))
}

/// Returns the slot for a type of a signature: a string or a tuple of types. A slot describes how
/// launches pass an argument.
fn slot_of_type(described: &Bound<'_, PyAny>) -> PyResult<Slot> {
    if let Ok(items) = described.cast::<PyTuple>() {
        return items.iter().map(|item| slot_of_type(&item)).collect::<PyResult<_>>().map(Slot::Tuple);
    }
    raised(described.py(), Slot::parse(&described.extract::<String>()?))
}

/// Returns the slot for a `PyKernelArg` object of Triton. `types` yields the encoded types of the
/// passed arguments.
fn slot_of_annotation(annotation: &Bound<'_, PyAny>, types: &mut impl Iterator<Item = u8>) -> PyResult<Slot> {
    let py = annotation.py();
    match annotation.getattr(intern!(py, "type"))?.extract::<u32>()? {
        0 => Ok(Slot::Constexpr),
        1 => raised(py, Slot::from_next_byte(types)),
        _ => {
            let items = annotation.getattr(intern!(py, "nested_tuple"))?.try_iter()?;
            let items = items.map(|item| slot_of_annotation(&item?, types));
            items.collect::<PyResult<_>>().map(Slot::Tuple)
        }
    }
}

// --- Arguments ---

/// Passes the arguments of a launch, or the items of a tuple.
fn pass_all(
    py: Python<'_>,
    call: &mut BinaryCall<'_>,
    slots: &[Slot],
    arguments: &[Borrowed<'_, '_, PyAny>],
) -> PyResult<()> {
    let slots = raised(py, call.slots(slots, arguments.len()))?;
    slots.zip(arguments).try_for_each(|(slot, object)| pass(call, slot, object))
}

fn pass(call: &mut BinaryCall<'_>, slot: &Slot, object: &Bound<'_, PyAny>) -> PyResult<()> {
    match slot {
        Slot::Constexpr => Ok(()),
        Slot::Passed(ty) => pass_one(call, *ty, object),
        Slot::Tuple(slots) => {
            let items: Vec<Bound<'_, PyAny>> =
                object.extract().map_err(|_| misfit(call, object, "a tuple"))?;
            let items: Vec<_> = items.iter().map(Bound::as_borrowed).collect();
            pass_all(object.py(), call, slots, &items)
        }
    }
}

#[inline]
fn pass_one(call: &mut BinaryCall<'_>, ty: ArgumentType, object: &Bound<'_, PyAny>) -> PyResult<()> {
    match ty {
        ArgumentType::Pointer => {
            let address = address(call, object)?;
            call.address(address);
            Ok(())
        }
        ArgumentType::Number(dtype) => number(dtype, object)
            .and_then(|number| call.number(dtype, &number))
            .ok_or_else(|| misfit(call, object, &format!("a number of type {dtype}"))),
        ArgumentType::TensorMap => {
            let map = object.cast::<TensorMap>().map_err(|_| misfit(call, object, "a tensor map"))?;
            raised(object.py(), call.tensor_map(&map.get().0))
        }
    }
}

/// Returns the address of an argument: a number, 0 for `None`, or the address of a tensor.
#[inline]
fn address(call: &BinaryCall<'_>, object: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = object.py();
    if let Some(torch) = Torch::get(py)
        && let Some(tensor) = torch.describe(object)
        && let Device::Cuda(_) = tensor.device
    {
        return Ok(tensor.address as u64);
    }
    unusual_address(call, object)
}

fn unusual_address(call: &BinaryCall<'_>, object: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = object.py();
    if object.is_none() {
        return Ok(0);
    }
    if object.is_instance_of::<PyInt>() {
        return object.extract().map_err(|_| misfit(call, object, "an address of 64 bits"));
    }
    if let Some(data_ptr) = object.getattr_opt(intern!(py, "data_ptr"))? {
        let address: u64 = data_ptr.call0()?.extract()?;
        return if address == 0 || is_on_gpu(object)? { Ok(address) } else { Err(on_cpu(call, object)) };
    }
    if let Some(interface) = object.getattr_opt(intern!(py, "__cuda_array_interface__"))? {
        return interface.get_item(intern!(py, "data"))?.get_item(0)?.extract();
    }
    Err(misfit(call, object, "a tensor or an address"))
}

/// Converts an object to a number of a type.
fn number(dtype: Dtype, object: &Bound<'_, PyAny>) -> Option<Value<'static>> {
    if dtype.is_bool() {
        object.is_truthy().ok().map(Value::Bool)
    } else if dtype.is_int() {
        object.extract().ok().map(Value::Int)
    } else {
        object.extract().ok().map(Value::Float)
    }
}

/// Returns whether a GPU can read the memory of an object that behaves like a tensor.
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

#[cold]
fn misfit(call: &BinaryCall<'_>, object: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    let found = match object.get_type().name() {
        _ if object.is_instance_of::<PyInt>() => format!("the int {object}"),
        Ok(name) => format!("a {name}"),
        Err(error) => return error,
    };
    to_exception(object.py(), &call.misfit(&found, expected))
}

#[cold]
fn on_cpu(call: &BinaryCall<'_>, object: &Bound<'_, PyAny>) -> PyErr {
    let class = object.get_type().name().map_or_else(|_| "tensor".into(), |name| name.to_string());
    to_exception(object.py(), &call.in_main_memory(&class))
}

// --- Launches ---

/// The arguments of a launch, except the arguments of the kernel.
struct Surroundings<'a, 'py> {
    grid: [i64; 3],
    stream: &'a Bound<'py, PyAny>,
    /// The addresses of scratch memory, for kernels with parameters for them.
    scratch: [&'a Bound<'py, PyAny>; 2],
}

impl Surroundings<'_, '_> {
    #[inline]
    fn start(
        &self,
        mut call: BinaryCall<'_>,
        slots: &[Slot],
        arguments: &[Borrowed<'_, '_, PyAny>],
    ) -> PyResult<()> {
        let py = self.stream.py();
        let stream = stream_of(stream_number(self.stream)?.unwrap_or(0));
        pass_all(py, &mut call, slots, arguments)?;
        for object in self.scratch {
            if call.takes_scratch() {
                pass_one(&mut call, ArgumentType::Pointer, object)?;
            }
        }
        let grid = self.grid;
        raised(py, py.detach(|| call.start(grid, stream)))
    }
}

/// Returns whether a launch hook has no effect because it is `None` or an empty chain.
#[inline]
fn is_idle(hook: &Bound<'_, PyAny>) -> PyResult<bool> {
    static CHAIN: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = hook.py();
    if hook.is_none() {
        return Ok(true);
    }
    if !hook.is_exact_instance(CHAIN.import(py, "tilewright.knobs", "HookChain")?) {
        return Ok(false);
    }
    Ok(hook.getattr(intern!(py, "calls"))?.cast_into::<PyList>().is_ok_and(|calls| calls.is_empty()))
}

/// A launcher of device code for arguments of certain types: `compiled.run`.
#[pyclass(frozen, subclass, module = "tilewright._native")]
pub(crate) struct CudaLauncher {
    slots: Vec<Slot>,
    is_cooperative: bool,
    is_programmatic: bool,
    /// The kernel, if each launch creates its tensor maps. Other launches pass a driver handle.
    handle: Option<Arc<Handle>>,
    /// The function that describes a launch for hooks if the caller passes no launch metadata.
    describe: OnceLock<Py<PyAny>>,
    last: Mutex<Option<Last>>,
}

/// The kernel of the previous launch. The next launch usually runs the same kernel.
struct Last {
    /// The Python objects of the driver handle and of the packed metadata, for a comparison by
    /// identity.
    function: Py<PyAny>,
    packed: Py<PyAny>,
    launch: Arc<LaunchConfiguration>,
}

impl CudaLauncher {
    /// Configures the launch of the kernel with this driver handle.
    #[inline]
    fn configure(
        &self,
        function: &Bound<'_, PyAny>,
        packed: &Bound<'_, PyAny>,
    ) -> PyResult<Arc<LaunchConfiguration>> {
        let lock = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*lock()
            && last.function.is(function)
            && last.packed.is(packed)
        {
            return Ok(Arc::clone(&last.launch));
        }
        let manner = Manner {
            function: function.extract()?,
            packed: packed.extract()?,
            is_cooperative: self.is_cooperative,
            is_programmatic: self.is_programmatic,
        };
        let launch = Arc::new(raised(function.py(), manner.configure())?);
        // `launch` keeps this kernel loaded, so the driver cannot reuse its handle.
        let (function, packed) = (function.clone().unbind(), packed.clone().unbind());
        let before = lock().replace(Last { function, packed, launch: Arc::clone(&launch) });
        // Dropping the kernel may run code of the program, so the lock is released first.
        drop(before);
        Ok(launch)
    }

    /// Launches the kernel. `head` has the grid, the stream, the driver handle, the packed
    /// metadata, the launch metadata for hooks, and the two hooks.
    fn launch<'py>(
        &self,
        py: Python<'py>,
        head: &[Borrowed<'_, 'py, PyAny>; HEAD],
        arguments: &[Borrowed<'_, 'py, PyAny>],
    ) -> PyResult<()> {
        let [x, y, z, stream, function, packed, metadata, enter, exit] = head;
        let grid = [x.extract()?, y.extract()?, z.extract()?];
        let is_watched = !is_idle(enter)? || !is_idle(exit)?;
        let metadata = match self.describe.get() {
            Some(describe) if is_watched && metadata.is_none() => {
                let passed = PyTuple::new(py, arguments)?;
                describe.bind(py).call1(((x, y, z), stream, passed))?
            }
            _ => Borrowed::to_owned(*metadata),
        };
        if is_watched && !enter.is_none() {
            enter.call1((&metadata,))?;
        }
        let none = py.None().into_bound(py);
        let around = Surroundings { grid, stream, scratch: [&none, &none] };
        if let Some(handle) = &self.handle {
            around.start(raised(py, BinaryCall::of_handle(handle))?, &self.slots, arguments)?;
        } else {
            let launch = self.configure(function, packed)?;
            around.start(BinaryCall::new(&launch), &self.slots, arguments)?;
        }
        if is_watched && !exit.is_none() {
            exit.call1((&metadata,))?;
        }
        Ok(())
    }

    /// Launches as [`launch`](Self::launch) does, for a call whose arguments are on the stack of
    /// the interpreter.
    pub(crate) fn call<'py>(slf: &Bound<'py, Self>, call: &Call<'_, 'py>) -> PyResult<()> {
        if call.keywords().is_none_or(|keywords| keywords.is_empty())
            && let Some((head, arguments)) = call.values().split_first_chunk::<HEAD>()
        {
            return slf.get().launch(slf.py(), head, arguments);
        }
        let (arguments, keywords) = call.to_python(slf.py())?;
        slf.call(arguments, Some(&keywords)).map(|_| ())
    }
}

/// Launches as `compiled.run` does. The target is a launcher.
struct Run;

impl Builtin for Run {
    const NAME: &'static CStr = c"run";
    const DOC: &'static CStr = c"Launches the compiled kernel.";

    fn answer(target: Borrowed<'_, '_, PyAny>, call: &Call<'_, '_>) -> PyResult<Py<PyAny>> {
        CudaLauncher::call(&*target.cast::<CudaLauncher>()?, call).map(|()| target.py().None())
    }
}

/// The number of arguments of a launch before the kernel's arguments.
const HEAD: usize = 9;

#[pymethods]
impl CudaLauncher {
    /// Creates a launcher for arguments of these types, one for each parameter: strings, and tuples
    /// of types. `kernel` is a kernel that was compiled for a GPU of this machine. With it,
    /// launches run this kernel and ignore the driver handle.
    #[new]
    #[pyo3(signature = (types, launch_cooperative_grid = false, launch_pdl = false, kernel = None))]
    fn new(
        types: &Bound<'_, PyAny>,
        launch_cooperative_grid: bool,
        launch_pdl: bool,
        kernel: Option<&Bound<'_, CompiledKernel>>,
    ) -> PyResult<Self> {
        Ok(Self {
            slots: types.try_iter()?.map(|ty| slot_of_type(&ty?)).collect::<PyResult<_>>()?,
            is_cooperative: launch_cooperative_grid,
            is_programmatic: launch_pdl,
            handle: kernel.map(|kernel| Arc::clone(&kernel.get().handle)),
            describe: OnceLock::new(),
            last: Mutex::default(),
        })
    }

    /// Returns the launcher as a built-in function, whose call costs less than the call of an
    /// object.
    fn _function<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        make::<Run>(slf)
    }

    /// Sets the function that describes a launch for hooks: `describe(grid, stream, arguments)`.
    fn _set_describe(&self, describe: Py<PyAny>) {
        // The code that creates the launcher sets the function once.
        self.describe.set(describe).ok();
    }

    /// Launches a kernel by its driver handle.
    #[pyo3(signature = (grid_x, grid_y, grid_z, stream, function, kernel_metadata, launch_metadata, launch_enter_hook,
                        launch_exit_hook, *args))]
    #[expect(clippy::too_many_arguments, reason = "Triton's protocol")]
    fn __call__(
        &self,
        py: Python<'_>,
        grid_x: &Bound<'_, PyAny>,
        grid_y: &Bound<'_, PyAny>,
        grid_z: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
        function: &Bound<'_, PyAny>,
        kernel_metadata: &Bound<'_, PyAny>,
        launch_metadata: &Bound<'_, PyAny>,
        launch_enter_hook: &Bound<'_, PyAny>,
        launch_exit_hook: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let head = [
            grid_x,
            grid_y,
            grid_z,
            stream,
            function,
            kernel_metadata,
            launch_metadata,
            launch_enter_hook,
            launch_exit_hook,
        ];
        let arguments: SmallVec<[_; 16]> = args.iter_borrowed().collect();
        self.launch(py, &head.map(Bound::as_borrowed), &arguments)
    }
}

/// Launches a kernel by its driver handle, with the types that `build_signature_metadata` encoded.
/// The two addresses of scratch memory are passed only to a kernel with parameters for them.
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
    let mut types = signature.iter().copied();
    let slots = annotations.try_iter()?.map(|annotation| slot_of_annotation(&annotation?, &mut types));
    let slots = slots.collect::<PyResult<Vec<_>>>()?;
    let manner = Manner { function, packed, is_cooperative, is_programmatic };
    let launch = raised(py, manner.configure())?;
    let around = Surroundings { grid: grid.into(), stream, scratch: [global_scratch, profile_scratch] };
    let arguments: Vec<_> = arguments.iter_borrowed().collect();
    around.start(BinaryCall::new(&launch), &slots, &arguments)
}
