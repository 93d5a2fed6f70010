//! Selects one layout for each equivalence class.
//!
//! The classes form a graph (`equivalence`). An edge is an op or operand at which a conversion may
//! be needed. The candidates of a class are:
//!
//! - the coalesced layouts of its accesses
//! - the accumulator layouts of its dots
//! - layouts for its reductions and scans
//! - the layouts for which an edge needs no conversion
//!
//! The selection takes the candidate with the lowest estimated cost of the class's ops and the
//! conversions on its edges. This cost depends on the neighbors' layouts, so the selection is
//! iterated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cranelift_entity::{EntityRef, SecondaryMap};
use smallvec::SmallVec;
use tilewright_base::{Remark, RemarkKind, is_collecting, remark};
use tilewright_ir::{Function, Inst};

use crate::assign::cost::{LayoutCosts, sharing_cost};
use crate::assign::equivalence::{Accesses, Class, Classes, Edge, EdgeEnd};
use tilewright_gpu_ir::LayoutId;
use tilewright_gpu_ir::layout_rules::{
    default_layout, line_layout, operand_layout, reduced_layout, result_layout, shared_result_layout,
};

/// The maximum number of passes over all classes. Few selections change after the second pass.
const MAX_ITERATIONS: usize = 4;

pub struct LayoutChoice {
    /// The layout of each class.
    pub of_class: Vec<LayoutId>,
    /// The layout of each access, which may differ from that of its class.
    pub of_access: SecondaryMap<Inst, Option<LayoutId>>,
}

/// Selects the layouts of all classes.
///
/// The result depends on the order in which classes are visited first, so there are several runs.
/// The cheapest result wins.
///
/// - In the first run, classes with edges but without candidates get the default layout.
/// - In the second run, such classes wait for the layout of a neighbor.
/// - In the third run, classes are visited along the edges with the largest conversions. Its result
///   must be cheaper by a margin.
pub fn select_layouts(
    function: &Function,
    classes: &Classes,
    layouts: &mut LayoutCosts,
    num_warps: u32,
) -> LayoutChoice {
    // Select classes with accumulators first, then by their distance to operands of batched dots,
    // then those with accesses.
    let distances = distances_to_batched_dots(classes);
    let mut order: Vec<usize> = (0..classes.list.len()).collect();
    order.sort_by_key(|class| {
        let data = &classes.list[*class];
        (data.accumulators.is_empty(), distances[*class], data.accesses.is_empty())
    });
    let chosen = vec![None; classes.list.len()];
    let mut selection =
        LayoutSelection { function, classes, layouts, num_warps, chosen, waits: false, has_guessed: false };
    selection.select_all(&order);
    let mut best = (selection.total_cost(), selection.chosen.clone());
    if selection.has_guessed {
        selection.chosen.fill(None);
        selection.waits = true;
        let mut changed = true;
        while changed {
            changed = false;
            for class in &order {
                changed |= selection.select(*class);
            }
        }
        selection.waits = false;
        selection.select_all(&order);
        selection.keep_cheaper(&mut best, 0);
    }
    if selection.has_conversions() {
        selection.chosen.fill(None);
        selection.select_all(&spanning_order(classes, &order));
        let margin = best.0 / u64::from(selection.layouts.tuning.other_layouts_gain);
        selection.keep_cheaper(&mut best, margin);
    }
    selection.chosen = best.1;
    selection.finish()
}

