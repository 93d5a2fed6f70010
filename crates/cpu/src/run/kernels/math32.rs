//! Minima, maxima and transcendental functions of one binary32 element, branch-free.
//!
//! Each function states its largest error in units in the last place of the exact result, and the
//! tests check it (the ignored one of `tests/kernels/functions.rs` for all arguments). Subnormal
//! arguments and results are handled, not flushed.
#![allow(
    clippy::excessive_precision,
    reason = "nine digits determine a binary32 number; fewer may be the wrong one"
)]

use super::Source;
use super::simd::{self, vectorize};

/// The sum of x and this number, 1.5 * 2^23, has the integer nearest to x in its low bits;
/// subtracting this number again leaves the integer as a float.
pub(super) const SHIFTER: f32 = 12_582_912.0;
const SIGN: u32 = 0x8000_0000;

/// Outside of these bounds, e^x is 0 or infinite.
pub(super) const EXP_BOUNDS: [f32; 2] = [-104.0, 89.0];
/// Outside of these bounds, 2^x is 0 or infinite.
pub(super) const EXP2_BOUNDS: [f32; 2] = [-151.0, 129.0];

/// Minus the natural logarithm of 2, in two parts; small multiples of the first one are exact.
pub(super) const EXP_REDUCTION: [f32; 2] = [-0.693_145_752, -1.428_606_77e-6];
/// The polynomial of e^x near 0.
pub(super) const EXP: [f32; 7] =
    [1.378_059_39e-3, 8.373_124_52e-3, 4.166_953_64e-2, 1.666_647_20e-1, 4.999_998_51e-1, 1.0, 1.0];
/// The polynomial of 2^x near 0.
pub(super) const EXP2: [f32; 8] = [
    1.519_615_7e-5,
    1.546_675_6e-4,
    1.333_393_5e-3,
    9.618_038e-3,
    5.550_410_2e-2,
    2.402_265e-1,
    6.931_472e-1,
    1.0,
];

/// Larger arguments of sin and cos are reduced in binary64 one by one.
const LARGEST_FAST_ANGLE: f32 = 71_476.0;

/// Returns the minimum; of a NaN and a number, the number; -0 is below +0.
#[inline(always)]
pub(super) fn min(x: f32, y: f32) -> f32 {
    let less = if x < y { x } else { y };
    let ordered = if x == y { f32::from_bits(x.to_bits() | y.to_bits()) } else { less };
    if y.is_nan() { x } else { ordered }
}

/// Returns the maximum; of a NaN and a number, the number; +0 is above -0.
#[inline(always)]
pub(super) fn max(x: f32, y: f32) -> f32 {
    let more = if x > y { x } else { y };
    let ordered = if x == y { f32::from_bits(x.to_bits() & y.to_bits()) } else { more };
    if y.is_nan() { x } else { ordered }
}

/// Returns the minimum; NaN if either is NaN; -0 is below +0.
#[inline(always)]
pub(super) fn min_nan(x: f32, y: f32) -> f32 {
    let less = if x < y { x } else { y };
    let ordered = if x == y { f32::from_bits(x.to_bits() | y.to_bits()) } else { less };
    if x.is_nan() { x } else { ordered }
}

/// Returns the maximum; NaN if either is NaN; +0 is above -0.
#[inline(always)]
pub(super) fn max_nan(x: f32, y: f32) -> f32 {
    let more = if x > y { x } else { y };
    let ordered = if x == y { f32::from_bits(x.to_bits() & y.to_bits()) } else { more };
    if x.is_nan() { x } else { ordered }
}

/// Evaluates a polynomial by Horner's rule in fused multiply-adds; the highest coefficient is
/// first.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for &coefficient in &coefficients[1..] {
        sum = sum.mul_add(x, coefficient);
    }
    sum
}

/// Returns the nearest integer, as a float and as an integer. |x| is below 2^22.
#[inline(always)]
fn round(x: f32) -> (f32, i32) {
    let shifted = x + SHIFTER;
    (shifted - SHIFTER, shifted.to_bits().wrapping_sub(SHIFTER.to_bits()) as i32)
}

