//! Copies, packs and multiplies matrices in user memory or in tiles.
//!
//! The elements are checked once, when a reader is created.

use std::marker::PhantomData;

use bytemuck::Pod;
use pulp::Simd;

use super::plan::{Axis, extent};
use super::{Region, block};
use crate::tuning::UNROLLED_DOT_STEPS as UNROLLED;

/// A matrix in user memory or in a tile, whose elements have been checked. Like a [`Region`], it is
/// not a reference: other threads may write to user memory at the same time.
#[derive(Clone, Copy, Debug)]
pub struct MatrixReader<'a> {
    first: *const u8,
    /// The number of bytes of an element.
    size: usize,
    rows: usize,
    columns: usize,
    /// The distance between rows, in bytes.
    row_stride: isize,
    /// The distance between columns, in bytes.
    column_stride: isize,
    /// True if the matrix is in a tile. False if it is in user memory.
    is_tile: bool,
    lifetime: PhantomData<&'a ()>,
}

/// The addresses of the elements of a matrix. Equal addresses mean equal elements while the memory
/// does not change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MatrixIdentity {
    first: *const u8,
    size: usize,
    shape: [usize; 2],
    strides: [isize; 2],
}

impl<'a> MatrixReader<'a> {
    /// Returns a matrix of the elements of a tile. `row_stride` and `column_stride` are in
    /// elements. Panics if the tile is too short.
    pub fn of_tile(
        tile: &'a [u8],
        size: usize,
        [rows, columns]: [usize; 2],
        [row_stride, column_stride]: [usize; 2],
    ) -> Self {
        let last = |count: usize, stride: usize| count.saturating_sub(1).saturating_mul(stride);
        let elements = last(rows, row_stride).saturating_add(last(columns, column_stride)).saturating_add(1);
        let is_empty = rows == 0 || columns == 0;
        assert!(is_empty || elements <= tile.len() / size, "the matrix lies in the tile");
        Self {
            first: tile.as_ptr(),
            size,
            rows,
            columns,
            row_stride: (row_stride * size) as isize,
            column_stride: (column_stride * size) as isize,
            is_tile: true,
            lifetime: PhantomData,
        }
    }

    /// Returns a matrix of elements of `size` bytes in user memory, with strides in bytes. Returns
    /// `None` if it has no elements, or if an element is outside of the region.
    pub(crate) fn new(
        region: &Region<'a>,
        size: usize,
        address: u64,
        [rows, columns]: [usize; 2],
        [row_stride, column_stride]: [i64; 2],
    ) -> Option<Self> {
        let axes = [
            Axis { count: rows, stride: row_stride, tile: columns },
            Axis { count: columns, stride: column_stride, tile: 1 },
        ];
        is_inside(region, size, address, &axes).then(|| Self {
            first: region.pointer(address),
            size,
            rows,
            columns,
            row_stride: row_stride as isize,
            column_stride: column_stride as isize,
            is_tile: false,
            lifetime: PhantomData,
        })
    }

