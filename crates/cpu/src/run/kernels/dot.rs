//! Dots of tiles: `acc[m, n] += a[m, k] * b[k, n]`.
//!
//! Each element of the accumulator is updated by fused multiply-adds (wrapping ones for integers)
//! with k ascending, so the result depends neither on the processor nor on the layout of the
//! operands. Operands narrower than the accumulator are first converted, exactly. A 16-bit
//! accumulator is computed in binary32 and rounded once at the end.
//!
//! The microkernel keeps a block of the accumulator in registers: some rows of a few vectors of
//! columns. Tiles fit into the caches, so the only purpose of packing is that rows of `b` do not
//! collide in the first-level cache. The microkernel packs one panel of columns of `b` at a time,
//! and only if more than 8 rows of `a` use the panel.

use pulp::{Simd, WithSimd};
use tilewright_ir::{Dtype, Rounding};

use super::buffer::Buffer;
use super::simd::vectorize;
use super::{cast, typed, typed_mut};
use crate::run::memory::{Axis, rearrange};
use crate::tuning::{MIN_PANEL_ROWS, PANEL_COLUMNS};

/// An operand: a tile viewed as a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// The element type.
    pub dtype: Dtype,
    /// The elements.
    pub tile: &'a [u8],
    /// The distance between rows, in elements.
    pub row_stride: usize,
    /// The distance between columns, in elements.
    pub column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Returns a dense row-major matrix.
    pub fn new(dtype: Dtype, tile: &'a [u8], columns: usize) -> Self {
        Self { dtype, tile, row_stride: columns, column_stride: 1 }
    }

    /// Returns the transpose, without moving elements.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }
}

/// The extents of a dot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extents {
    /// The number of rows of `a` and of the accumulator.
    pub m: usize,
    /// The number of columns of `b` and of the accumulator.
    pub n: usize,
    /// The number of columns of `a` and of rows of `b`.
    pub k: usize,
}

/// Working memory of dots, which the caller reuses.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    a: Buffer,
    b: Buffer,
    dense: Buffer,
    acc: Buffer,
    panel: Buffer,
}

/// Computes `acc += a * b`; `acc` is dense and row-major.
///
/// The accumulator is `fp32`, `fp64`, `int32`, `fp16` or `bf16`; it represents every element of the
/// operands exactly (wider operands are cast before). Panics if a tile is too short.
pub fn dot(
    dtype: Dtype,
    acc: &mut [u8],
    a: Matrix<'_>,
    b: Matrix<'_>,
    extents: Extents,
    scratch: &mut Scratch,
) {
    let Extents { m, n, k } = extents;
    assert!(acc.len() == m * n * dtype.bytes(), "the accumulator has m * n elements");
    let Scratch { a: a_buffer, b: b_buffer, dense, acc: wide, panel } = scratch;
    let compute = if dtype.is_float() && dtype.bytes() <= 2 { Dtype::F32 } else { dtype };
    let a = prepare(a, m, k, compute, a_buffer, dense);
    let b = prepare(b, k, n, compute, b_buffer, dense);
    match compute {
        Dtype::F64 => {
            panel.resize(k * PANEL_COLUMNS * 8);
            let panel = typed_mut(panel.bytes_mut());
            let (acc, a, b) = (typed_mut(acc), typed(a), typed(b));
            pulp::Arch::new().dispatch(Product64 { acc, a, b, extents, panel });
        }
        Dtype::F32 => {
            panel.resize(k * PANEL_COLUMNS * 4);
            let panel = typed_mut(panel.bytes_mut());
            let (a, b) = (typed(a), typed(b));
            if dtype == Dtype::F32 {
                pulp::Arch::new().dispatch(Product32 { acc: typed_mut(acc), a, b, extents, panel });
                return;
            }
            wide.resize(m * n * 4);
            let wide: &mut [f32] = typed_mut(wide.bytes_mut());
            cast::widen(dtype, wide, acc);
            pulp::Arch::new().dispatch(Product32 { acc: &mut *wide, a, b, extents, panel });
            cast::narrow(dtype, acc, wide, false);
        }
        Dtype::I32 => dot_i32(typed_mut(acc), typed(a), typed(b), extents),
        other => panic!("{other} is not an accumulator type"),
    }
}

