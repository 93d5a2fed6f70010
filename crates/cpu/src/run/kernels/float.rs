//! The floating-point rows of the elementwise table for binary32 and binary64.

use tilewright_ir::ElementwiseFn as F;

use super::simd::{binary, binary_commutative, binary_long, compare, map3, unary, vectorize};
use super::{Operand, Source, math32, math64, typed_mut};

/// The functions of one or two elements of a float type.
macro_rules! functions {
    ($arithmetic:ident, $extremes:ident, $transcendental:ident, $compare:ident, $fma:ident, $ty:ty, $math:ident) => {
        fn $arithmetic(function: F, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) -> bool {
            type T = $ty;
            let out = typed_mut::<T>(out);
            let (x, y) = (Source::<T>::new(x), Source::<T>::new(y));
            match function {
                F::Add => binary_commutative(out, x, y, |x, y| x + y),
                F::Sub => binary(out, x, y, |x, y| x - y),
                F::Mul => binary_commutative(out, x, y, |x, y| x * y),
                F::Div | F::DivRn => binary(out, x, y, |x, y| x / y),
                F::FloatRem => binary_long(out, x, y, |x, y| x % y),
                F::Sqrt | F::SqrtRn => unary(out, x, T::sqrt),
                F::Floor => unary(out, x, T::floor),
                F::Ceil => unary(out, x, T::ceil),
                _ => return false,
            }
            true
        }

        fn $extremes(function: F, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) -> bool {
            type T = $ty;
            let out = typed_mut::<T>(out);
            let (x, y) = (Source::<T>::new(x), Source::<T>::new(y));
            match function {
                F::Min => binary_commutative(out, x, y, $math::min),
                F::Max => binary_commutative(out, x, y, $math::max),
                F::MinNan => binary_commutative(out, x, y, $math::min_nan),
                F::MaxNan => binary_commutative(out, x, y, $math::max_nan),
                _ => return false,
            }
            true
        }

        fn $transcendental(function: F, out: &mut [u8], x: Operand<'_>) -> bool {
            let out = typed_mut::<$ty>(out);
            let x = Source::<$ty>::new(x);
            match function {
                F::Exp => unary(out, x, $math::exp),
                F::Exp2 => unary(out, x, $math::exp2),
                F::Log => unary(out, x, $math::log),
                F::Log2 => unary(out, x, $math::log2),
                F::Sin => $math::sin_tile(out, x),
                F::Cos => $math::cos_tile(out, x),
                F::Rsqrt => unary(out, x, |x| 1.0 / x.sqrt()),
                F::Erf => $math::erf_tile(out, x),
                F::Tanh => unary(out, x, $math::tanh),
                _ => return false,
            }
            true
        }

        /// A comparison.
        pub(super) fn $compare(function: F, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) {
            let (x, y) = (Source::<$ty>::new(x), Source::<$ty>::new(y));
            match function {
                F::Eq => compare(out, x, y, |x, y| x == y),
                F::Ne => compare(out, x, y, |x, y| x != y),
                F::Lt => compare(out, x, y, |x, y| x < y),
                F::Gt => compare(out, y, x, |x, y| x < y),
                F::Le => compare(out, x, y, |x, y| x <= y),
                _ => compare(out, y, x, |x, y| x <= y),
            }
        }

        /// `x * y + z` rounded once.
        pub(super) fn $fma(out: &mut [u8], x: Operand<'_>, y: Operand<'_>, z: Operand<'_>) {
            let out = typed_mut::<$ty>(out);
            // The product is commutative, and the loop takes the result itself in the second and third place.
            let (x, y) = if matches!(x, Operand::Out) { (y, x) } else { (x, y) };
            let (x, y, z) = (Source::<$ty>::new(x), Source::<$ty>::new(y), Source::<$ty>::new(z));
            vectorize(
                #[inline(always)]
                || map3(out, x, y, z, |x: $ty, y, z| x.mul_add(y, z)),
            );
        }
    };
}
functions!(arithmetic_32, extremes_32, transcendental_32, compare_f32, fma_f32, f32, math32);
functions!(arithmetic_64, extremes_64, transcendental_64, compare_f64, fma_f64, f64, math64);

/// A function of one or two binary32 elements; false where there is none.
pub(super) fn apply_32(function: F, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) -> bool {
    arithmetic_32(function, out, x, y)
        || extremes_32(function, out, x, y)
        || transcendental_32(function, out, x)
}

/// A function of one or two binary64 elements; false where there is none.
pub(super) fn apply_64(function: F, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) -> bool {
    arithmetic_64(function, out, x, y)
        || extremes_64(function, out, x, y)
        || transcendental_64(function, out, x)
}