    pub(crate) fn identity(&self) -> MatrixIdentity {
        let Self { first, size, rows, columns, row_stride, column_stride, .. } = *self;
        MatrixIdentity { first, size, shape: [rows, columns], strides: [row_stride, column_stride] }
    }

    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    #[inline]
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    #[inline]
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the transpose, without moving elements.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Returns a submatrix, from its first row and column and its extents. Panics if the submatrix
    /// exceeds the matrix.
    #[inline(always)]
    #[must_use]
    pub(crate) fn part(&self, [row, column]: [usize; 2], [rows, columns]: [usize; 2]) -> MatrixReader<'a> {
        assert!(row <= self.rows && rows <= self.rows - row, "the rows are in the matrix");
        assert!(column <= self.columns && columns <= self.columns - column, "the columns are in the matrix");
        let offset = row as isize * self.row_stride + column as isize * self.column_stride;
        Self { first: self.first.wrapping_offset(offset), rows, columns, ..*self }
    }

    #[inline]
    pub(crate) fn has_contiguous_rows(&self) -> bool {
        self.column_stride == self.size as isize || self.columns <= 1
    }

    /// Returns whether the matrix is in a tile, without gaps between its elements.
    #[inline]
    pub(crate) fn is_dense_tile(&self) -> bool {
        let row = (self.columns * self.size) as isize;
        self.is_tile && self.has_contiguous_rows() && (self.row_stride == row || self.rows <= 1)
    }

    /// Returns the bytes of a dense tile, otherwise `None`.
    pub(crate) fn dense_bytes(&self) -> Option<&'a [u8]> {
        // SAFETY: the matrix was created from a tile that is borrowed for 'a, and has these bytes
        // without gaps.
        self.is_dense_tile()
            .then(|| unsafe { std::slice::from_raw_parts(self.first, self.rows * self.columns * self.size) })
    }

    /// Copies the elements to a tile whose rows are `stride` elements apart. Panics if the tile is
    /// too short.
    pub(crate) fn copy_to(&self, tile: &mut [u8], stride: usize) {
        let axes = [
            Axis { count: self.rows, stride: self.row_stride as i64, tile: stride },
            Axis { count: self.columns, stride: self.column_stride as i64, tile: 1 },
        ];
        // SAFETY: the elements were checked when the matrix was created.
        unsafe { block::load_checked(self.size, self.first.cast_mut(), &axes, tile) };
    }

    /// Copies panels of `V` vectors of columns; the rows of a panel are adjacent. Panics if the
    /// rows of the matrix are not contiguous, or if the tile is too short.
    #[inline(always)]
    pub(crate) fn pack<P: Multiply, const V: usize>(&self, tile: &mut [P::Element], panels: usize) {
        let width = V * P::lanes();
        assert!(self.size == size_of::<P::Element>() && self.has_contiguous_rows());
        assert!(panels * width <= self.columns && tile.len() >= panels * width * self.rows);
        let panel_stride = self.rows * width;
        for row in 0..self.rows {
            let from = self.first.wrapping_offset(row as isize * self.row_stride).cast::<P::Element>();
            let to = tile.as_mut_ptr().wrapping_add(row * width);
            for panel in 0..panels {
                for vector in 0..V {
                    let column = vector * P::lanes();
                    // SAFETY: the row has these columns, and the tile has room for each panel; raw
                    // accesses need no alignment.
                    unsafe {
                        let value = from.add(panel * width + column).cast::<P::Vector>().read_unaligned();
                        to.add(panel * panel_stride + column).cast::<P::Vector>().write_unaligned(value);
                    }
                }
            }
        }
    }

    /// Returns the elements as words with consecutive elements of a row. Returns `None` unless rows
    /// are contiguous and consist of whole words.
    pub(crate) fn as_words(&self) -> Option<MatrixReader<'a>> {
        let per_word = size_of::<u32>() / self.size.max(1);
        let is_divided = self.has_contiguous_rows() && self.columns.is_multiple_of(per_word.max(1));
        is_divided.then(|| Self {
            size: size_of::<u32>(),
            columns: self.columns / per_word,
            column_stride: size_of::<u32>() as isize,
            ..*self
        })
    }

    /// Returns the address of the first element, and the distance between rows in bytes. Panics if
    /// the elements are not words in contiguous rows.
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    pub(crate) fn words(&self) -> (*const u8, isize) {
        assert!(self.size == size_of::<u32>() && self.has_contiguous_rows(), "elements are words");
        (self.first, self.row_stride)
    }

    /// Returns the least value of a function of the 16-bit elements. Panics if elements have
    /// another size, or if rows are not contiguous.
    #[expect(clippy::cast_ptr_alignment, reason = "raw accesses need no alignment")]
    #[inline(always)]
    pub(crate) fn least(&self, order: impl Fn(u16) -> u16) -> u16 {
        /// The number of elements that vectors compare at a time.
        const BLOCK: usize = 64;
        assert!(self.has_contiguous_rows() && self.size == size_of::<u16>());
        let mut least = [u16::MAX; BLOCK];
        for row in 0..self.rows {
            let first = self.first.wrapping_offset(row as isize * self.row_stride).cast::<u16>();
            let mut column = 0;
            while column + BLOCK <= self.columns {
                // SAFETY: the row has these elements; raw accesses need no alignment.
                let block = unsafe { first.add(column).cast::<[u16; BLOCK]>().read_unaligned() };
                for (least, element) in least.iter_mut().zip(block) {
                    *least = (*least).min(order(element));
                }
                column += BLOCK;
            }
            for (least, column) in least.iter_mut().zip(column..self.columns) {
                // SAFETY: the row has this element; raw accesses need no alignment.
                *least = (*least).min(order(unsafe { first.add(column).read_unaligned() }));
            }
        }
        least.into_iter().fold(u16::MAX, u16::min)
    }

    /// Writes pairs of 16-bit elements of adjacent rows. Pair `[r, c]` has the elements `[2r, c]`
    /// and `[2r + 1, c]`; after the last row, the second element is 0. Panics if elements have
    /// another size, if rows are not contiguous, or if `pairs` is too short.
    #[expect(clippy::cast_ptr_alignment, reason = "raw accesses need no alignment")]
    #[inline(always)]
    pub(crate) fn interleave_rows(&self, pairs: &mut [[u16; 2]]) {
        assert!(self.has_contiguous_rows() && self.size == size_of::<u16>());
        assert!(pairs.len() >= self.rows.div_ceil(2) * self.columns);
        for (index, pairs) in pairs.chunks_exact_mut(self.columns.max(1)).enumerate() {
            let row = |row: usize| self.first.wrapping_offset(row as isize * self.row_stride).cast::<u16>();
            let (upper, lower) = (row(2 * index), row(2 * index + 1));
            let is_complete = 2 * index + 1 < self.rows;
            if is_complete {
                for (column, pair) in pairs.iter_mut().enumerate() {
                    // SAFETY: both rows have this column; raw accesses need no alignment.
                    *pair = unsafe { [upper, lower].map(|row| row.add(column).read_unaligned()) };
                }
            } else if 2 * index < self.rows {
                for (column, pair) in pairs.iter_mut().enumerate() {
                    // SAFETY: the upper row has this column; raw accesses need no alignment.
                    *pair = [unsafe { upper.add(column).read_unaligned() }, 0];
                }
            }
        }
    }

    /// Returns the sum of the signed bytes of a row. Panics if rows are not contiguous.
    #[inline(always)]
    pub(crate) fn sum_of_bytes(&self, row: usize) -> i32 {
        assert!(row < self.rows && self.has_contiguous_rows());
        let first = self.first.wrapping_offset(row as isize * self.row_stride).cast::<i8>();
        // SAFETY: the row has these bytes.
        (0..self.columns * self.size).map(|byte| i32::from(unsafe { first.add(byte).read() })).sum()
    }
}

