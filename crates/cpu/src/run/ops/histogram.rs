//! `histogram`: counts the occurrences of each integer from 0 to `bins - 1` in a tile.

use crate::program::Step;
use crate::run::machine::Machine;
use crate::run::tile::Tile;

use super::materialize::{materialize, only_element};

pub(crate) fn histogram(machine: &mut Machine<'_>, step: &Step, bins: u32) {
    let ty = machine.type_of(step.operands[0]);
    let value = machine.take(step.operands[0]);
    let tile = materialize(ty, value);
    let mask = step.operands.get(1).map(|&mask| {
        let ty = machine.type_of(mask);
        let value = machine.take(mask);
        materialize(ty, value)
    });
    let mut counts = vec![0_u32; bins as usize];
    let (unused, is_signed) = (64 - 8 * ty.size as u32, ty.dtype().is_signed());
    for (place, element) in tile.bytes().chunks_exact(ty.size).enumerate() {
        if mask.as_ref().is_some_and(|mask| mask.bytes()[place] == 0) {
            continue;
        }
        let element = only_element(ty.size, element);
        let number = if is_signed { ((element << unused) as i64 >> unused) as u64 } else { element };
        if let Some(count) = usize::try_from(number).ok().and_then(|number| counts.get_mut(number)) {
            *count += 1;
        }
    }
    let mut out = Tile::new(machine.ty(step.result()).bytes());
    out.bytes_mut().copy_from_slice(bytemuck::cast_slice(&counts));
    machine.set_dense(step.result(), out);
}
