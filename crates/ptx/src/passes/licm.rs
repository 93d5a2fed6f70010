//! Loop-invariant code motion: a pure instruction whose operands are from outside of a loop goes before it, and before the test
//! whether it is entered. What stands in a branch inside stays there.
//!
//! So does the step from the descriptor of an operand in shared memory to that of its next part. The assembler finds that it does not
//! change, and keeps as many of them as there are uniform registers; those that come from before the loop it keeps in the registers
//! of threads, 16 of them for each operand, which accumulators need.
//!
//! And so does the extension of an offset by its sign where it is only added to what changes: the unit that adds has the sign of the
//! lower word for the upper one, so that an extension in the loop takes no instruction, and one before it a register.

use cranelift_entity::EntityRef;
use rustc_hash::{FxHashMap, FxHashSet};

use super::regions::{RegionKind, Regions, Writes};
use super::{Line, Listing};
use crate::isa::{Access, Destination, Immediate, Instruction, RegisterId, ScalarType, Source};

/// Where a register is written that is written once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    /// Further down.
    Below,
    /// In a region, or in none.
    In(Option<u32>),
}

struct Motion<'a> {
    regions: &'a Regions,
    writes: &'a Writes,
    homes: Vec<Home>,
    /// What asynchronous products read.
    of_products: FxHashSet<RegisterId>,
    /// Signs, and what is extended by them, that stay with the sums that read it.
    extended: FxHashSet<RegisterId>,
}

/// The registers that asynchronous products read, their sums apart.
fn read_by_products(listing: &Listing) -> FxHashSet<RegisterId> {
    let mut found = FxHashSet::default();
    for line in &listing.lines {
        if let Some(instruction @ Instruction::Wgmma(_)) = line.instruction() {
            instruction.visit_registers(|register, access| {
                if access == Access::Read {
                    found.insert(register);
                }
            });
        }
    }
    found
}

/// The number whose sign an instruction gives, and that.
fn sign(instruction: &Instruction) -> Option<(RegisterId, RegisterId)> {
    let Instruction::Shr(shift) = instruction else { return None };
    let (Source::Register(of), Source::Immediate(Immediate::Integer(31))) = (&shift.a, &shift.b) else {
        return None;
    };
    (shift.ty == ScalarType::S32).then_some((*of, shift.d))
}

/// What an instruction puts together of a lower and an upper word.
fn of_words(instruction: &Instruction) -> Option<(RegisterId, [RegisterId; 2])> {
    let Instruction::Mov(words) = instruction else { return None };
    let ([Destination::Register(number)], [Source::Register(low), Source::Register(high)]) =
        (&words.d.0[..], &words.a.0[..])
    else {
        return None;
    };
    (words.ty == ScalarType::B64).then_some((*number, [*low, *high]))
}

/// The numbers extended by a sign that nothing but extensions read, if nothing but sums read any of them, with the sign.
fn extended_for_sums(listing: &Listing, writes: &Writes) -> FxHashMap<RegisterId, RegisterId> {
    let instructions = || listing.lines.iter().filter_map(Line::instruction);
    let mut signs: FxHashMap<RegisterId, RegisterId> =
        instructions().filter_map(sign).map(|(of, sign)| (sign, of)).collect();
    signs.retain(|sign, of| writes.is_once(*sign) && writes.is_once(*of));
    if signs.is_empty() {
        return FxHashMap::default();
    }
    let is_extension = |&(number, [low, high]): &(RegisterId, [RegisterId; 2])| {
        signs.get(&high) == Some(&low) && writes.is_once(number)
    };
    let mut of_sign: FxHashMap<RegisterId, RegisterId> = instructions()
        .filter_map(of_words)
        .filter(is_extension)
        .map(|(number, [_, sign])| (number, sign))
        .collect();
    let mut others: FxHashSet<RegisterId> = FxHashSet::default();
    for line in &listing.lines {
        let is_sum = matches!(line.instruction(), Some(Instruction::Add(_)));
        let extends = line.instruction().and_then(of_words).filter(is_extension).map(|(_, [_, sign])| sign);
        line.visit_registers(|register, access| match of_sign.get(&register) {
            _ if access == Access::Write => {}
            Some(sign) if !is_sum => _ = others.insert(*sign),
            None if extends != Some(register) && signs.contains_key(&register) => _ = others.insert(register),
            Some(_) | None => {}
        });
    }
    of_sign.retain(|_, sign| !others.contains(sign));
    of_sign
}

