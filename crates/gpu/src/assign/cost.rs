//! Estimates the costs of ops in layouts, and of conversions. Caches the costs, because layout
//! selection queries each cost often.

use rustc_hash::FxHashMap;
use tilewright_ir::{Block, ElementwiseFamily, FloatFn, Function, Op};
use tilewright_layout::{Input, Layout, Parts, Reduction, Scan};

use tilewright_gpu_ir::layout_rules::{MAX_PARTIAL_RESULTS, partial_results_layout};
use tilewright_gpu_ir::tuning::Tuning;
use tilewright_gpu_ir::{LayoutId, Layouts};

/// The candidate layouts of a kernel, with cached costs.
pub struct LayoutCosts {
    pub tuning: &'static Tuning,
    layouts: Layouts,
    costs: FxHashMap<(LayoutId, LayoutId, u32), u32>,
    reductions: FxHashMap<(LayoutId, u32), u32>,
    scans: FxHashMap<(LayoutId, [u32; 2]), u32>,
    merges: FxHashMap<(LayoutId, [u32; 3]), u32>,
    butterflies: FxHashMap<(LayoutId, [u32; 2]), u32>,
}

impl LayoutCosts {
    pub fn new(tuning: &'static Tuning) -> Self {
        Self {
            tuning,
            layouts: Layouts::default(),
            costs: FxHashMap::default(),
            reductions: FxHashMap::default(),
            scans: FxHashMap::default(),
            merges: FxHashMap::default(),
            butterflies: FxHashMap::default(),
        }
    }

    pub fn add(&mut self, layout: Layout) -> LayoutId {
        self.layouts.add(layout)
    }

    pub fn get(&self, id: LayoutId) -> &Layout {
        self.layouts.get(id)
    }

    /// Estimates the cost of a reduction for a warp: shuffles, and exchanges through shared memory.
    pub fn reduction_cost(&mut self, layout: LayoutId, axis: u32) -> u32 {
        if let Some(cost) = self.reductions.get(&(layout, axis)) {
            return *cost;
        }
        let reduction = Reduction::along(self.layouts.get(layout), axis as usize);
        let results = reduction.result.registers();
        let shuffles = reduction.steps_of(Input::Lane).count() as u32 * results;
        let is_between_warps = reduction.steps_of(Input::Warp).next().is_some();
        let cost = 2 * shuffles + if is_between_warps { self.tuning.trip_cost + 2 * results } else { 0 };
        self.reductions.insert((layout, axis), cost);
        cost
    }

    /// Estimates the cost of a scan for a warp. `scan` has the axis, and the instructions that
    /// combine two elements.
    ///
    /// A thread first combines the elements of each run, its consecutive elements along the axis.
    /// For each coordinate bit above the run, it combines the results of its runs twice. Last, it
    /// combines each element with the prefix of its run. Lanes exchange results of runs by
    /// shuffles. Warps exchange partial results through shared memory. This takes one trip for up
    /// to `MAX_PARTIAL_RESULTS` results on each line, otherwise two.
    pub fn scan_cost(&mut self, layout: LayoutId, scan: [u32; 2]) -> u32 {
        if let Some(cost) = self.scans.get(&(layout, scan)) {
            return *cost;
        }
        let [axis, combine] = scan;
        let own = self.layouts.get(layout);
        let steps = Scan::along(own, axis as usize).steps;
        let registers = own.registers();
        let within = steps.iter().take_while(|level| level.step.reach() == Input::Register).count();
        let runs = registers >> within;
        let levels = steps.iter().filter(|level| level.step.reach() == Input::Lane).count() as u32;
        let parts = Parts::along(own, axis as usize);
        let between = parts.map_or(0, |parts| {
            let gathered = partial_results_layout(&parts);
            let shuffles = if gathered == parts.gathered { 0 } else { parts.count().ilog2() + runs };
            let all = 2 * gathered.registers() + 4 * shuffles;
            if parts.count() > MAX_PARTIAL_RESULTS {
                4 * registers + 2 * self.tuning.trip_cost
            } else {
                self.tuning.trip_cost + all
            }
        });
        let combined = 2 * registers - runs + 2 * runs * (steps.len() - within) as u32;
        let cost = 4 * levels * runs
            + registers
            + between
            + combined * (combine - 1) / self.tuning.instructions_per_pass;
        self.scans.insert((layout, scan), cost);
        cost
    }

