//! How the elements of integers and pointers lie: contiguity, divisibility, constancy and range of every value.
//!
//! This is what decides how memory is accessed: a load whose pointers are contiguous and aligned in runs of four, under
//! a mask that is constant in runs of four, is a vector load.
//!
//! Every claim holds for all arguments that fit the parameters' divisibility, on every program of every grid, wrapping
//! arithmetic included; promises of the program (`hint`, `assume`) are believed. [`Assumptions`] can add one more
//! promise, the one that Triton always makes: that signed index arithmetic does not overflow.

mod accesses;
mod elementwise;
mod range;
mod transfer;
mod walk;

use smallvec::SmallVec;
use tilewright_base::entity::SecondaryMap;
use tilewright_ir::{Dtype, Element, Function, Shape, Type, Value};

pub use accesses::{Access, accesses};
pub use range::Range;

/// The divisibility of zero: more than any alignment.
pub const MAX_DIVISIBILITY: u64 = 1 << 62;

/// What is known of a value along one axis. All three are powers of two.
///
/// `contiguity` and `constancy` divide the extent of the axis, and cut the axis into runs: the first begins at index 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    /// Within a run of this length, each element is the one before plus 1: for a pointer, one element further; for an
    /// integer, modulo the width of its type (where a wrap-around may be inside a run, the claim does not survive a
    /// conversion to a wider type or to an address). 1 says nothing.
    pub contiguity: u32,
    /// Within a run of this length, all elements are equal. 1 says nothing.
    pub constancy: u32,
    /// Divides the first element of every run of `contiguity`: every element where that is 1. In bytes for pointers.
    pub divisibility: u64,
}

impl Axis {
    /// Nothing is known.
    pub const UNKNOWN: Axis = Axis { contiguity: 1, constancy: 1, divisibility: 1 };
}

/// What is known of a value. A scalar counts as a tile of one axis of extent 1.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AxisInfo {
    /// Along each axis. Empty for values that no walk has reached.
    pub axes: SmallVec<[Axis; 2]>,
    /// The value of every element, if it is an integer known at compile time.
    pub constant: Option<i128>,
    /// What every element lies in, if it is an integer.
    pub range: Range,
}

/// What the analysis may take for granted besides what always holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Assumptions {
    /// Sums, differences, products and negations of signed integers do not overflow. Programs are written so, and
    /// without it little is known of `(pid * BLOCK + arange) % n`, which might be negative.
    pub no_signed_overflow: bool,
    /// A number of which nothing says whether it is negative is not, where a remainder is taken of it: `pid // group % n`, where
    /// the size of a group comes from arguments. Below zero a remainder is negative, and no offset into a tensor.
    pub nonnegative_dividends: bool,
    /// No remainder is taken by zero, where it is -1: `arange % n` of an empty tensor is no offset into it.
    pub nonzero_divisors: bool,
}

impl Assumptions {
    /// What holds of numbers that addresses are made of.
    pub const ADDRESSES: Self =
        Self { no_signed_overflow: true, nonnegative_dividends: true, nonzero_divisors: true };
}

/// What always holds of each value.
pub fn analyze(function: &Function) -> SecondaryMap<Value, AxisInfo> {
    analyze_assuming(function, Assumptions::default())
}

/// What holds of each value under assumptions.
pub fn analyze_assuming(function: &Function, assumptions: Assumptions) -> SecondaryMap<Value, AxisInfo> {
    walk::analyze(function, assumptions)
}

impl AxisInfo {
    /// Nothing but what the type says.
    pub fn unknown(ty: &Type) -> Self {
        let axes = SmallVec::from_elem(Axis::UNKNOWN, ty.rank().max(1));
        Self { axes, constant: None, range: Range::of(ty) }
    }

    /// One element at every place.
    pub fn uniform(ty: &Type, divisibility: u64, range: Range) -> Self {
        let run = |&extent: &u32| Axis { contiguity: 1, constancy: run_length(extent), divisibility };
        let mut axes: SmallVec<[Axis; 2]> = ty.shape.iter().map(run).collect();
        if axes.is_empty() {
            axes.push(Axis { divisibility, ..Axis::UNKNOWN });
        }
        let is_int = ty.dtype().is_some_and(Dtype::is_int);
        let constant = (is_int && range.low == range.high).then_some(range.low);
        Self { axes, constant, range }
    }

    /// This integer at every place.
    pub fn of_constant(ty: &Type, constant: i128) -> Self {
        Self::uniform(ty, power_of_two_in(constant), Range { low: constant, high: constant })
    }

