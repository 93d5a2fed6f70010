//! Formulas that are the same in binary32 and binary64.

use super::lanes::{Lanes, Real, select};

/// Returns the minimum. If one operand is NaN, returns the other operand. -0 is below +0.
#[inline(always)]
pub(crate) fn min<R: Real>(x: R, y: R) -> R {
    let ordered = select(x.eq(y), R::from_bits(x.to_bits() | y.to_bits()), x.lesser(y));
    select(y.is_nan(), x, ordered)
}

/// Returns the maximum. If one operand is NaN, returns the other operand. +0 is above -0.
#[inline(always)]
pub(crate) fn max<R: Real>(x: R, y: R) -> R {
    let ordered = select(x.eq(y), R::from_bits(x.to_bits() & y.to_bits()), x.greater(y));
    select(y.is_nan(), x, ordered)
}

/// Returns the minimum, or NaN if an operand is NaN. -0 is below +0.
#[inline(always)]
pub(crate) fn min_nan<R: Real>(x: R, y: R) -> R {
    let ordered = select(x.eq(y), R::from_bits(x.to_bits() | y.to_bits()), x.lesser(y));
    select(x.is_nan(), x, ordered)
}

/// Returns the maximum, or NaN if an operand is NaN. +0 is above -0.
#[inline(always)]
pub(crate) fn max_nan<R: Real>(x: R, y: R) -> R {
    let ordered = select(x.eq(y), R::from_bits(x.to_bits() & y.to_bits()), x.greater(y));
    select(x.is_nan(), x, ordered)
}

/// Returns the reciprocal of the square root. Both operations round.
#[inline(always)]
pub(crate) fn rsqrt<R: Real>(x: R) -> R {
    x.small_constant(1.0) / x.sqrt()
}

/// Evaluates a polynomial by Horner's rule, with the highest coefficient first.
#[inline(always)]
pub(super) fn polynomial<R: Real, const N: usize>(x: R, coefficients: [R::Number; N]) -> R {
    let mut sum = x.constant(coefficients[0]);
    for &coefficient in &coefficients[1..] {
        sum = sum.mul_add(x, x.constant(coefficient));
    }
    sum
}

/// Clamps x between two bounds. NaN stays NaN.
#[inline(always)]
pub(super) fn clamp<R: Real>(x: R, low: R::Number, high: R::Number) -> R {
    let x = x.constant(low).greater(x);
    x.constant(high).lesser(x)
}

/// Replaces the result of a logarithm if `x` is not a positive finite number.
#[inline(always)]
pub(super) fn log_special<R: Real>(x: R, result: R) -> R {
    let zero = x.small_constant(0.0);
    let result = select(x.lt(x.small_constant(f32::INFINITY)), result, x); // infinity and NaN
    let result = select(x.lt(zero), x.small_constant(f32::NAN), result);
    select(x.eq(zero), x.small_constant(f32::NEG_INFINITY), result)
}

/// Returns whether x is finite and above a bound in magnitude. For infinities and NaN, the fast
/// formulas of sin and cos already return NaN.
#[inline(always)]
pub(super) fn is_finite_above<R: Real>(x: R, bound: R::Number) -> <R as Lanes>::Mask {
    let magnitude = x.abs();
    x.constant(bound).lt(magnitude) & magnitude.lt(x.small_constant(f32::INFINITY))
}
