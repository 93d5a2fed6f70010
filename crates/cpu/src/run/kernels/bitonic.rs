//! Compare-exchange steps of bitonic merges of integers along one axis.

use tilewright_ir::Dtype;

use super::reduce::Axis;
use super::{Element, typed_mut};

/// Merges bitonically: for each bit from `high` down to `low`, orders the pairs of elements whose
/// coordinates differ in that bit. `merge` is `high`, `low`, `block` and `descending`: the order is
/// descending where bit `block` of the coordinate is 0 if `descending` is set, else where that bit
/// is 1.
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

fn compare<T: Element + Ord>(tile: &mut [T], axis: Axis, ([high, low, block], descending): ([u32; 3], bool)) {
    let Axis { n, inner, .. } = axis;
    for line in tile.chunks_exact_mut((n * inner).max(1)) {
        for bit in (low..=high).rev() {
            for place in (0..n).filter(|place| place >> bit & 1 == 0) {
                let is_reversed = (place >> block & 1 == 1) != descending;
                let (first, second) = (place * inner, (place | 1 << bit) * inner);
                for (a, b) in (first..first + inner).zip(second..) {
                    if (line[a] > line[b]) != is_reversed && line[a] != line[b] {
                        line.swap(a, b);
                    }
                }
            }
        }
    }
}
