//! Sinking: moves computations directly before their first readers. It is for listings whose live
//! registers nearly fill those of a thread.
//!
//! The lowering emits ops one after the other, each for a whole tile. Sinking orders the code by
//! element, if this lowers the pressure enough. Lines with effects, and lines of registers with
//! several writes, keep their order. Listings with `wgmma` stay, because register operands must be
//! written before the fence. With `mma.sync`, whose dots' operands are computed together, the
//! pressure must exceed `Tuning::max_live_registers`.

use cranelift_entity::EntityRef;

use super::regions::Writes;
use super::{Line, LineKind, Listing, pressure};
use crate::isa::{Access, Instruction};

const NONE: u32 = u32::MAX;
pub(super) fn run(listing: &mut Listing) {
    let before = pressure::words(listing);
    let stays = |line: &Line| match line.instruction() {
        Some(Instruction::WgmmaFence(_)) => true,
        Some(Instruction::Mma(_)) => before <= listing.target.tuning.max_live_registers,
        // tidy: wildcard because the others may be computed when they are needed
        _ => false,
    };
    if listing.lines.iter().any(stays) {
        return;
    }
    let writes = Writes::of(listing);
    let mut order: Vec<u32> = Vec::with_capacity(listing.lines.len());
    let mut made_by = vec![NONE; listing.words.len()];
    let mut start = 0;
    for end in 0..=listing.lines.len() {
        if listing.lines.get(end).is_none_or(ends_a_block) {
            block(listing, &writes, start..end, &mut made_by, &mut order);
            if end < listing.lines.len() {
                order.push(end as u32);
            }
            start = end + 1;
        }
    }
    let sunk = order.iter().map(|place| &listing.lines[*place as usize]);
    if pressure::words_of_lines(sunk, &listing.words) + (before / listing.target.tuning.sinking_gain).max(1)
        <= before
    {
        listing.reorder(&order);
    }
}

/// Returns whether a line is a jump target, or may jump.
fn ends_a_block(line: &Line) -> bool {
    use Instruction as I;
    match &line.kind {
        LineKind::Label(_)
        | LineKind::Instruction(_, I::Bra(_) | I::BrxIdx(_) | I::Ret(_) | I::Exit(_) | I::Trap(_)) => true,
        LineKind::Instruction(..) | LineKind::Verbatim(..) => false,
    }
}

/// Appends the order of the lines of a block. Fixed lines keep their order, each after the lines
/// that it needs. Lines for other blocks are last.
fn block(
    listing: &Listing,
    writes: &Writes,
    lines: std::ops::Range<usize>,
    made_by: &mut [u32],
    order: &mut Vec<u32>,
) {
    let start = lines.start;
    let mut is_placed = vec![false; lines.len()];
    let moves: Vec<bool> = lines.clone().map(|place| may_move(&listing.lines[place], writes)).collect();
    for place in lines.clone().filter(|place| moves[place - start]) {
        listing.lines[place].visit_registers(|register, access| {
            if access == Access::Write {
                made_by[register.index()] = place as u32;
            }
        });
    }
    let kept = lines.clone().filter(|place| !moves[place - start]);
    for place in kept.chain(lines.clone().filter(|place| moves[place - start])) {
        // A line's needs are above it on the stack.
        let mut stack = vec![(place, false)];
        while let Some((line, is_ready)) = stack.pop() {
            if is_placed[line - start] {
                continue;
            }
            if is_ready {
                is_placed[line - start] = true;
                order.push(line as u32);
                continue;
            }
            stack.push((line, true));
            let first = stack.len();
            listing.lines[line].visit_registers(|register, access| {
                let maker = made_by[register.index()];
                if access != Access::Write && maker != NONE && !is_placed[maker as usize - start] {
                    stack.push((maker as usize, false));
                }
            });
            // The line of the first operand is placed first.
            stack[first..].reverse();
        }
    }
    for place in lines {
        listing.lines[place].visit_registers(|register, _| made_by[register.index()] = NONE);
    }
}

/// Returns whether a line may be anywhere after its operands.
fn may_move(line: &Line, writes: &Writes) -> bool {
    let LineKind::Instruction(None, _) = line.kind else { return false };
    let mut may_move = line.is_pure;
    line.visit_registers(|register, access| {
        may_move &= access != Access::ReadWrite && writes.is_once(register);
    });
    may_move
}
