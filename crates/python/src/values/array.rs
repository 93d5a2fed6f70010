//! Reads arrays of libraries other than torch, such as numpy.
#![expect(unsafe_code, reason = "numpy describes its arrays in a C structure")]

use std::ffi::{c_char, c_int, c_void};

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict, PyType, PyWeakrefReference};
use tilewright_ir::{Dtype, Literal};
use tilewright_runtime::Device;

use super::memory::{Tensor, Unfit, axes, contiguous, range};
use super::torch::imported;
use crate::errors::raised;

/// The classes of numpy that this crate uses. It never imports numpy.
pub(crate) struct Numpy {
    array: Py<PyType>,
    scalar: Py<PyType>,
}

impl Numpy {
    /// Returns numpy, if the program has imported it.
    pub(crate) fn get(py: Python<'_>) -> Option<&'static Numpy> {
        static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();
        if let Some(numpy) = NUMPY.get(py) {
            return Some(numpy);
        }
        let module = imported(py, intern!(py, "numpy"))?;
        let class = |name: &str| Some(module.getattr(name).ok()?.cast_into::<PyType>().ok()?.unbind());
        NUMPY.set(py, Numpy { array: class("ndarray")?, scalar: class("generic")? }).ok();
        NUMPY.get(py)
    }

    /// Returns whether an object is an array.
    pub(crate) fn is_array(&self, object: &Bound<'_, PyAny>) -> bool {
        object.is_instance(self.array.bind(object.py())).unwrap_or(false)
    }

    /// Returns whether an object is an array of numpy's own class, not of a derived class.
    #[inline]
    pub(crate) fn is_exact_array(&self, object: &Bound<'_, PyAny>) -> bool {
        object.get_type_ptr().cast() == self.array.as_ptr()
    }

    /// Returns whether an object is a number with a dtype, such as `np.float32(1)`.
    pub(crate) fn is_scalar(&self, object: &Bound<'_, PyAny>) -> bool {
        object.is_instance(self.scalar.bind(object.py())).unwrap_or(false)
    }
}

/// Returns the number in a numpy scalar; `None` if the language does not have its type.
pub(crate) fn scalar(object: &Bound<'_, PyAny>) -> PyResult<Option<Literal>> {
    let py = object.py();
    let name: String = object.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "name"))?.extract()?;
    let Some(dtype) = dtype_of_name(&name) else { return Ok(None) };
    let value = object.call_method0(intern!(py, "item"))?;
    Ok(if dtype.is_bool() {
        Some(Literal::int(dtype, value.is_truthy()?.into()))
    } else if dtype.is_int() {
        Some(Literal::int(dtype, value.extract()?))
    } else {
        Literal::float(dtype, value.extract()?)
    })
}

/// Returns the dtype with this name in numpy or `ml_dtypes`, if the language has it.
fn dtype_of_name(name: &str) -> Option<Dtype> {
    Some(match name {
        "bool" => Dtype::I1,
        "float16" => Dtype::F16,
        "bfloat16" => Dtype::BF16,
        "float32" => Dtype::F32,
        "float64" => Dtype::F64,
        "float8_e5m2" => Dtype::F8E5,
        "float8_e4m3fn" => Dtype::F8E4NV,
        "float8_e4m3fnuz" => Dtype::F8E4B8,
        "float8_e5m2fnuz" => Dtype::F8E5B16,
        "float8_e4m3b11fnuz" => return None,
        name => Dtype::parse(name).filter(|dtype| dtype.is_int())?,
    })
}

/// Numpy's description of an array in C (`PyArrayInterface`).
#[repr(C)]
struct ArrayInterface {
    two: c_int,
    nd: c_int,
    typekind: c_char,
    itemsize: c_int,
    flags: c_int,
    shape: *const isize,
    strides: *const isize,
    data: *mut c_void,
    descr: *mut c_void,
}

const NOT_SWAPPED: c_int = 0x200;
const WRITEABLE: c_int = 0x400;

