//! Reads a trace: its launches, programs and events, and the elements of values.

use std::fmt;
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::bytes::Decoder;
use crate::finding::Finding;
use crate::model::{Launch, Role, Simulation, Tensor, ValueInfo};
use crate::write::{CUT_SHORT, MAGIC, STOPPED, WITH_VALUES};

/// A recorded trace.
#[derive(Debug)]
pub struct Trace {
    bytes: Vec<u8>,
    /// The launches, indexed by their numbers.
    pub launches: Vec<LaunchTrace>,
}

/// The record of one launch.
#[derive(Debug, Default)]
pub struct LaunchTrace {
    /// The description of the launch.
    pub launch: Launch,
    /// The duration of the launch.
    pub nanoseconds: u64,
    /// The diagnostic of a failed launch. The text is empty if the launch did not fail.
    pub failure: String,
    /// The names of the sanitizer's checks, separated by commas. The text is empty if the launch
    /// was not sanitized.
    pub checks: String,
    /// The findings of the sanitizer.
    pub findings: Vec<Finding>,
    /// The facts about a simulated launch; none for a launch on the CPU.
    pub simulation: Option<Simulation>,
    /// The recorded programs, sorted by number.
    pub programs: Vec<Program>,
    /// The start and the length in bytes of recorded elements. The keys are the tensor and the
    /// phase (0 before, 1 after the launch).
    snapshots: FxHashMap<(u32, u32), (usize, usize)>,
}

/// A program of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The linear index of the program, x varying fastest.
    pub number: u64,
    flags: u64,
    /// The duration of the program.
    pub nanoseconds: u64,
    start: usize,
    length: usize,
}

impl Program {
    /// Returns whether the values of the program were recorded.
    pub fn has_values(&self) -> bool {
        self.flags & WITH_VALUES != 0
    }

    /// Returns whether the recording dropped events or values of the program.
    pub fn is_cut_short(&self) -> bool {
        self.flags & CUT_SHORT != 0
    }

    /// Returns whether the program failed or was interrupted at its last event.
    pub fn has_stopped(&self) -> bool {
        self.flags & STOPPED != 0
    }
}

/// The error for a file that is not a valid trace.
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be read.
    Io(std::io::Error),
    /// The file is not a trace, or it is damaged.
    Malformed(&'static str),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => error.fmt(f),
            ReadError::Malformed(what) => f.write_str(what),
        }
    }
}

/// An event of a program.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// The index of the op in [`Launch::ops`].
    pub op: u32,
    /// The forms of the op's values. In a program without values, these are only the forms of
    /// pointers and masks.
    pub values: Vec<Form<'a>>,
    /// The duration of the event. It is 0 if the duration is unknown.
    pub nanoseconds: u64,
}

