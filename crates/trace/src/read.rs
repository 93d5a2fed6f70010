//! Reading a trace: launches, programs, events, and the elements of values.

use std::fmt;
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::bytes::Take;
use crate::finding::Finding;
use crate::model::{Launch, Role, Tensor, ValueInfo};
use crate::write::{CUT_SHORT, MAGIC, STOPPED, WITH_VALUES};

/// A trace that was written.
#[derive(Debug)]
pub struct Trace {
    bytes: Vec<u8>,
    /// By number.
    pub launches: Vec<Traced>,
}

/// A launch of a trace.
#[derive(Debug, Default)]
pub struct Traced {
    /// Its tables.
    pub launch: Launch,
    /// How long it took.
    pub nanoseconds: u64,
    /// Its diagnostic, if it failed.
    pub failure: String,
    /// What a sanitizer has checked in it; empty if nothing.
    pub checks: String,
    /// What it has found.
    pub findings: Vec<Finding>,
    /// Its programs, in the order of their numbers.
    pub programs: Vec<Program>,
    /// Where the elements of tensors are, by tensor and phase.
    snapshots: FxHashMap<(u32, u32), (usize, usize)>,
}

/// A program of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its number, x counted fastest.
    pub number: u64,
    flags: u64,
    /// How long it took.
    pub nanoseconds: u64,
    start: usize,
    length: usize,
}

impl Program {
    /// Whether values were recorded.
    pub fn has_values(&self) -> bool {
        self.flags & WITH_VALUES != 0
    }

    /// Whether something was left out.
    pub fn is_cut_short(&self) -> bool {
        self.flags & CUT_SHORT != 0
    }

    /// Whether it stopped at its last event.
    pub fn has_stopped(&self) -> bool {
        self.flags & STOPPED != 0
    }
}

/// Why a file is no trace.
#[derive(Debug)]
pub enum ReadError {
    /// It cannot be read.
    Io(std::io::Error),
    /// It is something else, or damaged.
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
    /// The number of the op.
    pub op: u32,
    /// A form for each value of the op; of an event without values, for pointer and mask.
    pub values: Vec<Form<'a>>,
    /// How long it took; 0 where not known.
    pub nanoseconds: u64,
}

