//! Reduces a tile along one axis with a known combine function.
//!
//! The tile is viewed as `(outer, n, inner)`, and the result as `(outer, inner)`. The order of
//! combination depends only on the shape and the element type:
//!
//! - If `inner` is a power of two below 64 (1 for rows), there are 64 interleaved accumulators.
//!   Accumulator i combines the elements i, i + 64, i + 128, … of `[n, inner]` in row-major order.
//!   Then the upper half of the accumulators is combined with the lower half, until `inner` are
//!   left. Fewer than 64 elements have as many accumulators as the largest power of two that they
//!   fill.
//! - Otherwise, the elements are combined from the first to the last along the axis.
//!
//! For example, the sum of the row `a b c d e` has 4 accumulators: `((a + e) + c) + (b + d)`.
//!
//! Integers wrap. 16- and 8-bit floats are reduced in binary32 and rounded once. Minima and maxima
//! are those of the elementwise table, so `min` and `max` are NaN only if all elements are NaN.

use tilewright_ir::Dtype;

use super::shuffle::{SIDE, transpose_square};
use super::simd::vectorize;
use super::{Element, cast, math, typed, typed_mut};
pub use crate::program::Combine;
use crate::tuning::ACCUMULATORS;

/// The extents of the tile around the axis of reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    /// The product of the extents before the axis.
    pub outer: usize,
    /// The extent of the axis, at least 1.
    pub n: usize,
    /// The product of the extents after the axis.
    pub inner: usize,
}

/// The number of narrow floats that are widened at a time, a multiple of [`ACCUMULATORS`].
const CHUNK: usize = 1024;

/// Calls `run` of the module that uses the macro. Only minima and maxima depend on the sign.
macro_rules! integers {
    ($combine:expr, $axis:ident, $out:ident, $x:ident, $dtype:ident, $uint:ty, $int:ty) => {
        match ($combine, $dtype.is_signed()) {
            (Combine::Min | Combine::MinNan, true) => {
                run::<$int>($axis, typed_mut($out), typed($x), Ord::min);
            }
            (Combine::Max | Combine::MaxNan, true) => {
                run::<$int>($axis, typed_mut($out), typed($x), Ord::max);
            }
            (combine, _) => {
                let (out, x) = (typed_mut::<$uint>($out), typed::<$uint>($x));
                match combine {
                    Combine::Sum => run($axis, out, x, <$uint>::wrapping_add),
                    Combine::Product => run($axis, out, x, <$uint>::wrapping_mul),
                    Combine::Min | Combine::MinNan => run($axis, out, x, Ord::min),
                    Combine::Max | Combine::MaxNan => run($axis, out, x, Ord::max),
                    Combine::And => run($axis, out, x, |x, y| x & y),
                    Combine::Or => run($axis, out, x, |x, y| x | y),
                    Combine::Xor => run($axis, out, x, |x, y| x ^ y),
                }
            }
        }
    };
}

/// Combines the halves of the accumulators down to `$wanted`. The steps are unrolled, so that the
/// accumulators stay in registers.
macro_rules! halve {
    ($accumulators:ident, $count:expr, $wanted:expr, $f:ident, $($half:literal)*) => {$(
        if $count > $half && $wanted <= $half {
            for i in 0..$half {
                $accumulators[i] = $f($accumulators[i], $accumulators[i + $half]);
            }
        }
    )*};
}

