//! Finds the memory that a kernel may access through addresses that it loads.
//!
//! This is the memory of torch's tensors on the CPU, and of the records of scopes. Only tensors of
//! the classes `Tensor` and `Parameter` that Python's garbage collector lists are included. The CPU
//! executor and the simulator check each access against this list.
#![expect(unsafe_code, reason = "the memory for records is known by its address")]

use std::sync::OnceLock;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use tilewright_ir::Dtype;
use tilewright_runtime::{Device, Region};

use super::memory::{Tensor, Unfit, region};
use super::torch::{Torch, allocation, read};

/// Regions of memory, and the objects that keep them in place.
#[derive(Default)]
pub(crate) struct Live {
    pub(crate) regions: Vec<Region<'static>>,
    _tensors: Vec<Py<PyAny>>,
}

/// The address and the bytes of the memory for the records of scopes (`triton.profiler.language`).
/// The first word counts the records. Kernels get the address as a number.
static RECORDS: OnceLock<(usize, usize)> = OnceLock::new();

/// Returns the address of the memory for records of scopes. The first call allocates `words` words
/// of 64 bits. Later calls return the same memory.
#[pyfunction]
pub(crate) fn record_memory(words: usize) -> usize {
    let make = || {
        let memory = Box::leak(vec![0_u64; words].into_boxed_slice());
        (std::ptr::from_mut(memory).cast::<u8>().expose_provenance(), words * 8)
    };
    RECORDS.get_or_init(make).0
}

/// Removes the records that kernels have written, each of `words_each` words. Returns their number
/// and their words. No kernel may run meanwhile.
#[pyfunction]
pub(crate) fn take_records(words_each: usize) -> (u64, Vec<u64>) {
    let Some(&(address, bytes)) = RECORDS.get() else { return (0, Vec::new()) };
    let words = std::ptr::with_exposed_provenance_mut::<u64>(address);
    // SAFETY: the memory is leaked, so it remains valid. No kernel writes it now, because launches
    // on the CPU have ended when they return, and this thread has the GIL.
    let words = unsafe { std::slice::from_raw_parts_mut(words, bytes / 8) };
    let count = std::mem::take(&mut words[0]);
    let used = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(words_each).min(bytes / 8 - 1);
    (count, words[1..=used].to_vec())
}

/// Returns the memory of the tensors in main memory that [`visit`] finds, and of the records.
#[cold]
pub(crate) fn tensors(py: Python<'_>) -> PyResult<Live> {
    let (mut regions, mut tensors) = (Vec::new(), Vec::new());
    visit(py, |tensor, object| {
        regions.push(region(tensor));
        tensors.push(object.unbind());
    })?;
    if let Some(&(address, bytes)) = RECORDS.get() {
        // SAFETY: the memory is leaked, and Rust holds no reference to it while kernels run.
        regions.push(unsafe { Region::new(std::ptr::with_exposed_provenance_mut(address), bytes) });
    }
    let place = |region: &Region<'_>| (region.address(), region.len());
    regions.sort_unstable_by_key(place);
    regions.dedup_by_key(|region| place(region));
    Ok(Live { regions, _tensors: tensors })
}

/// The address and bytes of memory, and the object that keeps it in place.
type Held = ((usize, usize), Py<PyAny>);

/// Returns the memory of the tensor that contains an address; `None` if there is no such tensor.
#[cold]
fn holding(py: Python<'_>, address: usize) -> PyResult<Option<Held>> {
    let mut found = None;
    visit(py, |tensor, object| {
        let (start, bytes) = tensor.allocation;
        if (start..start.saturating_add(bytes)).contains(&address) {
            found = Some((tensor.allocation, object.unbind()));
        }
    })?;
    Ok(found)
}

/// Returns a tensor at an address whose allocation is unknown: in a tensor of torch on the CPU,
/// which the returned object keeps in place, else on the GPU that torch uses.
pub(crate) fn read_address(
    py: Python<'_>,
    torch: &Torch,
    address: usize,
    dtype: Dtype,
) -> PyResult<Option<(Tensor, Option<Py<PyAny>>)>> {
    if let Some((allocation, owner)) = holding(py, address)? {
        return Ok(Some((Tensor::of_torch(Device::Cpu, dtype, address, allocation), Some(owner))));
    }
    let cuda = py.import(intern!(py, "torch.cuda"))?;
    if torch.is_without_gpu() || !cuda.call_method0(intern!(py, "is_available"))?.is_truthy()? {
        return Ok(None);
    }
    let device = Device::Cuda(cuda.call_method0(intern!(py, "current_device"))?.extract()?);
    Ok(Some((Tensor::of_torch(device, dtype, address, (0, 0)), None)))
}

/// Visits the tensors on the CPU that Python's garbage collector lists. It does not list numpy's
/// arrays.
fn visit(py: Python<'_>, mut each: impl FnMut(&Tensor, Bound<'_, PyAny>)) -> PyResult<()> {
    let Some(torch) = Torch::get(py) else { return Ok(()) };
    let _unwatched = torch.unwatched(py)?;
    let objects = py.import(intern!(py, "gc"))?.call_method0(intern!(py, "get_objects"))?;
    for object in objects.cast_into::<PyList>()? {
        if !torch.is_plain_tensor(&object) {
            continue;
        }
        let tensor = match read(torch, &object) {
            Ok(tensor) => tensor,
            // Kernels read elements of other types, such as complex numbers, in parts.
            Err(Unfit::Dtype(_) | Unfit::Negated) => match bytes(&object) {
                Ok(Some(tensor)) => tensor,
                Ok(None) | Err(_) => continue,
            },
            // No address points into a tensor without memory of its own, such as a sparse tensor.
            Err(Unfit::Device(_) | Unfit::Malformed(_) | Unfit::NoMemory | Unfit::Raised(_)) => continue,
        };
        if tensor.device == Device::Cpu && tensor.allocation.1 > 0 {
            each(&tensor, object);
        }
    }
    Ok(())
}

/// Returns the memory of a tensor as bytes; `None` if it is not in main memory.
fn bytes(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    if !object.getattr(intern!(object.py(), "is_cpu"))?.is_truthy()? {
        return Ok(None);
    }
    let allocation = allocation(object)?;
    Ok(Some(Tensor::of_torch(Device::Cpu, Dtype::U8, allocation.0, allocation)))
}
