//! Computes the grid of a launch from an object or a function.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple};
use smallvec::SmallVec;
use tilewright_base::Code;
use tilewright_runtime::Grid;

use crate::errors::to_exception;
use crate::kernel::jit::State;

/// A grid, and whether it was passed as a number.
pub(crate) struct CheckedGrid {
    grid: Grid,
    is_number: bool,
}

impl CheckedGrid {
    /// Returns the grid. Warns once for a kernel of an empty grid, and of a grid that is a number:
    /// both are seldom intended.
    #[inline]
    pub(crate) fn warn(self, py: Python<'_>, state: &State) -> PyResult<Grid> {
        if self.is_number || self.grid.is_empty() {
            self.warn_of(py, state)?;
        }
        Ok(self.grid)
    }

    #[cold]
    fn warn_of(&self, py: Python<'_>, state: &State) -> PyResult<()> {
        let signature = state.kernel.signature();
        if self.is_number {
            state.warn_once(py, Code::GridNotATuple, || signature.grid_not_a_tuple(self.grid))?;
        }
        if self.grid.is_empty() {
            state.warn_once(py, Code::EmptyGrid, || signature.empty_grid(self.grid))?;
        }
        Ok(())
    }
}

/// Returns the grid that an object describes, or `None` if the object is a grid function.
#[inline]
pub(crate) fn extents(object: &Bound<'_, PyAny>) -> PyResult<Option<CheckedGrid>> {
    let py = object.py();
    let mut extents: SmallVec<[i128; 4]> = SmallVec::new();
    let mut is_number = false;
    if let Ok(tuple) = object.cast::<PyTuple>() {
        for extent in tuple.iter_borrowed() {
            extents.push(self::extent(&extent, object)?);
        }
    } else if let Ok(list) = object.cast::<PyList>() {
        for extent in list {
            extents.push(self::extent(&extent, object)?);
        }
    } else if object.is_callable() && !object.hasattr(intern!(py, "__index__"))? {
        return Ok(None);
    } else {
        extents.push(extent(object, object)?);
        is_number = true;
    }
    let grid = Grid::new(&extents).map_err(|error| to_exception(py, &error))?;
    Ok(Some(CheckedGrid { grid, is_number }))
}

#[inline]
fn extent(object: &Bound<'_, PyAny>, grid: &Bound<'_, PyAny>) -> PyResult<i128> {
    if object.is_exact_instance_of::<PyInt>()
        && let Ok(extent) = object.extract::<i64>()
    {
        return Ok(extent.into());
    }
    unusual_extent(object, grid)
}

/// Returns the extent for any object with `__index__`: an int of numpy, a constexpr, a tensor with
/// one int.
#[cold]
fn unusual_extent(object: &Bound<'_, PyAny>, grid: &Bound<'_, PyAny>) -> PyResult<i128> {
    let py = object.py();
    let index = object.getattr_opt(intern!(py, "__index__"))?;
    if let Some(Ok(index)) = index.map(|index| index.call0()) {
        // A number that does not fit into 128 bits is too large for any grid.
        return Ok(index.extract().unwrap_or(i128::MAX));
    }
    let item = kind_of(object)?;
    let what = if object.is(grid) { item } else { format!("{} with {item} in it", kind_of(grid)?) };
    Err(to_exception(py, &Grid::not_a_grid(&what, &short_text(grid)?)))
}

fn kind_of(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let name: String = object.get_type().name()?.extract()?;
    Ok(if name == "NoneType" { "None".into() } else { format!("a {name}") })
}

/// Returns the first line of the `repr` of an object, at most 60 characters and `…`.
fn short_text(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = object.repr()?.to_string();
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(60).collect();
    Ok(if short == text { short } else { format!("{short}…") })
}

/// Calls a grid function with the arguments of the launch. Returns the resulting grid.
pub(crate) fn ask<'py>(function: &Bound<'py, PyAny>, meta: Bound<'py, PyDict>) -> PyResult<CheckedGrid> {
    let py = function.py();
    let given = function.call1((meta,))?;
    let refuse = |what: &str, found: &str| to_exception(py, &Grid::not_a_grid(what, found));
    if given.is_none() {
        return Err(refuse("a function that returns None", "None"));
    }
    match extents(&given)? {
        Some(found) => Ok(found),
        None => Err(refuse("a function that returns a function", &short_text(&given)?)),
    }
}
