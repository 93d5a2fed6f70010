//! Computes the elementwise table on binary32 and binary64.

use tilewright_ir::{ArithmeticFn, ComparisonFn, FloatFn, MathFn};

use super::simd::{binary, binary_commutative, binary_long, compare, map3, unary, vectorize};
use super::{Operand, Source, integer, math, math32, math64, typed_mut};

macro_rules! families {
    ($arithmetic:ident, $float:ident, $fma:ident, $math_fn:ident, $compare:ident, $ty:ty, $math:ident) => {
        pub(super) fn $arithmetic(function: ArithmeticFn, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) {
            let (a, b) = (Source::<$ty>::new(x), Source::<$ty>::new(y));
            match function {
                ArithmeticFn::Add => binary_commutative(typed_mut(out), a, b, |x, y| x + y),
                ArithmeticFn::Sub => binary(typed_mut(out), a, b, |x, y| x - y),
                ArithmeticFn::Mul => binary_commutative(typed_mut(out), a, b, |x, y| x * y),
                ArithmeticFn::Neg => integer::negate_float(size_of::<$ty>(), out, x),
                ArithmeticFn::Abs => integer::absolute_float(size_of::<$ty>(), out, x),
                ArithmeticFn::Min => binary_commutative(typed_mut(out), a, b, math::min),
                ArithmeticFn::Max => binary_commutative(typed_mut(out), a, b, math::max),
            }
        }

        pub(super) fn $float(function: FloatFn, out: &mut [u8], [x, y, z]: [Operand<'_>; 3]) {
            let out = typed_mut::<$ty>(out);
            let (a, b) = (Source::<$ty>::new(x), Source::<$ty>::new(y));
            match function {
                FloatFn::Div | FloatFn::DivRn => binary(out, a, b, |x, y| x / y),
                FloatFn::FloatRem => binary_long(out, a, b, |x, y| x % y),
                FloatFn::Fma => $fma(out, x, y, z),
                FloatFn::MinNan => binary_commutative(out, a, b, math::min_nan),
                FloatFn::MaxNan => binary_commutative(out, a, b, math::max_nan),
                FloatFn::Sqrt | FloatFn::SqrtRn => unary(out, a, <$ty>::sqrt),
                FloatFn::Floor => unary(out, a, <$ty>::floor),
                FloatFn::Ceil => unary(out, a, <$ty>::ceil),
            }
        }

        /// Computes `x * y + z`, rounded once.
        fn $fma(out: &mut [$ty], x: Operand<'_>, y: Operand<'_>, z: Operand<'_>) {
            // The loop accepts `Operand::Out` only as `y` or `z`.
            let (x, y) = if matches!(x, Operand::Out) { (y, x) } else { (x, y) };
            let (x, y, z) = (Source::<$ty>::new(x), Source::<$ty>::new(y), Source::<$ty>::new(z));
            vectorize(
                #[inline(always)]
                || map3(out, x, y, z, |x: $ty, y, z| x.mul_add(y, z)),
            );
        }

        pub(super) fn $math_fn(function: MathFn, out: &mut [u8], x: Operand<'_>) {
            let out = typed_mut::<$ty>(out);
            let x = Source::<$ty>::new(x);
            match function {
                MathFn::Exp | MathFn::AccurateExp => unary(out, x, $math::exp),
                MathFn::Exp2 => unary(out, x, $math::exp2),
                MathFn::Log => unary(out, x, $math::log),
                MathFn::Log2 => unary(out, x, $math::log2),
                MathFn::Sin => $math::sin_tile(out, x),
                MathFn::Cos => $math::cos_tile(out, x),
                MathFn::Rsqrt => unary(out, x, math::rsqrt),
                MathFn::Erf => $math::erf_tile(out, x),
                MathFn::Tanh => unary(out, x, $math::tanh),
            }
        }

        pub(super) fn $compare(function: ComparisonFn, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) {
            let (x, y) = (Source::<$ty>::new(x), Source::<$ty>::new(y));
            match function {
                ComparisonFn::Eq => compare(out, x, y, |x, y| x == y),
                ComparisonFn::Ne => compare(out, x, y, |x, y| x != y),
                ComparisonFn::Lt => compare(out, x, y, |x, y| x < y),
                ComparisonFn::Gt => compare(out, y, x, |x, y| x < y),
                ComparisonFn::Le => compare(out, x, y, |x, y| x <= y),
                ComparisonFn::Ge => compare(out, y, x, |x, y| x <= y),
            }
        }
    };
}
families!(arithmetic_32, float_32, fma_32, math_32, compare_32, f32, math32);
families!(arithmetic_64, float_64, fma_64, math_64, compare_64, f64, math64);
