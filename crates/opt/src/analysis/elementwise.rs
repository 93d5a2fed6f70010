//! Computes the facts ([`AxisInfo`]) about the results of elementwise functions.
//!
//! The rules for quotients, remainders and comparisons rely on one fact about runs. A run of q
//! consecutive numbers that begins at a multiple of q crosses no other multiple of q. Dividing by
//! q, or comparing with a multiple of q, thus has one result along the run:
//!
//! ```text
//! x      16 17 … 31 | 32 33 … 47
//! x / 16  1  1 …  1 |  2  2 …  2
//! x < 32  1  1 …  1 |  0  0 …  0
//! ```
//!
//! Negative dividends are different, because division truncates towards zero: -16 / 16 is -1, but
//! -15 / 16 is 0. The rules for quotients and remainders require non-negative dividends.

use tilewright_ir::{
    ComparisonFn, Dtype, ElementwiseFamily as Family, ElementwiseFn, Literal, Op, Type, Value,
};

use super::walk::Walk;
use super::{Axis, AxisInfo, MAX_DIVISIBILITY, Range, power_of_two_in, unit};
use crate::fold;

/// A dividend with a lower bound of at most this number has an unknown sign. Sums and quotients of
/// unbounded numbers have such bounds. A dividend with a higher negative bound, such as `x - 1`,
/// may well be negative.
const UNKNOWN_LOW: i128 = -(1 << 30);

