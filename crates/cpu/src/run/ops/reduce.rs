//! Executes `reduce`: combines tiles along an axis.
//!
//! - A region that is one function of [`Combine`](crate::program::Combine) runs as a loop, in the
//!   order of [`kernels::reduce`](crate::run::kernels::reduce).
//! - A region with control flow or an impure op runs element by element. So does a reduction inside
//!   of a region on whole tiles.
//! - Other regions run as a tree over whole tiles. Each level combines neighbors: `a b c d e`
//!   becomes `ab cd e`, then `abcd e`, then `abcde`. The order depends only on the extent, and
//!   operands are never swapped.

use smallvec::SmallVec;
use tilewright_ir::Shape;

use crate::program::{BlockId, Step, Strategy, TreeCode};
use crate::run::fault::Outcome;
use crate::run::kernels::reduce as kernel;
use crate::run::machine::Machine;
use crate::run::memory::{Axis, call_machine_code, rearrange};
use crate::run::tile::Tile;
use crate::run::value::{Form, Value};
use crate::types::TileType;

use super::materialize::{materialize, materialize_unique, only_element};
use super::memory::scalar_or_tile;

/// A tile viewed as `(outer, n, inner)` around the axis.
#[derive(Clone, Copy)]
pub(super) struct Extents {
    pub outer: usize,
    pub n: usize,
    pub inner: usize,
}

impl Extents {
    pub fn around(shape: &[u32], axis: usize) -> Self {
        let product = |extents: &[u32]| extents.iter().map(|&extent| extent as usize).product();
        Self { outer: product(&shape[..axis]), n: shape[axis] as usize, inner: product(&shape[axis + 1..]) }
    }

    /// Views the tile as rows of `inner` elements. Returns the rows at the positions `indices`
    /// along the axis, counted from its end with `reverse`.
    pub fn rows(&self, indices: &[usize], reverse: bool) -> Vec<usize> {
        let along = |index: &usize| if reverse { self.n - 1 - index } else { *index };
        (0..self.outer).flat_map(|outer| indices.iter().map(move |at| outer * self.n + along(at))).collect()
    }
}

pub(crate) fn reduce(
    machine: &mut Machine<'_>,
    step: &Step,
    axis: usize,
    strategy: Strategy,
    code: Option<&TreeCode>,
) -> Outcome {
    let extents = Extents::around(machine.type_of(step.operands[0]).shape(), axis);
    match strategy {
        Strategy::Kernel(combine) => {
            by_kernel(machine, step, combine, extents);
            Ok(())
        }
        Strategy::Tree => {
            if !by_machine_code(machine, step, code) {
                as_tree(machine, step, &step.blocks, extents)?;
            }
            Ok(())
        }
        Strategy::Sequential => sequentially(machine, step, step.blocks[0], extents),
    }
}

/// Reduces with the loop of `run/kernels/reduce.rs`.
fn by_kernel(machine: &mut Machine<'_>, step: &Step, combine: kernel::Combine, extents: Extents) {
    let result = step.result();
    let (from, to) = (machine.type_of(step.operands[0]), machine.ty(result));
    let value = machine.take(step.operands[0]);
    if let Form::Uniform(bits) = value.form
        && let Some(bits) = kernel::of_equal_elements(combine, from.dtype(), bits)
    {
        machine.set_uniform(result, bits);
        return;
    }
    let tile = materialize(from, value);
    let axis = kernel::Axis { outer: extents.outer, n: extents.n, inner: extents.inner };
    if to.is_scalar() {
        let mut bits = [0_u64];
        let out = &mut bytemuck::cast_slice_mut(&mut bits)[..to.size];
        kernel::reduce(combine, from.dtype(), axis, out, tile.bytes());
        machine.set_uniform(result, u64::from_le(bits[0]));
    } else {
        let mut out = Tile::new(to.bytes());
        kernel::reduce(combine, from.dtype(), axis, out.bytes_mut(), tile.bytes());
        machine.set_dense(result, out);
    }
}

/// Executes a tree with its machine code. Returns false, without an effect, if there is no code, if
/// the launch does not allow machine code, or if a captured value varies.
fn by_machine_code(machine: &mut Machine<'_>, step: &Step, code: Option<&TreeCode>) -> bool {
    let Some(TreeCode { code, captured }) = code.filter(|_| machine.control.machine_code) else {
        return false;
    };
    let Some(executable) = code.executable() else { return false };
    let mut bits: SmallVec<[u64; 4]> = SmallVec::new();
    for &slot in captured {
        let &Form::Uniform(scalar) = machine.form_of(slot) else { return false };
        bits.push(scalar);
    }
    let mut tiles: SmallVec<[Tile; 4]> = SmallVec::new();
    for &operand in &step.operands {
        let value = machine.take(operand);
        tiles.push(materialize_unique(machine.type_of(operand), value));
    }
    let address = |tile: &mut Tile| tile.bytes_mut().as_mut_ptr().expose_provenance() as u64;
    let mut words: SmallVec<[u64; 8]> = tiles.iter_mut().map(address).collect();
    words.extend(bits);
    call_machine_code(executable, &mut words);
    for (tile, &result) in tiles.into_iter().zip(&step.results) {
        let ty = machine.ty(result);
        let value = if ty.is_scalar() {
            Value::uniform(only_element(ty.size, tile.bytes()))
        } else {
            let mut out = Tile::new(ty.bytes());
            out.bytes_mut().copy_from_slice(&tile.bytes()[..ty.bytes()]);
            Value::dense(out)
        };
        machine.set(result, value);
    }
    true
}

