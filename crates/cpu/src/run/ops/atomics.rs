//! Executes atomic ops. Reads are acquires and writes are releases, even if the program requests
//! less.

use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tilewright_ir::AtomicKind;

use crate::program::{Step, Use};
use crate::run::fault::{Fault, FaultKind, Outcome};
use crate::run::machine::Machine;
use crate::run::memory::{
    AccessError, AccessErrorKind, Region, compare_exchange, in_padding, load_each, read_modify_write,
    store_each,
};
use crate::run::tile::Tile;
use crate::run::value::Provenance;
use crate::types::TileType;

use super::materialize::materialize;
use super::memory::{Predicate, may_read_padding, others, out_of_bounds, regions_of, scalar_or_tile};

struct AccessedElements<'a> {
    provenance: Provenance,
    pointers: &'a TileType,
    addresses: Tile,
    /// 0 for each masked-off element, or `None` if the operation accesses all elements.
    mask: Option<Tile>,
}

impl<'a> AccessedElements<'a> {
    /// Returns the elements that a step accesses, or `None` if the mask is false everywhere.
    fn new(machine: &mut Machine<'a>, pointer: Use, mask: Option<Use>) -> Option<Self> {
        let (pointers, provenance) = (machine.type_of(pointer), machine.provenance(pointer));
        let predicate = Predicate::new(mask.map(|mask| machine.form(mask)));
        if matches!(predicate, Predicate::Never) {
            return None;
        }
        let mask = predicate.lanes(machine, pointers, mask);
        let addresses = materialize(pointers, machine.take(pointer));
        Some(Self { provenance, pointers, addresses, mask })
    }

