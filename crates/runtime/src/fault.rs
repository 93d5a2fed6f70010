//! Converts faults on a GPU, real or simulated, to errors of a launch.

mod access;
mod hang;
mod watched;

use tilewright_base::{Code, Diagnostic, SourceMap, Span};
use tilewright_cuda as cuda;
use tilewright_ir::{Failure, Op};
use tilewright_sim::{Fault, FaultKind, Location, Space};

use crate::error::OutOfResources;
use crate::{Error, Handle};
use access::{FaultCandidates, MemoryAccess, called, on_line};
pub(crate) use watched::from_watch;

/// Converts a fault of the simulator to an error, which points to the access or to the line of the
/// instruction.
#[cold]
pub(crate) fn from_fault(fault: &Fault, handle: &Handle) -> Error {
    let sources = &handle.compiled.module.sources;
    let line = fault.location.as_ref().and_then(|location| span(sources, location));
    let find = |target: MemoryAccess| (FaultCandidates::new(fault, handle, target), target);
    let mut diagnostic = match fault.kind {
        FaultKind::OutOfBounds { space: Space::Global, is_store, address, bytes, nearest } => {
            let (found, target) = find(MemoryAccess { is_store, address, bytes });
            let nearest = nearest.and_then(|(number, distance)| {
                Some((handle.pointer_names().into_iter().nth(number)?, distance))
            });
            out_of_bounds(&found, target, line, nearest)
        }
        FaultKind::ReadOnly { address } => {
            let (found, _) = find(MemoryAccess { is_store: true, address, bytes: 1 });
            read_only(&found, line)
        }
        FaultKind::Misaligned { space: Space::Global, is_store, address, alignment } => {
            let (found, target) = find(MemoryAccess { is_store, address, bytes: alignment });
            let is_in = |&(start, len): &(u64, usize)| address.wrapping_sub(start) < len as u64;
            if found.argument.is_none() && !fault.regions.iter().any(is_in) {
                out_of_bounds(&found, target, line, None)
            } else {
                misaligned(&found, target, line)
            }
        }
        FaultKind::Trap => match loop_without_end(fault, handle) {
            Some(chain) => {
                let diagnostic = Diagnostic::new(Code::InvalidLoop, "the step of a loop is zero");
                called(diagnostic, &chain, "this loop would never end").hint("pass a step that is not 0")
            }
            None => other(fault, handle, line),
        },
        _ => other(fault, handle, line),
    };
    if let FaultKind::Deadlock { waiting } = &fault.kind {
        diagnostic = hang::notes(waiting, handle).into_iter().fold(diagnostic, Diagnostic::note);
    }
    let [x, y, z] = fault.block;
    let thread = fault.lane.map_or_else(String::new, |lane| format!(", lane {lane}"));
    diagnostic = diagnostic.note(format!("in program ({x}, {y}, {z}), warp {}{thread}", fault.warp));
    if let Some(location) = &fault.location {
        let instruction = fault.instruction.as_deref().unwrap_or_default();
        diagnostic = diagnostic.note(format!("at line {} of the PTX: {instruction}", location.ptx_line));
    }
    Error::new(diagnostic, SourceMap::clone(sources))
}

/// Describes a fault that is not about global memory.
fn other(fault: &Fault, handle: &Handle, line: Option<Span>) -> Diagnostic {
    let code = code(&fault.kind);
    let diagnostic = Diagnostic::new(code, message(fault, code));
    match check(fault, handle, code) {
        Some(chain) => called(diagnostic, &chain, ""),
        None => line.into_iter().fold(diagnostic, |diagnostic, line| diagnostic.primary(line, "")),
    }
}