/// Clamps x between two bounds; NaN stays.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// Returns x * 2^exponent in two steps, so that a subnormal result is rounded once. |exponent| is
/// at most 250.
#[inline(always)]
fn scale(x: f32, exponent: i32) -> f32 {
    let half = exponent >> 1;
    let power = |e: i32| f32::from_bits((e.wrapping_add(127) as u32) << 23);
    x * power(half) * power(exponent.wrapping_sub(half))
}

/// Returns e^x within 1 ulp.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let x = clamp(x, EXP_BOUNDS[0], EXP_BOUNDS[1]);
    let (n, exponent) = round(x * std::f32::consts::LOG2_E);
    let r = n.mul_add(EXP_REDUCTION[0], x);
    let r = n.mul_add(EXP_REDUCTION[1], r);
    scale(polynomial(r, EXP), exponent)
}

/// Returns 2^x within 1 ulp.
#[inline(always)]
pub(super) fn exp2(x: f32) -> f32 {
    let x = clamp(x, EXP2_BOUNDS[0], EXP2_BOUNDS[1]);
    let (n, exponent) = round(x);
    scale(polynomial(x - n, EXP2), exponent)
}

/// Splits a positive normal or subnormal x into 2^exponent * (1 + m) with m in [-1/3, 1/3].
#[inline(always)]
fn split(x: f32) -> (f32, f32) {
    let subnormal = x < f32::MIN_POSITIVE;
    let (x, bias) = (if subnormal { x * 8_388_608.0 } else { x }, if subnormal { -23.0 } else { 0.0 });
    let bits = x.to_bits() as i32;
    let exponent = bits.wrapping_sub(0x3f2a_aaab) & !0x7f_ffff;
    let m = f32::from_bits(bits.wrapping_sub(exponent) as u32) - 1.0;
    ((exponent >> 23) as f32 + bias, m)
}

/// Replaces the result of a logarithm if `x` is not a positive finite number.
#[inline(always)]
fn log_special(x: f32, result: f32) -> f32 {
    let result = if x < f32::INFINITY { result } else { x }; // infinity and NaN
    let result = if x < 0.0 { f32::NAN } else { result };
    if x == 0.0 { f32::NEG_INFINITY } else { result }
}

/// Returns the natural logarithm within 1 ulp; NaN below 0, -inf at both zeros.
#[inline(always)]
pub(super) fn log(x: f32) -> f32 {
    let (exponent, m) = split(x);
    let s = m * m;
    let r = polynomial(s, [-0.130_310_059, -0.121_483_512, -0.166_846_126, -0.249_996_200]);
    let t = polynomial(s, [0.140_869_141, 0.139_814_854, 0.200_120_345]);
    let r = t.mul_add(m, r).mul_add(m, 0.333_331_972).mul_add(m, -0.5).mul_add(s, m);
    log_special(x, exponent.mul_add(std::f32::consts::LN_2, r))
}

/// Returns the binary logarithm within 1.5 ulp, exact at powers of two; NaN below 0, -inf at both
/// zeros.
#[inline(always)]
pub(super) fn log2(x: f32) -> f32 {
    let (exponent, m) = split(x);
    let q = polynomial(
        m,
        [
            0.175_442_35,
            -0.188_057_21,
            0.154_517_92,
            -0.175_210_04,
            0.206_433_19,
            -0.240_703_69,
            0.288_530_62,
            -0.360_668_7,
            0.480_898_4,
            -0.721_347_6,
        ],
    );
    let low = (m * m).mul_add(q, m * 1.925_963e-8);
    let r = m.mul_add(std::f32::consts::LOG2_E, low);
    log_special(x, exponent + r)
}

