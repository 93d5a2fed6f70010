//! Value numbering: a pure instruction on the same operands as one that ran before it, in the same region or one around it, is that
//! one. So is a load of global memory, if nothing between them may change or order memory.

use std::hash::{Hash, Hasher};

use cranelift_entity::EntityRef;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use super::effects::{self, Effect};
use super::regions::{Changes, Regions, Step, Writes};
use super::{Line, LineKind, Listing, pressure};
use crate::isa::{Access, Instruction, LoadCache, RegisterId, StateSpace, Verbatim};

/// Registers that an instruction writes.
type Results = SmallVec<[RegisterId; 4]>;

/// An instruction that ran.
struct Known {
    hash: u64,
    /// Its place among the lines that stay.
    line: u32,
    /// When it ran.
    time: u32,
    /// Of a load, the accesses and barriers before it.
    epoch: Option<u32>,
    results: Results,
    /// The one before it with the same hash.
    before: Option<u32>,
}

struct Numbering<'a> {
    writes: &'a Writes,
    changes: Changes<'a>,
    /// The register that has the value of each.
    same: Vec<RegisterId>,
    known: Vec<Known>,
    /// The last that is known with a hash.
    last: FxHashMap<u64, u32>,
    /// How many were known where each region that is open began.
    open: Vec<usize>,
    lines: Vec<Line>,
    /// How many lines there were that do something, or that are reached by a jump.
    epoch: u32,
    /// How many lines there may be between two that are the same.
    distance: u32,
}

/// The lines of a listing whose registers are too many if it is numbered as a whole.
const LONG: usize = 2000;
/// How far apart what is the same may be there.
const NEAR: u32 = 400;

pub(super) fn run(listing: &mut Listing) {
    let before = (listing.lines.len() > LONG).then(|| listing.clone());
    number(listing, u32::MAX);
    if let Some(before) = before
        && pressure::words(listing) > pressure::MOST
    {
        *listing = before;
        number(listing, NEAR);
    }
}

/// Makes one of what is the same and at most so many lines apart.
fn number(listing: &mut Listing, distance: u32) {
    let Some(regions) = Regions::of(listing) else { return };
    let writes = Writes::of(listing);
    let mut numbering = Numbering {
        writes: &writes,
        changes: Changes::new(&writes, &regions),
        same: (0..listing.words.len()).map(RegisterId::new).collect(),
        known: Vec::with_capacity(listing.lines.len()),
        last: FxHashMap::default(),
        open: Vec::new(),
        lines: Vec::with_capacity(listing.lines.len()),
        epoch: 0,
        distance,
    };
    let mut walk = regions.walk();
    for (index, line) in std::mem::take(&mut listing.lines).into_iter().enumerate() {
        let index = index as u32;
        while let Some(step) = walk.step(index) {
            numbering.pass(step, index);
        }
        numbering.line(line, index);
        numbering.changes.write(index);
    }
    listing.lines = numbering.lines;
}

impl Numbering<'_> {
    fn pass(&mut self, step: Step, line: u32) {
        self.changes.pass(step, line);
        match step {
            Step::Enter(_) => self.open.push(self.known.len()),
            Step::Leave(_) => {
                let kept = self.open.pop().expect("a region that ends has begun");
                while self.known.len() > kept {
                    let gone = self.known.pop().expect("there are more than are kept");
                    match gone.before {
                        Some(before) => self.last.insert(gone.hash, before),
                        None => self.last.remove(&gone.hash),
                    };
                }
            }
        }
    }

    fn line(&mut self, mut line: Line, time: u32) {
        let LineKind::Instruction(guard, instruction) = &mut line.kind else {
            self.epoch += 1;
            if let LineKind::Verbatim(parts, _) = &mut line.kind {
                for part in parts {
                    if let Verbatim::Register(register, Access::Read) = part {
                        *register = self.same[register.index()];
                    }
                }
            }
            self.lines.push(line);
            return;
        };
        if let Some(guard) = guard {
            guard.register = self.same[guard.register.index()];
        }
        self.epoch += u32::from(effects::effect(instruction) == Effect::Other);
        let is_load = guard.is_none() && is_plain_load(instruction);
        let epoch = is_load.then_some(self.epoch);
        let mut results = Results::new();
        let (mut is_once, same, writes) = (true, &self.same, self.writes);
        instruction.map_registers(|register, access| match access {
            Access::Read => *register = same[register.index()],
            Access::ReadWrite => is_once = false,
            Access::Write => {
                is_once &= writes.is_once(*register);
                results.push(*register);
                // The key has no results.
                *register = RegisterId::new(0);
            }
        });
        if !(line.is_pure || is_load) || !is_once {
            set_results(instruction, &results);
            self.lines.push(line);
            return;
        }
        let hash = hash(instruction);
        if let Some(known) = self.find(hash, instruction, epoch) {
            for (own, other) in results.iter().zip(&self.known[known as usize].results) {
                self.same[own.index()] = *other;
            }
            return;
        }
        set_results(instruction, &results);
        let before = self.last.insert(hash, self.known.len() as u32);
        self.known.push(Known { hash, line: self.lines.len() as u32, time, epoch, results, before });
        self.lines.push(line);
    }

    /// An instruction that ran and gave the same; that of the argument has no results.
    fn find(&self, hash: u64, instruction: &mut Instruction, epoch: Option<u32>) -> Option<u32> {
        let mut next = self.last.get(&hash).copied();
        while let Some(index) = next {
            let known = &self.known[index as usize];
            if self.lines.len() as u32 - known.line > self.distance {
                return None;
            }
            set_results(instruction, &known.results);
            let other = self.lines[known.line as usize].instruction();
            if other == Some(&*instruction)
                && known.epoch == epoch
                && self.is_unchanged(instruction, known.time)
            {
                return Some(index);
            }
            next = known.before;
        }
        None
    }

    /// Whether the operands of an instruction have what they had.
    fn is_unchanged(&self, instruction: &Instruction, time: u32) -> bool {
        let mut is_unchanged = true;
        instruction.visit_registers(|register, access| {
            is_unchanged &= access != Access::Read || self.changes.is_since(register, time);
        });
        is_unchanged
    }
}

/// Whether an instruction loads from global memory what no one else changes, as far as the program cares.
fn is_plain_load(instruction: &Instruction) -> bool {
    let Instruction::Ld(load) = instruction else { return false };
    let is_weak = effects::effect(instruction) == Effect::Value;
    is_weak && load.space == Some(StateSpace::Global) && load.cache != Some(LoadCache::Volatile)
}

fn hash(instruction: &Instruction) -> u64 {
    let mut hasher = FxHasher::default();
    instruction.hash(&mut hasher);
    hasher.finish()
}

/// Names the registers that an instruction writes.
fn set_results(instruction: &mut Instruction, results: &[RegisterId]) {
    let mut results = results.iter();
    instruction.map_registers(|register, access| {
        if access == Access::Write
            && let Some(result) = results.next()
        {
            *register = *result;
        }
    });
}
