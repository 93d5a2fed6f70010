//! Computes dots of tiles: `acc[m, n] += a[m, k] * b[k, n]`.
//!
//! Fused multiply-adds update each element of the accumulator with k ascending. Integers wrap.
//! Operands narrower than the accumulator are first converted, exactly. A 16-bit accumulator is
//! computed in binary32 and rounded once. The result depends on neither the processor nor the
//! layout of the operands.
//!
//! A dot of bf16 by bf16 is an exception on a processor with instructions for it (`words`). Such an
//! instruction adds two or more exact products at a time. The dot uses fused multiply-adds instead
//! if an element is subnormal. An operand of 8 bits that the kernel casts to bf16 counts as bf16. A
//! kernel that converts operands to fp32 has the same result on all processors.
//!
//! The microkernel (`multiply`) keeps a block of the accumulator in registers, such as 6 rows of 4
//! vectors:
//! - It reads rows of `a` in place if they are contiguous and need no conversion. Otherwise, it
//!   reads a copy.
//! - It packs columns of `b` into panels, unless `a` has few rows, or `b` is a tile that fits into
//!   the caches.
//! - The dots of a launch share the panels if the launch cannot change the memory of `b`
//!   (`shared`).

use bytemuck::Pod;
use pulp::{Simd, WithSimd};
use tilewright_ir::{Dtype, Rounding};

use super::buffer::Buffer;
use super::instructions::Level;
use super::simd::vectorize;
use super::{cast, typed, typed_mut};
use crate::run::memory::{MatrixReader, Multiply, Real, multiply};
use crate::tuning::{MAX_PANEL_BYTES, MIN_PACKED_BYTES, MIN_PANEL_ROWS};

mod shared;
mod words;

use shared::{OperandB, PackedForm, SharedOperands};

/// An operand: a matrix of elements of a type.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// The element type.
    pub dtype: Dtype,
    /// The elements.
    pub elements: MatrixReader<'a>,
    /// The wider float type to which the kernel casts the elements. The dot performs this cast, and
    /// multiplies numbers of that type.
    pub cast: Option<Dtype>,
    /// True if the memory of the elements does not change during the launch. Dots may then share
    /// packed copies of the elements.
    pub is_shared: bool,
}

impl<'a> Matrix<'a> {
    /// Returns a tile as a dense row-major matrix.
    pub fn new(dtype: Dtype, tile: &'a [u8], columns: usize) -> Self {
        let rows = tile.len() / (columns * dtype.bytes()).max(1);
        let elements = MatrixReader::of_tile(tile, dtype.bytes(), [rows, columns], [columns, 1]);
        Self { dtype, elements, cast: None, is_shared: false }
    }

    fn number(&self) -> Dtype {
        self.cast.unwrap_or(self.dtype)
    }

    /// Returns the transpose, without moving elements.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { elements: self.elements.transposed(), ..self }
    }

    /// Returns the first rows and columns.
    fn part(self, extents: [usize; 2]) -> Self {
        Self { elements: self.elements.part([0, 0], extents), ..self }
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
    /// The most capable instructions that dots may use.
    level: Level,
    a: Buffer,
    b: Buffer,
    dense: Buffer,
    acc: Buffer,
    panel: Buffer,
    edge: Buffer,
    a_words: Buffer,
    b_words: Buffer,
    shared: SharedOperands,
}

impl Scratch {
    /// Prepares for the dots of another launch.
    pub fn begin_launch(&mut self) {
        self.shared.clear();
    }

    /// Returns memory for dots that use only instructions of this level and of lower levels.
    pub fn at_most(level: Level) -> Self {
        Self { level, ..Self::default() }
    }
}

/// Returns whether two consecutive dots have the result of a single dot. The first dot has `k`
/// products per element. `numbers` are the types of the multiplied numbers.
///
/// Two dots would round a 16-bit accumulator twice. AMX adds products of bf16 in groups of 32, so
/// the first dot must consist of whole groups.
pub(crate) fn may_be_divided(acc: Dtype, numbers: [Dtype; 2], k: usize) -> bool {
    acc.bytes() >= 4 && (numbers != [Dtype::BF16; 2] || k.is_multiple_of(32))
}