    /// The length of the runs of consecutive elements along an axis.
    pub fn contiguity(&self, axis: usize) -> u32 {
        self.axis(axis).contiguity
    }

    /// The length of the runs of equal elements along an axis.
    pub fn constancy(&self, axis: usize) -> u32 {
        self.axis(axis).constancy
    }

    /// What divides the first element of each run of consecutive elements along an axis.
    pub fn divisibility(&self, axis: usize) -> u64 {
        self.axis(axis).divisibility
    }

    /// Along one axis.
    pub fn axis(&self, axis: usize) -> Axis {
        self.axes.get(axis).copied().unwrap_or(Axis::UNKNOWN)
    }

    /// What divides the elements whose index along the axis is a multiple of `stride`. `unit` is how much an element
    /// of a run is more than the one before: 1, or the size of a pointee.
    pub fn divisibility_at(&self, axis: usize, stride: u32, unit: u64) -> u64 {
        let Axis { contiguity, divisibility, .. } = self.axis(axis);
        if stride >= contiguity { divisibility } else { divisibility.min(u64::from(stride) * unit) }
    }

    /// What divides every element.
    pub fn divisibility_everywhere(&self, unit: u64) -> u64 {
        (0..self.axes.len()).map(|axis| self.divisibility_at(axis, 1, unit)).max().unwrap_or(1)
    }

    /// Notes that this divides every element.
    fn divide_everywhere(&mut self, divisibility: u64) {
        for axis in &mut self.axes {
            axis.divisibility = axis.divisibility.max(divisibility);
        }
    }

    /// Leaves only the runs that are aligned to their length: they do not wrap around inside, whatever the width.
    fn cut_to_aligned(&mut self) {
        for axis in 0..self.axes.len() {
            let Axis { contiguity, divisibility, .. } = self.axis(axis);
            self.limit_contiguity(axis, divisibility.min(u64::from(contiguity)) as u32, 1);
        }
    }

    /// Claims no longer runs of consecutive elements than this.
    fn limit_contiguity(&mut self, axis: usize, contiguity: u32, unit: u64) {
        if self.contiguity(axis) > contiguity {
            let divisibility = self.divisibility_at(axis, contiguity, unit);
            if let Some(axis) = self.axes.get_mut(axis) {
                *axis = Axis { contiguity, divisibility, ..*axis };
            }
        }
    }

    /// Completes claims from others: what divides every element divides those of all axes; runs are no longer than half
    /// the numbers of the type, so that an aligned run does not wrap around.
    fn finish(mut self, ty: &Type) -> Self {
        if let Some(dtype) = ty.dtype()
            && dtype.bits() < 32
        {
            for axis in 0..self.axes.len() {
                self.limit_contiguity(axis, 1 << (dtype.bits() - 1), 1);
            }
        }
        let everywhere = self.divisibility_everywhere(unit(ty));
        self.divide_everywhere(everywhere);
        self
    }

    /// What holds of a value that is either of two.
    fn join(&self, other: &Self, ty: &Type) -> Self {
        let axis = |axis| {
            let contiguity = self.contiguity(axis).min(other.contiguity(axis));
            let at = |info: &Self| info.divisibility_at(axis, contiguity, unit(ty));
            Axis {
                contiguity,
                constancy: self.constancy(axis).min(other.constancy(axis)),
                divisibility: at(self).min(at(other)),
            }
        };
        Self {
            axes: (0..self.axes.len()).map(axis).collect(),
            constant: self.constant.filter(|_| self.constant == other.constant),
            range: self.range.union(other.range),
        }
    }
}

/// How much an element of a run is more than the one before.
fn unit(ty: &Type) -> u64 {
    match ty.element {
        Element::Pointer(pointee) => pointee.bytes() as u64,
        Element::Value(_) => 1,
    }
}

/// The largest power of two that divides a number.
fn power_of_two_in(number: i128) -> u64 {
    if number == 0 { MAX_DIVISIBILITY } else { MAX_DIVISIBILITY.min(1 << number.trailing_zeros().min(62)) }
}

/// The longest run that cuts an axis of this extent without a rest.
fn run_length(extent: u32) -> u32 {
    if extent == 0 { 1 } else { 1 << extent.trailing_zeros() }
}

/// The longest run along an axis of a shape; 1 for a scalar.
fn run_length_of(shape: &Shape, axis: usize) -> u32 {
    shape.get(axis).map_or(1, |&extent| run_length(extent))
}
