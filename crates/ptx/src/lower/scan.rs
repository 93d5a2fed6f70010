//! Scans, and reductions by functions that do not commute. A thread combines its registers, then
//! shuffles combine the lanes level by level. The last step of a scan between warps is here, too.
//!
//! Each level joins two neighboring blocks. A thread has its block's total (`own`), and the total
//! of the blocks before it (`carry`). Last, it combines its elements with the carry:
//! ```text
//! for each level:
//!     other = the total of the partner's block
//!     if own block is later: carry = combine(other, carry), own = combine(other, own)
//!     else:                  own = combine(own, other)
//! ```
//! The lowest levels join a *run*, neighboring registers of a thread, one after the other. The next
//! levels may join lanes in ascending order (`Tuning::ordered_scan_levels`). For prefixes, a lane
//! then combines with the lane at the level's distance before it (Hillis and Steele, 1986: Data
//! parallel algorithms). This takes half of the combinations, because no totals are computed.

use tilewright_base::Diagnostic;
use tilewright_gpu_ir::Scope;
use tilewright_gpu_ir::commutes;
use tilewright_ir::{Inst, Value};
use tilewright_layout::{Input, Layout, Parts, Scan, ScanStep, f2::Span};

use super::builder::{Scalar, Width};
use super::integer::Bitwise;
use super::{Elements, LANES, Lowered, Lowering};
use crate::isa::{Comparison, ShuffleMode};

/// A scan, or a reduction in order, along an axis of tiles in a layout.
#[derive(Clone, Copy)]
pub(super) struct AxisScan<'a> {
    pub inst: Inst,
    pub tiles: &'a [Value],
    pub layout: &'a Layout,
    pub axis: usize,
    pub reverse: bool,
}

/// The results that the levels within a warp compute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The prefix before each element.
    Prefixes,
    /// The total of each block.
    Totals,
    /// The prefixes and the totals.
    All,
}

/// The registers after the levels within a warp.
pub(super) struct Scanned {
    /// Each register combined with the earlier ones of its run.
    own: Vec<Elements>,
    /// The register that represents each register's run.
    pub run: Vec<u32>,
    /// The block total of each representative (those in `run`).
    pub totals: Vec<Elements>,
    /// For each representative, whether its block has a prefix before the run, and this prefix.
    carries: Vec<(Scalar, Elements)>,
}

impl Scanned {
    /// Returns the registers that represent their runs.
    fn runs(&self) -> impl Iterator<Item = usize> + use<> {
        let run = self.run.clone();
        (0..run.len()).filter(move |register| run[*register] as usize == *register)
    }
}

/// Returns how many of the first levels join lanes in order. Each joins lanes at twice the previous
/// distance.
fn lanes_in_order(layout: &Layout, levels: &[ScanStep]) -> usize {
    let is_next = |(number, level): &(usize, &ScanStep)| {
        let lane = layout.input().place(&[(Input::Lane, level.step.lane)]);
        level.step.reach() == Input::Lane
            && level.step.register == 0
            && level.step.lane == levels[0].step.lane << number
            && level.later == lane
    };
    levels.iter().enumerate().take_while(is_next).count()
}

/// The operands of the last step of a scan between warps. A line is the elements along the axis, in
/// parts of one warp each. `parts` is the scan of the parts' totals.
struct Carries<'a> {
    tiles: &'a [Value],
    parts: &'a [Value],
    /// The layout of `parts`. A line's parts are in a thread's registers or in lanes.
    layout: &'a Layout,
    /// The number of parts of a line.
    count: u32,
    reverse: bool,
    /// The thread's contribution to the index of its part. `reached` has its possible bits.
    own: Scalar,
    reached: u32,
}

impl Carries<'_> {
    /// Returns the index of the first part.
    fn first(&self) -> u32 {
        if self.reverse { self.count - 1 } else { 0 }
    }
}

