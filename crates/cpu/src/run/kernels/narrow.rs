//! Computes the float rows of the elementwise table for 16- and 8-bit floats.
//!
//! Each chunk is widened to binary32 on the stack, computed there, and rounded once.

use tilewright_ir::{ComparisonFn, Dtype};

use super::lanes::{Real, Real32, Word, select};
use super::simd::vectorize;
use super::{Operand, cast, float, formats};
use crate::tuning::SMALL_TILE_ELEMENTS;

const CHUNK: usize = 256;
struct Wide<const CHUNK: usize>([f32; CHUNK]);

impl<const CHUNK: usize> Wide<CHUNK> {
    fn bytes(&mut self, len: usize) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0[..len])
    }

    /// Loads a chunk of an operand as a binary32 operand.
    fn load<'a>(&'a mut self, dtype: Dtype, operand: Operand<'_>, start: usize, out: &[u8]) -> Operand<'a> {
        let len = out.len() / dtype.bytes();
        let narrow = match operand {
            Operand::Scalar(bits) => {
                let mut value = [0.0];
                cast::widen(dtype, &mut value, &bytemuck::bytes_of(&bits)[..dtype.bytes()]);
                return Operand::Scalar(value[0].to_bits().into());
            }
            Operand::Tile(bytes) => &bytes[start * dtype.bytes()..][..out.len()],
            Operand::Out => out,
        };
        cast::widen(dtype, &mut self.0[..len], narrow);
        Operand::Tile(self.bytes(len))
    }
}

/// Applies a function of one or two elements. `single` is its binary32 version.
pub(super) fn apply(
    dtype: Dtype,
    out: &mut [u8],
    operands: [Operand<'_>; 2],
    single: &dyn Fn(&mut [u8], Operand<'_>, Operand<'_>),
) {
    if out.len() <= SMALL_TILE_ELEMENTS * dtype.bytes() {
        apply_chunks::<SMALL_TILE_ELEMENTS>(dtype, out, operands, single);
    } else {
        apply_chunks::<CHUNK>(dtype, out, operands, single);
    }
}

fn apply_chunks<const CHUNK: usize>(
    dtype: Dtype,
    out: &mut [u8],
    [x, y]: [Operand<'_>; 2],
    single: &dyn Fn(&mut [u8], Operand<'_>, Operand<'_>),
) {
    let (mut wide_x, mut wide_y) = (Wide([0.0; CHUNK]), Wide([0.0; CHUNK]));
    let mut result = Wide([0.0; CHUNK]);
    for (index, chunk) in out.chunks_mut(CHUNK * dtype.bytes()).enumerate() {
        let start = index * CHUNK;
        let len = chunk.len() / dtype.bytes();
        let x = wide_x.load(dtype, x, start, chunk);
        let y = wide_y.load(dtype, y, start, chunk);
        single(result.bytes(len), x, y);
        cast::narrow(dtype, chunk, &result.0[..len], false);
    }
}

/// Compares in binary32, which represents narrow floats exactly.
pub(super) fn compare(function: ComparisonFn, dtype: Dtype, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) {
    assert!(
        !matches!((&x, &y), (Operand::Out, _) | (_, Operand::Out)),
        "a comparison does not work in place"
    );
    let (mut wide_x, mut wide_y) = (Wide([0.0; CHUNK]), Wide([0.0; CHUNK]));
    let unread = [0; 2 * CHUNK];
    for (index, chunk) in out.chunks_mut(CHUNK).enumerate() {
        let start = index * CHUNK;
        let like = &unread[..chunk.len() * dtype.bytes()];
        let x = wide_x.load(dtype, x, start, like);
        let y = wide_y.load(dtype, y, start, like);
        float::compare_32(function, chunk, x, y);
    }
}

/// Computes `x * y + z`, rounded once: in binary64, the product is exact and the sum is rounded to
/// odd.
pub(super) fn fma(dtype: Dtype, out: &mut [u8], x: Operand<'_>, y: Operand<'_>, z: Operand<'_>) {
    let mut wide = [Wide([0.0; CHUNK]), Wide([0.0; CHUNK]), Wide([0.0; CHUNK])];
    let mut product = [0.0_f32; CHUNK];
    for (index, chunk) in out.chunks_mut(CHUNK * dtype.bytes()).enumerate() {
        let start = index * CHUNK;
        let len = chunk.len() / dtype.bytes();
        for (wide, operand) in wide.iter_mut().zip([x, y, z]) {
            if let Operand::Scalar(bits) = wide.load(dtype, operand, start, chunk) {
                wide.0[..len].fill(f32::from_bits(bits as u32));
            }
        }
        let [x, y, z] = &wide;
        vectorize(
            #[inline(always)]
            || {
                for i in 0..CHUNK {
                    product[i] = fma_odd(x.0[i], y.0[i], z.0[i]);
                }
            },
        );
        cast::narrow(dtype, chunk, &product[..len], false);
    }
}

/// Returns x * y + z in binary32, rounded to odd, for operands of at most 11 bits of precision.
#[inline(always)]
pub(crate) fn fma_odd<R: Real32>(x: R, y: R, z: R) -> R {
    let product = x.to_double() * y.to_double();
    let z = z.to_double();
    let sum = product + z;
    // The exact error of the sum. Its sign tells on which side of the sum the exact value is.
    let part = sum - product;
    let error = (product - (sum - part)) + (z - part);
    let zero = sum.constant(0.0);
    let bits = sum.to_bits();
    let word = |number: u64| bits.constant(number);
    let is_away_from_zero = (sum.sign() ^ error.sign()).eq(word(0));
    let odd = select(is_away_from_zero, bits.wrapping_add(word(1)), bits.wrapping_sub(word(1)));
    // If an operand is infinite, the error is NaN, and both comparisons are false.
    let inexact = error.lt(zero) | zero.lt(error);
    let is_even = (bits & word(1)).eq(word(0));
    formats::double_to_single_odd(select(inexact & is_even, R::Double::from_bits(odd), sum))
}