/// Returns the classes in the order of a maximum spanning tree (Prim's algorithm). The roots are the
/// classes with accumulators and accesses. The weight of an edge is the number of bits that a
/// conversion on it moves.
fn spanning_order(classes: &Classes, order: &[usize]) -> Vec<usize> {
    let is_root = |class: &usize| {
        let data = &classes.list[*class];
        !data.accumulators.is_empty() || !data.accesses.is_empty()
    };
    let bits = |edge: &Edge| {
        let elements = classes.list[edge.from].shape.elements() as u64;
        elements * u64::from(edge.element_bits) * u64::from(edge.weight)
    };
    let mut rank = vec![0; order.len()];
    order.iter().enumerate().for_each(|(index, class)| rank[*class] = index);
    // Of edges with the same weight, the heap yields that of the first class in `order`.
    let entry = |bits: u64, class: usize| (bits, Reverse(rank[class]), class);
    let mut reached: BinaryHeap<_> =
        order.iter().map(|class| entry(if is_root(class) { u64::MAX } else { 0 }, *class)).collect();
    let mut found: Vec<usize> = Vec::new();
    let mut is_found = vec![false; order.len()];
    while let Some((_, _, class)) = reached.pop() {
        if std::mem::replace(&mut is_found[class], true) {
            continue;
        }
        found.push(class);
        for index in &classes.list[class].edges {
            let edge = &classes.edges[*index];
            if let EdgeEnd::Shape(_, to) | EdgeEnd::Reduced(_, to) = edge.to {
                reached.extend([edge.from, to].map(|class| entry(bits(edge), class)));
            }
        }
    }
    found
}

/// Returns the number of shape ops between each class and a batched dot. Returns `usize::MAX` for a
/// class that no such dot uses.
fn distances_to_batched_dots(classes: &Classes) -> Vec<usize> {
    let start = |class: &Class| if class.feeds_batched_dot { 0 } else { usize::MAX };
    let mut distances: Vec<usize> = classes.list.iter().map(start).collect();
    let mut changes = true;
    while changes {
        changes = false;
        for edge in &classes.edges {
            let EdgeEnd::Shape(_, to) = edge.to else { continue };
            let distance = distances[to].saturating_add(1);
            changes |= distance < distances[edge.from];
            distances[edge.from] = distances[edge.from].min(distance);
        }
    }
    distances
}

struct LayoutSelection<'a> {
    function: &'a Function,
    classes: &'a Classes,
    layouts: &'a mut LayoutCosts,
    num_warps: u32,
    chosen: Vec<Option<LayoutId>>,
    /// True if classes without candidates wait for the layout of a neighbor.
    waits: bool,
    has_guessed: bool,
}

