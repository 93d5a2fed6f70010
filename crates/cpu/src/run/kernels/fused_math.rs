//! Computes the functions of [`fused`](super::fused) on blocks, with the results of the elementwise
//! table.

use std::hint::black_box;

use pulp::Simd;

use super::math32::{EXP, EXP_BOUNDS, EXP_REDUCTION, EXP2, EXP2_BOUNDS, SHIFTER};
use crate::program::fused::{Binary, Unary};

pub(super) type Block<S, const N: usize> = [<S as Simd>::f32s; N];

/// Calls a function for each register of a block. The compiler's own unrolling may come too late to
/// keep the block in registers.
#[inline(always)]
pub(super) fn unrolled<const N: usize>(mut each: impl FnMut(usize)) {
    macro_rules! calls {
        ($($i:literal)*) => {{ $(each($i);)* }};
    }
    match N {
        1 => calls!(0),
        2 => calls!(0 1),
        4 => calls!(0 1 2 3),
        8 => calls!(0 1 2 3 4 5 6 7),
        _ => {
            for i in 0..N {
                each(i);
            }
        }
    }
}

/// Combines a block with an operand, whose registers the closure returns.
#[inline(always)]
pub(super) fn apply<S: Simd, const N: usize>(
    simd: S,
    function: Binary,
    x: Block<S, N>,
    y: impl Fn(usize) -> S::f32s,
) -> Block<S, N> {
    let mut out = x;
    macro_rules! each {
        ($i:ident => $value:expr) => {
            unrolled::<N>(
                #[inline(always)]
                |$i| out[$i] = $value,
            )
        };
    }
    match function {
        Binary::Take => each!(i => y(i)),
        Binary::Add => each!(i => simd.add_f32s(x[i], y(i))),
        Binary::Sub => each!(i => simd.sub_f32s(x[i], y(i))),
        Binary::SubFrom => each!(i => simd.sub_f32s(y(i), x[i])),
        Binary::Mul => each!(i => simd.mul_f32s(x[i], y(i))),
        Binary::Div => each!(i => simd.div_f32s(x[i], y(i))),
        Binary::DivInto => each!(i => simd.div_f32s(y(i), x[i])),
        Binary::Min => each!(i => {
            let (x, y) = (x[i], y(i));
            let less = simd.select_f32s(simd.less_than_f32s(x, y), x, y);
            extreme(simd, x, y, less, simd.or_u32s(bits(simd, x), bits(simd, y)))
        }),
        Binary::Max => each!(i => {
            let (x, y) = (x[i], y(i));
            let more = simd.select_f32s(simd.greater_than_f32s(x, y), x, y);
            extreme(simd, x, y, more, simd.and_u32s(bits(simd, x), bits(simd, y)))
        }),
    }
    out
}

#[inline(always)]
pub(super) fn apply_alone<S: Simd, const N: usize>(simd: S, function: Unary, x: Block<S, N>) -> Block<S, N> {
    let mut out = x;
    macro_rules! each {
        ($x:ident => $value:expr) => {
            unrolled::<N>(
                #[inline(always)]
                |i| {
                    let $x = x[i];
                    out[i] = $value;
                },
            )
        };
    }
    match function {
        Unary::Neg => each!(x => simd.neg_f32s(x)),
        Unary::Abs => each!(x => simd.abs_f32s(x)),
        Unary::Sqrt => each!(x => simd.sqrt_f32s(x)),
        Unary::Square => each!(x => simd.mul_f32s(x, x)),
        Unary::Exp => out = exp::<S, N>(simd, x),
        Unary::Exp2 => out = exp2::<S, N>(simd, x),
    }
    out
}

#[inline(always)]
fn bits<S: Simd>(simd: S, x: S::f32s) -> S::u32s {
    simd.transmute_u32s_f32s(x)
}

/// Returns the minimum or maximum, as [`math`](super::math) defines it. The result is x if y is
/// NaN, `of_equals` if x equals y, and otherwise `compared`. Equal numbers may be zeros of
/// different signs.
#[inline(always)]
fn extreme<S: Simd>(simd: S, x: S::f32s, y: S::f32s, compared: S::f32s, of_equals: S::u32s) -> S::f32s {
    let of_equals = simd.transmute_f32s_u32s(of_equals);
    let ordered = simd.select_f32s(simd.equal_f32s(x, y), of_equals, compared);
    simd.select_f32s(simd.equal_f32s(y, y), ordered, x)
}

