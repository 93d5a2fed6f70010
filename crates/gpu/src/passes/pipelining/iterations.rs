//! How often a loop runs, where its bounds say so.

use tilewright_ir as ir;
use tilewright_ir::Operation;

use super::plan::Body;
use crate::language::{GpuOp, Op};

impl Body<'_> {
    /// The number of iterations, if the bounds are constants.
    pub(super) fn iterations(&self, step: i128) -> Option<u32> {
        let bound = |place: usize| match self
            .function
            .defining_op(self.function.insts[self.inst].operands[place])?
            .as_tile()?
        {
            ir::Op::Constant { value } => value.as_int(),
            // tidy: wildcard because any other value is known when the kernel runs
            _ => None,
        };
        let distance = (bound(1)? - bound(0)?) * step.signum();
        u32::try_from(distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs())).ok()
    }

    /// The number of iterations, if the upper bound is the lower one and a constant, and the sum does not overflow.
    pub(super) fn iterations_from_lower(&self, step: i128) -> Option<u32> {
        let function = self.function;
        let [lower, upper] = [0, 1].map(|place| function.insts[self.inst].operands[place]);
        let sum = &function.insts[function.defining_inst(upper)?];
        let Op::Gpu(GpuOp::Elementwise { function: ir::ElementwiseFn::Add, .. }) = sum.op else {
            return None;
        };
        let other = sum.operands.iter().find(|operand| **operand != lower)?;
        let Some(ir::Op::Constant { value }) = function.defining_op(*other)?.as_tile() else { return None };
        let distance = value.as_int().filter(|_| sum.operands.contains(&lower))? * step.signum();
        u32::try_from(distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs())).ok()
    }
}