/// The encoding of a value's elements.
#[derive(Clone, PartialEq, Debug)]
pub enum Form<'a> {
    /// The elements were not recorded.
    Absent,
    /// All elements have these bits.
    Uniform(u64),
    /// The element at `index` is `base + Σ strides[axis] * index[axis]`. The fields are `base` and
    /// `strides`.
    Affine(i64, Vec<i64>),
    /// Booleans that are true inside a box. The box has a range of indices for each axis.
    Box(Vec<(u32, u32)>),
    /// The elements in row-major order.
    Dense(&'a [u8]),
    /// Booleans with one bit each.
    Bits(&'a [u8]),
    /// Pointers. If the first field is the index of a parameter, the second field contains byte
    /// offsets from this parameter. If the first field is `None`, the second field contains
    /// addresses.
    Pointers(Option<u32>, Offsets<'a>),
}

/// The encoding of pointers, which are either byte offsets from a parameter or addresses.
#[derive(Clone, PartialEq, Debug)]
pub enum Offsets<'a> {
    /// All offsets are equal.
    Uniform(i64),
    /// The offset at `index` is `base + Σ strides[axis] * index[axis]`. The fields are `base` and
    /// `strides`.
    Affine(i64, Vec<i64>),
    /// Offsets of 8 bytes each.
    Wide(&'a [u8]),
    /// Signed offsets of 4 bytes each.
    Narrow(&'a [u8]),
}

/// Other threads may have begun this many launches whose chunks are not written yet.
const MAX_PENDING_LAUNCHES: usize = 4096;

/// The budget of a query is this number plus `LANES_PER_BYTE` for each byte of the file.
/// [`Budget::charge`] subtracts the cost of an access, which grows with its lanes.
///
/// A short event may describe a tile with millions of elements.
const LANES: u64 = 1 << 26;
const LANES_PER_BYTE: u64 = 64;

/// The unused part of a query's budget.
#[derive(Debug)]
pub(crate) struct Budget(u64);

impl Budget {
    /// Subtracts the cost of comparing an access to tensors. Returns false if the budget is too
    /// small.
    pub fn charge(&mut self, launch: &Launch, event: &Event<'_>, tensors: &[Tensor]) -> bool {
        let Some(op) = launch.ops.get(event.op as usize) else { return true };
        let lanes = op.values.first().map_or(0, ValueInfo::elements) as u64;
        let each = tensors.iter().map(|tensor| 1 + tensor.shape.len() as u64).sum::<u64>();
        let left = self.0.checked_sub(lanes.saturating_mul(1 + each));
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

impl Trace {
    /// Returns the budget of a query over all events. The budget grows with the size of the file.
    pub(crate) fn budget(&self) -> Budget {
        Budget(LANES + LANES_PER_BYTE * self.bytes.len() as u64)
    }

    /// Returns the description of the launch with this number.
    pub fn described(&self, number: usize) -> Option<&Launch> {
        self.launches.get(number).map(|traced| &traced.launch)
    }

    /// Returns the facts about the launch with this number, if a simulated GPU ran it.
    pub fn simulation(&self, number: usize) -> Option<&Simulation> {
        self.launches.get(number)?.simulation.as_ref()
    }

    /// Reads a trace file.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::new(std::fs::read(path).map_err(ReadError::Io)?)
    }

    /// Parses the content of a trace file.
    pub fn new(bytes: Vec<u8>) -> Result<Self, ReadError> {
        let wrong = ReadError::Malformed("this is not a tilewright trace, or it has another version");
        if !bytes.starts_with(MAGIC) {
            return Err(wrong);
        }
        let mut launches: Vec<LaunchTrace> = Vec::new();
        let (mut at, mut chunks) = (MAGIC.len(), 0);
        // The last chunk is incomplete if the writer was interrupted.
        while let Some(head) = bytes.get(at..at + 12) {
            let length = head[4..].iter().rev().fold(0_u64, |length, &byte| length << 8 | u64::from(byte));
            let start = at + 12;
            let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
            let Some(payload) = end.and_then(|end| bytes.get(start..end)) else { break };
            let damaged = || ReadError::Malformed("the trace is damaged");
            chunks += 1;
            chunk(&head[..4], payload, start, chunks + MAX_PENDING_LAUNCHES, &mut launches)
                .ok_or_else(damaged)?;
            at = start + payload.len();
        }
        for launch in &mut launches {
            launch.programs.sort_by_key(|program| program.number);
            launch.programs.dedup_by_key(|program| program.number);
        }
        Ok(Self { bytes, launches })
    }

    /// Returns the events of a program.
    pub fn events(&self, launch: &LaunchTrace, program: &Program) -> Vec<Event<'_>> {
        let mut events = Vec::new();
        self.each_event(launch, program, &mut |event| events.push(event));
        events
    }

    /// Calls a function with each event of a program. Stops at the first malformed event.
    pub fn each_event<'a>(
        &'a self,
        launch: &LaunchTrace,
        program: &Program,
        each: &mut dyn FnMut(Event<'a>),
    ) {
        let mut from = Decoder(&self.bytes[program.start..program.start + program.length]);
        while !from.0.is_empty() {
            let Some(event) = event(&launch.launch, program, &mut from) else { return };
            each(event);
        }
    }

    /// Returns the elements of a tensor before or after a launch, if they were recorded.
    pub fn snapshot(&self, launch: &LaunchTrace, tensor: u32, is_after: bool) -> Option<&[u8]> {
        let &(start, length) = launch.snapshots.get(&(tensor, is_after.into()))?;
        self.bytes.get(start..start + length)
    }
}

/// Reads a chunk. Returns `None` if the chunk is malformed, or if its launch number exceeds `most`.
fn chunk(
    tag: &[u8],
    payload: &[u8],
    start: usize,
    most: usize,
    launches: &mut Vec<LaunchTrace>,
) -> Option<()> {
    let mut from = Decoder(payload);
    let known = [b"LNCH", b"TENS", b"PROG", b"FIND", b"SIMU", b"DONE"];
    if !known.iter().any(|known| *known == tag) {
        return Some(());
    }
    let number = from.size()?;
    if number > most {
        return None;
    }
    if launches.len() <= number {
        launches.resize_with(number + 1, LaunchTrace::default);
    }
    let launch = &mut launches[number];
    let place = |from: &Decoder<'_>| start + payload.len() - from.0.len();
    match tag {
        b"LNCH" => launch.launch = Launch::decode(&mut from)?,
        b"TENS" => {
            let key = (from.small()?, from.small()?);
            launch.snapshots.insert(key, (place(&from), from.0.len()));
        }
        b"PROG" => {
            while !from.0.is_empty() {
                let (number, flags) = (from.number()?, from.number()?);
                let (nanoseconds, length) = (from.number()?, from.size()?);
                launch.programs.push(Program { number, flags, nanoseconds, start: place(&from), length });
                from.bytes(length)?;
            }
        }
        b"FIND" => (launch.checks, launch.findings) = (from.text()?, from.list(Finding::decode)?),
        b"SIMU" => {
            let (device, warps, code) = (from.text()?, from.small()?, from.text()?);
            launch.simulation = Some(Simulation { device, warps, code });
        }
        _ => (launch.nanoseconds, launch.failure) = (from.number()?, from.text()?),
    }
    Some(())
}

fn event<'a>(launch: &Launch, program: &Program, from: &mut Decoder<'a>) -> Option<Event<'a>> {
    let number = from.small()?;
    let op = launch.ops.get(number as usize)?;
    let mut values = Vec::new();
    // [`Launch::decode`] checks that an op lists pointers and masks first. So the loop visits only
    // values of the event, each of at least one byte.
    for value in op.values.iter().take_while(|value| program.has_values() || is_pointer_or_mask(value)) {
        values.push(form(value, from)?);
    }
    let nanoseconds = if program.has_values() { from.number()? } else { 0 };
    Some(Event { op: number, values, nanoseconds })
}

/// Returns whether a value is the pointer or the mask of an access.
pub(crate) fn is_pointer_or_mask(value: &ValueInfo) -> bool {
    matches!(value.role, Role::Pointer | Role::Mask)
}

fn form<'a>(value: &ValueInfo, from: &mut Decoder<'a>) -> Option<Form<'a>> {
    let is_pointer = value.role == Role::Pointer;
    let base = if is_pointer { from.small()?.checked_sub(1) } else { None };
    let rank = value.shape.len();
    let strides = |from: &mut Decoder<'a>| (0..rank).map(|_| from.signed()).collect::<Option<Vec<i64>>>();
    let pointers = |offsets| Some(Form::Pointers(base, offsets));
    match (from.byte()?, is_pointer) {
        (0, _) => Some(Form::Absent),
        (1, true) => pointers(Offsets::Uniform(from.number()? as i64)),
        (1, false) => from.number().map(Form::Uniform),
        (2, true) => pointers(Offsets::Affine(from.signed()?, strides(from)?)),
        (2, false) => Some(Form::Affine(from.signed()?, strides(from)?)),
        (3, _) => {
            (0..rank).map(|_| Some((from.small()?, from.small()?))).collect::<Option<_>>().map(Form::Box)
        }
        (4, _) => from.bytes(value.elements().checked_mul(value.size as usize)?).map(Form::Dense),
        (5, _) => pointers(Offsets::Wide(from.bytes(value.elements().checked_mul(8)?)?)),
        (6, _) => pointers(Offsets::Narrow(from.bytes(value.elements().checked_mul(4)?)?)),
        (7, _) => from.bytes(value.elements().div_ceil(8)).map(Form::Bits),
        _ => None,
    }
}

