//! Finds the access in a kernel's source that caused a fault on a GPU.
//!
//! The source line of the fault selects the candidates. The IR shows from which argument each
//! pointer is derived.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tilewright_base::{Diagnostic, Span};
use tilewright_ir::{Definition, ElementwiseFn, Function, Inst, Op, OpFamily, Parents, Value};
use tilewright_sim::Fault;

use crate::Handle;

/// The access to global memory that a fault reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryAccess {
    pub is_store: bool,
    pub address: u64,
    pub bytes: u32,
}

/// An argument that is a pointer, and the memory that it may access.
#[derive(Clone, Debug)]
pub(super) struct Argument {
    pub name: String,
    /// The index of the argument among the run-time parameters.
    parameter: usize,
    /// The address that was passed.
    base: u64,
    /// The size of an element in bytes.
    size: u64,
    /// The start and the exclusive end of the memory that may be accessed through the pointer.
    start: u64,
    end: u64,
}

impl Argument {
    /// Returns the index of the element that contains the byte at `address`; the pointer points to
    /// element 0.
    fn element(&self, address: u64) -> i64 {
        (address.wrapping_sub(self.base) as i64).div_euclid(self.size as i64)
    }

    /// Returns the number of bytes between an access and the argument's memory; 0 if it is inside.
    fn distance(&self, target: MemoryAccess) -> u64 {
        let end = target.address.saturating_add(u64::from(target.bytes));
        self.start.saturating_sub(target.address).max(end.saturating_sub(self.end))
    }

    /// Returns whether an access may be meant for this argument: its distance is at most the size
    /// of the memory.
    fn is_near(&self, target: MemoryAccess) -> bool {
        self.distance(target) <= self.end - self.start
    }

    /// Returns the index of the first touched element outside of the argument's memory, or of the
    /// first touched element if all are inside.
    pub(super) fn bad_element(&self, target: MemoryAccess) -> i64 {
        let is_inside = (self.start..self.end).contains(&target.address);
        self.element(if is_inside && self.distance(target) > 0 { self.end } else { target.address })
    }

    /// Returns the index of the element after the last element of the argument's memory.
    pub(super) fn end_element(&self) -> i64 {
        self.element(self.end)
    }

    pub(super) fn first_element(&self) -> i64 {
        self.element(self.start)
    }

    /// Describes for a message which elements the argument's memory has.
    pub(super) fn bounds(&self) -> String {
        let name = &self.name;
        if self.start == self.end {
            return format!("`{name}` has no elements");
        }
        let (first, last) = (self.element(self.start), self.element(self.end - 1));
        format!("`{name}` has the elements {first} to {last} ({} bytes)", self.end - self.start)
    }

    /// Returns whether the address that was passed is a multiple of `alignment` bytes.
    pub(super) fn is_aligned(&self, alignment: u32) -> bool {
        self.base.is_multiple_of(u64::from(alignment))
    }

    /// Returns the size of an element in bytes.
    pub(super) fn element_bytes(&self) -> u64 {
        self.size
    }
}

/// A load, a store or an atomic access of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Access {
    /// The span of the access, and the spans of the calls that it was inlined through, innermost
    /// first.
    chain: Vec<Span>,
    /// The index of the parameter that the pointers are derived from; `None` if it is unknown or
    /// not unique.
    parameter: Option<usize>,
}

/// The accesses that may have caused a fault.
pub(super) struct FaultCandidates {
    accesses: Vec<Access>,
    /// The argument whose pointer the faulting address was derived from, if it is known.
    pub(super) argument: Option<Argument>,
    /// The names of the possible pointer arguments, if `argument` is `None`. Empty if they are
    /// unknown.
    pub(super) candidates: Vec<String>,
}

impl FaultCandidates {
    /// Finds the accesses on the line of the fault, and the argument of the faulting address:
    ///
    /// - the only argument of all accesses on the line;
    /// - else the nearest argument of these accesses;
    /// - on a line without an access, the nearest of all pointer arguments.
    ///
    /// In the last two cases, the argument must be near ([`Argument::is_near`]).
    pub(super) fn new(fault: &Fault, handle: &Handle, target: MemoryAccess) -> Self {
        let mut accesses = accesses(fault, handle, target.is_store);
        let through = |argument: &Argument| {
            accesses.is_empty() || accesses.iter().any(|access| access.parameter == Some(argument.parameter))
        };
        let mut candidates = arguments(fault, handle);
        candidates.retain(through);
        let is_certain = matches!(&accesses[..], [first, rest @ ..]
            if rest.iter().all(|access| access.parameter == first.parameter));
        let is_known = accesses.iter().all(|access| access.parameter.is_some());
        let near = candidates.iter().filter(|argument| is_certain || argument.is_near(target));
        let argument = near.min_by_key(|argument| argument.distance(target)).filter(|_| is_known).cloned();
        match &argument {
            Some(argument) => {
                accesses.retain(|access| access.parameter == Some(argument.parameter));
                candidates.clear();
            }
            None if !is_known || accesses.is_empty() => candidates.clear(),
            None => {}
        }
        let candidates = candidates.into_iter().map(|argument| argument.name).collect();
        Self { accesses, argument, candidates }
    }

    /// Adds `label` to a diagnostic: at the only access and its calls, or else at `line`.
    pub(super) fn locate(&self, diagnostic: Diagnostic, line: Option<Span>, label: &str) -> Diagnostic {
        match (&self.accesses[..], line) {
            ([Access { chain, .. }], _) => called(diagnostic, chain, label),
            (_, Some(line)) => diagnostic.primary(line, label),
            (_, None) => diagnostic,
        }
    }
}

