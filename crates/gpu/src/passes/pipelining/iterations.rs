//! Computes the number of iterations of a loop from its bounds.

use tilewright_ir as ir;
use tilewright_ir::{Inst, Value, constant_int};

use super::loop_body::LoopBody;
use tilewright_gpu_ir::{Function, GpuOp, Op};

impl LoopBody<'_> {
    /// Returns the number of iterations, if the bounds are constants.
    pub(super) fn iterations(&self, step: i128) -> Option<u32> {
        let bound =
            |index: usize| constant_int(self.function, self.function.insts[self.inst].operands[index]);
        count(bound(1)? - bound(0)?, step)
    }
}

/// Returns the iterations of a loop whose bounds differ by a constant. If the upper bound overflows
/// at run time, the loop has no iteration, and the returned number is wrong.
pub fn constant_iterations(function: &Function, inst: Inst) -> Option<u32> {
    let operands = &function.insts[inst].operands;
    let step = constant_int(function, operands[2]).filter(|step| *step != 0)?;
    let [(from, lower), (to, upper)] = [operands[0], operands[1]].map(|bound| split(function, bound));
    count((from == to).then_some(upper - lower)?, step)
}

/// Splits a scalar into the sum of a value and a constant. The value of a constant is `None`.
fn split(function: &Function, mut value: Value) -> (Option<Value>, i128) {
    let mut offset = 0;
    loop {
        if let Some(constant) = constant_int(function, value) {
            return (None, offset + constant);
        }
        let Some(inst) = function.defining_inst(value) else { return (Some(value), offset) };
        let data = &function.insts[inst];
        let Op::Gpu(GpuOp::Elementwise { function: ir::ElementwiseFn::Add, .. }) = data.op else {
            return (Some(value), offset);
        };
        let constants = [0, 1].map(|index| constant_int(function, data.operands[index]));
        (value, offset) = match constants {
            [_, Some(constant)] => (data.operands[0], offset + constant),
            [Some(constant), None] => (data.operands[1], offset + constant),
            [None, None] => return (Some(value), offset),
        };
    }
}

fn count(distance: i128, step: i128) -> Option<u32> {
    let distance = distance * step.signum();
    u32::try_from(distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs())).ok()
}