fn as_tree(machine: &mut Machine<'_>, step: &Step, levels: &[BlockId], extents: Extents) -> Outcome {
    let sizes: SmallVec<[usize; 4]> =
        step.operands.iter().map(|&operand| machine.type_of(operand).size).collect();
    let mut tiles: SmallVec<[Tile; 4]> = SmallVec::new();
    for &operand in &step.operands {
        let ty = machine.type_of(operand);
        let value = machine.take(operand);
        tiles.push(materialize(ty, value));
    }
    let mut now = extents;
    for &level in levels {
        let half = Extents { n: now.n / 2, ..now };
        let parts = |first: usize| {
            let every_other =
                |(tile, &size): (&Tile, &usize)| Value::dense(part(size, tile, now, first, 2, half.n));
            tiles.iter().zip(&sizes).map(every_other).collect::<SmallVec<[Value; 4]>>()
        };
        let (left, right) = (parts(0), parts(1));
        machine.call(level, left.into_iter().chain(right))?;
        let rest = now.n % 2;
        for index in (0..tiles.len()).rev() {
            let combined = machine.pop();
            // The region may yield a captured scalar, without the shape of the level.
            let elements = half.outer * half.n * half.inner;
            let element = machine.type_of(step.operands[index]);
            let ty = TileType::with_shape(element.element, Shape::from([elements as u32]));
            let combined = materialize(&ty, combined);
            tiles[index] = if rest == 0 {
                combined
            } else {
                let last = part(sizes[index], &tiles[index], now, now.n - 1, 1, 1);
                joined(sizes[index], &combined, &last, half)
            };
        }
        now.n = half.n + rest;
    }
    for (tile, &result) in tiles.into_iter().zip(&step.results) {
        let value = scalar_or_tile(machine.ty(result), tile);
        machine.set(result, value);
    }
    Ok(())
}

/// Returns `count` slices along the axis, at `first`, `first + step`, ….
fn part(size: usize, tile: &Tile, from: Extents, first: usize, step: usize, count: usize) -> Tile {
    let Extents { outer, n, inner } = from;
    let mut out = Tile::new(outer * count * inner * size);
    let stride = |elements: usize| (elements * size) as i64;
    let axes = [
        Axis { count: outer, stride: stride(n * inner), tile: count * inner },
        Axis { count, stride: stride(step * inner), tile: inner },
        Axis { count: inner, stride: stride(1), tile: 1 },
    ];
    rearrange(size, &axes, out.bytes_mut(), tile.bytes(), first * inner * size);
    out
}

fn joined(size: usize, tile: &Tile, last: &Tile, extents: Extents) -> Tile {
    let Extents { outer, n, inner } = extents;
    let mut out = Tile::new(outer * (n + 1) * inner * size);
    let row = n * inner * size;
    let slice = inner * size;
    for (o, out) in out.bytes_mut().chunks_exact_mut(row + slice).enumerate() {
        out[..row].copy_from_slice(&tile.bytes()[o * row..][..row]);
        out[row..].copy_from_slice(&last.bytes()[o * slice..][..slice]);
    }
    out
}

fn sequentially(machine: &mut Machine<'_>, step: &Step, block: BlockId, extents: Extents) -> Outcome {
    let mut tiles: SmallVec<[(Tile, &TileType); 4]> = SmallVec::new();
    for &operand in &step.operands {
        let ty = machine.type_of(operand);
        let value = machine.take(operand);
        tiles.push((materialize(ty, value), ty));
    }
    let mut out: SmallVec<[Tile; 4]> =
        step.results.iter().map(|&result| Tile::new(machine.ty(result).bytes())).collect();
    let Extents { outer, n, inner } = extents;
    let element = |tile: &Tile, ty: &TileType, index: usize| {
        Value::uniform(only_element(ty.size, &tile.bytes()[index * ty.size..]))
    };
    for place in 0..outer * inner {
        let first = place / inner * n * inner + place % inner;
        let mut left: SmallVec<[Value; 4]> =
            tiles.iter().map(|(tile, ty)| element(tile, ty, first)).collect();
        for k in 1..n {
            let right = tiles.iter().map(|(tile, ty)| element(tile, ty, first + k * inner));
            machine.call(block, left.iter().cloned().chain(right))?;
            for value in left.iter_mut().rev() {
                *value = machine.pop();
            }
            machine.control.check()?;
        }
        for ((value, tile), (_, ty)) in left.iter().zip(&mut out).zip(&tiles) {
            let bytes = value.scalar().to_le_bytes();
            tile.bytes_mut()[place * ty.size..][..ty.size].copy_from_slice(&bytes[..ty.size]);
        }
    }
    for (tile, &result) in out.into_iter().zip(&step.results) {
        let value = scalar_or_tile(machine.ty(result), tile);
        machine.set(result, value);
    }
    Ok(())
}