/// How the elements of a value are recorded.
#[derive(Clone, PartialEq, Debug)]
pub enum Form<'a> {
    /// Not at all.
    Absent,
    /// All have these bits.
    Uniform(u64),
    /// `base + Σ strides[axis] * index[axis]`.
    Affine(i64, Vec<i64>),
    /// True in a box.
    Box(Vec<(u32, u32)>),
    /// Row after row.
    Dense(&'a [u8]),
    /// Booleans, a bit each.
    Bits(&'a [u8]),
    /// Pointers relative to a parameter, or addresses.
    Pointers(Option<u32>, Offsets<'a>),
}

/// Pointers, in bytes.
#[derive(Clone, PartialEq, Debug)]
pub enum Offsets<'a> {
    /// All the same.
    Uniform(i64),
    /// `base + Σ strides[axis] * index[axis]`.
    Affine(i64, Vec<i64>),
    /// 8 bytes each.
    Wide(&'a [u8]),
    /// 4 bytes each.
    Narrow(&'a [u8]),
}

/// How many launches may have a number without a chunk of their own: those that have begun in other threads.
const MOST_PENDING: usize = 4096;

/// How many lanes are looked at one by one in any case, and how many more for each byte of the file: an event of few bytes
/// may be of a tile of a million elements.
const LANES: u64 = 1 << 26;
const LANES_OF_BYTE: u64 = 64;

/// How many lanes a question may still look at.
#[derive(Debug)]
pub(crate) struct Budget(u64);

impl Budget {
    /// Takes what an access costs that is compared with tensors. False if that is more than there is.
    pub fn pays(&mut self, launch: &Launch, event: &Event<'_>, tensors: &[Tensor]) -> bool {
        let Some(op) = launch.ops.get(event.op as usize) else { return true };
        let lanes = op.values.first().map_or(0, ValueInfo::elements) as u64;
        let each = tensors.iter().map(|tensor| 1 + tensor.shape.len() as u64).sum::<u64>();
        let left = self.0.checked_sub(lanes.saturating_mul(1 + each));
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

impl Trace {
    /// How many lanes a question about all events may look at: bounded by the size of the file.
    pub(crate) fn budget(&self) -> Budget {
        Budget(LANES + LANES_OF_BYTE * self.bytes.len() as u64)
    }

    /// The tables of a launch.
    pub fn described(&self, number: usize) -> Option<&Launch> {
        self.launches.get(number).map(|traced| &traced.launch)
    }

    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::new(std::fs::read(path).map_err(ReadError::Io)?)
    }

    /// Of the content of a file.
    pub fn new(bytes: Vec<u8>) -> Result<Self, ReadError> {
        let wrong = ReadError::Malformed("this is no trace of tilewright, or one of another version");
        if !bytes.starts_with(MAGIC) {
            return Err(wrong);
        }
        let mut launches: Vec<Traced> = Vec::new();
        let (mut at, mut chunks) = (MAGIC.len(), 0);
        // A chunk that is not whole ends the file: the writer was stopped.
        while let Some(head) = bytes.get(at..at + 12) {
            let length = head[4..].iter().rev().fold(0_u64, |length, &byte| length << 8 | u64::from(byte));
            let start = at + 12;
            let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
            let Some(payload) = end.and_then(|end| bytes.get(start..end)) else { break };
            let damaged = || ReadError::Malformed("the trace is damaged");
            chunks += 1;
            chunk(&head[..4], payload, start, chunks + MOST_PENDING, &mut launches).ok_or_else(damaged)?;
            at = start + payload.len();
        }
        for launch in &mut launches {
            launch.programs.sort_by_key(|program| program.number);
            launch.programs.dedup_by_key(|program| program.number);
        }
        Ok(Self { bytes, launches })
    }

    /// The events of a program.
    pub fn events(&self, launch: &Traced, program: &Program) -> Vec<Event<'_>> {
        let mut events = Vec::new();
        self.each_event(launch, program, &mut |event| events.push(event));
        events
    }

    /// Calls a function with each event of a program.
    pub fn each_event<'a>(&'a self, launch: &Traced, program: &Program, each: &mut dyn FnMut(Event<'a>)) {
        let mut from = Take(&self.bytes[program.start..program.start + program.length]);
        while !from.0.is_empty() {
            let Some(event) = event(&launch.launch, program, &mut from) else { return };
            each(event);
        }
    }

    /// The elements of a tensor before or after a launch, if they were recorded.
    pub fn snapshot(&self, launch: &Traced, tensor: u32, is_after: bool) -> Option<&[u8]> {
        let &(start, length) = launch.snapshots.get(&(tensor, is_after.into()))?;
        self.bytes.get(start..start + length)
    }
}

/// Reads a chunk, of a launch whose number is at most `most`.
fn chunk(tag: &[u8], payload: &[u8], start: usize, most: usize, launches: &mut Vec<Traced>) -> Option<()> {
    let mut from = Take(payload);
    let known = [b"LNCH", b"TENS", b"PROG", b"FIND", b"DONE"];
    if !known.iter().any(|known| *known == tag) {
        return Some(());
    }
    let number = from.size()?;
    if number > most {
        return None;
    }
    if launches.len() <= number {
        launches.resize_with(number + 1, Traced::default);
    }
    let launch = &mut launches[number];
    let place = |from: &Take<'_>| start + payload.len() - from.0.len();
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
        _ => (launch.nanoseconds, launch.failure) = (from.number()?, from.text()?),
    }
    Some(())
}

fn event<'a>(launch: &Launch, program: &Program, from: &mut Take<'a>) -> Option<Event<'a>> {
    let number = from.small()?;
    let op = launch.ops.get(number as usize)?;
    let mut values = Vec::new();
    // Pointer and mask come first: an event costs no more time than it has bytes.
    for value in op.values.iter().take_while(|value| program.has_values() || is_place(value)) {
        values.push(form(value, from)?);
    }
    let nanoseconds = if program.has_values() { from.number()? } else { 0 };
    Some(Event { op: number, values, nanoseconds })
}

