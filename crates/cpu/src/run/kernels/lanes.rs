//! Defines the operations on single elements from which formulas are built.
//!
//! The formulas of `math`, `math32`, `math64`, `formats` and `narrow` are generic over these
//! traits, and have two users. The loops of the executor apply them to `f32` and `f64`. The
//! compiler of nests applies them to handles of vectors, whose methods append instructions.
//!
//! A formula has no branch on an element: it computes both cases and selects one by a [`Mask`].

use super::math32;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Shl, Shr, Sub};

/// The results of comparisons.
pub(crate) trait Mask: Copy + BitAnd<Output = Self> + BitOr<Output = Self> {}

/// Floats or integers that a mask can select.
pub(crate) trait Lanes: Copy {
    type Mask: Mask;

    /// Returns `x` where the mask is true, otherwise `y`.
    fn select(mask: Self::Mask, x: Self, y: Self) -> Self;
}

/// Returns `x` where the mask is true, otherwise `y`.
#[inline(always)]
pub(crate) fn select<L: Lanes>(mask: L::Mask, x: L, y: L) -> L {
    L::select(mask, x, y)
}

/// Floats. Comparisons are false for NaN.
pub(crate) trait Real:
    Lanes + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    type Number: Copy + From<f32>;
    type Bits: Word<Mask = Self::Mask>;

    /// Returns a constant in the context of `self`.
    fn constant(self, value: Self::Number) -> Self;
    /// Returns `self * factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    fn sqrt(self) -> Self;
    /// Removes the fraction. The result has the sign of the argument, even if the result is 0.
    fn trunc(self) -> Self;
    fn abs(self) -> Self;
    /// Returns the sign bit; all other bits are 0.
    fn sign(self) -> Self::Bits;
    fn to_bits(self) -> Self::Bits;
    fn from_bits(bits: Self::Bits) -> Self;
    fn eq(self, other: Self) -> Self::Mask;
    fn lt(self, other: Self) -> Self::Mask;
    fn is_nan(self) -> Self::Mask;
    /// Returns `if self < other { self } else { other }`.
    fn lesser(self, other: Self) -> Self;
    /// Returns `if self > other { self } else { other }`.
    fn greater(self, other: Self) -> Self;

    /// Returns a constant that binary32 represents.
    #[inline(always)]
    fn small_constant(self, value: f32) -> Self {
        self.constant(value.into())
    }
}

/// Floats of binary32.
pub(crate) trait Real32: Real<Number = f32, Bits: Word32<Real = Self>> {
    type Double: Real64<Single = Self, Mask = Self::Mask>;

    fn to_double(self) -> Self::Double;

    /// Returns `self * 2^exponent`, rounded once. The parameters are the exponent as a float and as
    /// an integer, of magnitude at most 254. `self` is 0, or from 2^-32 to 2^32 in magnitude.
    #[inline(always)]
    fn scale(self, _exponent: Self, bits: Self::Bits) -> Self {
        math32::scale_in_steps(self, bits)
    }
}

/// Floats of binary64.
pub(crate) trait Real64: Real<Number = f64, Bits: Word64<Real = Self>> {
    type Single: Real32<Double = Self, Mask = Self::Mask>;

    /// Converts to binary32, rounded to nearest even.
    fn to_single(self) -> Self::Single;
}

/// Integers, signed or unsigned as each function says. Arithmetic wraps. Shift counts are below the
/// width.
pub(crate) trait Word:
    Lanes
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
{
    type Number: Copy;

    /// Returns a constant in the context of `self`.
    fn constant(self, value: Self::Number) -> Self;
    fn wrapping_add(self, other: Self) -> Self;
    fn wrapping_sub(self, other: Self) -> Self;
    /// Shifts to the right, and inserts copies of the sign.
    fn shift_signed(self, count: u32) -> Self;
    fn eq(self, other: Self) -> Self::Mask;
    fn lt_signed(self, other: Self) -> Self::Mask;
}

/// Integers of 32 bits.
pub(crate) trait Word32: Word<Number = u32> {
    type Real: Real32<Bits = Self, Mask = Self::Mask>;

    /// Converts signed integers to binary32, rounded to nearest even.
    fn signed_to_real(self) -> Self::Real;
}

/// Integers of 64 bits.
pub(crate) trait Word64: Word<Number = u64> {
    type Real: Real64<Bits = Self, Mask = Self::Mask>;

    /// Converts unsigned integers to binary64, rounded to nearest even.
    fn unsigned_to_real(self) -> Self::Real;
}

impl Mask for bool {}

macro_rules! lanes_of_one {
    ($($ty:ty)*) => {$(
        impl Lanes for $ty {
            type Mask = bool;
            #[inline(always)]
            fn select(mask: bool, x: Self, y: Self) -> Self {
                if mask { x } else { y }
            }
        }
    )*};
}
lanes_of_one!(f32 f64 u32 u64);

macro_rules! real {
    ($float:ident, $word:ident) => {
        impl Real for $float {
            type Number = $float;
            type Bits = $word;
            #[inline(always)]
            fn constant(self, value: $float) -> Self {
                value
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                $float::mul_add(self, factor, addend)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $float::sqrt(self)
            }
            #[inline(always)]
            fn trunc(self) -> Self {
                $float::trunc(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $float::abs(self)
            }
            #[inline(always)]
            fn sign(self) -> $word {
                $float::to_bits(self) & (-0.0 as $float).to_bits()
            }
            #[inline(always)]
            fn to_bits(self) -> $word {
                $float::to_bits(self)
            }
            #[inline(always)]
            fn from_bits(bits: $word) -> Self {
                $float::from_bits(bits)
            }
            #[inline(always)]
            fn eq(self, other: Self) -> bool {
                self == other
            }
            #[inline(always)]
            fn lt(self, other: Self) -> bool {
                self < other
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                $float::is_nan(self)
            }
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                if self < other { self } else { other }
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                if self > other { self } else { other }
            }
        }
    };
}
real!(f32, u32);
real!(f64, u64);

impl Real32 for f32 {
    type Double = f64;
    #[inline(always)]
    fn to_double(self) -> f64 {
        self.into()
    }
}

impl Real64 for f64 {
    type Single = f32;
    #[inline(always)]
    fn to_single(self) -> f32 {
        self as f32
    }
}

macro_rules! word {
    ($word:ident, $signed:ident) => {
        impl Word for $word {
            type Number = $word;
            #[inline(always)]
            fn constant(self, value: $word) -> Self {
                value
            }
            #[inline(always)]
            fn wrapping_add(self, other: Self) -> Self {
                $word::wrapping_add(self, other)
            }
            #[inline(always)]
            fn wrapping_sub(self, other: Self) -> Self {
                $word::wrapping_sub(self, other)
            }
            #[inline(always)]
            fn shift_signed(self, count: u32) -> Self {
                (self as $signed >> count) as $word
            }
            #[inline(always)]
            fn eq(self, other: Self) -> bool {
                self == other
            }
            #[inline(always)]
            fn lt_signed(self, other: Self) -> bool {
                (self as $signed) < other as $signed
            }
        }
    };
}
word!(u32, i32);
word!(u64, i64);

impl Word32 for u32 {
    type Real = f32;
    #[inline(always)]
    fn signed_to_real(self) -> f32 {
        self as i32 as f32
    }
}

impl Word64 for u64 {
    type Real = f64;
    #[inline(always)]
    fn unsigned_to_real(self) -> f64 {
        self as f64
    }
}
