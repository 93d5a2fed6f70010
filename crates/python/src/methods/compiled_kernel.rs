//! Implements the Python methods of `CompiledKernel`.

use std::sync::OnceLock;

use pyo3::exceptions::{PyAttributeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use tilewright_base::Color;
use tilewright_frontend::Argument;
use tilewright_runtime::{
    BoundsExpression, BoundsStatement, BoundsVerdict, Device, Handle, Loaded, OPTIONS, ParameterType, Stage,
    binary,
};

use crate::errors::raised;
use crate::kernel::compiled::{CompiledKernel, kept};
use crate::launch::device::target_tuple;
use crate::launch::launcher::launcher;
use crate::values::function::Function;
use crate::values::to_python::{host_value_to_python, to_python};

/// A finding about an access: the position (file, line, column), the access, the verdict, and a
/// counterexample or reason.
type BoundsRow = (Option<(String, u32, u32)>, String, &'static str, String);

#[pymethods]
impl CompiledKernel {
    /// The name of the kernel.
    #[getter]
    fn name(&self) -> &str {
        &self.handle.compiled.name
    }

    /// A hash, which is the same for equal code, options and target.
    #[getter]
    fn hash<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        kept(&self.attributes.hash, py, || Ok(PyString::new(py, &self.handle.compiled.hash()).into_any()))
    }

    /// The number of registers of a thread.
    #[getter]
    fn n_regs(&self, py: Python<'_>) -> PyResult<u32> {
        raised(py, self.handle.resources()).map(|resources| resources.registers)
    }

    /// The number of registers of a thread that are spilled to memory.
    #[getter]
    fn n_spills(&self, py: Python<'_>) -> PyResult<u32> {
        raised(py, self.handle.resources()).map(|resources| resources.spills)
    }

    /// The maximum number of threads of a program.
    #[getter]
    fn n_max_threads(&self, py: Python<'_>) -> PyResult<u32> {
        let loaded = raised(py, self.handle.loaded())?;
        Ok(loaded.map_or(1024, Loaded::max_threads))
    }

    /// A named tuple of the options of the compilation and of the resources that the kernel needs.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        kept(&self.attributes.metadata, py, || describe_metadata(py, &self.handle))
    }

    /// The text of each stage, by its name.
    #[getter]
    fn asm<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        kept(&slf.get().attributes.asm, slf.py(), || {
            slf.py().import("tilewright.compiler.compiler")?.getattr("AsmDict")?.call1((slf,))
        })
    }

    /// Returns the memory accesses of the kernel. Each has the names of the parameters from which
    /// its pointers are derived, whether it reads, and whether it writes.
    fn _accesses(&self) -> Vec<(Vec<String>, bool, bool)> {
        let compiled = &self.handle.compiled;
        let name = |number: usize| compiled.module.kernel().parameters[number].name.to_string();
        let accesses = compiled.accesses().into_iter();
        accesses.map(|a| (a.parameters.into_iter().map(name).collect(), a.reads, a.writes)).collect()
    }

    /// Checks whether each access is in bounds for every grid and every size, as `tilewright check`
    /// does, and returns the findings.
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

    /// A number that identifies the code among the live compiled kernels. Variants that share their
    /// code have the same number.
    #[getter]
    fn _code_number(&self) -> usize {
        self.handle.code_number()
    }

    /// Returns the names of the stages.
    fn _stages(&self) -> Vec<&'static str> {
        let texts = Stage::of(self.handle.compiled.metadata.target).iter();
        let machine_code = matches!(self.handle.device(), Device::Cuda(_)).then_some(&Stage::Cubin);
        texts.chain(machine_code).map(|stage| stage.name()).collect()
    }

    /// Returns the text of a stage, or the bytes of a cubin. Returns `None` if there is no such
    /// stage.
    fn _stage<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        match Stage::parse(name) {
            Some(Stage::Cubin) => {
                let cubin = raised(py, self.handle.cubin())?;
                Ok(cubin.map(|cubin| PyBytes::new(py, cubin).into_any()))
            }
            Some(stage) => {
                Ok(self.handle.compiled.asm(stage).map(|text| PyString::new(py, &text).into_any()))
            }
            None => Ok(None),
        }
    }

    /// Returns the `@jit` function and, for each parameter, its type or value in the notation that
    /// `compile` takes.
    fn _source<'py>(&self, py: Python<'py>) -> PyResult<(Py<Function>, Bound<'py, PyList>)> {
        let types = self.handle.compiled.signature.iter().map(|(_, ty)| ty);
        let arguments = self.handle.arguments().iter().zip(types);
        let described = arguments.map(|(argument, ty)| describe(py, argument, ty));
        Ok((self.function.clone_ref(py), PyList::new(py, described.collect::<PyResult<Vec<_>>>()?)?))
    }

    /// Loads the code on the device. Returns the driver handle of the kernel if the device is a
    /// GPU.
    fn _load(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let loaded = raised(py, self.handle.loaded())?;
        Ok(loaded.and_then(Loaded::kernel).map(binary::share))
    }

    /// True if the variant was launched, or loaded by a launcher. Its code is then loaded.
    #[getter(_is_launched)]
    fn was_launched(&self) -> bool {
        self.is_launched()
    }

    /// Records that a launcher has loaded the code. The launcher itself calls the hooks before and
    /// after the load.
    fn _note_load(&self) {
        self.note_launch();
    }

    /// Returns whether the code is for a GPU and has tensor maps as parameters.
    fn _takes_tensor_maps(&self) -> bool {
        self.handle.takes_tensor_maps()
    }

    /// Returns another attribute of the object that `triton.compile` would return: `run`,
    /// `packed_metadata`, `src`, `function`, …
    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        // `copy`, `pickle` and other tools probe for names with an underscore.
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

    /// Loads the code on the device. Other threads may run meanwhile, because an autotuner
    /// assembles several kernels at a time.
    fn _init_handles(&self, py: Python<'_>) -> PyResult<()> {
        raised(py, py.detach(|| self.handle.loaded().map(|_| ())))
    }

    /// Returns a function that launches this variant with a grid: `handle[grid]`. Its calls may
    /// omit arguments that are constants of the code.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, grid: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        launcher(slf, grid)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if !self.is_made {
            return Ok(());
        }
        visit.call(&self.function)?;
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

/// Returns the options and the resources of a variant, as a named tuple.
fn describe_metadata<'py>(py: Python<'py>, handle: &Handle) -> PyResult<Bound<'py, PyAny>> {
    let compiled = &handle.compiled;
    let entries = PyDict::new(py);
    for info in OPTIONS.iter().filter(|info| !info.id.is_for_launcher()) {
        entries.set_item(info.name, to_python(py, &handle.options().get(info.id))?)?;
    }
    // The compiler may have added warps, or may use one block in place of a cluster.
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

/// Describes a parameter in the form of `compile`: a type, `(value,)`, or a list of descriptions
/// and the field names.
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
