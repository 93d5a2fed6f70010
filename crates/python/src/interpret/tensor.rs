//! Implements the methods of `tl.tensor`: operators, conversions to Python and subscripts.

use pyo3::basic::CompareOp;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyEllipsis, PySlice, PyTuple};
use smallvec::SmallVec;
use tilewright_frontend::{Constant, LanguageType};
use tilewright_ir::{Literal, Shape, Type};
use tilewright_runtime::interpret::{Form, Piece, Tile};

use super::convert::to_operand;
use super::objects::Tensor;
use super::session::{Operands, current, evaluate, symbol};
use crate::values::aggregate;
use crate::values::to_python::to_python;

fn binary<'py>(
    slf: &Bound<'py, Tensor>,
    other: &Bound<'py, PyAny>,
    operator: &'static str,
    is_reflected: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    // Python then tries the reflected operator of the other operand's class.
    if !other.is_instance_of::<Tensor>() && aggregate::is_instance(other)? {
        return Ok(py.NotImplemented().into_bound(py));
    }
    let (own, other) = (slf.get().operand()?, to_operand(other)?);
    let operands = if is_reflected { [other, own] } else { [own, other] };
    evaluate(py, operator, &Form::Binary(operator), &operands)
}

#[pymethods]
impl Tensor {
    fn __add__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "+", false)
    }

    fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "+", true)
    }

    fn __sub__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "-", false)
    }

    fn __rsub__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "-", true)
    }

    fn __mul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "*", false)
    }

    fn __rmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "*", true)
    }

    fn __truediv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "/", false)
    }

    fn __rtruediv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "/", true)
    }

    fn __floordiv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "//", false)
    }

    fn __rfloordiv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "//", true)
    }

    fn __mod__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "%", false)
    }

    fn __rmod__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "%", true)
    }

    fn __matmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "@", false)
    }

    fn __rmatmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "@", true)
    }

    fn __lshift__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "<<", false)
    }

    fn __rlshift__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "<<", true)
    }

    fn __rshift__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, ">>", false)
    }

    fn __rrshift__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, ">>", true)
    }

    fn __and__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "&", false)
    }

    fn __rand__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "&", true)
    }

    fn __or__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "|", false)
    }

    fn __ror__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "|", true)
    }

    fn __xor__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "^", false)
    }

    fn __rxor__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "^", true)
    }

    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        _modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "**", false)
    }

    fn __rpow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        _modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "**", true)
    }

    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        evaluate(slf.py(), "-", &Form::Unary("-"), &[slf.get().operand()?])
    }

    fn __pos__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        evaluate(slf.py(), "+", &Form::Unary("+"), &[slf.get().operand()?])
    }

    fn __invert__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        evaluate(slf.py(), "~", &Form::Unary("~"), &[slf.get().operand()?])
    }

    fn __not__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        evaluate(slf.py(), "not", &Form::Unary("not"), &[slf.get().operand()?])
    }

    fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        evaluate(slf.py(), "abs", &Form::Builtin("abs", 1), &[slf.get().operand()?])
    }

    fn __req__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "==", true)
    }

    fn __rne__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "!=", true)
    }

    fn __rlt__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "<", true)
    }

    fn __rle__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, "<=", true)
    }

    fn __rgt__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, ">", true)
    }

    fn __rge__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(slf, other, ">=", true)
    }

    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        operator: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        binary(
            slf,
            other,
            match operator {
                CompareOp::Lt => "<",
                CompareOp::Le => "<=",
                CompareOp::Eq => "==",
                CompareOp::Ne => "!=",
                CompareOp::Gt => ">",
                CompareOp::Ge => ">=",
            },
            false,
        )
    }

    /// Creates a tensor from a type, and from a handle or another tensor. Fails outside of an
    /// interpreted kernel.
    #[new]
    #[pyo3(signature = (*args, **kwargs))]
    fn construct(
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> PyResult<Self> {
        if current().is_none() {
            return Err(PyErr::from_value(crate::errors::outside_kernel(py, "tl.tensor").into_bound(py)));
        }
        let module = py.import(intern!(py, "tilewright.runtime._interpreter_builder"))?;
        let made = module.call_method(intern!(py, "constructed"), args, kwargs)?;
        Ok(Self::new(made.cast::<Self>()?.get().tile()?.clone()))
    }

    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        (slf.as_ptr().addr() >> 4).cast_signed()
    }

    /// The path under `triton.language`.
    #[classattr]
    fn _tilewright_path() -> &'static str {
        "tensor"
    }

    fn __bool__(slf: &Bound<'_, Self>) -> PyResult<bool> {
        if let Some(literal) = slf.get().number()? {
            if let Some(value) = literal.as_int() {
                return Ok(value != 0);
            }
            if let Some(value) = literal.as_float() {
                return Ok(value != 0.0);
            }
        }
        // The evaluation reports a value that is not a condition.
        evaluate(slf.py(), "bool", &Form::Truth, &[slf.get().operand()?])?.is_truthy()
    }

    fn __index__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(value) = slf.get().number()?.and_then(Literal::as_int) {
            return to_python(slf.py(), &Constant::Int(value));
        }
        Err(PyTypeError::new_err(format!("a {} is no scalar integer", slf.get().tile()?.ty)))
    }

    fn __int__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().item(slf.py())?.call_method0(intern!(slf.py(), "__int__"))
    }

    fn __float__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().item(slf.py())?.call_method0(intern!(slf.py(), "__float__"))
    }

    fn __iter__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let ty = &slf.get().tile()?.ty;
        Err(PyTypeError::new_err(format!("a tensor of type {ty} cannot be iterated over")))
    }

    fn __str__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        helper(slf, "text")
    }

    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        helper(slf, "representation")
    }

    fn __format__<'py>(slf: &Bound<'py, Self>, spec: &str) -> PyResult<Bound<'py, PyAny>> {
        if spec.is_empty() {
            return helper(slf, "text");
        }
        slf.get().item(slf.py())?.call_method1(intern!(slf.py(), "__format__"), (spec,))
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        subscript(slf, index)
    }

    /// Evaluates an attribute that is not a method, such as `x.T`.
    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        if name.starts_with("__") || current().is_none() {
            let message = format!("'tensor' object has no attribute '{name}'");
            return Err(pyo3::exceptions::PyAttributeError::new_err(message));
        }
        evaluate(slf.py(), name, &Form::Attribute(symbol(name)), &[slf.get().operand()?])
    }

    /// The type of an element.
    #[getter]
    fn dtype<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let tile = slf.get().tile()?;
        to_python(slf.py(), &language_type(tile, tile.ty.with_shape(Shape::scalar())))
    }

    /// The type, including the shape.
    #[getter(r#type)]
    fn ty<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let tile = slf.get().tile()?;
        to_python(slf.py(), &language_type(tile, tile.ty.clone()))
    }

    /// The extents; empty for a scalar.
    #[getter]
    fn shape<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(slf.py(), slf.get().tile()?.ty.shape.iter())
    }

    /// An object whose `data` is a numpy array of the elements.
    #[getter]
    fn handle<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        helper(slf, "handle")
    }

    /// The bytes of the elements, the name of their type, and the shape.
    fn _elements<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyBytes>, String, Bound<'py, PyTuple>)> {
        let tile = slf.get().tile()?;
        let bytes = PyBytes::new(slf.py(), &tile.held.to_bytes(&tile.ty));
        let element = match tile.ty.dtype() {
            Some(dtype) => dtype.name(),
            None => "pointer",
        };
        Ok((bytes, element.to_owned(), PyTuple::new(slf.py(), tile.ty.shape.iter())?))
    }

    /// True for an argument that is a compile-time number in a compiled kernel.
    #[getter]
    fn _is_constexpr(slf: &Bound<'_, Self>) -> bool {
        slf.get().constant.is_some()
    }

    /// The number that a compiled kernel knows at compile time, or `None`.
    #[getter]
    fn _known_number<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        slf.get().known_number(slf.py())
    }

    /// The parameter from which the pointers are derived, and the address of its first element.
    #[getter]
    fn _argument(slf: &Bound<'_, Self>) -> PyResult<Option<(String, u64)>> {
        let index = slf.get().tile()?.held.argument_index();
        let Some((index, session)) = index.zip(current()) else { return Ok(None) };
        Ok(session.launch.argument(index).map(|(name, address)| (name.to_string(), address)))
    }
}

