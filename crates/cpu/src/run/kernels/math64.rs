//! Minima, maxima and transcendental functions of one binary64 element, branch-free except for the
//! calls of `libm`.
//!
//! The polynomials of log, sin and cos are those of FreeBSD's msun. Each function states its
//! largest error in units in the last place.

use super::Source;
use super::simd::{self, vectorize};

/// The sum of x and this number, 1.5 * 2^52, has the integer nearest to x in its low bits;
/// subtracting this number again leaves the integer as a float.
const SHIFTER: f64 = 6_755_399_441_055_744.0;
const SIGN: u64 = 1 << 63;

/// `libm` handles larger arguments of sin and cos.
const LARGEST_FAST_ANGLE: f64 = 1_000_000.0;

/// Returns the minimum; of a NaN and a number, the number; -0 is below +0.
#[inline(always)]
pub(super) fn min(x: f64, y: f64) -> f64 {
    let less = if x < y { x } else { y };
    let ordered = if x == y { f64::from_bits(x.to_bits() | y.to_bits()) } else { less };
    if y.is_nan() { x } else { ordered }
}

/// Returns the maximum; of a NaN and a number, the number; +0 is above -0.
#[inline(always)]
pub(super) fn max(x: f64, y: f64) -> f64 {
    let more = if x > y { x } else { y };
    let ordered = if x == y { f64::from_bits(x.to_bits() & y.to_bits()) } else { more };
    if y.is_nan() { x } else { ordered }
}

/// Returns the minimum; NaN if either is NaN; -0 is below +0.
#[inline(always)]
pub(super) fn min_nan(x: f64, y: f64) -> f64 {
    let less = if x < y { x } else { y };
    let ordered = if x == y { f64::from_bits(x.to_bits() | y.to_bits()) } else { less };
    if x.is_nan() { x } else { ordered }
}

/// Returns the maximum; NaN if either is NaN; +0 is above -0.
#[inline(always)]
pub(super) fn max_nan(x: f64, y: f64) -> f64 {
    let more = if x > y { x } else { y };
    let ordered = if x == y { f64::from_bits(x.to_bits() & y.to_bits()) } else { more };
    if x.is_nan() { x } else { ordered }
}

/// Evaluates a polynomial by Horner's rule in fused multiply-adds; the highest coefficient is
/// first.
#[inline(always)]
fn polynomial<const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
    let mut sum = coefficients[0];
    for &coefficient in &coefficients[1..] {
        sum = sum.mul_add(x, coefficient);
    }
    sum
}

/// Returns the nearest integer, as a float and as an integer. |x| is below 2^51.
#[inline(always)]
fn round(x: f64) -> (f64, i64) {
    let shifted = x + SHIFTER;
    (shifted - SHIFTER, shifted.to_bits().wrapping_sub(SHIFTER.to_bits()) as i64)
}

/// Converts an integer below 2^51 in magnitude to a float: the inverse of [`round`].
#[inline(always)]
fn to_float(x: i64) -> f64 {
    f64::from_bits(SHIFTER.to_bits().wrapping_add(x as u64)) - SHIFTER
}

/// Clamps x between two bounds; NaN stays.
#[inline(always)]
fn clamp(x: f64, low: f64, high: f64) -> f64 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// Returns 2^exponent for a normal result.
#[inline(always)]
fn power(exponent: i64) -> f64 {
    f64::from_bits((exponent.wrapping_add(1023) as u64) << 52)
}

/// Returns x * 2^exponent in two steps, so that a subnormal result is rounded once. |exponent| is
/// at most 2000.
#[inline(always)]
fn scale(x: f64, exponent: i64) -> f64 {
    // Halve it without a shift of signed 64-bit numbers, which AVX2 lacks.
    let half = ((exponent.wrapping_add(4096) as u64) >> 1) as i64 - 2048;
    x * power(half) * power(exponent.wrapping_sub(half))
}

/// Returns (e^r - 1 - r) / r^2 for |r| up to 0.35: the Taylor series, with a remainder below 2^-57.
#[inline(always)]
fn exp_tail(r: f64) -> f64 {
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

/// Splits x into n * ln 2 + r.
#[inline(always)]
fn reduce_exp(x: f64) -> (f64, i64) {
    let (n, exponent) = round(x * std::f64::consts::LOG2_E);
    let r = n.mul_add(-6.931_471_803_691_238e-1, x);
    (n.mul_add(-1.908_214_929_270_587_7e-10, r), exponent)
}

/// Returns e^x within 1 ulp.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    let (r, exponent) = reduce_exp(clamp(x, -746.0, 710.0));
    let p = exp_tail(r).mul_add(r * r, r) + 1.0;
    scale(p, exponent)
}

/// Returns 2^x within 1 ulp.
#[inline(always)]
pub(super) fn exp2(x: f64) -> f64 {
    let x = clamp(x, -1076.0, 1025.0);
    let (n, exponent) = round(x);
    let r = (x - n) * std::f64::consts::LN_2;
    let p = exp_tail(r).mul_add(r * r, r) + 1.0;
    scale(p, exponent)
}

