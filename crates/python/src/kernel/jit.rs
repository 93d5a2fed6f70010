//! Defines `JitKernel`, the base of Python's `JITFunction`.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::{Borrowed, intern};
use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_base::Code;
use tilewright_frontend::{Constant, HostValue};
use tilewright_runtime::{
    Attachment, Device, Error, Handle, Kernel, Knobs, OptionId, Options, ParameterKind, Selection, Signature,
    Value,
};

use super::binding::KnownBinding;
use super::compiled::CompiledKernel;
use super::dependencies::Dependencies;
use super::host::{self, PyHost};
use crate::errors::{raised, warn};
use crate::values::call::{ByCallShape, Call};
use crate::values::classify::constant;
use crate::values::function::Function;
use crate::values::objects::object_ref;

/// The part of a `@jit` function that launches need.
#[pyclass(extends = Function, subclass, dict, weakref, frozen, module = "tilewright._native")]
#[derive(Default)]
pub(crate) struct JitKernel {
    /// The states for all devices that were selected at launches, as a list.
    pub(crate) state: OnceLock<Box<State>>,
    /// The states of traced launches, whose variants are for the CPU or a simulated GPU.
    pub(crate) traced: OnceLock<Box<State>>,
    pub(crate) pre_run_hooks: Mutex<Option<Py<PyTuple>>>,
    /// False while the object is zeroed memory. Python may collect garbage before it is
    /// initialized.
    pub(crate) is_made: bool,
}

/// The state of launches. The first launch after a selection of another device creates the state.
pub(crate) struct State {
    pub(crate) kernel: Kernel,
    selection: Selection,
    /// The state for the device that was selected next.
    next: OnceLock<Box<State>>,
    /// True if Python runs the body.
    pub(crate) is_interpreted: bool,
    /// The default of each parameter as a Python object.
    defaults: Vec<Option<Py<PyAny>>>,
    names: Vec<Py<PyString>>,
    /// The parameter for all further positional arguments, which are passed as a tuple.
    pub(crate) variadic: Option<usize>,
    bindings: ByCallShape<Arc<KnownBinding>, 32>,
    handles: Mutex<FxHashMap<usize, Py<CompiledKernel>>>,
    /// A bit for each kind of warning. [`Self::warn_once`] sets the bit.
    warned: AtomicU8,
    /// The options without effect for which a warning was issued.
    warned_options: Mutex<Vec<&'static str>>,
}

impl JitKernel {
    /// Returns the states that launches have created.
    pub(crate) fn states(&self) -> impl Iterator<Item = &State> {
        [&self.state, &self.traced].into_iter().flat_map(|list| {
            let first = list.get().map(Box::as_ref);
            std::iter::successors(first, |state| state.next.get().map(Box::as_ref))
        })
    }

    /// Returns the functions that are called before each launch.
    #[inline]
    pub(crate) fn pre_run_hooks(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        let hooks = self.pre_run_hooks.lock().unwrap_or_else(PoisonError::into_inner);
        hooks.as_ref().map(|hooks| hooks.clone_ref(py))
    }
}

/// Returns the options of a launch that sets none.
pub(crate) fn options(kernel: &Bound<'_, JitKernel>) -> Options {
    let options = Options::new(&Knobs::current());
    if kernel.as_super().get().is_debug() { options.with_debug() } else { options }
}

/// Sets an option to a Python object.
pub(crate) fn set_option(options: &mut Options, option: OptionId, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let constant = match constant(value)? {
        HostValue::Constant(constant) => constant,
        _ => Constant::Object(object_ref(value)?),
    };
    raised(value.py(), options.set(option, &constant))
}

/// Returns the state of launches on the selected device, and creates it at the first launch.
#[inline]
pub(crate) fn state<'a>(kernel: &'a Bound<'_, JitKernel>) -> PyResult<&'a State> {
    state_in(kernel, &kernel.get().state, Selection::current())
}

