//! Lowers butterfly exchanges, bitonic merges and histograms through shared memory.
//!
//! An exchange pairs elements whose coordinates differ in one bit. If warps hold this bit, a
//! conversion first swaps it with a bit of registers or lanes. Then the exchange stays in a warp.
//!
//! ```text
//! %y = bitonic %x {high = 9, low = 0}    %a = convert_layout %x ; %b = bitonic %a {high = 9, low = 8}
//!                                        %c = convert_layout %b ; %y = bitonic %c {high = 7, low = 0}
//! %h = histogram %x                      %b = alloc ; local_store %b, 0 ; local_histogram %b, %x
//!                                        %h = local_load %b ; dealloc %b
//! ```

use smallvec::{SmallVec, smallvec};
use tilewright_ir::{self as ir, Block, Dtype, Inst, Value};
use tilewright_layout::{Input, Layout, Scan};

use super::conversions::Pass;
use tilewright_gpu_ir::layout_rules::{default_layout, line_layout, rows};
use tilewright_gpu_ir::{GpuOp, Op, Type};

/// Returns the axis and the coordinate bits of an exchange, in order.
fn bits_of(op: &ir::Op) -> (usize, Vec<u32>) {
    match op {
        ir::Op::Bitonic { axis, high, low, .. } => (*axis as usize, (*low..=*high).rev().collect()),
        ir::Op::Butterfly { axis, mask } => {
            (*axis as usize, (0..u32::BITS).filter(|bit| mask >> bit & 1 == 1).collect())
        }
        // tidy: wildcard because no other op exchanges elements along an axis
        _ => unreachable!("the op does not exchange elements along an axis"),
    }
}

/// Returns the op restricted to the exchanges of `bits`.
fn restricted(op: &ir::Op, bits: &[u32]) -> ir::Op {
    match *op {
        ir::Op::Bitonic { axis, block, descending, .. } => {
            let (high, low) = (bits[0], bits[bits.len() - 1]);
            ir::Op::Bitonic { axis, high, low, block, descending }
        }
        ir::Op::Butterfly { axis, .. } => {
            ir::Op::Butterfly { axis, mask: bits.iter().fold(0, |mask, bit| mask | 1 << bit) }
        }
        // tidy: wildcard because no other op exchanges elements along an axis
        _ => unreachable!("the op does not exchange elements along an axis"),
    }
}

/// Splits the bits into runs that all cross warps (`true`) or all stay within warps.
fn runs(op: &ir::Op, layout: &Layout) -> Vec<(bool, Vec<u32>)> {
    let (axis, mut bits) = bits_of(op);
    let scan = Scan::along(layout, axis);
    let crosses = |bit: &u32| scan.steps[*bit as usize].step.reach() > Input::Lane;
    if matches!(op, ir::Op::Butterfly { .. }) {
        // The order in which a butterfly exchanges bits does not matter.
        bits.sort_by_key(|bit| !crosses(bit));
    }
    let mut runs: Vec<(bool, Vec<u32>)> = Vec::new();
    for bit in bits {
        match runs.last_mut() {
            Some((crossing, run)) if *crossing == crosses(&bit) => run.push(bit),
            _ => runs.push((crosses(&bit), vec![bit])),
        }
    }
    runs
}

/// Returns a layout in which warps hold none of `bits`, if possible. Each such bit is swapped with
/// a bit of registers or lanes.
///
/// Bits of registers come before bits of lanes, bits of the axis before others, and low bits before
/// high bits.
fn with_bits_in_warps(layout: &Layout, axis: usize, bits: &[u32]) -> Layout {
    let tile = layout.output();
    let column = |bit: &u32| 1_u32 << (tile.shift(axis) + bit);
    let wanted: Vec<u32> = bits.iter().map(column).collect();
    let mut columns: SmallVec<[u32; 32]> = layout.columns().iter().copied().collect();
    let threads = (layout.bits_of(Input::Register) + layout.bits_of(Input::Lane)) as usize;
    let mut victims: Vec<usize> = (0..threads).filter(|place| !wanted.contains(&columns[*place])).collect();
    victims.sort_by_key(|place| {
        let is_along = tile.coordinate(columns[*place], axis) != 0;
        (*place >= layout.bits_of(Input::Register) as usize, !is_along, columns[*place])
    });
    let mut victims = victims.into_iter();
    for place in threads..columns.len() {
        if wanted.contains(&columns[place])
            && let Some(victim) = victims.next()
        {
            columns.swap(place, victim);
        }
    }
    Layout::new(*layout.input(), tile.clone(), columns.into_iter().collect())
}

impl Pass<'_> {
    /// Lowers an exchange along an axis; another layout serves the bits that cross warps.
    pub(super) fn exchange(&mut self, inst: Inst, op: &ir::Op, block: Block) {
        let data = self.cursor.function.insts[inst].clone();
        let (operand, result) = (data.operands[0], data.results[0]);
        let own = self.layout(operand).clone();
        if runs(op, &own).iter().all(|(crosses, _)| !crosses) {
            self.cursor.insert(inst);
            return;
        }
        self.goes_through_memory(inst);
        let axis = bits_of(op).0;
        let is_plain = own.columns().iter().all(|column| column.count_ones() <= 1);
        let lines = || line_layout(&own.output().shape(), axis, self.warps());
        let base = if is_plain { own.clone() } else { lines() };
        let home = self.header.layouts.add(base.clone());
        let (mut value, mut layout) = (operand, self.cursor.function.ty(operand).layout());
        for (crosses, bits) in runs(op, &base) {
            let to =
                if crosses { self.header.layouts.add(with_bits_in_warps(&base, axis, &bits)) } else { home };
            if layout != Some(to) {
                value = self.converted(value, to, block);
                layout = Some(to);
            }
            let ty = self.cursor.function.ty(value).clone();
            let part = Op::Tile(restricted(op, &bits));
            value = self.cursor.value(part, &[value], ty);
        }
        self.convert_to(value, result, block);
    }

    /// Lowers a histogram to counters in shared memory.
    pub(super) fn histogram(&mut self, inst: Inst, bins: u32) {
        self.goes_through_memory(inst);
        let memory = rows(&[bins]);
        let spread = default_layout(&[bins], self.warps());
        let spread = self.header.layouts.add(spread);
        let zero = self.cursor.int(Dtype::I32, 0);
        let ty = Type::registers(ir::Type::tile(Dtype::I32, [bins]), Some(spread));
        let zeros = self.cursor.value(ir::Op::Splat { shape: ir::Shape::from([bins]) }, &[zero], ty);
        let buffer = self.store(zeros, &memory);
        let mut operands: SmallVec<[Value; 4]> = smallvec![buffer];
        operands.extend(self.cursor.function.insts[inst].operands.iter().copied());
        self.cursor.emit(GpuOp::LocalHistogram {}, &operands, []);
        let data = &mut self.cursor.function.insts[inst];
        data.op = GpuOp::LocalLoad { matrix: false }.into();
        data.operands = smallvec![buffer];
        self.cursor.insert(inst);
        self.cursor.emit(GpuOp::Dealloc {}, &[buffer], []);
    }
}
