//! `dot`: `acc + a @ b` over the last two axes, for each index of the first axis if there are
//! three.
//!
//! Each element accumulates fused multiply-adds along k, ascending; see
//! [`crate::run::kernels::dot`]. A 16-bit accumulator is computed in binary32 and rounded once at
//! the end. `fp32` operands keep their precision: a lower input precision is allowed, but not
//! required.
//!
//! An operand is a tile, or the elements that a load has left in memory.

use crate::program::{Step, Use};
use crate::run::kernels::dot::{Extents, Matrix, dot as product};
use crate::run::machine::Machine;
use crate::run::memory::{MatrixReader, Region};
use crate::run::tile::Tile;
use crate::run::value::{Affine, Form, Provenance};
use crate::types::TileType;

use super::materialize::{materialize, materialize_unique};
use super::memory::region_of;

/// An operand of a dot.
pub(crate) enum Operand<'a> {
    Tile(Tile),
    /// Elements in user memory at these addresses, and whether the launch cannot change them.
    InPlace(Affine, Region<'a>, bool),
}

impl<'a> Operand<'a> {
    fn take(machine: &mut Machine<'a>, operand: Use) -> Self {
        let ty = machine.type_of(operand);
        let value = machine.take(operand);
        match value.form {
            Form::InPlace(affine) => Self::in_place(machine, affine, value.provenance),
            _ => Self::Tile(materialize(ty, value)),
        }
    }

    /// Returns an operand in user memory.
    pub(crate) fn in_place(machine: &Machine<'a>, affine: Affine, provenance: Provenance) -> Self {
        let region = region_of(machine, provenance, affine.base as u64);
        Self::InPlace(affine, region, machine.is_constant(&region))
    }

    /// Returns the matrix at an index of the first of three axes, or the only matrix. `extents` are
    /// those of the last two axes in memory. Panics if an element is outside of its region.
    pub(crate) fn matrix(
        &self,
        ty: &TileType,
        batch: usize,
        [rows, columns]: [usize; 2],
        transposed: bool,
    ) -> Matrix<'_> {
        let (dtype, rank) = (ty.dtype(), ty.shape().len());
        let matrix = match self {
            Self::Tile(tile) => {
                let bytes = rows * columns * ty.size;
                Matrix::new(dtype, &tile.bytes()[batch * bytes..][..bytes], columns)
            }
            Self::InPlace(affine, region, is_shared) => {
                let offset = if rank > 2 { affine.strides[0].wrapping_mul(batch as i64) } else { 0 };
                let address = affine.base.wrapping_add(offset) as u64;
                let strides = [affine.strides[rank - 2], affine.strides[rank - 1]];
                let elements = MatrixReader::new(region, ty.size, address, [rows, columns], strides);
                let elements = elements.expect("the addresses have been checked");
                Matrix { dtype, elements, is_widened: false, is_shared: *is_shared }
            }
        };
        if transposed { matrix.transposed() } else { matrix }
    }
}

pub(crate) fn dot(machine: &mut Machine<'_>, step: &Step, transposed: [bool; 2], widened: [bool; 2]) {
    let [a_ty, b_ty, acc_ty] = [0, 1, 2].map(|index| machine.type_of(step.operands[index]));
    let [a, b] = [0, 1].map(|index| Operand::take(machine, step.operands[index]));
    let acc = machine.take(step.operands[2]);
    let mut acc = materialize_unique(acc_ty, acc);
    let rank = acc_ty.shape().len();
    let extent = |ty: &TileType, axis: usize| ty.shape()[rank - 2 + axis] as usize;
    let extents =
        Extents { m: extent(acc_ty, 0), n: extent(acc_ty, 1), k: extent(a_ty, usize::from(!transposed[0])) };
    let bytes = extents.m * extents.n * acc_ty.size;
    let scratch = machine.scratch();
    for (batch, acc) in acc.bytes_mut().chunks_exact_mut(bytes.max(1)).enumerate() {
        let a = a.matrix(a_ty, batch, [0, 1].map(|axis| extent(a_ty, axis)), transposed[0]);
        let b = b.matrix(b_ty, batch, [0, 1].map(|axis| extent(b_ty, axis)), transposed[1]);
        let (a, b) = (Matrix { is_widened: widened[0], ..a }, Matrix { is_widened: widened[1], ..b });
        product(acc_ty.dtype(), acc, a, b, extents, scratch);
    }
    machine.set_dense(step.result(), acc);
}
