//! Triton's driver module: device code is loaded, and launched with Python objects for arguments (`tilewright_runtime::binary`
//! does both). torch Inductor launches what `triton.compile` made through this, and so does `compiled.run(...)`.

use std::ffi::CString;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyTuple};
use tilewright_ir::Dtype;
use tilewright_runtime::binary::{self, ArgumentType, Call, LastLaunch, Manner, Slot};
use tilewright_runtime::{Device, Value};

use crate::device::{stream_number, stream_of};
use crate::errors::{raised, to_exception};
use crate::tensor_map::TensorMap;

/// Assembles PTX for the GPU that this thread works on, unless the cache has the machine code.
#[pyfunction]
#[pyo3(signature = (name, ptx, max_registers = None))]
pub(crate) fn assemble<'py>(
    py: Python<'py>,
    name: &str,
    ptx: &str,
    max_registers: Option<u32>,
) -> PyResult<Bound<'py, PyBytes>> {
    let gpu = match raised(py, Device::current())? {
        gpu @ Device::Cuda(_) => gpu,
        // The error says why there is none.
        _ => Device::Cuda(0),
    };
    let (cubin, warning) = raised(py, py.detach(|| binary::assemble(gpu, name, ptx, max_registers)))?;
    if let Some(warning) = warning {
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
    let loaded = raised(py, py.detach(|| binary::load(Device::Cuda(device), name, image, shared)))?;
    let takes = loaded.attributes;
    Ok((loaded.module, loaded.function, takes.registers, takes.spills(), takes.max_threads_per_block))
}

/// Unloads what `load_binary` has loaded.
#[pyfunction]
pub(crate) fn unload_module(py: Python<'_>, module: u64) -> PyResult<()> {
    raised(py, py.detach(|| binary::unload(module)))
}

/// How many clusters of so many blocks of 128 threads are resident on the GPU at a time.
#[pyfunction]
#[pyo3(name = "cuOccupancyMaxActiveClusters")]
pub(crate) fn max_active_clusters(py: Python<'_>, function: u64, shared: u32, cluster: u32) -> PyResult<u32> {
    raised(py, binary::max_active_clusters(function, shared, cluster))
}

/// What `launch` needs to know of the types of a kernel's arguments, a byte each.
#[pyfunction]
pub(crate) fn build_signature_metadata<'py>(types: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = types.py();
    let byte = |ty: PyResult<Bound<'_, PyAny>>| {
        raised(py, ArgumentType::parse(&ty?.extract::<String>()?)).map(ArgumentType::to_byte)
    };
    Ok(PyBytes::new(py, &types.try_iter()?.map(byte).collect::<PyResult<Vec<u8>>>()?))
}

/// A slot from the types of a signature: strings, `constexpr` among them, and tuples of such.
fn slot_of_type(described: &Bound<'_, PyAny>) -> PyResult<Slot> {
    if let Ok(items) = described.cast::<PyTuple>() {
        return items.iter().map(|item| slot_of_type(&item)).collect::<PyResult<_>>().map(Slot::Tuple);
    }
    raised(described.py(), Slot::parse(&described.extract::<String>()?))
}

/// A slot from Triton's `PyKernelArg` objects, and the types of what is passed in order.
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
fn pass_all(call: &mut Call<'_>, slots: &[Slot], arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
    let mut slots = raised(arguments.py(), call.slots(slots, arguments.len()))?;
    slots.by_ref().zip(arguments.iter_borrowed()).try_for_each(|(slot, object)| pass(call, slot, &object))
}

fn pass(call: &mut Call<'_>, slot: &Slot, object: &Bound<'_, PyAny>) -> PyResult<()> {
    match slot {
        Slot::Constexpr => Ok(()),
        Slot::Passed(ty) => pass_one(call, *ty, object),
        Slot::Tuple(slots) => {
            let items: Vec<Bound<'_, PyAny>> =
                object.extract().map_err(|_| misfit(call, object, "a tuple"))?;
            pass_all(call, slots, &PyTuple::new(object.py(), items)?)
        }
    }
}

