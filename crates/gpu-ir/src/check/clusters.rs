//! Checks of ops for clusters.

use tilewright_ir as ir;

use super::{Check, Checker, ensure};
use crate::{GpuOp, Type};

impl Checker<'_> {
    /// Checks that the kernel has clusters, and the operands of `multicast_loads`: a buffer, the
    /// barriers of its slots and a condition.
    pub(super) fn cluster_op(&self, op: &GpuOp) -> Check {
        ensure(self.header.paired || self.header.cluster > 1, || {
            format!("{} in a kernel without clusters", self.name())
        })?;
        let GpuOp::MulticastLoads {} = op else { return Ok(()) };
        let are_barriers = [1, 2].iter().all(|index| matches!(self.operand(*index), Type::Mbarrier { .. }));
        ensure(matches!(self.operand(0), Type::Buffer(_)) && are_barriers, || {
            "multicast_loads takes a buffer and the barriers of its slots".into()
        })?;
        let condition = self.registers(3)?;
        let is_condition = condition.is_scalar() && condition.element.value() == Some(ir::Dtype::I1);
        ensure(is_condition, || format!("the condition of multicast_loads must be int1, found {condition}"))
    }
}