    /// Calls `access` with the regions, the addresses and the mask. Its error becomes a fault.
    fn access(
        &self,
        machine: &Machine<'_>,
        (is_store, size): (bool, usize),
        access: impl FnOnce(&[Region<'_>], &[i64], Option<&[u8]>) -> Result<(), AccessError>,
    ) -> Outcome {
        let addresses = bytemuck::cast_slice(self.addresses.bytes());
        let mask = self.mask.as_ref().map(Tile::bytes);
        access(regions_of(machine, self.provenance), addresses, mask).map_err(|error| {
            let fault = match error.kind {
                AccessErrorKind::Misaligned => {
                    Fault::new(FaultKind::Misaligned { address: error.address, size })
                }
                AccessErrorKind::OutOfBounds | AccessErrorKind::ReadOnly => {
                    out_of_bounds(&error, is_store, size, self.provenance)
                }
            };
            fault.at(self.pointers.lane(error.element))
        })
    }
}

fn elements(machine: &mut Machine<'_>, operand: Use) -> Tile {
    materialize(machine.type_of(operand), machine.take(operand))
}

/// Executes an atomic op. The result is the previous elements, and 0 where the mask is false.
fn find(
    machine: &mut Machine<'_>,
    step: &Step,
    [pointer, mask]: [Option<Use>; 2],
    values: &[Use],
    is_store: bool,
    access: impl FnOnce(&[Region<'_>], &[i64], Option<&[u8]>, &[Tile], &mut [u8]) -> Result<(), AccessError>,
) -> Outcome {
    let ty = machine.ty(step.result());
    let values: SmallVec<[Tile; 2]> = values.iter().map(|&value| elements(machine, value)).collect();
    let mut found = Tile::new(ty.bytes());
    found.bytes_mut().fill(0);
    let pointer = pointer.expect("an atomic operation has a pointer");
    if let Some(accessed) = AccessedElements::new(machine, pointer, mask) {
        let out = found.bytes_mut();
        accessed.access(machine, (is_store, ty.size), |regions, addresses, mask| {
            access(regions, addresses, mask, &values, out)
        })?;
    } else {
        machine.release(&step.operands);
    }
    machine.set(step.result(), scalar_or_tile(ty, found));
    Ok(())
}

/// `atomic_rmw`: updates the elements of a tile one after another.
pub(crate) fn read_modify(machine: &mut Machine<'_>, step: &Step, kind: AtomicKind) -> Outcome {
    let [pointer, value, rest @ ..] = &step.operands[..] else { unreachable!("it has two operands") };
    let dtype = machine.ty(step.result()).dtype();
    let masked = [Some(*pointer), rest.first().copied()];
    find(machine, step, masked, &[*value], true, |regions, addresses, mask, values, old| {
        read_modify_write(regions, kind, dtype, addresses, mask, values[0].bytes(), old)
    })
}

pub(crate) fn compare_and_swap(machine: &mut Machine<'_>, step: &Step) -> Outcome {
    let [pointer, expected, value, ref rest @ ..] = step.operands[..] else {
        unreachable!("it has three operands")
    };
    let size = machine.ty(step.result()).size;
    find(
        machine,
        step,
        [Some(pointer), rest.first().copied()],
        &[expected, value],
        true,
        |regions, addresses, mask, values, old| {
            let [expected, values] = [&values[0], &values[1]].map(Tile::bytes);
            compare_exchange(regions, size, addresses, mask, expected, values, old)
        },
    )
}

pub(crate) fn load(machine: &mut Machine<'_>, step: &Step) -> Outcome {
    let [pointer, rest @ ..] = &step.operands[..] else { unreachable!("a load has a pointer") };
    let size = machine.ty(step.result()).size;
    let (pointers, provenance) = (machine.type_of(*pointer), machine.provenance(*pointer));
    let masked = [Some(*pointer), rest.first().copied()];
    let may_pad = may_read_padding(machine, provenance);
    let mut padded = None;
    find(machine, step, masked, &[], false, |regions, addresses, mask, _, out| {
        match load_each(regions, size, addresses, mask, out) {
            Err(error) if may_pad && error.kind == AccessErrorKind::OutOfBounds => {
                let lanes = in_padding(regions, size, addresses, mask);
                // Elements that are not loaded are 0.
                load_each(regions, size, addresses, Some(&others(&lanes, mask)), out)?;
                padded = lanes.iter().position(|&lane| lane != 0).map(|element| AccessError {
                    element,
                    address: addresses[element] as u64,
                    ..error
                });
                Ok(())
            }
            outcome => outcome,
        }
    })?;
    if let Some(error) = padded {
        let fault = out_of_bounds(&error, false, size, provenance).at(pointers.lane(error.element));
        machine.note_padded_read(fault, step);
    }
    Ok(())
}

pub(crate) fn store(machine: &mut Machine<'_>, step: &Step) -> Outcome {
    let [pointer, value, rest @ ..] = &step.operands[..] else { unreachable!("a store has two operands") };
    let size = machine.type_of(*value).size;
    let values = elements(machine, *value);
    let Some(accessed) = AccessedElements::new(machine, *pointer, rest.first().copied()) else {
        machine.release(&step.operands);
        return Ok(());
    };
    accessed.access(machine, (true, size), |regions, addresses, mask| {
        store_each(regions, size, addresses, mask, values.bytes())
    })
}

/// `atomic_poll`: polls until memory has the expected value or the timeout expires. Other programs
/// may run between polls.
pub(crate) fn poll(machine: &mut Machine<'_>, step: &Step) -> Outcome {
    let [pointer, expected, rest @ ..] = &step.operands[..] else { unreachable!("it has two operands") };
    let size = machine.type_of(*expected).size;
    let expected = elements(machine, *expected);
    // A negative timeout counts as 0.
    let timeout = rest.first().map(|&timeout| {
        let nanoseconds = machine.take(timeout).scalar() as i64;
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
    });
    let start = Instant::now();
    let accessed = AccessedElements::new(machine, *pointer, None).expect("there is no mask");
    let mut found = Tile::new(size);
    let is_met = loop {
        let out = found.bytes_mut();
        accessed.access(machine, (false, size), |regions, addresses, mask| {
            load_each(regions, size, addresses, mask, out)
        })?;
        if found.bytes() == expected.bytes() {
            break true;
        }
        if timeout.is_some_and(|timeout| start.elapsed() >= timeout) {
            break false;
        }
        machine.control.wait()?;
    };
    machine.set_uniform(step.result(), u64::from(is_met));
    Ok(())
}