impl Walk<'_> {
    pub(super) fn elementwise(&self, function: ElementwiseFn, operands: &[Value], ty: &Type) -> AxisInfo {
        if let Some(constant) = self.fold(function, operands) {
            return AxisInfo::of_constant(ty, constant);
        }
        match *operands {
            [condition, x, y] if function == ElementwiseFn::Select => self.select(condition, x, y, ty),
            [x, y] if let Family::Comparison(comparison) = function.family() => {
                self.compare(comparison, x, y, ty)
            }
            [x, y] if is_int(ty) => self.int_binary(function, x, y, ty),
            [x] if is_int(ty) => self.int_unary(function, x, ty),
            _ => self.constancy_of(operands, ty),
        }
    }

    fn fold(&self, function: ElementwiseFn, operands: &[Value]) -> Option<i128> {
        let mut literals = [Literal::bool(false); 3];
        for (index, &operand) in operands.iter().enumerate() {
            let dtype = self.function.ty(operand).dtype().filter(|dtype| dtype.is_int())?;
            *literals.get_mut(index)? = Literal::int(dtype, self.infos[operand].constant?);
        }
        fold::elementwise(function, literals.get(..operands.len())?)?.as_int()
    }

    fn int_unary(&self, function: ElementwiseFn, x: Value, ty: &Type) -> AxisInfo {
        use ElementwiseFn as F;
        let mut info = self.constancy_of(&[x], ty);
        let (known, Some(dtype)) = (&self.infos[x], ty.dtype()) else { return info };
        let Range { low, high } = known.range;
        let saturate = self.assumptions.no_signed_overflow && dtype.is_signed();
        let range = match function {
            F::Neg => Range { low: -high, high: -low }.wrapped(dtype, saturate),
            F::Abs => {
                let least = if low <= 0 && 0 <= high { 0 } else { low.abs().min(high.abs()) };
                Range { low: least, high: low.abs().max(high.abs()) }.wrapped(dtype, false)
            }
            F::Not if dtype.is_signed() => Range { low: !high, high: !low },
            // tidy: wildcard because only constancy is known of the others
            _ => return info,
        };
        info.range = range;
        if function != F::Not {
            info.divide_everywhere(known.divisibility_everywhere(1));
        }
        info
    }

    fn int_binary(&self, function: ElementwiseFn, x: Value, y: Value, ty: &Type) -> AxisInfo {
        use ElementwiseFn as F;
        let mut info = self.constancy_of(&[x, y], ty);
        let (a, b) = (&self.infos[x], &self.infos[y]);
        if let Some(dtype) = ty.dtype() {
            info.range = self.range(function, a, b, dtype);
        }
        let (everywhere_a, everywhere_b) = (a.divisibility_everywhere(1), b.divisibility_everywhere(1));
        match function {
            F::Add => Self::sum(&mut info, a, b, true),
            F::Sub => Self::sum(&mut info, a, b, false),
            F::Mul => {
                let product = everywhere_a.saturating_mul(everywhere_b).min(MAX_DIVISIBILITY);
                info.divide_everywhere(product);
            }
            F::Shl => {
                let shift = b.range.low.clamp(0, 62) as u32;
                let shift = if b.range.low < 0 { 0 } else { shift };
                let shifted = everywhere_a.saturating_mul(1 << shift).min(MAX_DIVISIBILITY);
                info.divide_everywhere(shifted);
            }
            F::Shr => Self::shift_right(&mut info, a, b),
            F::IntDiv => Self::quotient(&mut info, a, b),
            F::IntRem => self.remainder(&mut info, a, b),
            F::And => Self::and(&mut info, a, b, ty),
            F::Or | F::Xor | F::Min | F::Max => {
                info.divide_everywhere(everywhere_a.min(everywhere_b));
            }
            // tidy: wildcard because only constancy is known of the others
            _ => {}
        }
        if info.range.low == info.range.high {
            return AxisInfo::of_constant(ty, info.range.low);
        }
        info
    }

    /// Sets the runs and the divisibility of a sum or difference. A run of one operand is a run of
    /// the result if the other operand is constant along it. Runs of the right operand of a
    /// difference descend, so they do not count.
    fn sum(info: &mut AxisInfo, a: &AxisInfo, b: &AxisInfo, is_sum: bool) {
        for (place, known) in info.axes.iter_mut().enumerate() {
            let (x, y) = (a.axis(place), b.axis(place));
            let right = if is_sum { y.contiguity.min(x.constancy) } else { 1 };
            let contiguity = x.contiguity.min(y.constancy).max(right);
            let divisibility =
                a.divisibility_at(place, contiguity, 1).min(b.divisibility_at(place, contiguity, 1));
            *known = Axis { contiguity, divisibility, ..*known };
        }
    }

    /// Returns the length of the longest runs in `a` that begin at multiples of this length. Along
    /// the runs, `b` is constant and also a multiple of it.
    fn aligned_run(place: usize, a: &AxisInfo, b: &AxisInfo) -> u32 {
        let (x, y) = (a.axis(place), b.axis(place));
        let longest = x.contiguity.min(y.constancy);
        let run = u64::from(longest).min(x.divisibility).min(b.divisibility_at(place, longest, 1)) as u32;
        if b.divisibility_at(place, run, 1) >= u64::from(run) { run } else { 1 }
    }

    fn quotient(info: &mut AxisInfo, a: &AxisInfo, b: &AxisInfo) {
        if a.range.is_nonnegative() {
            for (place, known) in info.axes.iter_mut().enumerate() {
                known.constancy = known.constancy.max(Self::aligned_run(place, a, b));
            }
        }
        if let Some(divisor) = b.constant
            && divisor.unsigned_abs().is_power_of_two()
        {
            info.divide_everywhere((a.divisibility_everywhere(1) / power_of_two_in(divisor)).max(1));
        }
    }

    fn remainder(&self, info: &mut AxisInfo, a: &AxisInfo, b: &AxisInfo) {
        if self.may_be_zero(b) {
            return;
        }
        let is_unknown = a.range.low <= UNKNOWN_LOW;
        let is_nonnegative = a.range.is_nonnegative() || is_unknown && self.assumptions.nonnegative_dividends;
        for (place, known) in info.axes.iter_mut().enumerate() {
            let contiguity = if is_nonnegative { Self::aligned_run(place, a, b) } else { 1 };
            let divisibility =
                a.divisibility_at(place, contiguity, 1).min(b.divisibility_at(place, contiguity, 1));
            *known = Axis { contiguity, divisibility, ..*known };
        }
    }

    fn may_be_zero(&self, divisor: &AxisInfo) -> bool {
        let Range { low, high } = divisor.range;
        low <= 0 && 0 <= high && !self.assumptions.nonzero_divisors
    }

    fn and(info: &mut AxisInfo, a: &AxisInfo, b: &AxisInfo, ty: &Type) {
        info.divide_everywhere(a.divisibility_everywhere(1).max(b.divisibility_everywhere(1)));
        let (Some(mask), Some(dtype)) = (b.constant, ty.dtype()) else { return };
        let bits = Literal::int(dtype, mask).bits;
        let inverse = Literal::int(dtype, !mask).bits;
        for (place, known) in info.axes.iter_mut().enumerate() {
            let x = a.axis(place);
            let run = |multiple: u64| u64::from(x.contiguity).min(x.divisibility).min(multiple) as u32;
            if bits < u64::MAX / 2 && (bits + 1).is_power_of_two() {
                // x modulo a power of two.
                let contiguity = run(bits + 1);
                let divisibility = a.divisibility_at(place, contiguity, 1);
                *known = Axis { contiguity, divisibility: divisibility.max(known.divisibility), ..*known };
            } else if inverse < u64::MAX / 2 && (inverse + 1).is_power_of_two() {
                // x rounded down to a multiple of a power of two.
                known.constancy = known.constancy.max(run(inverse + 1));
            }
        }
    }

    fn shift_right(info: &mut AxisInfo, a: &AxisInfo, b: &AxisInfo) {
        let Some(shift) = b.constant.filter(|shift| (0..62).contains(shift)) else { return };
        let divisor = 1_u64 << shift;
        for (place, known) in info.axes.iter_mut().enumerate() {
            let x = a.axis(place);
            let run = u64::from(x.contiguity).min(x.divisibility).min(divisor) as u32;
            known.constancy = known.constancy.max(run);
        }
        info.divide_everywhere((a.divisibility_everywhere(1) / divisor).max(1));
    }

    fn range(&self, function: ElementwiseFn, a: &AxisInfo, b: &AxisInfo, dtype: Dtype) -> Range {
        use ElementwiseFn as F;
        let (x, y) = (a.range, b.range);
        let saturate = self.assumptions.no_signed_overflow && dtype.is_signed();
        let all = Range::of_dtype(dtype);
        match function {
            F::Add => Range { low: x.low + y.low, high: x.high + y.high }.wrapped(dtype, saturate),
            F::Sub => Range { low: x.low - y.high, high: x.high - y.low }.wrapped(dtype, saturate),
            // Products of 64-bit numbers fit into `i128`. A product of two unsigned numbers may
            // saturate.
            F::Mul => x.corners(y, i128::saturating_mul).wrapped(dtype, saturate),
            F::Shl if y.low >= 0 && y.high < i128::from(dtype.bits().min(62)) => {
                x.corners(y, |x, y| x.saturating_mul(1 << y)).wrapped(dtype, false)
            }
            F::Shr if y.low >= 0 => x.corners(y, |x, y| x >> y.min(64)),
            F::IntDiv if y.low > 0 => x.corners(y, |x, y| x / y),
            // If the divisor may be zero, only the dividend bounds the remainder.
            F::IntRem if y.low <= 0 && y.high >= 0 => {
                let by_others = Range { low: x.low.min(0), high: x.high.max(0) };
                if self.may_be_zero(b) { by_others.union(ones(dtype)) } else { by_others }
            }
            F::IntRem => {
                let most = (y.low.abs().max(y.high.abs()) - 1).max(0);
                Range { low: if x.low < 0 { x.low.max(-most) } else { 0 }, high: x.high.clamp(0, most) }
            }
            F::And if x.low >= 0 || y.low >= 0 => {
                let most = |range: Range| if range.low >= 0 { range.high } else { all.high };
                Range { low: 0, high: most(x).min(most(y)) }
            }
            F::Or | F::Xor if x.low >= 0 && y.low >= 0 => {
                let bits = 128 - (x.high.max(y.high)).leading_zeros();
                Range { low: 0, high: (1 << bits) - 1 }.wrapped(dtype, false)
            }
            F::Min => Range { low: x.low.min(y.low), high: x.high.min(y.high) },
            F::Max => Range { low: x.low.max(y.low), high: x.high.max(y.high) },
            // tidy: wildcard because the range of the others is unknown
            _ => all,
        }
    }

    fn compare(&self, function: ComparisonFn, x: Value, y: Value, ty: &Type) -> AxisInfo {
        use ComparisonFn as F;
        let mut info = self.constancy_of(&[x, y], ty);
        if !is_int(self.function.ty(x)) {
            return info;
        }
        let (a, b) = (&self.infos[x], &self.infos[y]);
        if let Some(known) = decide(function, a.range, b.range) {
            return AxisInfo::of_constant(ty, i128::from(known));
        }
        for (place, known) in info.axes.iter_mut().enumerate() {
            let run = match function {
                F::Lt | F::Ge => Self::aligned_run(place, a, b).max(self.remainder_run(place, x, b)),
                F::Gt | F::Le => Self::aligned_run(place, b, a).max(self.remainder_run(place, y, a)),
                // At most the first number of a run equals `b`, so equality is not constant.
                F::Eq | F::Ne => 1,
            };
            known.constancy = known.constancy.max(run);
        }
        info
    }

    /// Returns the length of the longest runs along which `remainder < bound` has one result. If
    /// the dividend is non-negative, a run without a multiple of the divisor has consecutive
    /// remainders. Otherwise, remainders are non-positive, and less than every positive bound.
    fn remainder_run(&self, place: usize, remainder: Value, bound: &AxisInfo) -> u32 {
        if bound.range.low <= 0 {
            return 1;
        }
        let Some((dividend, divisor)) = self.operands_of_remainder(remainder) else { return 1 };
        let run = Self::aligned_run(place, &self.infos[dividend], &self.infos[divisor]);
        let longest = run.min(bound.axis(place).constancy);
        let run = u64::from(longest).min(bound.divisibility_at(place, longest, 1)) as u32;
        if bound.divisibility_at(place, run, 1) >= u64::from(run) { run } else { 1 }
    }

    /// Returns the dividend and the divisor if the value is a remainder, possibly after casts that
    /// keep it.
    fn operands_of_remainder(&self, mut value: Value) -> Option<(Value, Value)> {
        loop {
            let data = &self.function.insts[self.function.defining_inst(value)?];
            match (&data.op, &data.operands[..]) {
                (Op::Elementwise { function: ElementwiseFn::IntRem }, &[x, y]) => return Some((x, y)),
                (Op::Cast { .. }, &[inner]) => {
                    let [source, target] = [inner, value].map(|value| self.function.ty(value).dtype());
                    let fits = self.infos[inner].range.is_within(Range::of_dtype(target?));
                    if !source?.is_int() || !fits {
                        return None;
                    }
                    value = inner;
                }
                // tidy: wildcard because nothing else is a remainder
                _ => return None,
            }
        }
    }

    fn select(&self, condition: Value, x: Value, y: Value, ty: &Type) -> AxisInfo {
        let mut info = self.constancy_of(&[condition, x, y], ty);
        let (which, a, b) = (&self.infos[condition], &self.infos[x], &self.infos[y]);
        if let Some(known) = which.constant {
            return if known != 0 { a.clone() } else { b.clone() };
        }
        info.range = a.range.union(b.range);
        let unit = unit(ty);
        for (place, known) in info.axes.iter_mut().enumerate() {
            let contiguity = a.contiguity(place).min(b.contiguity(place)).min(which.constancy(place));
            let divisibility =
                a.divisibility_at(place, contiguity, unit).min(b.divisibility_at(place, contiguity, unit));
            *known = Axis { contiguity, divisibility, ..*known };
        }
        info
    }
}

/// Returns the range of the number whose bits are all set.
fn ones(dtype: Dtype) -> Range {
    let (_, high) = dtype.int_range().expect("an integer remainder has an integer type");
    let number = if dtype.is_signed() { -1 } else { high };
    Range { low: number, high: number }
}

fn is_int(ty: &Type) -> bool {
    ty.dtype().is_some_and(Dtype::is_int)
}

/// Returns the result of a comparison if the ranges determine it. The caller has folded equal
/// single numbers, so this function does not decide equality.
fn decide(function: ComparisonFn, x: Range, y: Range) -> Option<bool> {
    use ComparisonFn as F;
    let (below, above) = (x.high < y.low, x.low > y.high);
    let (not_above, not_below) = (x.high <= y.low, x.low >= y.high);
    let (holds, fails) = match function {
        F::Lt => (below, not_below),
        F::Le => (not_above, above),
        F::Gt => (above, not_above),
        F::Ge => (not_below, below),
        F::Eq => (false, below || above),
        F::Ne => (below || above, false),
    };
    if holds { Some(true) } else { fails.then_some(false) }
}