#[inline]
fn pass_one(call: &mut Call<'_>, ty: ArgumentType, object: &Bound<'_, PyAny>) -> PyResult<()> {
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

/// The address that an argument is: a number, `None`, or of an object that says its address.
#[inline]
fn address(call: &Call<'_>, object: &Bound<'_, PyAny>) -> PyResult<u64> {
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

/// An object as a number of a type.
fn number(dtype: Dtype, object: &Bound<'_, PyAny>) -> Option<Value<'static>> {
    if dtype.is_bool() {
        object.is_truthy().ok().map(Value::Bool)
    } else if dtype.is_int() {
        object.extract().ok().map(Value::Int)
    } else {
        object.extract().ok().map(Value::Float)
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

#[cold]
fn misfit(call: &Call<'_>, object: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    let found = match object.get_type().name() {
        _ if object.is_instance_of::<PyInt>() => format!("the int {object}"),
        Ok(name) => format!("a {name}"),
        Err(error) => return error,
    };
    to_exception(object.py(), &call.misfit(&found, expected))
}

#[cold]
fn on_cpu(call: &Call<'_>, object: &Bound<'_, PyAny>) -> PyErr {
    let class = object.get_type().name().map_or_else(|_| "tensor".into(), |name| name.to_string());
    to_exception(object.py(), &call.in_main_memory(&class))
}

// --- Launches ---

/// What a launch gets beside its arguments.
struct Surroundings<'a, 'py> {
    grid: [i64; 3],
    stream: &'a Bound<'py, PyAny>,
    /// Addresses for kernels that take them behind their arguments.
    scratch: [&'a Bound<'py, PyAny>; 2],
}

impl<'py> Surroundings<'_, 'py> {
    fn start(&self, mut call: Call<'_>, slots: &[Slot], arguments: &Bound<'py, PyTuple>) -> PyResult<()> {
        let py = arguments.py();
        let stream = stream_of(stream_number(self.stream)?.unwrap_or(0));
        pass_all(&mut call, slots, arguments)?;
        for object in self.scratch {
            if call.takes_scratch() {
                pass_one(&mut call, ArgumentType::Pointer, object)?;
            }
        }
        let grid = self.grid;
        raised(py, py.detach(|| call.start(grid, stream)))
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
    last: LastLaunch,
}

#[pymethods]
impl CudaLauncher {
    /// For these types, one for each parameter: strings, and tuples of such.
    #[new]
    #[pyo3(signature = (types, launch_cooperative_grid = false, launch_pdl = false))]
    fn new(types: &Bound<'_, PyAny>, launch_cooperative_grid: bool, launch_pdl: bool) -> PyResult<Self> {
        Ok(Self {
            slots: types.try_iter()?.map(|ty| slot_of_type(&ty?)).collect::<PyResult<_>>()?,
            is_cooperative: launch_cooperative_grid,
            is_programmatic: launch_pdl,
            last: LastLaunch::default(),
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
        let (is_cooperative, is_programmatic) = (self.is_cooperative, self.is_programmatic);
        let manner = Manner { function, packed: kernel_metadata, is_cooperative, is_programmatic };
        let launch = raised(py, self.last.configure(manner))?;
        let none = py.None().into_bound(py);
        call_hook(launch_enter_hook, launch_metadata)?;
        let around = Surroundings { grid: [grid_x, grid_y, grid_z], stream, scratch: [&none, &none] };
        around.start(Call::new(&launch), &self.slots, args)?;
        call_hook(launch_exit_hook, launch_metadata)
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
    let mut types = signature.iter().copied();
    let slots = annotations.try_iter()?.map(|annotation| slot_of_annotation(&annotation?, &mut types));
    let slots = slots.collect::<PyResult<Vec<_>>>()?;
    let manner = Manner { function, packed, is_cooperative, is_programmatic };
    let launch = raised(py, manner.configure())?;
    let around = Surroundings { grid: grid.into(), stream, scratch: [global_scratch, profile_scratch] };
    around.start(Call::new(&launch), &slots, arguments)
}