#[inline(always)]
pub(super) fn any_above<S: Simd>(simd: S, x: S::u32s, limit: u32) -> bool {
    simd.first_true_m32s(simd.greater_than_u32s(x, simd.splat_u32s(limit))) < S::F32_LANES
}

/// Returns whether any element is NaN.
#[inline(always)]
pub(super) fn any_nan<S: Simd>(simd: S, x: S::f32s) -> bool {
    // The bits of a NaN, as an integer, are larger than those of any number.
    any_above(simd, bits(simd, simd.abs_f32s(x)), f32::INFINITY.to_bits())
}

/// The bounds of the magnitudes, as bits, for which neither quotient nor remainder underflows or
/// overflows.
const DIVISIBLE: [u32; 2] = [(127 - 60) << 23, (127 + 60) << 23];

/// Returns the reciprocal of a divisor that [`quotient`] accepts.
#[inline(always)]
pub(super) fn reciprocal(divisor: f32) -> Option<f32> {
    let [least, most] = DIVISIBLE;
    (least..=most).contains(&divisor.abs().to_bits()).then(|| 1.0 / divisor)
}

/// Divides the block by a number, correctly rounded, in half the time of a division.
///
/// The product with the reciprocal is off by less than two units in the last place. Its remainder
/// determines the correct quotient. (Source: Markstein, Computation of elementary functions on the
/// IBM RISC System/6000 processor, 1990.) An exhaustive test over all divisors found no wrong
/// rounding near a midpoint.
#[inline(always)]
pub(super) fn quotient<S: Simd, const N: usize>(
    simd: S,
    x: Block<S, N>,
    divisor: f32,
    reciprocal: f32,
) -> Block<S, N> {
    let [least, most] = DIVISIBLE;
    let mut furthest = simd.splat_u32s(0);
    let first = simd.splat_u32s(least);
    unrolled::<N>(
        #[inline(always)]
        |i| furthest = simd.max_u32s(furthest, simd.sub_u32s(bits(simd, simd.abs_f32s(x[i])), first)),
    );
    if any_above(simd, furthest, most - least) {
        let divisor = simd.splat_f32s(divisor);
        return apply::<S, N>(simd, Binary::Div, x, |_| divisor);
    }
    let (minus, reciprocal) = (simd.splat_f32s(-divisor), simd.splat_f32s(reciprocal));
    let mut out = x;
    unrolled::<N>(
        #[inline(always)]
        |i| {
            let near = simd.mul_f32s(x[i], reciprocal);
            let left = simd.mul_add_f32s(near, minus, x[i]);
            out[i] = simd.mul_add_f32s(left, reciprocal, near);
        },
    );
    out
}

/// Clamps x between two bounds. If x is NaN, the result is NaN.
#[inline(always)]
fn clamp<S: Simd>(simd: S, x: S::f32s, [low, high]: [f32; 2]) -> S::f32s {
    let (low, high) = (simd.splat_f32s(low), simd.splat_f32s(high));
    let x = simd.select_f32s(simd.less_than_f32s(x, low), low, x);
    simd.select_f32s(simd.greater_than_f32s(x, high), high, x)
}

#[inline(always)]
fn polynomial<S: Simd, const K: usize>(simd: S, x: S::f32s, coefficients: &[f32; K]) -> S::f32s {
    let mut sum = simd.splat_f32s(coefficients[0]);
    for &coefficient in &coefficients[1..] {
        sum = simd.mul_add_f32s(sum, x, simd.splat_f32s(coefficient));
    }
    sum
}

/// The constants of an exponential. `black_box` makes each use read them from memory. In registers,
/// they would displace the blocks of the fused loop.
struct Exponential<const K: usize> {
    bounds: [f32; 2],
    /// Below this magnitude of the argument, the result is neither subnormal nor infinite.
    moderate: f32,
    shifter: f32,
    log2_e: f32,
    reduction: [f32; 2],
    coefficients: [f32; K],
}