/// Returns sin(x + quarter * pi/2) within 1.6 ulp for |x| up to `LARGEST_FAST_ANGLE`.
#[inline(always)]
fn sin_shifted(x: f32, quarter: i32) -> f32 {
    let (n, quadrant) = round(x * std::f32::consts::FRAC_2_PI);
    let quadrant = quadrant.wrapping_add(quarter);
    let r = n.mul_add(-1.570_796_01, x);
    let r = n.mul_add(-3.139_164_73e-7, r);
    let r = n.mul_add(-5.390_302_53e-15, r);
    let s = r * r;
    let sin = polynomial(s, [2.865_679_56e-6, -1.985_599_23e-4, 8.333_385_88e-3, -1.666_666_72e-1]);
    let sin = sin.mul_add(r * s, r);
    let cos = polynomial(s, [2.446_770_67e-5, -1.388_772_97e-3, 4.166_665_67e-2, -0.5, 1.0]);
    let result = if quadrant & 1 == 0 { sin } else { cos };
    let result = f32::from_bits(result.to_bits() ^ (((quadrant & 2) as u32) << 30));
    // The reduction would lose the sign of zero.
    if x == 0.0 && quarter == 0 { x } else { result }
}

#[inline(always)]
fn is_large_angle(x: f32) -> bool {
    // False for infinities and NaN, for which the fast path returns NaN.
    x.abs() > LARGEST_FAST_ANGLE && x.abs() < f32::INFINITY
}

/// Computes the sine of a tile within 1.6 ulp over the whole range; NaN for infinities.
pub(super) fn sin_tile(out: &mut [f32], x: Source<'_, f32>) {
    vectorize(
        #[inline(always)]
        || simd::map1_guarded(out, x, |x| sin_shifted(x, 0), is_large_angle, |x| libm::sin(x.into()) as f32),
    );
}

/// Computes the cosine of a tile within 1.6 ulp over the whole range; NaN for infinities.
pub(super) fn cos_tile(out: &mut [f32], x: Source<'_, f32>) {
    vectorize(
        #[inline(always)]
        || simd::map1_guarded(out, x, |x| sin_shifted(x, 1), is_large_angle, |x| libm::cos(x.into()) as f32),
    );
}

/// Returns the error function within 1 ulp.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let t = x.abs();
    let s = x * x;
    let r = (-1.728_534_70e-5_f32).mul_add(t, 3.831_971_26e-4);
    let u = (-3.883_964_38e-3_f32).mul_add(t, 2.425_462_19e-2);
    let r = r.mul_add(s, u).mul_add(t, -1.067_778_77e-1).mul_add(t, -6.348_466_87e-1);
    let r = r.mul_add(t, -1.287_175_12e-1).mul_add(t, -t);
    // Above 4 the result is 1; the polynomial is not valid for large arguments.
    let tail = if t > 4.0 { 1.0 } else { 1.0 - exp(r) };
    let large = f32::from_bits(tail.to_bits() | (x.to_bits() & SIGN));
    let p = polynomial(
        s,
        [
            -5.967_617_03e-4,
            4.991_194_23e-3,
            -2.676_813_49e-2,
            1.128_199_25e-1,
            -3.761_253_36e-1,
            1.283_791_66e-1,
        ],
    );
    let small = p.mul_add(x, x);
    if t > 0.927_734_4 { large } else { small }
}

/// Computes the error function of a tile.
pub(super) fn erf_tile(out: &mut [f32], x: Source<'_, f32>) {
    simd::unary(out, x, erf);
}

/// Returns the hyperbolic tangent within 2 ulp.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let t = x.abs();
    let s = x * x;
    let tail = 1.0 / (exp(t + t) + 1.0);
    let large = tail.mul_add(-2.0, 1.0);
    let p = polynomial(s, [1.573_944_09e-2, -5.230_255_80e-2, 1.331_524_70e-1, -3.333_276_81e-1]);
    let small = (p * s).mul_add(t, t);
    let result = if t > 0.55 { large } else { small };
    f32::from_bits(result.to_bits() | (x.to_bits() & SIGN))
}
