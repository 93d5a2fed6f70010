//! Ranges of values that the code implies: of fp32 numbers, and of 32-bit integers relative to a
//! register. Comparisons whose result they determine need no instruction.

use std::cmp::Ordering;

use super::builder::{Builder, Scalar, Width};
use super::float::Binary;
use crate::isa::{RegisterId, ScalarType};

/// The range of an fp32 number that is not NaN.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct FloatRange {
    /// The smallest possible value.
    pub low: f32,
    /// The largest possible value.
    pub high: f32,
    /// True if the number is not subnormal.
    pub is_normal: bool,
}

/// A register plus a number from `low` to `high`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interval {
    base: RegisterId,
    low: u64,
    high: u64,
}

impl FloatRange {
    fn constant(value: f32) -> Option<Self> {
        (!value.is_nan()).then_some(Self { low: value, high: value, is_normal: !value.is_subnormal() })
    }

    /// Returns the range of `-x`.
    pub fn negated(self) -> Self {
        Self { low: -self.high, high: -self.low, is_normal: self.is_normal }
    }

    /// Returns the range of the natural logarithm within 1 ulp. Returns `None` if x may be
    /// negative.
    pub fn log(self) -> Option<Self> {
        if self.low < 0.0 {
            return None;
        }
        // The sign is exact: it is that of the exponent, or of the mantissa less 1.
        let low = f64::from(self.low).ln() as f32;
        let low = if self.low >= 1.0 { 0.0 } else { low.next_down().next_down() };
        let high = f64::from(self.high).ln() as f32;
        let high = if self.high <= 1.0 { 0.0 } else { high.next_up().next_up() };
        // The logarithm of a number next to 1 is about 2^-24.
        Some(Self { low, high, is_normal: true })
    }
}

impl Builder {
    /// Returns the range of an fp32 number. Returns `None` if it may be NaN.
    pub fn float_range(&self, a: Scalar) -> Option<FloatRange> {
        match a.base {
            None => FloatRange::constant(f32::from_bits(a.offset as u32)),
            Some(base) => self.float_ranges.get(&base).copied(),
        }
    }

    /// Records the range of a register.
    pub fn note_float_range(&mut self, a: Scalar, range: Option<FloatRange>) {
        if let (Some(register), Some(range)) = (a.base, range) {
            self.float_ranges.insert(register, range);
        }
    }

    /// Returns the range of the smaller or larger of two numbers, which ignores NaN.
    pub fn range_of_extremum(&self, largest: bool, a: Scalar, b: Scalar) -> Option<FloatRange> {
        let unknown = FloatRange { low: f32::NEG_INFINITY, high: f32::INFINITY, is_normal: false };
        let (a, b) = (self.float_range(a), self.float_range(b));
        a.or(b)?;
        let (a, b) = (a.unwrap_or(unknown), b.unwrap_or(unknown));
        // If one operand is NaN, the result is the other one, which its own range limits.
        let is_normal = a.is_normal && b.is_normal;
        Some(if largest {
            FloatRange { low: a.low.max(b.low), high: a.high.max(b.high), is_normal }
        } else {
            FloatRange { low: a.low.min(b.low), high: a.high.min(b.high), is_normal }
        })
    }

    /// Returns the range of a product with a constant, rounded to nearest.
    pub fn range_of_binary(&self, function: Binary, a: Scalar, b: Scalar) -> Option<FloatRange> {
        let (factor, a) = if a.base.is_none() { (a, b) } else { (b, a) };
        let factor = f32::from_bits(factor.as_constant()? as u32);
        if function != Binary::Mul || !factor.is_normal() {
            return None;
        }
        let range = self.float_range(a)?;
        let (low, high) = (range.low * factor, range.high * factor);
        Some(FloatRange { low: low.min(high), high: low.max(high), is_normal: false })
    }

    /// Returns the range of an integer that was converted to fp32.
    pub fn range_of_conversion(&self, to: ScalarType, from: ScalarType, a: Scalar) -> Option<FloatRange> {
        let (low, high) = match (to, from) {
            (ScalarType::F32, ScalarType::S32) => (-(2.0_f32.powi(31)), 2.0_f32.powi(31)),
            (ScalarType::F32, ScalarType::U32) => (0.0, 2.0_f32.powi(32)),
            // tidy: wildcard because the other conversions have no known range
            _ => return None,
        };
        let bound = self.bound(Width::B32, a).map(|bound| bound as f32);
        Some(FloatRange {
            low: if bound.is_some() { 0.0 } else { low },
            high: bound.unwrap_or(high),
            is_normal: true,
        })
    }

    /// Returns the interval of an integer of 32 bits.
    fn interval(&self, a: Scalar) -> Option<Interval> {
        let known = self.intervals.get(&a.base?);
        let Interval { base, low, high } =
            known.copied().unwrap_or(Interval { base: a.base?, low: 0, high: 0 });
        Some(Interval { base, low: low + a.offset, high: high + a.offset })
    }

    /// Records that a register has one of two values.
    pub fn note_choice(&mut self, result: Scalar, a: Scalar, b: Scalar) {
        if let (Some(register), Some(a), Some(b)) = (result.base, self.interval(a), self.interval(b))
            && a.base == b.base
        {
            let interval = Interval { base: a.base, low: a.low.min(b.low), high: a.high.max(b.high) };
            self.intervals.insert(register, interval);
        }
    }

    /// Returns the order of two integers of 32 bits, signed or not, if it is known.
    pub fn known_order(&self, a: Scalar, b: Scalar) -> Option<Ordering> {
        let (a, b) = (self.interval(a)?, self.interval(b)?);
        // Neither sum wraps, and neither is negative.
        let bound = self.bound(Width::B32, a.base.into())?;
        if a.base != b.base || bound + a.high.max(b.high) > i32::MAX as u64 {
            return None;
        }
        if a.high < b.low {
            Some(Ordering::Less)
        } else if a.low > b.high {
            Some(Ordering::Greater)
        } else {
            None
        }
    }
}