/// Returns the state of traced launches, and creates it at the first traced launch.
pub(crate) fn traced_state<'a>(kernel: &'a Bound<'_, JitKernel>) -> PyResult<&'a State> {
    // A simulated GPU stays the device of a Gluon kernel, which the processor cannot run.
    let is_gluon = kernel.call_method0(intern!(kernel.py(), "is_gluon"))?.is_truthy()?;
    let selected = raised(kernel.py(), Device::selected())?;
    let simulated = selected.filter(|device| is_gluon && matches!(device, Device::Sim(_)));
    state_in(kernel, &kernel.get().traced, Selection::Device(simulated.unwrap_or(Device::Cpu)))
}

/// Returns the state for a selection from a list, or appends a new state.
#[inline]
fn state_in<'a>(
    kernel: &'a Bound<'_, JitKernel>,
    mut place: &'a OnceLock<Box<State>>,
    selection: Selection,
) -> PyResult<&'a State> {
    loop {
        match place.get() {
            Some(state) if state.selection == selection => return Ok(state),
            Some(state) => place = &state.next,
            None => {
                let made = make_state(kernel, selection)?;
                // If another thread has set a state meanwhile, the loop compares that state.
                let _ = place.set(Box::new(made));
            }
        }
    }
}

/// The device that runs Gluon kernels in place of the processor.
const SIMULATED: Device = Device::Sim(90);

#[cold]
fn make_state(kernel: &Bound<'_, JitKernel>, selection: Selection) -> PyResult<State> {
    let py = kernel.py();
    // A program may have set environment variables since it imported tilewright.
    Knobs::from_environment().set();
    let function = kernel.as_super().get();
    let (Some(number), Some(source)) = (function.number(), function.source()) else {
        return Err(PyRuntimeError::new_err("the kernel is not defined"));
    };
    let mut signature = Signature {
        name: kernel.getattr(intern!(py, "__name__"))?.extract::<String>()?.into(),
        parameters: function.parameters().to_vec(),
        source: Some(source),
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
            // The memory of the default may have moved, so it is converted at each launch.
            signature.parameters[index].default = Some(Value::None);
        }
        defaults.push(is_there.then(|| default.unbind()));
    }
    let names = signature.parameters.iter().map(|p| PyString::intern(py, &p.name).unbind()).collect();
    let variadic = signature.variadic();
    let is_gluon = kernel.call_method0(intern!(py, "is_gluon"))?.is_truthy()?;
    let made = Kernel::new(signature, number, raised(py, selection.device())?);
    Ok(State {
        selection,
        next: OnceLock::new(),
        variadic,
        kernel: if is_gluon { made.in_place_of_processor(SIMULATED) } else { made },
        is_interpreted: kernel.call_method0(intern!(py, "_is_to_be_interpreted"))?.is_truthy()?,
        defaults,
        names,
        bindings: ByCallShape::default(),
        handles: Mutex::default(),
        warned: AtomicU8::new(0),
        warned_options: Mutex::default(),
    })
}

impl State {
    /// Drops all compiled variants.
    #[cold]
    pub(crate) fn forget_all(&self) {
        self.kernel.clear();
        // Dropping the objects may run the program's code, so the lock is released first.
        let handles = std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        drop(handles);
    }

    /// Drops a compiled variant, and the variants that share its code.
    #[cold]
    pub(crate) fn forget(&self, handle: &Handle) {
        let forgotten = self.kernel.forget(handle);
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let objects: Vec<_> =
            forgotten.iter().filter_map(|handle| handles.remove(&Arc::as_ptr(handle).addr())).collect();
        // Dropping the objects may run the program's code, so the lock is released first.
        drop(handles);
        drop(objects);
    }

