//! Exports traces to Python: records launches, and queries the records.

use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use tilewright_runtime::{Checks, TraceRequest};
use tilewright_trace::{Limits, ReadError, Recorder, Tensor, Trace};

use crate::kernel::compiled::CompiledKernel;
use crate::kernel::jit::JitKernel;
use crate::launch::jit::launch_traced;
use crate::values::call::Call;

/// A trace that is being written.
#[pyclass(frozen, module = "tilewright._native")]
pub(crate) struct TraceRecorder {
    pub(crate) recorder: Recorder,
    path: PathBuf,
}

/// A tensor of a launch: name, element type, bytes of an element, address, extents, strides.
pub(crate) type TensorParts = (String, String, u32, u64, Vec<u64>, Vec<i64>);

#[pymethods]
impl TraceRecorder {
    /// Creates the file of a trace.
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        Ok(Self { recorder: Recorder::create(&path)?, path })
    }

    /// The path of the file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Returns the number of the next launch.
    fn next_launch(&self) -> u32 {
        self.recorder.next_launch()
    }

    /// Writes the elements of a tensor before or after a launch, in row-major order.
    fn snapshot(
        &self,
        launch: u32,
        tensor: u32,
        is_after: bool,
        elements: &Bound<'_, PyBytes>,
    ) -> PyResult<()> {
        self.recorder.snapshot(launch, tensor, is_after, elements.as_bytes());
        self.failure()
    }

    /// Launches a kernel on the CPU or, for a Gluon kernel, in the simulator. Records the launch with this number. `checks` names
    /// additional checks of the sanitizer for this launch. `none` adds no checks.
    #[expect(clippy::too_many_arguments, reason = "they are passed by keyword")]
    #[pyo3(signature = (kernel, grid, args, kwargs, *, number, programs, value_bytes, all_bytes, tensors, constants, checks))]
    fn launch(
        &self,
        kernel: &Bound<'_, JitKernel>,
        grid: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        number: u32,
        programs: u64,
        value_bytes: u64,
        all_bytes: u64,
        tensors: Vec<TensorParts>,
        constants: Vec<(String, String)>,
        checks: &str,
    ) -> PyResult<Option<Py<CompiledKernel>>> {
        let request = TraceRequest {
            recorder: &self.recorder,
            number,
            limits: Limits { programs, value_bytes, bytes: all_bytes },
            tensors: tensors.into_iter().map(tensor).collect(),
            constants,
            checks: Checks::parse(checks)
                .map_err(|name| PyValueError::new_err(format!("there is no check '{name}'")))?,
        };
        let launched = Call::with(args, Some(kwargs), |call| launch_traced(kernel, grid, call, request))?;
        self.failure()?;
        Ok(launched)
    }
}

/// Converts a tensor for a trace.
pub(crate) fn tensor((name, dtype, size, address, shape, strides): TensorParts) -> Tensor {
    Tensor { name, dtype, size, address, shape, strides }
}

impl TraceRecorder {
    /// Fails if writing the file has failed since the last call.
    pub(crate) fn failure(&self) -> PyResult<()> {
        self.recorder.take_failure().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// A written trace. Its methods return JSON.
#[pyclass(frozen, module = "tilewright._native")]
pub(crate) struct TraceFile(Trace);

#[pymethods]
impl TraceFile {
    /// Reads a file.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| Trace::open(&path));
        opened.map(Self).map_err(|error| match error {
            ReadError::Io(error) => PyOSError::new_err((error.raw_os_error(), error.to_string(), path)),
            ReadError::Malformed(_) => PyValueError::new_err(format!("{}: {error}", path.display())),
        })
    }

    /// Returns a summary of each launch.
    fn list(&self) -> String {
        self.0.list()
    }

    /// Returns a launch: its description, its programs, and the statistics of its ops.
    fn launch(&self, py: Python<'_>, launch: usize) -> Option<String> {
        py.detach(|| self.0.launch(launch))
    }

    /// Returns the events of a program.
    fn program(&self, py: Python<'_>, launch: usize, program: u64) -> Option<String> {
        py.detach(|| self.0.events_of(launch, program))
    }

    /// Returns the elements of a value of an event.
    fn value(
        &self,
        py: Python<'_>,
        launch: usize,
        program: u64,
        event: usize,
        value: usize,
    ) -> Option<String> {
        py.detach(|| self.0.value(launch, program, event, value))
    }

    /// Returns the elements that an access touches.
    fn touched(&self, py: Python<'_>, launch: usize, program: u64, event: usize) -> Option<String> {
        py.detach(|| self.0.touched(launch, program, event))
    }

    /// Returns the elements of a tensor before or after a launch.
    fn elements(&self, py: Python<'_>, launch: usize, tensor: usize, is_after: bool) -> Option<String> {
        py.detach(|| self.0.elements(launch, tensor, is_after))
    }

    /// Returns how many programs read and write each element of a tensor, and the elements on which
    /// programs race.
    fn overlaps(&self, py: Python<'_>, launch: usize, tensor: usize) -> Option<String> {
        py.detach(|| self.0.overlaps(launch, tensor))
    }

    /// Returns the layouts of the kernel of a launch on a GPU of this compute capability (times
    /// 10). For a simulated launch, returns those of the code that ran.
    fn layouts(&self, py: Python<'_>, launch: usize, capability: u32) -> Option<String> {
        if let Some(simulation) = self.0.simulation(launch) {
            return Some(simulation.code.clone());
        }
        py.detach(|| Some(tilewright_runtime::layouts_of_launch(self.0.described(launch)?, capability)))
    }

    /// Returns the accesses to an element of a tensor.
    fn who(&self, py: Python<'_>, launch: usize, tensor: usize, place: u64) -> Option<String> {
        py.detach(|| self.0.element_accesses(launch, tensor, place))
    }
}
