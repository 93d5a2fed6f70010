//! Evaluates the formulas of the executor's kernels in vector SSA.
//!
//! The formulas are generic over the traits of [`kernels::lanes`](crate::run::kernels::lanes).
//! Here, the methods of these traits append instructions. Nests and kernels therefore compute the
//! same bits.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Shl, Shr, Sub};

use tilewright_ir::{Dtype, MathFn};
use tilewright_native::Builder;
use tilewright_native::ir::{Binary, Compare, Conversion, Lane, MaskBinary, Unary, Value};

use crate::run::kernels::lanes::{Lanes, Mask, Real, Real32, Real64, Word, Word32, Word64};
use crate::run::kernels::{cast, formats, math, math32, math64, narrow};

pub(super) trait LaneType: Copy {
    const LANE: Lane;
}

impl LaneType for f32 {
    const LANE: Lane = Lane::F32;
}

impl LaneType for f64 {
    const LANE: Lane = Lane::F64;
}

impl LaneType for u32 {
    const LANE: Lane = Lane::I32;
}

impl LaneType for u64 {
    const LANE: Lane = Lane::I64;
}

fn sign_bit<T: LaneType>() -> u64 {
    1 << (8 * T::LANE.bytes() - 1)
}

/// A vector of `T`. Its methods append instructions to the builder.
#[derive(Clone, Copy)]
pub(super) struct Vector<'b, T> {
    builder: &'b RefCell<Builder>,
    pub value: Value,
    lane: PhantomData<T>,
}

/// A mask. Its methods append instructions to the builder.
#[derive(Clone, Copy)]
pub(super) struct VectorMask<'b> {
    builder: &'b RefCell<Builder>,
    pub value: Value,
}

impl<'b, T: LaneType> Vector<'b, T> {
    /// Creates a handle. Panics if the value is not a vector of `T`.
    pub fn new(builder: &'b RefCell<Builder>, value: Value) -> Self {
        assert!(builder.borrow().lane(value) == T::LANE, "the vector has lanes of the type {:?}", T::LANE);
        Self { builder, value, lane: PhantomData }
    }

    fn bits(self, bits: u64) -> Self {
        Self { value: self.builder.borrow_mut().constant(T::LANE, bits), ..self }
    }

    fn unary(self, function: Unary) -> Self {
        Self { value: self.builder.borrow_mut().unary(function, self.value), ..self }
    }

    fn binary(self, function: Binary, other: Self) -> Self {
        Self { value: self.builder.borrow_mut().binary(function, self.value, other.value), ..self }
    }

    fn compare(self, function: Compare, other: Self) -> VectorMask<'b> {
        let value = self.builder.borrow_mut().compare(function, self.value, other.value);
        VectorMask { builder: self.builder, value }
    }

    fn convert<U: LaneType>(self, conversion: Conversion) -> Vector<'b, U> {
        let value = self.builder.borrow_mut().convert(conversion, U::LANE, self.value);
        Vector { builder: self.builder, value, lane: PhantomData }
    }
}

impl BitAnd for VectorMask<'_> {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        let value = self.builder.borrow_mut().mask_binary(MaskBinary::And, self.value, other.value);
        Self { value, ..self }
    }
}

impl BitOr for VectorMask<'_> {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        let value = self.builder.borrow_mut().mask_binary(MaskBinary::Or, self.value, other.value);
        Self { value, ..self }
    }
}

impl Mask for VectorMask<'_> {}

impl<'b, T: LaneType> Lanes for Vector<'b, T> {
    type Mask = VectorMask<'b>;
    fn select(mask: VectorMask<'b>, x: Self, y: Self) -> Self {
        Self { value: x.builder.borrow_mut().select(mask.value, x.value, y.value), ..x }
    }
}

macro_rules! operators {
    ($ty:ident: $($operator:ident $method:ident)*) => {$(
        impl $operator for Vector<'_, $ty> {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                self.binary(Binary::$operator, other)
            }
        }
    )*};
}

