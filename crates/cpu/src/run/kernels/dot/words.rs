//! Computes dots of narrow elements by instructions that multiply words.
//!
//! The elements are bf16 with a binary32 accumulator, or 8-bit integers with a 32-bit accumulator.
//! A word has 2 or 4 elements with consecutive k. Rows of `a` are read in place as words. `b` is
//! interleaved, here for bf16:
//!
//! ```text
//! rows of b:      b00 b01 …      rows of words:  (b00 b10) (b01 b11) …
//!                 b10 b11 …
//! ```
//!
//! Elements after the last k are 0.

use tilewright_ir::Dtype;

use super::shared::{OperandB, PackedForm};
use super::{Extents, Matrix, Product, Scratch, converted};
use crate::run::kernels::buffer::Buffer;
use crate::run::kernels::instructions::{
    Amx, Avx512Bf16, Avx512Vnni, AvxVnni, Level, MultiplyAdd, TileProduct, WordToken,
};
use crate::run::kernels::simd::vectorize;
use crate::run::kernels::typed_mut;
use crate::run::memory::MatrixReader;

#[derive(Clone, Copy)]
enum Instructions {
    Amx(Amx, TileProduct),
    Bf16(Avx512Bf16),
    Avx512Vnni(Avx512Vnni),
    AvxVnni(AvxVnni),
    MultiplyAdd(MultiplyAdd),
}

impl Instructions {
    fn name(self) -> &'static str {
        match self {
            Instructions::Amx(..) => "amx",
            Instructions::Bf16(_) => "avx512-bf16",
            Instructions::Avx512Vnni(_) => "avx512-vnni",
            Instructions::AvxVnni(_) => "avx-vnni",
            Instructions::MultiplyAdd(_) => "avx2",
        }
    }
}

/// Chooses the most capable instructions for the operands up to a level, or `None`.
fn choose(
    compute: Dtype,
    a: &Matrix<'_>,
    b: &Matrix<'_>,
    extents: Extents,
    level: Level,
) -> Option<Instructions> {
    let Extents { m, n, k } = extents;
    let tiles = |product| {
        let row_bytes = k * a.number().bytes();
        let amx = Amx::new().filter(|_| level >= Level::Amx && Amx::accepts(m, n, row_bytes));
        amx.map(|amx| Instructions::Amx(amx, product))
    };
    let at_least = |other: Level| level >= other;
    match (compute, a.number(), b.number()) {
        (Dtype::F32, Dtype::BF16, Dtype::BF16) => {
            let vectors = || Avx512Bf16::new().filter(|_| at_least(Level::Avx512)).map(Instructions::Bf16);
            tiles(TileProduct::Bf16).or_else(vectors)
        }
        (Dtype::I32, Dtype::I8 | Dtype::U8, Dtype::I8 | Dtype::U8) => {
            let is_signed = a.dtype == Dtype::I8;
            let product = match (is_signed, b.dtype == Dtype::I8) {
                (true, true) => TileProduct::SignedSigned,
                (true, false) => TileProduct::SignedUnsigned,
                (false, true) => TileProduct::UnsignedSigned,
                (false, false) => TileProduct::UnsignedUnsigned,
            };
            let avx_512 = || Avx512Vnni::new().filter(|_| is_signed && at_least(Level::Avx512));
            let avx = || AvxVnni::new().filter(|_| is_signed && at_least(Level::AvxVnni));
            let multiply_add = || MultiplyAdd::new().filter(|_| at_least(Level::MultiplyAdd));
            tiles(product)
                .or_else(|| avx_512().map(Instructions::Avx512Vnni))
                .or_else(|| avx().map(Instructions::AvxVnni))
                .or_else(|| multiply_add().map(Instructions::MultiplyAdd))
        }
        // tidy: wildcard because no instruction multiplies words of other types
        _ => None,
    }
}

