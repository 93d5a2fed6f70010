//! Value numbering: removes a pure instruction if an equal one ran before. The earlier one is in
//! the same region, or a region around it. Its results replace the later ones. Global loads are
//! merged if no line between them changes or orders memory.

use std::hash::{Hash, Hasher};

use cranelift_entity::EntityRef;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use super::effects::{self, Effect};
use super::regions::{Changes, Regions, Step, Writes};
use super::{Line, LineKind, Listing, pressure};
use crate::isa::{Access, Instruction, LoadCache, RegisterId, StateSpace};

/// Registers that an instruction writes.
type Results = SmallVec<[RegisterId; 4]>;

/// An earlier instruction whose results can be reused.
struct KnownInstruction {
    hash: u64,
    line: u32,
    /// The index of its line among the remaining lines.
    kept: u32,
    /// For a load, the epoch in which it ran.
    epoch: Option<u32>,
    results: Results,
    /// The index of the previous known instruction with the same hash.
    before: Option<u32>,
}

/// A replacement of a register that a line reads.
struct Replaced {
    line: u32,
    /// The operand's index among the line's registers, the guard first.
    ordinal: u32,
    before: RegisterId,
}

struct Numbering<'a> {
    writes: &'a Writes,
    changes: Changes<'a>,
    /// The register that is read in place of each register.
    same: Vec<RegisterId>,
    known: Vec<KnownInstruction>,
    /// The index of the last known instruction with each hash.
    last: FxHashMap<u64, u32>,
    /// The number of known instructions at the start of each open region.
    open: Vec<usize>,
    /// True for each line so far that remains; `kept` counts those.
    stays: Vec<bool>,
    kept: u32,
    replaced: Vec<Replaced>,
    /// The number of lines so far that may change or order memory. They have an effect, are labels,
    /// or are inline assembly. Equal loads are merged in one epoch.
    epoch: u32,
    /// The largest distance of merged instructions, in remaining lines.
    distance: u32,
}

pub(super) fn run(listing: &mut Listing) {
    let Some(regions) = Regions::of(listing) else { return };
    let writes = Writes::of(listing);
    let (mut stays, replaced) = number(listing, &regions, &writes, u32::MAX);
    if listing.lines.len() > listing.target.tuning.long_listing_lines {
        let kept = listing.lines.iter().zip(&stays).filter_map(|(line, stays)| stays.then_some(line));
        if pressure::words_of_lines(kept, &listing.words) > listing.target.tuning.max_live_registers {
            restore(listing, &replaced);
            let near = listing.target.tuning.near_lines;
            (stays, _) = number(listing, &regions, &writes, near);
        }
    }
    let mut stays = stays.into_iter();
    listing.lines.retain(|_| stays.next().unwrap_or_default());
}

/// Merges each instruction with an equal earlier one within `distance` remaining lines. Readers of
/// removed results read the earlier ones. Returns the remaining lines and the replaced registers.
fn number(
    listing: &mut Listing,
    regions: &Regions,
    writes: &Writes,
    distance: u32,
) -> (Vec<bool>, Vec<Replaced>) {
    let mut numbering = Numbering {
        writes,
        changes: Changes::new(writes, regions),
        same: (0..listing.words.len()).map(RegisterId::new).collect(),
        known: Vec::with_capacity(listing.lines.len()),
        last: FxHashMap::default(),
        open: Vec::new(),
        stays: Vec::with_capacity(listing.lines.len()),
        kept: 0,
        replaced: Vec::new(),
        epoch: 0,
        distance,
    };
    let mut walk = regions.walk();
    for index in 0..listing.lines.len() {
        while let Some(step) = walk.step(index as u32) {
            numbering.pass(step, index as u32);
        }
        let (before, line) = listing.lines.split_at_mut(index);
        let stays = numbering.line(&mut line[0], before);
        numbering.stays.push(stays);
        numbering.kept += u32::from(stays);
        numbering.changes.write(index as u32);
    }
    (numbering.stays, numbering.replaced)
}