/// Converts an operand to a dense row-major matrix of the type `to`.
fn prepare<'a>(
    matrix: Matrix<'a>,
    rows: usize,
    columns: usize,
    to: Dtype,
    buffer: &'a mut Buffer,
    dense: &mut Buffer,
) -> &'a [u8] {
    let Matrix { dtype, tile, row_stride, column_stride } = matrix;
    let size = dtype.bytes();
    let is_dense = (column_stride == 1 || columns == 1) && (row_stride == columns || rows == 1);
    if is_dense && dtype == to {
        return &tile[..rows * columns * size];
    }
    let axes = [
        Axis { count: rows, stride: (row_stride * size) as i64, tile: columns },
        Axis { count: columns, stride: (column_stride * size) as i64, tile: 1 },
    ];
    buffer.resize(rows * columns * to.bytes());
    if dtype == to {
        rearrange(size, &axes, buffer.bytes_mut(), tile, 0);
    } else if is_dense {
        cast::cast(dtype, to, Rounding::NearestEven, buffer.bytes_mut(), &tile[..rows * columns * size]);
    } else if row_stride == 1 && column_stride == rows {
        // A dense transposed matrix: transposing 32-bit elements is faster than transposing
        // narrower ones.
        dense.resize(rows * columns * to.bytes());
        cast::cast(dtype, to, Rounding::NearestEven, dense.bytes_mut(), &tile[..rows * columns * size]);
        let wide = axes.map(|axis| Axis { stride: axis.stride / size as i64 * to.bytes() as i64, ..axis });
        rearrange(to.bytes(), &wide, buffer.bytes_mut(), dense.bytes(), 0);
    } else {
        dense.resize(rows * columns * size);
        rearrange(size, &axes, dense.bytes_mut(), tile, 0);
        cast::cast(dtype, to, Rounding::NearestEven, buffer.bytes_mut(), dense.bytes());
    }
    buffer.bytes()
}

/// The dot of one float type; the names are those of `pulp`.
macro_rules! dot_kernel {
    ($product:ident, $rows:ident, $block:ident, $ty:ty, $vector:ident, $lanes:ident, $as_simd:ident, $as_mut_simd:ident,
     $splat:ident, $mul_add:ident) => {
        struct $product<'a> {
            acc: &'a mut [$ty],
            a: &'a [$ty],
            b: &'a [$ty],
            extents: Extents,
            panel: &'a mut [$ty],
        }

        impl WithSimd for $product<'_> {
            type Output = ();

            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                let Self { acc, a, b, extents, panel } = self;
                let Extents { n, k, .. } = extents;
                // 32 registers have room for 4 vectors of columns; fewer registers, for 2.
                let most = if S::REGISTER_COUNT >= 32 { 4 } else { 2 };
                let mut column = 0;
                while column < n {
                    let rest = n - column;
                    let vectors = [4, 2, 1].into_iter().find(|&v| v <= most && v * S::$lanes <= rest);
                    let width = vectors.map_or(rest, |v| v * S::$lanes);
                    // Pack the panel: rows of b that are a multiple of 1 KiB apart would share few
                    // sets of the cache.
                    let (b, stride, first) = if n > width
                        && extents.m >= MIN_PANEL_ROWS
                        && width <= PANEL_COLUMNS
                        && vectors.is_some()
                    {
                        for (to, from) in panel.chunks_exact_mut(width).zip(b.chunks_exact(n)) {
                            to.copy_from_slice(&from[column..column + width]);
                        }
                        (&panel[..k * width], width, 0)
                    } else {
                        (b, n, column)
                    };
                    let b = Columns { b, stride, first, column };
                    match vectors {
                        Some(4) => $rows::<S, 4>(simd, acc, a, b, extents),
                        Some(2) => $rows::<S, 2>(simd, acc, a, b, extents),
                        Some(_) => $rows::<S, 1>(simd, acc, a, b, extents),
                        None => narrow_columns(acc, a, b, extents, width, |a: $ty, b, c| a.mul_add(b, c)),
                    }
                    column += width;
                }
            }
        }

        /// Computes all rows of a panel of `V` vectors of columns.
        #[inline(always)]
        fn $rows<S: Simd, const V: usize>(
            simd: S,
            acc: &mut [$ty],
            a: &[$ty],
            b: Columns<'_, $ty>,
            extents: Extents,
        ) {
            let mut row = 0;
            // 6 rows of 4 vectors have 24 accumulators, which leaves registers for b and for the
            // broadcast of a. With fewer vectors, 32 registers have room for more rows.
            while row < extents.m {
                let rest = extents.m - row;
                if rest >= 6 && (V == 4 || S::REGISTER_COUNT < 32) {
                    $block::<S, 6, V>(simd, acc, a, b, extents, row);
                    row += 6;
                } else if rest >= 8 && V < 4 && S::REGISTER_COUNT >= 32 {
                    $block::<S, 8, V>(simd, acc, a, b, extents, row);
                    row += 8;
                } else if rest >= 4 {
                    $block::<S, 4, V>(simd, acc, a, b, extents, row);
                    row += 4;
                } else {
                    $block::<S, 1, V>(simd, acc, a, b, extents, row);
                    row += 1;
                }
            }
        }

        /// Computes `R` rows by `V` vectors of columns in registers.
        #[inline(always)]
        fn $block<S: Simd, const R: usize, const V: usize>(
            simd: S,
            acc: &mut [$ty],
            a: &[$ty],
            b: Columns<'_, $ty>,
            extents: Extents,
            row: usize,
        ) {
            let Extents { n, k, .. } = extents;
            let width = V * S::$lanes;
            let rows: [&[$ty]; R] = std::array::from_fn(|r| &a[(row + r) * k..][..k]);
            let mut sums = [[simd.$splat(0.0); V]; R];
            for r in 0..R {
                let (vectors, _) = S::$as_simd(&acc[(row + r) * n + b.column..][..width]);
                sums[r].copy_from_slice(&vectors[..V]);
            }
            for i in 0..k {
                let (vectors, _) = S::$as_simd(&b.b[i * b.stride + b.first..][..width]);
                let line: [S::$vector; V] = std::array::from_fn(|v| vectors[v]);
                for r in 0..R {
                    let factor = simd.$splat(rows[r][i]);
                    for v in 0..V {
                        sums[r][v] = simd.$mul_add(factor, line[v], sums[r][v]);
                    }
                }
            }
            for r in 0..R {
                let (vectors, _) = S::$as_mut_simd(&mut acc[(row + r) * n + b.column..][..width]);
                vectors[..V].copy_from_slice(&sums[r]);
            }
        }
    };
}
dot_kernel!(
    Product32,
    rows_32,
    block_32,
    f32,
    f32s,
    F32_LANES,
    as_simd_f32s,
    as_mut_simd_f32s,
    splat_f32s,
    mul_add_f32s
);
dot_kernel!(
    Product64,
    rows_64,
    block_64,
    f64,
    f64s,
    F64_LANES,
    as_simd_f64s,
    as_mut_simd_f64s,
    splat_f64s,
    mul_add_f64s
);

