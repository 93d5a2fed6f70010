//! Dots of tiles: `acc[m, n] += a[m, k] * b[k, n]`.
//!
//! Each element of the accumulator is updated by fused multiply-adds (wrapping ones for integers)
//! with k ascending, so the result depends neither on the processor nor on the layout of the
//! operands. Operands narrower than the accumulator are first converted, exactly. A 16-bit
//! accumulator is computed in binary32 and rounded once at the end.
//!
//! The microkernel keeps a block of the accumulator in registers: some rows of a few vectors of
//! columns. It reads the operands where they are, because tiles fit into the caches. Only an operand
//! `b` that does not is packed, one panel of columns at a time.

use bytemuck::Pod;
use pulp::{Simd, WithSimd};
use tilewright_ir::{Dtype, Rounding};

use super::buffer::Buffer;
use super::simd::vectorize;
use super::{cast, typed, typed_mut};
use crate::run::memory::{Axis, rearrange};
use crate::tuning::{MIN_PACKED_BYTES, MIN_PANEL_ROWS};

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
    edge: Buffer,
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
    let Scratch { a: a_buffer, b: b_buffer, dense, acc: wide, panel, edge } = scratch;
    let compute = if dtype.is_float() && dtype.bytes() <= 2 { Dtype::F32 } else { dtype };
    let a = prepare(a, m, k, compute, a_buffer, dense);
    let b = prepare(b, k, n, compute, b_buffer, dense);
    let arch = pulp::Arch::new();
    match compute {
        Dtype::F64 => {
            let (acc, a, b): (&mut [f64], _, _) = (typed_mut(acc), typed(a), typed(b));
            arch.dispatch(Product { acc, a, b, extents, panel, edge });
        }
        Dtype::F32 => {
            let (a, b): (&[f32], _) = (typed(a), typed(b));
            if dtype == Dtype::F32 {
                arch.dispatch(Product { acc: typed_mut(acc), a, b, extents, panel, edge });
                return;
            }
            wide.resize(m * n * 4);
            let wide: &mut [f32] = typed_mut(wide.bytes_mut());
            cast::widen(dtype, wide, acc);
            arch.dispatch(Product { acc: &mut *wide, a, b, extents, panel, edge });
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
    } else {
        dense.resize(rows * columns * size);
        rearrange(size, &axes, dense.bytes_mut(), tile, 0);
        cast::cast(dtype, to, Rounding::NearestEven, buffer.bytes_mut(), dense.bytes());
    }
    buffer.bytes()
}

/// A float type of accumulators, with its vectors.
trait Real: Pod {
    type Vector<S: Simd>: Copy;

    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;

    fn mul_add<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;

    /// Returns the whole vectors of a slice.
    fn vectors<S: Simd>(elements: &[Self]) -> &[Self::Vector<S>];

    /// Returns the whole vectors of a slice for writing.
    fn vectors_mut<S: Simd>(elements: &mut [Self]) -> &mut [Self::Vector<S>];

    /// Returns the number of elements of a vector.
    #[inline(always)]
    fn lanes<S: Simd>() -> usize {
        size_of::<Self::Vector<S>>() / size_of::<Self>()
    }
}

/// Implements [`Real`] by functions of `pulp`.
macro_rules! impl_real {
    ($ty:ty, $vector:ident, $splat:ident, $mul_add:ident, $as_simd:ident, $as_mut_simd:ident) => {
        impl Real for $ty {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> S::$vector {
                simd.$splat(value)
            }

            #[inline(always)]
            fn mul_add<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$mul_add(a, b, c)
            }

            #[inline(always)]
            fn vectors<S: Simd>(elements: &[Self]) -> &[S::$vector] {
                S::$as_simd(elements).0
            }

            #[inline(always)]
            fn vectors_mut<S: Simd>(elements: &mut [Self]) -> &mut [S::$vector] {
                S::$as_mut_simd(elements).0
            }
        }
    };
}
impl_real!(f32, f32s, splat_f32s, mul_add_f32s, as_simd_f32s, as_mut_simd_f32s);
impl_real!(f64, f64s, splat_f64s, mul_add_f64s, as_simd_f64s, as_mut_simd_f64s);

/// A dot of dense row-major operands of the accumulator's type.
struct Product<'a, T> {
    acc: &'a mut [T],
    a: &'a [T],
    b: &'a [T],
    extents: Extents,
    /// Memory for packed columns of `b`.
    panel: &'a mut Buffer,
    /// Memory for columns of the accumulator that do not fill a vector.
    edge: &'a mut Buffer,
}