/// Returns the elements of an affine form in row-major order.
fn affine_elements(shape: &[u32], base: i64, strides: &[i64]) -> Vec<u64> {
    let mut elements = vec![base];
    for (&extent, &stride) in shape.iter().zip(strides) {
        let steps = (0..i64::from(extent)).map(|index| stride.wrapping_mul(index));
        elements = elements.iter().flat_map(|at| steps.clone().map(|step| at.wrapping_add(step))).collect();
    }
    elements.into_iter().map(|element| element as u64).collect()
}

/// Returns the elements of a box form in row-major order.
fn box_elements(shape: &[u32], ranges: &[(u32, u32)]) -> Vec<u64> {
    let mut elements = vec![1];
    for (&extent, &(low, high)) in shape.iter().zip(ranges) {
        let is_in = |index: u32| u64::from((low..high).contains(&index));
        elements = elements.iter().flat_map(|all| (0..extent).map(move |index| all & is_in(index))).collect();
    }
    elements
}

fn split_elements(bytes: &[u8], size: usize) -> Vec<u64> {
    let number = |part: &[u8]| part.iter().rev().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
    bytes.chunks_exact(size.max(1)).map(number).collect()
}

impl Form<'_> {
    /// Returns the bits of each element in row-major order. The bits of a pointer are its byte
    /// offset from the parameter, or its address. Returns `None` if the elements were not recorded.
    pub fn expand(&self, value: &ValueInfo) -> Option<Vec<u64>> {
        let shape = &value.shape;
        Some(match self {
            Form::Absent => return None,
            Form::Uniform(bits) => vec![*bits; value.elements()],
            Form::Affine(base, strides) => affine_elements(shape, *base, strides),
            Form::Box(ranges) => box_elements(shape, ranges),
            Form::Dense(bytes) => split_elements(bytes, value.size as usize),
            Form::Bits(bytes) => {
                let bit = |element: usize| u64::from(bytes[element / 8] >> (element % 8) & 1);
                (0..value.elements()).map(bit).collect()
            }
            Form::Pointers(_, offsets) => match offsets {
                Offsets::Uniform(offset) => vec![*offset as u64; value.elements()],
                Offsets::Affine(base, strides) => affine_elements(shape, *base, strides),
                Offsets::Wide(bytes) => split_elements(bytes, 8),
                Offsets::Narrow(bytes) => {
                    let widen = |bits: u64| i64::from((bits as u32).cast_signed()) as u64;
                    split_elements(bytes, 4).into_iter().map(widen).collect()
                }
            },
        })
    }
}

