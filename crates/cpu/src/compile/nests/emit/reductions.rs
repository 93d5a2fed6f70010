//! Emits the reductions of the elements of a row: see [`emit`](super::emit).

use tilewright_ir::Dtype;
use tilewright_native::Builder;
use tilewright_native::ir::{Binary, Compare, IntBinary, Lane, MaskBinary, Type, Value};

use super::super::vectors::{Elements, elements};
use super::loops::{Loop, Reads};
use super::{Emitter, Group, Repr};
use crate::program::{Action, Combine, Strategy};
use crate::types::Number;

pub(super) struct Reduction {
    pub member: usize,
    pub combine: Combine,
    /// The type of the accumulators: binary32 for narrow floats.
    pub dtype: Dtype,
    /// True if a comparison finds the minimum or maximum: see [`Emitter::reduce_by_comparison`].
    pub by_comparison: bool,
    pub accumulators: Vec<Value>,
}

impl Reduction {
    /// Returns whether comparisons can find the result. They cannot find a zero or NaN.
    pub fn has_comparison(&self) -> bool {
        matches!(self.combine, Combine::Min | Combine::Max) && self.dtype.is_float()
    }
}

pub(super) fn reduced_place(reductions: &[Reduction], index: usize) -> usize {
    reductions[..index].iter().map(|reduction| reduction.accumulators.len()).sum()
}

