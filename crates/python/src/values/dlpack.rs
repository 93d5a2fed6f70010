//! Reads DLPack, the C structures by which other libraries describe tensors.
#![expect(unsafe_code, reason = "the structures and functions are reached by pointers")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict, PyType};
use pyo3::{ffi, intern};
use tilewright_ir::Dtype;
use tilewright_runtime::Device;

use super::memory::{Tensor, Unfit, axes, contiguous, range};

/// DLPack's description of a tensor, version 0. Later versions add a header.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

impl DlTensor {
    /// Returns whether no axis has stride 1, also for a scalar. A tensor without strides is
    /// contiguous.
    fn has_no_unit_stride(&self) -> bool {
        let rank = usize::try_from(self.ndim).unwrap_or(0);
        if self.strides.is_null() || rank == 0 {
            return rank == 0;
        }
        // SAFETY: by DLPack's specification, strides have `ndim` items unless they are null.
        let strides = unsafe { std::slice::from_raw_parts(self.strides, rank) };
        !strides.contains(&1)
    }

    /// Returns the type of the elements, if kernels support the type.
    fn dtype(&self) -> Option<Dtype> {
        Some(match (self.code, self.bits, self.lanes) {
            (2, 32, 1) => Dtype::F32,
            (2, 16, 1) => Dtype::F16,
            (2, 64, 1) => Dtype::F64,
            (4, 16, 1) => Dtype::BF16,
            (0, 8, 1) => Dtype::I8,
            (0, 16, 1) => Dtype::I16,
            (0, 32, 1) => Dtype::I32,
            (0, 64, 1) => Dtype::I64,
            (1, 8, 1) => Dtype::U8,
            (1, 16, 1) => Dtype::U16,
            (1, 32, 1) => Dtype::U32,
            (1, 64, 1) => Dtype::U64,
            (6, 8, 1) => Dtype::I1,
            (10, 8, 1) => Dtype::F8E4NV,
            (11, 8, 1) => Dtype::F8E4B8,
            (12, 8, 1) => Dtype::F8E5,
            (13, 8, 1) => Dtype::F8E5B16,
            _ => return None,
        })
    }

    /// Returns the address of the first element, if it is within the address space.
    fn address(&self) -> Option<usize> {
        self.data.addr().checked_add(self.byte_offset as usize)
    }
}

/// The header before the description from version 1 on (`DLManagedTensorVersioned`).
#[repr(C)]
struct DlVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: DlTensor,
}

const DL_CPU: i32 = 1;
const DL_READ_ONLY: u64 = 1;

/// Reads an array by DLPack. Returns its memory and the capsule that owns the memory, which must
/// live until the launch has ended.
pub(crate) fn read<'py>(object: &Bound<'py, PyAny>) -> Result<(Tensor, Bound<'py, PyAny>), Unfit> {
    let py = object.py();
    if let Some(device) = object.getattr_opt(intern!(py, "__dlpack_device__"))? {
        let (kind, index): (i32, i32) = device.call0()?.extract()?;
        dl_device(kind, index)?;
    }
    let capsule = capsule_of(object)?;
    let handle = capsule.cast::<PyCapsule>().map_err(PyErr::from)?;
    let (tensor, is_read_only) = if handle.is_valid_checked(Some(c"dltensor_versioned")) {
        let pointer = handle.pointer_checked(Some(c"dltensor_versioned"))?;
        // SAFETY: by DLPack's specification, a capsule of this name contains a
        // `DLManagedTensorVersioned`. Its first fields are the same in every version, and it is
        // valid while the capsule lives.
        let versioned = unsafe { pointer.cast::<DlVersioned>().as_ref() };
        if versioned.major != 1 {
            let version = (versioned.major, versioned.minor);
            return Err(Unfit::Malformed(format!("of version {version:?} of DLPack")));
        }
        (&versioned.tensor, versioned.flags & DL_READ_ONLY != 0)
    } else {
        let pointer = handle.pointer_checked(Some(c"dltensor"))?;
        // SAFETY: by DLPack's specification, a capsule of this name contains a `DLManagedTensor`.
        // It begins with a `DLTensor`, and is valid while the capsule lives.
        (unsafe { pointer.cast::<DlTensor>().as_ref() }, false)
    };
    let device = dl_device(tensor.device_type, tensor.device_id)?;
    let dtype = tensor.dtype().ok_or_else(|| {
        Unfit::Dtype(format!("DLPack type {}/{}x{}", tensor.code, tensor.bits, tensor.lanes))
    })?;
    let rank = usize::try_from(tensor.ndim).unwrap_or(0);
    let list = |items: *const i64| {
        if items.is_null() || rank == 0 {
            return Vec::new();
        }
        // SAFETY: by DLPack's specification, shape and strides have `ndim` items, unless strides is
        // null.
        unsafe { std::slice::from_raw_parts(items, rank) }.to_vec()
    };
    let shape: Vec<usize> = list(tensor.shape).into_iter().map(|extent| extent.max(0) as usize).collect();
    let size = dtype.bytes();
    let strides: Vec<isize> = if tensor.strides.is_null() {
        contiguous(&shape, size)?
    } else {
        let bytes = |stride: i64| isize::try_from(stride).ok()?.checked_mul(size as isize);
        let strides: Option<Vec<isize>> = list(tensor.strides).into_iter().map(bytes).collect();
        strides.ok_or_else(|| Unfit::Malformed("whose strides reach beyond the address space".into()))?
    };
    let too_far = || Unfit::Malformed("that ends beyond the address space".into());
    let address = tensor.address().ok_or_else(too_far)?;
    let (low, high) = match device {
        Device::Cpu => range(address, size, axes(&shape, &strides)?)?,
        _ => (0, 0),
    };
    Ok((
        Tensor { device, dtype, address, allocation: (low, high - low), is_read_only, is_of_torch: false },
        capsule,
    ))
}

