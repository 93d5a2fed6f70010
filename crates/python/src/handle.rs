//! `CompiledKernel`: the handle that a launch or a warm-up returns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3::Borrowed;
use pyo3::exceptions::{PyAttributeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use tilewright_base::Color;
use tilewright_frontend::{Argument, HostValue};
use tilewright_runtime::{
    ArgumentSource, BoundsExpression, BoundsStatement, BoundsVerdict, Checks, Device, Handle, Loaded,
    OPTIONS, OptionId, ParameterType, Resources, Stage, Value, binary,
};

use crate::convert::{Converter, Kept, Values};
use crate::device::{self, stream_number, target_tuple};
use crate::errors::{raised, to_exception};
use crate::hooks;
use crate::kernel::{JitKernel, State, state};
use crate::launch::{ask, extents, run};
use crate::launcher::{Call, launcher};
use crate::objects::{host_value_to_python, to_python};
use crate::sanitize;

/// What was found of an access: place, what it is, verdict, text.
type BoundsRow = (Option<(String, u32, u32)>, String, &'static str, String);

/// A compiled form of a kernel.
// A mapping: by its `[grid]` alone, Python would take it for a sequence without end.
#[pyclass(frozen, mapping, dict, weakref, module = "tilewright._native")]
pub(crate) struct CompiledKernel {
    handle: Arc<Handle>,
    kernel: Py<JitKernel>,
    /// The same as `triton.compile` returns it, made at the first request for an attribute that only the twin has.
    twin: OnceLock<Py<PyAny>>,
    /// Attributes that programs read at each launch: computed at the first access.
    attributes: Attributes,
    /// Whether it was launched.
    is_launched: AtomicBool,
    /// False in the zeros that an object is before it is made: Python makes its `__dict__` first, and may collect garbage then.
    is_made: bool,
}

/// Attributes that never change, as Python's objects.
#[derive(Default)]
struct Attributes {
    metadata: OnceLock<Py<PyAny>>,
    asm: OnceLock<Py<PyAny>>,
    hash: OnceLock<Py<PyAny>>,
}

/// The kept object; computed at the first access.
fn kept<'py>(
    cell: &OnceLock<Py<PyAny>>,
    py: Python<'py>,
    compute: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(kept) = cell.get() {
        return Ok(kept.bind(py).clone());
    }
    let made = compute()?.unbind();
    // Another thread may have been faster.
    Ok(cell.get_or_init(|| made).bind(py).clone())
}

impl CompiledKernel {
    pub(crate) fn new(handle: Arc<Handle>, kernel: Py<JitKernel>) -> Self {
        Self {
            handle,
            kernel,
            twin: OnceLock::new(),
            attributes: Attributes::default(),
            is_launched: AtomicBool::new(false),
            is_made: true,
        }
    }

    /// Notes that it was launched.
    #[inline]
    pub(crate) fn note_launch(&self) {
        self.is_launched.store(true, Ordering::Relaxed);
    }

    /// Whether it was launched, and therefore loaded.
    pub(crate) fn is_launched(&self) -> bool {
        self.is_launched.load(Ordering::Relaxed)
    }

    /// The same as `triton.compile` returns it.
    pub(crate) fn twin<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        kept(&slf.get().twin, py, || {
            py.import("tilewright.compiler.compiler")?.call_method1("of_launch", (slf,))
        })
    }

    /// The kernel as the runtime knows it.
    pub(crate) fn handle(&self) -> Arc<Handle> {
        Arc::clone(&self.handle)
    }

    /// The options that it was compiled with and what it takes of the device, as a named tuple.
    fn describe_metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let compiled = &self.handle.compiled;
        let entries = PyDict::new(py);
        for info in OPTIONS.iter().filter(|info| !info.id.is_for_launcher()) {
            entries.set_item(info.name, to_python(py, &self.handle.options().get(info.id))?)?;
        }
        // The compiler may have added warps, and runs one block where it could not divide a program between the blocks of a cluster.
        let cluster = compiled.cluster();
        entries.set_item("num_warps", compiled.metadata.codegen.num_warps)?;
        entries.set_item("num_ctas", cluster)?;
        let target = compiled.metadata.target;
        let class = py.import("tilewright.backends.compiler")?.getattr("GPUTarget")?;
        let target = class.call1(target_tuple(py, target)?.cast_into::<PyTuple>()?)?;
        entries.set_item("target", target)?;
        entries.set_item("name", compiled.entry_name())?;
        entries.set_item("hash", compiled.hash())?;
        entries.set_item("shared", compiled.metadata.resources.shared)?;
        entries.set_item("tmem_size", 0)?;
        entries.set_item("cluster_dims", (cluster, 1, 1))?;
        let class = py.import("tilewright.compiler.compiler")?.getattr("KernelMetadata")?;
        class.call((), Some(&entries))
    }

    fn resources(&self, py: Python<'_>) -> PyResult<Resources> {
        self.handle.resources().map_err(|error| to_exception(py, &error))
    }
}

