//! Executes `arange`, `splat`, `expand_dims`, `broadcast`, `reshape` and `transpose`.
//!
//! A symbolic tile stays symbolic if possible. `expand_dims` and `reshape` copy no dense tile.

use smallvec::SmallVec;
use tilewright_ir::IntList;

use crate::program::Step;
use crate::run::machine::Machine;
use crate::run::memory::{Axis, rearrange};
use crate::run::symbolic;
use crate::run::tile::Tile;
use crate::run::value::{Form, Value};
use crate::types::{SYMBOLIC_RANK, TileType};

use super::materialize::materialize;
use super::memory::scalar_or_tile;

/// Executes `arange`. The element at index i is `start + i`, in 32 bits.
pub(crate) fn arange(machine: &mut Machine<'_>, step: &Step, start: i64) {
    let ty = machine.ty(step.result());
    let form = symbolic::affine(ty.view(), start, [1, 0, 0, 0]).expect("a tile of one axis may be affine");
    machine.set(step.result(), form.into());
}

/// Executes `splat`. The tile has the form of its scalar.
pub(crate) fn splat(machine: &mut Machine<'_>, step: &Step) {
    let scalar = machine.take(step.operands[0]);
    machine.set(step.result(), scalar);
}

pub(crate) fn expand_dims(machine: &mut Machine<'_>, step: &Step, new_axis: u32) {
    let (from, to) = (machine.type_of(step.operands[0]), machine.ty(step.result()));
    let value = machine.take(step.operands[0]);
    if let Form::Dense(_) = value.form {
        machine.set(step.result(), value);
        return;
    }
    let added = new_axis as usize;
    let old = |new: usize| if new < added { Some(new) } else { new.checked_sub(1).filter(|_| new > added) };
    let axes: SmallVec<[Option<usize>; 8]> = (0..to.shape().len()).map(old).collect();
    let result = match symbolic::rearrange(to.view(), &value.form, &axes) {
        Some(form) => form.into(),
        None => Value::dense(materialize(from, value.clone())),
    };
    machine.set(step.result(), result.with_provenance(value.provenance));
}

pub(crate) fn reshape(machine: &mut Machine<'_>, step: &Step) {
    let (from, to) = (machine.type_of(step.operands[0]), machine.ty(step.result()));
    let value = machine.take(step.operands[0]);
    let provenance = value.provenance;
    let result = match symbolic::reshape(from.view(), to.view(), &value.form) {
        // A tile of one element becomes a scalar, which is uniform.
        Some(Form::Dense(tile)) if to.is_scalar() => scalar_or_tile(to, tile),
        // Moving the operand leaves a dense tile with one owner.
        Some(Form::Dense(_) | Form::Uniform(_)) => value,
        Some(form) => form.into(),
        None => Value::dense(materialize(from, value)),
    };
    machine.set(step.result(), result.with_provenance(provenance));
}

pub(crate) fn broadcast(machine: &mut Machine<'_>, step: &Step) {
    let (from, to) = (machine.type_of(step.operands[0]), machine.ty(step.result()));
    let value = machine.take(step.operands[0]);
    let provenance = value.provenance;
    let result = if from.shape() == to.shape() {
        value
    } else {
        let form = symbolic::broadcast(from.view(), to.view(), &value.form);
        form.map_or_else(
            || {
                let repeats = |axis: usize| from.shape()[axis] != to.shape()[axis];
                let strides = row_major(from).enumerate();
                let strides: SmallVec<[usize; 8]> =
                    strides.map(|(axis, stride)| if repeats(axis) { 0 } else { stride }).collect();
                copied(from, to, value, &strides)
            },
            Value::from,
        )
    };
    machine.set(step.result(), result.with_provenance(provenance));
}

pub(crate) fn transpose(machine: &mut Machine<'_>, step: &Step, permutation: &IntList) {
    let (from, to) = (machine.type_of(step.operands[0]), machine.ty(step.result()));
    let value = machine.take(step.operands[0]);
    let provenance = value.provenance;
    let axes: SmallVec<[Option<usize>; 8]> = permutation.iter().map(|&axis| Some(axis as usize)).collect();
    let symbolic = if from.shape().len() <= SYMBOLIC_RANK {
        symbolic::rearrange(to.view(), &value.form, &axes)
    } else {
        None
    };
    let result = symbolic.map_or_else(
        || {
            let strides: SmallVec<[usize; 8]> = row_major(from).collect();
            let strides: SmallVec<[usize; 8]> =
                permutation.iter().map(|&axis| strides[axis as usize]).collect();
            copied(from, to, value, &strides)
        },
        Value::from,
    );
    machine.set(step.result(), result.with_provenance(provenance));
}

/// Returns the strides of a dense tile, in elements.
pub(crate) fn row_major(ty: &TileType) -> impl Iterator<Item = usize> + '_ {
    (0..ty.shape().len()).map(|axis| ty.shape()[axis + 1..].iter().map(|&extent| extent as usize).product())
}

/// Copies a value to a dense tile of type `to`. `strides` has the distance in elements, in the
/// source, between neighbors along each axis of `to`.
fn copied(from: &TileType, to: &TileType, value: Value, strides: &[usize]) -> Value {
    if let Form::Uniform(_) = value.form {
        return value;
    }
    let tile = materialize(from, value);
    let mut out = Tile::new(to.bytes());
    let axes: SmallVec<[Axis; 8]> = row_major(to)
        .enumerate()
        .map(|(axis, tile)| Axis {
            count: to.shape()[axis] as usize,
            stride: (strides[axis] * to.size) as i64,
            tile,
        })
        .collect();
    rearrange(to.size, &axes, out.bytes_mut(), tile.bytes(), 0);
    Value::dense(out)
}
