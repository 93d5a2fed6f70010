//! Loop-invariant code motion: when the scope of a loop is closed, its pure instructions whose operands are from outside go
//! before the loop. What stands in a branch inside stays there.

use super::builder::{Builder, Line, LineKind};
use crate::isa::Access;

impl Builder {
    /// Ends the innermost scope, that of a loop, and gives the statements that stay in it. Those that go before it are known
    /// there from now on: who needs the same again gets their registers.
    pub fn close_loop(&mut self) -> Vec<Line> {
        let scope = self.pop_scope();
        let outside = self.scope_count() as u32 - 1;
        let mut stay = Vec::with_capacity(scope.lines.len());
        for line in scope.lines {
            if line.is_pure && self.reads_from(&line, outside) {
                self.set_depth_of_results(&line, outside);
                self.push_line(line);
            } else {
                stay.push(line);
            }
        }
        for (instruction, registers) in scope.numbers {
            if registers.iter().all(|register| self.depth(*register) <= outside) {
                self.remember(instruction, registers);
            }
        }
        stay
    }

    /// Whether all that a statement reads is from a scope of at most this depth.
    fn reads_from(&self, line: &Line, depth: u32) -> bool {
        let LineKind::Instruction(None, instruction) = &line.kind else { return false };
        let mut is_outside = true;
        instruction.visit_registers(|register, access| {
            is_outside &= access == Access::Write || self.depth(register) <= depth;
        });
        is_outside
    }

    fn set_depth_of_results(&mut self, line: &Line, depth: u32) {
        let LineKind::Instruction(_, instruction) = &line.kind else { return };
        let mut results = Vec::new();
        instruction.visit_registers(|register, access| {
            if access == Access::Write {
                results.push(register);
            }
        });
        self.set_depth(results, depth);
    }
}
