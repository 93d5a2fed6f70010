//! Implements `kernel[grid](...)`, which finds or compiles a variant and launches it.

use std::sync::Arc;

use pyo3::Borrowed;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyTuple};
use tilewright_base::Code;
use tilewright_runtime::{
    Annotation, ArgumentSource, Checks, Error, Grid, Handle, OptionId, Options, StreamRef, TraceRequest,
    Value,
};

use super::device::{self, stream_number};
use super::grid::{ask, extents};
use super::run::{run, run_with};
use super::{hooks, sanitize};
use crate::errors::to_exception;
use crate::interpret;
use crate::kernel::binding::KnownBinding;
use crate::kernel::compiled::CompiledKernel;
use crate::kernel::dependencies::{Dependencies, Freshness};
use crate::kernel::jit::{JitKernel, State, options, set_option, state, traced_state};
use crate::values::call::Call;
use crate::values::convert::{Converter, Kept, Values};

/// Launches a kernel, as `kernel[grid](*args, **kwargs)` does. With `is_warmup`, only compiles it.
///
/// Returns `None` if the kernel is interpreted, or if a hook of the program forbids the
/// compilation. Also returns `None` if an autotuner started the launch with a guess about its
/// arguments, and the guess is wrong or cannot be checked.
pub(crate) fn launch<'py>(
    kernel: &Bound<'py, JitKernel>,
    grid: Option<&Bound<'py, PyAny>>,
    call: &Call<'_, 'py>,
    is_warmup: bool,
) -> PyResult<Option<Py<CompiledKernel>>> {
    let py = kernel.py();
    let state = state(kernel)?;
    let pre_run_hooks = kernel.get().pre_run_hooks(py);
    let rest = state.variadic.filter(|first| *first < call.positional());
    if call.expected().is_some() && (pre_run_hooks.is_some() || state.is_interpreted || rest.is_some()) {
        // An autotuner guessed the dtypes of the arguments. Hooks and the interpreter must not run
        // before the dtypes are compared.
        return Ok(None);
    }
    call_all(py, pre_run_hooks, call)?;
    match rest {
        Some(first) => call.with_rest(py, first, |call| launch_bound(kernel, state, grid, call, is_warmup)),
        None => launch_bound(kernel, state, grid, call, is_warmup),
    }
}

/// Calls the functions that the program has registered for each launch of the kernel.
fn call_all(py: Python<'_>, hooks: Option<Py<PyTuple>>, call: &Call<'_, '_>) -> PyResult<()> {
    let Some(hooks) = hooks else { return Ok(()) };
    let (args, kwargs) = call.to_python(py)?;
    hooks.bind(py).iter().try_for_each(|hook| hook.call(&args, Some(&kwargs)).map(drop))
}

/// Continues [`launch`], for a call whose variadic arguments are one tuple.
#[inline]
fn launch_bound<'py>(
    kernel: &Bound<'py, JitKernel>,
    state: &State,
    grid: Option<&Bound<'py, PyAny>>,
    call: &Call<'_, 'py>,
    is_warmup: bool,
) -> PyResult<Option<Py<CompiledKernel>>> {
    let py = kernel.py();
    let binding = state.bind(py, call)?;
    let launch = Prepared { kernel, state, binding: &binding, call, is_warmup };
    if binding.sanitize.is_some()
        && let Some(checks) = launch.checks()?
    {
        launch.check_device()?;
        return sanitize::with_checks(py, checks, || launch.start(grid));
    }
    launch.start(grid)
}

/// Launches a kernel as [`launch`] does, but always on the CPU or in the simulator, and records a trace.
pub(crate) fn launch_traced<'py>(
    kernel: &Bound<'py, JitKernel>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
    request: TraceRequest<'_>,
) -> PyResult<Option<Py<CompiledKernel>>> {
    let py = kernel.py();
    let state = traced_state(kernel)?;
    call_all(py, kernel.get().pre_run_hooks(py), call)?;
    match state.variadic.filter(|first| *first < call.positional()) {
        Some(first) => {
            call.with_rest(py, first, |call| launch_traced_bound(kernel, state, grid, call, request))
        }
        None => launch_traced_bound(kernel, state, grid, call, request),
    }
}

