//! Copy coalescing (Chaitin et al., "Register allocation via coloring", 1981). If the two registers
//! of a copy are never live together, the pass gives them one name and removes the copy.
//!
//! The lowering copies loop-carried values, branch results, and initial accumulators of `wgmma`. An
//! accumulator's registers are consecutive in the machine, and the assembler leaves many copies
//! between them. So the pass runs only on listings with `wgmma`.
//!
//! Operands of a `wgmma` are live until a `wgmma.wait_group` completes its group. After this pass,
//! a register may have several writes.

use std::ops::Range;

use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;

use super::{Line, LineKind, Listing};
use crate::isa::{Access, Destination, Immediate, Instruction, LabelId, RegisterId, Source};

/// The age of a `wgmma` that is not in flight.
const DONE: u8 = u8::MAX;
/// The limit of the count of commits.
const OLDEST: u8 = 64;

pub(super) fn run(listing: &mut Listing) {
    let is_dot = |line: &Line| matches!(line.instruction(), Some(Instruction::Wgmma(_)));
    if !listing.lines.iter().any(is_dot) {
        return;
    }
    let Some(blocks) = Blocks::of(listing) else { return };
    let mut copies: Vec<(u32, RegisterId, RegisterId)> = listing
        .lines
        .iter()
        .zip(0..)
        .filter_map(|(line, index)| copied(line).map(|(to, from)| (index, to, from)))
        .collect();
    let candidates = Candidates::of(listing, &copies);
    let mut interference = interference(listing, &blocks, &candidates);
    let mut places = candidates.accumulator_places(listing);
    let mut names: Vec<usize> = (0..candidates.count()).collect();
    // Copies in inner loops run most often.
    copies.sort_by_key(|(line, ..)| std::cmp::Reverse(blocks.loops_around(*line)));
    for &(_, to, from) in &copies {
        let [to, from] = [to, from].map(|register| candidates.number(register).map(|number| names[number]));
        let (Some(to), Some(from)) = (to, from) else { continue };
        let fit = places[to].is_none() || places[from].is_none() || places[to] == places[from];
        if to == from || !fit || interference[to].contains(from) {
            continue;
        }
        // `from` is no longer used, so its set may stay incomplete.
        let others = interference[from].clone();
        others.iter().for_each(|other| interference[other].insert(to));
        interference[to].add(&others);
        places[to] = places[to].or(places[from]);
        names.iter_mut().filter(|name| **name == from).for_each(|name| *name = to);
    }
    let renamed = |register: RegisterId| {
        candidates.number(register).map_or(register, |number| candidates.registers[names[number]])
    };
    for line in &mut listing.lines {
        line.map_registers(|register, _| *register = renamed(*register));
    }
    listing.lines.retain(|line| copied(line).is_none_or(|(to, from)| to != from));
}

/// Returns the written and the read register of a copy.
fn copied(line: &Line) -> Option<(RegisterId, RegisterId)> {
    let LineKind::Instruction(None, Instruction::Mov(copy)) = &line.kind else { return None };
    match (&copy.d.0[..], &copy.a.0[..]) {
        ([Destination::Register(to)], [Source::Register(from)]) => Some((*to, *from)),
        _ => None,
    }
}

/// The registers that copies read or write.
struct Candidates {
    registers: Vec<RegisterId>,
    /// The number of each register; `None` if no copy has it.
    numbers: Vec<Option<u32>>,
}

impl Candidates {
    fn of(listing: &Listing, copies: &[(u32, RegisterId, RegisterId)]) -> Self {
        let mut candidates = Self { registers: Vec::new(), numbers: vec![None; listing.words.len()] };
        for register in copies.iter().flat_map(|(_, to, from)| [*to, *from]) {
            let number = &mut candidates.numbers[register.index()];
            if number.is_none() {
                *number = Some(candidates.registers.len() as u32);
                candidates.registers.push(register);
            }
        }
        candidates
    }

    fn count(&self) -> usize {
        self.registers.len()
    }

    fn number(&self, register: RegisterId) -> Option<usize> {
        self.numbers[register.index()].map(|number| number as usize)
    }

    /// Calls `each` with the number and the access of each candidate in a line.
    fn visit(&self, line: &Line, mut each: impl FnMut(usize, Access)) {
        line.visit_registers(|register, access| {
            if let Some(number) = self.number(register) {
                each(number, access);
            }
        });
    }

