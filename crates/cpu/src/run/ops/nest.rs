//! Executes a nest: machine code in place of several steps.

use smallvec::SmallVec;

use crate::program::nest::Word;
use crate::program::{Nest, Slot};
use crate::run::argument::Argument;
use crate::run::machine::Machine;
use crate::run::memory::{Region, call_machine_code};
use crate::run::tile::Tile;
use crate::run::value::Form;

use super::materialize::materialize;

/// The argument of a nest's function, which the programs of a launch share.
pub(crate) struct NestArgument {
    words: Vec<u64>,
    scratch: Tile,
}

/// Executes a nest in place of its members. Returns false, without an effect, if the machine code
/// does not support their operands, or if an access may be illegal.
pub(crate) fn execute(machine: &mut Machine<'_>, nest: &Nest) -> bool {
    let is_executed = call(machine, nest);
    if !is_executed {
        nest.code.note_decline();
    }
    is_executed
}

/// Calls the machine code. Returns false if it has had no effect.
fn call(machine: &mut Machine<'_>, nest: &Nest) -> bool {
    let Some(executable) = nest.code.executable() else { return false };
    if machine.arguments_of_nests.len() <= nest.index {
        machine.arguments_of_nests.resize_with(nest.index + 1, || None);
    }
    let mut outputs: SmallVec<[Tile; 4]> = SmallVec::new();
    let Some(mut argument) = argument(machine, nest, &mut outputs) else { return false };
    let declined = call_machine_code(executable, &mut argument.words) != 0;
    if !declined {
        let mut outputs = outputs.into_iter();
        for &index in &nest.varying {
            match nest.words[index] {
                Word::Output(slot) => {
                    machine.set_dense(slot, outputs.next().expect("each output has a tile"));
                }
                Word::Result(slot) => machine.set_uniform(slot, argument.words[index]),
                Word::Bits(_)
                | Word::Tile(_)
                | Word::RegionStart(_)
                | Word::RegionLength(_)
                | Word::WritableLength(_)
                | Word::Streams(..)
                | Word::ProgramId(_)
                | Word::ProgramCount(_)
                | Word::Scratch => {}
            }
        }
        machine.clear(&nest.frees);
    }
    machine.arguments_of_nests[nest.index] = Some(argument);
    !declined
}

/// Returns the argument of a nest for the current program, and the tiles of its outputs; `None` if
/// the machine code does not support an operand.
fn argument(
    machine: &mut Machine<'_>,
    nest: &Nest,
    outputs: &mut SmallVec<[Tile; 4]>,
) -> Option<NestArgument> {
    if let Some(mut argument) = machine.arguments_of_nests[nest.index].take() {
        for &index in &nest.varying {
            argument.words[index] = word(machine, nest.words[index], &argument.scratch, outputs)?;
        }
        return Some(argument);
    }
    let scratch = if nest.scratch > 0 { Tile::new(nest.scratch) } else { Tile::default() };
    let mut words = Vec::with_capacity(nest.words.len());
    for &each in &nest.words {
        words.push(word(machine, each, &scratch, outputs)?);
    }
    Some(NestArgument { words, scratch })
}

/// Returns the bits of a word; `None` if the machine code does not support the value.
fn word(
    machine: &mut Machine<'_>,
    word: Word,
    scratch: &Tile,
    outputs: &mut SmallVec<[Tile; 4]>,
) -> Option<u64> {
    Some(match word {
        Word::Bits(slot) => match machine.form_of(slot) {
            Form::Uniform(bits) => *bits,
            Form::Affine(_) | Form::Box(_) | Form::Dense(_) => return None,
        },
        Word::Tile(slot) => {
            if !matches!(machine.form_of(slot), Form::Dense(_)) {
                // No result depends on the form of a tile.
                let tile = materialize(machine.ty(slot), machine.value_of(slot).clone());
                machine.set_dense(slot, tile);
            }
            match machine.form_of(slot) {
                Form::Dense(tile) => tile.bytes().as_ptr().expose_provenance() as u64,
                Form::Uniform(_) | Form::Affine(_) | Form::Box(_) => return None,
            }
        }
        Word::RegionStart(slot) => region(machine, slot)?.address(),
        Word::RegionLength(slot) => region(machine, slot)?.len() as u64,
        Word::WritableLength(slot) => {
            let region = region(machine, slot)?;
            if region.is_writable() { region.len() as u64 } else { 0 }
        }
        Word::Streams(slot, bytes) => u64::from(machine.non_temporal(&region(machine, slot)?, bytes)),
        Word::ProgramId(axis) => machine.id[axis].into(),
        Word::ProgramCount(axis) => machine.grid[axis].into(),
        Word::Scratch => scratch.bytes().as_ptr().expose_provenance() as u64,
        Word::Output(slot) => {
            let mut tile = machine.tile_for(slot, machine.ty(slot).bytes());
            let address = tile.bytes_mut().as_mut_ptr().expose_provenance() as u64;
            outputs.push(tile);
            address
        }
        Word::Result(_) => 0,
    })
}

/// Returns the memory that a pointer may access; `None` if it is not that of one argument.
fn region<'a>(machine: &Machine<'a>, pointer: Slot) -> Option<Region<'a>> {
    match machine.value_of(pointer).provenance.index().map(|index| &machine.arguments[index]) {
        Some(Argument::Pointer { region, .. }) => Some(*region),
        Some(Argument::Scalar(_)) | None => None,
    }
}
