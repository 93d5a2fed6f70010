//! Computes transcendental functions of one binary32 element, without branches.
//!
//! The error of each function is in units in the last place (ulp) of the exact result. An ignored
//! test of `tests/kernels/functions.rs` checks all arguments. Subnormal numbers are not flushed to
//! 0.
#![allow(
    clippy::excessive_precision,
    reason = "nine digits determine a binary32 number; fewer may be the wrong one"
)]

use std::f32::consts::{FRAC_2_PI, LN_2, LOG2_E};

use super::Source;
use super::lanes::{Lanes, Real32, Word, Word32, select};
use super::math::{clamp, is_finite_above, log_special, polynomial};
use super::simd::{self, vectorize};

/// 1.5 * 2^23. After adding this number to x, the low bits are the nearest integer. Subtracting it
/// again leaves that integer as a float.
pub(super) const SHIFTER: f32 = 12_582_912.0;

/// Outside of these bounds, e^x is 0 or infinite. At the lower bound, [`scale_in_steps`] multiplies
/// by an exact 0, because a product that underflows takes about a hundred cycles.
pub(super) const EXP_BOUNDS: [f32; 2] = [-176.0, 89.0];
/// Outside of these bounds, 2^x is 0 or infinite.
pub(super) const EXP2_BOUNDS: [f32; 2] = [-254.0, 129.0];

/// -ln 2 in two parts. The products of the first part and small integers are exact.
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

/// The largest magnitude for which sin and cos are computed in binary32. `libm` computes larger
/// angles.
const LARGEST_FAST_ANGLE: f32 = 71_476.0;

/// Returns the nearest integer, as a float and as an integer. |x| is below 2^22.
#[inline(always)]
fn round<R: Real32>(x: R) -> (R, R::Bits) {
    let shifter = x.constant(SHIFTER);
    let shifted = x + shifter;
    let bits = shifted.to_bits();
    (shifted - shifter, bits.wrapping_sub(bits.constant(SHIFTER.to_bits())))
}

/// Returns x * 2^exponent in two steps, so that a subnormal result is rounded once. |exponent| is
/// at most 254. At -253 and -254, a factor is 0.
#[inline(always)]
pub(super) fn scale_in_steps<R: Real32>(x: R, exponent: R::Bits) -> R {
    let half = exponent.shift_signed(1);
    let power = |e: R::Bits| R::from_bits(e.wrapping_add(e.constant(127)) << 23);
    x * power(half) * power(exponent.wrapping_sub(half))
}

/// Splits e^x into p * 2^n with p near 1. Returns p, n, and n as an integer. |x| is below 2^21.
#[inline(always)]
fn exp_parts<R: Real32>(x: R) -> (R, R, R::Bits) {
    let (n, exponent) = round(x * x.constant(LOG2_E));
    let r = n.mul_add(x.constant(EXP_REDUCTION[0]), x);
    let r = n.mul_add(x.constant(EXP_REDUCTION[1]), r);
    (polynomial(r, EXP), n, exponent)
}

/// Returns e^x within 1 ulp.
#[inline(always)]
pub(crate) fn exp<R: Real32>(x: R) -> R {
    let (near_one, n, exponent) = exp_parts(clamp(x, EXP_BOUNDS[0], EXP_BOUNDS[1]));
    near_one.scale(n, exponent)
}

/// Returns e^x within 1 ulp, if x is between -87 and 88. Otherwise, the result is unspecified.
#[inline(always)]
fn exp_of_moderate<R: Real32>(x: R) -> R {
    let (near_one, _, exponent) = exp_parts(x);
    R::from_bits(near_one.to_bits().wrapping_add(exponent << 23))
}

/// Returns 2^x within 1 ulp.
#[inline(always)]
pub(crate) fn exp2<R: Real32>(x: R) -> R {
    let x = clamp(x, EXP2_BOUNDS[0], EXP2_BOUNDS[1]);
    let (n, exponent) = round(x);
    polynomial(x - n, EXP2).scale(n, exponent)
}

/// Splits a positive normal or subnormal x into 2^exponent * (1 + m) with m in [-1/3, 1/3].
#[inline(always)]
fn split<R: Real32>(x: R) -> (R, R) {
    let one = x.constant(1.0);
    let subnormal = x.lt(x.constant(f32::MIN_POSITIVE));
    let bias = select(subnormal, x.constant(-23.0), x.constant(0.0));
    let bits = select(subnormal, x * x.constant(8_388_608.0), x).to_bits();
    let exponent = bits.wrapping_sub(bits.constant(0x3f2a_aaab)) & bits.constant(!0x7f_ffff);
    let m = R::from_bits(bits.wrapping_sub(exponent)) - one;
    (exponent.shift_signed(23).signed_to_real() + bias, m)
}