/// Reads an array of numpy's own class without running code of the program.
pub(crate) fn read_struct(array: &Bound<'_, PyAny>) -> Result<Tensor, Unfit> {
    let (description, own) = describe_struct(array)?;
    let (kind, size) = (description.typekind as u8, description.itemsize);
    let dtype = match (kind, size) {
        _ if description.flags & NOT_SWAPPED == 0 && size > 1 => None,
        (b'f', 4) => Some(Dtype::F32),
        (b'f', 2) => Some(Dtype::F16),
        (b'f', 8) => Some(Dtype::F64),
        (b'i', 1) => Some(Dtype::I8),
        (b'i', 2) => Some(Dtype::I16),
        (b'i', 4) => Some(Dtype::I32),
        (b'i', 8) => Some(Dtype::I64),
        (b'u', 1) => Some(Dtype::U8),
        (b'u', 2) => Some(Dtype::U16),
        (b'u', 4) => Some(Dtype::U32),
        (b'u', 8) => Some(Dtype::U64),
        (b'b', 1) => Some(Dtype::I1),
        _ => None,
    };
    // `read` uses the name of the dtype. Some types have no letter in numpy, such as bfloat16 of
    // ml_dtypes.
    let Some(dtype) = dtype else { return read(array) };
    let is_read_only = description.flags & WRITEABLE == 0;
    Ok(Tensor::of_array(dtype, description.address, around(array, own)?, is_read_only))
}

/// The fields of an `ArrayInterface` that are needed after the capsule is dropped.
struct Description {
    typekind: c_char,
    itemsize: c_int,
    flags: c_int,
    address: usize,
}

/// Returns the description of an array of numpy's own class, and the address range of its elements.
fn describe_struct(array: &Bound<'_, PyAny>) -> Result<(Description, (usize, usize)), Unfit> {
    let capsule = array.getattr(intern!(array.py(), "__array_struct__"))?;
    let capsule = capsule.cast::<PyCapsule>().map_err(PyErr::from)?;
    let pointer = capsule.pointer_checked(None)?;
    // SAFETY: the caller has checked that this is numpy's own array. The capsule contains an
    // `ArrayInterface`, which is valid while the capsule lives.
    let interface = unsafe { pointer.cast::<ArrayInterface>().as_ref() };
    let rank = usize::try_from(interface.nd).unwrap_or(0);
    let list = |items: *const isize| match rank {
        0 => &[][..],
        // SAFETY: numpy's shape and strides have `nd` items.
        _ => unsafe { std::slice::from_raw_parts(items, rank) },
    };
    let address = interface.data.addr();
    let axes = list(interface.shape).iter().zip(list(interface.strides));
    let axes = axes.map(|(&extent, &stride)| (extent as usize, stride));
    let own = range(address, interface.itemsize as usize, axes)?;
    let ArrayInterface { typekind, itemsize, flags, .. } = *interface;
    Ok((Description { typekind, itemsize, flags, address }, own))
}

/// Reads an array by its `__array_interface__`.
pub(crate) fn read(object: &Bound<'_, PyAny>) -> Result<Tensor, Unfit> {
    let py = object.py();
    let interface = object.getattr(intern!(py, "__array_interface__"))?;
    let interface = interface.cast_into::<PyDict>().map_err(PyErr::from)?;
    let item = |name: &str| -> PyResult<Bound<'_, PyAny>> {
        interface
            .get_item(name)?
            .ok_or_else(|| PyValueError::new_err(format!("__array_interface__ without '{name}'")))
    };
    let (address, is_read_only): (usize, bool) = item("data")?.extract()?;
    let dtype = dtype_of_interface(object, &item("typestr")?)?;
    let shape: Vec<usize> = item("shape")?.extract()?;
    let strides = interface.get_item(intern!(py, "strides"))?.filter(|strides| !strides.is_none());
    let strides = match strides {
        Some(strides) => strides.extract()?,
        None => contiguous(&shape, dtype.bytes())?,
    };
    let own = range(address, dtype.bytes(), axes(&shape, &strides)?)?;
    Ok(Tensor::of_array(dtype, address, around(object, own)?, is_read_only))
}

