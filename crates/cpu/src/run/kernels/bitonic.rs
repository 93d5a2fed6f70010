//! Bitonic merges and sorts of integers along one axis.

use tilewright_ir::Dtype;

use super::reduce::Axis;
use super::simd::vectorize;
use super::{Element, typed_mut};

/// Merges bitonically: for each bit from `high` down to `low`, orders the pairs of elements whose
/// coordinates differ in that bit. `merge` is `high`, `low`, `block` and `descending`: the order is
/// descending where bit `block` of the coordinate is 0 if `descending` is set, else where that bit
/// is 1. The extent of the axis is a power of two, and `block` is above `high`.
///
/// Panics if the tile has the wrong length or alignment.
pub fn merge(dtype: Dtype, axis: Axis, merge: ([u32; 3], bool), tile: &mut [u8]) {
    match dtype {
        Dtype::I32 => compare::<i32>(typed_mut(tile), axis, merge),
        Dtype::U32 => compare::<u32>(typed_mut(tile), axis, merge),
        Dtype::I64 => compare::<i64>(typed_mut(tile), axis, merge),
        Dtype::U64 => compare::<u64>(typed_mut(tile), axis, merge),
        // tidy: wildcard because the rule of the op admits no other type
        _ => panic!("integers of 32 or 64 bits are merged, found {dtype}"),
    }
}

/// Sorts blocks of `1 << stages` elements of an axis, as the merges of these stages do, where stage
/// `k` merges the bits from `k` down to 0, with `block = k + 1`.
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
        // tidy: wildcard because the rule of the op admits no other type
        _ => panic!("integers of 32 or 64 bits are sorted, found {dtype}"),
    }
}

/// Sorts the blocks of rows of `n` elements. Equal integers have no order, so any algorithm has the
/// result of the merges.
fn sort_blocks<T: Element + Ord>(tile: &mut [T], n: usize, stages: u32, descending: bool) {
    let alternates = 1 << stages < n;
    for (number, block) in tile.chunks_exact_mut(1 << stages).enumerate() {
        block.sort_unstable();
        if (alternates && number % 2 == 1) != descending {
            block.reverse();
        }
    }
}

fn compare<T: Element + Ord>(tile: &mut [T], axis: Axis, ([high, low, block], descending): ([u32; 3], bool)) {
    let Axis { n, inner, .. } = axis;
    let alternates = 1 << block < n;
    for bit in (low..=high).rev() {
        // Bit `block` of the coordinates of the pair of runs with this index.
        let is_reversed = |pair: usize| (alternates && pair >> (block - bit - 1) & 1 == 1) != descending;
        vectorize(
            #[inline(always)]
            || match inner << bit {
                1 => exchange_near::<T, 2>(tile, is_reversed),
                2 => exchange_near::<T, 4>(tile, is_reversed),
                4 => exchange_near::<T, 8>(tile, is_reversed),
                8 => exchange_near::<T, 16>(tile, is_reversed),
                distance => {
                    for (index, pair) in tile.chunks_exact_mut((2 * distance).max(1)).enumerate() {
                        exchange_runs(pair, is_reversed(index));
                    }
                }
            },
        );
    }
}

/// Orders the halves of groups of `N` elements. The loops have a known number of iterations.
#[inline(always)]
fn exchange_near<T: Element + Ord, const N: usize>(tile: &mut [T], is_reversed: impl Fn(usize) -> bool) {
    for (index, pair) in tile.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        exchange_runs(pair, is_reversed(index));
    }
}

/// Orders each element of the first half of a slice and its partner in the second half.
#[inline(always)]
fn exchange_runs<T: Element + Ord>(pair: &mut [T], is_reversed: bool) {
    let (first, second) = pair.split_at_mut(pair.len() / 2);
    let (lesser, greater) = if is_reversed { (second, first) } else { (first, second) };
    for (lesser, greater) in lesser.iter_mut().zip(greater) {
        (*lesser, *greater) = ((*lesser).min(*greater), (*lesser).max(*greater));
    }
}
