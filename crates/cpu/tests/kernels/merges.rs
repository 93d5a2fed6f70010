//! Compares bitonic merges with their definition, and sorts with the standard library.

use tilewright_cpu::kernels::bitonic::{merge, sort};
use tilewright_cpu::kernels::reduce::Axis;
use tilewright_ir::Dtype;

use crate::oracle::{Number, Random, RandomElements, decode, encode, pack, unpack};

const DTYPES: [Dtype; 4] = [Dtype::I32, Dtype::U32, Dtype::I64, Dtype::U64];

const SHAPES: [Axis; 12] = [
    Axis { outer: 1, n: 1, inner: 1 },
    Axis { outer: 5, n: 4, inner: 1 },
    Axis { outer: 3, n: 16, inner: 1 },
    Axis { outer: 1, n: 256, inner: 1 },
    Axis { outer: 3, n: 128, inner: 1 },
    Axis { outer: 1, n: 2048, inner: 1 },
    Axis { outer: 2, n: 8, inner: 4 },
    Axis { outer: 3, n: 32, inner: 2 },
    Axis { outer: 2, n: 16, inner: 3 },
    Axis { outer: 2, n: 64, inner: 5 },
    Axis { outer: 1, n: 8, inner: 16 },
    Axis { outer: 2, n: 4, inner: 64 },
];

/// Returns the integers of a tile.
fn integers(dtype: Dtype, bits: &[u64]) -> Vec<i128> {
    let integer = |&bits: &u64| match decode(dtype, bits) {
        Number::Int(value) => value,
        Number::Float(_) => unreachable!("the tile has integers"),
    };
    bits.iter().map(integer).collect()
}

/// Returns the integers `x` after `apply` has changed their tile.
fn result(dtype: Dtype, x: &[i128], apply: impl FnOnce(&mut [u8])) -> Vec<i128> {
    let bits: Vec<u64> = x.iter().map(|&x| encode(dtype, Number::Int(x))).collect();
    let mut tile = pack(dtype, &bits);
    apply(tile.bytes_mut());
    integers(dtype, &unpack(dtype, tile.bytes()))
}

fn result_of_merge(dtype: Dtype, axis: Axis, step: ([u32; 3], bool), x: &[i128]) -> Vec<i128> {
    result(dtype, x, |tile| merge(dtype, axis, step, tile))
}

#[test]
fn every_merge_is_as_defined() {
    let mut random = Random(40);
    for dtype in DTYPES {
        for axis @ Axis { outer, n, inner } in SHAPES {
            let bits = n.ilog2();
            for (high, low) in (0..bits).flat_map(|high| (0..=high).map(move |low| (high, low))) {
                for block in [high + 1, bits] {
                    let descending = random.below(2) == 0;
                    let x = integers(dtype, &random.tile(dtype, outer * n * inner));
                    let mut expected = x.clone();
                    for bit in (low..=high).rev() {
                        for index in 0..expected.len() {
                            let place = index / inner % n;
                            let partner = index + (inner << bit);
                            if place >> bit & 1 == 1 {
                                continue;
                            }
                            let is_descending = (place >> block & 1 == 0) == descending;
                            if (expected[index] > expected[partner]) != is_descending {
                                expected.swap(index, partner);
                            }
                        }
                    }
                    let step = ([high, low, block], descending);
                    assert_eq!(result_of_merge(dtype, axis, step, &x), expected, "{dtype} {axis:?} {step:?}");
                }
            }
        }
    }
}

#[test]
fn sorts_are_merges_in_stages() {
    let mut random = Random(41);
    for dtype in DTYPES {
        for axis @ Axis { outer, n, inner } in SHAPES {
            for stages in 0..=n.ilog2() {
                let descending = random.below(2) == 0;
                let x = integers(dtype, &random.tile(dtype, outer * n * inner));
                let mut merged = x.clone();
                for stage in 0..stages {
                    merged = result_of_merge(dtype, axis, ([stage, 0, stage + 1], descending), &merged);
                }
                let apply = |tile: &mut [u8]| sort(dtype, axis, stages, descending, tile);
                let sorted = result(dtype, &x, apply);
                assert_eq!(sorted, merged, "{dtype} {axis:?} {stages} {descending}");
                for line in (0..outer * inner).filter(|_| stages == n.ilog2()) {
                    let at = |k: usize| line / inner * n * inner + k * inner + line % inner;
                    let mut expected: Vec<i128> = (0..n).map(|k| x[at(k)]).collect();
                    expected.sort_unstable();
                    if descending {
                        expected.reverse();
                    }
                    let found: Vec<i128> = (0..n).map(|k| sorted[at(k)]).collect();
                    assert_eq!(found, expected, "{dtype} {axis:?} line {line}");
                }
            }
        }
    }
}
