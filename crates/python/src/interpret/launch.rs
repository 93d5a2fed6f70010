//! Launches kernels in interpret mode: Python runs the body for each program in turn.

use std::rc::Rc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use tilewright_frontend::{Constant, Operand};
use tilewright_runtime::interpret::{Launch, Tile};
use tilewright_runtime::{Annotation, Device, Grid, Options, ParameterKind, Value};

use super::convert::{natural, to_python};
use super::objects::Tensor;
use super::session::Session;
use crate::errors::raised;
use crate::kernel::jit::{JitKernel, State};
use crate::values::classify::Classes;
use crate::values::convert::{Converter, Kept, Values};

/// Runs the body for every program of the grid. The index x varies fastest.
pub(crate) fn launch<'py>(
    kernel: &Bound<'py, JitKernel>,
    state: &State,
    mut objects: Vec<Bound<'py, PyAny>>,
    grid: Grid,
    options: &Options,
) -> PyResult<()> {
    let py = kernel.py();
    let helpers = py.import(intern!(py, "tilewright.runtime._interpreted"))?;
    let body = body(kernel)?;
    let mut values = Values::new();
    let mut kept = convert(py, state, &objects, &mut values)?;
    let mut written_back = None;
    if values.iter().any(is_on_gpu) {
        let copied = helpers.call_method1(intern!(py, "on_host"), (PyList::new(py, &objects)?,))?;
        objects = copied.getattr(intern!(py, "objects"))?.extract()?;
        written_back = Some(copied);
        kept = convert(py, state, &objects, &mut values)?;
    }
    let constant: Vec<usize> = helpers.call_method1(intern!(py, "read_only"), (kernel,))?.extract()?;
    let (launch, operands) = raised(py, Launch::new(&state.kernel, grid, (&values, &constant), options))?;
    let (around, executor): (Option<Py<PyAny>>, Option<Bound<'py, PyAny>>) =
        helpers.call_method1(intern!(py, "replacements"), (kernel,))?.extract()?;
    let session = Rc::new(Session::new(&body, launch, around));
    let parameters = parameters(py, state, &objects, &operands)?;
    let result = {
        let _running = session.begin();
        match executor {
            Some(executor) => {
                let (positional, named) = &parameters;
                executor
                    .call1((grid.extents(), &body, PyList::new(py, &objects)?, positional, named))
                    .map(drop)
            }
            None => programs(&session, &body, &parameters),
        }
    };
    drop(kept);
    if let Some(copied) = written_back {
        copied.call_method0(intern!(py, "write_back"))?;
    }
    result
}

/// Returns the function that Python runs for a kernel or for a function that a kernel calls.
pub(crate) fn body<'py>(kernel: &Bound<'py, JitKernel>) -> PyResult<Bound<'py, PyAny>> {
    let py = kernel.py();
    let helpers = py.import(intern!(py, "tilewright.runtime._interpreted"))?;
    helpers.call_method1(intern!(py, "body"), (kernel,))
}

fn convert(
    py: Python<'_>,
    state: &State,
    objects: &[Bound<'_, PyAny>],
    values: &mut Values,
) -> PyResult<Kept> {
    let signature = state.kernel.signature();
    let converter = Converter::new(py, signature, false);
    converter.all(values, signature.parameters.len(), |index| objects.get(index).map(Bound::as_borrowed))
}

/// Returns whether an argument is in the memory of a GPU.
fn is_on_gpu(value: &Value<'_>) -> bool {
    match value {
        Value::Pointer(pointer) => pointer.device != Device::Cpu,
        Value::Tuple(items) => items.iter().any(is_on_gpu),
        _ => false,
    }
}

/// The positional and the named arguments of the body.
type Parameters<'py> = (Bound<'py, PyTuple>, Bound<'py, PyDict>);

fn parameters<'py>(
    py: Python<'py>,
    state: &State,
    objects: &[Bound<'py, PyAny>],
    operands: &[Operand<Tile>],
) -> PyResult<Parameters<'py>> {
    let mut positional = Vec::with_capacity(objects.len());
    let named = PyDict::new(py);
    let declared = &state.kernel.signature().parameters;
    for (index, (object, operand)) in objects.iter().zip(operands).enumerate() {
        let is_constexpr = declared[index].annotation == Annotation::Constexpr;
        let value = parameter(object, operand, is_constexpr)?;
        match declared[index].kind {
            ParameterKind::KeywordOnly => named.set_item(state.name(py, index), value)?,
            ParameterKind::Any | ParameterKind::PositionalOnly => positional.push(value),
            ParameterKind::Variadic => {
                for item in value.try_iter()? {
                    positional.push(item?);
                }
            }
        }
    }
    Ok((PyTuple::new(py, positional)?, named))
}

/// Returns the value of a parameter in the body.
fn parameter<'py>(
    object: &Bound<'py, PyAny>,
    operand: &Operand<Tile>,
    is_constexpr: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let is_wrapped = object.is_instance(Classes::get(py)?.constexpr.bind(py))?;
    match operand {
        // The compiler specializes for the int 1, so the body gets a scalar with a known value.
        Operand::Constant(constant @ Constant::Int(_)) if !is_constexpr && !is_wrapped => {
            match natural(constant) {
                Some(tile) => {
                    let tensor = Tensor::compile_time(tile, Some(constant.clone()));
                    Ok(Bound::new(py, tensor)?.into_any())
                }
                None => Ok(object.clone()),
            }
        }
        Operand::Tensor(_) | Operand::Tuple(_) | Operand::Descriptor(_) => to_python(py, operand),
        // A compile-time value remains the object that the caller passed.
        _ if is_wrapped => object.getattr(intern!(py, "value")),
        _ => Ok(object.clone()),
    }
}

fn programs(session: &Session, body: &Bound<'_, PyAny>, parameters: &Parameters<'_>) -> PyResult<()> {
    let (positional, named) = parameters;
    let named = (!named.is_empty()).then_some(named);
    let [width, height, depth] = session.launch.grid();
    for z in 0..depth {
        for y in 0..height {
            for x in 0..width {
                session.launch.set_id([x, y, z]);
                body.call(positional, named).map_err(|error| note_program(session, body, error))?;
            }
        }
    }
    Ok(())
}

/// Adds the index of the program to an exception. A diagnostic already names the program.
fn note_program(session: &Session, body: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = body.py();
    let [x, y, z] = session.launch.id();
    let value = error.value(py);
    let is_diagnostic = value.hasattr(intern!(py, "diagnostics")).unwrap_or(false);
    if !is_diagnostic {
        let note = format!("in program ({x}, {y}, {z}) of the interpreted kernel '{}'", session.launch.name);
        // Python 3.10 has no `add_note`.
        let _ = value.call_method1(intern!(py, "add_note"), (note,));
    }
    error
}
