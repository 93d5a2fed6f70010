//! The objects that the body of an interpreted kernel holds. Their methods evaluate operations, and are in
//! `tensor`, `structure` and `language`.
#![expect(
    unsafe_code,
    reason = "a value that stays on its thread is in an object that Python may pass to another one"
)]

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::thread::ThreadId;

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use tilewright_frontend::{Constant, DescriptorKind, HostValue, Operand, map_operand, operand_of};
use tilewright_ir::{Dtype, Literal};
use tilewright_runtime::interpret::Tile;

use crate::values::to_python::to_python;

/// The effect of an assignment, of control flow or of a call on a value.
#[derive(Clone, Copy)]
pub(super) struct Passage {
    /// Whether compile-time numbers become scalars of their natural type, as an assignment makes
    /// them.
    pub decays: bool,
    /// Whether the code has no constant for it afterwards: a parameter, or a result of control flow.
    pub forgets: bool,
}

/// A scalar or tile.
#[pyclass(frozen, name = "tensor", module = "triton.language.core")]
pub(crate) struct Tensor {
    tile: OnThread,
    /// The compile-time number that it is when compiled: an argument that is the int 1.
    pub(super) constant: Option<Constant>,
}

/// A tile, which only the thread that made it may look at: its memory is counted without atomic operations.
struct OnThread {
    thread: ThreadId,
    tile: ManuallyDrop<Tile>,
}

// SAFETY: the tile is read and dropped by its own thread alone.
unsafe impl Send for OnThread {}
// SAFETY: as above.
unsafe impl Sync for OnThread {}

impl Drop for OnThread {
    fn drop(&mut self) {
        if self.thread == std::thread::current().id() {
            // SAFETY: it is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.tile) };
        }
        // Another thread cannot free the memory, so it stays.
    }
}

impl Tensor {
    pub(crate) fn new(tile: Tile) -> Self {
        Self::compile_time(tile, None)
    }

    /// A scalar that is a compile-time number when compiled.
    pub(crate) fn compile_time(tile: Tile, constant: Option<Constant>) -> Self {
        let thread = std::thread::current().id();
        Self { tile: OnThread { thread, tile: ManuallyDrop::new(tile) }, constant }
    }

    /// Returns whether tensors have a method of this name.
    pub(crate) fn has_method(py: Python<'_>, name: &str) -> PyResult<bool> {
        let found = py.get_type::<Self>().getattr_opt(name)?;
        Ok(found.is_some_and(|found| found.is_instance_of::<LanguageCall>()))
    }

    /// The tile.
    pub(crate) fn tile(&self) -> PyResult<&Tile> {
        if self.tile.thread == std::thread::current().id() {
            return Ok(&self.tile.tile);
        }
        Err(PyRuntimeError::new_err(
            "a tensor of an interpreted kernel is used on another thread than the one that runs the kernel",
        ))
    }

    /// It as an operand.
    pub(crate) fn given(&self) -> PyResult<Operand<Tile>> {
        Ok(match &self.constant {
            None => Operand::Tensor(self.tile()?.clone()),
            Some(constant) => Operand::Constant(constant.clone()),
        })
    }

    /// It after a passage, if that is another value.
    pub(super) fn carried(&self, passage: Passage) -> PyResult<Option<Self>> {
        let tile = self.tile()?;
        let is_constant = self.constant.is_some();
        let is_lost = passage.forgets && tile.is_known && (passage.decays || !is_constant);
        let is_decayed = is_constant && passage.decays;
        if !is_lost && !is_decayed {
            return Ok(None);
        }
        Ok(Some(Self::new(Tile { is_known: tile.is_known && !is_lost, ..tile.clone() })))
    }