fn dtype_of_interface(object: &Bound<'_, PyAny>, typestr: &Bound<'_, PyAny>) -> Result<Dtype, Unfit> {
    let py = object.py();
    let text: String = typestr.extract()?;
    let (order, rest) = text.split_at_checked(1).unwrap_or(("|", ""));
    let native = if cfg!(target_endian = "little") { "<" } else { ">" };
    let named = || object.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "name"))?.extract::<String>();
    let found = match (order == native || order == "|", rest.split_at_checked(1)) {
        (true, Some(("b", "1"))) => Some(Dtype::I1),
        (true, Some(("i", bytes))) => dtype_of_name(&format!("int{}", bits(bytes))),
        (true, Some(("u", bytes))) => dtype_of_name(&format!("uint{}", bits(bytes))),
        (true, Some(("f", bytes))) => dtype_of_name(&format!("float{}", bits(bytes))),
        // Types that numpy itself does not know: bfloat16 and the 8-bit floats of ml_dtypes.
        (true, Some(("V", _))) => named().ok().and_then(|name| dtype_of_name(&name)),
        _ => None,
    };
    let is_foreign = order != native && order != "|";
    let note = if is_foreign { " in another byte order" } else { "" };
    found.ok_or_else(|| Unfit::Dtype(format!("dtype {}{note}", named().unwrap_or(text))))
}

fn bits(bytes: &str) -> usize {
    bytes.parse::<usize>().map_or(0, |bytes| bytes * 8)
}

/// Returns the address range that a kernel may access: the range of the array whose view `object`
/// is, if it contains `own`, else `own`.
fn around(object: &Bound<'_, PyAny>, own: (usize, usize)) -> Result<(usize, usize), Unfit> {
    let owner = owner(object)?.map(|owner| describe_struct(&owner)).transpose()?.map(|(_, range)| range);
    Ok(owner.filter(|owner| owner.0 <= own.0 && own.1 <= owner.1).unwrap_or(own))
}

/// Returns the numpy array at the end of the chain of `base`s of an object. Returns `None` if the
/// object is no view of an array.
fn owner<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let Some(numpy) = Numpy::get(py) else { return Ok(None) };
    let mut owner: Option<Bound<'py, PyAny>> = None;
    let mut next = object.getattr_opt(intern!(py, "base"))?;
    while let Some(base) = next.filter(|base| numpy.is_array(base)) {
        next = base.getattr_opt(intern!(py, "base"))?;
        owner = Some(base);
    }
    Ok(owner)
}

/// Keeps the memory of a numpy array at its address until the result is dropped. The result is a
/// weak reference, because `resize` refuses an array with one. With `refcheck=False`, `resize`
/// accepts an array with a view.
pub(crate) fn hold<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let owner = owner(array)?;
    Ok(PyWeakrefReference::new(owner.as_ref().unwrap_or(array))?.into_any())
}

/// Reads an array by its `__cuda_array_interface__`, which does not name the GPU. Assumes the
/// current one.
pub(crate) fn read_cuda(object: &Bound<'_, PyAny>) -> Result<Tensor, Unfit> {
    let py = object.py();
    let interface = object.getattr(intern!(py, "__cuda_array_interface__"))?;
    let (address, is_read_only): (usize, bool) = interface.get_item(intern!(py, "data"))?.extract()?;
    let dtype = dtype_of_interface(object, &interface.get_item(intern!(py, "typestr"))?)?;
    let device = match raised(py, Device::current())? {
        gpu @ Device::Cuda(_) => gpu,
        _ => Device::Cuda(0),
    };
    Ok(Tensor { device, dtype, address, allocation: (0, 0), is_read_only, is_of_torch: false })
}