macro_rules! real {
    ($float:ident, $word:ident) => {
        operators!($float: Add add Sub sub Mul mul Div div);

        impl Neg for Vector<'_, $float> {
            type Output = Self;
            fn neg(self) -> Self {
                self.binary(Binary::Xor, self.bits(sign_bit::<$float>()))
            }
        }

        impl<'b> Real for Vector<'b, $float> {
            type Number = $float;
            type Bits = Vector<'b, $word>;
            fn constant(self, value: $float) -> Self {
                self.bits(value.to_bits().into())
            }
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                let mut builder = self.builder.borrow_mut();
                Self { value: builder.multiply_add(self.value, factor.value, addend.value), ..self }
            }
            fn sqrt(self) -> Self {
                self.unary(Unary::Sqrt)
            }
            fn trunc(self) -> Self {
                let sign = self.binary(Binary::And, self.bits(sign_bit::<$float>()));
                self.abs().unary(Unary::Floor).binary(Binary::Or, sign)
            }
            fn abs(self) -> Self {
                self.binary(Binary::And, self.bits(sign_bit::<$float>() - 1))
            }
            fn sign(self) -> Self::Bits {
                self.binary(Binary::And, self.bits(sign_bit::<$float>())).to_bits()
            }
            fn to_bits(self) -> Self::Bits {
                self.convert(Conversion::Bitcast)
            }
            fn from_bits(bits: Self::Bits) -> Self {
                bits.convert(Conversion::Bitcast)
            }
            fn eq(self, other: Self) -> Self::Mask {
                self.compare(Compare::Eq, other)
            }
            fn lt(self, other: Self) -> Self::Mask {
                self.compare(Compare::Lt, other)
            }
            fn is_nan(self) -> Self::Mask {
                self.compare(Compare::Ne, self)
            }
            fn lesser(self, other: Self) -> Self {
                self.binary(Binary::Lesser, other)
            }
            fn greater(self, other: Self) -> Self {
                self.binary(Binary::Greater, other)
            }
        }
    };
}
real!(f32, u32);
real!(f64, u64);

impl<'b> Real32 for Vector<'b, f32> {
    type Double = Vector<'b, f64>;
    fn to_double(self) -> Self::Double {
        self.convert(Conversion::FloatToFloat)
    }
    fn scale(self, exponent: Self, _bits: Self::Bits) -> Self {
        self.binary(Binary::Scale, exponent)
    }
}

impl<'b> Real64 for Vector<'b, f64> {
    type Single = Vector<'b, f32>;
    fn to_single(self) -> Self::Single {
        self.convert(Conversion::FloatToFloat)
    }
}

macro_rules! word {
    ($word:ident) => {
        impl BitAnd for Vector<'_, $word> {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                self.binary(Binary::And, other)
            }
        }

        impl BitOr for Vector<'_, $word> {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.binary(Binary::Or, other)
            }
        }

        impl BitXor for Vector<'_, $word> {
            type Output = Self;
            fn bitxor(self, other: Self) -> Self {
                self.binary(Binary::Xor, other)
            }
        }

        impl Not for Vector<'_, $word> {
            type Output = Self;
            fn not(self) -> Self {
                self.binary(Binary::Xor, self.bits($word::MAX.into()))
            }
        }

        impl Shl<u32> for Vector<'_, $word> {
            type Output = Self;
            fn shl(self, count: u32) -> Self {
                self.binary(Binary::Shl, self.bits(count.into()))
            }
        }

        impl Shr<u32> for Vector<'_, $word> {
            type Output = Self;
            fn shr(self, count: u32) -> Self {
                self.binary(Binary::Shr, self.bits(count.into()))
            }
        }

        impl Word for Vector<'_, $word> {
            type Number = $word;
            fn constant(self, value: $word) -> Self {
                self.bits(value.into())
            }
            fn wrapping_add(self, other: Self) -> Self {
                self.binary(Binary::Add, other)
            }
            fn wrapping_sub(self, other: Self) -> Self {
                self.binary(Binary::Sub, other)
            }
            fn shift_signed(self, count: u32) -> Self {
                self.binary(Binary::Sar, self.bits(count.into()))
            }
            fn eq(self, other: Self) -> Self::Mask {
                self.compare(Compare::Eq, other)
            }
            fn lt_signed(self, other: Self) -> Self::Mask {
                self.compare(Compare::Lt, other)
            }
        }
    };
}
word!(u32);
word!(u64);

impl<'b> Word32 for Vector<'b, u32> {
    type Real = Vector<'b, f32>;
    fn signed_to_real(self) -> Self::Real {
        self.convert(Conversion::SignedToFloat)
    }
}

impl<'b> Word64 for Vector<'b, u64> {
    type Real = Vector<'b, f64>;
    fn unsigned_to_real(self) -> Self::Real {
        self.convert(Conversion::UnsignedToFloat)
    }
}

/// Converts narrow floats to binary32. Their bits are extended with zeros to 32 bits.
pub(super) fn widen(builder: &RefCell<Builder>, dtype: Dtype, bits: Value) -> Value {
    let bits = Vector::<u32>::new(builder, bits);
    let wide: Vector<'_, f32> = match dtype {
        Dtype::BF16 => formats::bf16_widen(bits),
        // tidy: wildcard because the other narrow floats have a format
        _ => cast::format(dtype).widen(bits),
    };
    wide.value
}

