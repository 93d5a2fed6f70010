//! Bitonic merges and sorts of integers along one axis.

use std::ops::{BitXor, Not, Range};

use tilewright_ir::Dtype;

use super::reduce::Axis;
use super::simd::vectorize;
use super::{Element, typed_mut};
use crate::tuning::SORTED_COLUMNS;

trait Key: Element + Ord + BitXor<Output = Self> + Not<Output = Self> {}

impl<T: Element + Ord + BitXor<Output = T> + Not<Output = T>> Key for T {}

/// Merges bitonically. For each bit from `high` down to `low`, orders the pairs of elements whose
/// coordinates differ in that bit.
///
/// `merge` has `high`, `low`, `block` and `descending`. Bit `block` of the coordinate selects the
/// order: 0 is ascending and 1 is descending, or the reverse if `descending` is true. The extent of
/// the axis is a power of two, and `block` is above `high`.
///
/// Panics if the tile has the wrong length or alignment.
pub fn merge(dtype: Dtype, axis: Axis, merge: ([u32; 3], bool), tile: &mut [u8]) {
    match dtype {
        Dtype::I32 => compare::<i32>(typed_mut(tile), axis, merge),
        Dtype::U32 => compare::<u32>(typed_mut(tile), axis, merge),
        Dtype::I64 => compare::<i64>(typed_mut(tile), axis, merge),
        Dtype::U64 => compare::<u64>(typed_mut(tile), axis, merge),
        // tidy: wildcard because the verifier admits no other type
        _ => panic!("integers of 32 or 64 bits are merged, found {dtype}"),
    }
}

/// Sorts blocks of `1 << stages` elements of an axis, like [`merge`] with `high = k`, `low = 0` and
/// `block = k + 1` for each k below `stages`.
///
/// Panics if the tile has the wrong length or alignment.
pub fn sort(dtype: Dtype, axis: Axis, stages: u32, descending: bool, tile: &mut [u8]) {
    if axis.inner > 1 {
        for stage in 0..stages {
            merge(dtype, axis, ([stage, 0, stage + 1], descending), tile);
        }
        return;
    }
    match dtype {
        Dtype::I32 => sort_blocks::<i32>(typed_mut(tile), axis.n, stages, descending),
        Dtype::U32 => sort_blocks::<u32>(typed_mut(tile), axis.n, stages, descending),
        Dtype::I64 => sort_blocks::<i64>(typed_mut(tile), axis.n, stages, descending),
        Dtype::U64 => sort_blocks::<u64>(typed_mut(tile), axis.n, stages, descending),
        // tidy: wildcard because the verifier admits no other type
        _ => panic!("integers of 32 or 64 bits are sorted, found {dtype}"),
    }
}

/// Sorts the blocks of rows of `n` elements. Equal integers are indistinguishable, so any sort has
/// the result of the merges.
fn sort_blocks<T: Key>(tile: &mut [T], n: usize, stages: u32, descending: bool) {
    let alternates = 1 << stages < n;
    let is_reversed = |block: usize| (alternates && block % 2 == 1) != descending;
    if merge_small_blocks(tile, 0..stages, is_reversed) {
        return;
    }
    for (index, block) in tile.chunks_exact_mut(1 << stages).enumerate() {
        block.sort_unstable();
        if is_reversed(index) {
            block.reverse();
        }
    }
}

fn compare<T: Key>(tile: &mut [T], axis: Axis, ([high, low, block], descending): ([u32; 3], bool)) {
    let Axis { n, inner, .. } = axis;
    let alternates = 1 << block < n;
    // A pair is `2 << bit` consecutive elements. Each element of its first half is ordered with its
    // partner in the second half. Bit `block` of a coordinate is bit `block - bit - 1` of the index
    // of its pair.
    let is_reversed =
        |bit: u32, pair: usize| (alternates && pair >> (block - bit - 1) & 1 == 1) != descending;
    let has_small_blocks = inner == 1 && low == 0;
    if has_small_blocks && merge_small_blocks(tile, high..high + 1, |pair| is_reversed(high, pair)) {
        return;
    }
    for bit in (low..=high).rev() {
        vectorize(
            #[inline(always)]
            || match inner << bit {
                1 => exchange_near::<T, 2>(tile, |pair| is_reversed(bit, pair)),
                2 => exchange_near::<T, 4>(tile, |pair| is_reversed(bit, pair)),
                4 => exchange_near::<T, 8>(tile, |pair| is_reversed(bit, pair)),
                8 => exchange_near::<T, 16>(tile, |pair| is_reversed(bit, pair)),
                distance => {
                    for (index, pair) in tile.chunks_exact_mut((2 * distance).max(1)).enumerate() {
                        exchange_runs(pair, is_reversed(bit, index));
                    }
                }
            },
        );
    }
}