/// Returns the span of the loop whose step is zero, and the spans of the calls that it was inlined
/// through.
///
/// The compiler emits traps only for such loops. Returns `None` if the line has inline assembly,
/// which may also trap, or if the loop is not unique.
fn loop_without_end(fault: &Fault, handle: &Handle) -> Option<Vec<Span>> {
    let is_assembly = |op: &Op| matches!(op, Op::InlineAsm { .. } | Op::VolatileAsm { .. });
    if on_line(fault, handle, is_assembly).next().is_some() {
        return None;
    }
    let mut chains = on_line(fault, handle, |op| matches!(op, Op::For { .. })).map(|(_, chain)| chain);
    let first = chains.next()?;
    chains.all(|chain| chain == first).then_some(first)
}

/// Returns the span of the failed assertion, and the spans of the calls that it was inlined
/// through. Returns `None` if the fault is not an assertion, or if the line has no unique assertion
/// with `code`.
fn check(fault: &Fault, handle: &Handle, code: Code) -> Option<Vec<Span>> {
    let FaultKind::Assertion { .. } = fault.kind else { return None };
    let is_wanted = move |op: &Op| matches!(op, Op::Assert { failure } if code_of(failure) == code);
    let mut chains = on_line(fault, handle, is_wanted).map(|(_, chain)| chain);
    let first = chains.next()?;
    chains.all(|chain| chain == first).then_some(first)
}

fn code_of(failure: &Failure) -> Code {
    match failure {
        Failure::Assertion(_) => Code::DeviceAssertFailed,
        Failure::DivisionByZero => Code::DivisionByZero,
        Failure::IndexOutOfBounds(_) => Code::IndexOutOfBounds,
    }
}

/// Returns the diagnostic code for a fault that is not about global memory.
fn code(kind: &FaultKind) -> Code {
    match kind {
        // Checks of divisors and indices are assertions, too. They differ by the message.
        FaultKind::Assertion { message, .. } if message == Code::DivisionByZero.title() => {
            Code::DivisionByZero
        }
        FaultKind::Assertion { message, .. } if is_of_index(message) => Code::IndexOutOfBounds,
        FaultKind::Assertion { .. } => Code::DeviceAssertFailed,
        FaultKind::Cancelled { .. } => Code::Interrupted,
        _ => Code::DeviceFault,
    }
}

/// Returns whether `message` is the message of a failed check of an index.
fn is_of_index(message: &str) -> bool {
    let numbers = message.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
    numbers.into_iter().any(|extent| message == Failure::IndexOutOfBounds(extent).message())
}

fn message(fault: &Fault, code: Code) -> String {
    match &fault.kind {
        FaultKind::Assertion { message, .. } if code != Code::DeviceAssertFailed => message.clone(),
        FaultKind::Assertion { message, .. } => format!("device assertion failed: {message}"),
        kind => format!("kernel `{}`: {kind}", fault.kernel),
    }
}

/// Returns the noun and the verb for an access in messages.
fn words(target: MemoryAccess) -> (&'static str, &'static str) {
    if target.is_store { ("store", "writes") } else { ("load", "reads") }
}

/// Describes an access out of bounds, if possible with the text of the CPU's executor.
fn out_of_bounds(
    found: &FaultCandidates,
    target: MemoryAccess,
    line: Option<Span>,
    nearest: Option<(String, i64)>,
) -> Diagnostic {
    let (noun, verb) = words(target);
    let mask = |is_before: bool| tilewright_cpu::mask_advice(noun, is_before);
    if let Some(argument) = &found.argument {
        let (name, offset) = (&argument.name, argument.bad_element(target));
        let diagnostic = Diagnostic::new(Code::OutOfBounds, format!("{noun} out of bounds of `{name}`"));
        let diagnostic = found
            .locate(diagnostic, line, &format!("{verb} element {offset} of `{name}`"))
            .note(format!("{}; the offset in elements is {offset}", argument.bounds()));
        return match tilewright_cpu::wrapped_offset(offset, argument.end_element()) {
            Some((note, hint)) => diagnostic.note(note).hint(hint),
            None => diagnostic.hint(mask(offset < argument.first_element())),
        };
    }
    let is_null = target.address < NULL_PAGE;
    let place = if is_null { "a null pointer" } else { "outside of the memory of every argument" };
    let message = format!("{noun} {}{place}", if is_null { "through " } else { "" });
    let label = format!("{verb} at address {:#x}", target.address);
    let diagnostic = found.locate(Diagnostic::new(Code::OutOfBounds, message), line, &label);
    if !found.candidates.is_empty() {
        let names: Vec<_> = found.candidates.iter().map(|name| format!("`{name}`")).collect();
        let names = names.join(" or ");
        return diagnostic
            .note(format!("the line {verb} through {names}; the address is near none of them"))
            .hint(mask(false));
    }
    match nearest {
        Some((name, distance)) if distance < 0 => {
            let before = distance.unsigned_abs();
            diagnostic.note(format!("it begins {before} bytes before the memory of `{name}`"))
        }
        Some((name, distance)) => {
            diagnostic.note(format!("it reaches {distance} bytes beyond the memory of `{name}`"))
        }
        None => diagnostic.note("the pointer was cast from an integer, or derived from several arguments"),
    }
    .hint("derive the pointer from the argument whose memory it points into")
}

