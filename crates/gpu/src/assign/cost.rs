//! What layouts cost: reductions in them, and conversions between them. Each is asked for many times.

use rustc_hash::FxHashMap;
use tilewright_layout::{Input, Layout, Parts, Reduction, Scan};

use crate::language::{LayoutId, Layouts};
use crate::layout_rules::MOST_PARTS;

/// What a trip through shared memory costs besides its accesses: two barriers and the latency of a load, in passes of
/// the memory.
const TRIP_COST: u32 = 40;

/// The layouts that are weighed for a kernel.
#[derive(Default)]
pub struct LayoutCosts {
    layouts: Layouts,
    costs: FxHashMap<(LayoutId, LayoutId, u32), u32>,
    reductions: FxHashMap<(LayoutId, u32), u32>,
    scans: FxHashMap<(LayoutId, u32), u32>,
}

impl LayoutCosts {
    /// The number of a layout.
    pub fn add(&mut self, layout: Layout) -> LayoutId {
        self.layouts.add(layout)
    }

    /// The layout with a number.
    pub fn get(&self, id: LayoutId) -> &Layout {
        self.layouts.get(id)
    }

    /// An estimate of what a reduction along an axis costs a warp: its shuffles, and the trip between warps.
    pub fn reduction_cost(&mut self, layout: LayoutId, axis: u32) -> u32 {
        if let Some(cost) = self.reductions.get(&(layout, axis)) {
            return *cost;
        }
        let reduction = Reduction::along(self.layouts.get(layout), axis as usize);
        let results = reduction.result.registers();
        let shuffles = reduction.steps_of(Input::Lane).count() as u32 * results;
        let is_between_warps = reduction.steps_of(Input::Warp).next().is_some();
        let cost = 2 * shuffles + if is_between_warps { TRIP_COST + 2 * results } else { 0 };
        self.reductions.insert((layout, axis), cost);
        cost
    }

    /// An estimate of what a scan along an axis costs a warp: the shuffles of its runs of registers and what combines them, and
    /// the trip between warps, there and back where a line has too many parts.
    pub fn scan_cost(&mut self, layout: LayoutId, axis: u32) -> u32 {
        if let Some(cost) = self.scans.get(&(layout, axis)) {
            return *cost;
        }
        let own = self.layouts.get(layout);
        let scan = Scan::along(own, axis as usize);
        let registers = own.registers();
        let runs = scan.steps.iter().take_while(|level| level.step.reach() == Input::Register).count();
        let runs = registers >> runs;
        let levels = scan.steps.iter().filter(|level| level.step.reach() == Input::Lane).count() as u32;
        let parts = Parts::along(own, axis as usize);
        let between = parts.map_or(0, |parts| {
            let all = parts.gathered.registers();
            if parts.count() > MOST_PARTS { 4 * registers + 2 * TRIP_COST } else { TRIP_COST + 2 * all }
        });
        let cost = 4 * levels * runs + registers + between;
        self.scans.insert((layout, axis), cost);
        cost
    }

    /// An estimate of what a conversion costs a warp, in passes of shared memory: one moves a word of each lane. The plans
    /// that are made in the end are not needed to see what is better.
    pub fn conversion_cost(&mut self, from: LayoutId, to: LayoutId, element_bits: u32) -> u32 {
        if from == to {
            return 0;
        }
        if let Some(cost) = self.costs.get(&(from, to, element_bits)) {
            return *cost;
        }
        let (source, target) = (self.layouts.get(from), self.layouts.get(to));
        let words = |layout: &Layout| (layout.registers() * element_bits).div_ceil(32);
        let both = words(source) + words(target);
        let cost = if target.registers_from(source).is_some() {
            1
        } else if source.bases(Input::Warp) == target.bases(Input::Warp) && both < TRIP_COST {
            2 * both
        } else {
            2 * both + TRIP_COST
        };
        self.costs.insert((from, to, element_bits), cost);
        cost
    }
}
