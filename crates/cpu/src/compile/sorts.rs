//! Replaces consecutive bitonic merges that sort a tile by one step.
//!
//! The first merge orders neighbors. Each later merge combines two blocks of the previous merge, so
//! that the sorted blocks have 2, 4, 8, … elements.

use tilewright_ir::Op;

use crate::program::{Action, Program, Sort, Step};

/// Forms the sorts of all blocks. The next merge must be the only reader of a replaced merge.
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

/// Returns the sort whose blocks a merge combines in pairs. For the first merge, it has 0 stages.
fn stage(step: &Step) -> Option<Sort> {
    match step.op()? {
        &Op::Bitonic { axis, high, low: 0, block, descending } if block == high + 1 => {
            Some(Sort { axis: axis as usize, stages: high, descending })
        }
        // tidy: wildcard because no other op merges blocks that a sort has sorted
        _ => None,
    }
}

fn sorts_before(step: &Step) -> Option<Sort> {
    match step.action {
        Action::Sort(sort) => Some(sort),
        // tidy: wildcard because only the first merge of a sort is itself a sort
        _ => stage(step).filter(|sort| sort.stages == 0).map(|sort| Sort { stages: 1, ..sort }),
    }
}