/// Returns whether a strided block has elements, and all of them are inside of a region.
pub(crate) fn is_inside(region: &Region<'_>, size: usize, address: u64, axes: &[Axis]) -> bool {
    extent(size, axes).is_some_and(|(low, high)| {
        let bytes = high.checked_sub(low);
        bytes.is_some_and(|bytes| region.contains(address.wrapping_add_signed(low), bytes as usize))
    })
}

/// A set of multiply-add instructions: a number, or a word of narrow numbers, times each lane, plus
/// another vector. A value of the type proves that the processor has them.
pub(crate) trait Multiply: Copy {
    /// An element of both matrices and of the accumulator.
    type Element: Pod;

    /// A vector of elements, for which any bits are valid.
    type Vector: Copy;

    /// The number of vector registers.
    const REGISTERS: usize;

    fn splat(self, element: Self::Element) -> Self::Vector;

    /// Prepares a vector of B once, before the multiplication by all rows of A.
    #[inline(always)]
    fn prepare(self, b: Self::Vector) -> Self::Vector {
        b
    }

    fn mul_add(self, a: Self::Vector, b: Self::Vector, sum: Self::Vector) -> Self::Vector;

    #[inline(always)]
    fn lanes() -> usize {
        size_of::<Self::Vector>() / size_of::<Self::Element>()
    }
}

/// Fused multiply-adds of floats.
#[derive(Clone, Copy)]
pub(crate) struct FusedMultiply<S, T>(S, PhantomData<T>);

/// A float type of accumulators.
pub(crate) trait Real: Pod {
    type Multiply<S: Simd>: Multiply<Element = Self>;

    fn multiply<S: Simd>(simd: S) -> Self::Multiply<S>;
}

