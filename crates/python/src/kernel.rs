//! `JitKernel`, the base of Python's `JITFunction`.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString, PyTuple};
use pyo3::{Borrowed, intern};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tilewright_base::{Code, SourceFile};
use tilewright_frontend::{FunctionRef, FunctionSource};
use tilewright_runtime::{
    Annotation, Binding, Device, Handle, Kernel, Knobs, OptionId, Options, Parameter, ParameterKind,
    Signature, Value,
};

use crate::device::reload_knobs;
use crate::errors::{to_exception, warn};
use crate::handle::CompiledKernel;
use crate::launch::launch;
use crate::launcher::{Call, launcher};
use crate::objects::register_function;
use crate::reads::ReadSet;

/// A `@jit` function: the part of it that launches need.
#[pyclass(subclass, dict, weakref, frozen, module = "tilewright._native")]
#[derive(Default)]
pub(crate) struct JitKernel {
    definition: OnceLock<Definition>,
    state: OnceLock<State>,
    /// What launches that are traced need: forms for the CPU, whatever device is chosen.
    traced: OnceLock<State>,
    pre_run_hooks: Mutex<Option<Py<PyTuple>>>,
    /// False in the zeros that an object is before it is made: Python makes its `__dict__` first, and may collect garbage then.
    is_made: bool,
}

/// What the decorator knows.
struct Definition {
    function: FunctionRef,
    /// Test suites rewrite it.
    source: RwLock<FunctionSource>,
    parameters: Vec<Parameter>,
    debug: bool,
}

/// What the first launch adds.
pub(crate) struct State {
    pub(crate) kernel: Kernel,
    /// Whether Python runs the body.
    pub(crate) is_interpreted: bool,
    /// The defaults of the parameters as Python has them, for the dict that a grid function gets.
    defaults: Vec<Option<Py<PyAny>>>,
    names: Vec<Py<PyString>>,
    /// The parameter that takes all further arguments by position, as a tuple.
    pub(crate) variadic: Option<usize>,
    /// The forms of calls that were met, first those that are set.
    bindings: [OnceLock<KnownCall>; MOST_KNOWN_CALLS],
    handles: Mutex<FxHashMap<usize, Py<CompiledKernel>>>,
    /// Which warnings were given, a bit each.
    warned: AtomicU8,
    /// The options that were warned of.
    warned_options: Mutex<Vec<&'static str>>,
}

/// How the arguments of a call of one form are bound.
struct KnownCall {
    positional: usize,
    keywords: Option<Py<PyTuple>>,
    binding: Arc<KnownBinding>,
}

/// A binding, and the options that the latest call with it has set.
#[derive(Debug)]
pub(crate) struct KnownBinding {
    binding: Binding,
    options: Mutex<Option<KnownOptions>>,
    /// The number of the keyword `sanitize`, if that is an option of the call.
    pub(crate) sanitize: Option<usize>,
}

/// The options of a launch.
#[derive(Debug)]
struct KnownOptions {
    /// The objects that they were set to, none of which can change.
    values: SmallVec<[Py<PyAny>; 4]>,
    /// What was in force where nothing was set.
    before: Options,
    options: Options,
}

impl std::ops::Deref for KnownBinding {
    type Target = Binding;

    fn deref(&self) -> &Binding {
        &self.binding
    }
}

impl KnownBinding {
    /// The options that these objects set, if the latest call has set the same ones.
    #[inline]
    pub(crate) fn known_options(
        &self,
        before: &Options,
        mut values: impl ExactSizeIterator<Item = *mut pyo3::ffi::PyObject>,
    ) -> Option<Options> {
        let known = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_ref().filter(|known| known.values.len() == values.len())?;
        let are_same = known.values.iter().all(|known| Some(known.as_ptr()) == values.next());
        (are_same && known.before == *before).then(|| known.options.clone())
    }

    /// Keeps the options that these objects set, unless one of them can change.
    pub(crate) fn keep_options(
        &self,
        before: Options,
        values: impl Iterator<Item = Py<PyAny>>,
        py: Python<'_>,
        options: &Options,
    ) {
        let values: SmallVec<[_; 4]> = values.collect();
        let cannot_change = |value: &Py<PyAny>| {
            let value = value.bind(py);
            value.is_exact_instance_of::<PyInt>() || value.is_exact_instance_of::<PyBool>() || value.is_none()
        };
        if values.iter().all(cannot_change) {
            let known = KnownOptions { values, before, options: options.clone() };
            *self.options.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        }
    }
}