/// Computes a dot by instructions on words. The accumulator is binary32 or int32, and dense.
///
/// Returns false, without a change, if the processor has no such instructions. Also returns false
/// if an element of bf16 is subnormal: the instructions would read it as 0.
pub(super) fn dot(
    compute: Dtype,
    acc: &mut [u8],
    a: Matrix<'_>,
    b: Matrix<'_>,
    extents: Extents,
    scratch: &mut Scratch,
) -> bool {
    let Some(instructions) = choose(compute, &a, &b, extents, scratch.level) else { return false };
    let Scratch { a: a_buffer, b: b_buffer, dense, panel, edge, a_words, b_words, shared, .. } = scratch;
    let is_bf16 = matches!(instructions, Instructions::Bf16(_) | Instructions::Amx(_, TileProduct::Bf16));
    // An 8-bit float that is cast to bf16 is never subnormal.
    let mut is_subnormal = |operand: &Matrix<'_>| {
        operand.dtype == Dtype::BF16
            && shared.has_subnormals(operand, || has_subnormals(operand.elements, dense))
    };
    if is_bf16 && (is_subnormal(&a) || is_subnormal(&b)) {
        return false;
    }
    let is_signed = b.dtype == Dtype::I8;
    let acc: &mut [u32] = typed_mut(acc);
    let element = |matrix: &Matrix<'_>| match instructions {
        Instructions::MultiplyAdd(_) => Dtype::I16,
        Instructions::Amx(..)
        | Instructions::Bf16(_)
        | Instructions::Avx512Vnni(_)
        | Instructions::AvxVnni(_) => matrix.number(),
    };
    let a_element = element(&a);
    let a = if a.dtype == a_element { a.elements } else { converted(a, a_element, a_buffer, dense) };
    let a = words_of_rows(a, a_words);
    let key = shared.key(&b, extents.m, PackedForm::Words(instructions.name()));
    let b = shared.operand(key, || {
        let b_element = element(&b);
        let has_contiguous_columns = b.elements.transposed().has_contiguous_rows();
        let b = if b.dtype == b_element {
            b.elements
        } else if has_contiguous_columns && !b.elements.has_contiguous_rows() {
            converted(b.transposed(), b_element, b_buffer, dense).transposed()
        } else {
            converted(b, b_element, b_buffer, dense)
        };
        words_of_columns(b, b_words, dense)
    });
    let extents = Extents { k: a.columns(), ..extents };
    match instructions {
        Instructions::Amx(amx, product) => {
            let n = extents.n;
            let of_rows = |bytes| MatrixReader::of_tile(bytes, size_of::<u32>(), [a.columns(), n], [n, 1]);
            let b = match b {
                OperandB::Matrix(words) => contiguous(words, panel),
                OperandB::Shared(words, memory) => {
                    words.copy_to(memory, n);
                    of_rows(memory)
                }
                OperandB::Packed(bytes) => of_rows(bytes),
            };
            amx.multiply(product, acc, a, b);
        }
        Instructions::Bf16(token) => run(token, Product { acc, a, b, extents, panel, edge }),
        Instructions::AvxVnni(token) if is_signed => {
            subtract_offset(acc, a, extents);
            run(token.with_flipped_signs(), Product { acc, a, b, extents, panel, edge });
        }
        Instructions::AvxVnni(token) => run(token, Product { acc, a, b, extents, panel, edge }),
        Instructions::Avx512Vnni(token) if is_signed => {
            subtract_offset(acc, a, extents);
            run(token.with_flipped_signs(), Product { acc, a, b, extents, panel, edge });
        }
        Instructions::Avx512Vnni(token) => run(token, Product { acc, a, b, extents, panel, edge }),
        Instructions::MultiplyAdd(token) => run(token, Product { acc, a, b, extents, panel, edge }),
    }
    true
}

/// Returns whether a matrix of bf16 has a subnormal element.
fn has_subnormals(matrix: MatrixReader<'_>, dense: &mut Buffer) -> bool {
    let matrix = if matrix.has_contiguous_rows() {
        matrix
    } else if matrix.transposed().has_contiguous_rows() {
        matrix.transposed()
    } else {
        copied(matrix, dense)
    };
    vectorize(
        #[inline(always)]
        || {
            // The magnitude bits of a subnormal bf16 are from 1 to 0x7f. Subtracting 1 turns zero
            // into the largest integer.
            let order = |bits: u16| (bits & 0x7fff).wrapping_sub(1);
            matrix.least(order) < 0x7f
        },
    )
}

fn run<P: WordToken>(token: P, product: Product<'_, u32>) {
    token.vectorize(
        #[inline(always)]
        || product.compute(token),
    );
}