#[pymethods]
impl CompiledKernel {
    /// The name of the kernel.
    #[getter]
    fn name(&self) -> &str {
        &self.handle.compiled.name
    }

    /// The same for equal code, options and target.
    #[getter]
    fn hash<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        kept(&self.attributes.hash, py, || Ok(PyString::new(py, &self.handle.compiled.hash()).into_any()))
    }

    /// Registers of a thread.
    #[getter]
    fn n_regs(&self, py: Python<'_>) -> PyResult<u32> {
        self.resources(py).map(|resources| resources.registers)
    }

    /// Registers that are kept in memory.
    #[getter]
    fn n_spills(&self, py: Python<'_>) -> PyResult<u32> {
        self.resources(py).map(|resources| resources.spills)
    }

    /// The most threads that a program may have.
    #[getter]
    fn n_max_threads(&self, py: Python<'_>) -> PyResult<u32> {
        let loaded = self.handle.loaded().map_err(|error| to_exception(py, &error))?;
        Ok(loaded.map_or(1024, Loaded::max_threads))
    }

    /// The options that it was compiled with, and what it takes of the device; its entries are attributes.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        kept(&self.attributes.metadata, py, || self.describe_metadata(py))
    }

    /// The text of each stage, by its name.
    #[getter]
    fn asm<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        kept(&slf.get().attributes.asm, slf.py(), || {
            slf.py().import("tilewright.compiler.compiler")?.getattr("AsmDict")?.call1((slf,))
        })
    }

    /// The accesses to memory in the kernel's text: the names of the parameters that the pointers come from, and whether it
    /// reads and writes.
    fn _accesses(&self) -> Vec<(Vec<String>, bool, bool)> {
        let compiled = &self.handle.compiled;
        let name = |number: usize| compiled.module.kernel().parameters[number].name.to_string();
        let accesses = compiled.accesses().into_iter();
        accesses.map(|a| (a.parameters.into_iter().map(name).collect(), a.reads, a.writes)).collect()
    }

    /// Whether each access is in bounds for every grid and every size, as `tilewright check` says it: place, what it is,
    /// verdict, and the whole text of a counterexample or of a reason.
    fn _check_bounds(
        &self,
        extents: Vec<(String, String)>,
        grid: Vec<String>,
        assume: Vec<String>,
    ) -> PyResult<Vec<BoundsRow>> {
        let refused = |message: String| PyValueError::new_err(message);
        let expression = |text: String| BoundsExpression::parse(&text).map_err(refused);
        let statement = BoundsStatement {
            extents: extents
                .into_iter()
                .map(|(name, extent)| Ok((name, expression(extent)?)))
                .collect::<PyResult<_>>()?,
            grid: grid.into_iter().map(expression).collect::<PyResult<_>>()?,
            conditions: assume
                .into_iter()
                .map(|text| BoundsExpression::parse_condition(&text).map_err(refused))
                .collect::<PyResult<_>>()?,
            constants: Vec::new(),
        };
        let report = self.handle.check_bounds(&statement).map_err(refused)?;
        let rows = report.findings.into_iter().map(|finding| {
            let place = finding.place.map(|place| (place.file, place.line, place.column));
            let (verdict, text) = match finding.verdict {
                BoundsVerdict::Proved => ("proved", String::new()),
                BoundsVerdict::Refuted(found) => ("refuted", found.render(&report.sources, Color::Never)),
                BoundsVerdict::Undecided(why) => ("undecided", why),
            };
            (place, finding.access, verdict, text)
        });
        Ok(rows.collect())
    }

    /// What tells the code from that of other compiled kernels that live: the same for those that share it.
    #[getter]
    fn _code_number(&self) -> usize {
        self.handle.code_number()
    }

    /// The names of the stages.
    fn _stages(&self) -> Vec<&'static str> {
        let texts = Stage::of(self.handle.compiled.metadata.target).iter();
        let machine_code = matches!(self.handle.device(), Device::Cuda(_)).then_some(&Stage::Cubin);
        texts.chain(machine_code).map(|stage| stage.name()).collect()
    }

    /// The text of a stage, or its bytes.
    fn _stage<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        match Stage::parse(name) {
            Some(Stage::Cubin) => {
                let cubin = self.handle.cubin().map_err(|error| to_exception(py, &error))?;
                Ok(cubin.map(|cubin| PyBytes::new(py, cubin).into_any()))
            }
            Some(stage) => {
                Ok(self.handle.compiled.asm(stage).map(|text| PyString::new(py, &text).into_any()))
            }
            None => Ok(None),
        }
    }

    /// The `@jit` function, and what the compiler was told of each parameter, in the form that `compile` takes.
    fn _source<'py>(&self, py: Python<'py>) -> PyResult<(Py<JitKernel>, Bound<'py, PyList>)> {
        let types = self.handle.compiled.signature.iter().map(|(_, ty)| ty);
        let arguments = self.handle.arguments().iter().zip(types);
        let described = arguments.map(|(argument, ty)| describe(py, argument, ty));
        Ok((self.kernel.clone_ref(py), PyList::new(py, described.collect::<PyResult<Vec<_>>>()?)?))
    }

    /// Loads the code into the device. Returns the number by which a real GPU's launcher knows it.
    fn _load(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let loaded = self.handle.loaded().map_err(|error| to_exception(py, &error))?;
        Ok(loaded.and_then(Loaded::kernel).map(binary::share))
    }

    /// Whether it was launched, and therefore loaded.
    #[getter(_is_launched)]
    fn was_launched(&self) -> bool {
        self.is_launched()
    }

    /// Says that what launches it has loaded it, between the hooks for that.
    fn _note_load(&self) {
        self.note_launch();
    }

    /// Whether it is code of a GPU that takes tensor maps.
    fn _takes_tensor_maps(&self) -> bool {
        self.handle.takes_tensor_maps()
    }

    /// What a kernel of `triton.compile` has besides: `run`, `packed_metadata`, `src`, `function`, …
    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        // Names with an underscore are looked for by `copy`, `pickle`, notebooks and the like.
        if name.to_cow()?.starts_with('_') {
            let message = format!("'CompiledKernel' object has no attribute '{name}'");
            return Err(PyAttributeError::new_err(message));
        }
        let twin = Self::twin(slf)?;
        if matches!(&*name.to_cow()?, "module" | "function") {
            twin.call_method0("_init_handles")?;
        }
        twin.getattr(name)
    }

    /// Loads the code into the device. Other threads may run meanwhile: an autotuner has several kernels assembled at a time.
    fn _init_handles(&self, py: Python<'_>) -> PyResult<()> {
        raised(py, py.detach(|| self.handle.loaded().map(|_| ())))
    }

    /// `handle[grid]`: launches this form, with or without the arguments that are part of its code.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, grid: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        launcher(slf, grid)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if !self.is_made {
            return Ok(());
        }
        visit.call(&self.kernel)?;
        let kept = [&self.twin, &self.attributes.metadata, &self.attributes.asm];
        kept.into_iter().filter_map(OnceLock::get).try_for_each(|object| visit.call(object))
    }

    fn __repr__(&self) -> String {
        let signature: Vec<String> = self
            .handle
            .compiled
            .signature
            .iter()
            .map(|(name, ty)| format!("{name}: {}", ty.name()))
            .collect();
        format!("<compiled kernel {}({})>", self.name(), signature.join(", "))
    }
}

