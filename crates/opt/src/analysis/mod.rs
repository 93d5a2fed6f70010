//! Analyzes the contiguity, divisibility, constancy and range of each integer and pointer.
//! The results decide how memory is accessed. For example, a load is a vector load if its pointers
//! are contiguous and aligned in runs of four. Its mask must be constant in these runs.
//! Every result is true for all arguments that satisfy the divisibility of the parameters, and for
//! every program of every grid. It is true even if arithmetic wraps. Hints and assumptions of the
//! program (`hint`, `assume`) are trusted. [`Assumptions`] adds more. Triton always assumes that
//! signed index arithmetic does not overflow.

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

/// The facts about a value along one axis: three powers of two.
///
/// `contiguity` and `constancy` divide the extent of the axis. Each splits the axis into runs of
/// that length; the first run begins at index 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    /// The length of runs in which each element is the previous one plus 1. For pointers, 1 is one
    /// pointee; integers are modulo 2^width. (If a run may wrap around, the fact does not survive a
    /// conversion to a wider type or to an address.) 1 means unknown.
    pub contiguity: u32,
    /// The length of runs in which all elements are equal. 1 means unknown.
    pub constancy: u32,
    /// A divisor of the first element of every run of `contiguity` elements, so of every element if
    /// `contiguity` is 1. For pointers, a divisor of the address in bytes.
    pub divisibility: u64,
}

impl Axis {
    /// No facts.
    pub const UNKNOWN: Axis = Axis { contiguity: 1, constancy: 1, divisibility: 1 };
}

/// The facts about a value. A scalar counts as a tile of one axis of extent 1.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AxisInfo {
    /// The facts along each axis. Empty for values that no walk has reached.
    pub axes: SmallVec<[Axis; 2]>,
    /// The value of every element, if it is an integer known at compile time.
    pub constant: Option<i128>,
    /// The range of the elements, if they are integers.
    pub range: Range,
}

/// Additional assumptions of the analysis.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Assumptions {
    /// Sums, differences, products and negations of signed integers are taken not to overflow.
    /// Programs rely on this assumption. In `(pid * BLOCK + arange) % n`, the dividend might
    /// otherwise be negative, so little would be known about the remainder.
    pub no_signed_overflow: bool,
    /// The dividend of a remainder is taken to be nonnegative if its sign is unknown. An example is
    /// `pid // group % n` with a group size from arguments. A negative dividend would have a
    /// negative remainder, which is not an offset into a tensor.
    pub nonnegative_dividends: bool,
    /// The divisor of a remainder is taken to be nonzero. A remainder by zero, such as `arange % n`
    /// for an empty tensor, is -1, which is not an offset into a tensor.
    pub nonzero_divisors: bool,
}

impl Assumptions {
    /// The assumptions about numbers from which addresses are computed.
    pub const ADDRESSES: Self =
        Self { no_signed_overflow: true, nonnegative_dividends: true, nonzero_divisors: true };
}

/// Returns the facts about each value that hold without further assumptions.
pub fn analyze(function: &Function) -> SecondaryMap<Value, AxisInfo> {
    analyze_assuming(function, Assumptions::default())
}

/// Returns the facts about each value under assumptions.
pub fn analyze_assuming(function: &Function, assumptions: Assumptions) -> SecondaryMap<Value, AxisInfo> {
    walk::analyze(function, assumptions)
}

impl AxisInfo {
    /// Returns the facts that the type implies.
    pub fn unknown(ty: &Type) -> Self {
        let axes = SmallVec::from_elem(Axis::UNKNOWN, ty.rank().max(1));
        Self { axes, constant: None, range: Range::of(ty) }
    }

    /// Returns the facts about a value whose elements are all equal.
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

    /// Returns the facts about a constant.
    pub fn of_constant(ty: &Type, constant: i128) -> Self {
        Self::uniform(ty, power_of_two_in(constant), Range { low: constant, high: constant })
    }

    /// Returns the length of the runs of consecutive elements along an axis.
    pub fn contiguity(&self, axis: usize) -> u32 {
        self.axis(axis).contiguity
    }

    /// Returns the length of the runs of equal elements along an axis.
    pub fn constancy(&self, axis: usize) -> u32 {
        self.axis(axis).constancy
    }

    /// Returns a divisor of the first element of each run of consecutive elements along an axis.
    pub fn divisibility(&self, axis: usize) -> u64 {
        self.axis(axis).divisibility
    }

    /// Returns the facts along an axis.
    pub fn axis(&self, axis: usize) -> Axis {
        self.axes.get(axis).copied().unwrap_or(Axis::UNKNOWN)
    }

    /// Returns a divisor of the elements whose index along the axis is a multiple of `stride`.
    /// `unit` is the difference of consecutive elements: 1, or the size of a pointee.
    pub fn divisibility_at(&self, axis: usize, stride: u32, unit: u64) -> u64 {
        let Axis { contiguity, divisibility, .. } = self.axis(axis);
        if stride >= contiguity { divisibility } else { divisibility.min(u64::from(stride) * unit) }
    }

    /// Returns a divisor of every element.
    pub fn divisibility_everywhere(&self, unit: u64) -> u64 {
        (0..self.axes.len()).map(|axis| self.divisibility_at(axis, 1, unit)).max().unwrap_or(1)
    }

    fn divide_everywhere(&mut self, divisibility: u64) {
        for axis in &mut self.axes {
            axis.divisibility = axis.divisibility.max(divisibility);
        }
    }

    /// Shortens runs until each begins at a multiple of its length, so that it wraps in no integer
    /// type.
    fn cut_to_aligned(&mut self) {
        for axis in 0..self.axes.len() {
            let Axis { contiguity, divisibility, .. } = self.axis(axis);
            self.limit_contiguity(axis, divisibility.min(u64::from(contiguity)) as u32, 1);
        }
    }

    /// Limits the runs of consecutive elements to the length `contiguity`.
    fn limit_contiguity(&mut self, axis: usize, contiguity: u32, unit: u64) {
        if self.contiguity(axis) > contiguity {
            let divisibility = self.divisibility_at(axis, contiguity, unit);
            if let Some(axis) = self.axes.get_mut(axis) {
                *axis = Axis { contiguity, divisibility, ..*axis };
            }
        }
    }

    /// Records the best divisor along each axis. For integers below 32 bits, limits runs to half
    /// the values of the type, so that aligned runs do not wrap.
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

    /// Returns the facts that hold for both values.
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

/// Returns the difference of consecutive elements: 1, or the bytes of a pointee.
fn unit(ty: &Type) -> u64 {
    match ty.element {
        Element::Pointer(pointee) => pointee.bytes() as u64,
        Element::Value(_) => 1,
    }
}

/// Returns the largest power of two that divides a number, at most [`MAX_DIVISIBILITY`].
fn power_of_two_in(number: i128) -> u64 {
    if number == 0 { MAX_DIVISIBILITY } else { MAX_DIVISIBILITY.min(1 << number.trailing_zeros().min(62)) }
}

/// Returns the largest power of two that divides an extent; 1 for the extent 0.
fn run_length(extent: u32) -> u32 {
    if extent == 0 { 1 } else { 1 << extent.trailing_zeros() }
}

/// Returns the largest power of two that divides the extent of an axis; 1 for a scalar.
fn run_length_of(shape: &Shape, axis: usize) -> u32 {
    shape.get(axis).map_or(1, |&extent| run_length(extent))
}
