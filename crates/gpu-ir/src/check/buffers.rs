//! Checks of views, slots, rings and buffers with padding.

use super::{Check, Checker, ensure};
use crate::{Buffer, GpuOp, TensorMemory, Type};

impl Checker<'_> {
    pub(super) fn view(&self) -> Check {
        match (self.operand(0), &self.inst.results[..]) {
            (Type::Buffer(whole), [made]) => match self.ty(*made) {
                Type::Buffer(view) if view.bytes() <= whole.bytes() => Ok(()),
                other => Err(format!("view makes {other} of a buffer of {} bytes", whole.bytes())),
            },
            (Type::TensorMemory(whole), [made]) => match self.ty(*made) {
                Type::TensorMemory(view) if view.columns() <= whole.columns() => Ok(()),
                other => Err(format!("view makes {other} of {} columns of tensor memory", whole.columns())),
            },
            (other, _) => Err(format!("view takes a buffer or tensor memory, found {other}")),
        }
    }

    /// Checks the selection of one slot.
    pub(super) fn slot(&self) -> Check {
        let made = match self.operand(0) {
            Type::Buffer(buffer) => Type::Buffer(Buffer { slots: 1, ..buffer.clone() }),
            Type::TensorMemory(memory) => Type::TensorMemory(TensorMemory { slots: 1, ..memory.clone() }),
            other => return Err(format!("slot takes a buffer or tensor memory, found {other}")),
        };
        self.index(self.inst.operands[1])?;
        self.results(&[made])
    }

    pub(super) fn ring_op(&self, op: &GpuOp) -> Check {
        match (op, self.operand(0)) {
            (GpuOp::Acquire {}, Type::Ring(buffer)) => {
                self.results(&[Type::Empty(Buffer { slots: 1, ..buffer.clone() })])
            }
            (GpuOp::Acquire {}, other) => Err(format!("acquire takes a ring, found {other}")),
            (GpuOp::Take {}, Type::Ring(buffer)) => {
                self.results(&[Type::Full(Buffer { slots: 1, ..buffer.clone() })])
            }
            (GpuOp::Take {}, other) => Err(format!("take takes a ring, found {other}")),
            (GpuOp::Publish {}, other) => {
                ensure(matches!(other, Type::Empty(_)), || "publish takes an empty slot".into())
            }
            // tidy: wildcard because the caller passes only the ops above and `release`
            (_, other) => ensure(matches!(other, Type::Full(_)), || "release takes a full slot".into()),
        }
    }

    /// Checks that only threads, and dots with scales, access memory with padding.
    pub(super) fn padding(&self, op: &GpuOp) -> Check {
        let mut memory = self.inst.operands.iter().filter_map(|value| self.ty(*value).as_memory());
        if memory.all(|buffer| buffer.padding.is_none()) {
            return Ok(());
        }
        let is_by_threads = matches!(
            op,
            GpuOp::Dealloc {}
                | GpuOp::Slot {}
                | GpuOp::LocalStore {}
                | GpuOp::LocalLoad { matrix: false }
                | GpuOp::CopyAsync { .. }
                // Elements of 4 bits that a dot reads beside those of 8 bits are padded.
                | GpuOp::Tcgen05MmaScaled { .. }
                | GpuOp::FenceProxy {}
        );
        ensure(is_by_threads, || format!("{} does not access memory with padding", self.name()))
    }
}