/// Computes `acc += a * b`; `acc` is dense and row-major.
///
/// The accumulator is `fp32`, `fp64`, `int32`, `fp16` or `bf16`. It represents every element of the
/// operands exactly: a kernel casts wider operands before the dot. Panics if an operand is too
/// small.
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
    let (a, b) = (a.part([m, k]), b.part([k, n]));
    if !(dtype.is_float() && dtype.bytes() <= 2) {
        accumulate(dtype, acc, a, b, extents, scratch);
        return;
    }
    let mut wide = std::mem::take(&mut scratch.acc);
    wide.resize(m * n * 4);
    cast::widen(dtype, typed_mut(wide.bytes_mut()), acc);
    accumulate(Dtype::F32, wide.bytes_mut(), a, b, extents, scratch);
    cast::narrow(dtype, acc, typed(wide.bytes()), false);
    scratch.acc = wide;
}

fn accumulate(
    dtype: Dtype,
    acc: &mut [u8],
    a: Matrix<'_>,
    b: Matrix<'_>,
    extents: Extents,
    scratch: &mut Scratch,
) {
    if words::dot(dtype, acc, a, b, extents, scratch) {
        return;
    }
    let Scratch { a: a_buffer, b: b_buffer, dense, panel, edge, shared, .. } = scratch;
    if dtype == Dtype::I32 {
        let (a, b) = (converted(a, dtype, a_buffer, dense), converted(b, dtype, b_buffer, dense));
        let (a, b) = (a.dense_bytes().expect("a is converted"), b.dense_bytes().expect("b is converted"));
        dot_i32(typed_mut(acc), typed(a), typed(b), extents);
        return;
    }
    let reads_in_place = a.dtype == dtype && a.elements.has_contiguous_rows();
    let a = if reads_in_place { a.elements } else { converted(a, dtype, a_buffer, dense) };
    let key = shared.key(&b, extents.m, PackedForm::Elements(dtype));
    let b = shared
        .operand(key, || if b.dtype == dtype { b.elements } else { converted(b, dtype, b_buffer, dense) });
    let arch = pulp::Arch::new();
    match dtype {
        Dtype::F64 => {
            arch.dispatch(Product { acc: typed_mut::<f64>(acc), a, b, extents, panel, edge });
        }
        Dtype::F32 => {
            arch.dispatch(Product { acc: typed_mut::<f32>(acc), a, b, extents, panel, edge });
        }
        other => panic!("{other} is not an accumulator type"),
    }
}

/// Returns an operand as a dense tile of the type `to`, in the buffer unless it already is such a
/// tile.
fn converted<'a>(
    matrix: Matrix<'a>,
    to: Dtype,
    buffer: &'a mut Buffer,
    dense: &mut Buffer,
) -> MatrixReader<'a> {
    let Matrix { dtype, elements, .. } = matrix;
    let (rows, columns) = (elements.rows(), elements.columns());
    if dtype == to && elements.is_dense_tile() {
        return elements;
    }
    buffer.resize(rows * columns * to.bytes());
    if dtype == to {
        elements.copy_to(buffer.bytes_mut(), columns);
    } else if let Some(bytes) = elements.dense_bytes() {
        cast::cast(dtype, to, Rounding::NearestEven, buffer.bytes_mut(), bytes);
    } else {
        dense.resize(rows * columns * dtype.bytes());
        elements.copy_to(dense.bytes_mut(), columns);
        cast::cast(dtype, to, Rounding::NearestEven, buffer.bytes_mut(), dense.bytes());
    }
    MatrixReader::of_tile(buffer.bytes(), to.bytes(), [rows, columns], [columns, 1])
}

struct Product<'a, T> {
    acc: &'a mut [T],
    /// Operand `a`, with contiguous rows.
    a: MatrixReader<'a>,
    b: OperandB<'a>,
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
        self.compute(T::multiply(simd));
    }
}