/// Continues [`launch_traced`], for a call whose variadic arguments are one tuple.
fn launch_traced_bound<'py>(
    kernel: &Bound<'py, JitKernel>,
    state: &State,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
    request: TraceRequest<'_>,
) -> PyResult<Option<Py<CompiledKernel>>> {
    let py = kernel.py();
    let binding = state.bind(py, call)?;
    let launch = Prepared { kernel, state, binding: &binding, call, is_warmup: false };
    let start = || {
        let options = launch.options()?;
        let grid = launch.grid(grid)?;
        let mut values = Values::new();
        let Some((handle, kept)) = launch.prepare(&options, &mut values)? else { return Ok(None) };
        run_with(
            py,
            &handle,
            |handle, foreign, interrupt| handle.launch_traced(grid, &values, foreign, interrupt, request),
            |error| launch.blame_strides(error),
        )?;
        drop(kept);
        state.python_handle(kernel, handle).map(Some)
    };
    match launch.checks()? {
        Some(checks) => sanitize::with_checks(py, checks, start),
        None => start(),
    }
}

/// A launch whose arguments are bound.
struct Prepared<'a, 'py> {
    kernel: &'a Bound<'py, JitKernel>,
    state: &'a State,
    binding: &'a KnownBinding,
    call: &'a Call<'a, 'py>,
    is_warmup: bool,
}

/// The maximum number of attempts of a launch. An attempt fails if it compiled a variant, found
/// changed dependencies, or ran code of the program.
const MAX_ATTEMPTS: usize = 16;

