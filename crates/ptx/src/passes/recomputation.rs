//! Sums of a register and a constant that take two registers, and that stand before a loop and are read behind it, are computed
//! again before their first reader there: for listings in which nearly as much is alive at once as a thread has registers, or
//! more. The addresses of rows in an epilogue, for one, come from the same indices as those in the loop before it.
//!
//! What such a sum is of is alive behind the loop for others, or for several of them. Registers get no other names, so that some are
//! written twice from here on, with the same value.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::regions::{RegionKind, Regions, Writes};
use super::{Line, Listing};
use crate::isa::{Access, Instruction, RegisterId, ScalarType, Source};

/// A sum that is read before a loop, if at all, and behind it.
struct Sum {
    /// Its line.
    line: u32,
    /// What it is of, besides a constant.
    of: RegisterId,
    /// Where it is computed again.
    place: u32,
    /// Whether it is read before that.
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
    if wide.len() < listing.tuning.recomputed_sums {
        return;
    }
    let mut readers: FxHashMap<RegisterId, Vec<u32>> =
        wide.iter().flat_map(|(_, sum, of)| [(*sum, Vec::new()), (*of, Vec::new())]).collect();
    for (line, index) in lines() {
        line.visit_registers(|register, access| {
            if access != Access::Write
                && let Some(readers) = readers.get_mut(&register)
            {
                readers.push(index);
            }
        });
    }
    let mut sums: Vec<Sum> = Vec::new();
    for (line, sum, of) in wide {
        let found = across_a_loop(line, &readers[&sum], &outermost);
        sums.extend(found.map(|(place, stays)| Sum { line, of, place, stays }));
    }
    let mut shared: FxHashMap<RegisterId, u32> = FxHashMap::default();
    for sum in &sums {
        *shared.entry(sum.of).or_default() += 1;
    }
    sums.retain(|sum| {
        let is_read_behind = readers[&sum.of].last().is_some_and(|last| *last >= sum.place);
        is_read_behind || shared[&sum.of] > 1
    });
    if sums.len() < listing.tuning.recomputed_sums {
        return;
    }
    sums.sort_by_key(|sum| sum.place);
    let left_out: FxHashSet<u32> = sums.iter().filter(|sum| !sum.stays).map(|sum| sum.line).collect();
    let again = sums.iter().map(|sum| (sum.place, listing.lines[sum.line as usize].clone())).collect();
    listing.insert(again, &left_out);
}

/// The register of a sum of two words, and what it is the sum of besides a constant. Both are written once.
fn wide_sum(line: &Line, writes: &Writes) -> Option<(RegisterId, RegisterId)> {
    let Instruction::Add(add) = line.instruction().filter(|_| line.is_pure)? else { return None };
    let (Source::Register(of), Source::Immediate(_)) = (&add.a, &add.b) else { return None };
    let is_wide = matches!(add.ty, ScalarType::S64 | ScalarType::U64) && !add.carry_out;
    (is_wide && writes.is_once(add.d) && writes.is_once(*of)).then_some((add.d, *of))
}

/// Where what a line computes is read first behind a loop, if the line stands before it and nothing in it reads that: the line, or
/// before the region around it. And whether it is read before the loop too.
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
        // The jump over it stands before it.
        Some((RegionKind::Branch, region)) => region.start - 1,
    };
    let is_outside = around(line).is_none() && around(place).is_none_or(|(_, region)| region.start == place);
    (is_outside && place >= crossed.end).then(|| (place, readers[0] < crossed.start))
}
