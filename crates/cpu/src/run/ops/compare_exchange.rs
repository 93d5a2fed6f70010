//! `butterfly` and `bitonic`: exchange elements along an axis.

use crate::program::Step;
use crate::run::kernels::{self, reduce::Axis};
use crate::run::machine::Machine;
use crate::run::tile::Tile;
use crate::run::value::Form;

use super::materialize::{materialize, materialize_unique};
use super::reduce::Extents;

pub(crate) fn butterfly(machine: &mut Machine<'_>, step: &Step, axis: usize, mask: usize) {
    let ty = machine.type_of(step.operands[0]);
    let extents = Extents::around(ty.shape(), axis);
    let value = machine.take(step.operands[0]);
    if let Form::Uniform(_) = value.form {
        machine.set(step.result(), value);
        return;
    }
    let tile = materialize(ty, value);
    let row = extents.inner * ty.size;
    let mut out = Tile::new(ty.bytes());
    for (number, to) in out.bytes_mut().chunks_exact_mut(row).enumerate() {
        to.copy_from_slice(&tile.bytes()[(number ^ mask) * row..][..row]);
    }
    machine.set_dense(step.result(), out);
}

pub(crate) fn bitonic(
    machine: &mut Machine<'_>,
    step: &Step,
    axis: usize,
    (bits, descending): ([u32; 3], bool),
) {
    let ty = machine.type_of(step.operands[0]);
    let extents = Extents::around(ty.shape(), axis);
    let value = machine.take(step.operands[0]);
    let mut tile = materialize_unique(ty, value);
    let axis = Axis { outer: extents.outer, n: extents.n, inner: extents.inner };
    kernels::bitonic::merge(ty.dtype(), axis, (bits, descending), tile.bytes_mut());
    machine.set_dense(step.result(), tile);
}
