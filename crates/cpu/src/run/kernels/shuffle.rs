//! Transposes square blocks of elements, in registers with AVX2.

#[cfg(target_arch = "x86_64")]
use pulp::x86::V3;

/// The side of a square that [`transpose_square`] transposes.
pub(crate) const SIDE: usize = 16;

/// An element of 1, 2, 4 or 8 bytes. `BLOCK` is the side of the blocks that are transposed in
/// registers.
pub(crate) trait Word<const BLOCK: usize>: Copy + Default {
    fn transpose(block: [[Self; BLOCK]; BLOCK]) -> [[Self; BLOCK]; BLOCK] {
        let mut result = block;
        for i in 0..BLOCK {
            for j in 0..BLOCK {
                result[i][j] = block[j][i];
            }
        }
        result
    }

    /// Transposes a block in registers of AVX2.
    #[cfg(target_arch = "x86_64")]
    fn transpose_v3(simd: V3, block: [[Self; BLOCK]; BLOCK]) -> [[Self; BLOCK]; BLOCK];
}

/// Transposes a square of 32-bit elements in place, as four blocks.
pub(crate) fn transpose_square(square: &mut [[u32; SIDE]; SIDE]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = V3::try_new() {
        simd.vectorize(
            #[inline(always)]
            || {
                transpose_blocks(
                    square,
                    #[inline(always)]
                    |block| u32::transpose_v3(simd, block),
                );
            },
        );
        return;
    }
    transpose_blocks(square, u32::transpose);
}

/// Transposes the four blocks of a square, and swaps the two blocks off the diagonal.
#[inline(always)]
fn transpose_blocks(square: &mut [[u32; SIDE]; SIDE], transpose: impl Fn([[u32; 8]; 8]) -> [[u32; 8]; 8]) {
    let mut blocks = [[[[0; 8]; 8]; 2]; 2];
    for (i, line) in square.iter().enumerate() {
        for (j, half) in line.as_chunks().0.iter().enumerate() {
            blocks[i / 8][j][i % 8] = *half;
        }
    }
    for row in 0..2 {
        for column in 0..2 {
            let block = transpose(blocks[row][column]);
            for i in 0..8 {
                square[column * 8 + i][row * 8..][..8].copy_from_slice(&block[i]);
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod portable {
    impl super::Word<16> for u8 {}
    impl super::Word<8> for u16 {}
    impl super::Word<8> for u32 {}
    impl super::Word<4> for u64 {}
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m128i, __m256, __m256d};

    use pulp::x86::V3;

    use super::Word;

    impl Word<16> for u8 {
        #[inline(always)]
        fn transpose_v3(simd: V3, block: [[u8; 16]; 16]) -> [[u8; 16]; 16] {
            let mut rows: [__m128i; 16] = bytemuck::cast(block);
            // The index of an element is its row and column, 4 bits each. Interleaving the lower
            // with the upper half of the rows rotates the bits of this index by one. Four rotations
            // exchange row and column.
            for _ in 0..4 {
                let before = rows;
                for i in 0..8 {
                    rows[2 * i] = simd.sse2._mm_unpacklo_epi8(before[i], before[i + 8]);
                    rows[2 * i + 1] = simd.sse2._mm_unpackhi_epi8(before[i], before[i + 8]);
                }
            }
            bytemuck::cast(rows)
        }
    }

    impl Word<8> for u16 {
        #[inline(always)]
        fn transpose_v3(simd: V3, block: [[u16; 8]; 8]) -> [[u16; 8]; 8] {
            let mut rows: [__m128i; 8] = bytemuck::cast(block);
            for _ in 0..3 {
                let before = rows;
                for i in 0..4 {
                    rows[2 * i] = simd.sse2._mm_unpacklo_epi16(before[i], before[i + 4]);
                    rows[2 * i + 1] = simd.sse2._mm_unpackhi_epi16(before[i], before[i + 4]);
                }
            }
            bytemuck::cast(rows)
        }
    }

    impl Word<8> for u32 {
        /// Exchanges pairs of elements, then pairs of pairs, then halves.
        #[inline(always)]
        fn transpose_v3(simd: V3, block: [[u32; 8]; 8]) -> [[u32; 8]; 8] {
            let avx = simd.avx;
            let mut rows: [__m256; 8] = bytemuck::cast(block);
            let before = rows;
            for i in 0..4 {
                rows[2 * i] = avx._mm256_unpacklo_ps(before[2 * i], before[2 * i + 1]);
                rows[2 * i + 1] = avx._mm256_unpackhi_ps(before[2 * i], before[2 * i + 1]);
            }
            let before = rows;
            for i in [0, 4] {
                for j in 0..2 {
                    let (a, b) = (before[i + j], before[i + j + 2]);
                    rows[i + 2 * j] = avx._mm256_shuffle_ps::<0x44>(a, b);
                    rows[i + 2 * j + 1] = avx._mm256_shuffle_ps::<0xee>(a, b);
                }
            }
            let before = rows;
            for i in 0..4 {
                rows[i] = avx._mm256_permute2f128_ps::<0x20>(before[i], before[i + 4]);
                rows[i + 4] = avx._mm256_permute2f128_ps::<0x31>(before[i], before[i + 4]);
            }
            bytemuck::cast(rows)
        }
    }

    impl Word<4> for u64 {
        /// Exchanges pairs of elements, then halves.
        #[inline(always)]
        fn transpose_v3(simd: V3, block: [[u64; 4]; 4]) -> [[u64; 4]; 4] {
            let avx = simd.avx;
            let mut rows: [__m256d; 4] = bytemuck::cast(block);
            let before = rows;
            for i in [0, 2] {
                rows[i] = avx._mm256_unpacklo_pd(before[i], before[i + 1]);
                rows[i + 1] = avx._mm256_unpackhi_pd(before[i], before[i + 1]);
            }
            let before = rows;
            for i in 0..2 {
                rows[i] = avx._mm256_permute2f128_pd::<0x20>(before[i], before[i + 2]);
                rows[i + 2] = avx._mm256_permute2f128_pd::<0x31>(before[i], before[i + 2]);
            }
            bytemuck::cast(rows)
        }
    }
}
