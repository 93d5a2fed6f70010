//! Converts faults of a sanitized launch in the simulator to findings.

use tilewright_base::{Code, Diagnostic};
use tilewright_cpu::{Finding, Occurrence, OtherAccess};
use tilewright_sanitize::Check;
use tilewright_sim::{Fault, FaultKind};

use super::access::{FaultCandidates, MemoryAccess};
use super::span;
use crate::Handle;

/// Converts a recorded fault, which occurred `count` times, to a finding.
#[cold]
pub(crate) fn from_watch(fault: &Fault, count: u64, handle: &Handle) -> Finding {
    let sources = &handle.compiled.module.sources;
    let line = fault.location.as_ref().and_then(|location| span(sources, location));
    let find = |is_store: bool, address: u64, bytes: u32| {
        let target = MemoryAccess { is_store, address, bytes };
        let found = FaultCandidates::new(fault, handle, target);
        let element =
            found.argument.as_ref().map(|argument| (argument.name.clone(), argument.bad_element(target)));
        let name = match &element {
            Some((name, index)) => format!("`{name}[{index}]`"),
            None => format!("the memory at {address:#x}"),
        };
        (found, element, name)
    };
    let who = |block: [u32; 3], agent: &str| {
        let [x, y, z] = block;
        format!("program ({x}, {y}, {z}), {agent}")
    };
    let warp = format!("warp {}", fault.warp);
    let (diagnostic, element, other, check) = match &fault.kind {
        FaultKind::GlobalRace { address, bytes, first, block, is_atomic, is_write } => {
            let (found, element, name) = find(*is_write, *address, *bytes);
            let is_own = *block == fault.block;
            let what = if is_own { "threads of a program race" } else { "two programs race" };
            let does = if *is_write { "writes" } else { "reads" };
            let did = if first.is_write { "wrote" } else { "read" };
            let first_span = span(sources, &first.location);
            let mut diagnostic = found.locate(
                Diagnostic::new(Code::Race, format!("{what} for {name}")),
                line,
                &format!("{} {does} it here", who(fault.block, &warp)),
            );
            if let Some(span) = first_span {
                diagnostic =
                    diagnostic.secondary(span, format!("{} {did} it here", who(*block, &first.agent)));
            }
            let hint = match (is_own, is_atomic) {
                (true, _) => {
                    "put `tl.debug_barrier()` between the accesses, or write to other memory than is read"
                }
                (false, true) => {
                    "make both accesses atomic, or release after the first and acquire before the second"
                }
                (false, false) => {
                    "use an atomic operation (`tl.atomic_add`), let each program have elements of its own, or order the \
                     accesses: release after the first and acquire before the second"
                }
            };
            let diagnostic = diagnostic.note("nothing orders the two accesses").hint(hint);
            let other = OtherAccess { span: first_span, program: *block };
            (diagnostic, element, Some(other), Check::Race)
        }
        FaultKind::UnwrittenGlobal { address, bytes } => {
            let (found, element, name) = find(false, *address, *bytes);
            let message = format!("{name} is read, but was never written");
            let diagnostic = found
                .locate(Diagnostic::new(Code::Unwritten, message), line, "reads it here")
                .note("the memory comes from `torch.empty` or a similar function, and nothing has been stored to it since")
                .hint("allocate it with `torch.zeros`, or store to it before");
            (diagnostic, element, None, Check::Init)
        }
        kind => (Diagnostic::new(Code::DeviceFault, kind.to_string()), None, None, Check::Bounds),
    };
    let [x, y, z] = fault.block;
    let thread = fault.lane.map_or_else(String::new, |lane| format!(", lane {lane}"));
    let mut diagnostic = diagnostic.note(format!("in program ({x}, {y}, {z}), {warp}{thread}"));
    if let Some(location) = &fault.location {
        let instruction = fault.instruction.as_deref().unwrap_or_default();
        diagnostic = diagnostic.note(format!("at line {} of the PTX: {instruction}", location.ptx_line));
    }
    let place = std::iter::once(fault.warp).chain(fault.lane).collect();
    let racing = other.as_ref().map(|other| other.program);
    let occurrences = vec![Occurrence { program: fault.block, element: element.clone(), other: racing }];
    Finding { check, diagnostic, program: fault.block, lane: place, element, other, count, occurrences }
}
