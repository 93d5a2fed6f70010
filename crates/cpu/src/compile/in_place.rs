//! Marks the loads whose elements may stay in memory, because only a dot reads them.
//!
//! The dot reads the elements in user memory, without a copy. No step between the load and the dot
//! may change memory. The load still checks its addresses, so a fault still names the load.

use crate::program::{Action, Block, Program, Slot, Step};

pub(crate) fn mark(program: &mut Program) {
    let uses = program.use_counts();
    let mut in_place = vec![false; program.slots.len()];
    for block in &program.blocks {
        for slot in loads_in_place(block, &uses) {
            in_place[slot as usize] = true;
        }
    }
    program.in_place = in_place;
}

fn loads_in_place(block: &Block, uses: &[u32]) -> Vec<Slot> {
    // The results of loads since the last step that may change memory.
    let mut candidates: Vec<Slot> = Vec::new();
    let mut found = Vec::new();
    let mut members = 0_usize;
    for step in &block.steps {
        let is_member = members > 0;
        members = members.saturating_sub(1);
        match &step.action {
            // The steps after a group are its members, which are examined one by one.
            Action::Fused(_) | Action::Nest(_) => {
                members = Program::members(step);
                continue;
            }
            Action::Dot { .. } => {
                let operands = [step.operands[0], step.operands[1]].map(|operand| operand.slot);
                found.extend(candidates.iter().filter(|result| operands.contains(result)));
            }
            // tidy: wildcard because no other action reads elements in place
            _ => {}
        }
        if may_change_memory(step) {
            candidates.clear();
        }
        let is_volatile = step.op().is_some_and(tilewright_ir::Op::is_volatile);
        if step.is_load() && !is_member && !is_volatile && uses[step.result() as usize] == 1 {
            candidates.push(step.result());
        }
    }
    found
}

fn may_change_memory(step: &Step) -> bool {
    step.has_side_effects() || !step.blocks.is_empty()
}