/// Adds the spans of `chain` to a diagnostic: the first one with `label`, the others as calls.
pub(super) fn called(diagnostic: Diagnostic, chain: &[Span], label: &str) -> Diagnostic {
    let Some((&place, callers)) = chain.split_first() else { return diagnostic };
    let diagnostic = diagnostic.primary(place, label);
    callers.iter().fold(diagnostic, |diagnostic, &caller| diagnostic.secondary(caller, "called from here"))
}

/// Returns the arguments of the launch that are pointers.
fn arguments(fault: &Fault, handle: &Handle) -> Vec<Argument> {
    let kernel = handle.compiled.module.kernel();
    let entry = kernel.blocks[kernel.entry].parameters.iter().enumerate();
    let pointers = entry.filter_map(|(index, &value)| Some((index, kernel.ty(value).element.pointee()?)));
    let passed = handle.pointer_names().into_iter().zip(&fault.regions);
    pointers
        .zip(passed)
        .filter_map(|((parameter, pointee), (name, &(start, len)))| {
            let (base, size) = (*fault.parameters.get(parameter)?, pointee.bytes() as u64);
            Some(Argument { name, parameter, base, size, start, end: start + len as u64 })
        })
        .collect()
}

/// Returns the instructions on the line of the fault that `is_wanted` accepts, with their spans. An
/// instruction of a library function is on the line of the innermost call outside of the library.
pub(super) fn on_line<'a>(
    fault: &'a Fault,
    handle: &'a Handle,
    is_wanted: impl Fn(&Op) -> bool + 'a,
) -> impl Iterator<Item = (Inst, Vec<Span>)> + 'a {
    let module = &handle.compiled.module;
    let kernel = module.kernel();
    let mut found = Vec::new();
    if let Some((file, line)) = fault.location.as_ref().and_then(|location| location.kernel.as_ref()) {
        kernel.walk(kernel.entry, &mut |inst| {
            if !is_wanted(&kernel.insts[inst].op) {
                return;
            }
            let chain = kernel.call_chain(inst);
            let is_there = module.sources.users_place(&chain).is_some_and(|place| {
                let source = module.sources.file(chain[place].file);
                source.name == *file && source.line_column(chain[place].start).0 == *line
            });
            if is_there {
                found.push((inst, chain));
            }
        });
    }
    found.into_iter()
}

/// Returns the stores on the line of the fault if `is_store`, else the loads. Both include atomic
/// operations.
fn accesses(fault: &Fault, handle: &Handle, is_store: bool) -> Vec<Access> {
    let is_wanted = move |op: &Op| match op {
        Op::Load { .. } | Op::AtomicLoad { .. } | Op::AtomicPoll { .. } => !is_store,
        Op::Store { .. } => is_store,
        // A fault names only one of the two accesses of an atomic op.
        op if op.family() == OpFamily::Atomic => true,
        // tidy: wildcard because no other op accesses memory outside of the block.
        _ => false,
    };
    let kernel = handle.compiled.module.kernel();
    let mut accesses = Vec::new();
    for (inst, chain) in on_line(fault, handle, is_wanted) {
        let access = Access { chain, parameter: origin(kernel, kernel.insts[inst].operands[0]) };
        if !accesses.contains(&access) {
            accesses.push(access);
        }
    }
    accesses
}

/// Returns the index of the parameter that a pointer is derived from; `None` if it is unknown or
/// not unique.
fn origin(kernel: &Function, pointer: Value) -> Option<usize> {
    let parents = Parents::new(kernel);
    let (mut seen, mut open, mut found) = (FxHashSet::default(), vec![pointer], None);
    while let Some(value) = open.pop() {
        if !seen.insert(value) {
            continue;
        }
        match kernel.values[value].definition {
            Definition::Parameter(block, index) if block == kernel.entry => {
                if found.replace(index).is_some_and(|other| other != index) {
                    return None;
                }
            }
            Definition::Parameter(block, _) => {
                // Only a loop carries a pointer to a parameter of a region.
                open.extend(carried(kernel, parents.owner(block)?, value)?);
            }
            Definition::Result(inst, _) => match carried(kernel, inst, value) {
                Some(values) => open.extend(values),
                None => open.extend(made_of(kernel, inst)?),
            },
        }
    }
    found.map(|index| index as usize)
}

/// Returns the values that a loop or a branch carries into `value`; `None` if it carries none.
fn carried(kernel: &Function, inst: Inst, value: Value) -> Option<impl Iterator<Item = Value>> {
    let carried = kernel.carried_by(inst, value)?;
    Some(carried.initial.into_iter().chain(carried.yielded))
}

/// Returns the pointers from which the result of an instruction is derived; `None` if the origin is
/// unknown.
fn made_of(kernel: &Function, inst: Inst) -> Option<SmallVec<[Value; 2]>> {
    let data = &kernel.insts[inst];
    match &data.op {
        Op::Splat { .. }
        | Op::ExpandDims { .. }
        | Op::Broadcast { .. }
        | Op::Slice { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Hint { .. }
        | Op::PtrAdd { .. }
        | Op::Bitcast { .. }
        | Op::Cast { .. } => {
            let value = data.operands[0];
            kernel.ty(value).element.pointee().map(|_| SmallVec::from_elem(value, 1))
        }
        Op::Elementwise { function: ElementwiseFn::Select } => {
            Some(data.operands.iter().skip(1).copied().collect())
        }
        op if op.family() == OpFamily::Movement => Some(SmallVec::from_elem(data.operands[0], 1)),
        // tidy: wildcard because no other op derives a pointer from a pointer.
        _ => None,
    }
}
