//! What goes wrong on a GPU, real or simulated, as errors of a launch.

use tilewright_base::{Code, Diagnostic, SourceMap, Span};
use tilewright_cuda as cuda;
use tilewright_sim::{Fault, FaultKind, Location};

use crate::error::OutOfResources;
use crate::{Error, Handle};

/// A fault that the simulator has found, at its line of the kernel.
#[cold]
pub(crate) fn from_fault(fault: &Fault, handle: &Handle) -> Error {
    let sources = &handle.compiled.module.sources;
    let code = match &fault.kind {
        FaultKind::OutOfBounds { .. } | FaultKind::ReadOnly { .. } => Code::OutOfBounds,
        // The compiler asserts divisors as a program asserts anything else.
        FaultKind::Assertion { message, .. } if message == Code::DivisionByZero.title() => {
            Code::DivisionByZero
        }
        FaultKind::Assertion { .. } => Code::DeviceAssertFailed,
        FaultKind::Cancelled => Code::Interrupted,
        _ => Code::DeviceFault,
    };
    let mut diagnostic = Diagnostic::new(code, message(fault, code));
    if let Some(span) = fault.location.as_ref().and_then(|location| span(sources, location)) {
        diagnostic = diagnostic.primary(span, "");
    }
    if let FaultKind::OutOfBounds { nearest: Some((number, distance)), .. } = &fault.kind
        && let Some(name) = handle.pointer_names().get(*number)
    {
        diagnostic = diagnostic.note(if *distance < 0 {
            format!("it begins {} bytes before the memory of `{name}`", distance.unsigned_abs())
        } else {
            format!("it reaches {distance} bytes beyond the memory of `{name}`")
        });
    }
    let [x, y, z] = fault.block;
    let lane = fault.lane.map_or_else(String::new, |lane| format!(", lane {lane}"));
    diagnostic = diagnostic.note(format!("in program ({x}, {y}, {z}), warp {}{lane}", fault.warp));
    if let Some(location) = &fault.location {
        let instruction = fault.instruction.as_deref().unwrap_or_default();
        diagnostic = diagnostic.note(format!("at line {} of the PTX: {instruction}", location.ptx_line));
    }
    Error::new(diagnostic, SourceMap::clone(sources))
}

fn message(fault: &Fault, code: Code) -> String {
    match &fault.kind {
        FaultKind::Assertion { message, .. } if code == Code::DivisionByZero => message.clone(),
        FaultKind::OutOfBounds { is_store, bytes, .. } => {
            format!("{} of {bytes} bytes out of bounds", if *is_store { "store" } else { "load" })
        }
        FaultKind::Assertion { message, .. } => format!("device assertion failed: {message}"),
        kind => format!("kernel `{}`: {kind}", fault.kernel),
    }
}

/// The text of the line that an instruction comes from.
fn span(sources: &SourceMap, location: &Location) -> Option<Span> {
    let (name, line) = location.kernel.as_ref()?;
    let (id, file) = sources.files().find(|(_, file)| file.name == *name)?;
    let mut start = 0;
    for (number, text) in (file.first_line..).zip(file.text.split_inclusive('\n')) {
        if number == *line {
            let indentation = text.len() - text.trim_start().len();
            let end = start + text.trim_end().len();
            return Some(Span::new(id, (start + indentation) as u32, end as u32));
        }
        start += text.len();
    }
    None
}

/// An error of the driver.
#[cold]
pub(crate) fn from_cuda(error: &cuda::Error) -> Error {
    match error {
        cuda::Error::OutOfSharedMemory { dynamic, fixed, limit, .. } => {
            let required = u64::from(*dynamic) + u64::from(*fixed);
            Error::OutOfResources(OutOfResources { required, limit: (*limit).into(), name: "shared memory" })
        }
        cuda::Error::InvalidBlock { threads, limit, .. } => {
            let required = threads.iter().map(|&count| u64::from(count)).product();
            Error::OutOfResources(OutOfResources { required, limit: (*limit).into(), name: "threads" })
        }
        cuda::Error::Assembler { .. } => Error::Assembler(error.to_string()),
        cuda::Error::GridTooLarge { .. } => Diagnostic::new(Code::InvalidGrid, error.to_string()).into(),
        _ if error.is_unavailable() => Diagnostic::new(Code::NoDevice, error.to_string()).into(),
        _ => Diagnostic::new(Code::DeviceFault, error.to_string()).into(),
    }
}
