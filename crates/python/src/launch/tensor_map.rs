//! Creates tensor maps, with the interface of Triton's driver module.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tilewright_cuda::{TensorMapElement, TensorMapFill, TensorMapSource, TensorMapSwizzle, TensorMapWindow};
use tilewright_runtime::{Context, Device, Error};

use crate::errors::raised;

/// A tensor map: an argument of a kernel whose parameter is a `nvTmaDesc`.
#[pyclass(frozen, module = "tilewright._native")]
pub(crate) struct TensorMap(pub(crate) tilewright_cuda::TensorMap);

#[pymethods]
impl TensorMap {
    /// The 128 bytes that the hardware reads.
    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.as_bytes())
    }
}

/// A tensor in the terms of the driver: the contiguous axis first, strides in bytes.
struct Tensor {
    shape: Vec<u64>,
    /// The strides in bytes, without the stride of the contiguous axis.
    strides: Vec<u64>,
    element: TensorMapElement,
    swizzle: TensorMapSwizzle,
    fill: TensorMapFill,
    address: u64,
}

impl Tensor {
    /// Creates a tensor from its description in Triton: in elements, with the contiguous axis last.
    fn new(
        address: u64,
        (swizzle, element_bytes, element, padding): (u32, u64, u32, u32),
        shape: &Bound<'_, PyAny>,
        strides: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (shape, strides): (Vec<u64>, Vec<u64>) = (shape.extract()?, strides.extract()?);
        let unknown = |what: &str, number: u32| PyValueError::new_err(format!("there is no {what} {number}"));
        if strides.len() != shape.len() {
            let message = format!("a tensor map has {} extents and {} strides", shape.len(), strides.len());
            return Err(PyValueError::new_err(message));
        }
        let outer = strides.iter().rev().skip(1);
        Ok(Self {
            address,
            shape: reversed(&shape),
            strides: outer.map(|stride| stride.saturating_mul(element_bytes)).collect(),
            element: TensorMapElement::from_number(element)
                .ok_or_else(|| unknown("element type", element))?,
            swizzle: TensorMapSwizzle::from_number(swizzle).ok_or_else(|| unknown("swizzle", swizzle))?,
            fill: if padding == 1 { TensorMapFill::Nan } else { TensorMapFill::Zero },
        })
    }

    fn source<'a>(&'a self, block: &'a [u32], steps: &'a [u32]) -> TensorMapSource<'a> {
        TensorMapSource {
            element: self.element,
            address: self.address,
            shape: &self.shape,
            strides: &self.strides,
            block,
            steps,
            swizzle: self.swizzle,
            fill: self.fill,
            ..TensorMapSource::default()
        }
    }
}

/// Returns the context of the GPU that this thread uses.
fn context() -> Result<Context, Error> {
    match Device::current()? {
        gpu @ Device::Cuda(_) => gpu.context(),
        // There is no GPU. The error for GPU 0 states the reason.
        _ => Device::Cuda(0).context(),
    }
}

/// Reverses a list with one item for each axis, to the order of the hardware.
fn reversed<T: Copy>(list: &[T]) -> Vec<T> {
    list.iter().rev().copied().collect()
}

/// Converts a Python list with one number for each axis to the order of the hardware.
fn axes<'py, T: Copy + for<'a> FromPyObject<'a, 'py, Error = PyErr>>(
    list: &Bound<'py, PyAny>,
) -> PyResult<Vec<T>> {
    Ok(reversed(&list.extract::<Vec<T>>()?))
}

/// Creates a tensor map for copies of blocks. `element` and `swizzle` are the numbers in the
/// driver's header. A `padding` of 1 is NaN; other values are zero.
#[pyfunction]
#[pyo3(signature = (global_address, swizzle, element_bytes, element, block, shape, strides, padding = 0))]
#[expect(clippy::too_many_arguments, reason = "Triton's protocol")]
pub(crate) fn fill_tma_descriptor_tiled(
    py: Python<'_>,
    global_address: u64,
    swizzle: u32,
    element_bytes: u64,
    element: u32,
    block: &Bound<'_, PyAny>,
    shape: &Bound<'_, PyAny>,
    strides: &Bound<'_, PyAny>,
    padding: u32,
) -> PyResult<TensorMap> {
    let numbers = (swizzle, element_bytes, element, padding);
    let tensor = Tensor::new(global_address, numbers, shape, strides)?;
    let context = raised(py, context())?;
    let block = axes::<u32>(block)?;
    let made = tilewright_cuda::TensorMap::encode(context, &tensor.source(&block, &[]));
    raised(py, made).map(TensorMap)
}

/// Creates a tensor map for copies of windows of a convolution's input (im2col). `block` is the
/// number of pixels and the number of channels of a copy. `lower` and `upper`, the corners of the
/// window, have one offset for each axis between the images and the channels.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Triton's protocol")]
pub(crate) fn fill_tma_descriptor_im2col(
    py: Python<'_>,
    global_address: u64,
    swizzle: u32,
    element_bytes: u64,
    element: u32,
    block: [u32; 2],
    shape: &Bound<'_, PyAny>,
    strides: &Bound<'_, PyAny>,
    padding: u32,
    lower: &Bound<'_, PyAny>,
    upper: &Bound<'_, PyAny>,
    steps: &Bound<'_, PyAny>,
) -> PyResult<TensorMap> {
    let numbers = (swizzle, element_bytes, element, padding);
    let tensor = Tensor::new(global_address, numbers, shape, strides)?;
    let [pixels, channels] = block;
    let (lower, upper, steps) = (axes::<i32>(lower)?, axes::<i32>(upper)?, axes::<u32>(steps)?);
    let window = TensorMapWindow { lower: &lower, upper: &upper, channels, pixels };
    let context = raised(py, context())?;
    let made = tilewright_cuda::TensorMap::encode_im2col(context, &tensor.source(&[], &steps), &window);
    raised(py, made).map(TensorMap)
}
