//! The path of a launch: arguments, compiled form, grid, run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyTuple};
use pyo3::{Borrowed, intern};
use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic};
use tilewright_frontend::{Constant, HostValue};
use tilewright_runtime::{
    Annotation, ArgumentSource, Attachment, Checks, Device, Error, Grid, Handle, Interrupt, OptionId,
    Options, Region, StreamRef, TraceRequest, Value, are_padded_reads_allowed, take_padded_reads,
};

use crate::convert::{Converter, Kept, Values};
use crate::device::{self, stream_number};
use crate::errors::{to_exception, warn};
use crate::handle::CompiledKernel;
use crate::hooks;
use crate::host::{Caught, Findings, PyHost};
use crate::kernel::{JitKernel, KnownBinding, State, state, traced_state};
use crate::launcher::Call;
use crate::live::{self, Live};
use crate::reads::{Freshness, ReadSet};
use crate::sanitize;

/// `kernel[grid](*args, **kwargs)`, or with `is_warmup` its compilation alone. Returns nothing if a hook of the program has
/// said that nothing is to be compiled, and if the arguments are not what an autotuner took them to be.
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
        // These are for a launch that takes place.
        return Ok(None);
    }
    if let Some(pre_run_hooks) = pre_run_hooks {
        let (args, kwargs) = call.to_python(py)?;
        for hook in pre_run_hooks.bind(py) {
            hook.call(&args, Some(&kwargs))?;
        }
    }
    match rest {
        Some(first) => call.with_rest(py, first, |call| launch_bound(kernel, state, grid, call, is_warmup)),
        None => launch_bound(kernel, state, grid, call, is_warmup),
    }
}

/// The rest of [`launch`], of a call with one argument by position for each parameter that takes one.
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

/// As [`launch`], on the CPU and recorded.
pub(crate) fn launch_traced<'py>(
    kernel: &Bound<'py, JitKernel>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
    request: TraceRequest<'_>,
) -> PyResult<Option<Py<CompiledKernel>>> {
    let py = kernel.py();
    let state = traced_state(kernel)?;
    if let Some(pre_run_hooks) = kernel.get().pre_run_hooks(py) {
        let (args, kwargs) = call.to_python(py)?;
        for hook in pre_run_hooks.bind(py) {
            hook.call(&args, Some(&kwargs))?;
        }
    }
    match state.variadic.filter(|first| *first < call.positional()) {
        Some(first) => {
            call.with_rest(py, first, |call| launch_traced_bound(kernel, state, grid, call, request))
        }
        None => launch_traced_bound(kernel, state, grid, call, request),
    }
}

/// The rest of [`launch_traced`], of a call with one argument by position for each parameter that takes one.
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

/// How often a launch looks again at what its own preparation may have changed.
const MOST_ATTEMPTS: usize = 16;

