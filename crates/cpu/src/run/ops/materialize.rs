//! Converts a value of any form to a dense tile.

use crate::run::kernels::elementwise::{fill, ramp};
use crate::run::tile::Tile;
use crate::run::value::{Affine, BoxMask, Form, Value};
use crate::types::{SYMBOLIC_RANK, TileType};

pub(crate) fn materialize(ty: &TileType, value: Value) -> Tile {
    match value.form {
        Form::Dense(tile) => tile,
        Form::Uniform(bits) => {
            let mut tile = Tile::new(ty.bytes());
            fill(ty.size, tile.bytes_mut(), bits);
            tile
        }
        Form::Affine(affine) => {
            let mut tile = Tile::new(ty.bytes());
            write_affine(ty, &affine, tile.bytes_mut());
            tile
        }
        Form::Box(mask) => {
            let mut tile = Tile::new(ty.bytes());
            write_box(ty, &mask, tile.bytes_mut());
            tile
        }
        Form::InPlace(_) => unreachable!("only a dot reads elements in place"),
    }
}

/// Returns the value as a dense tile with one owner.
pub(crate) fn materialize_unique(ty: &TileType, value: Value) -> Tile {
    let tile = materialize(ty, value);
    if tile.is_unique() {
        return tile;
    }
    let mut copy = Tile::new(ty.bytes());
    copy.bytes_mut().copy_from_slice(tile.bytes());
    copy
}

/// Pads a list to [`SYMBOLIC_RANK`] values, with `filler` at the front.
fn at_the_back<T: Copy>(rank: usize, values: &[T], filler: T) -> [T; SYMBOLIC_RANK] {
    let mut result = [filler; SYMBOLIC_RANK];
    result[SYMBOLIC_RANK - rank..].copy_from_slice(&values[..rank]);
    result
}

fn write_affine(ty: &TileType, affine: &Affine, out: &mut [u8]) {
    let rank = ty.shape().len();
    let extents = at_the_back(rank, ty.shape(), 1).map(|extent| extent as usize);
    let strides = at_the_back(rank, &affine.strides, 0);
    let row_bytes = extents[3] * ty.size;
    let mut rows = out.chunks_exact_mut(row_bytes.max(1));
    for i in 0..extents[0] {
        for j in 0..extents[1] {
            for k in 0..extents[2] {
                let Some(row) = rows.next() else { return };
                let base = (affine.base)
                    .wrapping_add(strides[0].wrapping_mul(i as i64))
                    .wrapping_add(strides[1].wrapping_mul(j as i64))
                    .wrapping_add(strides[2].wrapping_mul(k as i64));
                if strides[3] == 0 {
                    fill(ty.size, row, base as u64);
                } else {
                    ramp(ty.size, row, base, strides[3]);
                }
            }
        }
    }
}

fn write_box(ty: &TileType, mask: &BoxMask, out: &mut [u8]) {
    let rank = ty.shape().len();
    let extents = at_the_back(rank, ty.shape(), 1).map(|extent| extent as usize);
    let low = at_the_back(rank, &mask.low, 0).map(|index| index as usize);
    let high = at_the_back(rank, &mask.high, 1).map(|index| index as usize);
    out.fill(0);
    for i in low[0]..high[0] {
        for j in low[1]..high[1] {
            for k in low[2]..high[2] {
                let row = ((i * extents[1] + j) * extents[2] + k) * extents[3];
                out[row + low[3]..row + high[3]].fill(1);
            }
        }
    }
}

/// Returns the bits of the first element of a tile.
pub(crate) fn only_element(size: usize, tile: &[u8]) -> u64 {
    let mut bits = [0; 8];
    bits[..size].copy_from_slice(&tile[..size]);
    u64::from_le_bytes(bits)
}
