//! Transposition of square blocks of elements, in registers where the instruction set is known.

/// The side of a block.
pub(crate) const SIDE: usize = 16;

/// An element type of 1, 2, 4 or 8 bytes that is only moved.
pub(crate) trait Word: Copy + Default {
    /// Transposes a block in place.
    fn transpose(block: &mut [[Self; SIDE]; SIDE]) {
        for i in 1..SIDE {
            for j in 0..i {
                (block[i][j], block[j][i]) = (block[j][i], block[i][j]);
            }
        }
    }
}

impl Word for u8 {}
impl Word for u16 {}
impl Word for u64 {}

impl Word for u32 {
    #[cfg(target_arch = "x86_64")]
    fn transpose(block: &mut [[u32; SIDE]; SIDE]) {
        if let Some(simd) = pulp::x86::V3::try_new() {
            simd.vectorize(
                #[inline(always)]
                || x86::transpose(simd, block),
            );
        } else {
            for i in 1..SIDE {
                for j in 0..i {
                    (block[i][j], block[j][i]) = (block[j][i], block[i][j]);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::__m256;

    use pulp::x86::V3;

    use super::SIDE;

    type Rows = [__m256; 8];

    /// Transposes four blocks of 8 by 8, and swaps two of them.
    #[inline(always)]
    pub(super) fn transpose(simd: V3, block: &mut [[u32; SIDE]; SIDE]) {
        let top_left = transpose_8(simd, load(block, 0, 0));
        let top_right = transpose_8(simd, load(block, 0, 8));
        let bottom_left = transpose_8(simd, load(block, 8, 0));
        let bottom_right = transpose_8(simd, load(block, 8, 8));
        store(block, 0, 0, top_left);
        store(block, 8, 0, top_right);
        store(block, 0, 8, bottom_left);
        store(block, 8, 8, bottom_right);
    }

    #[inline(always)]
    fn load(block: &[[u32; SIDE]; SIDE], row: usize, column: usize) -> Rows {
        std::array::from_fn(|i| {
            let line: &[u32; 8] = block[row + i][column..].first_chunk().expect("half of a line");
            bytemuck::cast(*line)
        })
    }

    #[inline(always)]
    fn store(block: &mut [[u32; SIDE]; SIDE], row: usize, column: usize, rows: Rows) {
        for (i, line) in rows.into_iter().enumerate() {
            let line: [u32; 8] = bytemuck::cast(line);
            block[row + i][column..column + 8].copy_from_slice(&line);
        }
    }

    /// Exchanges pairs of elements, then pairs of pairs, then halves.
    #[inline(always)]
    fn transpose_8(simd: V3, r: Rows) -> Rows {
        let avx = simd.avx;
        let low = |a, b| avx._mm256_unpacklo_ps(a, b);
        let high = |a, b| avx._mm256_unpackhi_ps(a, b);
        let t = [
            low(r[0], r[1]),
            high(r[0], r[1]),
            low(r[2], r[3]),
            high(r[2], r[3]),
            low(r[4], r[5]),
            high(r[4], r[5]),
            low(r[6], r[7]),
            high(r[6], r[7]),
        ];
        let low = |a, b| avx._mm256_shuffle_ps::<0x44>(a, b);
        let high = |a, b| avx._mm256_shuffle_ps::<0xee>(a, b);
        let s = [
            low(t[0], t[2]),
            high(t[0], t[2]),
            low(t[1], t[3]),
            high(t[1], t[3]),
            low(t[4], t[6]),
            high(t[4], t[6]),
            low(t[5], t[7]),
            high(t[5], t[7]),
        ];
        let low = |i: usize| avx._mm256_permute2f128_ps::<0x20>(s[i], s[i + 4]);
        let high = |i: usize| avx._mm256_permute2f128_ps::<0x31>(s[i], s[i + 4]);
        [low(0), low(1), low(2), low(3), high(0), high(1), high(2), high(3)]
    }
}