impl<'py> Prepared<'_, 'py> {
    /// Runs the launch or, for a warm-up, only compiles the kernel.
    #[inline]
    fn start(&self, grid: Option<&Bound<'py, PyAny>>) -> PyResult<Option<Py<CompiledKernel>>> {
        let (py, state, kernel) = (self.kernel.py(), self.state, self.kernel);
        let options = self.options()?;
        // A grid function is code of the program, which may move the memory of tensors. So it runs
        // first.
        let grid = match grid {
            _ if self.is_warmup => None,
            Some(grid) => Some(self.grid(grid)?),
            None => return Err(to_exception(py, &state.kernel.signature().no_grid())),
        };
        if state.is_interpreted {
            if let Some(grid) = grid {
                if hooks::is_capturing() {
                    hooks::note_launch(kernel, grid, self.call.to_python(py)?)?;
                    return Ok(None);
                }
                interpret::launch(kernel, state, self.objects(), grid, &options)?;
            }
            return Ok(None);
        }
        let mut values = Values::new();
        let Some((mut handle, mut kept)) = self.prepare(&options, &mut values)? else { return Ok(None) };
        let Some(grid) = grid else { return state.python_handle(kernel, handle).map(Some) };
        if hooks::before_launches() {
            let found = state.python_handle(kernel, Arc::clone(&handle))?;
            if hooks::is_capturing() {
                hooks::note_launch(kernel, grid, self.call.to_python(py)?)?;
                return Ok(Some(found));
            }
            if hooks::load(found.bind(py))? {
                // The hook was code of the program, and may have moved the arguments.
                drop(kept);
                let Some(again) = self.prepare(&options, &mut values)? else { return Ok(None) };
                (handle, kept) = again;
            }
        }
        if !hooks::around_launches() {
            self.run(&handle, self.stream(&handle)?, grid, &values)?;
            drop(kept);
            let found = state.python_handle(kernel, handle)?;
            found.get().note_launch();
            return Ok(Some(found));
        }
        let stream = self.stream(&handle)?;
        let found = state.python_handle(kernel, handle)?;
        drop(kept);
        hooks::around(found.bind(py), grid, stream, &self.arguments()?, || {
            // The hook was code of the program, and may have moved the arguments.
            let Some((handle, kept)) = self.prepare(&options, &mut values)? else { return Ok(None) };
            self.run(&handle, stream, grid, &values)?;
            drop(kept);
            let found = state.python_handle(kernel, handle)?;
            found.get().note_launch();
            Ok(Some(found))
        })
    }

    #[inline]
    fn run(
        &self,
        handle: &Handle,
        stream: StreamRef<'static>,
        grid: Grid,
        values: &[Value<'static>],
    ) -> PyResult<()> {
        run(self.kernel.py(), handle, stream, grid, values, |error| self.blame_strides(error))
    }

    /// Returns the checks that the option `sanitize` requests, if any.
    #[cold]
    fn checks(&self) -> PyResult<Option<Checks>> {
        let Some(number) = self.binding.sanitize.filter(|_| !self.is_warmup) else { return Ok(None) };
        let checks = sanitize::checks_of(&self.call.named(number))?;
        Ok(Some(checks).filter(|checks| !checks.is_empty()))
    }

    /// Returns an error if the launch cannot be sanitized: it is interpreted, or on a GPU.
    #[cold]
    fn check_device(&self) -> PyResult<()> {
        let py = self.kernel.py();
        if self.state.is_interpreted {
            return Err(sanitize::not_here(
                py,
                "the kernel is interpreted",
                "launch it without interpret mode (TRITON_INTERPRET=1)",
            ));
        }
        let mut values = Values::new();
        let prepared = self.prepare(&self.options()?, &mut values)?;
        prepared.map_or(Ok(()), |(handle, _)| sanitize::check_device(py, handle.device()))
    }

    /// Returns the argument for a parameter.
    #[inline]
    fn argument(&self, index: usize) -> Option<Borrowed<'_, 'py, PyAny>> {
        match self.binding.parameters[index] {
            ArgumentSource::Default => self.state.default(self.kernel.py(), index),
            source => self.call.argument(source),
        }
    }

    /// Returns the argument for each parameter.
    #[cold]
    fn objects(&self) -> Vec<Bound<'py, PyAny>> {
        let none = || self.kernel.py().None().into_bound(self.kernel.py());
        let object = |index| self.argument(index).map_or_else(none, Borrowed::to_owned);
        (0..self.binding.parameters.len()).map(object).collect()
    }

    /// Returns the compiled variant for the arguments, and writes their values to `values`.
    ///
    /// No code of the program runs between the conversion of the values and the return. So the
    /// memory of tensors stays at the addresses in the values. Returns `None` if a hook forbids the
    /// compilation, or if an autotuner expected other types or another device.
    #[inline]
    fn prepare(&self, options: &Options, values: &mut Values) -> PyResult<Option<(Arc<Handle>, Kept)>> {
        let py = self.kernel.py();
        let kernel = &self.state.kernel;
        let signature = kernel.signature();
        let mut checked: Option<Arc<Handle>> = None;
        for _ in 0..MAX_ATTEMPTS {
            let converter = Converter::new(py, signature, self.is_warmup);
            let kept = converter.all(values, signature.parameters.len(), |index| self.argument(index))?;
            if !self.is_as_expected(values) {
                return Ok(None);
            }
            let found = kernel.lookup(values, options).map_err(|error| to_exception(py, &error))?;
            let Some(handle) = found else {
                match self.compile(values, options)? {
                    Some((handle, true)) => checked = Some(handle),
                    // The code already existed. The next attempt checks whether its dependencies
                    // have changed.
                    Some((_, false)) => {}
                    None => return Ok(None),
                }
                continue;
            };
            if checked.as_ref().is_some_and(|checked| Arc::ptr_eq(checked, &handle)) {
                return Ok(Some((handle, kept)));
            }
            match handle.attachment::<Dependencies>().map(|reads| reads.freshness(py)) {
                None | Some(Freshness::Same) => return Ok(Some((handle, kept))),
                Some(Freshness::SameByCode) => checked = Some(handle),
                Some(Freshness::Changed) => self.state.forget(&handle),
            }
        }
        let message =
            format!("the arguments or globals of kernel '{}' change while it is launched", signature.name);
        Err(PyRuntimeError::new_err(message))
    }

    /// Returns whether the values have the dtypes and the device that an autotuner expected.
    /// Returns true without an autotuner.
    #[inline]
    fn is_as_expected(&self, values: &Values) -> bool {
        let Some(expected) = self.call.expected() else { return true };
        let numbers = self.binding.parameters.iter().map(|&source| self.call.number(source));
        expected.check(numbers.zip(values).filter_map(|(number, value)| Some((number?, value))))
    }

    /// Returns the compiled variant, and whether this call compiled it. Returns `None` if a hook
    /// forbids the compilation.
    #[cold]
    fn compile(&self, values: &Values, options: &Options) -> PyResult<Option<(Arc<Handle>, bool)>> {
        let py = self.kernel.py();
        let call_hook = |name: &str| -> PyResult<bool> {
            hooks::compilation(name, self.kernel, &self.meta()?, self.is_warmup)
        };
        if hooks::around_compilations() && call_hook("before_compile")? {
            return Ok(None);
        }
        let explain = |error| self.blame_list(error);
        let compiled = self.state.compile(py, values, options, explain)?;
        if hooks::around_compilations() {
            call_hook("after_compile")?;
        }
        Ok(Some(compiled))
    }

    /// Adds an explanation to errors about accesses out of bounds: the elements of a tensor share
    /// memory, so it has fewer than its shape suggests.
    #[cold]
    fn blame_strides(&self, mut error: Error) -> Error {
        let Error::Diagnostics(failure) = &mut error else { return error };
        let parameters = &self.state.kernel.signature().parameters;
        for diagnostic in failure.diagnostics.iter_mut().filter(|found| found.code == Code::OutOfBounds) {
            let is_meant = |index: &usize| {
                diagnostic.message.ends_with(&format!("out of bounds of `{}`", parameters[*index].name))
            };
            let meant = (0..parameters.len()).find(is_meant);
            let argument = meant.and_then(|index| Some((index, self.argument(index)?.to_owned())));
            if let Some((index, found)) =
                argument.and_then(|(index, argument)| Some((index, shared_elements(&argument)?)))
            {
                let name = &parameters[index].name;
                diagnostic.notes.push(format!("`{name}` is {found}"));
                diagnostic.hint = Some(format!(
                    "pass `{name}.contiguous()`, or its strides as well, and multiply by them in the kernel"
                ));
            }
        }
        error
    }

    /// Replaces an error about a tuple by an error about an argument that is a list of numbers. The
    /// program probably meant a tensor.
    #[cold]
    fn blame_list(&self, error: Error) -> Error {
        let Error::Diagnostics(failure) = &error else { return error };
        let is_tuple = |text: &String| text.contains("found a tuple");
        let is_about_tuple =
            failure.diagnostics.iter().any(|found| found.notes.iter().chain([&found.message]).any(is_tuple));
        if !is_about_tuple {
            return error;
        }
        for index in 0..self.binding.parameters.len() {
            let argument = self.argument(index);
            let Some(list) = argument.as_ref().and_then(|object| object.cast::<PyList>().ok()) else {
                continue;
            };
            // A scalar of numpy, and a tensor of one number, have a dtype and no axes.
            let is_scalar = |item: &Bound<'_, PyAny>| {
                let axes = item.getattr("ndim").and_then(|axes| axes.extract::<usize>());
                axes.is_ok_and(|axes| axes == 0) && item.hasattr("dtype").unwrap_or(false)
            };
            let is_number = |item: &Bound<'_, PyAny>| {
                item.is_instance_of::<PyInt>() || item.is_instance_of::<PyFloat>() || is_scalar(item)
            };
            if !list.is_empty() && list.iter().all(|item| is_number(&item)) {
                let parameter = &self.state.kernel.signature().parameters[index];
                let is_constexpr = parameter.annotation == Annotation::Constexpr;
                let used = if is_constexpr { "number" } else { "tensor" };
                let found = format!("a list of {} numbers, and is used as a {used}", list.len());
                let hint = if is_constexpr {
                    "pass one number; a list is a tuple to a kernel, whose items are `sizes[0]`, `sizes[1]`, …"
                } else {
                    "make memory of it: `torch.tensor([…])`, `numpy.array([…])`; a list is a tuple to a kernel"
                };
                return self.state.kernel.signature().invalid_argument(index, "", &found, hint);
            }
        }
        error
    }

    /// Returns the options of the launch, including those that the call sets.
    #[inline]
    fn options(&self) -> PyResult<Options> {
        let mut options = options(self.kernel);
        if self.binding.options.is_empty() {
            return Ok(options);
        }
        let values = || self.binding.options.iter().map(|&(number, _)| self.call.named(number));
        if let Some(known) = self.binding.known_options(&options, values().map(Borrowed::as_ptr)) {
            return Ok(known);
        }
        let before = options.clone();
        for &(number, option) in &self.binding.options {
            set_option(&mut options, option, &self.call.named(number))?;
        }
        let values = values().map(|value| Borrowed::to_owned(value).unbind());
        self.binding.keep_options(before, values, self.kernel.py(), &options);
        Ok(options)
    }

    /// Returns the stream of the launch.
    #[inline]
    fn stream(&self, handle: &Handle) -> PyResult<StreamRef<'static>> {
        device::stream(self.kernel.py(), handle, || {
            let is_stream = |(_, option): &&(usize, OptionId)| *option == OptionId::Stream;
            let stated = self.binding.options.iter().find(is_stream);
            stated.map_or(Ok(None), |&(number, _)| stream_number(&self.call.named(number)))
        })
    }

    /// Returns the grid. Warns of a grid that is legal but seldom intended.
    #[inline]
    fn grid(&self, object: &Bound<'py, PyAny>) -> PyResult<Grid> {
        let found = match extents(object)? {
            Some(found) => found,
            None => ask(object, self.meta()?)?,
        };
        found.warn(self.kernel.py(), self.state)
    }

    /// Returns the arguments by name, defaults included, and the options that the call sets.
    #[cold]
    fn meta(&self) -> PyResult<Bound<'py, PyDict>> {
        let py = self.kernel.py();
        let meta = PyDict::new(py);
        for &(number, _) in &self.binding.options {
            if let Some(keywords) = self.call.keywords() {
                meta.set_item(keywords.get_borrowed_item(number)?, self.call.named(number))?;
            }
        }
        meta.update(self.arguments()?.as_mapping())?;
        Ok(meta)
    }

    /// Returns the arguments by name, defaults included.
    #[cold]
    fn arguments(&self) -> PyResult<Bound<'py, PyDict>> {
        let py = self.kernel.py();
        let arguments = PyDict::new(py);
        for index in 0..self.binding.parameters.len() {
            if let Some(value) = self.argument(index) {
                arguments.set_item(self.state.name(py, index), value)?;
            }
        }
        Ok(arguments)
    }
}

/// Describes a tensor whose elements share memory, such as a gradient of `sum()`, by its shape and
/// strides.
#[cold]
fn shared_elements(tensor: &Bound<'_, PyAny>) -> Option<String> {
    let strides: Vec<i64> = tensor.call_method0("stride").ok()?.extract().ok()?;
    let shape: Vec<i64> = tensor.getattr("shape").ok()?.extract().ok()?;
    let is_shared = shape.iter().zip(&strides).any(|(extent, stride)| *extent > 1 && *stride == 0);
    is_shared.then(|| format!("a tensor of shape {shape:?} with strides {strides:?}: elements share memory"))
}
