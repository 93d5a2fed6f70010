//! Merges ops that only move elements, and replaces such ops on splats.

use tilewright_ir::{IntList, Literal, Op, Shape, Type, Value};

use super::Canonicalizer;

impl Canonicalizer<'_> {
    /// Replaces an `arange` of one element by the splat of a constant.
    pub(super) fn arange(&mut self, start: i64, end: i64, ty: &Type) -> Option<Value> {
        let dtype = ty.dtype().filter(|_| end.checked_sub(start) == Some(1))?;
        Some(self.make_constant(Literal::int(dtype, i128::from(start)), &ty.shape))
    }

    pub(super) fn expand_dims(&mut self, tile: Value, ty: &Type) -> Option<Value> {
        let scalar = self.uniform(tile)?;
        Some(self.make_splat(scalar, &ty.shape))
    }

    pub(super) fn broadcast(&mut self, tile: Value, ty: &Type) -> Option<Value> {
        if self.function.ty(tile) == ty {
            return Some(tile);
        }
        if let Some(scalar) = self.uniform(tile) {
            return Some(self.make_splat(scalar, &ty.shape));
        }
        if let Some(source) = self.operand_of(tile, |op| matches!(op, Op::Broadcast { .. })) {
            return Some(self.make(Op::Broadcast { shape: ty.shape.clone() }, &[source], ty));
        }
        self.picked(tile, ty)
    }

    pub(super) fn reshape(&mut self, tile: Value, ty: &Type) -> Option<Value> {
        if self.function.ty(tile) == ty {
            return Some(tile);
        }
        if let Some(scalar) = self.uniform(tile) {
            return Some(self.make_splat(scalar, &ty.shape));
        }
        let keeps_order = |op: &Op| matches!(op, Op::Reshape { .. } | Op::ExpandDims { .. });
        if let Some(source) = self.operand_of(tile, keeps_order) {
            return Some(self.make(Op::Reshape { shape: ty.shape.clone() }, &[source], ty));
        }
        let axis = new_axis(&self.function.ty(tile).shape, &ty.shape)?;
        Some(self.make(Op::ExpandDims { axis }, &[tile], ty))
    }

    pub(super) fn transpose(&mut self, tile: Value, permutation: &IntList, ty: &Type) -> Option<Value> {
        if permutation.iter().enumerate().all(|(place, &axis)| axis == place as i64) {
            return Some(tile);
        }
        if let Some(scalar) = self.uniform(tile) {
            return Some(self.make_splat(scalar, &ty.shape));
        }
        let inst = self.function.defining_inst(tile)?;
        let data = &self.function.insts[inst];
        let (Op::Transpose { permutation: first }, &[source]) = (&data.op, &data.operands[..]) else {
            return None;
        };
        let composed: IntList =
            permutation.iter().map(|&axis| first.get(axis as usize).copied()).collect::<Option<_>>()?;
        Some(self.make(Op::Transpose { permutation: composed }, &[source], ty))
    }
}

/// Returns the axis of extent 1 whose insertion turns `from` into `to`, if that is the only
/// difference.
fn new_axis(from: &Shape, to: &Shape) -> Option<u32> {
    if to.len() != from.len() + 1 {
        return None;
    }
    let axis = (0..to.len()).find(|&axis| from.get(axis) != to.get(axis))?;
    (to[axis] == 1 && to.without(axis) == *from).then_some(axis as u32)
}