impl LayoutSelection<'_> {
    fn select_all(&mut self, order: &[usize]) {
        for _ in 0..MAX_ITERATIONS {
            let mut changed = false;
            for class in order {
                changed |= self.select(*class);
            }
            if !changed {
                break;
            }
        }
    }

    /// Selects the layout of a class, and returns whether it changed.
    fn select(&mut self, class: usize) -> bool {
        if self.waits && self.chosen[class].is_some() {
            return false;
        }
        let shared = self.shared(class);
        let candidates = self.candidates(class);
        let others = candidates.into_iter().filter(|candidate| !shared.contains(candidate));
        let mut best = None;
        for candidate in others.chain(shared.iter().copied()) {
            let cost = self.cost(class, candidate) + self.arithmetic(class, candidate);
            if best.is_none_or(|(lowest, _)| cost < lowest) {
                best = Some((cost, candidate));
            }
        }
        let chosen = best.map(|(_, candidate)| candidate);
        std::mem::replace(&mut self.chosen[class], chosen) != chosen
    }

    /// Returns the candidate layouts of a class; the selected layout is the first.
    fn candidates(&mut self, class: usize) -> SmallVec<[LayoutId; 8]> {
        let data = &self.classes.list[class];
        let mut found: SmallVec<[LayoutId; 8]> = self.chosen[class].into_iter().collect();
        found.extend(data.accumulators.iter().map(|((layout, _), _)| *layout));
        for access in &data.accesses {
            found.push(self.own_layout(access, &data.shape));
            // Only asynchronous copies need lanes with copies of elements. Accesses outside of
            // loops are never asynchronous.
            if access.weight < u64::from(self.layouts.tuning.loop_weight)
                && let Some(layout) = access.shape.without_copies(&data.shape, self.num_warps)
            {
                found.push(self.layouts.add(layout));
            }
            let scanned = data.scans.iter().map(|([axis, _], _)| axis);
            for axis in data.reductions.iter().map(|(axis, _)| axis).chain(scanned) {
                let layout = access.shape.layout(&data.shape, self.num_warps, Some(*axis as usize));
                found.push(self.layouts.add(layout));
            }
        }
        let scans = data.scans.iter().chain(&data.butterflies).map(|([axis, _], _)| axis);
        for axis in scans.chain(data.merges.iter().map(|([axis, ..], _)| axis)) {
            found.push(self.layouts.add(line_layout(&data.shape, *axis as usize, self.num_warps)));
        }
        for edge in &data.edges {
            found.extend(self.across(class, &self.classes.edges[*edge]));
        }
        if found.is_empty() && !self.waits {
            self.has_guessed |= !data.edges.is_empty();
            found.push(self.layouts.add(default_layout(&data.shape, self.num_warps)));
        }
        let mut unique: SmallVec<[LayoutId; 8]> = SmallVec::new();
        for layout in found {
            if !unique.contains(&layout) {
                unique.push(layout);
            }
        }
        unique
    }

    fn own_layout(&mut self, access: &Accesses, shape: &[u32]) -> LayoutId {
        self.layouts.add(access.shape.layout(shape, self.num_warps, None))
    }

    /// Returns the layout of a class for which an edge costs nothing. Returns `None` if the
    /// neighbor does not determine it.
    fn across(&mut self, class: usize, edge: &Edge) -> Option<LayoutId> {
        match edge.to {
            EdgeEnd::Operand(layout) => Some(layout),
            EdgeEnd::Shape(inst, to) if to == class => {
                let from = self.chosen[edge.from]?;
                let layout = {
                    let data = &self.function.insts[inst];
                    let operand = self.function.ty(data.operands[0]);
                    result_layout(&data.op, operand, self.layouts.get(from))
                };
                Some(self.layouts.add(layout))
            }
            EdgeEnd::Shape(inst, to) => self.operand_layout_of_shape(inst, self.chosen[to]?),
            EdgeEnd::Reduced(axis, to) if to == class => {
                let from = self.chosen[edge.from]?;
                let layout = reduced_layout(self.layouts.get(from), axis);
                Some(self.layouts.add(layout))
            }
            // Several layouts have the same reduced layout.
            EdgeEnd::Reduced(..) => None,
        }
    }

    /// Returns the layouts of a class in which lanes divide the elements of a broadcast. Lanes with
    /// the same operand elements get different parts of the result.
    fn shared(&mut self, class: usize) -> SmallVec<[LayoutId; 2]> {
        let classes = self.classes;
        let edges = classes.list[class].edges.iter();
        edges.filter_map(|edge| self.shared_across(class, &classes.edges[*edge])).collect()
    }

    /// Returns the cost of a class's pointwise ops in a layout. It is proportional to the
    /// registers.
    fn arithmetic(&self, class: usize, layout: LayoutId) -> u64 {
        let registers = u64::from(self.layouts.get(layout).registers());
        registers * self.classes.list[class].arithmetic / u64::from(self.layouts.tuning.instructions_per_pass)
    }

    /// Returns the layout for which a broadcast costs nothing and lanes divide the elements.
    /// Returns `None` for other edges, and if no lanes hold the same elements.
    fn shared_across(&mut self, class: usize, edge: &Edge) -> Option<LayoutId> {
        let EdgeEnd::Shape(inst, to) = edge.to else { return None };
        let from = self.chosen[edge.from].filter(|_| to == class)?;
        let data = &self.function.insts[inst];
        let operand = self.function.ty(data.operands[0]);
        let layout = shared_result_layout(&data.op, operand, self.layouts.get(from))?;
        Some(self.layouts.add(layout))
    }

    fn operand_layout_of_shape(&mut self, inst: Inst, result: LayoutId) -> Option<LayoutId> {
        let data = &self.function.insts[inst];
        let operand = self.function.ty(data.operands[0]);
        let layout = operand_layout(&data.op, operand, self.layouts.get(result))?;
        Some(self.layouts.add(layout))
    }

    /// Replaces the best result if the current one costs at least `margin` less.
    fn keep_cheaper(&mut self, best: &mut (u64, Vec<Option<LayoutId>>), margin: u64) {
        let cost = self.total_cost();
        if cost + margin < best.0 {
            *best = (cost, self.chosen.clone());
        }
    }

    /// Returns whether a loop has a conversion.
    fn has_conversions(&mut self) -> bool {
        let classes = self.classes;
        classes.edges.iter().any(|edge| {
            let from = self.chosen[edge.from];
            edge.weight >= self.layouts.tuning.loop_weight
                && from.is_some_and(|from| self.edge_cost(edge, edge.from, from) > 0)
        })
    }

    fn total_cost(&mut self) -> u64 {
        let classes = self.classes;
        let mut cost = 0;
        for class in 0..classes.list.len() {
            if let Some(layout) = self.chosen[class] {
                cost += self.own_cost(class, layout) + self.arithmetic(class, layout);
            }
        }
        for edge in &classes.edges {
            let from = self.chosen[edge.from].expect("each class has a layout");
            cost += u64::from(self.edge_cost(edge, edge.from, from)) * u64::from(edge.weight);
        }
        cost
    }

    /// Returns the cost of a class in a layout. An edge to a neighbor without a layout costs
    /// nothing.
    fn cost(&mut self, class: usize, layout: LayoutId) -> u64 {
        let classes = self.classes;
        let mut cost = self.own_cost(class, layout);
        for index in &classes.list[class].edges {
            let edge = &classes.edges[*index];
            cost += u64::from(self.edge_cost(edge, class, layout)) * u64::from(edge.weight);
        }
        cost
    }

    fn own_cost(&mut self, class: usize, layout: LayoutId) -> u64 {
        let classes = self.classes;
        let data = &classes.list[class];
        let mut cost = 0;
        for access in &data.accesses {
            cost += u64::from(self.access_layout(access, &data.shape, layout).1) * access.weight;
        }
        for (axis, weight) in &data.reductions {
            cost += u64::from(self.layouts.reduction_cost(layout, *axis)) * weight;
        }
        for (scan, weight) in &data.scans {
            cost += u64::from(self.layouts.scan_cost(layout, *scan)) * weight;
        }
        for (butterfly, weight) in &data.butterflies {
            cost += u64::from(self.layouts.butterfly_cost(layout, *butterfly)) * weight;
        }
        for (merge, weight) in &data.merges {
            cost += u64::from(self.layouts.merge_cost(layout, *merge)) * weight;
        }
        for ((accumulator, bits), weight) in &data.accumulators {
            let both_ways = self.layouts.conversion_cost(layout, *accumulator, *bits)
                + self.layouts.conversion_cost(*accumulator, layout, *bits);
            cost += u64::from(both_ways) * weight;
        }
        cost
    }

    fn edge_cost(&mut self, edge: &Edge, class: usize, layout: LayoutId) -> u32 {
        let chosen = |of: usize, this: &Self| if of == class { Some(layout) } else { this.chosen[of] };
        let Some(mut from) = chosen(edge.from, self) else { return 0 };
        let to = match edge.to {
            EdgeEnd::Operand(layout) => Some(layout),
            EdgeEnd::Shape(inst, to) => {
                chosen(to, self).and_then(|to| self.operand_layout_of_shape(inst, to))
            }
            EdgeEnd::Reduced(axis, to) => {
                let reduced = reduced_layout(self.layouts.get(from), axis);
                from = self.layouts.add(reduced);
                chosen(to, self)
            }
        };
        to.map_or(0, |to| self.layouts.conversion_cost(from, to, edge.element_bits))
    }

    /// Returns the layout of accesses of a class, and the cost of one access.
    ///
    /// The layout is `class`, the layout of the class, or the accesses' own layout after a
    /// conversion. Lanes with copies may divide the elements of a store.
    fn access_layout(&mut self, access: &Accesses, shape: &[u32], class: LayoutId) -> (LayoutId, u32) {
        let direct = access.shape.cost(self.layouts.get(class));
        let own = self.own_layout(access, shape);
        if !access.are_free || own == class {
            return (class, direct);
        }
        let bits = access.shape.bytes * 8;
        let converted =
            access.shape.cost(self.layouts.get(own)) + self.layouts.conversion_cost(own, class, bits);
        let best = if converted < direct { (own, converted) } else { (class, direct) };
        let layout = self.layouts.get(class);
        let is_worth_it = access.is_store && layout.registers() >= self.layouts.tuning.shared_store_elements;
        let first = access.shape.order.first().filter(|_| is_worth_it);
        let shared = first.and_then(|axis| layout.shared_by_lanes(*axis));
        // Divide only if each thread then stores one element. Otherwise, other warps may hold
        // copies, too.
        let Some(shared) = shared.filter(|shared| shared.registers() == 1) else { return best };
        let cost = access.shape.cost(&shared) + sharing_cost(layout, bits, self.layouts.tuning);
        if cost < best.1 { (self.layouts.add(shared), cost) } else { best }
    }

    /// Returns the layout of accesses of a class that has its final layout.
    ///
    /// An asynchronous copy writes to shared memory, from which threads read the layout of the
    /// class. The access then has its own layout at no further cost.
    fn final_layout(&mut self, access: &Accesses, shape: &[u32], class: LayoutId) -> LayoutId {
        let own = self.own_layout(access, shape);
        let cost = |layout| access.shape.cost(self.layouts.get(layout));
        if access.are_copied && access.are_free && cost(own) < cost(class) {
            own
        } else {
            self.access_layout(access, shape, class).0
        }
    }

    /// Reports the layout of each class, and the costs of the other candidates.
    fn report(&mut self) {
        for class in 0..self.classes.list.len() {
            let values =
                self.function.values.keys().filter(|value| self.classes.of_value(*value) == Some(class));
            let mut names: Vec<String> = Vec::new();
            let mut span = None;
            for value in values {
                let name = self.function.values[value].name.as_deref();
                let name = name.map_or_else(|| format!("v{}", value.index()), |name| format!("%{name}"));
                if !names.contains(&name) && (names.len() < 4 || name.starts_with('%')) {
                    names.push(name);
                }
                let definition = self.function.defining_inst(value);
                span = span.or_else(|| self.function.call_chain(definition?).into_iter().last());
            }
            // Names of the program come before ids of values.
            names.sort_by_key(|name| !name.starts_with('%'));
            names.truncate(6);
            let mut costs: Vec<(u64, LayoutId)> = Vec::new();
            for candidate in self.candidates(class) {
                costs.push((self.cost(class, candidate) + self.arithmetic(class, candidate), candidate));
            }
            let Some(chosen) = self.chosen[class] else { continue };
            let own = costs.iter().find(|(_, layout)| *layout == chosen).map_or(0, |(cost, _)| *cost);
            costs.retain(|(_, layout)| *layout != chosen);
            let text = |layout: LayoutId| self.layouts.get(layout).to_string();
            let others: Vec<String> =
                costs.iter().map(|(cost, layout)| format!("{cost} for {}", text(*layout))).collect();
            let reason = if others.is_empty() {
                format!("estimated cost {own}; no other candidate")
            } else {
                format!(
                    "estimated cost {own} (accesses, arithmetic, reductions, scans, exchanges, \
                     conversions); others: {}",
                    others.join("; ")
                )
            };
            remark(|| Remark {
                pass: "layout",
                kind: RemarkKind::Note,
                span,
                subject: format!("{} : tile{}", names.join(", "), self.classes.list[class].shape),
                decision: text(chosen),
                reason,
            });
        }
    }

    fn finish(mut self) -> LayoutChoice {
        if is_collecting() {
            self.report();
        }
        let classes = self.classes;
        let of_class: Vec<LayoutId> =
            self.chosen.iter().map(|chosen| chosen.expect("each class has a candidate")).collect();
        let mut of_access = SecondaryMap::new();
        for (data, class) in classes.list.iter().zip(&of_class) {
            for access in &data.accesses {
                let layout = self.final_layout(access, &data.shape, *class);
                for inst in &access.insts {
                    of_access[*inst] = Some(layout);
                }
            }
        }
        LayoutChoice { of_class, of_access }
    }
}
