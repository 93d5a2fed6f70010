//! Schedules: every op has a stage and runs after what it depends on.
//!
//! In a step, stage `n` runs for the iteration that began `n` steps before. The ops of a step run
//! in the order of the schedule. So a value is used in a later stage, or in its own stage by a
//! later op of the step. Example: ops `[0, 2]` and `[1, 0]` (stage and order) may use the value of
//! an op `[0, 1]`, but `[0, 0]` may not. A later op of the step may also use a carried value one
//! stage earlier.
//!
//! Dots of one accumulator need no wait in between, so the order of a `wgmma_wait` and a dot on its
//! result is free.

use rustc_hash::FxHashMap;
use tilewright_ir as ir;
use tilewright_ir::{Block, Definition, Inst, Operation, Stage, Value};

use crate::analysis::dataflow::Check;
use crate::{Function, GpuOp, Op};

/// Checks the schedules of a function.
pub fn check(function: &Function) -> Check {
    let mut loops = Vec::new();
    let mut count = 0;
    let mut note = |inst: Inst| {
        count += usize::from(function.schedule.contains_key(&inst));
        if matches!(function.insts[inst].op.as_tile(), Some(ir::Op::For { .. })) {
            loops.push(inst);
        }
    };
    function.walk(function.entry, &mut note);
    for inst in loops {
        count -=
            Loop::new(function, inst)?.map_or(Ok(0), |found| found.check().map(|()| found.ranks.len()))?;
    }
    if count == 0 {
        Ok(())
    } else {
        Err("an op that has a stage is not directly in the body of a for_loop".into())
    }
}

/// A loop with a schedule.
struct Loop<'a> {
    function: &'a Function,
    body: Block,
    /// The stage of each op, and its position in a step.
    ranks: FxHashMap<Inst, (u32, usize)>,
}

impl<'a> Loop<'a> {
    /// Returns `None` for a loop without a schedule.
    fn new(function: &'a Function, inst: Inst) -> Result<Option<Self>, String> {
        let body = function.insts[inst].regions[0];
        let insts = &function.blocks[body].insts;
        let insts = &insts[..insts.len().saturating_sub(1)];
        let mut staged: Vec<(Inst, Stage)> =
            insts.iter().filter_map(|inst| Some((*inst, *function.schedule.get(inst)?))).collect();
        if staged.is_empty() {
            return Ok(None);
        }
        if let Some(other) = insts.iter().find(|inst| !function.schedule.contains_key(inst)) {
            let name = function.insts[*other].op.name();
            return Err(format!("{name} has no stage, and other ops of its loop have one"));
        }
        staged.sort_by_key(|(_, stage)| stage.order);
        let ranks =
            staged.into_iter().enumerate().map(|(rank, (inst, stage))| (inst, (stage.stage, rank))).collect();
        Ok(Some(Self { function, body, ranks }))
    }

    fn check(&self) -> Check {
        for (&inst, &rank) in &self.ranks {
            let mut checked = self.uses(inst, inst, rank);
            for region in &self.function.insts[inst].regions {
                self.function.walk(*region, &mut |inner| {
                    if checked.is_ok() {
                        checked = self.uses(inst, inner, rank);
                    }
                });
            }
            checked?;
        }
        Ok(())
    }

    /// Checks the operands of `user`, in the scheduled op `inst`.
    fn uses(&self, inst: Inst, user: Inst, (stage, rank): (u32, usize)) -> Check {
        let data = &self.function.insts[user];
        for (index, operand) in data.operands.iter().enumerate() {
            let (value, distance) = self.origin(*operand);
            let Some(maker) = self.function.defining_inst(value) else { continue };
            let Some(&(made, made_rank)) = self.ranks.get(&maker) else { continue };
            let is_accumulated = matches!(data.op, Op::Gpu(GpuOp::Wgmma { .. }))
                && index == 2
                && matches!(self.function.insts[maker].op, Op::Gpu(GpuOp::WgmmaWait { .. }));
            let latest = stage + distance;
            let is_ready = made < latest || made == latest && (made_rank < rank || is_accumulated);
            if !is_ready {
                let [name, other] = [inst, maker].map(|inst| self.function.insts[inst].op.name());
                return Err(format!(
                    "{name} of stage {stage} runs before {other} of stage {made}, which it uses"
                ));
            }
        }
        Ok(())
    }

    /// Returns the value of an operand, and the iterations since its computation. They are 1 for a
    /// carried value, else 0.
    fn origin(&self, operand: Value) -> (Value, u32) {
        match self.function.values[operand].definition {
            Definition::Parameter(block, index) if block == self.body && index > 0 => {
                (self.function.yielded(block)[index as usize - 1], 1)
            }
            Definition::Parameter(..) | Definition::Result(..) => (operand, 0),
        }
    }
}
