//! Faults of a running kernel, and the diagnostics that they become.

use std::sync::Arc;

use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic, Span};
use tilewright_ir::Failure;

use crate::assembly::AssemblyFault;
use crate::program::{Program, Step};
use crate::run::argument::Argument;
use crate::run::value::Provenance;

/// The reason why a program of the grid stopped.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub kind: FaultKind,
    /// The index of the source position in [`Program::sites`], or `u32::MAX` until
    /// [`Fault::in_step`].
    pub site: u32,
    /// The coordinates of the element in the tile. Empty for a scalar, or if the fault has no
    /// element.
    pub lane: SmallVec<[u32; 4]>,
}

#[derive(Clone, Debug)]
pub(crate) enum FaultKind {
    OutOfBounds {
        is_store: bool,
        address: u64,
        size: usize,
        provenance: Provenance,
    },
    /// An atomic access to an address that is not a multiple of its size.
    Misaligned {
        address: u64,
        size: usize,
    },
    /// A gather index outside of the axis.
    IndexOutOfBounds {
        index: i32,
        extent: u32,
        axis: usize,
    },
    Assertion(Failure),
    /// The step of a `for` loop is 0.
    LoopStep,
    Assembly(AssemblyFault),
    OutOfMemory,
    Interrupted,
    /// The program stops because a program with a lower index has faulted.
    Superseded,
}

/// The outcome of a step. The boxed fault keeps it small.
pub(crate) type Outcome<T = ()> = Result<T, Box<Fault>>;

#[expect(clippy::unnecessary_box_returns, reason = "it becomes the error of a step")]
impl Fault {
    pub(crate) fn new(kind: FaultKind) -> Box<Self> {
        Box::new(Self { kind, site: u32::MAX, lane: SmallVec::new() })
    }

    #[must_use]
    pub(crate) fn at(mut self: Box<Self>, lane: SmallVec<[u32; 4]>) -> Box<Self> {
        self.lane = lane;
        self
    }

    /// Sets the step of the fault, unless an inner step has set it.
    #[must_use]
    pub(crate) fn in_step(mut self: Box<Self>, step: &Step) -> Box<Self> {
        if self.site == u32::MAX {
            self.site = step.site;
        }
        self
    }

