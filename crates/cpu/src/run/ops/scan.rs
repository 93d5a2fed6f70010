//! Executes `scan`: combines each element along an axis with all elements before it.
//!
//! - A region that is one function of `Combine::can_scan` runs as a loop (`run/kernels/scan.rs`).
//! - A region with control flow or an impure op runs element by element. So does a scan inside of a
//!   region on whole tiles.
//! - Other regions run on whole tiles, level by level. A level combines the total of a block with
//!   each element of the next block, for blocks of 1, 2, 4, … elements: `a b c d` becomes `a ab c
//!   cd`, then `a ab abc abcd`. Operands are never swapped.

use smallvec::SmallVec;

use crate::program::{BlockId, Step, Strategy};
use crate::run::fault::Outcome;
use crate::run::kernels::{reduce as known, scan as kernel};
use crate::run::machine::Machine;
use crate::run::tile::Tile;
use crate::run::value::{Form, Value};
use crate::types::TileType;

use super::materialize::{materialize, materialize_unique, only_element};
use super::reduce::Extents;

pub(crate) fn scan(
    machine: &mut Machine<'_>,
    step: &Step,
    (axis, reverse): (usize, bool),
    strategy: Strategy,
) -> Outcome {
    let extents = Extents::around(machine.type_of(step.operands[0]).shape(), axis);
    match strategy {
        Strategy::Kernel(combine) => {
            by_kernel(machine, step, combine, (extents, reverse));
            Ok(())
        }
        Strategy::Tree => in_levels(machine, step, &step.blocks, (extents, reverse)),
        Strategy::Sequential => sequentially(machine, step, step.blocks[0], (extents, reverse)),
    }
}

/// Scans with the loop of `run/kernels/scan.rs`.
fn by_kernel(
    machine: &mut Machine<'_>,
    step: &Step,
    combine: known::Combine,
    (extents, reverse): (Extents, bool),
) {
    let result = step.result();
    let from = machine.type_of(step.operands[0]);
    let value = machine.take(step.operands[0]);
    if let Form::Uniform(bits) = value.form
        && let Some(bits) = known::of_equal_elements(combine, from.dtype(), bits)
    {
        machine.set_uniform(result, bits);
        return;
    }
    let mut tile = materialize_unique(from, value);
    let axis = known::Axis { outer: extents.outer, n: extents.n, inner: extents.inner };
    kernel::scan(combine, from.dtype(), (axis, reverse), tile.bytes_mut());
    machine.set_dense(result, tile);
}

fn in_levels(
    machine: &mut Machine<'_>,
    step: &Step,
    levels: &[BlockId],
    (extents, reverse): (Extents, bool),
) -> Outcome {
    let mut tiles: SmallVec<[(Tile, &TileType); 4]> = SmallVec::new();
    for &operand in &step.operands {
        let ty = machine.type_of(operand);
        let value = machine.take(operand);
        tiles.push((materialize_unique(ty, value), ty));
    }
    for (level, &block) in levels.iter().enumerate() {
        let later: Vec<usize> = (0..extents.n).filter(|place| place >> level & 1 == 1).collect();
        let before: Vec<usize> = later.iter().map(|place| (place >> level << level) - 1).collect();
        let [later, before] = [later, before].map(|places| extents.rows(&places, reverse));
        let parts = |rows: &[usize]| {
            let taken =
                |(tile, ty): &(Tile, &TileType)| Value::dense(take(ty.size * extents.inner, tile, rows));
            tiles.iter().map(taken).collect::<SmallVec<[Value; 4]>>()
        };
        let (left, right) = (parts(&before), parts(&later));
        machine.call(block, left.into_iter().chain(right))?;
        for (tile, ty) in tiles.iter_mut().rev() {
            let combined = machine.pop();
            // The region may yield a captured scalar, without the shape of the level.
            let shape = tilewright_ir::Shape::from([(later.len() * extents.inner) as u32]);
            let combined = materialize(&TileType::with_shape(ty.element, shape), combined);
            put(ty.size * extents.inner, tile, &later, &combined);
        }
    }
    for ((tile, _), &result) in tiles.into_iter().zip(&step.results) {
        machine.set_dense(result, tile);
    }
    Ok(())
}

/// Copies rows of `bytes` bytes to a new tile.
fn take(bytes: usize, tile: &Tile, rows: &[usize]) -> Tile {
    let mut out = Tile::new(rows.len() * bytes);
    for (to, row) in out.bytes_mut().chunks_exact_mut(bytes).zip(rows) {
        to.copy_from_slice(&tile.bytes()[row * bytes..][..bytes]);
    }
    out
}

/// Copies consecutive rows to the rows at these indices, the inverse of [`take`].
fn put(bytes: usize, tile: &mut Tile, rows: &[usize], from: &Tile) {
    for (from, row) in from.bytes().chunks_exact(bytes).zip(rows) {
        tile.bytes_mut()[row * bytes..][..bytes].copy_from_slice(from);
    }
}

fn sequentially(
    machine: &mut Machine<'_>,
    step: &Step,
    block: BlockId,
    (extents, reverse): (Extents, bool),
) -> Outcome {
    let mut tiles: SmallVec<[(Tile, &TileType); 4]> = SmallVec::new();
    for &operand in &step.operands {
        let ty = machine.type_of(operand);
        let value = machine.take(operand);
        tiles.push((materialize_unique(ty, value), ty));
    }
    let Extents { outer, n, inner } = extents;
    for place in 0..outer * inner {
        let at = |k: usize| {
            let k = if reverse { n - 1 - k } else { k };
            (place / inner * n + k) * inner + place % inner
        };
        for k in 1..n {
            let element = |k: usize| {
                let index = at(k);
                let one = move |(tile, ty): &(Tile, &TileType)| {
                    Value::uniform(only_element(ty.size, &tile.bytes()[index * ty.size..]))
                };
                tiles.iter().map(one).collect::<SmallVec<[Value; 4]>>()
            };
            let (left, right) = (element(k - 1), element(k));
            machine.call(block, left.into_iter().chain(right))?;
            for (tile, ty) in tiles.iter_mut().rev() {
                let bytes = machine.pop().scalar().to_le_bytes();
                tile.bytes_mut()[at(k) * ty.size..][..ty.size].copy_from_slice(&bytes[..ty.size]);
            }
            machine.control.check()?;
        }
    }
    for ((tile, _), &result) in tiles.into_iter().zip(&step.results) {
        machine.set_dense(result, tile);
    }
    Ok(())
}