impl<'py> Prepared<'_, 'py> {
    /// Runs it, or compiles it.
    #[inline]
    fn start(&self, grid: Option<&Bound<'py, PyAny>>) -> PyResult<Option<Py<CompiledKernel>>> {
        let (py, state, kernel) = (self.kernel.py(), self.state, self.kernel);
        let options = self.options()?;
        // A grid function is code of the program, so it runs before anything is read of the memory of tensors.
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
                crate::interpret::launch(kernel, state, self.objects(), grid, &options)?;
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
                // The hook was code of the program.
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
            // The hook was code of the program too.
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

    /// The checks that the option `sanitize` asks for.
    #[cold]
    fn checks(&self) -> PyResult<Option<Checks>> {
        let Some(number) = self.binding.sanitize.filter(|_| !self.is_warmup) else { return Ok(None) };
        let checks = sanitize::checks_of(&self.call.named(number))?;
        Ok(Some(checks).filter(|checks| !checks.is_empty()))
    }

    /// Refuses to sanitize what cannot be.
    #[cold]
    fn check_device(&self) -> PyResult<()> {
        let py = self.kernel.py();
        if self.state.is_interpreted {
            return Err(sanitize::not_here(
                py,
                "the kernel is interpreted",
                "launch it without interpret mode",
            ));
        }
        let mut values = Values::new();
        let prepared = self.prepare(&self.options()?, &mut values)?;
        prepared.map_or(Ok(()), |(handle, _)| sanitize::check_device(py, handle.device()))
    }

    /// The argument for a parameter.
    #[inline]
    fn argument(&self, index: usize) -> Option<Borrowed<'_, 'py, PyAny>> {
        match self.binding.parameters[index] {
            ArgumentSource::Default => self.state.default(self.kernel.py(), index),
            source => self.call.argument(source),
        }
    }

    /// The argument of each parameter.
    #[cold]
    fn objects(&self) -> Vec<Bound<'py, PyAny>> {
        let none = || self.kernel.py().None().into_bound(self.kernel.py());
        let object = |index| self.argument(index).map_or_else(none, Borrowed::to_owned);
        (0..self.binding.parameters.len()).map(object).collect()
    }

    /// The compiled form for the arguments, and their values. Nothing of the program runs between the values being read and
    /// the return, so that memory stays where they say it is; nothing if a hook does not want it compiled, or the values are
    /// not what an autotuner took them to be.
    #[inline]
    fn prepare(&self, options: &Options, values: &mut Values) -> PyResult<Option<(Arc<Handle>, Kept)>> {
        let py = self.kernel.py();
        let kernel = &self.state.kernel;
        let signature = kernel.signature();
        let mut checked: Option<Arc<Handle>> = None;
        for _ in 0..MOST_ATTEMPTS {
            let converter = Converter::new(py, signature, self.is_warmup);
            let kept = converter.all(values, signature.parameters.len(), |index| self.argument(index))?;
            if !self.is_as_expected(values) {
                return Ok(None);
            }
            let found = kernel.lookup(values, options).map_err(|error| to_exception(py, &error))?;
            let Some(handle) = found else {
                match self.compile(values, options)? {
                    Some((handle, true)) => checked = Some(handle),
                    // It is looked at as what was there.
                    Some((_, false)) => {}
                    None => return Ok(None),
                }
                continue;
            };
            if checked.as_ref().is_some_and(|checked| Arc::ptr_eq(checked, &handle)) {
                return Ok(Some((handle, kept)));
            }
            match handle.attachment::<ReadSet>().map(|reads| reads.freshness(py)) {
                None | Some(Freshness::Same) => return Ok(Some((handle, kept))),
                Some(Freshness::SameByCode) => checked = Some(handle),
                Some(Freshness::Changed) => self.state.forget(&handle),
            }
        }
        let message =
            format!("the arguments or globals of kernel '{}' change while it is launched", signature.name);
        Err(PyRuntimeError::new_err(message))
    }

    /// Whether the values are what an autotuner took them to be.
    #[inline]
    fn is_as_expected(&self, values: &Values) -> bool {
        let Some(expected) = self.call.expected() else { return true };
        let numbers = self.binding.parameters.iter().map(|&source| self.call.number(source));
        expected.check(numbers.zip(values).filter_map(|(number, value)| Some((number?, value))))
    }

    /// The compiled form, and whether it was made here and now; nothing if a hook does not want it compiled.
    #[cold]
    fn compile(&self, values: &Values, options: &Options) -> PyResult<Option<(Arc<Handle>, bool)>> {
        let py = self.kernel.py();
        let call_hook = |name: &str| -> PyResult<bool> {
            hooks::compilation(name, self.kernel, &self.meta()?, self.is_warmup)
        };
        if hooks::around_compilations() && call_hook("before_compile")? {
            return Ok(None);
        }
        let mut host = PyHost::default();
        let findings = host.findings();
        let lock = || findings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_new = false;
        let mut attach = || {
            is_new = true;
            let mut findings = lock();
            let reads = std::mem::take(&mut findings.read);
            // Not kept if it was made while something was meant to end the program.
            findings.raised.is_none().then(|| Arc::new(ReadSet::new(reads)) as Attachment)
        };
        let kernel = &self.state.kernel;
        let compiled = py.detach(|| kernel.specialize_with(values, options, &mut host, &mut attach));
        let Findings { raised, caught, .. } = std::mem::take(&mut *lock());
        if let Some(raised) = raised {
            return Err(raised);
        }
        // The user may have pressed Ctrl-C meanwhile.
        py.check_signals()?;
        let handle = compiled.map_err(|error| failure(py, self.blame_list(error), caught))?;
        self.state.warn_of_options(py, &handle)?;
        if hooks::around_compilations() {
            call_hook("after_compile")?;
        }
        Ok(Some((handle, is_new)))
    }

    /// Says that a tensor out of whose bounds a kernel went has fewer elements in memory than its shape says.
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

    /// A list of numbers is a tuple to a kernel. Where the kernel uses it as a tensor or a number, the launch is at fault.
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
            let is_number =
                |item: &Bound<'_, PyAny>| item.is_instance_of::<PyInt>() || item.is_instance_of::<PyFloat>();
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

    /// The options that the call sets.
    #[inline]
    fn options(&self) -> PyResult<Options> {
        let mut options = self.kernel.get().options();
        if self.binding.options.is_empty() {
            return Ok(options);
        }
        let values = || self.binding.options.iter().map(|&(number, _)| self.call.named(number));
        if let Some(known) = self.binding.known_options(&options, values().map(Borrowed::as_ptr)) {
            return Ok(known);
        }
        let before = options.clone();
        for &(number, option) in &self.binding.options {
            let value = &self.call.named(number);
            let constant = match crate::objects::constant(value)? {
                HostValue::Constant(constant) => constant,
                _ => Constant::Object(crate::objects::object_ref(value)?),
            };
            options.set(option, &constant).map_err(|error| to_exception(self.kernel.py(), &error))?;
        }
        let values = values().map(|value| Borrowed::to_owned(value).unbind());
        self.binding.keep_options(before, values, self.kernel.py(), &options);
        Ok(options)
    }

    /// The stream of the launch.
    #[inline]
    fn stream(&self, handle: &Handle) -> PyResult<StreamRef<'static>> {
        device::stream(self.kernel.py(), handle, || {
            let is_stream = |(_, option): &&(usize, OptionId)| *option == OptionId::Stream;
            let stated = self.binding.options.iter().find(is_stream);
            stated.map_or(Ok(None), |&(number, _)| stream_number(&self.call.named(number)))
        })
    }

    /// The grid. One that is legal and seldom meant is warned of.
    #[inline]
    fn grid(&self, object: &Bound<'py, PyAny>) -> PyResult<Grid> {
        let found = match extents(object)? {
            Some(found) => found,
            None => ask(object, self.meta()?)?,
        };
        found.warn(self.kernel.py(), self.state)
    }

    /// The arguments by name, defaults included, and the options that are set.
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

    /// The arguments by name, defaults included.
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