/// Executes stages of a sort on blocks of `1 << stages.end` consecutive elements. Returns false,
/// without a change, if a block has more than 16 elements.
fn merge_small_blocks<T: Key>(
    tile: &mut [T],
    stages: Range<u32>,
    is_reversed: impl Fn(usize) -> bool,
) -> bool {
    vectorize(
        #[inline(always)]
        || {
            match stages.end {
                1 => merge_columns::<T, 2>(tile, stages.start, is_reversed),
                2 => merge_columns::<T, 4>(tile, stages.start, is_reversed),
                3 => merge_columns::<T, 8>(tile, stages.start, is_reversed),
                4 => merge_columns::<T, 16>(tile, stages.start, is_reversed),
                _ => return false,
            }
            true
        },
    )
}

/// Sorts blocks of `N` elements from stage `first` on. [`SORTED_COLUMNS`] blocks are the columns of
/// a matrix, so that vectors compare whole rows.
#[inline(always)]
fn merge_columns<T: Key, const N: usize>(tile: &mut [T], first: u32, is_reversed: impl Fn(usize) -> bool) {
    // Complementing integers reverses their order.
    let flip = |block: usize| if is_reversed(block) { !T::default() } else { T::default() };
    for (group, blocks) in tile.chunks_mut(SORTED_COLUMNS * N).enumerate() {
        let blocks = blocks.as_chunks_mut::<N>().0;
        let mut rows = [[T::default(); SORTED_COLUMNS]; N];
        for (column, block) in blocks.iter().enumerate() {
            let flip = flip(group * SORTED_COLUMNS + column);
            for k in 0..N {
                rows[k][column] = block[k] ^ flip;
            }
        }
        for stage in first..N.ilog2() {
            for bit in (0..=stage).rev() {
                for k in (0..N).filter(|k| k >> bit & 1 == 0) {
                    let (lower, upper) = rows.split_at_mut(k | 1 << bit);
                    let is_descending = stage + 1 < N.ilog2() && k >> (stage + 1) & 1 == 1;
                    exchange(&mut lower[k], &mut upper[0], is_descending);
                }
            }
        }
        for (column, block) in blocks.iter_mut().enumerate() {
            let flip = flip(group * SORTED_COLUMNS + column);
            for k in 0..N {
                block[k] = rows[k][column] ^ flip;
            }
        }
    }
}

/// Orders the elements of the two halves of each group of `N` elements. `N` is constant so that the
/// loop is unrolled.
#[inline(always)]
fn exchange_near<T: Element + Ord, const N: usize>(tile: &mut [T], is_reversed: impl Fn(usize) -> bool) {
    for (index, pair) in tile.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        exchange_runs(pair, is_reversed(index));
    }
}

#[inline(always)]
fn exchange_runs<T: Element + Ord>(pair: &mut [T], is_reversed: bool) {
    let (first, second) = pair.split_at_mut(pair.len() / 2);
    exchange(first, second, is_reversed);
}

#[inline(always)]
fn exchange<T: Element + Ord>(first: &mut [T], second: &mut [T], is_reversed: bool) {
    let (lesser, greater) = if is_reversed { (second, first) } else { (first, second) };
    for (lesser, greater) in lesser.iter_mut().zip(greater) {
        (*lesser, *greater) = ((*lesser).min(*greater), (*lesser).max(*greater));
    }
}
