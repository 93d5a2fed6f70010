//! Ranges of values that the code implies: of fp32 numbers, and of 32-bit integers relative to a
//! register. Comparisons whose result they determine need no instruction.

use std::cmp::Ordering;

use crate::isa::RegisterId;

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
    /// The register.
    pub base: RegisterId,
    /// The smallest number.
    pub low: u64,
    /// The largest number.
    pub high: u64,
}

impl FloatRange {
    /// Returns the range of a constant. Returns `None` for NaN.
    pub fn constant(value: f32) -> Option<Self> {
        (!value.is_nan()).then_some(Self { low: value, high: value, is_normal: !value.is_subnormal() })
    }

    /// Returns the range of `-x`.
    pub fn negated(self) -> Self {
        Self { low: -self.high, high: -self.low, is_normal: self.is_normal }
    }

    /// Returns the range of a product with a constant, rounded to nearest. Returns `None` if the
    /// constant is zero, subnormal, infinite or NaN.
    pub fn times(self, factor: f32) -> Option<Self> {
        let (low, high) = (self.low * factor, self.high * factor);
        factor.is_normal().then(|| Self { low: low.min(high), high: low.max(high), is_normal: false })
    }

    /// Returns the range of the smaller or larger of two numbers, which ignores NaN. `None` is an
    /// unknown number.
    pub fn extremum(largest: bool, a: Option<Self>, b: Option<Self>) -> Option<Self> {
        let unknown = Self { low: f32::NEG_INFINITY, high: f32::INFINITY, is_normal: false };
        a.or(b)?;
        // If one operand is NaN, the result is the other one, which its own range limits.
        let (a, b) = (a.unwrap_or(unknown), b.unwrap_or(unknown));
        let is_normal = a.is_normal && b.is_normal;
        Some(if largest {
            Self { low: a.low.max(b.low), high: a.high.max(b.high), is_normal }
        } else {
            Self { low: a.low.min(b.low), high: a.high.min(b.high), is_normal }
        })
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

impl Interval {
    /// Returns the interval of a choice between two numbers. Returns `None` if they are relative to
    /// different registers.
    pub fn join(self, other: Self) -> Option<Self> {
        let (low, high) = (self.low.min(other.low), self.high.max(other.high));
        (self.base == other.base).then_some(Self { base: self.base, low, high })
    }

    /// Returns the order of two numbers, if it is known. `bound` is the largest value of the
    /// register, which is not negative.
    pub fn order(self, other: Self, bound: u64) -> Option<Ordering> {
        // No sum is negative or wraps.
        let fits = i32::try_from(bound + self.high.max(other.high)).is_ok();
        if self.base != other.base || !fits {
            None
        } else if self.high < other.low {
            Some(Ordering::Less)
        } else if self.low > other.high {
            Some(Ordering::Greater)
        } else {
            None
        }
    }
}