/// Rounds binary32 to narrow floats, to nearest even. The result is in the low bits of lanes of 32
/// bits.
pub(super) fn round(builder: &RefCell<Builder>, dtype: Dtype, x: Value) -> Value {
    let x = Vector::<f32>::new(builder, x);
    match dtype {
        Dtype::BF16 => formats::bf16_narrow(x, false).value,
        // tidy: wildcard because the other narrow floats have a format
        _ => cast::format(dtype).narrow(x, false).value,
    }
}

/// Converts binary64 or integers to binary32, rounded to odd. A second rounding to a narrow float
/// is then exact: it equals a single rounding.
pub(super) fn to_single_odd(builder: &RefCell<Builder>, from: Dtype, x: Value) -> Value {
    let double = match from {
        Dtype::F64 => Vector::<f64>::new(builder, x),
        Dtype::I64 => formats::signed_to_double_odd(Vector::<u64>::new(builder, x)),
        Dtype::U64 => formats::unsigned_to_double_odd(Vector::<u64>::new(builder, x)),
        Dtype::I32 => Vector::<u32>::new(builder, x).convert(Conversion::SignedToFloat),
        Dtype::U32 => Vector::<u32>::new(builder, x).convert(Conversion::UnsignedToFloat),
        other => panic!("binary32 represents {other}"),
    };
    formats::double_to_single_odd(double).value
}

/// Returns x * y + z in binary32, rounded to odd. The operands are widened narrow floats.
pub(super) fn multiply_add_odd(builder: &RefCell<Builder>, operands: [Value; 3]) -> Value {
    let [x, y, z] = operands.map(|value| Vector::<f32>::new(builder, value));
    narrow::fma_odd(x, y, z).value
}

/// Returns the quotient of integers of at most 32 bits, towards zero. For the divisor 0, it is
/// unspecified.
pub(super) fn quotient(builder: &RefCell<Builder>, dtype: Dtype, x: Value, y: Value) -> Value {
    let (signed, lane) = (dtype.is_signed(), builder.borrow().lane(x));
    let convert =
        |conversion: Conversion, lane: Lane, x: Value| builder.borrow_mut().convert(conversion, lane, x);
    let wide = if dtype.bytes() == 4 {
        let to_float = if signed { Conversion::SignedToFloat } else { Conversion::UnsignedToFloat };
        let [x, y] = [x, y].map(|x| Vector::<f64>::new(builder, convert(to_float, Lane::F64, x)));
        formats::quotient_of_doubles(x, y).value
    } else {
        let extend = if signed { Conversion::SignExtend } else { Conversion::ZeroExtend };
        let [x, y] = [x, y].map(|x| {
            let extended = convert(extend, Lane::I32, x);
            Vector::<f32>::new(builder, convert(Conversion::SignedToFloat, Lane::F32, extended))
        });
        formats::quotient_of_singles(x, y).value
    };
    convert(Conversion::Truncate, lane, wide)
}

pub(super) fn has_math(function: MathFn, lane: Lane) -> bool {
    match function {
        // Large arguments need `libm`.
        MathFn::Sin | MathFn::Cos => false,
        MathFn::Erf => lane == Lane::F32,
        MathFn::Exp
        | MathFn::AccurateExp
        | MathFn::Exp2
        | MathFn::Log
        | MathFn::Log2
        | MathFn::Rsqrt
        | MathFn::Tanh => true,
    }
}

pub(super) fn math(builder: &RefCell<Builder>, function: MathFn, lane: Lane, x: Value) -> Value {
    assert!(has_math(function, lane), "there is no formula for {function:?} of {lane:?}");
    if lane == Lane::F32 {
        let x = Vector::<f32>::new(builder, x);
        let result = match function {
            MathFn::Exp | MathFn::AccurateExp => math32::exp(x),
            MathFn::Exp2 => math32::exp2(x),
            MathFn::Log => math32::log(x),
            MathFn::Log2 => math32::log2(x),
            MathFn::Sin => math32::sin_shifted(x, 0),
            MathFn::Cos => math32::sin_shifted(x, 1),
            MathFn::Rsqrt => math::rsqrt(x),
            MathFn::Erf => math32::erf(x),
            MathFn::Tanh => math32::tanh(x),
        };
        return result.value;
    }
    let x = Vector::<f64>::new(builder, x);
    let result = match function {
        MathFn::Exp | MathFn::AccurateExp => math64::exp(x),
        MathFn::Exp2 => math64::exp2(x),
        MathFn::Log => math64::log(x),
        MathFn::Log2 => math64::log2(x),
        MathFn::Sin => math64::sin_shifted(x, 0),
        MathFn::Cos => math64::sin_shifted(x, 1),
        MathFn::Rsqrt => math::rsqrt(x),
        MathFn::Erf => unreachable!("`has_math` refuses it"),
        MathFn::Tanh => math64::tanh(x),
    };
    result.value
}

#[cfg(test)]
mod tests;