/// The columns of a panel.
#[derive(Clone, Copy)]
struct Columns<'a, T> {
    /// The matrix, or a packed panel of it.
    b: &'a [T],
    /// The distance between the rows of `b`, in elements.
    stride: usize,
    /// The first column in `b`.
    first: usize,
    /// The first column in the accumulator.
    column: usize,
}

/// Computes fewer columns than a vector has lanes, without vectors.
#[inline(always)]
fn narrow_columns<T: Copy>(
    acc: &mut [T],
    a: &[T],
    b: Columns<'_, T>,
    extents: Extents,
    width: usize,
    fma: impl Fn(T, T, T) -> T,
) {
    let Extents { m, n, k } = extents;
    for row in 0..m {
        let sums = &mut acc[row * n + b.column..][..width];
        for (i, &factor) in a[row * k..][..k].iter().enumerate() {
            for (sum, &value) in sums.iter_mut().zip(&b.b[i * b.stride + b.first..][..width]) {
                *sum = fma(factor, value, *sum);
            }
        }
    }
}

/// Computes a dot of integers: adds four rows of b at a time to a row of the accumulator. Wrapping
/// addition is associative, so the order does not matter.
fn dot_i32(acc: &mut [i32], a: &[i32], b: &[i32], extents: Extents) {
    let Extents { n, k, .. } = extents;
    if n == 0 || k == 0 {
        return;
    }
    vectorize(
        #[inline(always)]
        || {
            for (sums, factors) in acc.chunks_exact_mut(n).zip(a.chunks_exact(k)) {
                let (quads, rest) = factors.as_chunks::<4>();
                let (quad_rows, rest_rows) = b.split_at(quads.len() * 4 * n);
                for (factors, rows) in quads.iter().zip(quad_rows.chunks_exact(4 * n)) {
                    let (low, high) = rows.split_at(2 * n);
                    let ((row0, row1), (row2, row3)) = (low.split_at(n), high.split_at(n));
                    let rows = row0.iter().zip(row1).zip(row2.iter().zip(row3));
                    for (sum, ((b0, b1), (b2, b3))) in sums.iter_mut().zip(rows) {
                        let low = b0.wrapping_mul(factors[0]).wrapping_add(b1.wrapping_mul(factors[1]));
                        let high = b2.wrapping_mul(factors[2]).wrapping_add(b3.wrapping_mul(factors[3]));
                        *sum = sum.wrapping_add(low.wrapping_add(high));
                    }
                }
                for (factor, row) in rest.iter().zip(rest_rows.chunks_exact(n)) {
                    for (sum, value) in sums.iter_mut().zip(row) {
                        *sum = sum.wrapping_add(factor.wrapping_mul(*value));
                    }
                }
            }
        },
    );
}