/// Corrects the accumulator before a dot with flipped sign bits of `b`.
///
/// The instruction reads a flipped byte as unsigned, which adds 128 to the signed byte. Each
/// element of the accumulator thus gets 128 times the sum of its row of `a` too much. This function
/// subtracts this excess.
fn subtract_offset(acc: &mut [u32], a: MatrixReader<'_>, extents: Extents) {
    vectorize(
        #[inline(always)]
        || {
            for (row, sums) in acc.chunks_exact_mut(extents.n.max(1)).enumerate() {
                let offset = a.sum_of_bytes(row).wrapping_mul(128).cast_unsigned();
                for sum in sums {
                    *sum = sum.wrapping_sub(offset);
                }
            }
        },
    );
}

/// Returns the matrix as words with consecutive elements of rows. Copies it to the buffer, padded
/// with zeros, if the rows do not consist of whole words.
fn words_of_rows<'a>(matrix: MatrixReader<'a>, buffer: &'a mut Buffer) -> MatrixReader<'a> {
    if let Some(words) = matrix.as_words() {
        return words;
    }
    let per_word = size_of::<u32>() / matrix.size();
    let (rows, columns) = (matrix.rows(), matrix.columns().div_ceil(per_word));
    buffer.resize(rows * columns * size_of::<u32>());
    buffer.bytes_mut().fill(0);
    matrix.copy_to(buffer.bytes_mut(), columns * per_word);
    MatrixReader::of_tile(buffer.bytes(), size_of::<u32>(), [rows, columns], [columns, 1])
}

/// Returns the matrix as words with consecutive elements of columns.
fn words_of_columns<'a>(
    matrix: MatrixReader<'a>,
    buffer: &'a mut Buffer,
    dense: &mut Buffer,
) -> MatrixReader<'a> {
    if !matrix.has_contiguous_rows()
        && let Some(words) = matrix.transposed().as_words()
    {
        return words.transposed();
    }
    let size = matrix.size();
    let per_word = size_of::<u32>() / size;
    let (rows, columns) = (matrix.rows().div_ceil(per_word), matrix.columns());
    buffer.resize(rows * columns * size_of::<u32>());
    let is_in_place = matrix.is_dense_tile() || size == 2 && matrix.has_contiguous_rows();
    let matrix = if is_in_place { matrix } else { copied(matrix, dense) };
    let words = buffer.bytes_mut();
    match size {
        1 => {
            let elements = matrix.dense_bytes().expect("the tile is dense");
            vectorize(
                #[inline(always)]
                || interleave4(typed_mut(words), elements, columns),
            );
        }
        _ => vectorize(
            #[inline(always)]
            || matrix.interleave_rows(typed_mut(words)),
        ),
    }
    MatrixReader::of_tile(buffer.bytes(), size_of::<u32>(), [rows, columns], [columns, 1])
}

/// Interleaves groups of 4 rows of bytes to rows of words. Zeros complete the last group.
#[inline(always)]
fn interleave4(words: &mut [[u8; 4]], elements: &[u8], columns: usize) {
    let columns = columns.max(1);
    for (words, rows) in words.chunks_exact_mut(columns).zip(elements.chunks(4 * columns)) {
        if rows.len() == 4 * columns {
            let (low, high) = rows.split_at(2 * columns);
            let ((row0, row1), (row2, row3)) = (low.split_at(columns), high.split_at(columns));
            let rows = row0.iter().zip(row1).zip(row2.iter().zip(row3));
            for (word, ((&b0, &b1), (&b2, &b3))) in words.iter_mut().zip(rows) {
                *word = [b0, b1, b2, b3];
            }
        } else {
            words.fill([0; 4]);
            for (index, row) in rows.chunks_exact(columns).enumerate() {
                for (word, &element) in words.iter_mut().zip(row) {
                    word[index] = element;
                }
            }
        }
    }
}

fn copied<'a>(matrix: MatrixReader<'_>, buffer: &'a mut Buffer) -> MatrixReader<'a> {
    let (rows, columns, size) = (matrix.rows(), matrix.columns(), matrix.size());
    buffer.resize(rows * columns * size);
    matrix.copy_to(buffer.bytes_mut(), columns);
    MatrixReader::of_tile(buffer.bytes(), size, [rows, columns], [columns, 1])
}

