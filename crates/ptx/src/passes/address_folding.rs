//! Address folding. If an address's base is a register plus a constant, the pass uses the register
//! and adds the constant to the offset. Example: `[%b + 4]` with `%b = %a + 8` becomes `[%a + 12]`.

use rustc_hash::FxHashMap;

use super::regions::{Changes, Regions, Writes};
use super::{LineKind, Listing};
use crate::isa::{AddressBase, Immediate, Instruction, RegisterId, ScalarType, Source};

/// A register plus a constant.
///
/// The form of `tilewright_ir` does not suffice: a register may be written again, so the sum has a
/// time.
#[derive(Clone, Copy)]
struct RegisterOffset {
    base: RegisterId,
    offset: i64,
    /// The line that computed the sum.
    time: u32,
}

pub(super) fn run(listing: &mut Listing) {
    let Some(regions) = Regions::of(listing) else { return };
    let writes = Writes::of(listing);
    let mut changes = Changes::new(&writes, &regions);
    let mut sums: FxHashMap<RegisterId, RegisterOffset> = FxHashMap::default();
    let mut walk = regions.walk();
    for (index, line) in listing.lines.iter_mut().enumerate() {
        let index = index as u32;
        while let Some(step) = walk.step(index) {
            changes.pass(step, index);
        }
        if let LineKind::Instruction(guard, instruction) = &mut line.kind {
            let sum =
                sum(instruction).filter(|(d, base, _)| guard.is_none() && writes.is_once(*d) && d != base);
            if let Some((d, base, offset)) = sum {
                let found = sums.get(&base).filter(|sum| changes.is_since(sum.base, sum.time)).copied();
                let inner = found.unwrap_or(RegisterOffset { base, offset: 0, time: index });
                if let Some(offset) = inner.offset.checked_add(offset) {
                    sums.insert(d, RegisterOffset { offset, ..inner });
                }
            } else if !sums.is_empty() {
                instruction.map_addresses(|address| {
                    let AddressBase::Register(register) = address.base else { return };
                    let Some(sum) = sums.get(&register) else { return };
                    let offset = address.offset.checked_add(sum.offset);
                    // PTX offsets have 32 bits.
                    let offset = offset.filter(|offset| i32::try_from(*offset).is_ok());
                    if let Some(offset) = offset
                        && changes.is_since(sum.base, sum.time)
                    {
                        (address.base, address.offset) = (AddressBase::Register(sum.base), offset);
                    }
                });
            }
        }
        changes.write(index);
    }
}

/// Returns the result, the register and the constant of an integer addition.
fn sum(instruction: &Instruction) -> Option<(RegisterId, RegisterId, i64)> {
    let Instruction::Add(add) = instruction else { return None };
    let is_integer = matches!(add.ty, ScalarType::S32 | ScalarType::U32 | ScalarType::S64 | ScalarType::U64);
    if !is_integer || add.carry_out || add.saturate {
        return None;
    }
    match (add.a, add.b) {
        (Source::Register(base), Source::Immediate(Immediate::Integer(offset))) => {
            Some((add.d, base, offset))
        }
        _ => None,
    }
}