impl Lowering<'_> {
    pub(super) fn lower_scan(
        &mut self,
        inst: Inst,
        tiles: &[Value],
        (axis, reverse): (usize, bool),
        scope: Scope,
    ) -> Lowered {
        let layout = self.layout(tiles[0]);
        let parts = Parts::along(layout, axis);
        if scope == Scope::Block && parts.is_some() {
            return Err(self.unsupported(inst, "a scan between warps that is not lowered"));
        }
        let along = AxisScan { inst, tiles, layout, axis, reverse };
        let wanted = if parts.is_some() { Wanted::All } else { Wanted::Prefixes };
        let scanned = self.scan_levels(along, parts.as_ref().map(|parts| parts.levels), wanted)?;
        let mut values = Vec::with_capacity(scanned.own.len());
        for (register, own) in scanned.own.iter().enumerate() {
            let (has, carry) = &scanned.carries[scanned.run[register] as usize];
            values.push(self.combine_if((inst, tiles), *has, [carry, own], own)?);
        }
        let results = self.kernel.insts[inst].results.clone();
        let (prefixes, totals) = results.split_at(tiles.len());
        for (place, result) in prefixes.iter().enumerate() {
            self.set(*result, values.iter().map(|value| value[place]).collect::<Vec<_>>());
        }
        for (place, result) in totals.iter().enumerate() {
            let registers = &parts.as_ref().expect("only a scan in parts has totals").registers;
            let run = |register: &u32| scanned.run[*register as usize] as usize;
            let own = registers.iter().map(|register| scanned.totals[run(register)][place]);
            self.set(*result, own.collect::<Vec<_>>());
        }
        Ok(())
    }

    /// Combines the levels within warps: the first `count`, or all.
    pub(super) fn scan_levels(
        &mut self,
        along: AxisScan<'_>,
        count: Option<usize>,
        wanted: Wanted,
    ) -> Result<Scanned, Box<Diagnostic>> {
        let AxisScan { inst, tiles, layout, axis, reverse } = along;
        let scan = Scan::along(layout, axis);
        let levels = &scan.steps[..count.unwrap_or(scan.steps.len())];
        let columns: Vec<_> = tiles.iter().map(|&tile| self.get(tile)).collect();
        let own: Vec<Elements> = (0..layout.registers() as usize)
            .map(|register| columns.iter().map(|column| column[register]).collect())
            .collect();
        let threads = |level: &ScanStep| {
            layout.input().part(level.later, Input::Lane) | layout.input().part(level.later, Input::Warp)
        };
        let is_within = |level: &&ScanStep| level.step.lane == 0 && threads(level) == 0;
        let (runs, rest) = levels.split_at(levels.iter().take_while(is_within).count());
        let mut scanned = self.scan_registers(along, runs, own)?;
        let in_order = if wanted == Wanted::Totals { 0 } else { lanes_in_order(layout, rest) };
        let least = self.target().tuning.ordered_scan_levels;
        let (lanes, rest) = rest.split_at(if in_order < least { 0 } else { in_order });
        if !lanes.is_empty() {
            let has_totals = wanted == Wanted::All || !rest.is_empty();
            self.scan_lanes((inst, tiles), lanes, &mut scanned, (reverse, has_totals))?;
        }
        let is_commutative = commutes(self.kernel, self.kernel.insts[inst].regions[0]);
        for level in rest {
            self.join_blocks((inst, tiles), level, &mut scanned, (layout, reverse, is_commutative))?;
        }
        Ok(scanned)
    }

    /// Scans the runs of neighboring registers.
    fn scan_registers(
        &mut self,
        along: AxisScan<'_>,
        levels: &[ScanStep],
        mut own: Vec<Elements>,
    ) -> Result<Scanned, Box<Diagnostic>> {
        // Returns the register of a run at a position, the xor of `first` and its steps.
        let at = |first: u32, place: u32| {
            let bits = levels.iter().enumerate().filter(|(bit, _)| place >> bit & 1 == 1);
            bits.fold(first, |register, (_, level)| register ^ level.step.register)
        };
        let own_bits = |level: &ScanStep| along.layout.input().part(level.later, Input::Register);
        let is_first = |register: u32| {
            levels.iter().all(|level| (register & own_bits(level)).count_ones().is_multiple_of(2))
        };
        let length = 1 << levels.len();
        let mut run = vec![0; own.len()];
        let mut totals = own.clone();
        for first in (0..own.len() as u32).filter(|register| is_first(*register)) {
            let order =
                (0..length).map(|place| at(first, if along.reverse { length - 1 - place } else { place }));
            let mut before: Option<Elements> = None;
            for register in order {
                run[register as usize] = first;
                if let Some(before) = before {
                    own[register as usize] = self.combine(along.inst, &before, &own[register as usize])?;
                }
                before = Some(own[register as usize].clone());
            }
            totals[first as usize] = before.expect("a run has a register");
        }
        let carries = totals.iter().map(|total| (Scalar::FALSE, total.clone())).collect();
        Ok(Scanned { own, run, totals, carries })
    }

    /// Combines the levels above the runs that join lanes in ascending order.
    fn scan_lanes(
        &mut self,
        (inst, tiles): (Inst, &[Value]),
        levels: &[ScanStep],
        scanned: &mut Scanned,
        (reverse, has_totals): (bool, bool),
    ) -> Lowered {
        let all = levels.iter().fold(0, |all, level| all | level.step.lane);
        let (thread, ends) = (self.thread(), Scalar::constant(if reverse { all.into() } else { 0 }));
        let place = self.mask(thread, all);
        // The distance in lanes from the first lane of the block, in the direction of the scan.
        let place = self.builder.bitwise(Bitwise::Xor, Width::B32, place, ends);
        let mode = if reverse { ShuffleMode::Down } else { ShuffleMode::Up };
        let others = self.mask(thread, LANES - 1 - all);
        let last = if reverse { others } else { others.plus(Width::B32, all.into()) };
        for register in scanned.runs() {
            let mut own = scanned.totals[register].clone();
            for level in levels {
                let distance = Scalar::constant(level.step.lane.into());
                let other = self.shuffle_elements_from(tiles, &own, mode, distance);
                let has = self.builder.compare(Width::B32, true, Comparison::Ge, place, distance);
                own = self.combine_if((inst, tiles), has, [&other, &own], &own)?;
            }
            let next = Scalar::constant(levels[0].step.lane.into());
            let before = self.shuffle_elements_from(tiles, &own, mode, next);
            let has = self.builder.compare(Width::B32, true, Comparison::Ne, place, Scalar::constant(0));
            scanned.carries[register] = (has, before);
            if has_totals {
                scanned.totals[register] = self.shuffle_elements_from(tiles, &own, ShuffleMode::Index, last);
            }
        }
        Ok(())
    }

    /// Joins blocks at one level above the runs: updates totals and carries.
    fn join_blocks(
        &mut self,
        (inst, tiles): (Inst, &[Value]),
        level: &ScanStep,
        scanned: &mut Scanned,
        (layout, reverse, is_commutative): (&Layout, bool, bool),
    ) -> Lowered {
        let part = |input| layout.input().part(level.later, input);
        let (registers, lanes, warps) = (part(Input::Register), part(Input::Lane), part(Input::Warp));
        let dynamic = if lanes | warps == 0 { Scalar::FALSE } else { self.parity(lanes, warps) };
        let before = scanned.totals.clone();
        for register in scanned.runs().map(|register| register as u32) {
            let is_odd = (register & registers).count_ones() % 2 == 1;
            let later = dynamic.plus(Width::Pred, u64::from(is_odd != reverse));
            let own = &before[register as usize];
            let partner = &before[(register ^ level.step.register) as usize];
            let other = if level.step.lane == 0 {
                partner.clone()
            } else {
                self.shuffle_elements(tiles, partner, level.step.lane)
            };
            let (has, carry) = scanned.carries[register as usize].clone();
            if later != Scalar::FALSE {
                let joined = self.combine_if((inst, tiles), has, [&other, &carry], &other)?;
                let carry = self.select_elements(tiles, later, &joined, &carry);
                let has = self.builder.bitwise(Bitwise::Or, Width::Pred, has, later);
                scanned.carries[register as usize] = (has, carry);
            }
            scanned.totals[register as usize] = if is_commutative {
                self.combine(inst, own, &other)?
            } else {
                let left = self.select_elements(tiles, later, &other, own);
                let right = self.select_elements(tiles, later, own, &other);
                self.combine(inst, &left, &right)?
            };
        }
        Ok(())
    }

    /// Returns `left` and `right` combined if `has_both`, else `otherwise`.
    fn combine_if(
        &mut self,
        (inst, tiles): (Inst, &[Value]),
        has_both: Scalar,
        [left, right]: [&Elements; 2],
        otherwise: &Elements,
    ) -> Result<Elements, Box<Diagnostic>> {
        if has_both == Scalar::FALSE {
            return Ok(otherwise.clone());
        }
        let joined = self.combine(inst, left, right)?;
        Ok(self.select_elements(tiles, has_both, &joined, otherwise))
    }

    /// Selects the elements `a` if the condition is true, else `b`.
    fn select_elements(
        &mut self,
        tiles: &[Value],
        condition: Scalar,
        a: &Elements,
        b: &Elements,
    ) -> Elements {
        let pairs = a.iter().zip(b).zip(tiles);
        pairs.map(|((a, b), &tile)| self.builder.select(self.width(tile), condition, *a, *b)).collect()
    }

    /// Lowers the last step of a scan between warps. Combines prefixes within parts with the scan
    /// of the totals.
    pub(super) fn lower_scan_carry(
        &mut self,
        inst: Inst,
        operands: &[Value],
        axis: usize,
        reverse: bool,
    ) -> Lowered {
        let (tiles, parts) = operands.split_at(operands.len() / 2);
        let layout = self.layout(tiles[0]);
        let levels = Parts::along(layout, axis).expect("the verifier checks that there are parts").levels;
        let tile = layout.output();
        let number = |place: u32| tile.coordinate(layout.apply(place), axis) >> levels;
        let bit = |input, bit: u32| layout.input().place(&[(input, 1 << bit)]);
        let images: Vec<u32> = [Input::Lane, Input::Warp]
            .into_iter()
            .flat_map(|input| (0..layout.bits_of(input)).map(move |number| bit(input, number)))
            .map(number)
            .collect();
        let own = self.linear(&images);
        let reached = images.iter().fold(0, |any, image| any | image);
        let count = 1 << (tile.bits_of(axis) as usize - levels);
        let carries = Carries { tiles, parts, layout: self.layout(parts[0]), count, reverse, own, reached };
        let lines = layout.remove_axis(axis);
        let prefixes: Vec<_> = tiles.iter().map(|&tile| self.get(tile)).collect();
        let mut known: Vec<([u32; 2], Option<Elements>)> = Vec::new();
        let mut values = Vec::with_capacity(layout.registers() as usize);
        for register in 0..layout.registers() {
            let place = layout.input().place(&[(Input::Register, register)]);
            let of = [lines.apply(place), number(place)];
            let carry = match known.iter().find(|(known, _)| *known == of) {
                Some((_, carry)) => carry.clone(),
                None => self.carry(&carries, of),
            };
            known.push((of, carry.clone()));
            let fixed = of[1] ^ carries.first();
            let has = if fixed & !reached != 0 {
                Scalar::TRUE
            } else {
                let none = Scalar::constant(fixed.into());
                self.builder.compare(Width::B32, true, Comparison::Ne, own, none)
            };
            let own: Elements = prefixes.iter().map(|column| column[register as usize]).collect();
            values.push(match carry {
                Some(carry) => self.combine_if((inst, tiles), has, [&carry, &own], &own)?,
                None => own,
            });
        }
        for (place, result) in self.kernel.insts[inst].results.clone().into_iter().enumerate() {
            self.set(result, values.iter().map(|value| value[place]).collect::<Vec<_>>());
        }
        Ok(())
    }

    /// Returns the prefix before a part of a line. The part's index is `fixed` xor the thread's
    /// `own`. Returns `None` for only first parts.
    fn carry(&mut self, carries: &Carries<'_>, [line, fixed]: [u32; 2]) -> Option<Elements> {
        let &Carries { tiles, parts, layout, count, reverse, own, reached } = carries;
        let span = Span::of(layout.bases(Input::Register));
        let columns: Vec<_> = parts.iter().map(|&part| self.get(part)).collect();
        let total = |part: u32| -> Option<Elements> {
            let register = span.solve((line * count) | part)? as usize;
            Some(columns.iter().map(|column| column[register]).collect())
        };
        if total(1).is_some() {
            let before = |place: u32| {
                let place = place.checked_sub(1)?;
                Some(total(place ^ carries.first()).expect("a thread has all parts of its lines"))
            };
            let all: Vec<Option<Elements>> = (0..count).map(before).collect();
            return self.choose(tiles, &all, (own, reached), fixed ^ carries.first());
        }
        if reached == 0 && fixed == carries.first() {
            return None;
        }
        let part = self.builder.bitwise(Bitwise::Xor, Width::B32, own, Scalar::constant(fixed.into()));
        let before = part.plus(Width::B32, if reverse { 1 } else { u64::MAX });
        let totals = total(0).expect("a warp has all parts of its lines");
        let totals = totals.into_iter().zip(tiles);
        Some(
            totals
                .map(|(total, &tile)| {
                    let width = self.width(tile);
                    self.shuffle_from(width, total, ShuffleMode::Index, before)
                })
                .collect(),
        )
    }

    /// Returns the element at `fixed` xor the bits `reached` of `own`. For `None` there, the result
    /// may be any element.
    fn choose(
        &mut self,
        tiles: &[Value],
        elements: &[Option<Elements>],
        (own, reached): (Scalar, u32),
        fixed: u32,
    ) -> Option<Elements> {
        if reached == 0 {
            return elements[fixed as usize].clone();
        }
        let bit = 1 << reached.ilog2();
        let unset = self.choose(tiles, elements, (own, reached ^ bit), fixed);
        let set = self.choose(tiles, elements, (own, reached ^ bit), fixed ^ bit);
        let (Some(unset), Some(set)) = (unset.clone(), set.clone()) else { return unset.or(set) };
        let own = self.builder.bitwise(Bitwise::And, Width::B32, own, Scalar::constant(bit.into()));
        let is_set = self.builder.compare(Width::B32, true, Comparison::Ne, own, Scalar::constant(0));
        Some(self.select_elements(tiles, is_set, &set, &unset))
    }
}