/// Whether a value says where an access takes place: these are recorded of each program.
pub(crate) fn is_place(value: &ValueInfo) -> bool {
    matches!(value.role, Role::Pointer | Role::Mask)
}

fn form<'a>(value: &ValueInfo, from: &mut Take<'a>) -> Option<Form<'a>> {
    let is_pointer = value.role == Role::Pointer;
    let base = if is_pointer { from.small()?.checked_sub(1) } else { None };
    let rank = value.shape.len();
    let strides = |from: &mut Take<'a>| (0..rank).map(|_| from.signed()).collect::<Option<Vec<i64>>>();
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

/// The elements of an arithmetic progression, row after row.
fn progression(shape: &[u32], base: i64, strides: &[i64]) -> Vec<u64> {
    let mut elements = vec![base];
    for (&extent, &stride) in shape.iter().zip(strides) {
        let steps = (0..i64::from(extent)).map(|index| stride.wrapping_mul(index));
        elements = elements.iter().flat_map(|at| steps.clone().map(|step| at.wrapping_add(step))).collect();
    }
    elements.into_iter().map(|element| element as u64).collect()
}

/// Where a box is, row after row.
fn boxed(shape: &[u32], ranges: &[(u32, u32)]) -> Vec<u64> {
    let mut elements = vec![1];
    for (&extent, &(low, high)) in shape.iter().zip(ranges) {
        let is_in = |index: u32| u64::from((low..high).contains(&index));
        elements = elements.iter().flat_map(|all| (0..extent).map(move |index| all & is_in(index))).collect();
    }
    elements
}

fn parts(bytes: &[u8], size: usize) -> Vec<u64> {
    let number = |part: &[u8]| part.iter().rev().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
    bytes.chunks_exact(size.max(1)).map(number).collect()
}

impl Form<'_> {
    /// The bits of each element, row after row; of pointers, what they are relative to their parameter. None if they were
    /// not recorded.
    pub fn expand(&self, value: &ValueInfo) -> Option<Vec<u64>> {
        let shape = &value.shape;
        Some(match self {
            Form::Absent => return None,
            Form::Uniform(bits) => vec![*bits; value.elements()],
            Form::Affine(base, strides) => progression(shape, *base, strides),
            Form::Box(ranges) => boxed(shape, ranges),
            Form::Dense(bytes) => parts(bytes, value.size as usize),
            Form::Bits(bytes) => {
                let bit = |element: usize| u64::from(bytes[element / 8] >> (element % 8) & 1);
                (0..value.elements()).map(bit).collect()
            }
            Form::Pointers(_, offsets) => match offsets {
                Offsets::Uniform(offset) => vec![*offset as u64; value.elements()],
                Offsets::Affine(base, strides) => progression(shape, *base, strides),
                Offsets::Wide(bytes) => parts(bytes, 8),
                Offsets::Narrow(bytes) => {
                    let widen = |bits: u64| i64::from((bits as u32).cast_signed()) as u64;
                    parts(bytes, 4).into_iter().map(widen).collect()
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
    /// Whether the mask holds, 1 or 0; none if there is no mask, or none is known.
    pub mask: Option<Vec<u64>>,
}

impl Access {
    /// Of an event of an op that accesses memory.
    pub fn new(launch: &Launch, event: &Event<'_>) -> Option<Self> {
        let op = launch.ops.get(event.op as usize)?;
        // Pointer and mask come first in the table.
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

    /// Whether the mask holds.
    pub fn is_active(&self, lane: usize) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask.get(lane) != Some(&0))
    }
}