    /// Estimates the cost of a butterfly exchange for a warp. The exchange is free within a thread,
    /// takes shuffles between lanes, and two trips between warps.
    ///
    /// `butterfly` has the axis, and the coordinate bits in which partners differ.
    pub fn butterfly_cost(&mut self, layout: LayoutId, butterfly: [u32; 2]) -> u32 {
        if let Some(cost) = self.butterflies.get(&(layout, butterfly)) {
            return *cost;
        }
        let [axis, mask] = butterfly;
        let own = self.layouts.get(layout);
        let scan = Scan::along(own, axis as usize);
        let bits = scan.steps.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
        let registers = own.registers();
        let cost = match bits.map(|(_, level)| level.step.reach()).max() {
            None | Some(Input::Register) => 0,
            Some(Input::Lane) => 4 * registers,
            Some(_) => 2 * self.tuning.trip_cost + 4 * registers,
        };
        self.butterflies.insert((layout, butterfly), cost);
        cost
    }

    /// Estimates the cost of a part of a bitonic merge for a warp. Each bit takes comparisons and
    /// shuffles; bits between warps take two trips through shared memory. `merge` has the axis, and
    /// the highest and the lowest coordinate bit.
    pub fn merge_cost(&mut self, layout: LayoutId, merge: [u32; 3]) -> u32 {
        if let Some(cost) = self.merges.get(&(layout, merge)) {
            return *cost;
        }
        let own = self.layouts.get(layout);
        let [axis, high, low] = merge;
        let registers = own.registers();
        let scan = Scan::along(own, axis as usize);
        let levels = &scan.steps[low as usize..=high as usize];
        let count = |reach| levels.iter().filter(|level| level.step.reach() == reach).count() as u32;
        let is_between_warps = levels.iter().any(|level| level.step.reach() > Input::Lane);
        let cost = registers * (count(Input::Register) + 4 * count(Input::Lane))
            + if is_between_warps { 2 * self.tuning.trip_cost + 4 * registers } else { 0 };
        self.merges.insert((layout, merge), cost);
        cost
    }

    /// Estimates the cost of a conversion for a warp, in wavefronts of shared memory. A wavefront
    /// moves one word of each lane.
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
        } else if source.bases(Input::Warp) == target.bases(Input::Warp) && both < self.tuning.trip_cost {
            2 * both
        } else {
            2 * both + self.tuning.trip_cost
        };
        self.costs.insert((from, to, element_bits), cost);
        cost
    }
}

/// Estimates the cost of dividing a thread's elements among lanes with copies. Each lane selects
/// its words.
pub fn sharing_cost(layout: &Layout, element_bits: u32, tuning: &Tuning) -> u32 {
    1 + (layout.registers() * element_bits).div_ceil(32).div_ceil(tuning.instructions_per_pass)
}

/// Estimates the instructions of a region that combines two elements; at least 1.
pub fn combine_cost(function: &Function, region: Block, tuning: &Tuning) -> u32 {
    use FloatFn as F;
    let cost = |op: &Op| match op {
        Op::Elementwise { function } => match function.family() {
            ElementwiseFamily::Math(_)
            | ElementwiseFamily::Float(F::Div | F::DivRn | F::FloatRem | F::Sqrt | F::SqrtRn) => {
                tuning.function_cost
            }
            // tidy: wildcard because functions of other families take one or two instructions
            _ => 1,
        },
        // tidy: wildcard because constants and casts cost little
        _ => 0,
    };
    function.blocks[region].insts.iter().map(|inst| cost(&function.insts[*inst].op)).sum::<u32>().max(1)
}
