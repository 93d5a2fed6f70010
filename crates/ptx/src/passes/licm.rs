//! Loop-invariant code motion: moves pure instructions before their loops. The loop must not write
//! their operands, and the new position is before its entry test. Code in a branch of the loop
//! stays.
//!
//! Additions to the descriptors of a dot's further parts stay, too. The assembler hoists as many
//! descriptors as there are uniform registers. Hoisted by this pass, they would occupy 16 registers
//! of each thread per operand. Accumulators need these registers.
//!
//! The sign extension of an offset stays if the offset is only added to variant values. There, it
//! takes no instruction, because the addition uses the lower word's sign as the upper word. Before
//! the loop, it would occupy a register.

use cranelift_entity::EntityRef;
use rustc_hash::{FxHashMap, FxHashSet};

use super::regions::{RegionKind, Regions, Writes};
use super::{Line, Listing};
use crate::isa::{Access, Destination, Immediate, Instruction, RegisterId, ScalarType, Source};

/// The position of the only write of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    /// After the current line.
    Below,
    /// In this region, or outside of all regions (`None`).
    In(Option<u32>),
}

struct Motion<'a> {
    regions: &'a Regions,
    writes: &'a Writes,
    homes: Vec<Home>,
    /// The registers that asynchronous dots read.
    of_dots: FxHashSet<RegisterId>,
    /// The registers of sign extensions that stay in the loop. They are the signs and the 64-bit
    /// numbers.
    extended: FxHashSet<RegisterId>,
}

/// Returns the registers that asynchronous dots read, except the accumulators.
fn read_by_dots(listing: &Listing) -> FxHashSet<RegisterId> {
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

/// Returns the number and the sign of `shr.s32 sign, number, 31`.
fn sign(instruction: &Instruction) -> Option<(RegisterId, RegisterId)> {
    let Instruction::Shr(shift) = instruction else { return None };
    let (Source::Register(of), Source::Immediate(Immediate::Integer(31))) = (&shift.a, &shift.b) else {
        return None;
    };
    (shift.ty == ScalarType::S32).then_some((*of, shift.d))
}

/// Returns the result and operands of an instruction that joins two words.
fn of_words(instruction: &Instruction) -> Option<(RegisterId, [RegisterId; 2])> {
    let Instruction::Mov(words) = instruction else { return None };
    let ([Destination::Register(number)], [Source::Register(low), Source::Register(high)]) =
        (&words.d.0[..], &words.a.0[..])
    else {
        return None;
    };
    (words.ty == ScalarType::B64).then_some((*number, [*low, *high]))
}

/// Maps 64-bit numbers that are joined from a word and its sign to the sign. Omits signs with other
/// readers, and signs of numbers with readers other than additions.
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
    /// Returns whether an instruction computes a part's descriptor from another part's.
    fn is_next_part(&self, instruction: &Instruction) -> bool {
        match instruction {
            Instruction::Add(add) => matches!(add.b, Source::Immediate(_)) && self.of_dots.contains(&add.d),
            // tidy: wildcard because only the addition of a constant leads from a part to the next
            // one
            _ => false,
        }
    }

    /// Returns whether a register may be written in a loop.
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

    /// Returns the outermost loop before which a line can move; `None` if it stays.
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

    /// Returns the lines that move before each loop.
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
        of_dots: read_by_dots(listing),
        extended: FxHashSet::default(),
    };
    let mut moved = motion.moved(listing);
    let mut extended = extended_for_sums(listing, &writes);
    if !extended.is_empty() {
        // An addition takes its extensions along.
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

/// Returns the new order, with each line of `moved` before its loop.
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
