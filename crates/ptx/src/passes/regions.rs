//! Finds the loops and branches of a listing, and the writes of registers.
//!
//! The target of backward jumps begins a loop, which ends at the last of them. A jump from the line
//! before the loop to the line after it is the entry test, a part of the loop. Another forward jump
//! makes the skipped lines a branch. If it leaves a loop, the branch begins after the loop.

use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;

use super::{Line, LineKind, Listing};
use crate::isa::{Access, Instruction, LabelId, RegisterId};

/// The kind of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegionKind {
    /// Its lines may run again.
    Loop,
    /// A jump may skip it.
    Branch,
}

/// Consecutive lines, a half-open range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Region {
    pub kind: RegionKind,
    pub start: u32,
    pub end: u32,
    /// The index of the innermost region around this region.
    pub parent: Option<u32>,
}

/// The regions of a listing. Each region follows its parent.
#[derive(Debug, Default)]
pub(super) struct Regions(pub Vec<Region>);

impl Region {
    pub fn holds(&self, line: u32) -> bool {
        self.start <= line && line < self.end
    }
}

impl Regions {
    /// Returns the regions; `None` if they overlap or a jump target is unknown.
    pub fn of(listing: &Listing) -> Option<Self> {
        Self::of_lines(listing.lines.iter())
    }

    /// Returns the regions of lines outside of a listing, such as a new order.
    pub fn of_lines<'a>(lines: impl Iterator<Item = &'a Line>) -> Option<Self> {
        let mut labels: Vec<(LabelId, u32)> = Vec::new();
        let mut jumps: Vec<(u32, LabelId)> = Vec::new();
        for (index, line) in lines.enumerate() {
            match &line.kind {
                LineKind::Label(label) => labels.push((*label, index as u32)),
                LineKind::Instruction(_, Instruction::Bra(jump)) => jumps.push((index as u32, jump.target.0)),
                LineKind::Instruction(_, Instruction::BrxIdx(_)) => return None,
                LineKind::Instruction(..) | LineKind::Verbatim(..) => {}
            }
        }
        labels.sort_unstable_by_key(|(label, _)| label.index());
        let place = |label: LabelId| {
            let found = labels.binary_search_by_key(&label.index(), |(label, _)| label.index());
            found.ok().map(|index| labels[index].1)
        };
        let jumps: Vec<(u32, u32)> =
            jumps.into_iter().map(|(from, label)| Some((from, place(label)?))).collect::<Option<_>>()?;
        let mut loops: Vec<Region> = Vec::new();
        for &(from, to) in jumps.iter().filter(|(from, to)| to <= from) {
            match loops.iter_mut().find(|known| known.start == to) {
                Some(known) => known.end = known.end.max(from + 1),
                None => loops.push(Region { kind: RegionKind::Loop, start: to, end: from + 1, parent: None }),
            }
        }
        let mut branches = Vec::new();
        for &(from, to) in jumps.iter().filter(|(from, to)| to > from) {
            if let Some(entered) = loops.iter_mut().find(|known| known.start == from + 1 && known.end == to) {
                entered.start = from;
                continue;
            }
            let left = loops.iter().filter(|known| known.holds(from) && known.end <= to);
            let start = left.map(|known| known.end).max().unwrap_or(from + 1);
            if start < to {
                branches.push(Region { kind: RegionKind::Branch, start, end: to, parent: None });
            }
        }
        loops.append(&mut branches);
        Self::nested(loops)
    }

    /// Finds the parent of each region.
    fn nested(mut regions: Vec<Region>) -> Option<Self> {
        regions.sort_by_key(|region| (region.start, std::cmp::Reverse(region.end)));
        let mut around: Vec<u32> = Vec::new();
        for index in 0..regions.len() {
            let own = regions[index];
            while around.last().is_some_and(|&outer| regions[outer as usize].end <= own.start) {
                around.pop();
            }
            regions[index].parent = around.last().copied();
            if around.last().is_some_and(|&outer| regions[outer as usize].end < own.end) {
                return None;
            }
            around.push(index as u32);
        }
        Some(Self(regions))
    }

    /// Begins a walk over the lines, which finds each line's innermost region.
    pub fn walk(&self) -> RegionWalk<'_> {
        RegionWalk { regions: &self.0, next: 0, current: None }
    }
}

/// The state of a walk over the lines.
pub(super) struct RegionWalk<'a> {
    regions: &'a [Region],
    next: u32,
    current: Option<u32>,
}

/// A region that ends or begins at a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A region ends before the line.
    Leave(u32),
    /// A region begins with the line.
    Enter(u32),
}

impl RegionWalk<'_> {
    /// Returns the next region that ends or begins at this line. Callers pass lines in order, and
    /// repeat each until the result is `None`.
    pub fn step(&mut self, line: u32) -> Option<Step> {
        if let Some(current) = self.current
            && self.regions[current as usize].end <= line
        {
            self.current = self.regions[current as usize].parent;
            return Some(Step::Leave(current));
        }
        let next = self.next;
        if self.regions.get(next as usize).is_some_and(|region| region.start == line) {
            (self.current, self.next) = (Some(next), next + 1);
            return Some(Step::Enter(next));
        }
        None
    }

    /// Returns the innermost region of the line.
    pub fn current(&self) -> Option<u32> {
        self.current
    }
}

