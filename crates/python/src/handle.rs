//! `CompiledKernel`: the handle that a launch or a warm-up returns.

use std::sync::Arc;

use pyo3::Borrowed;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use tilewright_frontend::{Argument, HostValue};
use tilewright_runtime::{
    ArgumentSource, Device, Handle, Loaded, OPTIONS, OptionId, Resources, Stage, Value,
};

use crate::convert::{Converter, Kept, Values};
use crate::device::{self, stream_number, target_tuple};
use crate::errors::to_exception;
use crate::kernel::{JitKernel, State, state};
use crate::launch::{ask, extents, run};
use crate::launcher::{Call, launcher};
use crate::objects::to_python;

/// A compiled form of a kernel.
#[pyclass(frozen, dict, weakref, module = "tilewright._native")]
pub(crate) struct CompiledKernel {
    handle: Arc<Handle>,
    kernel: Py<JitKernel>,
    /// False in the zeros that an object is before it is made: Python makes its `__dict__` first, and may collect garbage then.
    is_made: bool,
}

impl CompiledKernel {
    pub(crate) fn new(handle: Arc<Handle>, kernel: Py<JitKernel>) -> Self {
        Self { handle, kernel, is_made: true }
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

    /// The `@jit` function.
    #[getter]
    fn function(&self, py: Python<'_>) -> Py<JitKernel> {
        self.kernel.clone_ref(py)
    }

    /// The same for equal code, options and target.
    #[getter]
    fn hash(&self) -> String {
        self.handle.compiled.hash()
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
        let compiled = &self.handle.compiled;
        let entries = PyDict::new(py);
        for info in OPTIONS {
            if let Some(option) = OptionId::parse(info.name).filter(|option| !option.is_for_launcher()) {
                entries.set_item(info.name, to_python(py, &self.handle.options().get(option))?)?;
            }
        }
        let target = compiled.metadata.target;
        let class = py.import("tilewright.backends.compiler")?.getattr("GPUTarget")?;
        let target = class.call1(target_tuple(py, target)?.cast_into::<PyTuple>()?)?;
        entries.set_item("target", target)?;
        entries.set_item("name", &compiled.name)?;
        entries.set_item("hash", compiled.hash())?;
        entries.set_item("shared", compiled.metadata.resources.shared)?;
        entries.set_item("tmem_size", 0)?;
        entries.set_item("cluster_dims", (1, 1, 1))?;
        let class = py.import("tilewright.compiler.compiler")?.getattr("KernelMetadata")?;
        class.call((), Some(&entries))
    }

    /// The text of each stage, by its name.
    #[getter]
    fn asm<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("tilewright.compiler.compiler")?.getattr("AsmDict")?.call1((slf,))
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

    /// Loads the code into the device.
    fn _init_handles(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.loaded().map(|_| ()).map_err(|error| to_exception(py, &error))
    }

    /// `handle[grid]`: launches this form, with or without the arguments that are part of its code.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, grid: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        launcher(slf, grid)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if self.is_made { visit.call(&self.kernel) } else { Ok(()) }
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
    let (values, _kept) = call.values()?;
    let stream = device::stream(py, handle, || call.stream())?;
    run(py, handle, stream, grid, &values)
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
        for (index, argument) in self.handle.arguments().iter().enumerate() {
            let name = self.state.name(self.py, index);
            if let Some(object) = self.argument(index) {
                meta.set_item(name, object)?;
            } else if let Argument::Constexpr(HostValue::Constant(constant)) = argument {
                meta.set_item(name, to_python(self.py, constant)?)?;
            }
        }
        Ok(meta)
    }
}
