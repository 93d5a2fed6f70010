//! Tensor copies, and the tensor maps that they go by.

use tilewright_ir as ir;

use super::{Check, Checker, ensure};
use crate::language::tensor_maps::{TENSOR_MAP_BYTES, is_tensor_reduction};
use crate::language::types::Type;

impl Checker<'_> {
    /// A copy of a box, whose coordinates are the operands from a place on.
    pub(super) fn tensor_copy(&self, coordinates: usize) -> Check {
        self.memory(0)?;
        self.descriptor(1)?;
        self.inst.operands[coordinates..].iter().try_for_each(|value| self.index(*value))
    }

    pub(super) fn tensor_reduce(&self, kind: ir::AtomicKind) -> Check {
        let element = self.memory(0)?.element;
        let is_there = element.value().is_some_and(|dtype| is_tensor_reduction(kind, dtype));
        ensure(is_there, || format!("there is no tensor_reduce {kind:?} of {element}"))?;
        self.tensor_copy(2)
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

    /// A map of the module, made of as many scalars as it names: the first the pointer, the others integers.
    pub(super) fn make_tensor_map(&self, map: u32) -> Check {
        let map = self.header.made_maps.get(map as usize).ok_or_else(|| format!("there is no M{map}"))?;
        let buffer = self.memory(0)?;
        ensure(buffer.slot_bytes() == TENSOR_MAP_BYTES, || {
            format!("a tensor map has {TENSOR_MAP_BYTES} bytes, found {}", self.operand(0))
        })?;
        let parts = &self.inst.operands[1..];
        ensure(map.arguments().all(|number| (number as usize) < parts.len()), || {
            format!("{map} is made of more than {} scalars", parts.len())
        })?;
        for place in 1..=parts.len() {
            let part = self.registers(place)?;
            let is_base = place - 1 == map.base as usize;
            let fits = if is_base {
                part.element.pointee().is_some()
            } else {
                matches!(part.dtype(), Some(ir::Dtype::I32 | ir::Dtype::I64))
            };
            ensure(fits && part.is_scalar(), || format!("{part} is no part of a tensor map"))?;
        }
        self.results(&[Type::scalar(ir::Type::pointer(ir::Dtype::I8))])
    }

    fn descriptor(&self, place: usize) -> Check {
        let tile = self.registers(place)?;
        let is_pointer = tile.is_scalar() && tile.element.pointee().is_some();
        ensure(is_pointer, || format!("a descriptor is a pointer, found {tile}"))
    }
}
