//! Checks of views of buffers, and of buffers with padding.

use super::{Check, Checker, ensure};
use crate::{GpuOp, Type};

impl Checker<'_> {
    pub(super) fn view(&self) -> Check {
        match (self.operand(0), &self.inst.results[..]) {
            (Type::Buffer(whole), [made]) => match self.ty(*made) {
                Type::Buffer(view) if view.bytes() <= whole.bytes() => Ok(()),
                other => Err(format!("view makes {other} of a buffer of {} bytes", whole.bytes())),
            },
            (other, _) => Err(format!("view takes a buffer, found {other}")),
        }
    }

    /// Checks that only threads access memory with padding.
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
        );
        ensure(is_by_threads, || format!("{} does not access memory with padding", self.name()))
    }
}