/// A parameter as `compile` takes it: its type with what is known of it, `(value,)`, or a list of such and its fields.
fn describe<'py>(py: Python<'py>, argument: &Argument, ty: &ParameterType) -> PyResult<Bound<'py, PyAny>> {
    let text = |divisibility: u32| match divisibility {
        1 => ty.name(),
        _ => format!("{}:{divisibility}", ty.name()),
    };
    match (argument, ty) {
        (Argument::Pointer { divisibility, .. } | Argument::Scalar { divisibility, .. }, _) => {
            Ok(text(*divisibility).into_pyobject(py)?.into_any())
        }
        (Argument::Tuple(items), _) if items.descriptor().is_some() => {
            Ok(ty.name().into_pyobject(py)?.into_any())
        }
        (Argument::Tuple(items), ParameterType::Tuple(types)) => {
            let parts = items.iter().zip(types.iter()).map(|(item, ty)| describe(py, item, ty));
            let fields = items.fields().map(|fields| fields.iter().map(|field| &**field).collect::<Vec<_>>());
            Ok((parts.collect::<PyResult<Vec<_>>>()?, fields).into_pyobject(py)?.into_any())
        }
        (Argument::Constexpr(value), _) => {
            Ok((host_value_to_python(py, value)?,).into_pyobject(py)?.into_any())
        }
        (Argument::Tuple(_), _) => Err(PyAttributeError::new_err("the kernel takes another tuple")),
    }
}