/// Undoes the replacements of registers that lines read.
fn restore(listing: &mut Listing, replaced: &[Replaced]) {
    for Replaced { line, ordinal, before } in replaced {
        let mut next = 0;
        listing.lines[*line as usize].map_registers(|register, _| {
            if next == *ordinal {
                *register = *before;
            }
            next += 1;
        });
    }
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

    /// Replaces the registers that a line reads. Returns whether the line remains, because no known
    /// instruction is equal. `before` are the preceding lines.
    fn line(&mut self, line: &mut Line, before: &[Line]) -> bool {
        let index = before.len() as u32;
        let is_load = is_plain_load(line);
        let is_value = line.is_pure || is_load;
        let mut results = Results::new();
        let (mut is_once, mut ordinal) = (true, 0);
        let (same, writes, replaced) = (&self.same, self.writes, &mut self.replaced);
        line.map_registers(|register, access| {
            match access {
                Access::Read => {
                    let known = same[register.index()];
                    if known != *register {
                        replaced.push(Replaced { line: index, ordinal, before: *register });
                        *register = known;
                    }
                }
                Access::ReadWrite => is_once = false,
                Access::Write if is_value => {
                    is_once &= writes.is_once(*register);
                    results.push(*register);
                    // The hash must not depend on the results.
                    *register = RegisterId::new(0);
                }
                Access::Write => {}
            }
            ordinal += 1;
        });
        let LineKind::Instruction(_, instruction) = &mut line.kind else {
            self.epoch += 1;
            return true;
        };
        self.epoch += u32::from(effects::effect(instruction) == Effect::Other);
        let epoch = is_load.then_some(self.epoch);
        if !is_value || !is_once {
            set_results(instruction, &results);
            return true;
        }
        let hash = hash(instruction);
        let known = self.find(hash, instruction, epoch, before);
        set_results(instruction, &results);
        if let Some(known) = known {
            for (own, other) in results.iter().zip(&self.known[known as usize].results) {
                self.same[own.index()] = *other;
            }
            return false;
        }
        let last = self.last.insert(hash, self.known.len() as u32);
        self.known.push(KnownInstruction {
            hash,
            line: index,
            kept: self.kept,
            epoch,
            results,
            before: last,
        });
        true
    }

    /// Returns the index of a known instruction with equal operation and operands. It is at most
    /// `distance` remaining lines before. Its operands, or for a load the memory, have not changed
    /// since.
    fn find(
        &self,
        hash: u64,
        instruction: &mut Instruction,
        epoch: Option<u32>,
        lines: &[Line],
    ) -> Option<u32> {
        let mut next = self.last.get(&hash).copied();
        while let Some(index) = next {
            let known = &self.known[index as usize];
            if self.kept - known.kept > self.distance {
                return None;
            }
            set_results(instruction, &known.results);
            let other = lines[known.line as usize].instruction();
            if other == Some(&*instruction)
                && known.epoch == epoch
                && self.is_unchanged(instruction, known.line)
            {
                return Some(index);
            }
            next = known.before;
        }
        None
    }

    /// Returns whether an instruction's operands have not changed since the line `time`.
    fn is_unchanged(&self, instruction: &Instruction, time: u32) -> bool {
        let mut is_unchanged = true;
        instruction.visit_registers(|register, access| {
            is_unchanged &= access != Access::Read || self.changes.is_since(register, time);
        });
        is_unchanged
    }
}

/// Returns whether a line is an unguarded, ordinary load from global memory.
fn is_plain_load(line: &Line) -> bool {
    let LineKind::Instruction(None, instruction @ Instruction::Ld(load)) = &line.kind else { return false };
    let is_weak = effects::effect(instruction) == Effect::Value;
    is_weak && load.space == Some(StateSpace::Global) && load.cache != Some(LoadCache::Volatile)
}

fn hash(instruction: &Instruction) -> u64 {
    let mut hasher = FxHasher::default();
    instruction.hash(&mut hasher);
    hasher.finish()
}

/// Sets the registers that an instruction writes.
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