    /// Returns the index of each candidate in its accumulator.
    fn accumulator_places(&self, listing: &Listing) -> Vec<Option<usize>> {
        let mut places = vec![None; self.count()];
        for line in &listing.lines {
            let Some(Instruction::Wgmma(dot)) = line.instruction() else { continue };
            for (place, register) in dot.d.0.iter().enumerate() {
                if let Some(number) = self.number(*register) {
                    places[number] = Some(place);
                }
            }
        }
        places
    }
}

/// The basic blocks of a listing.
struct Blocks {
    lines: Vec<Range<usize>>,
    successors: Vec<Vec<usize>>,
    /// The lines of each loop: from the target of a backward jump to the jump.
    loops: Vec<Range<u32>>,
}

impl Blocks {
    /// Returns the blocks; `None` for an unknown jump target.
    fn of(listing: &Listing) -> Option<Self> {
        let mut lines: Vec<Range<usize>> = Vec::new();
        let mut labels: FxHashMap<LabelId, usize> = FxHashMap::default();
        let mut start = 0;
        for (index, line) in listing.lines.iter().enumerate() {
            if let LineKind::Label(label) = line.kind {
                if start < index {
                    lines.push(start..index);
                    start = index;
                }
                labels.insert(label, lines.len());
            } else if jump(line).is_some() {
                lines.push(start..index + 1);
                start = index + 1;
            }
        }
        lines.push(start..listing.lines.len());
        let (mut successors, mut loops) = (vec![Vec::new(); lines.len()], Vec::new());
        for (block, range) in lines.iter().enumerate() {
            let last = range.clone().next_back().map(|index| (index, &listing.lines[index]));
            let mut falls_through = true;
            if let Some((index, line)) = last
                && let Some(jump) = jump(line)
            {
                falls_through = jump.is_conditional;
                match jump.target {
                    Target::Label(label) => {
                        let target = *labels.get(&label)?;
                        successors[block].push(target);
                        let first = lines[target].start;
                        if first <= index {
                            loops.push(first as u32..index as u32 + 1);
                        }
                    }
                    Target::End => {}
                    Target::Unknown => return None,
                }
            }
            if falls_through && block + 1 < lines.len() {
                successors[block].push(block + 1);
            }
        }
        Some(Self { lines, successors, loops })
    }

    /// Returns the number of loops around a line.
    fn loops_around(&self, line: u32) -> usize {
        self.loops.iter().filter(|lines| lines.contains(&line)).count()
    }
}

/// The end of a basic block.
struct Jump {
    is_conditional: bool,
    target: Target,
}

enum Target {
    Label(LabelId),
    End,
    Unknown,
}

fn jump(line: &Line) -> Option<Jump> {
    use Instruction as I;
    let LineKind::Instruction(guard, instruction) = &line.kind else { return None };
    let target = match instruction {
        I::Bra(jump) => Target::Label(jump.target.0),
        I::BrxIdx(_) => Target::Unknown,
        I::Ret(_) | I::Exit(_) | I::Trap(_) => Target::End,
        // tidy: wildcard because no other instruction jumps
        _ => return None,
    };
    Some(Jump { is_conditional: guard.is_some(), target })
}

/// A set of candidates.
#[derive(Clone, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn contains(&self, number: usize) -> bool {
        self.0[number / 64] >> (number % 64) & 1 == 1
    }

    fn insert(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    fn remove(&mut self, number: usize) {
        self.0[number / 64] &= !(1 << (number % 64));
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    fn subtract(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= !other);
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let bits = |(index, &word): (usize, &u64)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * 64 + bit)
        };
        self.0.iter().enumerate().flat_map(bits)
    }
}

/// Returns the candidates that interfere with each candidate. One is written while the other's
/// value is needed. The registers of a copy do not interfere at the copy.
fn interference(listing: &Listing, blocks: &Blocks, candidates: &Candidates) -> Vec<Set> {
    let count = candidates.count();
    let mut interference = vec![Set::new(count); count];
    let ages = ages(listing, blocks, candidates);
    let live_out = live_out(listing, blocks, candidates);
    for (block, lines) in blocks.lines.iter().enumerate() {
        let mut age = ages[block].clone();
        let mut in_flight: Vec<Set> = Vec::new();
        for line in &listing.lines[lines.clone()] {
            let changes = step(line, &mut age, candidates);
            let set = match in_flight.last() {
                Some(last) if !changes => last.clone(),
                _ => in_flight_of(&age),
            };
            in_flight.push(set);
        }
        let mut live = live_out[block].clone();
        for (line, in_flight) in listing.lines[lines.clone()].iter().zip(in_flight).rev() {
            let mut needed = live.clone();
            needed.add(&in_flight);
            let mut written = Set::new(count);
            candidates.visit(line, |number, access| {
                if access != Access::Read {
                    written.insert(number);
                }
            });
            needed.add(&written);
            if let Some(source) = copied(line).and_then(|(_, from)| candidates.number(from)) {
                needed.remove(source);
            }
            written.iter().for_each(|number| interference[number].add(&needed));
            update_live(line, &mut live, candidates);
        }
    }
    for one in 0..count {
        let others = interference[one].clone();
        others.iter().for_each(|other| interference[other].insert(one));
    }
    for (number, others) in interference.iter_mut().enumerate() {
        others.remove(number);
    }
    interference
}