/// Returns the natural logarithm within 1 ulp. The result is NaN below 0, and -inf at both zeros.
#[inline(always)]
pub(crate) fn log<R: Real32>(x: R) -> R {
    let (exponent, m) = split(x);
    let s = m * m;
    let r = polynomial(s, [-0.130_310_059, -0.121_483_512, -0.166_846_126, -0.249_996_200]);
    let t = polynomial(s, [0.140_869_141, 0.139_814_854, 0.200_120_345]);
    let r = t.mul_add(m, r).mul_add(m, x.constant(0.333_331_972)).mul_add(m, x.constant(-0.5)).mul_add(s, m);
    log_special(x, exponent.mul_add(x.constant(LN_2), r))
}

/// Returns the binary logarithm within 1.5 ulp; it is exact at powers of two. The result is NaN
/// below 0, and -inf at both zeros.
#[inline(always)]
pub(crate) fn log2<R: Real32>(x: R) -> R {
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
    let low = (m * m).mul_add(q, m * x.constant(1.925_963e-8));
    let r = m.mul_add(x.constant(LOG2_E), low);
    log_special(x, exponent + r)
}

/// Returns sin(x + quarter * pi/2) within 1.6 ulp, unless [`is_large_angle`]. `quarter` is 0 for
/// the sine and 1 for the cosine.
#[inline(always)]
pub(crate) fn sin_shifted<R: Real32>(x: R, quarter: u32) -> R {
    let (n, quadrant) = round(x * x.constant(FRAC_2_PI));
    let word = |number: u32| quadrant.constant(number);
    let quadrant = quadrant.wrapping_add(word(quarter));
    let r = n.mul_add(x.constant(-1.570_796_01), x);
    let r = n.mul_add(x.constant(-3.139_164_73e-7), r);
    let r = n.mul_add(x.constant(-5.390_302_53e-15), r);
    let s = r * r;
    let sin = polynomial(s, [2.865_679_56e-6, -1.985_599_23e-4, 8.333_385_88e-3, -1.666_666_72e-1]);
    let sin = sin.mul_add(r * s, r);
    let cos = polynomial(s, [2.446_770_67e-5, -1.388_772_97e-3, 4.166_665_67e-2, -0.5, 1.0]);
    let result = select((quadrant & word(1)).eq(word(0)), sin, cos);
    let result = R::from_bits(result.to_bits() ^ ((quadrant & word(2)) << 30));
    // The range reduction would lose the sign of zero.
    if quarter == 0 { select(x.eq(x.constant(0.0)), x, result) } else { result }
}

#[inline(always)]
pub(crate) fn is_large_angle<R: Real32>(x: R) -> <R as Lanes>::Mask {
    is_finite_above(x, LARGEST_FAST_ANGLE)
}

/// Computes the sine of a tile within 1.6 ulp for all finite angles. The sine of an infinity is
/// NaN.
pub(super) fn sin_tile(out: &mut [f32], x: Source<'_, f32>) {
    vectorize(
        #[inline(always)]
        || simd::map1_guarded(out, x, |x| sin_shifted(x, 0), is_large_angle, |x| libm::sin(x.into()) as f32),
    );
}

/// Computes the cosine of a tile within 1.6 ulp for all finite angles. The cosine of an infinity is
/// NaN.
pub(super) fn cos_tile(out: &mut [f32], x: Source<'_, f32>) {
    vectorize(
        #[inline(always)]
        || simd::map1_guarded(out, x, |x| sin_shifted(x, 1), is_large_angle, |x| libm::cos(x.into()) as f32),
    );
}

/// Returns the error function within 1 ulp.
#[inline(always)]
pub(crate) fn erf<R: Real32>(x: R) -> R {
    let c = |number: f32| x.constant(number);
    let t = x.abs();
    let s = x * x;
    let r = c(-1.728_534_70e-5).mul_add(t, c(3.831_971_26e-4));
    let u = c(-3.883_964_38e-3).mul_add(t, c(2.425_462_19e-2));
    let r = r.mul_add(s, u).mul_add(t, c(-1.067_778_77e-1)).mul_add(t, c(-6.348_466_87e-1));
    let r = r.mul_add(t, c(-1.287_175_12e-1)).mul_add(t, -t);
    // Above 4, the result is 1, and the polynomial is invalid.
    let tail = select(c(4.0).lt(t), c(1.0), c(1.0) - exp_of_moderate(r));
    let large = R::from_bits(tail.to_bits() | x.sign());
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
    select(c(0.927_734_4).lt(t), large, small)
}

pub(super) fn erf_tile(out: &mut [f32], x: Source<'_, f32>) {
    simd::unary(out, x, erf);
}

/// Returns the hyperbolic tangent within 2 ulp.
#[inline(always)]
pub(crate) fn tanh<R: Real32>(x: R) -> R {
    let one = x.constant(1.0);
    let t = x.abs();
    let s = x * x;
    let tail = one / (exp(t + t) + one);
    let large = tail.mul_add(x.constant(-2.0), one);
    let p = polynomial(s, [1.573_944_09e-2, -5.230_255_80e-2, 1.331_524_70e-1, -3.333_276_81e-1]);
    let small = (p * s).mul_add(t, t);
    let result = select(x.constant(0.55).lt(t), large, small);
    R::from_bits(result.to_bits() | x.sign())
}
