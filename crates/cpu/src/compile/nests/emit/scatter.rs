//! Emits scatters: stores to addresses that are elements of a tile.
//!
//! A loop of the phase before the scatter finds the least and the greatest offset under the mask.
//! All addresses between them must be inside the memory. No access may overlap them, except loads
//! that precede the scatter.

use tilewright_ir::Dtype;
use tilewright_native::ir::{Binary, IntBinary, IntCompare, Value};

use super::super::vectors::{Elements, elements};
use super::{Emitter, Group};
use crate::program::{Combine, Step};

/// The maximum magnitude of an offset, so that no address wraps.
const MAX_OFFSET: i64 = 1 << 48;

#[derive(Clone, Copy)]
pub(super) struct Scatter {
    member: usize,
    dtype: Dtype,
    /// The least and the greatest offset so far, in each lane.
    pub range: [Value; 2],
}

impl Emitter<'_> {
    /// Begins the check of a scatter, if the loop has one.
    pub(super) fn begin_scatter(&mut self, group: &Group) {
        self.scatter = group.checked.map(|member| {
            let [_, offsets] = self.plan.scattered(self.plan.members[member]).expect("it is a scatter");
            let dtype = self.ty(offsets).dtype();
            let range = [Combine::Min, Combine::Max].map(|combine| self.identity(combine, dtype));
            Scatter { member, dtype, range }
        });
    }

    /// Sets the range of offsets, if the loop checks a scatter.
    pub(super) fn set_scatter_range(&mut self, mut values: impl Iterator<Item = Value>) {
        if let (Some(scatter), Some(least), Some(greatest)) =
            (&mut self.scatter, values.next(), values.next())
        {
            scatter.range = [least, greatest];
        }
    }

    /// Extends the range of offsets by a vector.
    pub(super) fn extend_scatter_range(&mut self, offsets: Value, mask: Option<Value>) {
        let Some(scatter) = &mut self.scatter else { return };
        let functions = [Binary::Lesser, Binary::Greater];
        let mut builder = self.vectors.0.borrow_mut();
        for (bound, function) in scatter.range.iter_mut().zip(functions) {
            let extended = builder.binary(function, offsets, *bound);
            *bound = mask.map_or(extended, |mask| builder.select(mask, extended, *bound));
        }
    }

    /// Ends the check. Bails out if an address in the range may be illegal, or if another access
    /// may overlap the range.
    pub(super) fn check_scatter(&mut self) {
        let Some(Scatter { member, dtype, range }) = self.scatter.take() else { return };
        let step = self.plan.members[member];
        let _origin = self.origin(step);
        let [pointer, _] = self.plan.scattered(step).expect("it is a scatter");
        let size = self.int(self.ty(step.operands[1].slot).size as i64);
        let number = crate::types::Number::new(dtype);
        let mut bounds = range;
        for (bound, function) in bounds.iter_mut().zip([Binary::Lesser, Binary::Greater]) {
            let mut half = self.lanes() / 2;
            while half > 0 {
                *bound = self.build(|builder| {
                    let rotated = builder.rotate(half as u8, *bound);
                    builder.binary(function, *bound, rotated)
                });
                half /= 2;
            }
            let bits = self.build(|builder| builder.first(*bound));
            *bound = self.extended(number, bits);
        }
        let [least, greatest] = bounds;
        let (zero, one) = (self.int(0), self.int(1));
        let is_any = self.compare(IntCompare::LeSigned, least, greatest);
        let [least, greatest] = [least, greatest].map(|offset| self.choose(is_any, offset, zero));
        for offset in [least, greatest] {
            let biased = self.add(offset, self.int(MAX_OFFSET));
            let fits = self.compare(IntCompare::LtUnsigned, biased, self.int(2 * MAX_OFFSET));
            self.check(fits);
        }
        let count = self.add(self.sub(greatest, least), one);
        let bytes = self.choose(is_any, self.mul(count, size), zero);
        let first = self.add(self.integer(pointer), self.mul(least, size));
        self.check_inside(step, first, bytes, true);
        let end = self.add(first, bytes);
        let accesses = std::mem::take(&mut self.accesses);
        for (access, other) in &accesses {
            // The load precedes the scatter in the order of the steps and in that of the loops.
            let is_before = access.member < member && access.last_phase < self.plan.phases[&member];
            if !access.is_store && is_before {
                continue;
            }
            let before = self.compare(IntCompare::LeUnsigned, other.end, first);
            let after = self.compare(IntCompare::LeUnsigned, end, other.first);
            let is_none = self.compare(IntCompare::Eq, bytes, zero);
            let apart = self.binary(IntBinary::Or, before, after);
            let allowed = self.binary(IntBinary::Or, apart, is_none);
            self.check(allowed);
        }
        self.accesses = accesses;
    }

    /// Stores elements under the mask. A branch skips vectors without active elements.
    pub(super) fn scatter(&mut self, step: &Step, value: Value, offsets: Value, mask: Option<Value>) {
        let [pointer, slot] = self.plan.scattered(step).expect("it is a scatter");
        let (dtype, size) = (self.ty(slot).dtype(), self.ty(step.operands[1].slot).size);
        let base = self.integer(pointer);
        let mask = mask.unwrap_or_else(|| self.build(|builder| builder.mask(true)));
        let bits = self.build(|builder| builder.mask_bits(mask));
        let is_any = self.compare(IntCompare::Ne, bits, self.int(0));
        let after = self.build(|builder| {
            let (on, after) = (builder.block(), builder.block());
            builder.branch(is_any, (on, &[]), (after, &[]));
            builder.switch_to(on);
            after
        });
        let mut offsets = self.vectors.cast(dtype, Dtype::I64, offsets);
        debug_assert!(matches!(elements(Dtype::I64), Elements::Lanes(_)), "offsets have lanes");
        self.build(|builder| {
            for _ in 0..size.trailing_zeros() {
                offsets = builder.binary(Binary::Add, offsets, offsets);
            }
            builder.scatter(base, offsets, value, mask);
            builder.jump(after, &[]);
            builder.switch_to(after);
        });
    }
}
