//! Executes `slice` and `gather`.

use smallvec::SmallVec;
use tilewright_ir::IntList;

use crate::program::Step;
use crate::run::fault::{Fault, FaultKind, Outcome};
use crate::run::machine::Machine;
use crate::run::memory::{Axis, rearrange};
use crate::run::symbolic;
use crate::run::tile::Tile;
use crate::run::value::{Form, Value};

use super::materialize::materialize;
use super::shape::row_major;

/// Executes `slice`. A uniform or affine operand stays symbolic.
pub(crate) fn slice(machine: &mut Machine<'_>, step: &Step, starts: &IntList, steps: &IntList) {
    let (from, to) = (machine.type_of(step.operands[0]), machine.ty(step.result()));
    let value = machine.take(step.operands[0]);
    let provenance = value.provenance;
    let result = if let Some(form) = symbolic::slice(to.view(), &value.form, starts, steps) {
        form.into()
    } else {
        let tile = materialize(from, value);
        let mut out = Tile::new(to.bytes());
        let mut start = 0;
        let axes: SmallVec<[Axis; 8]> = row_major(from)
            .zip(row_major(to))
            .enumerate()
            .map(|(axis, (stride, tile))| {
                start += stride * starts[axis] as usize * to.size;
                let stride = steps[axis] * (stride * to.size) as i64;
                Axis { count: to.shape()[axis] as usize, stride, tile }
            })
            .collect();
        rearrange(to.size, &axes, out.bytes_mut(), tile.bytes(), start);
        Value::dense(out)
    };
    machine.set(step.result(), result.with_provenance(provenance));
}

pub(crate) fn gather(machine: &mut Machine<'_>, step: &Step, axis: usize) -> Outcome {
    let [tile, index] = [step.operands[0], step.operands[1]];
    let (from, to, place) = (machine.type_of(tile), machine.ty(step.result()), machine.type_of(index));
    let (tile, index) = (machine.take(tile), machine.take(index));
    let provenance = tile.provenance;
    let index = materialize(place, index);
    check_indices(index.bytes(), from.shape()[axis], axis)
        .map_err(|(fault, element)| fault.at(place.lane(element)))?;
    if let Form::Uniform(_) = tile.form {
        machine.set(step.result(), tile);
        return Ok(());
    }
    let tile = materialize(from, tile);
    let inner: usize = to.shape()[axis + 1..].iter().map(|&extent| extent as usize).product();
    let [extent, length] = [from, to].map(|ty| ty.shape()[axis] as usize);
    let mut out = Tile::new(to.bytes());
    let (source, indices) = (tile.bytes(), index.bytes());
    match to.size {
        1 => take::<1>(out.bytes_mut(), source, indices, [inner, extent, length]),
        2 => take::<2>(out.bytes_mut(), source, indices, [inner, extent, length]),
        4 => take::<4>(out.bytes_mut(), source, indices, [inner, extent, length]),
        _ => take::<8>(out.bytes_mut(), source, indices, [inner, extent, length]),
    }
    machine.set(step.result(), Value::dense(out).with_provenance(provenance));
    Ok(())
}

/// Checks that all indices are inside the axis. Returns the fault of the first other index, and its
/// position.
fn check_indices(indices: &[u8], extent: u32, axis: usize) -> Result<(), (Box<Fault>, usize)> {
    let number = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().expect("an index has four bytes"));
    let is_outside = |index: i32| index.cast_unsigned() >= extent;
    let Some(element) = indices.chunks_exact(4).position(|bytes| is_outside(number(bytes))) else {
        return Ok(());
    };
    let index = number(&indices[element * 4..][..4]);
    Err((Fault::new(FaultKind::IndexOutOfBounds { index, extent, axis }), element))
}

/// Gathers along an axis of `extent` elements in the source and `length` in the result. At each
/// index, `inner` elements are contiguous.
fn take<const SIZE: usize>(to: &mut [u8], from: &[u8], indices: &[u8], [inner, extent, length]: [usize; 3]) {
    let rows = to.chunks_exact_mut(inner * SIZE).zip(indices.chunks_exact(inner * 4));
    for (row, (to, indices)) in rows.enumerate() {
        let line = row / length * extent;
        for (column, (element, index)) in to.chunks_exact_mut(SIZE).zip(indices.chunks_exact(4)).enumerate() {
            let along = u32::from_le_bytes(index.try_into().expect("an index has four bytes")) as usize;
            let source = ((line + along) * inner + column) * SIZE;
            element.copy_from_slice(&from[source..source + SIZE]);
        }
    }
}