/// The lines that write registers.
#[derive(Debug)]
pub(super) struct Writes {
    /// The number of writes of each register: 0, 1, or 2 for two or more. Accumulators of
    /// asynchronous dots have 2, because each wait counts as a write.
    counts: Vec<u8>,
    /// The first line that writes each register; 0 without one.
    first: Vec<u32>,
    /// The registers with several writes and their lines, in line order.
    again: Vec<(RegisterId, u32)>,
}

impl Writes {
    pub fn of(listing: &Listing) -> Self {
        let registers = listing.words.len();
        let mut writes = Self { counts: vec![0; registers], first: vec![0; registers], again: Vec::new() };
        let (mut accumulators, mut waits) = (Vec::new(), Vec::new());
        for (line, index) in listing.lines.iter().zip(0..) {
            line.visit_registers(|register, access| {
                if access != Access::Read {
                    writes.add(register, index);
                }
            });
            match line.instruction() {
                Some(Instruction::Wgmma(dot)) => accumulators.extend(&dot.d.0),
                Some(Instruction::WgmmaWaitGroup(_)) => waits.push(index),
                // tidy: wildcard because no other instruction starts or awaits asynchronous dots
                _ => {}
            }
        }
        accumulators.sort_unstable_by_key(|register: &RegisterId| register.index());
        accumulators.dedup();
        for &register in &accumulators {
            // An accumulator counts as written several times, even without a wait.
            let first = writes.first(register);
            for &line in waits.iter().chain([&first]) {
                writes.add(register, line);
            }
        }
        writes.again.sort_unstable_by_key(|(_, line)| *line);
        writes
    }

    fn add(&mut self, register: RegisterId, line: u32) {
        let (count, first) = (&mut self.counts[register.index()], &mut self.first[register.index()]);
        match count {
            0 => *first = line,
            1 => self.again.extend([(register, *first), (register, line)]),
            _ => self.again.push((register, line)),
        }
        *count = (*count + 1).min(2);
    }

    /// Returns whether exactly one line writes a register.
    pub fn is_once(&self, register: RegisterId) -> bool {
        self.counts[register.index()] == 1
    }

    /// Returns the first line that writes a register.
    pub fn first(&self, register: RegisterId) -> u32 {
        self.first[register.index()]
    }

    /// Returns whether no line writes a register.
    pub fn is_never(&self, register: RegisterId) -> bool {
        self.counts[register.index()] == 0
    }

    /// Returns a region's writes to registers with several writes.
    pub fn again_in(&self, region: Region) -> &[(RegisterId, u32)] {
        let first = self.again.partition_point(|(_, line)| *line < region.start);
        let last = self.again.partition_point(|(_, line)| *line < region.end);
        &self.again[first..last]
    }
}

/// The state of registers with several writes at the current line of a walk. `since` has the line
/// from which on each register has its value.
pub(super) struct Changes<'a> {
    writes: &'a Writes,
    regions: &'a Regions,
    since: Vec<u32>,
    /// The writes to these registers from the current line on.
    rest: &'a [(RegisterId, u32)],
}

impl<'a> Changes<'a> {
    pub fn new(writes: &'a Writes, regions: &'a Regions) -> Self {
        let registers = if writes.again.is_empty() { 0 } else { writes.counts.len() };
        Self { writes, regions, since: vec![0; registers], rest: &writes.again }
    }

    /// Marks as changed the registers that a region writes. A step is the start of a loop, whose
    /// earlier iterations may have written them, or a region's end.
    pub fn pass(&mut self, step: Step, line: u32) {
        let region = match step {
            Step::Enter(region) if self.regions.0[region as usize].kind == RegionKind::Branch => return,
            Step::Enter(region) | Step::Leave(region) => self.regions.0[region as usize],
        };
        for &(register, _) in self.writes.again_in(region) {
            self.since[register.index()] = line;
        }
    }

    /// Records the writes of a line. Callers pass all lines in order.
    pub fn write(&mut self, line: u32) {
        while let [(register, at), rest @ ..] = self.rest
            && *at == line
        {
            self.since[register.index()] = line + 1;
            self.rest = rest;
        }
    }

    /// Returns whether a register has kept its value since `line`.
    pub fn is_since(&self, register: RegisterId, line: u32) -> bool {
        self.since.get(register.index()).is_none_or(|since| *since <= line)
    }
}

/// Maps each of the `registers` to the lines that read it, in order.
pub(super) fn readers(
    listing: &Listing,
    registers: impl IntoIterator<Item = RegisterId>,
) -> FxHashMap<RegisterId, Vec<u32>> {
    let mut readers: FxHashMap<RegisterId, Vec<u32>> =
        registers.into_iter().map(|register| (register, Vec::new())).collect();
    for (line, index) in listing.lines.iter().zip(0..) {
        line.visit_registers(|register, access| {
            if access != Access::Write
                && let Some(readers) = readers.get_mut(&register)
            {
                readers.push(index);
            }
        });
    }
    readers
}