    /// Issues a warning once for a kernel. If a filter turns it into an exception, the next call
    /// issues it again.
    pub(crate) fn warn_once(
        &self,
        py: Python<'_>,
        code: Code,
        warning: impl FnOnce() -> Error,
    ) -> PyResult<()> {
        let bit = if code == Code::EmptyGrid { 1 } else { 2 };
        if self.warned.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return Ok(());
        }
        warn(py, &warning()).inspect_err(|_| {
            self.warned.fetch_and(!bit, Ordering::Relaxed);
        })
    }

    /// Warns of the options that have no effect on a compiled variant, once for each option. If a
    /// filter turns a warning into an exception, drops the variant, so that the next launch warns
    /// again.
    pub(crate) fn warn_of_options(&self, py: Python<'_>, handle: &Handle) -> PyResult<()> {
        let warned_options = || self.warned_options.lock().unwrap_or_else(PoisonError::into_inner);
        for option in handle.options().without_effect(handle.compiled.metadata.target) {
            let name = option.0.name;
            let mut warned = warned_options();
            if warned.contains(&name) {
                continue;
            }
            warned.push(name);
            drop(warned);
            warn(py, &self.kernel.signature().option_without_effect(&option)).inspect_err(|_| {
                warned_options().retain(|other| *other != name);
                self.forget(handle);
            })?;
        }
        Ok(())
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(handles) = self.handles.try_lock() {
            handles.values().try_for_each(|handle| visit.call(handle))?;
        }
        // Handles that share their code share its dependencies.
        let mut visited = FxHashSet::default();
        for handle in self.kernel.try_handles().unwrap_or_default() {
            if let Some(reads) = handle.attachment::<Dependencies>()
                && visited.insert(std::ptr::from_ref(reads).addr())
            {
                reads.visit(visit)?;
            }
        }
        self.defaults.iter().flatten().try_for_each(|default| visit.call(default))
    }

    /// Returns the binding of the arguments of a call to the parameters.
    #[inline]
    pub(crate) fn bind(&self, py: Python<'_>, call: &Call<'_, '_>) -> PyResult<Arc<KnownBinding>> {
        if let Some(known) = self.bindings.get(py, call) {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(KnownBinding::new(py, &self.kernel, call)?);
        self.bindings.keep(call, Arc::clone(&made));
        Ok(made)
    }

    /// Returns the compiled variant for values, and whether this call has compiled it. `explain`
    /// adds information to an error of the compilation.
    #[cold]
    pub(crate) fn compile(
        &self,
        py: Python<'_>,
        values: &[Value<'_>],
        options: &Options,
        explain: impl FnOnce(Error) -> Error,
    ) -> PyResult<(Arc<Handle>, bool)> {
        let mut host = PyHost::default();
        let findings = host.findings();
        let mut is_new = false;
        let mut attach = || {
            is_new = true;
            let mut findings = findings.lock().unwrap_or_else(PoisonError::into_inner);
            let reads = std::mem::take(&mut findings.read);
            // A compilation that Ctrl-C interrupted is not kept.
            findings.raised.is_none().then(|| Arc::new(Dependencies::new(reads)) as Attachment)
        };
        let kernel = &self.kernel;
        let compiled = py.detach(|| kernel.specialize_with(values, options, &mut host, &mut attach));
        let caught = host::finish(py, &findings)?;
        let handle = compiled.map_err(|error| host::failure(py, explain(error), caught))?;
        self.warn_of_options(py, &handle)?;
        Ok((handle, is_new))
    }

    /// Returns the default of a parameter as a Python object.
    pub(crate) fn default<'a, 'py>(
        &'a self,
        py: Python<'py>,
        index: usize,
    ) -> Option<Borrowed<'a, 'py, PyAny>> {
        self.defaults.get(index)?.as_ref().map(|default| default.bind_borrowed(py))
    }

    /// Returns the name of a parameter.
    pub(crate) fn name<'a, 'py>(&'a self, py: Python<'py>, index: usize) -> &'a Bound<'py, PyString> {
        self.names[index].bind(py)
    }

    /// Returns the Python object for a handle, usually the same each time.
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
        let made = Py::new(py, CompiledKernel::new(handle, kernel.as_super()))?;
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made.clone_ref(py));
        Ok(made)
    }
}