impl KnownCall {
    /// Whether a call is of this form. Keywords are the same objects at each execution of a call.
    #[inline]
    fn is(&self, py: Python<'_>, call: &Call<'_, '_>) -> bool {
        if self.positional != call.positional() {
            return false;
        }
        let (Some(known), Some(keywords)) = (&self.keywords, call.keywords()) else {
            return self.keywords.is_none() && call.keywords().is_none();
        };
        let known = known.bind_borrowed(py);
        let has_same_items = || {
            let mut pairs = known.iter_borrowed().zip(keywords.iter_borrowed());
            known.len() == keywords.len() && pairs.all(|(known, keyword)| known.is(keyword))
        };
        known.is(keywords) || has_same_items()
    }
}

/// The most forms of a call that are kept for a kernel.
const MOST_KNOWN_CALLS: usize = 32;

type DefinedParameter = (String, bool, String, bool, bool, u8);

#[pymethods]
impl JitKernel {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { is_made: true, ..Self::default() }
    }

    /// Says what the function is; Python's `JITFunction.__init__` calls it. Each parameter is its name, whether it is a
    /// constexpr, its annotation, whether it is in `do_not_specialize` and `do_not_specialize_on_alignment`, and its kind as
    /// `inspect` numbers them.
    #[pyo3(signature = (*, name, file, text, first_line, removed_columns, noinline, debug, params))]
    #[expect(clippy::too_many_arguments, reason = "they are passed by keyword")]
    fn _define(
        slf: &Bound<'_, Self>,
        name: String,
        file: String,
        text: String,
        first_line: u32,
        removed_columns: u32,
        noinline: bool,
        debug: bool,
        params: Vec<DefinedParameter>,
    ) -> PyResult<()> {
        let parameters =
            params.into_iter().map(|(name, is_constexpr, annotation, unspecialized, unaligned, kind)| {
                let annotation =
                    if is_constexpr { Annotation::Constexpr } else { Annotation::parse(&annotation) };
                let kind = match kind {
                    0 => ParameterKind::PositionalOnly,
                    2 => ParameterKind::Variadic,
                    3 => ParameterKind::KeywordOnly,
                    _ => ParameterKind::Any,
                };
                Parameter {
                    kind,
                    specialize: !unspecialized,
                    specialize_alignment: !unaligned,
                    ..Parameter::new(name, annotation)
                }
            });
        let file = SourceFile { name: file, text, first_line, removed_columns };
        let definition = Definition {
            function: register_function(slf)?,
            source: RwLock::new(FunctionSource { name, file: Arc::new(file), offset: 0, noinline }),
            parameters: parameters.collect(),
            debug,
        };
        slf.get()
            .definition
            .set(definition)
            .map_err(|_| PyRuntimeError::new_err("the function is defined already"))
    }

    /// Whether `_define` was called.
    fn _is_defined(&self) -> bool {
        self.definition.get().is_some()
    }

    /// Gives the function another text or place. What was compiled is forgotten; who calls the function and was compiled
    /// before keeps the old one.
    #[pyo3(signature = (*, name, file, text, first_line, removed_columns))]
    fn _replace_source(
        &self,
        name: String,
        file: String,
        text: String,
        first_line: u32,
        removed_columns: u32,
    ) {
        if let Some(definition) = self.definition.get() {
            let mut source = definition.source.write().unwrap_or_else(PoisonError::into_inner);
            let file = SourceFile { name: file, text, first_line, removed_columns };
            *source = FunctionSource { name, file: Arc::new(file), ..source.clone() };
        }
        self.clear_cache();
    }

    /// Sets the functions that are called with the arguments before each launch.
    fn _set_pre_run_hooks(&self, hooks: Bound<'_, PyTuple>) {
        let hooks = (!hooks.is_empty()).then(|| hooks.unbind());
        *self.pre_run_hooks.lock().unwrap_or_else(PoisonError::into_inner) = hooks;
    }

    /// `kernel[grid]`: what launches with this grid.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, grid: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        launcher(slf, grid)
    }

    /// A kernel cannot be called without a grid; a helper can, by a body that Python runs.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if crate::interpret::is_running() {
            return crate::interpret::body(slf)?.call(args, kwargs);
        }
        let state = state(slf)?;
        Err(to_exception(slf.py(), &state.kernel.signature().no_grid()))
    }

    /// Launches with a grid, or with `warmup=True` only compiles.
    #[pyo3(signature = (*args, grid = None, warmup = false, **kwargs))]
    fn run(
        slf: &Bound<'_, Self>,
        args: &Bound<'_, PyTuple>,
        grid: Option<&Bound<'_, PyAny>>,
        warmup: bool,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Py<CompiledKernel>>> {
        Call::with(args, kwargs, |call| launch(slf, grid, call, warmup))
    }

    /// Compiles for arguments like these, and does not run.
    #[pyo3(signature = (*args, grid = None, **kwargs))]
    fn warmup(
        slf: &Bound<'_, Self>,
        args: &Bound<'_, PyTuple>,
        grid: Option<&Bound<'_, PyAny>>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Py<CompiledKernel>>> {
        Call::with(args, kwargs, |call| launch(slf, grid, call, true))
    }

    /// Forgets what was compiled.
    fn clear_cache(&self) {
        for state in [&self.state, &self.traced].into_iter().filter_map(OnceLock::get) {
            state.forget_all();
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if !self.is_made {
            return Ok(());
        }
        let hooks = self.pre_run_hooks.try_lock();
        if let Some(hooks) = hooks.ok().as_ref().and_then(|hooks| hooks.as_ref()) {
            visit.call(hooks)?;
        }
        let mut states = [&self.state, &self.traced].into_iter().filter_map(OnceLock::get);
        states.try_for_each(|state| state.visit(&visit))
    }

    fn __clear__(&self) {
        *self.pre_run_hooks.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.clear_cache();
    }
}

impl JitKernel {
    /// The number that the compiler knows it by.
    pub(crate) fn function(&self) -> Option<FunctionRef> {
        self.definition.get().map(|definition| definition.function)
    }

    /// Its source.
    pub(crate) fn source(&self) -> Option<FunctionSource> {
        let definition = self.definition.get()?;
        Some(definition.source.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The functions that are called before each launch.
    #[inline]
    pub(crate) fn pre_run_hooks(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        let hooks = self.pre_run_hooks.lock().unwrap_or_else(PoisonError::into_inner);
        hooks.as_ref().map(|hooks| hooks.clone_ref(py))
    }

    /// The options of a launch that says nothing about them.
    pub(crate) fn options(&self) -> Options {
        let options = Options::new(&Knobs::current());
        let is_debug = self.definition.get().is_some_and(|definition| definition.debug);
        if is_debug { options.with_debug() } else { options }
    }
}

/// What a launch needs, made by the first one.
#[inline]
pub(crate) fn state<'a>(kernel: &'a Bound<'_, JitKernel>) -> PyResult<&'a State> {
    if let Some(state) = kernel.get().state.get() {
        return Ok(state);
    }
    let made = make_state(kernel, crate::device::selected(kernel.py())?)?;
    // Another thread may have been faster.
    Ok(kernel.get().state.get_or_init(|| made))
}

/// What a launch that is traced needs, made by the first one.
pub(crate) fn traced_state<'a>(kernel: &'a Bound<'_, JitKernel>) -> PyResult<&'a State> {
    if let Some(state) = kernel.get().traced.get() {
        return Ok(state);
    }
    let made = make_state(kernel, Some(Device::Cpu))?;
    Ok(kernel.get().traced.get_or_init(|| made))
}

#[cold]
fn make_state(kernel: &Bound<'_, JitKernel>, device: Option<Device>) -> PyResult<State> {
    let py = kernel.py();
    // A program may have set variables since it imported tilewright.
    reload_knobs();
    let inner = kernel.get();
    let definition =
        inner.definition.get().ok_or_else(|| PyRuntimeError::new_err("the kernel is not defined"))?;
    let mut signature = Signature {
        name: kernel.getattr(intern!(py, "__name__"))?.extract::<String>()?.into(),
        parameters: definition.parameters.clone(),
        source: Some(definition.source.read().unwrap_or_else(PoisonError::into_inner).clone()),
    };
    let given = kernel.getattr(intern!(py, "signature"))?.getattr(intern!(py, "parameters"))?;
    let mut defaults = Vec::new();
    for index in 0..signature.parameters.len() {
        let parameter = given.get_item(&*signature.parameters[index].name)?;
        let default = parameter.getattr(intern!(py, "default"))?;
        let is_there = !default.is(parameter.getattr(intern!(py, "empty"))?);
        if signature.parameters[index].kind == ParameterKind::Variadic {
            signature.parameters[index].default = Some(Value::None);
            defaults.push(Some(PyTuple::empty(py).into_any().unbind()));
            continue;
        }
        if is_there {
            // Converted at each launch: what it refers to may have moved.
            signature.parameters[index].default = Some(Value::None);
        }
        defaults.push(is_there.then(|| default.unbind()));
    }
    let names = signature.parameters.iter().map(|p| PyString::intern(py, &p.name).unbind()).collect();
    Ok(State {
        variadic: signature.variadic(),
        kernel: Kernel::new(signature, definition.function, device),
        is_interpreted: kernel.call_method0(intern!(py, "_is_to_be_interpreted"))?.is_truthy()?,
        defaults,
        names,
        bindings: Default::default(),
        handles: Mutex::default(),
        warned: AtomicU8::new(0),
        warned_options: Mutex::default(),
    })
}

impl State {
    /// Forgets what was compiled.
    #[cold]
    fn forget_all(&self) {
        self.kernel.clear();
        // They are dropped after the lock is released: dropping may run the program's code.
        let handles = std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        drop(handles);
    }

    /// Forgets one compiled form, and those that share its code.
    #[cold]
    pub(crate) fn forget(&self, handle: &Handle) {
        let forgotten = self.kernel.forget(handle);
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let objects: Vec<_> =
            forgotten.iter().filter_map(|handle| handles.remove(&Arc::as_ptr(handle).addr())).collect();
        // They are dropped after the lock is released: dropping may run the program's code.
        drop(handles);
        drop(objects);
    }

    /// Whether this is the first time that the kernel warns of something, which it does once.
    pub(crate) fn is_first_warning(&self, code: Code) -> bool {
        let bit = if code == Code::EmptyGrid { 1 } else { 2 };
        self.warned.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Warns of the options that a compiled form does not follow, of each once.
    pub(crate) fn warn_of_options(&self, py: Python<'_>, handle: &Handle) -> PyResult<()> {
        for option in handle.options().without_effect(handle.compiled.metadata.target) {
            let name = option.0.name;
            let mut warned = self.warned_options.lock().unwrap_or_else(PoisonError::into_inner);
            if warned.contains(&name) {
                continue;
            }
            warned.push(name);
            drop(warned);
            warn(py, &self.kernel.signature().option_without_effect(&option))?;
        }
        Ok(())
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(handles) = self.handles.try_lock() {
            handles.values().try_for_each(|handle| visit.call(handle))?;
        }
        // Handles that share their code share what it was made from, which is visited once.
        let mut visited = FxHashSet::default();
        for handle in self.kernel.try_handles().unwrap_or_default() {
            if let Some(reads) = handle.attachment::<ReadSet>()
                && visited.insert(std::ptr::from_ref(reads).addr())
            {
                reads.visit(visit)?;
            }
        }
        self.defaults.iter().flatten().try_for_each(|default| visit.call(default))
    }

    /// How the arguments of a call are bound to the parameters.
    #[inline]
    pub(crate) fn bind(&self, py: Python<'_>, call: &Call<'_, '_>) -> PyResult<Arc<KnownBinding>> {
        let mut known = self.bindings.iter().map_while(OnceLock::get);
        match known.find(|known| known.is(py, call)) {
            Some(known) => Ok(Arc::clone(&known.binding)),
            None => self.bind_new(py, call),
        }
    }

    #[cold]
    fn bind_new(&self, py: Python<'_>, call: &Call<'_, '_>) -> PyResult<Arc<KnownBinding>> {
        let names = call.names()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let binding =
            self.kernel.bind(call.positional(), &names).map_err(|error| to_exception(py, &error))?;
        let sanitize = binding.options.iter().find(|(_, option)| *option == OptionId::Sanitize);
        let sanitize = sanitize.map(|&(number, _)| number);
        let binding = Arc::new(KnownBinding { binding, options: Mutex::default(), sanitize });
        let keywords = call.keywords().map(|keywords| keywords.to_owned().unbind());
        let mut known = KnownCall { positional: call.positional(), keywords, binding: Arc::clone(&binding) };
        for place in &self.bindings {
            match place.set(known) {
                Ok(()) => break,
                Err(refused) => known = refused,
            }
        }
        Ok(binding)
    }

    /// The default of a parameter as Python has it.
    pub(crate) fn default<'a, 'py>(
        &'a self,
        py: Python<'py>,
        index: usize,
    ) -> Option<Borrowed<'a, 'py, PyAny>> {
        self.defaults.get(index)?.as_ref().map(|default| default.bind_borrowed(py))
    }

    /// The name of a parameter.
    pub(crate) fn name<'a, 'py>(&'a self, py: Python<'py>, index: usize) -> &'a Bound<'py, PyString> {
        self.names[index].bind(py)
    }

    /// The Python object for a handle, the same one each time.
    #[inline]
    pub(crate) fn python_handle(
        &self,
        kernel: &Bound<'_, JitKernel>,
        handle: Arc<Handle>,
    ) -> PyResult<Py<CompiledKernel>> {
        let py = kernel.py();
        let key = Arc::as_ptr(&handle).addr();
        if let Some(known) = self.handles.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(known.clone_ref(py));
        }
        let made = Py::new(py, CompiledKernel::new(handle, kernel.clone().unbind()))?;
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made.clone_ref(py));
        Ok(made)
    }
}