impl Motion<'_> {
    /// Whether an instruction makes the descriptor of a part of what a product reads, of that of another part.
    fn is_next_part(&self, instruction: &Instruction) -> bool {
        match instruction {
            Instruction::Add(add) => {
                matches!(add.b, Source::Immediate(_)) && self.of_products.contains(&add.d)
            }
            // tidy: wildcard because a part is so many bytes behind another one
            _ => false,
        }
    }

    /// Whether a register may be written in a loop.
    fn is_written_in(&self, register: RegisterId, region: u32) -> bool {
        let outer = self.regions.0[region as usize];
        if self.writes.is_never(register) {
            return false;
        }
        if !self.writes.is_once(register) {
            return self.writes.again_in(outer).iter().any(|(other, _)| *other == register);
        }
        match self.homes[register.index()] {
            Home::Below => true,
            Home::In(None) => false,
            Home::In(Some(home)) => {
                let home = self.regions.0[home as usize];
                outer.start <= home.start && home.end <= outer.end
            }
        }
    }

    /// The outermost loop that a line of a region can go before.
    fn outermost(&self, line: &Line, region: Option<u32>) -> Option<u32> {
        let instruction = line.instruction().filter(|_| line.is_pure)?;
        let mut stays = self.is_next_part(instruction);
        let mut registers: smallvec::SmallVec<[RegisterId; 8]> = smallvec::SmallVec::new();
        let mut is_once = true;
        instruction.visit_registers(|register, access| match access {
            Access::Read => registers.push(register),
            Access::Write => {
                is_once &= self.writes.is_once(register);
                stays |= self.extended.contains(&register);
            }
            Access::ReadWrite => is_once = false,
        });
        if !is_once || stays {
            return None;
        }
        let (mut found, mut inside) = (None, region);
        while let Some(index) = inside {
            let is_loop = self.regions.0[index as usize].kind == RegionKind::Loop;
            if !is_loop || registers.iter().any(|&register| self.is_written_in(register, index)) {
                break;
            }
            found = Some(index);
            inside = self.regions.0[index as usize].parent;
        }
        found
    }

    /// The lines that go before each loop.
    fn moved(&mut self, listing: &Listing) -> FxHashMap<u32, Vec<u32>> {
        let mut moved: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        let mut walk = self.regions.walk();
        for (index, line) in listing.lines.iter().enumerate() {
            while walk.step(index as u32).is_some() {}
            let mut home = walk.current();
            if let Some(outermost) = self.outermost(line, home) {
                moved.entry(outermost).or_default().push(index as u32);
                home = self.regions.0[outermost as usize].parent;
            }
            line.visit_registers(|register, access| {
                if access == Access::Write {
                    self.homes[register.index()] = Home::In(home);
                }
            });
        }
        moved
    }
}

pub(super) fn run(listing: &mut Listing) {
    let Some(regions) = Regions::of(listing) else { return };
    if regions.0.iter().all(|region| region.kind == RegionKind::Branch) {
        return;
    }
    let writes = Writes::of(listing);
    let mut motion = Motion {
        regions: &regions,
        writes: &writes,
        homes: vec![Home::Below; listing.words.len()],
        of_products: read_by_products(listing),
        extended: FxHashSet::default(),
    };
    let mut moved = motion.moved(listing);
    let mut extended = extended_for_sums(listing, &writes);
    if !extended.is_empty() {
        // Those of a sum that goes before a loop go with it.
        let mut go: FxHashSet<RegisterId> = FxHashSet::default();
        for &line in moved.values().flatten() {
            let line = &listing.lines[line as usize];
            if let Some(Instruction::Add(_)) = line.instruction() {
                line.visit_registers(|register, _| go.extend(extended.get(&register)));
            }
        }
        extended.retain(|_, sign| !go.contains(sign));
        motion.extended = extended.into_iter().flat_map(|(number, sign)| [number, sign]).collect();
        motion.homes.fill(Home::Below);
        moved = motion.moved(listing);
    }
    if !moved.is_empty() {
        listing.reorder(&order(listing.lines.len(), &regions, &moved));
    }
}

/// The order of so many lines in which some stand before loops.
fn order(lines: usize, regions: &Regions, moved: &FxHashMap<u32, Vec<u32>>) -> Vec<u32> {
    let mut order = Vec::with_capacity(lines);
    let mut is_moved = vec![false; lines];
    let mut walk = (0..regions.0.len() as u32).peekable();
    for index in 0..lines as u32 {
        while let Some(region) = walk.next_if(|&region| regions.0[region as usize].start == index) {
            for &line in moved.get(&region).into_iter().flatten() {
                is_moved[line as usize] = true;
                order.push(line);
            }
        }
        if !is_moved[index as usize] {
            order.push(index);
        }
    }
    order
}