/// The elements that an access touches.
#[derive(Debug)]
pub struct Access {
    /// The address of each lane.
    pub addresses: Vec<u64>,
    /// The mask of each lane, 1 or 0. It is `None` if the access has no mask, or if the mask was
    /// not recorded.
    pub mask: Option<Vec<u64>>,
}

impl Access {
    /// Returns the access of an event. Returns `None` in these cases:
    ///
    /// - The op does not access memory.
    /// - The pointers were not recorded.
    /// - The pointers are offsets from a parameter that the launch does not have.
    pub fn new(launch: &Launch, event: &Event<'_>) -> Option<Self> {
        let op = launch.ops.get(event.op as usize)?;
        // An op lists its pointers and masks first, so `zip` pairs them with their forms.
        let find = |role| op.values.iter().zip(&event.values).find(|(value, _)| value.role == role);
        let (value, pointer) = find(Role::Pointer)?;
        let Form::Pointers(parameter, _) = pointer else { return None };
        let base = match parameter {
            Some(parameter) => launch.parameters.get(*parameter as usize)?.bits,
            None => 0,
        };
        let mut addresses = pointer.expand(value)?;
        for address in &mut addresses {
            *address = address.wrapping_add(base);
        }
        Some(Self { addresses, mask: find(Role::Mask).and_then(|(value, form)| form.expand(value)) })
    }

    /// Returns whether a lane is active.
    pub fn is_active(&self, lane: usize) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask.get(lane) != Some(&0))
    }
}
