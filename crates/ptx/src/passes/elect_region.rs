//! Puts one jump around consecutive instructions of the elected thread.
//!
//! With a guard on each instruction, the assembler computes uniform operands in all threads'
//! registers, and moves them one by one. For prefetches of tensor maps, the jump also keeps them
//! before the following code.
//!
//! Guarded instructions of a run write no registers; pure ones between them move before the jump.

use cranelift_entity::EntityRef;
use rustc_hash::FxHashSet;

use super::{Line, LineKind, Listing};
use crate::isa::{Access, Bra, BranchTarget, Instruction, LabelId, Predicate, RegisterId};

pub(super) fn run(listing: &mut Listing) {
    let is_first = |line: &Line| guard(line).is_some();
    let Some(first) = listing.lines.iter().position(is_first) else { return };
    let mut rest = listing.lines.split_off(first).into_iter();
    let mut lines = std::mem::take(&mut listing.lines);
    lines.reserve(rest.len());
    while let Some(start) = rest.as_slice().iter().position(is_first) {
        lines.extend(rest.by_ref().take(start));
        let Run { guard, count, copies } = Run::of(rest.as_slice());
        let run = rest.by_ref().take(count);
        if copies == 0 || count == 1 {
            lines.extend(run);
            continue;
        }
        let end = LabelId::new(listing.labels);
        listing.labels += 1;
        let (guarded, others): (Vec<Line>, Vec<Line>) = run.partition(|line| self::guard(line).is_some());
        let location = guarded[0].location;
        let line = |kind| Line { kind, location, is_pure: false };
        lines.extend(others);
        let others = Predicate { negated: !guard.negated, ..guard };
        let jump = Bra { uniform: false, target: BranchTarget(end) };
        lines.push(line(LineKind::Instruction(Some(others), jump.into())));
        lines.extend(guarded.into_iter().map(|mut line| {
            if let LineKind::Instruction(guard, _) = &mut line.kind {
                *guard = None;
            }
            line
        }));
        lines.push(line(LineKind::Label(end)));
    }
    lines.extend(rest);
    listing.lines = lines;
}

/// Returns the guard of an instruction that may be in a run. It is a load of a box, a prefetch, or
/// an arrival, and writes no register.
fn guard(line: &Line) -> Option<Predicate> {
    let LineKind::Instruction(Some(guard), instruction) = &line.kind else { return None };
    let is_of_copy = is_copy(instruction) || matches!(instruction, Instruction::MbarrierArrive(_));
    let mut writes = false;
    instruction.visit_registers(|_, access| writes |= access != Access::Read);
    (is_of_copy && !writes).then_some(*guard)
}

fn is_copy(instruction: &Instruction) -> bool {
    matches!(instruction, Instruction::CpAsyncBulkTensorLoad(_) | Instruction::Prefetch(_))
}

/// Consecutive lines that have one guard or are pure.
struct Run {
    guard: Predicate,
    count: usize,
    copies: usize,
}

impl Run {
    fn of(lines: &[Line]) -> Self {
        let own = guard(&lines[0]).expect("a run begins with a guard");
        let mut run = Self { guard: own, count: 0, copies: 0 };
        let mut read: FxHashSet<RegisterId> = FxHashSet::default();
        for (number, line) in lines.iter().enumerate() {
            if let Some(guard) = guard(line) {
                if guard != own {
                    break;
                }
                line.visit_registers(|register, _| {
                    read.insert(register);
                });
                run.count = number + 1;
                run.copies += usize::from(line.instruction().is_some_and(is_copy));
                continue;
            }
            let mut overwrites = false;
            line.visit_registers(|register, access| {
                overwrites |= access != Access::Read && read.contains(&register);
            });
            if !line.is_pure || overwrites {
                break;
            }
        }
        run
    }
}
