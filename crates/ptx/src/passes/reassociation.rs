//! Adds two loop-invariant registers before the loop. Otherwise, the loop adds both to a variant
//! register.
//!
//! ```text
//! $loop:                              add.s64 %s, %v, %w;
//!   add.s64 %t, %changes, %v;    =>   $loop:
//!   add.s64 %x, %t, %w;                 add.s64 %x, %changes, %s;
//! ```
//! The address of a copy then takes one addition. Otherwise, each iteration overwrites `%t`, and
//! waits until the previous iteration's copies have read their addresses.
//!
//! The loop has no more live registers, because nothing else in it reads `%w`.

use rustc_hash::{FxHashMap, FxHashSet};

use super::regions::{Region, RegionKind, Regions, Writes, readers};
use super::{Line, LineKind, Listing};
use crate::isa::{Instruction, RegisterId, ScalarType, Source};

/// A sum of two 64-bit registers, with the line that computes it.
///
/// Unlike the linear form of `tilewright_ir`, it is a whole instruction.
#[derive(Clone, Copy)]
struct RegisterSum {
    line: u32,
    result: RegisterId,
    terms: [RegisterId; 2],
}

/// The sum of a variant and an invariant register, with further invariant additions.
struct Nested {
    inner: RegisterSum,
    changes: RegisterId,
    stays: RegisterId,
    /// The outer additions, each with its register.
    outer: Vec<(RegisterSum, RegisterId)>,
    /// The first line of the loop.
    start: u32,
}

struct Search<'a> {
    regions: &'a Regions,
    writes: &'a Writes,
    /// The sums, by line.
    sums: FxHashMap<u32, RegisterSum>,
    /// The lines that read each term of a sum.
    readers: FxHashMap<RegisterId, Vec<u32>>,
}

pub(super) fn run(listing: &mut Listing) {
    let Some(regions) = Regions::of(listing) else { return };
    if regions.0.iter().all(|region| region.kind == RegionKind::Branch) {
        return;
    }
    let writes = Writes::of(listing);
    let lines = listing.lines.iter().zip(0..);
    let sums: Vec<RegisterSum> = lines.filter_map(|(line, index)| sum(line, index, &writes)).collect();
    let readers = readers(listing, sums.iter().flat_map(|sum| sum.terms));
    let by_line = sums.iter().map(|sum| (sum.line, *sum)).collect();
    let search = Search { regions: &regions, writes: &writes, sums: by_line, readers };
    let mut found: Vec<Nested> = sums.iter().filter_map(|sum| search.nested(*sum)).collect();
    // Of a chain of three sums, the first two are combined.
    let mut taken: FxHashSet<u32> = FxHashSet::default();
    found.retain(|nested| {
        let lines = || nested.outer.iter().map(|(sum, _)| sum.line).chain([nested.inner.line]);
        let is_free = !lines().any(|line| taken.contains(&line));
        if is_free {
            taken.extend(lines());
        }
        is_free
    });
    if !found.is_empty() {
        reassociate(listing, found);
    }
}

/// Returns a line's 64-bit sum of two registers, if it is the result's only write.
fn sum(line: &Line, index: u32, writes: &Writes) -> Option<RegisterSum> {
    let Instruction::Add(add) = line.instruction().filter(|_| line.is_pure)? else { return None };
    let (Source::Register(a), Source::Register(b)) = (add.a, add.b) else { return None };
    let is_wide = matches!(add.ty, ScalarType::S64 | ScalarType::U64) && !add.carry_out;
    (is_wide && writes.is_once(add.d)).then_some(RegisterSum { line: index, result: add.d, terms: [a, b] })
}

impl Search<'_> {
    /// Returns the innermost loop around a line.
    fn around(&self, line: u32) -> Option<Region> {
        let is_around = |region: &&Region| region.kind == RegionKind::Loop && region.holds(line);
        self.regions.0.iter().rfind(is_around).copied()
    }

    fn is_written_in(&self, register: RegisterId, region: Region) -> bool {
        if self.writes.is_once(register) {
            return region.holds(self.writes.first(register));
        }
        self.writes.again_in(region).iter().any(|(other, _)| *other == register)
    }

    /// Returns the variant and the invariant term of a sum; `None` for equal kinds.
    fn split(&self, [a, b]: [RegisterId; 2], around: Region) -> Option<(RegisterId, RegisterId)> {
        match [a, b].map(|term| self.is_written_in(term, around)) {
            [true, false] => Some((a, b)),
            [false, true] => Some((b, a)),
            [true, true] | [false, false] => None,
        }
    }

    fn nested(&self, inner: RegisterSum) -> Option<Nested> {
        let readers = self.readers.get(&inner.result)?;
        let around = self.around(inner.line)?;
        let (changes, stays) = self.split(inner.terms, around)?;
        let outer = readers.iter().map(|&reader| {
            let outer = *self.sums.get(&reader)?;
            let (_, rest) = self.split(outer.terms, around)?;
            let is_later = inner.line < reader && self.around(reader) == Some(around);
            let between = Region { start: inner.line, end: reader, ..around };
            let reads = self.readers[&rest].iter().filter(|line| around.holds(**line)).count();
            (is_later && reads == 1 && !self.is_written_in(changes, between)).then_some((outer, rest))
        });
        let outer = outer.collect::<Option<Vec<_>>>()?;
        Some(Nested { inner, changes, stays, outer, start: around.start })
    }
}

fn reassociate(listing: &mut Listing, found: Vec<Nested>) {
    let mut before: Vec<(u32, Line)> = Vec::new();
    let mut left_out: FxHashSet<u32> = FxHashSet::default();
    for Nested { inner, changes, stays, outer, start } in found {
        left_out.insert(inner.line);
        for (sum, rest) in outer {
            let constant = listing.register(2);
            let mut first = listing.lines[sum.line as usize].clone();
            set_sum(&mut first, Some(constant), [stays, rest]);
            before.push((start, first));
            set_sum(&mut listing.lines[sum.line as usize], None, [changes, constant]);
        }
    }
    before.sort_by_key(|(place, _)| *place);
    listing.insert(before, &left_out);
}

/// Replaces the result and the operands of a sum.
fn set_sum(line: &mut Line, result: Option<RegisterId>, [a, b]: [RegisterId; 2]) {
    if let LineKind::Instruction(_, Instruction::Add(add)) = &mut line.kind {
        (add.d, add.a, add.b) = (result.unwrap_or(add.d), a.into(), b.into());
    }
}
