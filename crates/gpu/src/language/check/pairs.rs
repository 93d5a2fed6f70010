//! What blocks in pairs share.

use tilewright_ir as ir;

use super::{Check, Checker, ensure};
use crate::language::Type;

impl Checker<'_> {
    /// Blocks run in pairs.
    pub(super) fn is_paired(&self) -> Check {
        ensure(self.header.paired, || format!("{} in a kernel whose blocks are no pairs", self.name()))
    }

    /// A buffer, the barriers of its slots, and a condition.
    pub(super) fn share(&self) -> Check {
        self.is_paired()?;
        let are_barriers = [1, 2].iter().all(|place| matches!(self.operand(*place), Type::Mbarrier { .. }));
        ensure(matches!(self.operand(0), Type::Buffer(_)) && are_barriers, || {
            "share takes a buffer and the barriers of its slots".into()
        })?;
        let condition = self.registers(3)?;
        let is_condition = condition.is_scalar() && condition.element.value() == Some(ir::Dtype::I1);
        ensure(is_condition, || format!("the condition of share is int1, found {condition}"))
    }
}
