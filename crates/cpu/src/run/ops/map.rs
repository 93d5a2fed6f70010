//! Executes `map`: applies a function of scalars to the elements of tiles.
//!
//! A function of single elements without control flow runs once, on whole tiles. Any other function
//! runs once per `pack` adjacent elements. If fewer are left for the last run, it repeats the last
//! element.

use smallvec::SmallVec;
use tilewright_ir::Shape;

use crate::program::{Step, Strategy};
use crate::run::fault::Outcome;
use crate::run::machine::Machine;
use crate::run::tile::Tile;
use crate::run::value::Value;
use crate::types::TileType;

use super::materialize::{materialize, only_element};

pub(crate) fn map(machine: &mut Machine<'_>, step: &Step, pack: usize, strategy: Strategy) -> Outcome {
    match strategy {
        Strategy::Tree | Strategy::Kernel(_) => whole(machine, step),
        Strategy::Sequential => one_by_one(machine, step, pack),
    }
}

fn tiles(machine: &mut Machine<'_>, step: &Step) -> SmallVec<[Tile; 4]> {
    let mut tiles = SmallVec::new();
    for &operand in &step.operands {
        let ty = machine.type_of(operand);
        let value = machine.take(operand);
        tiles.push(materialize(ty, value));
    }
    tiles
}

fn whole(machine: &mut Machine<'_>, step: &Step) -> Outcome {
    let tiles = tiles(machine, step);
    machine.call(step.blocks[0], tiles.into_iter().map(Value::dense))?;
    for &result in step.results.iter().rev() {
        let value = machine.pop();
        let ty = machine.ty(result);
        // The block yields a 1-D tile, or a scalar from outside. Both become a 1-D tile.
        let line = TileType::with_shape(ty.element, Shape::from([ty.elements() as u32]));
        let tile = materialize(&line, value);
        machine.set_dense(result, tile);
    }
    Ok(())
}

fn one_by_one(machine: &mut Machine<'_>, step: &Step, pack: usize) -> Outcome {
    let sizes: SmallVec<[usize; 4]> =
        step.operands.iter().map(|&operand| machine.type_of(operand).size).collect();
    let elements = machine.type_of(step.operands[0]).elements();
    let tiles = tiles(machine, step);
    let mut out: SmallVec<[(Tile, usize); 4]> = step
        .results
        .iter()
        .map(|&result| (Tile::new(machine.ty(result).bytes()), machine.ty(result).size))
        .collect();
    for first in (0..elements).step_by(pack) {
        let arguments = tiles.iter().zip(&sizes).flat_map(|(tile, &size)| {
            (first..first + pack).map(move |place| {
                Value::uniform(only_element(size, &tile.bytes()[place.min(elements - 1) * size..]))
            })
        });
        machine.call(step.blocks[0], arguments)?;
        for (tile, size) in out.iter_mut().rev() {
            for place in (first..first + pack).rev() {
                let bits = machine.pop().scalar().to_le_bytes();
                if place < elements {
                    tile.bytes_mut()[place * *size..][..*size].copy_from_slice(&bits[..*size]);
                }
            }
        }
        machine.control.check()?;
    }
    for ((tile, _), &result) in out.into_iter().zip(&step.results) {
        machine.set_dense(result, tile);
    }
    Ok(())
}
