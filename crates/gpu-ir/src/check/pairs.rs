//! What blocks in pairs share.

use tilewright_ir as ir;

use super::{Check, Checker, ensure};
use crate::{GpuOp, Type};

impl Checker<'_> {
    /// Blocks run in pairs; what they share is a buffer with the barriers of its slots, on a condition.
    pub(super) fn in_pairs(&self, op: &GpuOp) -> Check {
        ensure(self.header.paired || self.header.cluster > 1, || {
            format!("{} in a kernel whose blocks are no pairs", self.name())
        })?;
        let GpuOp::Share {} = op else { return Ok(()) };
        let are_barriers = [1, 2].iter().all(|place| matches!(self.operand(*place), Type::Mbarrier { .. }));
        ensure(matches!(self.operand(0), Type::Buffer(_)) && are_barriers, || {
            "share takes a buffer and the barriers of its slots".into()
        })?;
        let condition = self.registers(3)?;
        let is_condition = condition.is_scalar() && condition.element.value() == Some(ir::Dtype::I1);
        ensure(is_condition, || format!("the condition of share is int1, found {condition}"))
    }
}