/// Returns a matrix of words if its rows are contiguous, otherwise a copy in the buffer.
fn contiguous<'a>(matrix: MatrixReader<'a>, buffer: &'a mut Buffer) -> MatrixReader<'a> {
    if matrix.has_contiguous_rows() { matrix } else { copied(matrix, buffer) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::memory::Multiply;

    /// Emulates `vpdpbusd`, which reads the elements of `b` as unsigned, with vectors of 8 lanes.
    #[derive(Clone, Copy)]
    struct Emulated;

    impl Multiply for Emulated {
        type Element = u32;
        type Vector = [u32; 8];
        const REGISTERS: usize = 32;

        fn splat(self, word: u32) -> [u32; 8] {
            [word; 8]
        }

        fn prepare(self, b: [u32; 8]) -> [u32; 8] {
            b.map(|word| word ^ 0x8080_8080)
        }

        fn mul_add(self, a: [u32; 8], b: [u32; 8], sum: [u32; 8]) -> [u32; 8] {
            std::array::from_fn(|lane| {
                let products = a[lane].to_le_bytes().into_iter().zip(b[lane].to_le_bytes());
                products.fold(sum[lane], |sum, (a, b)| {
                    let product = i32::from(a.cast_signed()) * i32::from(b);
                    sum.wrapping_add(product.cast_unsigned())
                })
            })
        }
    }

    /// Input: a product with flipped signs, on any processor. Expected: the product of the signed
    /// bytes.
    #[test]
    fn flipped_signs_are_corrected() {
        for (m, n, k) in [(3, 19, 7), (16, 64, 64), (9, 32, 130)] {
            let byte = |i: usize| [0x80, 0x7f, 0xff, 0, 1, 0x55][i * 7919 % 6];
            let (a, b): (Vec<u8>, Vec<u8>) =
                ((0..m * k).map(byte).collect(), (5..k * n + 5).map(byte).collect());
            let mut acc: Vec<u32> = (0..m * n).map(|i| i as u32).collect();
            let number = |byte: u8| i32::from(byte.cast_signed());
            let expect: Vec<u32> = (0..m * n)
                .map(|i| {
                    let products = (0..k).map(|l| number(a[i / n * k + l]) * number(b[l * n + i % n]));
                    products.fold(i as u32, |sum, product| sum.wrapping_add(product.cast_unsigned()))
                })
                .collect();
            let [mut a_words, mut b_words, mut dense, mut panel, mut edge] =
                [0; 5].map(|_| Buffer::default());
            let a = words_of_rows(Matrix::new(Dtype::I8, &a, k).elements, &mut a_words);
            let b = words_of_columns(Matrix::new(Dtype::I8, &b, n).elements, &mut b_words, &mut dense);
            let extents = Extents { m, n, k: a.columns() };
            subtract_offset(&mut acc, a, extents);
            let (panel, edge) = (&mut panel, &mut edge);
            let b = OperandB::Matrix(b);
            Product { acc: &mut acc, a, b, extents, panel, edge }.compute(Emulated);
            assert_eq!(acc, expect, "{m} {n} {k}");
        }
    }

    #[test]
    fn subnormal_elements_are_found() {
        let mut dense = Buffer::default();
        let mut has = |bits: u16, columns: usize| {
            let mut elements = vec![[0x80, 0x3f]; 1200];
            elements[1111] = bits.to_le_bytes();
            let matrix = Matrix::new(Dtype::BF16, elements.as_flattened(), columns).elements;
            let found = has_subnormals(matrix, &mut dense);
            assert_eq!(has_subnormals(matrix.transposed(), &mut dense), found);
            found
        };
        for bits in [0x0001, 0x0040, 0x007f, 0x8001, 0x807f] {
            assert!(has(bits, 40) && has(bits, 1200), "{bits:#x}");
        }
        for bits in [0x0000, 0x8000, 0x0080, 0x8080, 0x7f80, 0x7fc0, 0xffff] {
            assert!(!has(bits, 40), "{bits:#x}");
        }
    }

    #[test]
    fn elements_of_columns_become_words() {
        let bytes: Vec<u8> = (1..=10).collect();
        let mut words = [[9; 4]; 4];
        interleave4(&mut words, &bytes, 2);
        assert_eq!(words, [[1, 3, 5, 7], [2, 4, 6, 8], [9, 0, 0, 0], [10, 0, 0, 0]]);
        let mut words = [[9; 2]; 4];
        let elements: Vec<u8> = [1_u16, 2, 3, 4, 5, 6].into_iter().flat_map(u16::to_le_bytes).collect();
        Matrix::new(Dtype::BF16, &elements, 2).elements.interleave_rows(&mut words);
        assert_eq!(words, [[1, 3], [2, 4], [5, 0], [6, 0]]);
    }
}