/// Returns a type as an object of the language. A pointer to read-only memory is a const pointer.
fn language_type(tile: &Tile, ty: Type) -> Constant {
    match ty.element.pointee().filter(|_| ty.is_scalar()) {
        Some(pointee) if tile.read_only.is_some() => LanguageType::ConstPointer(pointee).into_constant(),
        _ => Constant::Type(ty),
    }
}

/// Calls a Python function of `_tensor_text` with the tensor.
fn helper<'py>(slf: &Bound<'py, Tensor>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    slf.py().import(intern!(slf.py(), "tilewright.runtime._tensor_text"))?.call_method1(name, (slf,))
}

fn subscript<'py>(slf: &Bound<'py, Tensor>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let mut operands: Operands = SmallVec::new();
    operands.push(slf.get().operand()?);
    let mut pieces = SmallVec::new();
    let tuple = index.cast::<PyTuple>().ok();
    match tuple {
        Some(tuple) => {
            for index in tuple.iter_borrowed() {
                pieces.push(piece(&index, &mut operands)?);
            }
        }
        // A scalar prints as an array of one number.
        None if slf.get().number()?.is_some() && index.extract::<i64>().is_ok_and(|index| index == 0) => {
            return slf.get().item(slf.py());
        }
        None => pieces.push(piece(index, &mut operands)?),
    }
    evaluate(slf.py(), "getitem", &Form::Subscript { pieces, is_tuple: tuple.is_some() }, &operands)
}

/// Returns whether an index is a `slice` of Python or of the language.
fn is_slice(index: &Bound<'_, PyAny>) -> PyResult<bool> {
    let path = index.getattr_opt(intern!(index.py(), "_tilewright_path"))?;
    let is_ours = path.is_some_and(|path| path.eq("slice").unwrap_or(false));
    Ok(is_ours || index.is_instance_of::<PySlice>())
}

fn piece(index: &Bound<'_, PyAny>, operands: &mut Operands) -> PyResult<Piece> {
    if index.is_none() {
        return Ok(Piece::NewAxis);
    }
    if index.is_instance_of::<PyEllipsis>() {
        return Ok(Piece::Ellipsis);
    }
    if !is_slice(index)? {
        operands.push(to_operand(index)?);
        return Ok(Piece::Value);
    }
    let mut is_there = [false; 3];
    for (name, is_there) in ["start", "stop", "step"].into_iter().zip(&mut is_there) {
        let part = index.getattr(name)?;
        if !part.is_none() {
            *is_there = true;
            operands.push(to_operand(&part)?);
        }
    }
    Ok(Piece::Slice(is_there))
}