impl Emitter<'_> {
    pub(super) fn reductions(&self, group: &Group) -> Vec<Reduction> {
        let reduction = |&member: &usize| {
            let step = self.plan.members[member];
            let Action::Reduce { strategy: Strategy::Kernel(combine), .. } = step.action else { return None };
            let dtype = self.ty(step.operands[0].slot).dtype();
            let is_narrow = dtype.is_float() && dtype.bytes() <= 2;
            let dtype = if is_narrow { Dtype::F32 } else { dtype };
            Some(Reduction { member, combine, dtype, by_comparison: false, accumulators: Vec::new() })
        };
        group.sinks.iter().filter_map(reduction).collect()
    }

    /// Reduces by comparisons, which take one instruction each. They ignore NaN and the sign of
    /// zeros. If the result is a zero or the identity, another loop repeats the reduction exactly.
    pub(super) fn reduce_by_comparison(
        &mut self,
        it: &Loop<'_>,
        reads: &Reads,
        reductions: &mut [Reduction],
    ) -> Vec<Value> {
        for reduction in &mut *reductions {
            reduction.by_comparison = true;
        }
        let compared = self.loops(it, reads, reductions);
        let mut is_exact = self.int(1);
        for (reduction, &value) in reductions.iter_mut().zip(&compared) {
            let identity = self.identity_of(reduction);
            let differs = self.build(|builder| {
                let Elements::Lanes(lane) = elements(reduction.dtype) else {
                    unreachable!("floats have lanes")
                };
                let zero = builder.constant(lane, 0);
                let [zero, identity] =
                    [zero, identity].map(|other| builder.compare(Compare::Ne, value, other));
                let both = builder.mask_binary(MaskBinary::And, zero, identity);
                builder.mask_bits(both)
            });
            is_exact = self.binary(IntBinary::And, is_exact, differs);
            reduction.by_comparison = false;
        }
        let exact = self.build(Builder::block);
        let (done, results) = self.build(|builder| {
            let done = builder.block();
            let types = reductions.iter().map(|reduction| match elements(reduction.dtype) {
                Elements::Lanes(lane) => Type::Vector(lane),
                Elements::Mask => Type::Mask,
            });
            let results: Vec<Value> = types.map(|ty| builder.parameter(done, ty)).collect();
            builder.branch(is_exact, (done, &compared), (exact, &[]));
            builder.switch_to(exact);
            (done, results)
        });
        let values = self.masked_loop(it, reductions);
        self.build(|builder| {
            builder.jump(done, &values);
            builder.switch_to(done);
        });
        results
    }

    pub(super) fn identity_of(&self, reduction: &Reduction) -> Value {
        let combine = match reduction.combine {
            // A comparison ignores NaN, so an infinity is its identity.
            Combine::Min if reduction.by_comparison => Combine::MinNan,
            Combine::Max if reduction.by_comparison => Combine::MaxNan,
            combine => combine,
        };
        self.identity(combine, reduction.dtype)
    }

    pub(super) fn identity(&self, combine: Combine, dtype: Dtype) -> Value {
        let lane = match elements(dtype) {
            Elements::Mask => {
                let is_true =
                    matches!(combine, Combine::Product | Combine::And | Combine::Min | Combine::MinNan);
                return self.build(|builder| builder.mask(is_true));
            }
            Elements::Lanes(lane) => lane,
        };
        let number = Number::new(dtype);
        let (least, most) = if dtype.is_signed() {
            (1_u64 << (number.bits() - 1), (1_u64 << (number.bits() - 1)) - 1)
        } else {
            (0, number.truncate(u64::MAX))
        };
        let float = |value: f64| {
            if lane == Lane::F32 { u64::from((value as f32).to_bits()) } else { value.to_bits() }
        };
        let bits = match combine {
            // The sum of -0 and any number is that number.
            Combine::Sum if lane.is_float() => float(-0.0),
            Combine::Product if lane.is_float() => float(1.0),
            // These functions ignore NaN.
            Combine::Min | Combine::Max if lane.is_float() => float(f64::NAN),
            Combine::MinNan if lane.is_float() => float(f64::INFINITY),
            Combine::MaxNan if lane.is_float() => float(f64::NEG_INFINITY),
            Combine::Sum | Combine::Or | Combine::Xor => 0,
            Combine::Product => 1,
            Combine::And => number.truncate(u64::MAX),
            Combine::Min | Combine::MinNan => most,
            Combine::Max | Combine::MaxNan => least,
        };
        self.build(|builder| builder.constant(lane, bits))
    }

    pub(super) fn combine(&self, reduction: &Reduction, accumulator: Value, value: Value) -> Value {
        let function = if reduction.combine == Combine::Min { Binary::Lesser } else { Binary::Greater };
        if reduction.by_comparison {
            return self.build(|builder| builder.binary(function, value, accumulator));
        }
        self.vectors.combine(reduction.combine, reduction.dtype, accumulator, value)
    }

    /// Combines the accumulators of a reduction to a vector whose first lane is the result.
    pub(super) fn finish(&mut self, it: &Loop<'_>, reduction: &Reduction) -> Value {
        let _origin = self.origin(self.plan.members[reduction.member]);
        let (combine, dtype) = (reduction.combine, reduction.dtype);
        let mut accumulators = reduction.accumulators.clone();
        while accumulators.len() > 1 {
            let upper = accumulators.split_off(accumulators.len() / 2);
            for (lower, upper) in accumulators.iter_mut().zip(upper) {
                *lower = self.combine(reduction, *lower, upper);
            }
        }
        let mut value = accumulators[0];
        let lanes = self.lanes();
        let mut half = it.chunk.min(lanes) / 2;
        if elements(dtype) == Elements::Mask {
            value = self.build(|builder| {
                let (one, zero) = (builder.constant(Lane::I32, 1), builder.constant(Lane::I32, 0));
                builder.select(value, one, zero)
            });
        }
        while half > 0 {
            let rotated = self.build(|builder| builder.rotate(half as u8, value));
            value = if elements(dtype) == Elements::Mask {
                // The lanes have booleans as 0 or 1, which bitwise functions combine.
                let combine = match combine {
                    Combine::Sum | Combine::Xor => Combine::Xor,
                    Combine::Product | Combine::And | Combine::Min | Combine::MinNan => Combine::And,
                    Combine::Max | Combine::MaxNan | Combine::Or => Combine::Or,
                };
                self.vectors.combine(combine, Dtype::I32, value, rotated)
            } else {
                self.combine(reduction, value, rotated)
            };
            half /= 2;
        }
        value
    }

    /// Sets the result of a reduction from the first lane of a vector.
    pub(super) fn set_result(&mut self, it: &Loop<'_>, reduction: &Reduction, value: Value) {
        let step = self.plan.members[reduction.member];
        let _origin = self.origin(step);
        let result = step.results[0];
        let dtype = reduction.dtype;
        let to = self.ty(result);
        let repr = if to.dtype().is_float() {
            let value = if to.dtype() == dtype { value } else { self.vectors.narrow(to.dtype(), value) };
            // The lanes after the last element do not have the result.
            let value = if it.chunk < self.lanes() {
                let bits = self.vectors.first(to.dtype(), value);
                self.vectors.splat(to.dtype(), bits)
            } else {
                value
            };
            Repr::Float(value)
        } else {
            let bits = self.build(|builder| builder.first(value));
            Repr::Integer(self.extended(to.number, bits))
        };
        self.values.insert(result, repr);
    }
}
