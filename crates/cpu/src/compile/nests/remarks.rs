//! Reports the steps in nests, and the reason why each other step is not.

use std::ops::Range;

use tilewright_base::{Remark, RemarkKind, remark};
use tilewright_ir::Op;

use super::refusal::Refusal;
use super::{Formed, PlannedBlock};
use crate::program::describe::{line_ranges, step_names};
use crate::program::nest::Repeated;
use crate::program::{Action, BlockId, Program, Slot, Step};

const PASS: &str = "nests";

/// Reports that the executor compiles no machine code for the processor.
pub(crate) fn report_no_target() {
    remark(|| Remark {
        pass: PASS,
        kind: RemarkKind::Missed,
        span: None,
        subject: "all steps".into(),
        decision: "run by the executor".into(),
        reason: "machine code needs AVX2 with FMA, F16C and BMI2, or NEON".into(),
    });
}

/// Reports the nests of a program and the other steps, before the nests are inserted.
pub(super) fn report(program: &Program, planned: &[PlannedBlock]) {
    if !tilewright_base::is_collecting() {
        return;
    }
    for id in executed_blocks(program) {
        let Some(PlannedBlock { nests, refused, .. }) = planned.iter().find(|block| block.id == id) else {
            continue;
        };
        let steps = &program.blocks[id as usize].steps;
        for nest in nests {
            report_nest(program, steps, nest);
        }
        let mut refused = refused.clone();
        // The remark about a nest that executes iterations covers the loop.
        refused.retain(|&(index, _)| !is_in_nest(planned, &steps[index]));
        refused.sort_unstable_by_key(|&(index, _)| index);
        // Consecutive steps of one source line with the same reason share a remark.
        let is_same = |&(x, reason): &(usize, Refusal), &(y, other): &(usize, Refusal)| {
            x + 1 == y && reason == other && line(program, &steps[x]) == line(program, &steps[y])
        };
        for group in refused.chunk_by(is_same) {
            let (first, reason) = group[0];
            report_refused(program, &steps[first..first + group.len()], reason);
        }
    }
}

/// Returns whether a step is a loop whose iterations one nest executes.
fn is_in_nest(planned: &[PlannedBlock], step: &Step) -> bool {
    let body = step.blocks.first().filter(|_| matches!(step.op(), Some(Op::For { .. })));
    let block = planned.iter().find(|block| Some(&block.id) == body);
    let nest = block.and_then(|block| block.nests.first());
    nest.is_some_and(|formed| matches!(formed.nest.repeated, Repeated::Iterations { .. }))
}

fn executed_blocks(program: &Program) -> Vec<BlockId> {
    let mut blocks = vec![program.body];
    let mut next = 0;
    while next < blocks.len() {
        let control = program.blocks[blocks[next] as usize]
            .steps
            .iter()
            .filter(|step| matches!(step.op(), Some(Op::If { .. } | Op::For { .. } | Op::While { .. })));
        blocks.extend(control.flat_map(|step| step.blocks.iter().copied()).collect::<Vec<_>>());
        next += 1;
    }
    blocks
}

fn line(program: &Program, step: &Step) -> Option<(usize, u32)> {
    let span = program.span_of_site(step.site)?;
    let (file, line) = program.place(span);
    Some((std::ptr::from_ref(file) as usize, line))
}

fn report_nest(program: &Program, steps: &[Step], nest: &Formed) {
    let range: Range<usize> = nest.start..nest.end;
    let is_member = |index: &usize| !nest.before.contains(&(index - nest.start));
    let members: Vec<&Step> = range.filter(is_member).map(|index| &steps[index]).collect();
    remark(|| Remark {
        pass: PASS,
        kind: RemarkKind::Done,
        span: members.first().and_then(|step| program.span_of_site(step.site)),
        subject: step_names(members.iter().copied()),
        decision: format!(
            "one nest of machine code{}, {}",
            if matches!(nest.nest.repeated, Repeated::Iterations { .. }) { " with the loop" } else { "" },
            line_ranges(&program.lines_of(members.iter().copied()))
        ),
        reason: String::new(),
    });
}

fn report_refused(program: &Program, steps: &[Step], reason: Refusal) {
    let tile = steps.iter().flat_map(slots).find(|&slot| !program.ty(slot).is_scalar());
    // Arithmetic on scalars takes too little time for a remark.
    if tile.is_none() && matches!(reason, Refusal::TooSmall | Refusal::SharedIndices) {
        return;
    }
    // Machine code executes these reductions as trees.
    let is_tree = |step: &Step| matches!(step.action, Action::Reduce { code: Some(_), .. });
    let (kind, decision, reason) = if steps.iter().all(is_tree) {
        (RemarkKind::Done, "machine code of its own, as a tree", String::new())
    } else if reason.is_choice() {
        (RemarkKind::Note, "run by the executor", reason.to_string())
    } else {
        (RemarkKind::Missed, "run by the executor", reason.to_string())
    };
    let names = step_names(steps);
    let of = tile.map(|slot| format!(" of {}", program.type_text(slot))).unwrap_or_default();
    remark(|| Remark {
        pass: PASS,
        kind,
        span: steps.first().and_then(|step| program.span_of_site(step.site)),
        subject: format!("{names}{of}"),
        decision: decision.into(),
        reason,
    });
}

/// Returns the results of a step, then its operands.
fn slots(step: &Step) -> impl Iterator<Item = Slot> + '_ {
    step.results.iter().copied().chain(step.operands.iter().map(|operand| operand.slot))
}