/// Splits a positive x into 2^exponent * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2).
///
/// Returns `(exponent, f, s * (f^2/2 + R), f^2/2)`, where log(1 + f) = f - f^2/2 + s * (f^2/2 + R)
/// and s = f / (2 + f).
#[inline(always)]
fn split(x: f64) -> (f64, f64, f64, f64) {
    let subnormal = x < f64::MIN_POSITIVE;
    let (x, bias) =
        (if subnormal { x * 18_014_398_509_481_984.0 } else { x }, if subnormal { -54.0 } else { 0.0 });
    let shifted = x.to_bits().wrapping_add(0x3ff0_0000_0000_0000 - 0x3fe6_a09e_0000_0000);
    let exponent = to_float((shifted >> 52) as i64 - 1023) + bias;
    let f = f64::from_bits((shifted & 0xf_ffff_ffff_ffff).wrapping_add(0x3fe6_a09e_0000_0000)) - 1.0;
    let half_square = 0.5 * f * f;
    let s = f / (2.0 + f);
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

/// Replaces the result of a logarithm if `x` is not a positive finite number.
#[inline(always)]
fn log_special(x: f64, result: f64) -> f64 {
    let result = if x < f64::INFINITY { result } else { x }; // infinity and NaN
    let result = if x < 0.0 { f64::NAN } else { result };
    if x == 0.0 { f64::NEG_INFINITY } else { result }
}

/// Returns the natural logarithm within 1 ulp; NaN below 0, -inf at both zeros.
#[inline(always)]
pub(super) fn log(x: f64) -> f64 {
    let (exponent, f, rest, half_square) = split(x);
    let low = exponent.mul_add(1.908_214_929_270_587_7e-10, rest);
    log_special(x, exponent.mul_add(6.931_471_803_691_238e-1, low - half_square + f))
}

/// Returns the binary logarithm within 1 ulp, exact at powers of two; NaN below 0, -inf at both
/// zeros.
#[inline(always)]
pub(super) fn log2(x: f64) -> f64 {
    const HIGH: f64 = 1.442_695_040_721_446_3;
    const LOW: f64 = 1.675_171_316_488_651_2e-10;
    let (exponent, f, rest, half_square) = split(x);
    let high = f64::from_bits((f - half_square).to_bits() & 0xffff_ffff_0000_0000);
    let low = f - high - half_square + rest;
    let product = high * HIGH;
    let sum = exponent + product;
    let error = (exponent - sum) + product;
    let low = (low + high).mul_add(LOW, low * HIGH) + error;
    log_special(x, low + sum)
}

/// Returns a - b exactly, as a sum of two numbers.
#[inline(always)]
fn exact_difference(a: f64, b: f64) -> (f64, f64) {
    let high = a - b;
    let rest = high - a;
    (high, (a - (high - rest)) - (b + rest))
}

/// Returns sin(x + quarter * pi/2) within 1 ulp for |x| up to `LARGEST_FAST_ANGLE`.
#[inline(always)]
fn sin_shifted(x: f64, quarter: i64) -> f64 {
    const HALF_PI: [f64; 3] =
        [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33];
    let (n, quadrant) = round(x * std::f64::consts::FRAC_2_PI);
    let quadrant = quadrant.wrapping_add(quarter);
    // x - n * pi/2 with twice the precision: x - n * HALF_PI[0] is exact up to the error of the
    // product.
    let product = n * HALF_PI[0];
    let (high, low) = exact_difference(x - product, n.mul_add(HALF_PI[0], -product));
    let product = n * HALF_PI[1];
    let error = n.mul_add(HALF_PI[1], -product);
    let (high, low2) = exact_difference(high, product);
    let low = low + low2 - n.mul_add(HALF_PI[2], error);
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
    let sin = r - (z.mul_add(tail.mul_add(0.5, -(cube * p)), -tail) - cube * -1.666_666_666_666_663_2e-1);
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
    let half = 0.5 * z;
    let w = 1.0 - half;
    let cos = w + (((1.0 - w) - half) + (z * z).mul_add(q, -(r * tail)));
    let result = if quadrant & 1 == 0 { sin } else { cos };
    let result = f64::from_bits(result.to_bits() ^ (((quadrant & 2) as u64) << 62));
    // The reduction would lose the sign of zero.
    if x == 0.0 && quarter == 0 { x } else { result }
}

#[inline(always)]
fn is_large_angle(x: f64) -> bool {
    // False for infinities and NaN, for which the fast path returns NaN.
    x.abs() > LARGEST_FAST_ANGLE && x.abs() < f64::INFINITY
}

/// Computes the sine of a tile within 1 ulp over the whole range; NaN for infinities.
pub(super) fn sin_tile(out: &mut [f64], x: Source<'_, f64>) {
    vectorize(
        #[inline(always)]
        || simd::map1_guarded(out, x, |x| sin_shifted(x, 0), is_large_angle, libm::sin),
    );
}

/// Computes the cosine of a tile within 1 ulp over the whole range; NaN for infinities.
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
pub(super) fn tanh(x: f64) -> f64 {
    // With u = e^(-2|x|) - 1: tanh |x| = -u / (2 + u).
    let t = x.abs();
    let y = if t > 20.0 { -40.0 } else { -2.0 * t };
    let (r, exponent) = reduce_exp(y);
    let p = exp_tail(r).mul_add(r * r, r);
    let two_n = power(exponent);
    let u = p.mul_add(two_n, two_n - 1.0);
    let result = -u / (2.0 + u);
    let result = f64::from_bits((result.to_bits() & !SIGN) | (x.to_bits() & SIGN));
    if x.is_nan() { x } else { result }
}
