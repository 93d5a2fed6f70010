//! Checks of asynchronous dots and of waits for them.

use super::{Check, Checker, ensure};
use crate::{GpuOp, MmaShape, Op, Type};

impl Checker<'_> {
    pub(super) fn wgmma(&self, op: &GpuOp, instruction: MmaShape, warps: &[i64]) -> Check {
        self.dependence(3)?;
        for index in 0..2 {
            let ty = self.operand(index);
            ensure(!op.reads_transpose(index) || ty.as_memory().is_some(), || {
                format!("{ty} is not in shared memory, where its transpose can be read")
            })?;
        }
        self.mma(instruction, warps, true)
    }

    pub(super) fn wgmma_wait(&self) -> Check {
        let dot @ Type::Pending { tile, layout } = self.operand(0) else {
            return Err(format!("{} takes a dot in flight, found {}", self.name(), self.operand(0)));
        };
        if matches!(self.inst.op, Op::Gpu(GpuOp::WgmmaWaitEarlier { .. })) {
            return self.results(std::slice::from_ref(dot));
        }
        self.dependence(1)?;
        self.results(&[Type::registers(tile.clone(), Some(*layout))])
    }

    pub(super) fn wgmma_init(&self) -> Check {
        let Type::Registers { tile, layout: Some(layout) } = self.operand(0) else {
            return Err(format!("wgmma_init takes a tile, found {}", self.operand(0)));
        };
        self.results(&[Type::Pending { tile: tile.clone(), layout: *layout }])
    }
}
