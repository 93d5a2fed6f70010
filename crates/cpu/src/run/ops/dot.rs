//! `dot`: `acc + a @ b` over the last two axes, for each index of the first axis if there are
//! three.
//!
//! Each element accumulates fused multiply-adds along k, ascending; see
//! [`crate::run::kernels::dot`]. A 16-bit accumulator is computed in binary32 and rounded once at
//! the end. `fp32` operands keep their precision: a lower input precision is allowed, but not
//! required.

use crate::program::Step;
use crate::run::kernels::dot::{Extents, Matrix, dot as product};
use crate::run::machine::Machine;
use crate::types::TileType;

use super::materialize::{materialize, materialize_unique};

pub(crate) fn dot(machine: &mut Machine<'_>, step: &Step, transposed: [bool; 2]) {
    let [a_ty, b_ty, acc_ty] = [0, 1, 2].map(|index| machine.type_of(step.operands[index]));
    let [left, right, acc] = [0, 1, 2].map(|index| machine.take(step.operands[index]));
    let (left, right) = (materialize(a_ty, left), materialize(b_ty, right));
    let mut acc = materialize_unique(acc_ty, acc);
    let rank = acc_ty.shape().len();
    let extent = |ty: &TileType, axis: usize| ty.shape()[rank - 2 + axis] as usize;
    let extents =
        Extents { m: extent(acc_ty, 0), n: extent(acc_ty, 1), k: extent(a_ty, usize::from(!transposed[0])) };
    let batches = acc_ty.elements() / (extents.m * extents.n).max(1);
    let scratch = machine.scratch();
    for batch in 0..batches {
        let matrix = |ty: &TileType, tile, is_transposed: bool| {
            let matrix = Matrix::new(ty.dtype(), tile, extent(ty, 1));
            if is_transposed { matrix.transposed() } else { matrix }
        };
        let part = |ty: &TileType| {
            let bytes = ty.bytes() / batches;
            batch * bytes..(batch + 1) * bytes
        };
        let a = matrix(a_ty, &left.bytes()[part(a_ty)], transposed[0]);
        let b = matrix(b_ty, &right.bytes()[part(b_ty)], transposed[1]);
        let acc = &mut acc.bytes_mut()[part(acc_ty)];
        product(acc_ty.dtype(), acc, a, b, extents, scratch);
    }
    machine.set_dense(step.result(), acc);
}
