//! Computes transcendental functions of one binary64 element, without branches except for `libm`.
//!
//! The polynomials of log, sin and cos are those of FreeBSD's msun. The error of each function is
//! in units in the last place (ulp).

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E};

use super::Source;
use super::lanes::{Lanes, Real64, Word, select};
use super::math::{clamp, is_finite_above, log_special, polynomial};
use super::simd::{self, vectorize};

/// 1.5 * 2^52. After adding this number to x, the low bits are the nearest integer. Subtracting it
/// again leaves that integer as a float.
pub(super) const SHIFTER: f64 = 6_755_399_441_055_744.0;

/// The largest magnitude for which these formulas compute sin and cos. `libm` computes larger
/// angles.
const LARGEST_FAST_ANGLE: f64 = 1_000_000.0;

/// Returns the nearest integer, as a float and as an integer. |x| is below 2^51.
#[inline(always)]
fn round<R: Real64>(x: R) -> (R, R::Bits) {
    let shifter = x.constant(SHIFTER);
    let shifted = x + shifter;
    let bits = shifted.to_bits();
    (shifted - shifter, bits.wrapping_sub(bits.constant(SHIFTER.to_bits())))
}

/// Converts an integer of magnitude below 2^51 to a float, the inverse of [`round`].
#[inline(always)]
fn to_float<R: Real64>(x: R::Bits) -> R {
    let shifted = R::from_bits(x.wrapping_add(x.constant(SHIFTER.to_bits())));
    shifted - shifted.constant(SHIFTER)
}

/// Returns 2^exponent, which must be a normal number.
#[inline(always)]
fn power<R: Real64>(exponent: R::Bits) -> R {
    R::from_bits(exponent.wrapping_add(exponent.constant(1023)) << 52)
}

/// Returns x * 2^exponent in two steps, so that a subnormal result is rounded once. |exponent| is
/// at most 2046. At -2045 and -2046, a factor is 0.
#[inline(always)]
fn scale<R: Real64>(x: R, exponent: R::Bits) -> R {
    let word = |number: u64| exponent.constant(number);
    // Halves the exponent. AVX2 has no arithmetic right shift of 64-bit numbers.
    let half = (exponent.wrapping_add(word(4096)) >> 1).wrapping_sub(word(2048));
    x * power(half) * power(exponent.wrapping_sub(half))
}

/// Returns (e^r - 1 - r) / r^2 for |r| up to 0.35. The Taylor series has a remainder below 2^-57.
#[inline(always)]
fn exp_tail<R: Real64>(r: R) -> R {
    polynomial(
        r,
        [
            1.0 / 6_227_020_800.0,
            1.0 / 479_001_600.0,
            1.0 / 39_916_800.0,
            1.0 / 3_628_800.0,
            1.0 / 362_880.0,
            1.0 / 40_320.0,
            1.0 / 5_040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
        ],
    )
}

/// Splits x into n * ln 2 + r. Returns r, and n as an integer.
#[inline(always)]
fn reduce_exp<R: Real64>(x: R) -> (R, R::Bits) {
    let (n, exponent) = round(x * x.constant(LOG2_E));
    let r = n.mul_add(x.constant(-6.931_471_803_691_238e-1), x);
    (n.mul_add(x.constant(-1.908_214_929_270_587_7e-10), r), exponent)
}

/// Returns e^x within 1 ulp.
#[inline(always)]
pub(crate) fn exp<R: Real64>(x: R) -> R {
    let (r, exponent) = reduce_exp(clamp(x, -1418.2, 710.0));
    let p = exp_tail(r).mul_add(r * r, r) + x.constant(1.0);
    scale(p, exponent)
}

/// Returns 2^x within 1 ulp.
#[inline(always)]
pub(crate) fn exp2<R: Real64>(x: R) -> R {
    let x = clamp(x, -2046.0, 1025.0);
    let (n, exponent) = round(x);
    let r = (x - n) * x.constant(LN_2);
    let p = exp_tail(r).mul_add(r * r, r) + x.constant(1.0);
    scale(p, exponent)
}

