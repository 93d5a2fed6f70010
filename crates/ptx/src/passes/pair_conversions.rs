//! Pair conversions: merges two conversions of fp32 whose results share a register.
//!
//! ```text
//! cvt.rn.bf16.f32 %low, %a;
//! cvt.rn.bf16.f32 %high, %b;           cvt.rn.bf16x2.f32 %d, %b, %a;
//! bar.sync 0;                     =>   bar.sync 0;
//! mov.b32 %d, {%low, %high};
//! ```
//! The assembler merges the three instructions, but not across a wait. Until then, the halves need
//! two registers. Each register must be written once, and only such packs may read the halves.
//! `dead_code` removes the narrow conversions.

use rustc_hash::{FxHashMap, FxHashSet};

use super::regions::{Writes, readers};
use super::{Line, LineKind, Listing};
use crate::isa::{Cvt, Destination, Instruction, RegisterId, ScalarType, Source};

/// A line that packs two halves into a register.
struct Pack {
    line: u32,
    d: RegisterId,
    /// The low half, then the high half.
    halves: [RegisterId; 2],
}

pub(super) fn run(listing: &mut Listing) {
    let writes = Writes::of(listing);
    let lines = || listing.lines.iter().zip(0..);
    let narrow: FxHashMap<RegisterId, (u32, &Cvt)> = lines()
        .filter_map(|(line, index)| narrow_conversion(line, &writes).map(|cast| (cast.d, (index, cast))))
        .collect();
    if narrow.is_empty() {
        return;
    }
    let is_narrow = |pack: &Pack| pack.halves.iter().all(|half| narrow.contains_key(half));
    let packs: Vec<Pack> = lines()
        .filter_map(|(line, index)| pack(line, index).filter(|pack| writes.is_once(pack.d)))
        .filter(is_narrow)
        .collect();
    let pack_lines: FxHashSet<u32> = packs.iter().map(|pack| pack.line).collect();
    let readers = readers(listing, packs.iter().flat_map(|pack| pack.halves));
    let is_only_packed = |half: &RegisterId| readers[half].iter().all(|line| pack_lines.contains(line));
    let (mut new, mut left_out) = (Vec::new(), FxHashSet::default());
    for Pack { line, d, halves } in packs {
        let [(low_line, low), (high_line, high)] = halves.map(|half| narrow[&half]);
        let is_same_cast = (low.to, low.rounding) == (high.to, high.rounding);
        if !is_same_cast || !halves.iter().all(is_only_packed) {
            continue;
        }
        let to = if low.to == ScalarType::F16 { ScalarType::F16x2 } else { ScalarType::Bf16x2 };
        let later = low_line.max(high_line);
        let cast = Cvt { to, d, a: high.a, b: Some(low.a), ..*low };
        let kind = LineKind::Instruction(None, cast.into());
        new.push((later + 1, Line { kind, ..listing.lines[later as usize].clone() }));
        left_out.insert(line);
    }
    new.sort_by_key(|(index, _)| *index);
    listing.insert(new, &left_out);
}

/// Returns a conversion of fp32 to fp16 or bf16. Result and operand must each be written once.
fn narrow_conversion<'a>(line: &'a Line, writes: &Writes) -> Option<&'a Cvt> {
    let Instruction::Cvt(cast) = line.instruction().filter(|_| line.is_pure)? else { return None };
    let Source::Register(source) = cast.a else { return None };
    let is_plain = !cast.ftz && !cast.saturate && cast.clamp.is_none();
    let is_narrow =
        cast.from == ScalarType::F32 && matches!(cast.to, ScalarType::F16 | ScalarType::Bf16) && is_plain;
    (is_narrow && writes.is_once(cast.d) && writes.is_once(source)).then_some(cast)
}

/// Returns the pack that a line is, if it is one.
fn pack(line: &Line, index: u32) -> Option<Pack> {
    let Instruction::Mov(pack) = line.instruction().filter(|_| line.is_pure)? else { return None };
    match (&pack.d.0[..], &pack.a.0[..]) {
        (&[Destination::Register(d)], &[Source::Register(low), Source::Register(high)]) => {
            Some(Pack { line: index, d, halves: [low, high] })
        }
        _ => None,
    }
}