impl<T: Real> WithSimd for Product<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { acc, a, b, extents: Extents { m, n, k }, panel, edge } = self;
        let lanes = T::lanes::<S>();
        // 32 registers have room for 4 vectors of columns; fewer registers, for 2.
        let max_vectors = if S::REGISTER_COUNT >= 32 { 4 } else { 2 };
        let packs = m >= MIN_PANEL_ROWS && size_of_val(b) >= MIN_PACKED_BYTES;
        let mut column = 0;
        while column < n {
            let rest = n - column;
            let vectors = [4, 2, 1].into_iter().find(|&v| v <= max_vectors && v * lanes <= rest);
            let width = vectors.unwrap_or(1) * lanes;
            let (b, b_stride) = if packs || vectors.is_none() {
                panel.resize(k * width * size_of::<T>());
                let panel: &mut [T] = typed_mut(panel.bytes_mut());
                copy_columns((panel, width), (&b[column..], n), width.min(rest));
                (&*panel, width)
            } else {
                (&b[column..], n)
            };
            if vectors.is_none() {
                edge.resize(m * width * size_of::<T>());
                let edge: &mut [T] = typed_mut(edge.bytes_mut());
                copy_columns((edge, width), (&acc[column..], n), rest);
                Columns { acc: edge, acc_stride: width, a, b, b_stride, k }.rows::<S, 1>(simd, m);
                copy_columns((&mut acc[column..], n), (edge, width), rest);
            } else {
                let columns = Columns { acc: &mut acc[column..], acc_stride: n, a, b, b_stride, k };
                match vectors {
                    Some(4) => columns.rows::<S, 4>(simd, m),
                    Some(2) => columns.rows::<S, 2>(simd, m),
                    _ => columns.rows::<S, 1>(simd, m),
                }
            }
            column += width;
        }
    }
}

/// Copies the first columns of a matrix to another matrix; each has a distance between its rows.
#[inline(always)]
fn copy_columns<T: Copy>((to, to_stride): (&mut [T], usize), (from, stride): (&[T], usize), count: usize) {
    for (to, from) in to.chunks_mut(to_stride).zip(from.chunks(stride)) {
        to[..count].copy_from_slice(&from[..count]);
    }
}

/// Some vectors of columns of the accumulator and of `b`, which begin at their first columns.
struct Columns<'a, T> {
    acc: &'a mut [T],
    acc_stride: usize,
    a: &'a [T],
    b: &'a [T],
    b_stride: usize,
    k: usize,
}

impl<T: Real> Columns<'_, T> {
    /// Computes `m` rows of `V` vectors of columns, in blocks whose numbers of rows differ by at
    /// most one: a block of few rows has too few accumulators for the latency of an addition.
    #[inline(always)]
    fn rows<S: Simd, const V: usize>(mut self, simd: S, m: usize) {
        // 6 rows of 4 vectors have 24 accumulators, which leaves registers for b and for the
        // broadcast of a. With fewer vectors, 32 registers have room for more rows.
        let max_rows = if V == 4 || S::REGISTER_COUNT < 32 { 6 } else { 8 };
        let mut row = 0;
        for blocks in (1..=m.div_ceil(max_rows)).rev() {
            let count = (m - row).div_ceil(blocks);
            match count {
                1 => self.block::<S, 1, V>(simd, row),
                2 => self.block::<S, 2, V>(simd, row),
                3 => self.block::<S, 3, V>(simd, row),
                4 => self.block::<S, 4, V>(simd, row),
                5 => self.block::<S, 5, V>(simd, row),
                6 => self.block::<S, 6, V>(simd, row),
                7 if max_rows == 8 => self.block::<S, 7, V>(simd, row),
                8 if max_rows == 8 => self.block::<S, 8, V>(simd, row),
                _ => unreachable!("a block has at most `max_rows` rows"),
            }
            row += count;
        }
    }

    /// Computes `R` rows of `V` vectors of columns in registers.
    ///
    /// The loops over arrays call no closures: the compiler would inline only some of them, and
    /// without the instruction set of this function.
    #[inline(always)]
    fn block<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, row: usize) {
        let k = self.k;
        let width = V * T::lanes::<S>();
        let mut sums = [[T::splat(simd, T::zeroed()); V]; R];
        let mut factors = [self.a; R];
        for r in 0..R {
            let line = T::vectors::<S>(&self.acc[(row + r) * self.acc_stride..][..width]);
            sums[r].copy_from_slice(&line[..V]);
            factors[r] = &self.a[(row + r) * k..][..k];
        }
        for i in 0..k {
            let line = T::vectors::<S>(&self.b[i * self.b_stride..][..width]);
            let mut values = [line[0]; V];
            values.copy_from_slice(&line[..V]);
            for r in 0..R {
                let factor = T::splat(simd, factors[r][i]);
                for v in 0..V {
                    sums[r][v] = T::mul_add(simd, factor, values[v], sums[r][v]);
                }
            }
        }
        for r in 0..R {
            let line = T::vectors_mut::<S>(&mut self.acc[(row + r) * self.acc_stride..][..width]);
            line[..V].copy_from_slice(&sums[r]);
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
