//! Describes the memory of tensors and arrays of any library.
#![expect(unsafe_code, reason = "a region is made of the address and size that an argument states")]

use pyo3::PyErr;
use tilewright_ir::Dtype;
use tilewright_runtime::{Device, Region};

/// The memory of a tensor or an array.
pub(crate) struct Tensor {
    /// The device of the memory: the CPU or a GPU.
    pub(crate) device: Device,
    /// The type of its elements.
    pub(crate) dtype: Dtype,
    /// The address of the first element.
    pub(crate) address: usize,
    /// The address and the bytes of the allocation; (0, 0) for memory of a GPU.
    pub(crate) allocation: (usize, usize),
    /// True if the memory must not be written.
    pub(crate) is_read_only: bool,
    /// True for a tensor of torch, whose allocator pads memory on a GPU.
    pub(crate) is_of_torch: bool,
}

impl Tensor {
    /// Returns an array in main memory, whose allocation is from `low` to `high` (exclusive).
    pub(crate) fn of_array(
        dtype: Dtype,
        address: usize,
        (low, high): (usize, usize),
        is_read_only: bool,
    ) -> Self {
        let allocation = (low, high - low);
        Self { device: Device::Cpu, dtype, address, allocation, is_read_only, is_of_torch: false }
    }

    /// Returns a tensor of torch.
    pub(crate) fn of_torch(device: Device, dtype: Dtype, address: usize, allocation: (usize, usize)) -> Self {
        Self { device, dtype, address, allocation, is_read_only: false, is_of_torch: true }
    }
}

/// The reason why a tensor cannot be passed to a kernel.
pub(crate) enum Unfit {
    /// Kernels do not support the dtype of the tensor, which has this name.
    Dtype(String),
    /// The tensor is on a device with this name, which runs no kernels.
    Device(String),
    /// The description of the tensor is impossible. The text completes the message "an array …".
    Malformed(String),
    /// The tensor has no memory of its own.
    NoMemory,
    /// The elements in memory differ from the values, because torch negates them when it reads
    /// them.
    Negated,
    /// Python raised this exception.
    Raised(PyErr),
}

impl From<PyErr> for Unfit {
    fn from(error: PyErr) -> Self {
        Unfit::Raised(error)
    }
}

/// Returns the memory of a tensor as a region, which is valid while the tensor lives.
#[inline]
pub(crate) fn region(tensor: &Tensor) -> Region<'static> {
    let (address, bytes) = tensor.allocation;
    let base = std::ptr::with_exposed_provenance_mut(address);
    // The library that created the tensor guarantees that this is its memory. The call keeps a
    // reference to the tensor until the launch has ended.
    if tensor.is_read_only && bytes > 0 {
        // SAFETY: the memory is valid, as described above. The slice does not outlive this
        // expression.
        Region::read_only(unsafe { std::slice::from_raw_parts(base, bytes) })
    } else {
        // SAFETY: the memory is valid, as described above. No Rust reference to the memory exists.
        let region = unsafe { Region::new(base, bytes) };
        if tensor.is_of_torch && bytes > 0 {
            region.with_padding(tilewright_runtime::padding_of(bytes))
        } else {
            region
        }
    }
}

/// Returns the address range of an array, with an exclusive end. `size` is the bytes of an element.
/// An axis has its extent, and the bytes between elements.
pub(crate) fn range(
    address: usize,
    size: usize,
    axes: impl Iterator<Item = (usize, isize)> + Clone,
) -> Result<(usize, usize), Unfit> {
    if axes.clone().any(|(extent, _)| extent == 0) {
        return Ok((address, address));
    }
    let bounds = || {
        let (mut low, mut high) = (address, address.checked_add(size)?);
        for (extent, stride) in axes {
            let reach = isize::try_from(extent - 1).ok()?.checked_mul(stride)?;
            low = low.checked_add_signed(reach.min(0))?;
            high = high.checked_add_signed(reach.max(0))?;
        }
        isize::try_from(high - low).is_ok().then_some((low, high))
    };
    bounds().ok_or_else(|| Unfit::Malformed("whose shape and strides reach beyond the address space".into()))
}

/// Returns the axes (extent, stride) of a shape and strides from another library.
pub(crate) fn axes<'a>(
    shape: &'a [usize],
    strides: &'a [isize],
) -> Result<impl Iterator<Item = (usize, isize)> + Clone + use<'a>, Unfit> {
    if shape.len() != strides.len() {
        return Err(Unfit::Malformed("whose shape and strides differ in length".into()));
    }
    Ok(shape.iter().copied().zip(strides.iter().copied()))
}

pub(crate) fn contiguous(shape: &[usize], size: usize) -> Result<Vec<isize>, Unfit> {
    let too_large = || Unfit::Malformed("whose shape has more elements than memory could hold".into());
    let mut stride = size as isize;
    let mut strides: Vec<isize> = Vec::with_capacity(shape.len());
    for &extent in shape.iter().rev() {
        strides.push(stride);
        let extent = isize::try_from(extent.max(1)).map_err(|_| too_large())?;
        stride = stride.checked_mul(extent).ok_or_else(too_large)?;
    }
    strides.reverse();
    Ok(strides)
}
