//! Converts Gluon's layouts to linear layouts. Returns their bases, or a table of their elements.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use tilewright_frontend::ObjectRef;
use tilewright_layout::{Input, Layout, StatedBuffer, StatedLayout};

use crate::values::objects::object;

/// Returns the expression that creates a layout object; `None` for other objects.
pub(crate) fn layout_text(number: ObjectRef) -> Option<String> {
    Python::attach(|py| {
        let text = object(py, number).ok()?.getattr_opt(intern!(py, "_text")).ok()??;
        text.extract().ok()
    })
}

/// Returns the linear layout of a tile or buffer of this shape. `text` is the Python expression
/// that creates the layout. An `NVMMASharedLayout` for another width than `element_bits` is an
/// error.
fn linear(text: &str, shape: &[u32], element_bits: u32) -> PyResult<Layout> {
    let found = match (text.parse::<StatedLayout>(), text.parse::<StatedBuffer>()) {
        (Ok(layout), _) => layout.linear(shape),
        (_, Ok(buffer)) => buffer.linear(shape, element_bits),
        // Each class has an error about its own parts.
        (Err(of_tile), Err(of_buffer)) => Err(if is_buffer(text) { of_buffer } else { of_tile }),
    };
    found.map_err(PyValueError::new_err)
}

/// Returns whether a text is the text form of a layout of shared memory.
fn is_buffer(text: &str) -> bool {
    text.split_once('(').is_some_and(|(class, _)| class.contains("Shared"))
}

/// The name of each hardware index, and the coordinates of each of its bits.
type Bases = Vec<(&'static str, Vec<Vec<u32>>)>;

/// Returns the bases of a layout. For each hardware index (`register`, `lane`, `warp`, `block` or
/// `offset`), these are the coordinates of the element that each of its bits contributes.
#[pyfunction]
#[pyo3(signature = (text, shape, element_bits = 32))]
#[expect(clippy::needless_pass_by_value, reason = "Python passes a list")]
pub(crate) fn gluon_layout_bases(text: &str, shape: Vec<u32>, element_bits: u32) -> PyResult<Bases> {
    let layout = linear(text, &shape, element_bits)?;
    let bases = |input: Input| {
        let coordinates = |column: &u32| layout.output().coordinates(*column).to_vec();
        (input.name(), layout.bases(input).iter().map(coordinates).collect())
    };
    Ok(Input::ALL.map(bases).to_vec())
}

/// Returns a table of the elements of a tile, each with the hardware indices that hold it.
#[pyfunction]
#[pyo3(signature = (text, shape, element_bits = 32))]
#[expect(clippy::needless_pass_by_value, reason = "Python passes a list")]
pub(crate) fn gluon_layout_table(text: &str, shape: Vec<u32>, element_bits: u32) -> PyResult<String> {
    Ok(linear(text, &shape, element_bits)?.table())
}

/// Returns a line for each hardware index, with its element.
#[pyfunction]
#[pyo3(signature = (text, shape, element_bits = 32))]
#[expect(clippy::needless_pass_by_value, reason = "Python passes a list")]
pub(crate) fn gluon_layout_places(text: &str, shape: Vec<u32>, element_bits: u32) -> PyResult<String> {
    Ok(linear(text, &shape, element_bits)?.places())
}
