//! Records traces of interpreted kernels. Python reports each op and each event.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tilewright_trace::{
    Batch, File, Kind, Launch, Limits, Op, Parameter, Recording, Role, SourceRange, ValueInfo,
};

use crate::trace::{TensorParts, TraceRecorder, tensor};

/// The index of the parameter to which pointers are relative, and the bytes of the elements. An
/// unknown part is `None`.
type Recorded = (Option<usize>, Option<Vec<u8>>);

/// An execution of an op by a program.
struct Event {
    op: u32,
    values: Vec<Recorded>,
    nanoseconds: u64,
}

#[derive(Default)]
struct Content {
    ops: Vec<Op>,
    /// The events, by program.
    events: BTreeMap<u64, Vec<Event>>,
    last: u64,
}

/// The events of the programs of an interpreted kernel, until they are written.
#[pyclass(frozen, module = "tilewright._native")]
#[derive(Default)]
pub(crate) struct InterpretedTrace(Mutex<Content>);

#[pymethods]
impl InterpretedTrace {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Adds an op, and returns its index.
    ///
    /// Each of `places` is a source range: file, line, column, end line and end column. Each of
    /// `values` describes a value of the op: role, element type, bytes of an element and extents.
    /// The pointer and the mask are the first values.
    fn add_op(
        &self,
        name: String,
        kind: &str,
        places: Vec<(u32, u32, u32, u32, u32)>,
        values: Vec<(String, String, u32, Vec<u32>)>,
    ) -> PyResult<u32> {
        let unknown = |name: &str| {
            PyValueError::new_err(format!("'{name}' is neither a kind of op nor a role of a value"))
        };
        let kind = Kind::parse(kind).ok_or_else(|| unknown(kind))?;
        let place = |(file, line, column, end_line, end_column)| SourceRange {
            file,
            line,
            column,
            end_line,
            end_column,
        };
        let value = |(role, dtype, size, shape): (String, String, u32, Vec<u32>)| {
            let role = Role::parse(&role).ok_or_else(|| unknown(&role))?;
            Ok(ValueInfo { role, dtype, size, shape })
        };
        let values = values.into_iter().map(value).collect::<PyResult<Vec<_>>>()?;
        let places = places.into_iter().map(place).collect();
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        content.ops.push(Op { name, kind, parent: None, places, values });
        Ok(content.ops.len() as u32 - 1)
    }

    /// Adds an event: a program has executed an op. The bytes of pointers are their addresses.
    fn add_event(
        &self,
        program: u64,
        op: u32,
        values: Vec<(Option<usize>, Option<Bound<'_, PyBytes>>)>,
        nanoseconds: u64,
    ) {
        let value = |(parameter, bytes): (Option<usize>, Option<Bound<'_, PyBytes>>)| {
            (parameter, bytes.map(|bytes| bytes.as_bytes().to_vec()))
        };
        let values = values.into_iter().map(value).collect();
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        content.last = program;
        content.events.entry(program).or_default().push(Event { op, values, nanoseconds });
    }

    /// Writes the launch with all its events to a recorder.
    #[expect(clippy::too_many_arguments, reason = "they are passed by keyword")]
    #[pyo3(signature = (recorder, *, number, kernel, grid, programs, value_bytes, all_bytes, files, parameters, tensors, constants, nanoseconds, failure))]
    fn write(
        &self,
        recorder: &TraceRecorder,
        number: u32,
        kernel: String,
        grid: (u32, u32, u32),
        programs: u64,
        value_bytes: u64,
        all_bytes: u64,
        files: Vec<(String, String, u32)>,
        parameters: Vec<(String, String, u64)>,
        tensors: Vec<TensorParts>,
        constants: Vec<(String, String)>,
        nanoseconds: u64,
        failure: &str,
    ) -> PyResult<()> {
        let content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut launch = Launch {
            kernel,
            grid: [grid.0, grid.1, grid.2],
            every: 1,
            interpreted: true,
            files: files
                .into_iter()
                .map(|(name, text, first_line)| File { name, text, first_line })
                .collect(),
            parameters: parameters
                .into_iter()
                .map(|(name, dtype, bits)| Parameter { name, dtype, bits })
                .collect(),
            tensors: tensors.into_iter().map(tensor).collect(),
            constants,
            ops: content.ops.clone(),
            ..Launch::default()
        };
        launch.every = launch.programs().div_ceil(programs.max(1)).max(1);
        let limits = Limits { programs, value_bytes, bytes: all_bytes };
        let recording = Recording::begin(&recorder.recorder, number, &launch, limits);
        {
            let mut batch = recording.batch();
            for (&program, events) in &content.events {
                batch.begin(program);
                for event in events {
                    record(&mut batch, &launch, event);
                }
                let took = events.iter().map(|event| event.nanoseconds).sum();
                batch.end(took, !failure.is_empty() && program == content.last);
            }
        }
        recording.end(nanoseconds, (!failure.is_empty()).then_some(failure));
        recorder.failure()
    }
}

/// Appends an event to the batch of a program.
///
/// A batch without values gets only the pointers and masks of accesses.
fn record(batch: &mut Batch<'_>, launch: &Launch, event: &Event) {
    let Some(op) = launch.ops.get(event.op as usize) else { return };
    let has_values = batch.has_values();
    if !has_values && !op.kind.is_access() || !batch.event(event.op) {
        return;
    }
    for (info, (parameter, bytes)) in op.values.iter().zip(&event.values) {
        let is_pointer = info.role == Role::Pointer;
        if !has_values && !is_pointer && info.role != Role::Mask {
            continue;
        }
        if is_pointer {
            batch.relative_to(*parameter);
        }
        match bytes {
            Some(bytes) if bytes.len() != info.elements() * info.size as usize => batch.absent(),
            Some(bytes) if is_pointer => {
                let base = parameter.and_then(|parameter| launch.parameters.get(parameter));
                let base = base.map_or(0, |base| base.bits);
                let address =
                    |part: &[u8]| part.iter().rev().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
                let offset = |part: &[u8]| address(part).wrapping_sub(base).cast_signed();
                batch.pointers(bytes.chunks_exact(8).map(offset));
            }
            Some(bytes) if info.dtype == "int1" => batch.bits(bytes),
            Some(bytes) => batch.elements(bytes),
            None => batch.absent(),
        }
    }
    if has_values {
        batch.end_event(event.nanoseconds);
    }
}