/// Splits a positive x into 2^exponent * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2).
///
/// Returns `(exponent, f, s * (f^2/2 + t), f^2/2)`, where s = f / (2 + f). `t` is `even + odd`, a
/// polynomial in s^2. Then log(1 + f) = f - f^2/2 + s * (f^2/2 + t).
#[inline(always)]
fn split<R: Real64>(x: R) -> (R, R, R, R) {
    const SQRT_HALF: u64 = 0x3fe6_a09e_0000_0000;
    let subnormal = x.lt(x.constant(f64::MIN_POSITIVE));
    let bias = select(subnormal, x.constant(-54.0), x.constant(0.0));
    let bits = select(subnormal, x * x.constant(18_014_398_509_481_984.0), x).to_bits();
    let word = |number: u64| bits.constant(number);
    let shifted = bits.wrapping_add(word(0x3ff0_0000_0000_0000 - SQRT_HALF));
    let exponent = to_float::<R>((shifted >> 52).wrapping_sub(word(1023))) + bias;
    let f =
        R::from_bits((shifted & word(0xf_ffff_ffff_ffff)).wrapping_add(word(SQRT_HALF))) - x.constant(1.0);
    let half_square = x.constant(0.5) * f * f;
    let s = f / (x.constant(2.0) + f);
    let z = s * s;
    let w = z * z;
    let even =
        w * polynomial(w, [1.531_383_769_920_937_3e-1, 2.222_219_843_214_978_4e-1, 3.999_999_999_940_942e-1]);
    let odd = z * polynomial(
        w,
        [
            1.479_819_860_511_658_6e-1,
            1.818_357_216_161_805e-1,
            2.857_142_874_366_239e-1,
            6.666_666_666_666_735e-1,
        ],
    );
    (exponent, f, s * (half_square + (even + odd)), half_square)
}

/// Returns the natural logarithm within 1 ulp. The result is NaN below 0, and -inf at both zeros.
#[inline(always)]
pub(crate) fn log<R: Real64>(x: R) -> R {
    let (exponent, f, rest, half_square) = split(x);
    let low = exponent.mul_add(x.constant(1.908_214_929_270_587_7e-10), rest);
    log_special(x, exponent.mul_add(x.constant(6.931_471_803_691_238e-1), low - half_square + f))
}

/// Returns the binary logarithm within 1 ulp; it is exact at powers of two. The result is NaN below
/// 0, and -inf at both zeros.
#[inline(always)]
pub(crate) fn log2<R: Real64>(x: R) -> R {
    let high_factor = x.constant(1.442_695_040_721_446_3);
    let low_factor = x.constant(1.675_171_316_488_651_2e-10);
    let (exponent, f, rest, half_square) = split(x);
    let bits = (f - half_square).to_bits();
    let high = R::from_bits(bits & bits.constant(0xffff_ffff_0000_0000));
    let low = f - high - half_square + rest;
    let product = high * high_factor;
    let sum = exponent + product;
    let error = (exponent - sum) + product;
    let low = (low + high).mul_add(low_factor, low * high_factor) + error;
    log_special(x, low + sum)
}

/// Returns a - b exactly, as a sum of two numbers.
#[inline(always)]
fn exact_difference<R: Real64>(a: R, b: R) -> (R, R) {
    let high = a - b;
    let rest = high - a;
    (high, (a - (high - rest)) - (b + rest))
}

