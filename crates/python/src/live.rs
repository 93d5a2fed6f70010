//! The memory that a kernel may reach through addresses that it reads, as a grouped matrix product does: that of every tensor
//! of torch that the program has. A GPU reaches all of its memory; here each access is checked, so it has to be known.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use tilewright_runtime::{Device, Region};

use crate::convert::region;
use crate::torch::{Tensor, Torch, read};

/// Memory, and what keeps it where it is.
#[derive(Default)]
pub(crate) struct Live {
    pub(crate) regions: Vec<Region<'static>>,
    _tensors: Vec<Py<PyAny>>,
}

/// The tensors in main memory.
#[cold]
pub(crate) fn tensors(py: Python<'_>) -> PyResult<Live> {
    let (mut regions, mut tensors) = (Vec::new(), Vec::new());
    visit(py, |tensor, object| {
        regions.push(region(tensor));
        tensors.push(object.unbind());
    })?;
    let place = |region: &Region<'_>| (region.address(), region.len());
    regions.sort_unstable_by_key(place);
    regions.dedup_by_key(|region| place(region));
    Ok(Live { regions, _tensors: tensors })
}

/// Memory, by its address and bytes, and what keeps it where it is.
pub(crate) type Held = ((usize, usize), Py<PyAny>);

/// The memory that an address lies in.
#[cold]
pub(crate) fn holding(py: Python<'_>, address: usize) -> PyResult<Option<Held>> {
    let mut found = None;
    visit(py, |tensor, object| {
        let (start, bytes) = tensor.allocation;
        if (start..start.saturating_add(bytes)).contains(&address) {
            found = Some((tensor.allocation, object.unbind()));
        }
    })?;
    Ok(found)
}

/// Goes through the tensors in main memory. Python's garbage collector knows them; it does not know arrays of numpy.
fn visit(py: Python<'_>, mut each: impl FnMut(&Tensor, Bound<'_, PyAny>)) -> PyResult<()> {
    let Some(torch) = Torch::get(py) else { return Ok(()) };
    let _unwatched = torch.unwatched(py)?;
    let objects = py.import(intern!(py, "gc"))?.call_method0(intern!(py, "get_objects"))?;
    for object in objects.cast_into::<PyList>()? {
        if !torch.is_plain_tensor(&object) {
            continue;
        }
        // One without memory, such as a sparse one, is none that an address leads to.
        let Ok(tensor) = read(torch, &object) else { continue };
        if tensor.device == Device::Cpu && tensor.allocation.1 > 0 {
            each(&tensor, object);
        }
    }
    Ok(())
}