/// Reduces a tile: `out[o, i] = x[o, 0, i] ∘ x[o, 1, i] ∘ …`.
///
/// Panics if a tile has the wrong length or alignment, or if floats are combined bitwise.
pub fn reduce(combine: Combine, dtype: Dtype, axis: Axis, out: &mut [u8], x: &[u8]) {
    assert!(axis.n > 0, "an axis has at least one element");
    assert!(
        x.len() == axis.outer * axis.n * axis.inner * dtype.bytes(),
        "the tile has the extents of the axis"
    );
    assert!(out.len() == axis.outer * axis.inner * dtype.bytes(), "the result lacks the axis");
    match (dtype, dtype.bytes()) {
        (Dtype::I1, _) => bools(combine, axis, out, x),
        (Dtype::F32, _) => floats_32(combine, axis, typed_mut(out), typed(x)),
        (Dtype::F64, _) => floats_64(combine, axis, typed_mut(out), typed(x)),
        _ if dtype.is_float() => narrow(combine, dtype, axis, out, x),
        (_, 1) => integers!(combine, axis, out, x, dtype, u8, i8),
        (_, 2) => integers!(combine, axis, out, x, dtype, u16, i16),
        (_, 4) => integers!(combine, axis, out, x, dtype, u32, i32),
        _ => integers!(combine, axis, out, x, dtype, u64, i64),
    }
}

/// Returns the reduction of equal elements, or `None` if it depends on their number.
pub fn of_equal_elements(combine: Combine, dtype: Dtype, bits: u64) -> Option<u64> {
    if matches!(combine, Combine::Sum | Combine::Product | Combine::Xor) {
        return None;
    }
    let (x, mut out) = ([bits], [0]);
    let bytes = dtype.bytes();
    // The result may differ from `bits`: an 8-bit format rounds an infinity to a finite number.
    let axis = Axis { outer: 1, n: 1, inner: 1 };
    let out_bytes = &mut bytemuck::cast_slice_mut(&mut out)[..bytes];
    reduce(combine, dtype, axis, out_bytes, &bytemuck::cast_slice(&x)[..bytes]);
    Some(out[0])
}

fn bools(combine: Combine, axis: Axis, out: &mut [u8], x: &[u8]) {
    match combine {
        Combine::Sum | Combine::Xor => run::<u8>(axis, out, x, |x, y| x ^ y),
        Combine::Product | Combine::And | Combine::Min | Combine::MinNan => {
            run::<u8>(axis, out, x, |x, y| x & y);
        }
        Combine::Max | Combine::MaxNan | Combine::Or => run::<u8>(axis, out, x, |x, y| x | y),
    }
}

macro_rules! floats {
    ($name:ident, $ty:ty) => {
        fn $name(combine: Combine, axis: Axis, out: &mut [$ty], x: &[$ty]) {
            match combine {
                Combine::Sum => run(axis, out, x, |x, y| x + y),
                Combine::Product => run(axis, out, x, |x, y| x * y),
                Combine::Min if quick(axis, out, x, |x, y| if y < x { y } else { x }) => {}
                Combine::Max if quick(axis, out, x, |x, y| if y > x { y } else { x }) => {}
                Combine::MinNan if quick(axis, out, x, |x, y| if y < x { y } else { x }) => {}
                Combine::MaxNan if quick(axis, out, x, |x, y| if y > x { y } else { x }) => {}
                Combine::Min => run(axis, out, x, math::min),
                Combine::Max => run(axis, out, x, math::max),
                Combine::MinNan => run(axis, out, x, math::min_nan),
                Combine::MaxNan => run(axis, out, x, math::max_nan),
                Combine::And | Combine::Or | Combine::Xor => panic!("floats are not combined bitwise"),
            }
        }
    };
}
floats!(floats_32, f32);
floats!(floats_64, f64);

/// Reduces rows to minima or maxima by comparisons. Returns whether the results are certain: no
/// element is NaN and no result is a zero. Comparisons order all other numbers, so their order does
/// not matter. Returns false without results if `inner` is not 1 or an element is NaN.
fn quick<T: Element + PartialOrd>(axis: Axis, out: &mut [T], x: &[T], f: impl Fn(T, T) -> T + Copy) -> bool {
    let zero = T::default();
    if axis.inner != 1 {
        return false;
    }
    let has_nan = vectorize(
        #[inline(always)]
        || {
            let mut has_nan = false;
            let (blocks, tail) = x.as_chunks::<ACCUMULATORS>();
            for block in blocks {
                let mut any = 0_u8;
                for value in block {
                    any |= u8::from(is_nan(*value));
                }
                has_nan |= any != 0;
            }
            has_nan | tail.iter().any(|&value| is_nan(value))
        },
    );
    if has_nan {
        return false;
    }
    run(axis, out, x, f);
    out.iter().all(|&value| value != zero)
}

