//! Executes `butterfly`, `bitonic` and sorts, which exchange elements along an axis.

use tilewright_ir::Dtype;

use crate::program::{Sort, Step};
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
    in_place(machine, step, axis, |dtype, axis, tile| {
        kernels::bitonic::merge(dtype, axis, (bits, descending), tile);
    });
}

/// Executes all merges of a sort at once.
pub(crate) fn sort(machine: &mut Machine<'_>, step: &Step, sort: Sort) {
    in_place(machine, step, sort.axis, |dtype, axis, tile| {
        kernels::bitonic::sort(dtype, axis, sort.stages, sort.descending, tile);
    });
}

/// Applies a function to the tile of the operand, or to a copy if the tile has another owner. A
/// uniform operand stays unchanged.
fn in_place(machine: &mut Machine<'_>, step: &Step, axis: usize, apply: impl FnOnce(Dtype, Axis, &mut [u8])) {
    let ty = machine.type_of(step.operands[0]);
    let Extents { outer, n, inner } = Extents::around(ty.shape(), axis);
    let value = machine.take(step.operands[0]);
    if let Form::Uniform(_) = value.form {
        machine.set(step.result(), value);
        return;
    }
    let mut tile = materialize_unique(ty, value);
    apply(ty.dtype(), Axis { outer, n, inner }, tile.bytes_mut());
    machine.set_dense(step.result(), tile);
}