/// Implements [`Real`] by functions of `pulp`.
macro_rules! impl_real {
    ($ty:ty, $vector:ident, $splat:ident, $mul_add:ident) => {
        impl Real for $ty {
            type Multiply<S: Simd> = FusedMultiply<S, $ty>;

            #[inline(always)]
            fn multiply<S: Simd>(simd: S) -> FusedMultiply<S, $ty> {
                FusedMultiply(simd, PhantomData)
            }
        }

        impl<S: Simd> Multiply for FusedMultiply<S, $ty> {
            type Element = $ty;
            type Vector = S::$vector;
            const REGISTERS: usize = S::REGISTER_COUNT;

            #[inline(always)]
            fn splat(self, element: $ty) -> S::$vector {
                self.0.$splat(element)
            }

            #[inline(always)]
            fn mul_add(self, a: S::$vector, b: S::$vector, sum: S::$vector) -> S::$vector {
                self.0.$mul_add(a, b, sum)
            }
        }
    };
}
impl_real!(f32, f32s, splat_f32s, mul_add_f32s);
impl_real!(f64, f64s, splat_f64s, mul_add_f64s);

/// Adds the product of two matrices to a block of the accumulator, with k ascending. The block has
/// `R` rows, `stride` elements apart in `acc`, and `V` vectors of columns. Panics if a matrix does
/// not have the shape of the block or contiguous rows.
///
/// The block stays in registers. No loop calls a closure, because the compiler may compile closures
/// without the instruction set of this function.
#[inline(always)]
pub(crate) fn multiply<P: Multiply, const R: usize, const V: usize>(
    product: P,
    acc: &mut [P::Element],
    stride: usize,
    a: MatrixReader<'_>,
    b: MatrixReader<'_>,
) {
    let size = size_of::<P::Element>();
    let k = b.rows;
    assert!(acc.len() >= (R - 1) * stride + V * P::lanes(), "the accumulator has the block");
    assert!(a.rows >= R && a.columns >= k && a.has_contiguous_rows() && a.size == size);
    assert!(b.columns >= V * P::lanes() && b.has_contiguous_rows() && b.size == size);
    let acc = acc.as_mut_ptr();
    let mut factors = a.first;
    let mut line = b.first;
    // SAFETY: the accumulator has `R` rows of `V` vectors, `stride` elements apart. `a` has `R`
    // rows of at least `k` elements, and `b` has `k` rows of at least `V` vectors. Raw accesses
    // need no alignment.
    unsafe {
        let mut sums = [[product.splat(bytemuck::Zeroable::zeroed()); V]; R];
        for (r, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = acc.add(r * stride + v * P::lanes()).cast::<P::Vector>().read_unaligned();
            }
        }
        for _ in 0..k / UNROLLED {
            for step in 0..UNROLLED {
                add_step::<P, R, V>(
                    product,
                    &mut sums,
                    factors.wrapping_add(step * size),
                    a.row_stride,
                    line,
                );
                line = line.wrapping_offset(b.row_stride);
            }
            factors = factors.wrapping_add(UNROLLED * size);
        }
        for _ in 0..k % UNROLLED {
            add_step::<P, R, V>(product, &mut sums, factors, a.row_stride, line);
            line = line.wrapping_offset(b.row_stride);
            factors = factors.wrapping_add(size);
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                acc.add(r * stride + v * P::lanes()).cast::<P::Vector>().write_unaligned(*sum);
            }
        }
    }
}

/// Adds the products of one column of `a` and one row of `b`.
///
/// # Safety
///
/// `factors` points to an element of a column of `a` with `R` elements. `line` points to `V`
/// vectors.
#[inline(always)]
unsafe fn add_step<P: Multiply, const R: usize, const V: usize>(
    product: P,
    sums: &mut [[P::Vector; V]; R],
    factors: *const u8,
    stride: isize,
    line: *const u8,
) {
    let mut values = sums[0];
    for (v, value) in values.iter_mut().enumerate() {
        // SAFETY: the caller keeps the contract of this function.
        *value = product.prepare(unsafe { line.cast::<P::Vector>().add(v).read_unaligned() });
    }
    for (r, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller keeps the contract of this function.
        let factor = unsafe { row(factors, stride, r).cast::<P::Element>().read_unaligned() };
        let factor = product.splat(factor);
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = product.mul_add(factor, value, *sum);
        }
    }
}

/// Returns the address of a row of a block: a multiple of three strides plus 0, 1 or 2 strides.
/// Addressing modes add the latter, so a few registers address all rows.
#[inline(always)]
fn row(first: *const u8, stride: isize, row: usize) -> *const u8 {
    let (third, rest) = (row / 3, row % 3);
    first.wrapping_offset(third as isize * (3 * stride)).wrapping_offset(rest as isize * stride)
}