#[inline(always)]
#[expect(clippy::eq_op, reason = "that is what a NaN is")]
pub(super) fn is_nan<T: PartialEq + Copy>(value: T) -> bool {
    value != value
}

/// Reduces narrow floats in binary32: many short reductions at a time, or one long reduction.
fn narrow(combine: Combine, dtype: Dtype, axis: Axis, out: &mut [u8], x: &[u8]) {
    let bytes = dtype.bytes();
    let Axis { n, inner, .. } = axis;
    if out.is_empty() {
        return;
    }
    if n * inner > CHUNK {
        let blocks = out.chunks_exact_mut(inner * bytes).zip(x.chunks_exact(n * inner * bytes));
        blocks.for_each(|(out, x)| narrow_long(combine, dtype, out, x));
        return;
    }
    let (mut wide, mut sums) = ([0.0_f32; CHUNK], [0.0_f32; CHUNK]);
    let most = CHUNK / (n * inner);
    for (out, x) in out.chunks_mut(most * inner * bytes).zip(x.chunks(most * n * inner * bytes)) {
        let wide = &mut wide[..x.len() / bytes];
        let sums = &mut sums[..out.len() / bytes];
        cast::widen(dtype, wide, x);
        floats_32(combine, Axis { outer: sums.len() / inner, n, inner }, sums, wide);
        cast::narrow(dtype, out, sums, false);
    }
}

/// Reduces `[n, inner]` narrow floats, at least [`ACCUMULATORS`], to `[inner]`.
fn narrow_long(combine: Combine, dtype: Dtype, out: &mut [u8], x: &[u8]) {
    match combine {
        Combine::Sum => run_long(dtype, out, x, |x, y| x + y),
        Combine::Product => run_long(dtype, out, x, |x, y| x * y),
        Combine::Min => run_long(dtype, out, x, math::min),
        Combine::Max => run_long(dtype, out, x, math::max),
        Combine::MinNan => run_long(dtype, out, x, math::min_nan),
        Combine::MaxNan => run_long(dtype, out, x, math::max_nan),
        Combine::And | Combine::Or | Combine::Xor => panic!("floats are not combined bitwise"),
    }
}

/// Reduces narrow floats in chunks of at most [`CHUNK`] elements. The accumulators continue from
/// chunk to chunk.
fn run_long(dtype: Dtype, out: &mut [u8], x: &[u8], f: impl Fn(f32, f32) -> f32 + Copy) {
    let bytes = dtype.bytes();
    let inner = out.len() / bytes;
    let mut wide = [0.0_f32; CHUNK];
    let mut sums = [0.0_f32; ACCUMULATORS];
    if inner < ACCUMULATORS && inner.is_power_of_two() {
        for (index, x) in x.chunks(CHUNK * bytes).enumerate() {
            let wide = &mut wide[..x.len() / bytes];
            cast::widen(dtype, wide, x);
            let (first, rest) = match wide.split_first_chunk() {
                Some((first, rest)) if index == 0 => (*first, rest),
                // tidy: wildcard because every later chunk is combined with the accumulators; the
                // first chunk has at least `ACCUMULATORS` elements
                _ => (sums, &*wide),
            };
            vectorize(
                #[inline(always)]
                || sums = fold(&first, rest, f),
            );
        }
        halve!(sums, ACCUMULATORS, inner, f, 32 16 8 4 2 1);
        cast::narrow(dtype, out, &sums[..inner], false);
        return;
    }
    for (index, out) in out.chunks_mut(ACCUMULATORS * bytes).enumerate() {
        let columns = out.len() / bytes;
        let most = CHUNK / columns;
        for (part, x) in x.chunks(most * inner * bytes).enumerate() {
            let wide = &mut wide[..x.len() / bytes / inner * columns];
            if columns == inner {
                cast::widen(dtype, wide, x);
            } else {
                let lines = wide.chunks_exact_mut(columns).zip(x.chunks_exact(inner * bytes));
                for (line, row) in lines {
                    cast::widen(dtype, line, &row[index * ACCUMULATORS * bytes..][..out.len()]);
                }
            }
            let mut rows = wide.chunks_exact(columns);
            if part == 0 {
                sums[..columns].copy_from_slice(rows.next().expect("an axis has at least one element"));
            }
            vectorize(
                #[inline(always)]
                || fold_columns(&mut sums, rows, f),
            );
        }
        cast::narrow(dtype, out, &sums[..columns], false);
    }
}