/// Returns sin(x + quarter * pi/2) within 1 ulp, unless [`is_large_angle`]. `quarter` is 0 for the
/// sine and 1 for the cosine.
#[inline(always)]
pub(crate) fn sin_shifted<R: Real64>(x: R, quarter: u64) -> R {
    let c = |number: f64| x.constant(number);
    let half_pi = [c(FRAC_PI_2), c(6.123_233_995_736_766e-17), c(-1.497_384_904_859_169_8e-33)];
    let (n, quadrant) = round(x * c(FRAC_2_PI));
    let word = |number: u64| quadrant.constant(number);
    let quadrant = quadrant.wrapping_add(word(quarter));
    // x - n * half_pi[0] is exact, because the error of the product is added.
    let product = n * half_pi[0];
    let (high, low) = exact_difference(x - product, n.mul_add(half_pi[0], -product));
    let product = n * half_pi[1];
    let error = n.mul_add(half_pi[1], -product);
    let (high, low2) = exact_difference(high, product);
    let low = low + low2 - n.mul_add(half_pi[2], error);
    let r = high + low;
    let tail = low - (r - high);
    let z = r * r;
    let p = polynomial(
        z,
        [
            1.589_690_995_211_55e-10,
            -2.505_076_025_340_686_3e-8,
            2.755_731_370_707_006_8e-6,
            -1.984_126_982_985_795e-4,
            8.333_333_333_322_49e-3,
        ],
    );
    let cube = z * r;
    let sin =
        r - (z.mul_add(tail.mul_add(c(0.5), -(cube * p)), -tail) - cube * c(-1.666_666_666_666_663_2e-1));
    let q = polynomial(
        z,
        [
            -1.135_964_755_778_819_5e-11,
            2.087_572_321_298_175e-9,
            -2.755_731_435_139_066_3e-7,
            2.480_158_728_947_673e-5,
            -1.388_888_888_887_411e-3,
            4.166_666_666_666_66e-2,
        ],
    );
    let half = c(0.5) * z;
    let w = c(1.0) - half;
    let cos = w + (((c(1.0) - w) - half) + (z * z).mul_add(q, -(r * tail)));
    let result = select((quadrant & word(1)).eq(word(0)), sin, cos);
    let result = R::from_bits(result.to_bits() ^ ((quadrant & word(2)) << 62));
    // The range reduction would lose the sign of zero.
    if quarter == 0 { select(x.eq(c(0.0)), x, result) } else { result }
}

#[inline(always)]
pub(crate) fn is_large_angle<R: Real64>(x: R) -> <R as Lanes>::Mask {
    is_finite_above(x, LARGEST_FAST_ANGLE)
}

/// Computes the sine of a tile within 1 ulp for all finite angles. The sine of an infinity is NaN.
pub(super) fn sin_tile(out: &mut [f64], x: Source<'_, f64>) {
    vectorize(
        #[inline(always)]
        || simd::map1_guarded(out, x, |x| sin_shifted(x, 0), is_large_angle, libm::sin),
    );
}

/// Computes the cosine of a tile within 1 ulp for all finite angles. The cosine of an infinity is
/// NaN.
pub(super) fn cos_tile(out: &mut [f64], x: Source<'_, f64>) {
    vectorize(
        #[inline(always)]
        || simd::map1_guarded(out, x, |x| sin_shifted(x, 1), is_large_angle, libm::cos),
    );
}

/// Computes the error function of a tile within 1 ulp, one element at a time.
pub(super) fn erf_tile(out: &mut [f64], x: Source<'_, f64>) {
    match x {
        Source::Tile(x) => out.iter_mut().zip(x).for_each(|(out, &x)| *out = libm::erf(x)),
        Source::Scalar(x) => out.fill(libm::erf(x)),
        Source::Out => out.iter_mut().for_each(|out| *out = libm::erf(*out)),
    }
}

/// Returns the hyperbolic tangent within 3 ulp.
#[inline(always)]
pub(crate) fn tanh<R: Real64>(x: R) -> R {
    // With u = e^(-2|x|) - 1, tanh |x| = -u / (2 + u).
    let t = x.abs();
    let y = select(x.constant(20.0).lt(t), x.constant(-40.0), x.constant(-2.0) * t);
    let (r, exponent) = reduce_exp(y);
    let p = exp_tail(r).mul_add(r * r, r);
    let two_n: R = power(exponent);
    let u = p.mul_add(two_n, two_n - x.constant(1.0));
    let result = -u / (x.constant(2.0) + u);
    select(x.is_nan(), x, R::from_bits(result.abs().to_bits() | x.sign()))
}
