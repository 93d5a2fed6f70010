//! Executes a nest, which is machine code for several steps.

use smallvec::SmallVec;

use crate::program::nest::{Repeated, Word};
use crate::program::{Nest, Slot};
use crate::run::argument::Argument;
use crate::run::machine::Machine;
use crate::run::memory::{Region, call_machine_code};
use crate::run::tile::Tile;
use crate::run::value::Form;

use super::materialize::materialize;

/// The argument of a nest's function, for all programs of a machine.
pub(crate) struct NestArgument {
    words: Vec<u64>,
    scratch: Tile,
}

/// Executes a nest in place of its members. Returns false, without an effect, if the code does not
/// support an operand or an access may be illegal.
pub(crate) fn execute(machine: &mut Machine<'_>, nest: &Nest) -> bool {
    execute_repeatedly(machine, nest, 1) == 1
}

/// Executes a nest for up to `most` programs along x, or iterations of a loop. Returns their
/// number, which is `most` unless the code has declined one.
pub(crate) fn execute_repeatedly(machine: &mut Machine<'_>, nest: &Nest, most: u32) -> u32 {
    let executed = call(machine, nest, most).unwrap_or(0);
    if executed < most {
        nest.code.note_decline();
    }
    executed
}

/// Calls the machine code. Returns the number of executed programs or iterations, or `None` if
/// there is no code or an operand is not supported.
fn call(machine: &mut Machine<'_>, nest: &Nest, most: u32) -> Option<u32> {
    let executable = nest.code.executable()?;
    if machine.arguments_of_nests.len() <= nest.index {
        machine.arguments_of_nests.resize_with(nest.index + 1, || None);
    }
    let carried: &[[Slot; 2]] = match &nest.repeated {
        Repeated::Iterations { tiles, .. } => tiles,
        Repeated::Once | Repeated::Programs => &[],
    };
    if most > 1 {
        for &[parameter, _] in carried {
            own_tile(machine, parameter);
        }
    }
    let mut outputs: SmallVec<[Tile; 4]> = SmallVec::new();
    let mut argument = argument(machine, nest, most, &mut outputs)?;
    let executed = call_machine_code(executable, &mut argument.words) as u32;
    if executed > 0 {
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
                | Word::Count
                | Word::ProgramCount(_)
                | Word::Scratch => {}
            }
        }
        // After an even number of iterations, the last one has written to the tile of the
        // parameter.
        if executed.is_multiple_of(2) {
            for &[parameter, yielded] in carried {
                let mut tile = machine.tile_for(parameter, machine.ty(parameter).bytes());
                // The varying prefix described the old content.
                tile.bytes_mut();
                machine.set_dense(yielded, tile);
            }
        }
        machine.clear(&nest.frees);
    }
    machine.arguments_of_nests[nest.index] = Some(argument);
    Some(executed)
}

/// Makes the slot the only owner of a dense tile with its value.
fn own_tile(machine: &mut Machine<'_>, slot: Slot) {
    let value = machine.value_of(slot).clone();
    machine.clear(&[slot]);
    let mut tile = materialize(machine.ty(slot), value);
    if !tile.is_unique() {
        let mut copy = Tile::new(tile.bytes().len());
        copy.bytes_mut().copy_from_slice(tile.bytes());
        tile = copy;
    }
    machine.set_dense(slot, tile);
}

/// Returns the argument for `count` programs or iterations, and collects the output tiles. Returns
/// `None` if an operand is not supported.
fn argument(
    machine: &mut Machine<'_>,
    nest: &Nest,
    count: u32,
    outputs: &mut SmallVec<[Tile; 4]>,
) -> Option<NestArgument> {
    if let Some(mut argument) = machine.arguments_of_nests[nest.index].take() {
        for &index in &nest.varying {
            argument.words[index] = word(machine, nest.words[index], count, &argument.scratch, outputs)?;
        }
        return Some(argument);
    }
    let scratch = if nest.scratch > 0 { Tile::new(nest.scratch) } else { Tile::default() };
    let mut words = Vec::with_capacity(nest.words.len());
    for &each in &nest.words {
        words.push(word(machine, each, count, &scratch, outputs)?);
    }
    Some(NestArgument { words, scratch })
}

/// Returns the bits of a word, or `None` if the code does not support the value.
fn word(
    machine: &mut Machine<'_>,
    word: Word,
    count: u32,
    scratch: &Tile,
    outputs: &mut SmallVec<[Tile; 4]>,
) -> Option<u64> {
    Some(match word {
        Word::Bits(slot) => match machine.form_of(slot) {
            Form::Uniform(bits) => *bits,
            Form::Affine(_) | Form::Box(_) | Form::Dense(_) | Form::InPlace(_) => return None,
        },
        Word::Tile(slot) => {
            if !matches!(machine.form_of(slot), Form::Dense(_)) {
                // A dense tile may replace the value, because no result depends on the form.
                let tile = materialize(machine.ty(slot), machine.value_of(slot).clone());
                machine.set_dense(slot, tile);
            }
            match machine.form_of(slot) {
                Form::Dense(tile) => tile.bytes().as_ptr().expose_provenance() as u64,
                Form::Uniform(_) | Form::Affine(_) | Form::Box(_) | Form::InPlace(_) => return None,
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
        Word::Count => count.into(),
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

/// Returns the memory that a pointer may access, if its argument is known.
fn region<'a>(machine: &Machine<'a>, pointer: Slot) -> Option<Region<'a>> {
    match machine.value_of(pointer).provenance.index().map(|index| &machine.arguments[index]) {
        Some(Argument::Pointer { region, .. }) => Some(*region),
        Some(Argument::Scalar(_)) | None => None,
    }
}