/// Computes [`math32::exp`](super::math32::exp) of a block.
#[inline(always)]
fn exp<S: Simd, const N: usize>(simd: S, x: Block<S, N>) -> Block<S, N> {
    const NUMBERS: Exponential<7> = Exponential {
        bounds: EXP_BOUNDS,
        moderate: 86.0,
        shifter: SHIFTER,
        log2_e: std::f32::consts::LOG2_E,
        reduction: EXP_REDUCTION,
        coefficients: EXP,
    };
    let numbers = black_box(&NUMBERS);
    let (shifter, log2_e) = (simd.splat_f32s(numbers.shifter), simd.splat_f32s(numbers.log2_e));
    let (high, low) = (simd.splat_f32s(numbers.reduction[0]), simd.splat_f32s(numbers.reduction[1]));
    scaled::<S, N>(
        simd,
        x,
        numbers.bounds,
        numbers.moderate,
        #[inline(always)]
        |x: S::f32s| {
            let shifted = simd.add_f32s(simd.mul_f32s(x, log2_e), shifter);
            let n = simd.sub_f32s(shifted, shifter);
            let r = simd.mul_add_f32s(n, high, x);
            let r = simd.mul_add_f32s(n, low, r);
            (polynomial(simd, r, &numbers.coefficients), shifted)
        },
    )
}

/// Computes [`math32::exp2`](super::math32::exp2) of a block.
#[inline(always)]
fn exp2<S: Simd, const N: usize>(simd: S, x: Block<S, N>) -> Block<S, N> {
    const NUMBERS: Exponential<8> = Exponential {
        bounds: EXP2_BOUNDS,
        moderate: 124.0,
        shifter: SHIFTER,
        log2_e: 1.0,
        reduction: [0.0; 2],
        coefficients: EXP2,
    };
    let numbers = black_box(&NUMBERS);
    let shifter = simd.splat_f32s(numbers.shifter);
    scaled::<S, N>(
        simd,
        x,
        numbers.bounds,
        numbers.moderate,
        #[inline(always)]
        |x: S::f32s| {
            let shifted = simd.add_f32s(x, shifter);
            let r = simd.sub_f32s(x, simd.sub_f32s(shifted, shifter));
            (polynomial(simd, r, &numbers.coefficients), shifted)
        },
    )
}

/// Computes p * 2^n for a block. `parts` returns p and n + [`SHIFTER`]. For moderate arguments,
/// adding n to the exponent of p has the same result, faster.
#[inline(always)]
fn scaled<S: Simd, const N: usize>(
    simd: S,
    x: Block<S, N>,
    bounds: [f32; 2],
    moderate: f32,
    parts: impl Fn(S::f32s) -> (S::f32s, S::f32s),
) -> Block<S, N> {
    let mut largest = simd.splat_u32s(0);
    unrolled::<N>(
        #[inline(always)]
        |i| largest = simd.max_u32s(largest, bits(simd, simd.abs_f32s(x[i]))),
    );
    let mut out = x;
    if any_above(simd, largest, moderate.to_bits()) {
        unrolled::<N>(
            #[inline(always)]
            |i| {
                let (p, shifted) = parts(clamp(simd, x[i], bounds));
                out[i] = scale(simd, p, shifted);
            },
        );
    } else {
        unrolled::<N>(
            #[inline(always)]
            |i| {
                let (p, shifted) = parts(x[i]);
                // The low bits of n + SHIFTER are n. The shift drops the others.
                let n = simd.wrapping_dyn_shl_u32s(bits(simd, shifted), simd.splat_u32s(23));
                out[i] = simd.transmute_f32s_u32s(simd.add_u32s(bits(simd, p), n));
            },
        );
    }
    out
}

/// Returns x * 2^n in two steps, so that a subnormal result is rounded once. `shifted` is n +
/// [`SHIFTER`].
#[inline(always)]
fn scale<S: Simd>(simd: S, x: S::f32s, shifted: S::f32s) -> S::f32s {
    /// An even number whose sum with n is positive.
    const BIAS: u32 = 1024;
    let n = simd.sub_u32s(bits(simd, shifted), simd.splat_u32s(SHIFTER.to_bits() - BIAS));
    let half = simd.wrapping_dyn_shr_u32s(n, simd.splat_u32s(1));
    let rest = simd.sub_u32s(n, half);
    let power = |n: S::u32s| {
        let exponent = simd.sub_u32s(n, simd.splat_u32s(BIAS / 2 - 127));
        simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(exponent, simd.splat_u32s(23)))
    };
    simd.mul_f32s(simd.mul_f32s(x, power(half)), power(rest))
}
