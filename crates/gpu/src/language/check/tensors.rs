//! What copies of boxes of tensors take.

use super::{Check, Checker, ensure};
use crate::language::Type;

impl Checker<'_> {
    /// A copy of a box, whose coordinates are the operands from a place on.
    pub(super) fn tensor_copy(&self, coordinates: usize) -> Check {
        self.memory(0)?;
        self.descriptor(1)?;
        self.inst.operands[coordinates..].iter().try_for_each(|value| self.index(*value))
    }

    pub(super) fn tensor_fill(&self) -> Check {
        let is_empty = matches!(self.operand(0), Type::Empty(_));
        ensure(is_empty, || "tensor_fill takes an empty slot".into())?;
        self.tensor_copy(2)
    }

    pub(super) fn tensor_box(&self) -> Check {
        self.results(&[self.operand(0).clone()])?;
        let pointers = self.registers(0)?;
        let is_tile = pointers.element.pointee().is_some() && !pointers.is_scalar();
        ensure(is_tile, || format!("tensor_box takes a tile of pointers, found {pointers}"))?;
        self.descriptor(1)?;
        self.inst.operands[2..].iter().try_for_each(|value| self.index(*value))
    }

    fn descriptor(&self, place: usize) -> Check {
        let tile = self.registers(place)?;
        let is_pointer = tile.is_scalar() && tile.element.pointee().is_some();
        ensure(is_pointer, || format!("a descriptor is a pointer, found {tile}"))
    }
}
