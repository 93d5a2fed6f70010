//! Checks of tensor copies and of their tensor maps.

use tilewright_ir as ir;
use tilewright_ir::Value;

use super::{Check, Checker, ensure};
use crate::box_layout::BoxLayout;
use crate::layout_rules::{MIN_GATHERED_ROWS, element_bits, gathered_row_indices};
use crate::target::Feature;
use crate::tensor_maps::{TENSOR_MAP_BYTES, is_tensor_reduction};
use crate::types::Type;

impl Checker<'_> {
    /// Checks a box copy whose coordinates begin at operand `coordinates`.
    pub(super) fn tensor_copy(&self, coordinates: usize) -> Check {
        self.memory(0)?;
        self.descriptor(1)?;
        let memory = self.memory(0)?;
        let is_rows = self.coordinates(coordinates, &memory.shape)?;
        let memory_type = self.function.ty(self.inst.operands[0]);
        let fits = || {
            let bits = element_bits(&memory.tile());
            BoxLayout::of(self.header.layouts.get(memory.layout), bits)?.can_gather_rows(bits).then_some(())
        };
        ensure(!is_rows || fits().is_some(), || {
            format!("tensor copies cannot gather rows into {memory_type}")
        })
    }

    /// Checks that coordinates are scalars, or one scalar and a tile of row indices. Returns
    /// whether there is a tile.
    fn coordinates(&self, first: usize, shape: &[u32]) -> Result<bool, String> {
        let coordinates = &self.inst.operands[first..];
        let is_tile = |value: &&Value| self.ty(**value).as_registers().is_some_and(|tile| !tile.is_scalar());
        let Some(rows) = coordinates.iter().find(is_tile) else {
            coordinates.iter().try_for_each(|value| self.index(*value))?;
            return Ok(false);
        };
        let axis = coordinates.iter().position(|value| value == rows).unwrap_or_default();
        ensure(coordinates.len() == 2 && shape.len() == 2, || {
            format!("{} gathers rows, but its tensor is not a matrix", self.name())
        })?;
        let ty = self.ty(*rows);
        let tile = ty.as_registers().ok_or_else(|| format!("{ty} is not a tile of row indices"))?;
        let wanted = gathered_row_indices(shape[axis], self.header.num_warps);
        let fits = tile.dtype() == Some(ir::Dtype::I32)
            && tile.shape[..] == [shape[axis]]
            && shape[axis] >= MIN_GATHERED_ROWS
            && self.layout(ty) == Some(&wanted);
        ensure(fits, || format!("{ty} is not a tile of {} row indices", shape[axis]))?;
        ensure(self.header.target.features.has(Feature::TmaRows), || {
            format!("{} has no tensor copies of gathered rows", self.header.target.name)
        })?;
        self.index(coordinates[1 - axis])?;
        Ok(true)
    }

    pub(super) fn tensor_reduce(&self, kind: ir::AtomicKind) -> Check {
        let element = self.memory(0)?.element;
        let is_there = element.value().is_some_and(|dtype| is_tensor_reduction(kind, dtype));
        ensure(is_there, || format!("tensor_reduce cannot combine {element} by {kind:?}"))?;
        self.inst.operands[2..].iter().try_for_each(|value| self.index(*value))?;
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
        self.coordinates(2, &pointers.shape).map(|_| ())
    }

    /// Checks that the module has the map. The operands after the buffer are the map's scalars: the
    /// pointer and integers.
    pub(super) fn make_tensor_map(&self, map: u32) -> Check {
        let map = self
            .header
            .made_maps
            .get(map as usize)
            .ok_or_else(|| format!("the module has no tensor map M{map}"))?;
        let buffer = self.memory(0)?;
        ensure(buffer.slot_bytes() == TENSOR_MAP_BYTES, || {
            format!(
                "the buffer of a tensor map must have {TENSOR_MAP_BYTES} bytes, found {}",
                self.operand(0)
            )
        })?;
        let parts = &self.inst.operands[1..];
        ensure(map.arguments().all(|number| (number as usize) < parts.len()), || {
            format!("make_tensor_map has {} scalars, but the map uses more: {map}", parts.len())
        })?;
        for index in 1..=parts.len() {
            let part = self.registers(index)?;
            let is_base = index - 1 == map.base as usize;
            let fits = if is_base {
                part.element.pointee().is_some()
            } else {
                matches!(part.dtype(), Some(ir::Dtype::I32 | ir::Dtype::I64))
            };
            ensure(fits && part.is_scalar(), || {
                format!("the scalars of a tensor map must be one pointer, and int32 or int64, found {part}")
            })?;
        }
        self.results(&[Type::scalar(ir::Type::pointer(ir::Dtype::I8))])
    }

    fn descriptor(&self, index: usize) -> Check {
        let tile = self.registers(index)?;
        let is_pointer = tile.is_scalar() && tile.element.pointee().is_some();
        ensure(is_pointer, || format!("a descriptor must be a pointer, found {tile}"))
    }
}