impl<T: Pod> Product<'_, T> {
    #[inline(always)]
    fn compute<P: Multiply<Element = T>>(mut self, product: P) {
        let lanes = P::lanes();
        let n = self.extents.n;
        if let OperandB::Shared(matrix, memory) = self.b {
            pack_all::<P>(matrix, memory);
            self.b = OperandB::Packed(memory);
        }
        let mut column = 0;
        // A block is 4 vectors wide with 32 registers, and 2 vectors wide with fewer registers.
        if P::REGISTERS >= 32 {
            column += self.panels::<P, 4>(product, column);
        }
        column += self.panels::<P, 2>(product, column);
        column += self.panels::<P, 1>(product, column);
        let rest = n - column;
        if rest == 0 {
            return;
        }
        let Self { acc, a, b, extents: Extents { m, k, .. }, panel, edge, .. } = self;
        let tile = match b {
            OperandB::Packed(tile) => &tile[column * k * size_of::<T>()..],
            OperandB::Matrix(b) | OperandB::Shared(b, _) => {
                panel.resize(k * lanes * size_of::<T>());
                b.part([0, column], [k, rest]).copy_to(panel.bytes_mut(), lanes);
                panel.bytes()
            }
        };
        edge.resize(m * lanes * size_of::<T>());
        let edge: &mut [T] = typed_mut(edge.bytes_mut());
        copy_columns((edge, lanes), (&acc[column..], n), rest);
        let b = Panels::Packed { tile, k, width: lanes };
        Columns { acc: edge, stride: lanes, a, b, panels: 1 }.rows::<P, 1>(product, m);
        copy_columns((&mut acc[column..], n), (edge, lanes), rest);
    }

    /// Computes the complete panels of `V` vectors of columns from a column on. Returns their
    /// number of columns.
    #[inline(always)]
    fn panels<P: Multiply<Element = T>, const V: usize>(&mut self, product: P, column: usize) -> usize {
        let Self { a, ref b, extents: Extents { m, n, k }, .. } = *self;
        let width = V * P::lanes();
        let panels = (n - column) / width;
        let panel_bytes = k * width * size_of::<T>();
        // The number of panels that the caches keep during the loop over the rows of `a`.
        let most = (MAX_PANEL_BYTES / panel_bytes.max(1)).max(1);
        for first in (0..panels).step_by(most) {
            let count = most.min(panels - first);
            let first_column = column + first * width;
            let b = match *b {
                OperandB::Packed(tile) => {
                    Panels::Packed { tile: &tile[first_column * k * size_of::<T>()..], k, width }
                }
                OperandB::Matrix(b) | OperandB::Shared(b, _) => {
                    let is_small = b.is_dense_tile() && k * n * size_of::<T>() < MIN_PACKED_BYTES;
                    let packs = !b.has_contiguous_rows() || m >= MIN_PANEL_ROWS && !is_small;
                    let matrix = b.part([0, first_column], [k, count * width]);
                    if packs {
                        self.panel.resize(panel_bytes * count);
                        pack::<P, V>(matrix, self.panel.bytes_mut());
                        Panels::Packed { tile: self.panel.bytes(), k, width }
                    } else {
                        Panels::InPlace { matrix, width }
                    }
                }
            };
            let acc = &mut self.acc[first_column..];
            Columns { acc, stride: n, a, b, panels: count }.rows::<P, V>(product, m);
        }
        panels * width
    }
}

/// The panels of `b`. Each panel has the columns of one block of the accumulator.
#[derive(Clone, Copy)]
enum Panels<'a> {
    /// The panels are columns of a matrix, which are read in place.
    InPlace { matrix: MatrixReader<'a>, width: usize },
    /// The panels are copies in a tile, one after another.
    Packed { tile: &'a [u8], k: usize, width: usize },
}

impl<'a> Panels<'a> {
    #[inline(always)]
    fn panel<T>(&self, index: usize) -> MatrixReader<'a> {
        match *self {
            Panels::InPlace { matrix, width } => matrix.part([0, index * width], [matrix.rows(), width]),
            Panels::Packed { tile, k, width } => {
                let tile = &tile[index * k * width * size_of::<T>()..];
                MatrixReader::of_tile(tile, size_of::<T>(), [k, width], [width, 1])
            }
        }
    }
}

/// Copies panels of `V` vectors of columns of a matrix to memory, one panel after another.
#[inline(always)]
fn pack<P: Multiply, const V: usize>(matrix: MatrixReader<'_>, memory: &mut [u8]) {
    let width = V * P::lanes();
    let (k, panels) = (matrix.rows(), matrix.columns() / width);
    let bytes = k * width * size_of::<P::Element>();
    if matrix.has_contiguous_rows() {
        matrix.pack::<P, V>(typed_mut(memory), panels);
    } else {
        for (index, panel) in memory.chunks_exact_mut(bytes.max(1)).take(panels).enumerate() {
            matrix.part([0, index * width], [k, width]).copy_to(panel, width);
        }
    }
}

