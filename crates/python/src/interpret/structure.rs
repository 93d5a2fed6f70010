//! Implements the methods of block pointers and tensor descriptors.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tilewright_frontend::{DescriptorKind, Operand, semantic};
use tilewright_runtime::interpret::Form;

use super::objects::{Method, Structure, Tensor};
use super::session::{current, evaluate, symbol};
use crate::errors::outside_kernel;

#[pymethods]
impl Structure {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn construct(
        py: Python<'_>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Err(PyErr::from_value(outside_kernel(py, "tl.tensor_descriptor").into_bound(py)))
    }

    /// The path below `triton.language`.
    #[classattr]
    fn _tilewright_path() -> &'static str {
        "tensor_descriptor"
    }

    /// Returns a method, or a part such as `desc.shape`.
    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        if name.starts_with("__") || current().is_none() {
            let message = format!("'tensor_descriptor' object has no attribute '{name}'");
            return Err(pyo3::exceptions::PyAttributeError::new_err(message));
        }
        let name = symbol(name);
        let is_method = match &slf.get().form {
            Operand::Descriptor(descriptor) if descriptor.form.kind == DescriptorKind::BlockPointer => {
                Tensor::has_method(slf.py(), name)?
            }
            // tidy: wildcard because the class has all methods of descriptors.
            _ => semantic::language(&format!("tensor_descriptor.{name}")).is_some(),
        };
        if is_method {
            return Ok(Bound::new(slf.py(), Method::new(slf.clone().into_any().unbind(), name))?.into_any());
        }
        evaluate(slf.py(), name, &Form::Attribute(name), &[slf.get().operand()?])
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        match &slf.get().form {
            Operand::Descriptor(descriptor) => {
                format!("<{} with blocks of shape {}>", descriptor.describe(), descriptor.form.block_shape)
            }
            // tidy: wildcard because the other operands have no description.
            _ => "<a value of a kernel>".into(),
        }
    }
}