    /// The number that it is where a compile-time value is required, as Python has it.
    pub(super) fn known_number<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let constant = match &self.constant {
            Some(constant) => constant.clone(),
            None if self.tile()?.is_known => self.plain()?,
            None => Constant::None,
        };
        if constant == Constant::None { Ok(None) } else { to_python(py, &constant).map(Some) }
    }

    /// The number that a scalar is.
    pub(super) fn number(&self) -> PyResult<Option<Literal>> {
        let tile = self.tile()?;
        let dtype = tile.ty.dtype().filter(|_| tile.ty.is_scalar());
        Ok(dtype.zip(tile.held.uniform_bits()).map(|(dtype, bits)| Literal { dtype, bits }))
    }

    /// The number that a scalar is, as Python has it; `None` if Python has no such number.
    fn plain(&self) -> PyResult<Constant> {
        Ok(match self.number()? {
            Some(literal) => match (literal.as_int(), literal.as_float()) {
                (Some(value), _) if literal.dtype.is_bool() => Constant::Bool(value != 0),
                (Some(value), _) => Constant::Int(value),
                (_, Some(value)) => Constant::Float(value),
                (None, None) => Constant::None,
            },
            None => Constant::None,
        })
    }

    /// The number that a scalar is, as an object.
    pub(super) fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let constant = self.plain()?;
        if constant == Constant::None {
            let ty = &self.tile()?.ty;
            let what = if ty.is_scalar() { "a pointer or an 8-bit float" } else { "a tile" };
            return Err(PyTypeError::new_err(format!("{what} of type {ty} is no single number of Python's")));
        }
        to_python(py, &constant)
    }
}

/// A block pointer or a tensor descriptor of an interpreted kernel. Its parts are Python objects.
#[pyclass(frozen, name = "tensor_descriptor", module = "triton.language.core")]
pub(crate) struct Structure {
    /// The parts, by place in `form`: run-time values.
    parts: Vec<Py<Tensor>>,
    /// The form, with the places of the parts.
    pub(super) form: Operand<usize>,
}

impl Structure {
    pub(crate) fn new(py: Python<'_>, operand: &Operand<Tile>) -> PyResult<Self> {
        let mut parts = Vec::new();
        let mut failed = None;
        let form = map_operand(operand, &mut |tile| {
            match Py::new(py, Tensor::new(tile.clone())) {
                Ok(part) => parts.push(part),
                Err(error) => failed = Some(error),
            }
            parts.len().saturating_sub(1)
        });
        failed.map_or(Ok(Self { parts, form }), Err)
    }

    /// It after a passage, if that is another value.
    pub(super) fn carried(&self, py: Python<'_>, passage: Passage) -> PyResult<Option<Self>> {
        let mut given = self.given()?;
        let mut is_changed = false;
        if passage.decays
            && let Operand::Descriptor(descriptor) = &mut given
        {
            let is_tensor = descriptor.form.kind == DescriptorKind::Tensor;
            // The last stride of a tensor descriptor is 1 for all that it is passed to.
            let fixed = is_tensor.then_some(descriptor.parts().len().saturating_sub(1));
            let mut places = 0..;
            **descriptor = descriptor.map(|part| match (part, places.next()) {
                (Operand::Constant(Constant::Int(value)), place) if place != fixed => {
                    is_changed = true;
                    Operand::Tensor(Tile::constant(Literal::int(Dtype::I64, *value)))
                }
                _ => part.clone(),
            });
        }
        let forgotten = map_operand(&given, &mut |tile: &Tile| {
            let is_lost = passage.forgets && tile.is_known;
            is_changed |= is_lost;
            Tile { is_known: tile.is_known && !is_lost, ..tile.clone() }
        });
        is_changed.then(|| Self::new(py, &forgotten)).transpose()
    }

    /// It as an operand.
    pub(crate) fn given(&self) -> PyResult<Operand<Tile>> {
        let tiles = self.parts.iter().map(|part| part.get().tile()).collect::<PyResult<Vec<_>>>()?;
        Ok(map_operand(&self.form, &mut |&place| tiles[place].clone()))
    }
}

/// A function of the language, the base of Python's `LanguageFunction`.
#[pyclass(subclass, dict, frozen, module = "tilewright._native")]
pub(crate) struct LanguageCall {
    pub(super) path: Arc<str>,
}

impl LanguageCall {
    /// It as an operand.
    pub(crate) fn operand(&self) -> Operand<Tile> {
        operand_of(HostValue::Language(Arc::clone(&self.path)))
    }
}

/// A method of a value, to be called.
#[pyclass(frozen, module = "tilewright._native")]
pub(crate) struct Method {
    pub(super) receiver: Py<PyAny>,
    pub(super) name: &'static str,
}

impl Method {
    pub(crate) fn new(receiver: Py<PyAny>, name: &'static str) -> Self {
        Self { receiver, name }
    }
}