/// Reduces with an inlined combine function.
fn run<T: Element>(axis: Axis, out: &mut [T], x: &[T], f: impl Fn(T, T) -> T + Copy) {
    let Axis { n, inner, .. } = axis;
    if out.is_empty() {
        return;
    }
    // Reduces many rows in squares of `SIDE` rows.
    let (mut out, mut x) = (out, x);
    if inner == 1 && n >= SIDE && size_of::<T>() == size_of::<u32>() {
        let whole = out.len() - out.len() % SIDE;
        let (square_out, square_x);
        (square_out, out) = out.split_at_mut(whole);
        (square_x, x) = x.split_at(whole * n);
        let squares = square_out.chunks_exact_mut(SIDE).zip(square_x.chunks_exact(SIDE * n));
        vectorize(
            #[inline(always)]
            || {
                for (out, block) in squares {
                    rows(out, block, f);
                }
            },
        );
    }
    let blocks = out.chunks_exact_mut(inner).zip(x.chunks_exact(n * inner));
    // These are loops and not `for_each`, which would not be compiled for the instruction set.
    if inner < ACCUMULATORS && inner.is_power_of_two() {
        vectorize(
            #[inline(always)]
            || {
                for (out, block) in blocks {
                    horizontal(out, block, f);
                }
            },
        );
    } else {
        vectorize(
            #[inline(always)]
            || {
                for (out, block) in blocks {
                    vertical(out, block, f);
                }
            },
        );
    }
}

/// Combines rows of accumulators into the first row, a few columns at a time, so that they stay in
/// registers.
#[inline(always)]
fn fold_rows<T: Element>(
    first: &[T; ACCUMULATORS],
    rows: &[[T; ACCUMULATORS]],
    f: impl Fn(T, T) -> T + Copy,
) -> [T; ACCUMULATORS] {
    /// 32 elements of 32 bits are two registers of 512 bits.
    const PART: usize = 32;
    let mut accumulators = *first;
    for (index, part) in accumulators.as_chunks_mut::<PART>().0.iter_mut().enumerate() {
        let mut sums = *part;
        for row in rows {
            let row = &row.as_chunks::<PART>().0[index];
            for i in 0..PART {
                sums[i] = f(sums[i], row[i]);
            }
        }
        *part = sums;
    }
    accumulators
}

/// Combines a block, in row-major order, with the accumulators `first`.
#[inline(always)]
fn fold<T: Element>(
    first: &[T; ACCUMULATORS],
    block: &[T],
    f: impl Fn(T, T) -> T + Copy,
) -> [T; ACCUMULATORS] {
    let (rows, tail) = block.as_chunks::<ACCUMULATORS>();
    let mut accumulators = fold_rows(first, rows, f);
    if !tail.is_empty() {
        // An array that is indexed at run time stays in memory, so this is a copy.
        let mut all = accumulators;
        for (accumulator, &value) in all.iter_mut().zip(tail) {
            *accumulator = f(*accumulator, value);
        }
        accumulators = all;
    }
    accumulators
}