    /// Returns the diagnostic of a fault in the program with the coordinates `id`. `name` returns
    /// the name of the argument with a given index.
    pub(crate) fn diagnostic(
        &self,
        program: &Program,
        arguments: &[Argument<'_>],
        name: &dyn Fn(usize) -> Arc<str>,
        id: [u32; 3],
    ) -> Diagnostic {
        let mut diagnostic = match &self.kind {
            FaultKind::OutOfBounds { is_store, address, size, provenance } => {
                let access = Access { is_store: *is_store, address: *address, size: *size, provenance: *provenance };
                self.out_of_bounds(program, (arguments, name), &access)
            }
            FaultKind::Misaligned { address, size } => self
                .located(
                    program,
                    Code::MisalignedAtomic,
                    format!("an atomic operation on {size} bytes at an address that is not a multiple of {size}"),
                    &format!("the address modulo {size} is {}", address % *size as u64),
                )
                .hint("pass an array whose memory is aligned to its elements"),
            FaultKind::Assertion(Failure::DivisionByZero) => self
                .located(program, Code::DivisionByZero, "integer division by zero", "the divisor is 0 here")
                .hint("keep the divisor away from 0, also where the result is not used: `tl.where(d == 0, 1, d)`"),
            FaultKind::Assertion(Failure::Assertion(message)) => {
                let text = format!("device assertion failed: {message}");
                self.located(program, Code::DeviceAssertFailed, text, "does not hold")
            }
            FaultKind::IndexOutOfBounds { index, extent, axis } => self
                .located(
                    program,
                    Code::IndexOutOfBounds,
                    format!("`gather` index {index} is out of bounds: axis {axis} has {extent} elements"),
                    &format!("the index has to be from 0 to {}", i64::from(*extent) - 1),
                )
                .hint("keep the index inside of the axis, also where the result is not used: `tl.where(mask, index, 0)`"),
            FaultKind::Assertion(failure @ Failure::IndexOutOfBounds(_)) => {
                self.located(program, Code::IndexOutOfBounds, failure.message(), "the index is outside here")
            }
            FaultKind::LoopStep => self
                .located(program, Code::InvalidLoop, "the step of a loop is zero", "this loop would never end")
                .hint("pass a step that is not 0"),
            FaultKind::Assembly(fault) => {
                let code = if fault.is_out_of_bounds { Code::OutOfBounds } else { Code::DeviceFault };
                self.located(program, code, format!("inline assembly stopped: {}", fault.message), "here")
            }
            FaultKind::OutOfMemory => {
                Diagnostic::new(Code::OutOfMemory, format!("not enough memory for the tiles of `{}`", program.name))
                    .hint("use smaller blocks, or fewer threads (`TILEWRIGHT_NUM_THREADS`)")
            }
            FaultKind::Interrupted | FaultKind::Superseded => {
                return Diagnostic::new(Code::Interrupted, format!("the kernel `{}` was interrupted", program.name));
            }
        };
        diagnostic = diagnostic.note(match self.lane[..] {
            [] => format!("in program {}", coordinates(&id)),
            _ => {
                format!("in program {}, at element {:?} of the tile", coordinates(&id), self.lane.as_slice())
            }
        });
        diagnostic
    }

    /// Returns a diagnostic at the span of the step, with labels at its call sites.
    fn located(&self, program: &Program, code: Code, message: impl Into<String>, label: &str) -> Diagnostic {
        let mut diagnostic = Diagnostic::new(code, message);
        let chain: &[Span] = program.sites.get(self.site as usize).map_or(&[], |site| site);
        if let Some((&innermost, callers)) = chain.split_first() {
            diagnostic = diagnostic.primary(innermost, label);
            for &caller in callers {
                diagnostic = diagnostic.secondary(caller, "called from here");
            }
        }
        diagnostic
    }

    fn out_of_bounds(
        &self,
        program: &Program,
        (arguments, name): (&[Argument<'_>], &dyn Fn(usize) -> Arc<str>),
        access: &Access,
    ) -> Diagnostic {
        let (verb, noun) = if access.is_store { ("writes", "store") } else { ("reads", "load") };
        let argument = access.provenance.index().and_then(|index| match arguments.get(index)? {
            Argument::Pointer { address, region } => Some((name(index), *address, region)),
            Argument::Scalar(_) => None,
        });
        let Some((name, base, region)) = argument else {
            let message = format!("{noun} outside of the memory of every argument");
            let label = format!("{verb} at address {:#x}", access.address);
            return self
                .located(program, Code::OutOfBounds, message, &label)
                .note("the pointer was cast from an integer, or derived from several arguments")
                .hint("derive the pointer from the argument whose memory it points into");
        };
        if access.is_store && !region.is_writable() && region.contains(access.address, access.size) {
            return self
                .located(
                    program,
                    Code::OutOfBounds,
                    format!("store to `{name}`, which may only be read"),
                    "writes here",
                )
                .note(format!("the memory of `{name}` is read-only: a numpy array that is not writeable, or a shared slice of Rust"))
                .hint("pass memory that may be written: `&mut` in Rust, `array.copy()` in Python");
        }
        let size = access.size as i64;
        let elements = |address: u64| address.wrapping_sub(base) as i64;
        let offset = elements(access.address).div_euclid(size);
        let first = elements(region.address()).div_euclid(size);
        let last = elements(region.address().wrapping_add(region.len() as u64)).div_euclid(size);
        let message = format!("{noun} out of bounds of `{name}`");
        let label = format!("{verb} element {offset} of `{name}`");
        let bounds = if first == last {
            format!("`{name}` has no elements")
        } else {
            format!("`{name}` has the elements {first} to {} ({} bytes)", last - 1, region.len())
        };
        let diagnostic = self
            .located(program, Code::OutOfBounds, message, &label)
            .note(format!("{bounds}; the offset in elements is {offset}"));
        if let Some((note, hint)) = wrapped_offset(offset, last) {
            return diagnostic.note(note).hint(hint);
        }
        diagnostic.hint(mask_advice(noun, offset < first))
    }
}

/// Returns advice on the mask of an out-of-bounds access, `load` or `store`. `is_before` is true if
/// the access is before the start of the tensor.
pub fn mask_advice(access: &str, is_before: bool) -> String {
    let place = if is_before {
        "the offset is less than that of the first element"
    } else {
        "the tile extends past the end of the tensor"
    };
    format!("mask the access, `tl.{access}(…, mask=…)`, where {place}")
}

/// Returns a note and a hint if 32-bit arithmetic may have wrapped. It may have wrapped if an
/// offset is far below 0, or far above `last`. Both offsets are in elements. `last` is the offset
/// at which the memory ends.
pub fn wrapped_offset(offset: i64, last: i64) -> Option<(String, &'static str)> {
    const HINT: &str = "compute it in 64 bits, before it is multiplied: `row.to(tl.int64) * stride`";
    if offset < -(1 << 20) {
        let unwrapped = offset + (1 << 32);
        return Some((
            format!("int32 wraps at 2147483647: in 64 bits the offset may have been {unwrapped}"),
            HINT,
        ));
    }
    (offset - last > 1 << 28).then(|| {
        let note = "int32 wraps at 2147483647: in 64 bits the offset may have been different";
        (note.to_owned(), HINT)
    })
}

struct Access {
    is_store: bool,
    address: u64,
    size: usize,
    provenance: Provenance,
}

fn coordinates(id: &[u32; 3]) -> String {
    format!("({}, {}, {})", id[0], id[1], id[2])
}