/// Returns which candidates are live after each block.
fn live_out(listing: &Listing, blocks: &Blocks, candidates: &Candidates) -> Vec<Set> {
    let empty = Set::new(candidates.count());
    // The candidates that each block reads before a write, and those that it writes.
    let mut summaries = Vec::with_capacity(blocks.lines.len());
    for lines in &blocks.lines {
        let (mut read, mut written) = (empty.clone(), empty.clone());
        for line in listing.lines[lines.clone()].iter().rev() {
            update_live(line, &mut read, candidates);
            candidates.visit(line, |number, access| {
                if access == Access::Write && !is_guarded(line) {
                    written.insert(number);
                }
            });
        }
        summaries.push((read, written));
    }
    let mut live_in = vec![empty.clone(); blocks.lines.len()];
    let mut live_out = live_in.clone();
    let mut changes = true;
    while changes {
        changes = false;
        for (block, (read, written)) in summaries.iter().enumerate().rev() {
            let mut live = empty.clone();
            blocks.successors[block].iter().for_each(|successor| live.add(&live_in[*successor]));
            live_out[block].clone_from(&live);
            live.subtract(written);
            live.add(read);
            changes |= live != live_in[block];
            live_in[block] = live;
        }
    }
    live_out
}

/// Changes the live candidates after a line to those before it.
fn update_live(line: &Line, alive: &mut Set, candidates: &Candidates) {
    candidates.visit(line, |number, access| {
        if access == Access::Write && !is_guarded(line) {
            alive.remove(number);
        }
    });
    candidates.visit(line, |number, access| {
        if access != Access::Write {
            alive.insert(number);
        }
    });
}

fn is_guarded(line: &Line) -> bool {
    matches!(line.kind, LineKind::Instruction(Some(_), _))
}

/// Returns the age of each candidate at the start of each block. The age is the least number of
/// commits since a `wgmma` with the candidate.
fn ages(listing: &Listing, blocks: &Blocks, candidates: &Candidates) -> Vec<Vec<u8>> {
    let mut ages = vec![vec![DONE; candidates.count()]; blocks.lines.len()];
    let mut changes = true;
    while changes {
        changes = false;
        for (block, lines) in blocks.lines.iter().enumerate() {
            let mut age = ages[block].clone();
            for line in &listing.lines[lines.clone()] {
                step(line, &mut age, candidates);
            }
            for successor in &blocks.successors[block] {
                for (known, age) in ages[*successor].iter_mut().zip(&age) {
                    changes |= age < known;
                    *known = (*known).min(*age);
                }
            }
        }
    }
    ages
}

/// Changes the ages before a line to those after it. Returns whether it may change them.
fn step(line: &Line, ages: &mut [u8], candidates: &Candidates) -> bool {
    match line.instruction() {
        Some(Instruction::Wgmma(_)) => candidates.visit(line, |number, _| ages[number] = 0),
        Some(Instruction::WgmmaCommitGroup(_)) => {
            ages.iter_mut().filter(|age| **age < OLDEST).for_each(|age| *age += 1);
        }
        Some(Instruction::WgmmaWaitGroup(wait)) => {
            let Source::Immediate(Immediate::Integer(pending)) = wait.n else { return false };
            // The youngest group has the age 1.
            ages.iter_mut().filter(|age| i64::from(**age) > pending).for_each(|age| *age = DONE);
        }
        // tidy: wildcard because no other instruction starts asynchronous dots or waits for them
        _ => return false,
    }
    true
}

/// Returns the operands of `wgmma`s in flight.
fn in_flight_of(ages: &[u8]) -> Set {
    let mut set = Set::new(ages.len());
    (0..ages.len()).filter(|number| ages[*number] != DONE).for_each(|number| set.insert(number));
    set
}
