//! Runs inline assembly on the elements of tiles.
//!
//! One run takes `pack` adjacent elements of each operand, packed into words. If fewer are left for
//! the last run, it repeats the last element.

use tilewright_ir::{AsmPacking, Element};

use crate::program::{InlineAssembly, Step};
use crate::run::fault::{Fault, FaultKind, Outcome};
use crate::run::machine::Machine;
use crate::run::tile::Tile;
use crate::run::value::Value;

use super::materialize::{materialize, only_element};

pub(crate) fn assembly(machine: &mut Machine<'_>, step: &Step, assembly: &InlineAssembly) -> Outcome {
    let types: Vec<_> = step.operands.iter().map(|&operand| machine.type_of(operand)).collect();
    let elements = match (types.first(), step.results.first()) {
        (Some(ty), _) => ty.elements(),
        (None, Some(&result)) => machine.ty(result).elements(),
        (None, None) => 1,
    };
    let pack = assembly.pack as usize;
    let runs = elements.div_ceil(pack);
    let packing = |element: Element| AsmPacking::of(element, assembly.pack);
    let outputs: Vec<_> = step.results.iter().map(|&slot| packing(machine.ty(slot).element)).collect();
    let inputs: Vec<_> = types.iter().map(|ty| packing(ty.element)).collect();
    let registers: usize = outputs.iter().chain(&inputs).map(|packing| packing.registers).sum();
    let mut words = vec![0_u64; registers * runs];
    let mut first = outputs.iter().map(|packing| packing.registers).sum::<usize>() * runs;
    for ((&operand, ty), packing) in step.operands.iter().zip(&types).zip(&inputs) {
        let value = machine.take(operand);
        let tile = materialize(ty, value);
        let bits = packing.bits as usize / packing.elements;
        for run in 0..runs {
            for place in 0..packing.registers * packing.elements {
                let element = (run * pack + place.min(pack - 1)).min(elements - 1);
                let (register, part) = (place / packing.elements, place % packing.elements);
                words[first + register * runs + run] |= read(tile.bytes(), ty.size, element) << (part * bits);
            }
        }
        first += packing.registers * runs;
    }
    let interrupt = machine.control.stop();
    assembly
        .code
        .run(runs, &mut words, machine.regions, interrupt)
        .map_err(|fault| Fault::new(FaultKind::Assembly(fault)))?;
    let mut first = 0;
    for (&slot, packing) in step.results.iter().zip(&outputs) {
        let ty = machine.ty(slot);
        let bits = packing.bits as usize / packing.elements;
        let mut tile = Tile::new(ty.bytes());
        for element in 0..elements {
            let (run, place) = (element / pack, element % pack);
            let (register, part) = (place / packing.elements, place % packing.elements);
            let word = words[first + register * runs + run] >> (part * bits);
            let kept = word & (u64::MAX >> (64 - bits));
            let at = element * ty.size;
            tile.bytes_mut()[at..at + ty.size].copy_from_slice(&kept.to_le_bytes()[..ty.size]);
        }
        first += packing.registers * runs;
        let value = if ty.is_scalar() {
            Value::uniform(only_element(ty.size, tile.bytes()))
        } else {
            Value::dense(tile)
        };
        machine.set(slot, value);
    }
    Ok(())
}

fn read(bytes: &[u8], size: usize, element: usize) -> u64 {
    let mut word = [0; 8];
    word[..size].copy_from_slice(&bytes[element * size..(element + 1) * size]);
    u64::from_le_bytes(word)
}