/// Requests a capsule of version 1, which states whether the memory may be written. Older libraries
/// do not accept a version.
fn capsule_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let versions = PyDict::new(py);
    versions.set_item(intern!(py, "max_version"), (1, 0))?;
    match object.call_method(intern!(py, "__dlpack__"), (), Some(&versions)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            object.call_method0(intern!(py, "__dlpack__"))
        }
        found => found,
    }
}

/// Returns the device for DLPack's numbers of a device, if kernels run on it.
fn dl_device(kind: i32, index: i32) -> Result<Device, Unfit> {
    Err(Unfit::Device(match kind {
        DL_CPU => return Ok(Device::Cpu),
        2 => match u16::try_from(index) {
            Ok(index) => return Ok(Device::Cuda(index)),
            Err(_) => format!("cuda:{index}"),
        },
        10 => format!("rocm:{index}"),
        8 => format!("metal:{index}"),
        _ => format!("DLPack device {kind}:{index}"),
    }))
}

/// The first fields of `DLPackExchangeAPI`, the C functions of the tensor class of a library.
#[repr(C)]
struct ExchangeTable {
    major: u32,
    minor: u32,
    older: *const c_void,
    for_managed_tensors: [*const c_void; 3],
    describe: Option<Describe>,
}

/// Torch's description of a tensor in C.
pub(crate) struct Described {
    pub(crate) device: Device,
    pub(crate) dtype: Dtype,
    /// The address of the first element.
    pub(crate) address: usize,
    /// True if torch may negate the elements when it reads them, which DLPack does not state. Torch
    /// negates the imaginary parts of conjugated numbers.
    pub(crate) may_be_negated: bool,
}

/// Describes a tensor until it changes. A result other than 0 means an exception.
type Describe = unsafe extern "C" fn(tensor: *mut ffi::PyObject, description: *mut DlTensor) -> c_int;

/// The C function of a tensor class that describes its tensors without a call of Python code.
#[derive(Clone, Copy)]
pub(crate) struct Exchange(Describe);

impl Exchange {
    /// Returns the function of a class, if the class offers one.
    pub(crate) fn of(class: &Bound<'_, PyType>) -> Option<Self> {
        let capsule = class.getattr_opt(intern!(class.py(), "__dlpack_c_exchange_api__")).ok()??;
        let pointer = capsule.cast::<PyCapsule>().ok()?.pointer_checked(Some(c"dlpack_exchange_api")).ok()?;
        let table = pointer.cast::<ExchangeTable>().as_ptr();
        // SAFETY: by DLPack's specification, a capsule of this name contains a `DLPackExchangeAPI`
        // that lives as long as the process. In every version, the table begins with the version.
        // If the version is 1, the table has the other fields of this type.
        let describe = unsafe { if (*table).major == 1 { (*table).describe } else { None } };
        describe.map(Self)
    }

    /// Returns the device of a tensor, the type of its elements, and the address of the first
    /// element. Returns `None` if the function cannot describe the tensor, or if kernels do not
    /// support it.
    ///
    /// # Safety
    /// The object is an instance of the class that has the function.
    #[inline]
    pub(crate) unsafe fn describe(self, tensor: &Bound<'_, PyAny>) -> Option<Described> {
        let mut description = MaybeUninit::uninit();
        // SAFETY: the caller guarantees that the function is for this object. The function writes
        // the description, or raises an exception.
        let tensor = unsafe {
            if self.0(tensor.as_ptr(), description.as_mut_ptr()) != 0 {
                drop(PyErr::take(tensor.py()));
                return None;
            }
            description.assume_init()
        };
        let device = dl_device(tensor.device_type, tensor.device_id).ok()?;
        Some(Described {
            device,
            dtype: tensor.dtype()?,
            address: tensor.address()?,
            may_be_negated: tensor.has_no_unit_stride(),
        })
    }
}
