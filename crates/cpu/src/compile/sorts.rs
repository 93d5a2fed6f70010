//! Forms sorts: if consecutive bitonic merges together sort a tile, replaces them by one step.
//!
//! Merges sort blocks of 2, 4, 8 … elements under two conditions. The first merge orders neighbors.
//! Each later merge combines two blocks of the previous merge.

use tilewright_ir::Op;

use crate::program::{Action, Program, Sort, Step};

/// Forms the sorts of all blocks. Replaces a merge only if the next merge is the only reader of its
/// result.
pub(crate) fn form(program: &mut Program) {
    let uses = program.use_counts();
    for block in &mut program.blocks {
        block.steps.dedup_by(|step, sorted| {
            let (Some(stage), Some(sort)) = (stage(step), sorts_before(sorted)) else { return false };
            let is_chain =
                step.operands[0].slot == sorted.results[0] && uses[sorted.results[0] as usize] == 1;
            if !is_chain || stage != sort {
                return false;
            }
            sorted.action = Action::Sort(Sort { stages: sort.stages + 1, ..sort });
            sorted.results = std::mem::take(&mut step.results);
            sorted.kills = std::mem::take(&mut step.kills);
            true
        });
    }
}

/// Returns the sort whose sorted blocks a merge combines in pairs. If the merge orders neighbors,
/// this sort has 0 stages.
fn stage(step: &Step) -> Option<Sort> {
    match step.op()? {
        &Op::Bitonic { axis, high, low: 0, block, descending } if block == high + 1 => {
            Some(Sort { axis: axis as usize, stages: high, descending })
        }
        // tidy: wildcard because no other op merges blocks that a sort has sorted
        _ => None,
    }
}

/// Returns the sort that a step executes, or `None` if the step does not sort.
fn sorts_before(step: &Step) -> Option<Sort> {
    match step.action {
        Action::Sort(sort) => Some(sort),
        // tidy: wildcard because only the first merge of a sort is itself a sort
        _ => stage(step).filter(|sort| sort.stages == 0).map(|sort| Sort { stages: 1, ..sort }),
    }
}
