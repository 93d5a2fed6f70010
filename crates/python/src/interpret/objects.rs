//! Defines the Python objects that the body of an interpreted kernel uses.
//!
//! Their methods evaluate operations and are in `tensor`, `structure` and `language`.
#![expect(
    unsafe_code,
    reason = "Python may pass an object to another thread than the one that owns its tile"
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
pub(super) struct Transition {
    /// True if compile-time numbers become scalars of their natural type, as in an assignment.
    pub decays: bool,
    /// True if the value is then known only at run time, like a parameter or a merged value.
    pub makes_dynamic: bool,
}

/// A scalar or tile.
#[pyclass(frozen, name = "tensor", module = "triton.language.core")]
pub(crate) struct Tensor {
    tile: OnThread,
    /// The compile-time number that a compiled kernel would use in place of this tensor. An
    /// argument that is the int 1 is such a number.
    pub(super) constant: Option<Constant>,
}

/// A tile that only its own thread may access, because its reference count is not atomic.
struct OnThread {
    thread: ThreadId,
    tile: ManuallyDrop<Tile>,
}

// SAFETY: only the thread that created the tile reads or drops it.
unsafe impl Send for OnThread {}
// SAFETY: only the thread that created the tile reads or drops it.
unsafe impl Sync for OnThread {}

impl Drop for OnThread {
    fn drop(&mut self) {
        if self.thread == std::thread::current().id() {
            // SAFETY: no other code drops the tile.
            unsafe { ManuallyDrop::drop(&mut self.tile) };
        }
        // Another thread must not free the memory, so the memory leaks.
    }
}

impl Tensor {
    pub(crate) fn new(tile: Tile) -> Self {
        Self::compile_time(tile, None)
    }

    /// Creates a tensor. If there is a `constant`, a compiled kernel would use the constant instead
    /// of the tensor.
    pub(crate) fn compile_time(tile: Tile, constant: Option<Constant>) -> Self {
        let thread = std::thread::current().id();
        Self { tile: OnThread { thread, tile: ManuallyDrop::new(tile) }, constant }
    }

    /// Returns whether tensors have a method with this name.
    pub(crate) fn has_method(py: Python<'_>, name: &str) -> PyResult<bool> {
        let found = py.get_type::<Self>().getattr_opt(name)?;
        Ok(found.is_some_and(|found| found.is_instance_of::<LanguageCall>()))
    }

    /// Returns the tile, or an error on another thread.
    pub(crate) fn tile(&self) -> PyResult<&Tile> {
        if self.tile.thread == std::thread::current().id() {
            return Ok(&self.tile.tile);
        }
        Err(PyRuntimeError::new_err(
            "a tensor of an interpreted kernel is used on another thread than the one that runs the kernel",
        ))
    }

    /// Returns the tensor as an operand.
    pub(crate) fn operand(&self) -> PyResult<Operand<Tile>> {
        Ok(match &self.constant {
            None => Operand::Tensor(self.tile()?.clone()),
            Some(constant) => Operand::Constant(constant.clone()),
        })
    }

    /// Returns the tensor after a transition, or `None` if the transition does not change it.
    pub(super) fn after(&self, transition: Transition) -> PyResult<Option<Self>> {
        let tile = self.tile()?;
        let is_constant = self.constant.is_some();
        let is_lost = transition.makes_dynamic && tile.is_known && (transition.decays || !is_constant);
        let is_decayed = is_constant && transition.decays;
        if !is_lost && !is_decayed {
            return Ok(None);
        }
        Ok(Some(Self::new(Tile { is_known: tile.is_known && !is_lost, ..tile.clone() })))
    }

    /// Returns the number that a compiled kernel knows at compile time for this tensor, as a Python
    /// object; `None` if there is none.
    pub(super) fn known_number<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let constant = match &self.constant {
            Some(constant) => constant.clone(),
            None if self.tile()?.is_known => self.plain()?,
            None => Constant::None,
        };
        if constant == Constant::None { Ok(None) } else { to_python(py, &constant).map(Some) }
    }

    /// Returns the number of a scalar, or `None` for pointers and for tiles.
    pub(super) fn number(&self) -> PyResult<Option<Literal>> {
        let tile = self.tile()?;
        let dtype = tile.ty.dtype().filter(|_| tile.ty.is_scalar());
        Ok(dtype.zip(tile.held.uniform_bits()).map(|(dtype, bits)| Literal { dtype, bits }))
    }

    /// Returns the number of a scalar as a constant; [`Constant::None`] for pointers, tiles and
    /// 8-bit floats.
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

    /// Returns the number of a scalar as a Python object.
    pub(super) fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let constant = self.plain()?;
        if constant == Constant::None {
            let ty = &self.tile()?.ty;
            let what = if ty.is_scalar() { "a pointer or an 8-bit float" } else { "a tile" };
            return Err(PyTypeError::new_err(format!("{what} of type {ty} cannot become a Python number")));
        }
        to_python(py, &constant)
    }
}

/// A value of an interpreted kernel that has parts, such as a block pointer or a tensor descriptor.
/// The parts are Python objects.
#[pyclass(frozen, name = "tensor_descriptor", module = "triton.language.core")]
pub(crate) struct Structure {
    /// The run-time values, to which `form` refers by index.
    parts: Vec<Py<Tensor>>,
    /// The operand. An index into `parts` replaces each run-time value.
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

    /// Returns the structure after a transition, or `None` if the transition does not change it.
    pub(super) fn after(&self, py: Python<'_>, transition: Transition) -> PyResult<Option<Self>> {
        let mut operand = self.operand()?;
        let mut is_changed = false;
        if transition.decays
            && let Operand::Descriptor(descriptor) = &mut operand
        {
            let is_tensor = descriptor.form.kind == DescriptorKind::Tensor;
            // The last stride of a tensor descriptor is always the constant 1.
            let fixed = is_tensor.then_some(descriptor.parts().len().saturating_sub(1));
            let mut indices = 0..;
            **descriptor = descriptor.map(|part| match (part, indices.next()) {
                (Operand::Constant(Constant::Int(value)), index) if index != fixed => {
                    is_changed = true;
                    Operand::Tensor(Tile::constant(Literal::int(Dtype::I64, *value)))
                }
                _ => part.clone(),
            });
        }
        let changed = map_operand(&operand, &mut |tile: &Tile| {
            let is_lost = transition.makes_dynamic && tile.is_known;
            is_changed |= is_lost;
            Tile { is_known: tile.is_known && !is_lost, ..tile.clone() }
        });
        is_changed.then(|| Self::new(py, &changed)).transpose()
    }

    /// Returns the structure as an operand.
    pub(crate) fn operand(&self) -> PyResult<Operand<Tile>> {
        let tiles = self.parts.iter().map(|part| part.get().tile()).collect::<PyResult<Vec<_>>>()?;
        Ok(map_operand(&self.form, &mut |&index| tiles[index].clone()))
    }
}

/// A function of the language, the base of Python's `LanguageFunction`.
#[pyclass(subclass, dict, frozen, module = "tilewright._native")]
pub(crate) struct LanguageCall {
    pub(super) path: Arc<str>,
}

impl LanguageCall {
    /// Returns the function as an operand.
    pub(crate) fn operand(&self) -> Operand<Tile> {
        operand_of(HostValue::Language(Arc::clone(&self.path)))
    }
}

/// A bound method of a value.
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
