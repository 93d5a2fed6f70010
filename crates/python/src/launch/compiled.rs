//! Implements `handle[grid](...)`, which launches a compiled variant.

use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tilewright_frontend::{Argument, HostValue};
use tilewright_runtime::{ArgumentSource, Checks, Handle, OptionId, Value};

use super::device::{self, stream_number};
use super::grid::{ask, extents};
use super::run::run;
use super::{hooks, sanitize};
use crate::errors::to_exception;
use crate::kernel::compiled::CompiledKernel;
use crate::kernel::jit::{State, state};
use crate::values::call::Call;
use crate::values::convert::{Converter, Kept, Values};
use crate::values::to_python::to_python;

/// Launches a compiled variant: `handle[grid](*args, **kwargs)`.
pub(crate) fn launch(
    compiled: &Bound<'_, CompiledKernel>,
    grid: &Bound<'_, PyAny>,
    call: &Call<'_, '_>,
) -> PyResult<()> {
    let py = compiled.py();
    let CompiledKernel { handle, function, .. } = compiled.get();
    let state = state(function.bind(py).cast()?)?;
    let call = BoundCall::new(py, handle, state, call)?;
    // A grid function is code of the program, which may move the memory of tensors. So it runs
    // first.
    let grid = match extents(grid)? {
        Some(grid) => grid,
        None => ask(grid, call.meta()?)?,
    };
    let grid = grid.warn(py, state)?;
    let stream = device::stream(py, handle, || call.stream())?;
    let checks = match call.keywords.iter().position(|keyword| keyword == OptionId::Sanitize.info().name) {
        Some(number) => sanitize::checks_of(&call.call.named(number))?,
        None => Checks::NONE,
    };
    if !checks.is_empty() {
        sanitize::check_device(py, handle.device())?;
    }
    if hooks::before_launches() {
        if hooks::is_capturing() {
            return hooks::note_launch(compiled, grid, call.call.to_python(py)?);
        }
        hooks::load(compiled)?;
    }
    compiled.get().note_launch();
    let start = || {
        let (values, _kept) = call.values()?;
        if checks.is_empty() {
            return run(py, handle, stream, grid, &values, |error| error);
        }
        sanitize::with_checks(py, checks, || run(py, handle, stream, grid, &values, |error| error))
    };
    if hooks::around_launches() {
        hooks::around(compiled, grid, stream, &call.arguments()?, start)
    } else {
        start()
    }
}

/// The arguments of a handle's launch.
struct BoundCall<'a, 'py> {
    py: Python<'py>,
    handle: &'a Handle,
    state: &'a State,
    call: &'a Call<'a, 'py>,
    keywords: Vec<String>,
    bound: tilewright_runtime::Bound,
}

impl<'a, 'py> BoundCall<'a, 'py> {
    fn new(py: Python<'py>, handle: &'a Handle, state: &'a State, call: &'a Call<'a, 'py>) -> PyResult<Self> {
        let keywords = call.names()?;
        let names: Vec<&str> = keywords.iter().map(String::as_str).collect();
        let bound = handle.bind(call.positional(), &names).map_err(|error| to_exception(py, &error))?;
        Ok(Self { py, handle, state, call, keywords, bound })
    }

    fn argument(&self, index: usize) -> Option<Borrowed<'_, 'py, PyAny>> {
        match self.bound[index]? {
            ArgumentSource::Default => self.state.default(self.py, index),
            source => self.call.argument(source),
        }
    }

    /// Returns the stream that the call names.
    fn stream(&self) -> PyResult<Option<u64>> {
        let number = self.keywords.iter().position(|keyword| keyword == "stream");
        number.map_or(Ok(None), |number| stream_number(&self.call.named(number)))
    }

    /// Returns the values of the arguments, for which the code is correct.
    fn values(&self) -> PyResult<(Vec<Value<'static>>, Kept)> {
        let converter = Converter::new(self.py, self.handle.signature(), false);
        let mut values = Values::new();
        let kept = converter.all(&mut values, self.bound.len(), |index| self.argument(index))?;
        let given = values.into_iter().zip(&self.bound).map(|(value, bound)| bound.map(|_| value));
        let values = self.handle.complete_bound(given).map_err(|error| to_exception(self.py, &error))?;
        Ok((values, kept))
    }

    /// Returns the dict that a grid function gets.
    fn meta(&self) -> PyResult<Bound<'py, PyDict>> {
        let (_, meta) = self.call.to_python(self.py)?;
        meta.update(self.arguments()?.as_mapping())?;
        Ok(meta)
    }

    /// Returns the arguments by name, including those that are constants of the code.
    fn arguments(&self) -> PyResult<Bound<'py, PyDict>> {
        let arguments = PyDict::new(self.py);
        for (index, argument) in self.handle.arguments().iter().enumerate() {
            let name = self.state.name(self.py, index);
            if let Some(object) = self.argument(index) {
                arguments.set_item(name, object)?;
            } else if let Argument::Constexpr(HostValue::Constant(constant)) = argument {
                arguments.set_item(name, to_python(self.py, constant)?)?;
            }
        }
        Ok(arguments)
    }
}
