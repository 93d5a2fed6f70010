//! The range of an integer: the smallest and the largest value it may have.

use tilewright_ir::{Dtype, Type};

/// A closed interval. Of what is not an integer it says nothing: it holds all numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The smallest value.
    pub low: i128,
    /// The largest value.
    pub high: i128,
}

impl Default for Range {
    fn default() -> Self {
        Range { low: i128::MIN, high: i128::MAX }
    }
}

impl Range {
    /// All numbers of a type.
    pub fn of(ty: &Type) -> Self {
        ty.dtype().map_or_else(Self::default, Self::of_dtype)
    }

    /// All numbers of an element type.
    pub fn of_dtype(dtype: Dtype) -> Self {
        dtype.int_range().map_or_else(Self::default, |(low, high)| Range { low, high })
    }

    /// Whether no number is below zero.
    pub fn is_nonnegative(self) -> bool {
        self.low >= 0
    }

    /// Whether all of it is in the other.
    pub fn is_within(self, other: Range) -> bool {
        other.low <= self.low && self.high <= other.high
    }

    /// The smallest range that holds both.
    #[must_use]
    pub fn union(self, other: Range) -> Range {
        Range { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// What is in both; the other where nothing is.
    #[must_use]
    pub fn intersection(self, other: Range) -> Range {
        let both = Range { low: self.low.max(other.low), high: self.high.min(other.high) };
        if both.low <= both.high { both } else { other }
    }

    /// The range of a function of two numbers that is monotone in each of them, from its values at the corners.
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

    /// The range after wrapping to a type: the whole type if anything wraps. With `saturate`, what would wrap does not
    /// happen.
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
