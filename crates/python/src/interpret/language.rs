//! Implements calls such as `tl.load(p)` and `x.to(tl.float32)` in an interpreted kernel.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use smallvec::SmallVec;
use tilewright_frontend::Operand;
use tilewright_runtime::interpret::Form;

use super::convert::to_operand;
use super::objects::{LanguageCall, Method, Structure, Tensor};
use super::session::{Operands, current, evaluate, symbol};
use crate::errors::outside_kernel;

#[pymethods]
impl LanguageCall {
    #[new]
    #[pyo3(signature = (path, *_rest))]
    fn new(path: &str, _rest: &Bound<'_, PyTuple>) -> Self {
        Self { path: Arc::from(path) }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, path) = (slf.py(), &slf.get().path);
        if current().is_none() {
            let error = outside_kernel(py, &format!("tl.{path}"));
            return Err(PyErr::from_value(error.into_bound(py)));
        }
        let mut operands: Operands = SmallVec::new();
        operands.push(Operand::Language(Arc::clone(path)));
        let (positional, keywords) = pass(args, kwargs, &mut operands)?;
        evaluate(py, path, &Form::Call { positional, keywords }, &operands)
    }

    /// Returns the function as a method of a tensor or a descriptor. For any other instance,
    /// returns the function itself.
    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        instance: &Bound<'py, PyAny>,
        _owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !instance.is_instance_of::<Tensor>() && !instance.is_instance_of::<Structure>() {
            return Ok(slf.clone().into_any());
        }
        let name = symbol(slf.get().path.rsplit('.').next().unwrap_or_default());
        Ok(Bound::new(slf.py(), Method::new(instance.clone().unbind(), name))?.into_any())
    }
}

#[pymethods]
impl Method {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Method { receiver, name } = slf.get();
        let mut operands: Operands = SmallVec::new();
        operands.push(to_operand(receiver.bind(slf.py()))?);
        let (positional, keywords) = pass(args, kwargs, &mut operands)?;
        evaluate(slf.py(), name, &Form::Method { name, positional, keywords }, &operands)
    }

    #[getter(__name__)]
    fn name(&self) -> &'static str {
        self.name
    }
}

/// Adds the arguments of a call to its operands. Returns the number of positional ones, and the
/// keywords.
fn pass(
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
    operands: &mut Operands,
) -> PyResult<(usize, SmallVec<[&'static str; 4]>)> {
    for object in args.iter_borrowed() {
        operands.push(to_operand(&object)?);
    }
    let mut keywords = SmallVec::new();
    if let Some(kwargs) = kwargs {
        for (name, object) in kwargs.iter() {
            let name = name.cast::<PyString>().map_err(PyErr::from)?;
            keywords.push(symbol(&name.to_cow()?));
            operands.push(to_operand(&object)?);
        }
    }
    Ok((args.len(), keywords))
}