/// Returns the accumulators of a block, and their number. The rest of the array is unspecified.
#[inline(always)]
fn accumulators<T: Element>(block: &[T], f: impl Fn(T, T) -> T + Copy) -> ([T; ACCUMULATORS], usize) {
    if let Some((first, rest)) = block.split_first_chunk::<ACCUMULATORS>() {
        return (fold(first, rest, f), ACCUMULATORS);
    }
    let mut accumulators = [T::default(); ACCUMULATORS];
    let count = 1 << block.len().ilog2();
    accumulators[..count].copy_from_slice(&block[..count]);
    for (accumulator, &value) in accumulators.iter_mut().zip(&block[count..]) {
        *accumulator = f(*accumulator, value);
    }
    (accumulators, count)
}

/// Reduces `[n, inner]` elements to `[inner]` with interleaved accumulators. The length of `out`
/// divides [`ACCUMULATORS`].
#[inline(always)]
fn horizontal<T: Element>(out: &mut [T], block: &[T], f: impl Fn(T, T) -> T + Copy) {
    let (mut accumulators, count) = accumulators(block, f);
    halve!(accumulators, count, out.len(), f, 32 16 8 4 2 1);
    out.copy_from_slice(&accumulators[..out.len()]);
}

/// Reduces [`SIDE`] rows of at least [`SIDE`] 32-bit elements, with the results of [`horizontal`].
/// Transposes the last [`SIDE`] accumulators of the rows, and combines them side by side.
#[inline(always)]
fn rows<T: Element>(out: &mut [T], block: &[T], f: impl Fn(T, T) -> T + Copy) {
    let mut square = [[T::default(); SIDE]; SIDE];
    for (line, row) in square.iter_mut().zip(block.chunks_exact(block.len() / SIDE)) {
        let (mut accumulators, count) = accumulators(row, f);
        halve!(accumulators, count, SIDE, f, 32 16);
        line.copy_from_slice(&accumulators[..SIDE]);
    }
    transpose_square(bytemuck::cast_mut(&mut square));
    for half in [8, 4, 2, 1] {
        let (lower, upper) = square.split_at_mut(half);
        for (lower, upper) in lower.iter_mut().zip(upper) {
            for i in 0..SIDE {
                lower[i] = f(lower[i], upper[i]);
            }
        }
    }
    out.copy_from_slice(&square[0]);
}

/// Reduces `[n, inner]` elements to `[inner]`, row by row.
#[inline(always)]
fn vertical<T: Element>(out: &mut [T], block: &[T], f: impl Fn(T, T) -> T + Copy) {
    let inner = out.len();
    for (index, out) in out.chunks_mut(ACCUMULATORS).enumerate() {
        let width = out.len();
        let mut sums = [T::default(); ACCUMULATORS];
        let mut rows = block.chunks_exact(inner).map(|row| &row[index * ACCUMULATORS..][..width]);
        sums[..width].copy_from_slice(rows.next().expect("an axis has at least one element"));
        fold_columns(&mut sums, rows, f);
        out.copy_from_slice(&sums[..width]);
    }
}

/// Combines rows with the accumulators of at most [`ACCUMULATORS`] columns.
#[inline(always)]
fn fold_columns<'a, T: Element>(
    sums: &mut [T; ACCUMULATORS],
    rows: impl Iterator<Item = &'a [T]>,
    f: impl Fn(T, T) -> T + Copy,
) {
    for row in rows {
        match row.first_chunk::<ACCUMULATORS>() {
            Some(row) => {
                for i in 0..ACCUMULATORS {
                    sums[i] = f(sums[i], row[i]);
                }
            }
            None => {
                for (sum, &value) in sums.iter_mut().zip(row) {
                    *sum = f(*sum, value);
                }
            }
        }
    }
}
