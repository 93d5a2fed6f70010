//! Recomputes a register plus a constant after a loop. The sum must be computed before the loop,
//! and not be read in it.
//!
//! Only 64-bit sums are recomputed, if there are enough (`Tuning::recomputed_sums`). The listing's
//! live registers must nearly fill those of a thread. Example: the row addresses of an epilogue use
//! the indices of the loop before it. The register operand must be read after the loop in any case,
//! or by several of these sums. Registers keep their names, so some are written twice with one
//! value.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::regions::{RegionKind, Regions, Writes, readers};
use super::{Line, Listing};
use crate::isa::{Instruction, RegisterId, ScalarType, Source};

/// A sum that is read after a loop, and perhaps before it.
///
/// Unlike the linear form of `tilewright_ir`, it is a line that the pass copies.
struct RecomputedSum {
    /// The line that computes the sum.
    line: u32,
    /// The register operand of the sum.
    of: RegisterId,
    /// The line before which the sum is recomputed.
    place: u32,
    /// True if a line before the loop reads the sum. Otherwise, the pass removes the first
    /// computation.
    stays: bool,
}

pub(super) fn run(listing: &mut Listing) {
    let Some(Regions(regions)) = Regions::of(listing) else { return };
    let outermost: Vec<(RegionKind, Range<u32>)> = regions
        .iter()
        .filter(|region| region.parent.is_none())
        .map(|region| (region.kind, region.start..region.end))
        .collect();
    let writes = Writes::of(listing);
    let lines = || listing.lines.iter().zip(0..);
    let wide: Vec<(u32, RegisterId, RegisterId)> = lines()
        .filter_map(|(line, index)| wide_sum(line, &writes).map(|(sum, of)| (index, sum, of)))
        .collect();
    if wide.len() < listing.target.tuning.recomputed_sums {
        return;
    }
    let readers = readers(listing, wide.iter().flat_map(|(_, sum, of)| [*sum, *of]));
    let mut sums: Vec<RecomputedSum> = Vec::new();
    for (line, sum, of) in wide {
        let found = across_a_loop(line, &readers[&sum], &outermost);
        sums.extend(found.map(|(place, stays)| RecomputedSum { line, of, place, stays }));
    }
    let mut shared: FxHashMap<RegisterId, u32> = FxHashMap::default();
    for sum in &sums {
        *shared.entry(sum.of).or_default() += 1;
    }
    sums.retain(|sum| {
        let is_read_later = readers[&sum.of].last().is_some_and(|last| *last >= sum.place);
        is_read_later || shared[&sum.of] > 1
    });
    if sums.len() < listing.target.tuning.recomputed_sums {
        return;
    }
    sums.sort_by_key(|sum| sum.place);
    let left_out: FxHashSet<u32> = sums.iter().filter(|sum| !sum.stays).map(|sum| sum.line).collect();
    let again = sums.iter().map(|sum| (sum.place, listing.lines[sum.line as usize].clone())).collect();
    listing.insert(again, &left_out);
}

/// Returns the result and register operand of a 64-bit addition of a constant. Each must be written
/// once.
fn wide_sum(line: &Line, writes: &Writes) -> Option<(RegisterId, RegisterId)> {
    let Instruction::Add(add) = line.instruction().filter(|_| line.is_pure)? else { return None };
    let (Source::Register(of), Source::Immediate(_)) = (&add.a, &add.b) else { return None };
    let is_wide = matches!(add.ty, ScalarType::S64 | ScalarType::U64) && !add.carry_out;
    (is_wide && writes.is_once(add.d) && writes.is_once(*of)).then_some((add.d, *of))
}

/// Returns the line before which a sum is recomputed. It is the first reader after a loop, or the
/// start of the region around it.
///
/// Returns `None` unless `line` precedes the loop and nothing in the loop reads the sum. Also
/// returns whether a line before the loop reads the sum.
fn across_a_loop(line: u32, readers: &[u32], outermost: &[(RegionKind, Range<u32>)]) -> Option<(u32, bool)> {
    let around = |line: u32| outermost.iter().find(|(_, region)| region.contains(&line));
    let is_crossed = |(kind, region): &&(RegionKind, Range<u32>)| {
        *kind == RegionKind::Loop
            && line < region.start
            && !readers.iter().any(|reader| region.contains(reader))
            && readers.iter().any(|reader| *reader >= region.end)
    };
    let (_, crossed) = outermost.iter().rfind(is_crossed)?;
    let first = *readers.iter().find(|reader| **reader >= crossed.end)?;
    let place = match around(first) {
        None => first,
        Some((RegionKind::Loop, region)) => region.start,
        // This is before the jump over the branch.
        Some((RegionKind::Branch, region)) => region.start - 1,
    };
    let is_outside = around(line).is_none() && around(place).is_none_or(|(_, region)| region.start == place);
    (is_outside && place >= crossed.end).then(|| (place, readers[0] < crossed.start))
}
