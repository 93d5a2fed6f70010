//! Register pressure of a listing. A register is live from its first to its last line. If a loop
//! around the last line does not contain the first, it is live to the loop's end.

use cranelift_entity::EntityRef;

use super::regions::{RegionKind, Regions};
use super::{Line, Listing};

/// Returns the largest number of 32-bit words that are live between two lines. Returns 0 if jumps
/// do not form nested regions.
pub(super) fn words(listing: &Listing) -> u32 {
    words_of_lines(listing.lines.iter(), &listing.words)
}

/// Returns [`words`] of lines outside of a listing, such as a new order. `words` is the size of
/// each register in 32-bit words.
pub(super) fn words_of_lines<'a>(lines: impl Iterator<Item = &'a Line> + Clone, words: &[u8]) -> u32 {
    let Some(Regions(regions)) = Regions::of_lines(lines.clone()) else { return 0 };
    let loops: Vec<_> = regions.iter().rev().filter(|region| region.kind == RegionKind::Loop).collect();
    let mut ranges: Vec<Option<(u32, u32)>> = vec![None; words.len()];
    let mut count = 0;
    for (index, line) in lines.enumerate() {
        count = index + 1;
        let index = index as u32;
        line.visit_registers(|register, _| ranges[register.index()].get_or_insert((index, index)).1 = index);
    }
    let mut changes = vec![0_i32; count + 1];
    for (range, &words) in ranges.iter().zip(words) {
        let Some((first, mut last)) = *range else { continue };
        // Inner loops first.
        for region in loops.iter().filter(|_| words > 0) {
            if first < region.start && region.holds(last) {
                last = region.end - 1;
            }
        }
        changes[first as usize] += i32::from(words);
        changes[last as usize] -= i32::from(words);
    }
    let alive = changes.iter().scan(0, |alive, change| {
        *alive += change;
        Some(*alive)
    });
    alive.max().unwrap_or(0).max(0) as u32
}