fn read_only(found: &FaultCandidates, line: Option<Span>) -> Diagnostic {
    let (what, whose) = match &found.argument {
        Some(argument) => (format!("`{}`,", argument.name), format!("the memory of `{}`", argument.name)),
        None => ("memory".into(), "the memory".into()),
    };
    let diagnostic = Diagnostic::new(Code::OutOfBounds, format!("store to {what} which may only be read"));
    found
        .locate(diagnostic, line, "writes here")
        .note(format!("{whose} is read-only: a numpy array that is not writeable, or a shared slice of Rust"))
        .hint("pass memory that may be written: `&mut` in Rust, `array.copy()` in Python")
}

fn misaligned(found: &FaultCandidates, target: MemoryAccess, line: Option<Span>) -> Diagnostic {
    let (noun, verb) = words(target);
    let MemoryAccess { address, bytes, .. } = target;
    let (of, what, hint) = match &found.argument {
        None => (String::new(), format!("address {address:#x}"), PROMISES.to_owned()),
        Some(argument) => {
            let (name, size) = (&argument.name, argument.element_bytes());
            let hint = if argument.is_aligned(size as u32) {
                PROMISES.to_owned()
            } else {
                format!("pass memory that begins at a multiple of {size} bytes, as a copy of the array does")
            };
            (format!(" of `{name}`"), format!("element {} of `{name}`", argument.bad_element(target)), hint)
        }
    };
    let diagnostic = Diagnostic::new(Code::DeviceFault, format!("misaligned {noun}{of}"));
    found
        .locate(diagnostic, line, &format!("{verb} {bytes} bytes at {what}"))
        .note(format!("the address, {address:#x}, is no multiple of {bytes}"))
        .hint(hint)
}

/// An access below this address counts as an access through a null pointer with a small offset.
const NULL_PAGE: u64 = 4096;

/// The hint for an address that is less aligned than the compiler assumed.
const PROMISES: &str = "the kernel computes the address: check the promises of `tl.multiple_of` and `tl.max_contiguous`, and casts to \
     pointers of wider types";

/// Returns the span of the source line that an instruction comes from, without the indentation of
/// the line; `None` if the line is unknown.
fn span(sources: &SourceMap, location: &Location) -> Option<Span> {
    let (name, line) = location.kernel.as_ref()?;
    sources.files().filter(|(_, file)| file.name == *name).find_map(|(id, file)| {
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
    })
}

impl From<cuda::Error> for Error {
    #[cold]
    fn from(error: cuda::Error) -> Self {
        match &error {
            cuda::Error::OutOfSharedMemory { dynamic, fixed, limit, .. } => {
                let required = u64::from(*dynamic) + u64::from(*fixed);
                Error::OutOfResources(OutOfResources {
                    required,
                    limit: (*limit).into(),
                    name: "shared memory",
                })
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
}
