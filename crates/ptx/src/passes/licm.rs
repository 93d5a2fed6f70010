//! Loop-invariant code motion: a pure instruction whose operands are from outside of a loop goes before it, and before the test
//! whether it is entered. What stands in a branch inside stays there.
//!
//! So does the step from the descriptor of an operand in shared memory to that of its next part. The assembler finds that it does not
//! change, and keeps as many of them as there are uniform registers; those that come from before the loop it keeps in the registers
//! of threads, 16 of them for each operand, which accumulators need.

use cranelift_entity::EntityRef;
use rustc_hash::{FxHashMap, FxHashSet};

use super::regions::{RegionKind, Regions, Writes};
use super::{Line, Listing};
use crate::isa::{Access, Instruction, RegisterId, Source};

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
        if self.is_next_part(instruction) {
            return None;
        }
        let mut registers: smallvec::SmallVec<[RegisterId; 8]> = smallvec::SmallVec::new();
        let mut is_once = true;
        instruction.visit_registers(|register, access| match access {
            Access::Read => registers.push(register),
            Access::Write => is_once &= self.writes.is_once(register),
            Access::ReadWrite => is_once = false,
        });
        if !is_once {
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
    };
    let mut walk = regions.walk();
    // The lines that go before each loop.
    let mut moved: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (index, line) in listing.lines.iter().enumerate() {
        while walk.step(index as u32).is_some() {}
        let mut home = walk.current();
        if let Some(outermost) = motion.outermost(line, home) {
            moved.entry(outermost).or_default().push(index as u32);
            home = regions.0[outermost as usize].parent;
        }
        line.visit_registers(|register, access| {
            if access == Access::Write {
                motion.homes[register.index()] = Home::In(home);
            }
        });
    }
    if !moved.is_empty() {
        reorder(listing, &regions, &moved);
    }
}

/// Puts lines before loops.
fn reorder(listing: &mut Listing, regions: &Regions, moved: &FxHashMap<u32, Vec<u32>>) {
    let mut lines: Vec<Option<Line>> = std::mem::take(&mut listing.lines).into_iter().map(Some).collect();
    let mut walk = (0..regions.0.len() as u32).peekable();
    for index in 0..lines.len() {
        while let Some(region) = walk.next_if(|&region| regions.0[region as usize].start == index as u32) {
            for &line in moved.get(&region).into_iter().flatten() {
                listing.lines.extend(lines[line as usize].take());
            }
        }
        listing.lines.extend(lines[index].take());
    }
}