/// What is said of an access out of bounds of a tensor whose elements share memory, as those of a gradient of `sum()` do: its shape
/// and strides. None for anything else.
#[cold]
fn shared_elements(tensor: &Bound<'_, PyAny>) -> Option<String> {
    let strides: Vec<i64> = tensor.call_method0("stride").ok()?.extract().ok()?;
    let shape: Vec<i64> = tensor.getattr("shape").ok()?.extract().ok()?;
    let is_shared = shape.iter().zip(&strides).any(|(extent, stride)| *extent > 1 && *stride == 0);
    is_shared.then(|| format!("a tensor of shape {shape:?} with strides {strides:?}: elements share memory"))
}

/// The exception for a compilation that failed, with what the program's own code raised meanwhile.
#[cold]
pub(crate) fn failure(py: Python<'_>, mut error: Error, caught: Vec<Caught>) -> PyErr {
    let mut cause = None;
    if let Error::Diagnostics(failure) = &mut error {
        for Caught { name, text, error } in caught {
            let is_about = |diagnostic: &&mut Diagnostic| match &name {
                Some(name) => diagnostic.message.contains(&format!("'{name}'")),
                None => diagnostic.code == Code::ConstexprError,
            };
            let Some(diagnostic) = failure.diagnostics.iter_mut().find(is_about) else { continue };
            if name.is_some() {
                diagnostic.notes.push(text);
            }
            cause.get_or_insert(error);
        }
    }
    let exception = to_exception(py, &error);
    if cause.is_some() {
        exception.set_cause(py, cause);
    }
    exception
}