/// Copies all columns of a matrix to panels, in the order in which [`Product::compute`] reads them.
#[inline(always)]
fn pack_all<P: Multiply>(matrix: MatrixReader<'_>, memory: &mut [u8]) {
    let mut column = 0;
    if P::REGISTERS >= 32 {
        column += pack_from::<P, 4>(matrix, memory, column);
    }
    column += pack_from::<P, 2>(matrix, memory, column);
    column += pack_from::<P, 1>(matrix, memory, column);
    let (k, rest) = (matrix.rows(), matrix.columns() - column);
    if rest > 0 {
        let panel = &mut memory[column * k * size_of::<P::Element>()..];
        matrix.part([0, column], [k, rest]).copy_to(panel, P::lanes());
    }
}

/// Copies the complete panels of `V` vectors of columns from a column on. Returns their number of
/// columns.
#[inline(always)]
fn pack_from<P: Multiply, const V: usize>(
    matrix: MatrixReader<'_>,
    memory: &mut [u8],
    column: usize,
) -> usize {
    let width = V * P::lanes();
    let columns = (matrix.columns() - column) / width * width;
    let row_bytes = size_of::<P::Element>() * matrix.rows();
    let part = matrix.part([0, column], [matrix.rows(), columns]);
    pack::<P, V>(part, &mut memory[column * row_bytes..(column + columns) * row_bytes]);
    columns
}

/// Copies the first `count` columns of a matrix to another matrix. `to_stride` and `stride` are the
/// distances between the rows of the two matrices.
#[inline(always)]
fn copy_columns<T: Copy>((to, to_stride): (&mut [T], usize), (from, stride): (&[T], usize), count: usize) {
    for (to, from) in to.chunks_mut(to_stride).zip(from.chunks(stride)) {
        to[..count].copy_from_slice(&from[..count]);
    }
}

/// Some panels of `b`, and the matching columns of the accumulator.
struct Columns<'a, T> {
    acc: &'a mut [T],
    stride: usize,
    a: MatrixReader<'a>,
    b: Panels<'a>,
    panels: usize,
}

impl<T: Pod> Columns<'_, T> {
    /// Computes `m` rows of panels in blocks of nearly equal numbers of rows. A block of few rows
    /// would have too few accumulators for the latency of an addition.
    #[inline(always)]
    fn rows<P: Multiply<Element = T>, const V: usize>(mut self, product: P, m: usize) {
        // 6 rows of 4 vectors have 24 accumulators. The other registers hold vectors of `b` and the
        // element of `a`. With fewer vectors, 32 registers have room for 8 rows.
        let max_rows = if V == 4 || P::REGISTERS < 32 { 6 } else { 8 };
        let mut row = 0;
        for blocks in (1..=m.div_ceil(max_rows)).rev() {
            let count = (m - row).div_ceil(blocks);
            match count {
                1 => self.block::<P, 1, V>(product, row),
                2 => self.block::<P, 2, V>(product, row),
                3 => self.block::<P, 3, V>(product, row),
                4 => self.block::<P, 4, V>(product, row),
                5 => self.block::<P, 5, V>(product, row),
                6 => self.block::<P, 6, V>(product, row),
                7 if max_rows == 8 => self.block::<P, 7, V>(product, row),
                8 if max_rows == 8 => self.block::<P, 8, V>(product, row),
                _ => unreachable!("a block has at most `max_rows` rows"),
            }
            row += count;
        }
    }

    /// Computes `R` rows of all panels.
    #[inline(always)]
    fn block<P: Multiply<Element = T>, const R: usize, const V: usize>(&mut self, product: P, row: usize) {
        let width = V * P::lanes();
        let a = self.a.part([row, 0], [R, self.a.columns()]);
        for panel in 0..self.panels {
            let acc = &mut self.acc[row * self.stride + panel * width..];
            multiply::<P, R, V>(product, acc, self.stride, a, self.b.panel::<T>(panel));
        }
    }
}

/// Computes a dot of integers, four rows of `b` at a time. Wrapping addition is associative.
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
