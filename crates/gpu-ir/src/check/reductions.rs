//! Checks of reductions, scans and histograms.

use tilewright_ir as ir;
use tilewright_ir::Value;
use tilewright_layout::{Parts, Reduction};

use super::{Check, Checker, ensure};
use crate::attributes::Scope;
use crate::commutation::exchange_of_reduction;
use crate::layout_rules::{partial_results_layout, rows};
use crate::warp_instructions::redux_function;

impl Checker<'_> {
    pub(super) fn reduce(&self, axis: u32, scope: Scope, redux: bool) -> Check {
        let expected = self.tile_results(&ir::Op::Reduce { axis })?;
        self.same_layouts(&self.inst.operands)?;
        let layout = self.layout(self.operand(0)).ok_or("reduce takes tiles")?;
        let reduction = Reduction::along(layout, axis as usize);
        let exchange = exchange_of_reduction(self.function, self.inst.regions[0], layout, axis as usize);
        let (tiles, layout) = match (scope, &exchange) {
            (Scope::Block, _) => (expected, &reduction.result),
            (Scope::Warp, Some(exchange)) => {
                let shape: ir::Shape = exchange.partials.output().shape().into_iter().collect();
                let parts = expected.iter().map(|tile| tile.with_shape(shape.clone()));
                (parts.collect(), &exchange.partials)
            }
            (Scope::Warp, None) => {
                return Err(
                    "each warp holds whole lines along the axis, so there are no partial results".into()
                );
            }
        };
        self.tiles(&tiles)?;
        let fits = self
            .inst
            .results
            .iter()
            .all(|value| self.layout(self.ty(*value)).is_none_or(|found| found == layout));
        ensure(fits, || format!("the result of the reduction must have the layout {layout}"))?;
        let is_there = || redux_function(self.header, self.function, self.inst).is_some();
        ensure(!redux || is_there(), || "redux.sync cannot compute this reduction".into())
    }

    pub(super) fn scan(&self, axis: u32, reverse: bool, scope: Scope) -> Check {
        let mut expected = self.tile_results(&ir::Op::Scan { axis, reverse })?;
        let count = expected.len();
        self.same_layouts(&self.inst.operands)?;
        let layout = self.layout(self.operand(0)).ok_or("scan takes tiles")?;
        let mut layouts = vec![layout.clone(); count];
        if scope == Scope::Warp {
            let parts = Parts::along(layout, axis as usize);
            let Parts { partials, .. } =
                parts.ok_or("each warp holds whole lines along the axis, so there are no partial results")?;
            let shape: ir::Shape = partials.output().shape().into_iter().collect();
            expected.extend_from_within(..);
            for part in &mut expected[count..] {
                *part = part.with_shape(shape.clone());
            }
            layouts.resize(2 * count, partials);
        }
        self.tiles(&expected)?;
        let mut found = self.inst.results.iter().map(|value| self.layout(self.ty(*value))).zip(&layouts);
        ensure(found.all(|(found, layout)| found == Some(layout)), || {
            format!("the results of the scan must have the layouts {layouts:?}")
        })
    }

    pub(super) fn local_histogram(&self) -> Check {
        let buffer = self.memory(0)?;
        let tile = self.registers(1)?;
        let is_counted = tile.dtype().is_some_and(|dtype| dtype.is_int() && !dtype.is_bool());
        let is_mask = |mask: &ir::Type| mask.is_bool() && mask.shape == tile.shape;
        let mask = self.inst.operands.get(2).map(|mask| self.ty(*mask).as_registers());
        let fits = is_counted
            && !tile.is_scalar()
            && buffer.tile() == ir::Type::tile(ir::Dtype::I32, [buffer.shape.elements() as u32])
            && *self.header.layouts.get(buffer.layout) == rows(&buffer.shape)
            && mask.is_none_or(|mask| mask.is_some_and(is_mask));
        ensure(fits, || format!("local_histogram does not count {tile} in {}", buffer.tile()))?;
        self.same_layouts(&self.inst.operands[1..])
    }

    pub(super) fn scan_carry(&self, axis: u32) -> Check {
        let (tiles, parts) = self.inst.operands.split_at(self.inst.operands.len() / 2);
        self.same_layouts(tiles)?;
        self.same_layouts(parts)?;
        let whole = || "scan_carry takes the scans of each warp, and for each of them the scan of its partial results";
        let (Some(tile), Some(part)) = (tiles.first(), parts.first()) else { return Err(whole().into()) };
        let (tile, part) = (self.layout(self.ty(*tile)), self.layout(self.ty(*part)));
        let axis = axis as usize;
        let layout = tile.filter(|tile| axis < tile.output().rank()).ok_or_else(whole)?;
        let needed = Parts::along(layout, axis)
            .ok_or("each warp holds whole lines along the axis, so there are no partial results")?;
        let types = |values: &[Value]| -> Vec<ir::Type> {
            values.iter().filter_map(|value| self.ty(*value).as_registers().cloned()).collect()
        };
        let (tiles, parts) = (types(tiles), types(parts));
        let fits = tiles.len() == parts.len()
            && part == Some(&partial_results_layout(&needed))
            && tiles.iter().zip(&parts).all(|(tile, part)| tile.element == part.element);
        ensure(fits, || {
            format!("the partial results must have the layout {}", partial_results_layout(&needed))
        })?;
        self.tiles(&tiles)?;
        let mut layouts = self.inst.results.iter().map(|value| self.layout(self.ty(*value)));
        ensure(layouts.all(|found| found == Some(layout)), || {
            format!("the result of the scan must have the layout {layout}")
        })
    }
}