/// Runs a compiled kernel, without the GIL; Ctrl-C stops it. An error is explained further.
pub(crate) fn run(
    py: Python<'_>,
    handle: &Handle,
    stream: StreamRef<'static>,
    grid: Grid,
    values: &[Value<'static>],
    explain: impl FnOnce(Error) -> Error,
) -> PyResult<()> {
    run_with(
        py,
        handle,
        |handle, foreign, interrupt| handle.launch_on(stream, grid, values, foreign, interrupt),
        explain,
    )
}

/// Runs a compiled kernel by a function of the handle, the memory behind pointers that it makes, and what stops it.
#[inline]
fn run_with(
    py: Python<'_>,
    handle: &Handle,
    start: impl FnOnce(&Handle, &[Region<'_>], Interrupt<'_>) -> Result<(), Error> + Send,
    explain: impl FnOnce(Error) -> Error,
) -> PyResult<()> {
    let signal = SignalCheck::default();
    let is_in_main_memory = !matches!(handle.device(), Device::Cuda(_));
    let live =
        if handle.makes_pointers() && is_in_main_memory { live::tensors(py)? } else { Live::default() };
    let result = py.detach(|| start(handle, &live.regions, Interrupt::Poll(&|| signal.poll())));
    drop(live);
    if let Some(raised) = signal.raised() {
        return Err(raised);
    }
    result.map_err(|error| to_exception(py, &explain(error)))?;
    if are_padded_reads_allowed() {
        take_padded_reads().iter().try_for_each(|read| warn(py, read))?;
    }
    Ok(())
}

/// Whether a signal handler of Python has raised an exception while a kernel ran.
#[derive(Default)]
pub(crate) struct SignalCheck {
    last: Mutex<Option<Instant>>,
    raised: Mutex<Option<PyErr>>,
}

impl SignalCheck {
    /// Taking the GIL may mean to wait for another thread, so it is not done at each call.
    const INTERVAL: Duration = Duration::from_millis(50);

    pub(crate) fn poll(&self) -> bool {
        let now = Instant::now();
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| now - last < Self::INTERVAL) {
                return false;
            }
            *last = Some(now);
        }
        Python::attach(|py| {
            let Err(error) = py.check_signals() else { return false };
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            true
        })
    }

    /// What a handler has raised, which is forgotten.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn raised(self) -> Option<PyErr> {
        self.raised.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A grid as it was given.
pub(crate) struct Found {
    grid: Grid,
    is_number: bool,
}

impl Found {
    /// The grid. One that is legal and seldom meant is warned of, once for a kernel.
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
        if self.is_number && state.is_first_warning(Code::GridNotATuple) {
            warn(py, &signature.grid_not_a_tuple(self.grid))?;
        }
        if self.grid.is_empty() && state.is_first_warning(Code::EmptyGrid) {
            warn(py, &signature.empty_grid(self.grid))?;
        }
        Ok(())
    }
}

/// The grid that an object is; `None` if it is a function that has to be asked.
#[inline]
pub(crate) fn extents(object: &Bound<'_, PyAny>) -> PyResult<Option<Found>> {
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
    Ok(Some(Found { grid, is_number }))
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

/// Anything with `__index__` counts: numpy's ints, constexprs, tensors with one int.
#[cold]
fn unusual_extent(object: &Bound<'_, PyAny>, grid: &Bound<'_, PyAny>) -> PyResult<i128> {
    let py = object.py();
    let index = object.getattr_opt(intern!(py, "__index__"))?;
    if let Some(Ok(index)) = index.map(|index| index.call0()) {
        // A number that does not fit is too large by any means.
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

/// What Python writes for an object, as far as it fits a line.
fn short_text(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = object.repr()?.to_string();
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(60).collect();
    Ok(if short == text { short } else { format!("{short}…") })
}

/// The grid that a function returns.
pub(crate) fn ask<'py>(function: &Bound<'py, PyAny>, meta: Bound<'py, PyDict>) -> PyResult<Found> {
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
