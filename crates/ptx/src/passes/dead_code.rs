//! Dead-code elimination: removes lines that only write unused registers. A register that only
//! computes its next value in a loop is unused, too.

use cranelift_entity::EntityRef;

use super::effects::{Effect, effect};
use super::{LineKind, Listing};
use crate::isa::{Access, RegisterId};

/// The end of a list.
const NONE: u32 = u32::MAX;

/// The lines that write each register, as linked lists.
struct Writers {
    /// For each register, the index in `links` of the last line that writes it.
    last: Vec<u32>,
    /// A line, and the register's previous link.
    links: Vec<(u32, u32)>,
}

impl Writers {
    fn of(listing: &Listing) -> Self {
        let mut writers =
            Self { last: vec![NONE; listing.words.len()], links: Vec::with_capacity(listing.lines.len()) };
        for (index, line) in listing.lines.iter().enumerate() {
            line.visit_registers(|register, access| {
                if access != Access::Read {
                    let last = &mut writers.last[register.index()];
                    let before = std::mem::replace(last, writers.links.len() as u32);
                    writers.links.push((index as u32, before));
                }
            });
        }
        writers
    }

    /// Marks the lines that write a register as needed.
    fn need(&mut self, register: RegisterId, needed: &mut [bool], pending: &mut Vec<u32>) {
        let mut next = std::mem::replace(&mut self.last[register.index()], NONE);
        while next != NONE {
            let (line, before) = self.links[next as usize];
            if !std::mem::replace(&mut needed[line as usize], true) {
                pending.push(line);
            }
            next = before;
        }
    }
}

pub(super) fn run(listing: &mut Listing) {
    let mut writers = Writers::of(listing);
    let mut needed = vec![false; listing.lines.len()];
    let mut pending = Vec::new();
    for (index, line) in listing.lines.iter().enumerate() {
        let is_needed = match &line.kind {
            LineKind::Label(_) => true,
            LineKind::Instruction(_, instruction) => effect(instruction) == Effect::Other,
            LineKind::Verbatim(_, has_effect) => *has_effect,
        };
        if is_needed {
            needed[index] = true;
            pending.push(index as u32);
        }
    }
    while let Some(index) = pending.pop() {
        listing.lines[index as usize].visit_registers(|register, access| {
            if access != Access::Write {
                writers.need(register, &mut needed, &mut pending);
            }
        });
    }
    let mut index = 0;
    listing.lines.retain(|_| {
        index += 1;
        needed[index - 1]
    });
}