/// `handle[grid](*args, **kwargs)`.
pub(crate) fn launch(
    compiled: &Bound<'_, CompiledKernel>,
    grid: &Bound<'_, PyAny>,
    call: &Call<'_, '_>,
) -> PyResult<()> {
    let py = compiled.py();
    let CompiledKernel { handle, kernel, .. } = compiled.get();
    let state = state(kernel.bind(py))?;
    let call = BoundCall::new(py, handle, state, call)?;
    // A grid function is code of the program, so it runs before anything is read of the memory of tensors.
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

    /// The stream that the call names.
    fn stream(&self) -> PyResult<Option<u64>> {
        let number = self.keywords.iter().position(|keyword| keyword == "stream");
        number.map_or(Ok(None), |number| stream_number(&self.call.named(number)))
    }

    /// The values for the code, checked to be what it was compiled for.
    fn values(&self) -> PyResult<(Vec<Value<'static>>, Kept)> {
        let converter = Converter::new(self.py, self.handle.signature(), false);
        let mut values = Values::new();
        let kept = converter.all(&mut values, self.bound.len(), |index| self.argument(index))?;
        let given = values.into_iter().zip(&self.bound).map(|(value, bound)| bound.map(|_| value));
        let values = self.handle.complete_bound(given).map_err(|error| to_exception(self.py, &error))?;
        Ok((values, kept))
    }

    /// The dict that a grid function gets.
    fn meta(&self) -> PyResult<Bound<'py, PyDict>> {
        let (_, meta) = self.call.to_python(self.py)?;
        meta.update(self.arguments()?.as_mapping())?;
        Ok(meta)
    }

    /// The arguments by name, those that are part of the code included.
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
