//! Expresses pointers as a base plus an offset in elements, which is a polynomial ([`Form`]).

use super::scalar_evolution::{Form, IntegerForm, MAX_DEPTH, ScalarEvolution, Term};
use crate::dialect::{Dialect, Operation};
use crate::function::{Block, Definition, Value};
use crate::ops::{Op, OpFamily};
use crate::types::Type;

/// A pointer, or a tile of pointers: a base plus an offset in elements.
#[derive(Clone, Debug)]
pub struct Address {
    /// A parameter of the kernel or, with [`ScalarEvolution::with_any_base`], another scalar
    /// pointer.
    pub base: Value,
    /// The offset.
    pub offset: IntegerForm,
}

impl<D: Dialect> ScalarEvolution<'_, D> {
    /// Returns the address of a pointer or of a tile of pointers. Returns `None` if the analysis
    /// finds no base that all pointers share.
    pub fn address(&mut self, pointers: Value) -> Option<Address> {
        self.address_within(pointers, MAX_DEPTH)
    }

    /// Returns the axis along which a tile of pointers is contiguous, if there is exactly one such
    /// axis.
    pub fn contiguous_axis(&mut self, pointers: Value) -> Option<usize> {
        let shape = &D::tile_type(self.function.ty(pointers))?.shape;
        let offset = self.address(pointers)?.offset.form;
        let is_contiguous = |axis: &usize| {
            let stride = offset.factor_of(Term::Axis(*axis)).and_then(|(stride, _)| stride.as_constant());
            shape[*axis] > 1 && stride == Some(1)
        };
        let mut axes = (0..shape.len()).filter(is_contiguous);
        axes.next().filter(|_| axes.next().is_none())
    }

    fn address_within(&mut self, pointers: Value, depth: u32) -> Option<Address> {
        let found = depth.checked_sub(1).and_then(|depth| self.compute_address(pointers, depth));
        let is_scalar = || D::tile_type(self.function.ty(pointers)).is_some_and(Type::is_scalar);
        let is_base = self.has_any_base && is_scalar();
        found.or_else(|| is_base.then(|| Address { base: pointers, offset: IntegerForm::default() }))
    }

    fn compute_address(&mut self, pointers: Value, depth: u32) -> Option<Address> {
        let inst = match self.function.values[pointers].definition {
            Definition::Parameter(block, _) if block == self.function.entry => {
                return Some(Address { base: pointers, offset: IntegerForm::default() });
            }
            Definition::Parameter(block, _) => return self.carried_address(pointers, block, depth),
            Definition::Result(inst, _) => inst,
        };
        let data = &self.function.insts[inst];
        let from = *data.operands.first()?;
        match (data.op.as_tile(), data.op.info().family) {
            (Some(Op::PtrAdd {}), _) => {
                let Address { base, offset } = self.address_within(from, depth)?;
                let by = self.integer_within(data.operands[1], depth)?;
                Some(Address { base, offset: offset.plus(&by)? })
            }
            (Some(op), _) if self.is_description(op) => None,
            (Some(Op::Splat { .. }), _) | (_, OpFamily::Identity) => self.address_within(from, depth),
            (Some(op), OpFamily::Shape) => {
                let Address { base, offset } = self.address_within(from, depth)?;
                let shape = &D::tile_type(self.function.ty(from))?.shape;
                Some(Address { base, offset: offset.reshaped(op.as_shape()?, shape)? })
            }
            // tidy: wildcard because the analysis does not follow the pointers of other ops
            _ => None,
        }
    }

    /// Returns the address of a pointer that a loop moves by a constant distance.
    fn carried_address(&mut self, pointers: Value, block: Block, depth: u32) -> Option<Address> {
        let inst = self.parents.owner(block)?;
        let Some(Op::For { .. }) = self.function.insts[inst].op.as_tile() else { return None };
        let carried = self.function.carried_by(inst, pointers)?;
        let Address { base, offset } = self.address_within(carried.initial?, depth)?;
        let step = self.pointer_step(*carried.yielded.first()?, pointers, depth)?;
        let next = step.plus(&Form::var(Term::Value(pointers)).into())?;
        Some(Address { base, offset: self.progression(inst, pointers, &offset, &next)? })
    }

    /// Returns the distance of `next` from `from`, if additions compute `next` from `from`.
    fn pointer_step(&mut self, next: Value, from: Value, depth: u32) -> Option<IntegerForm> {
        let depth = depth.checked_sub(1)?;
        if next == from {
            return Some(IntegerForm::default());
        }
        let data = &self.function.insts[self.function.defining_inst(next)?];
        let Some(Op::PtrAdd {}) = data.op.as_tile() else { return None };
        let before = self.pointer_step(data.operands[0], from, depth)?;
        before.plus(&self.integer_within(data.operands[1], depth)?)
    }
}
