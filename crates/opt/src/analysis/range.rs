//! Defines ranges of integers.

use tilewright_ir::{Dtype, Type};

/// A closed interval of integers. The range of a value that is not an integer is unbounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The minimum.
    pub low: i128,
    /// The maximum.
    pub high: i128,
}

impl Default for Range {
    fn default() -> Self {
        Range { low: i128::MIN, high: i128::MAX }
    }
}

impl Range {
    /// Returns the range of a type.
    pub fn of(ty: &Type) -> Self {
        ty.dtype().map_or_else(Self::default, Self::of_dtype)
    }

    /// Returns the range of an element type.
    pub fn of_dtype(dtype: Dtype) -> Self {
        dtype.int_range().map_or_else(Self::default, |(low, high)| Range { low, high })
    }

    /// Returns whether the range has no negative number.
    pub fn is_nonnegative(self) -> bool {
        self.low >= 0
    }

    /// Returns whether the range is contained in another.
    pub fn is_within(self, other: Range) -> bool {
        other.low <= self.low && self.high <= other.high
    }

    /// Returns the smallest range that contains both ranges.
    #[must_use]
    pub fn union(self, other: Range) -> Range {
        Range { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// Returns the intersection, or `other` if the ranges are disjoint.
    #[must_use]
    pub fn intersection(self, other: Range) -> Range {
        let both = Range { low: self.low.max(other.low), high: self.high.min(other.high) };
        if both.low <= both.high { both } else { other }
    }

    /// Computes the range of a function that is monotone in both arguments, from the bounds of both
    /// ranges.
    pub(super) fn corners(self, other: Range, function: impl Fn(i128, i128) -> i128) -> Range {
        let corners = [
            function(self.low, other.low),
            function(self.low, other.high),
            function(self.high, other.low),
            function(self.high, other.high),
        ];
        let (mut low, mut high) = (corners[0], corners[0]);
        for corner in corners {
            (low, high) = (low.min(corner), high.max(corner));
        }
        Range { low, high }
    }

    /// Returns the range after wrapping to a type: that of the type if a number may wrap. With
    /// `saturate`, no number wraps.
    pub(super) fn wrapped(self, dtype: Dtype, saturate: bool) -> Range {
        let all = Self::of_dtype(dtype);
        if self.is_within(all) {
            self
        } else if saturate {
            self.intersection(all)
        } else {
            all
        }
    }
}
