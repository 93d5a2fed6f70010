//! Finds segments: runs of consecutive indices that have the same quotient.
//! A kernel with 1-D tiles often computes the row and column of an element from one index `x`. For
//! `x // 768` and `x % 768`, a run of 256 indices from a multiple of 256 has one quotient and
//! consecutive remainders:
//!
//! ```text
//! x       512 513 … 767 | 768 769 … 1023
//! x / 768   0   0 …   0 |   1   1 …    1
//! x % 768 512 513 … 767 |   0   1 …  255
//! ```
//! If each row of a nest is a segment, it has one quotient and contiguous accesses.

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use tilewright_ir::{ArithmeticFn, DivisionFn, ElementwiseFamily as Family, Op};

use super::axes::{Dimension, Dimensions};
use super::plan::{Definitions, Space};
use crate::program::{Program, Slot, Step};
use crate::tuning::MIN_SEGMENT;

/// The number of elements of a segment, for each dimension whose indices a step divides.
pub(super) struct Segments(FxHashMap<Dimension, usize>);

impl Segments {
    pub fn new(program: &Program, definitions: &Definitions<'_>, dimensions: &Dimensions) -> Self {
        let mut segments = FxHashMap::default();
        for step in program.blocks.iter().flat_map(|block| &block.steps) {
            let Some((dimension, extent)) =
                step.results.first().and_then(|&slot| only_axis(program, dimensions, slot))
            else {
                continue;
            };
            let Some(segment) = of_division(definitions, step) else { continue };
            let segment = segment.min(power_of_two_in(extent as u64)) as usize;
            if segment >= MIN_SEGMENT {
                let least = segments.entry(dimension).or_insert(segment);
                *least = segment.min(*least);
            }
        }
        Self(segments)
    }

    /// Returns the space of a tile whose rows are segments.
    pub fn space(&self, program: &Program, dimensions: &Dimensions, slot: Slot) -> Option<Space> {
        let mut space = Space::of_tile(program, dimensions, slot)?;
        let lane = space.lane?;
        let &segment = self.0.get(&lane)?;
        let &extent = program.ty(slot).shape().iter().rfind(|extent| **extent > 1)?;
        space.rows.push((lane, extent as usize / segment));
        space.segment = Some(segment);
        Some(space)
    }
}

/// Returns the only axis of more than one element: its dimension and extent.
fn only_axis(program: &Program, dimensions: &Dimensions, slot: Slot) -> Option<(Dimension, usize)> {
    let mut long = program.ty(slot).shape().iter().enumerate().filter(|(_, extent)| **extent > 1);
    let (Some((axis, &extent)), None) = (long.next(), long.next()) else { return None };
    Some((dimensions.of(slot, axis)?, extent as usize))
}

/// Returns the number of indices with the same quotient, if the step divides by a constant.
fn of_division(definitions: &Definitions<'_>, step: &Step) -> Option<u64> {
    let Some(Op::Elementwise { function }) = step.op() else { return None };
    let Family::Division(_) = function.family() else { return None };
    let divisor = definitions.positive_constant(step.operands[1].slot)?;
    Some(definitions.index_alignment(step.operands[0].slot)?.min(power_of_two_in(divisor)))
}

/// Returns the greatest power of two that divides a number, and 2^63 for 0.
fn power_of_two_in(number: u64) -> u64 {
    if number == 0 { 1 << 63 } else { number & number.wrapping_neg() }
}

/// The known alignments of slots.
#[derive(Default)]
pub(super) struct Alignments {
    of_indices: RefCell<FxHashMap<Slot, Option<u64>>>,
    of_integers: RefCell<FxHashMap<Slot, u64>>,
}

impl Definitions<'_> {
    /// Returns the greatest known power of two that divides the first index of a tile. In runs of
    /// this length, the indices are consecutive.
    pub fn index_alignment(&self, slot: Slot) -> Option<u64> {
        if let Some(&known) = self.alignments.of_indices.borrow().get(&slot) {
            return known;
        }
        let alignment = self.find_index_alignment(slot);
        self.alignments.of_indices.borrow_mut().insert(slot, alignment);
        alignment
    }

    fn find_index_alignment(&self, slot: Slot) -> Option<u64> {
        let step = self.get(slot)?;
        let of_index = |place: usize| self.index_alignment(step.operands[place].slot);
        let of_scalar = |place: usize| self.alignment(step.operands[place].slot);
        match step.op()? {
            Op::Arange { start, .. } => Some(power_of_two_in(start.unsigned_abs())),
            Op::Cast { .. } if self.is_integer(slot) => of_index(0),
            Op::ExpandDims { .. } | Op::Broadcast { .. } | Op::Reshape { .. } => of_index(0),
            Op::Elementwise { function } => match function.family() {
                Family::Arithmetic(ArithmeticFn::Add) => match of_index(0) {
                    Some(alignment) => Some(alignment.min(of_scalar(1))),
                    None => Some(of_index(1)?.min(of_scalar(0))),
                },
                Family::Arithmetic(ArithmeticFn::Sub) => Some(of_index(0)?.min(of_scalar(1))),
                Family::Division(DivisionFn::IntRem) => Some(of_index(0)?.min(of_division(self, step)?)),
                // tidy: wildcard because the results of other functions are not consecutive
                _ => None,
            },
            // tidy: wildcard because no other op creates indices
            _ => None,
        }
    }

    /// Returns the greatest power of two that is known to divide all elements of a slot.
    fn alignment(&self, slot: Slot) -> u64 {
        if let Some(&known) = self.alignments.of_integers.borrow().get(&slot) {
            return known;
        }
        let alignment = if self.is_integer(slot) { self.find_alignment(slot) } else { 1 };
        self.alignments.of_integers.borrow_mut().insert(slot, alignment);
        alignment
    }

    fn find_alignment(&self, slot: Slot) -> u64 {
        if let Some(&[first, step]) = self.counters.get(&slot) {
            return self.alignment(first).min(self.alignment(step));
        }
        let Some(step) = self.get(slot) else { return 1 };
        let of = |place: usize| self.alignment(step.operands[place].slot);
        match step.op() {
            Some(Op::Constant { value }) => power_of_two_in(value.bits),
            Some(Op::Splat { .. } | Op::Cast { .. } | Op::ExpandDims { .. } | Op::Broadcast { .. }) => of(0),
            Some(Op::Elementwise { function }) => match function.family() {
                Family::Arithmetic(ArithmeticFn::Add | ArithmeticFn::Sub) => of(0).min(of(1)),
                Family::Arithmetic(ArithmeticFn::Mul) => of(0).checked_mul(of(1)).unwrap_or(1 << 63),
                // tidy: wildcard because the results of other functions may be odd
                _ => 1,
            },
            // tidy: wildcard because the results of other ops may be odd
            _ => 1,
        }
    }
}
