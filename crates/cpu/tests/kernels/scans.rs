//! Compares scans, to the bit, with a reference in the documented order.

use tilewright_cpu::kernels::reduce::Axis;
use tilewright_cpu::kernels::scan::scan;
use tilewright_ir::Dtype;

use crate::oracle::{Number, Random, RandomElements, decode, encode, pack, same, unpack};
use crate::reductions::{COMBINES, combine};

#[test]
fn all_types_and_shapes() {
    let mut random = Random(50);
    let shapes = [(1, 1, 1), (3, 2, 1), (2, 7, 1), (1, 300, 1), (2, 5, 8), (1, 3, 3), (2, 9, 100), (4, 1, 5)];
    for &dtype in Dtype::ALL {
        for function in COMBINES.into_iter().filter(|function| function.can_scan(dtype)) {
            for (outer, n, inner) in shapes {
                for (reverse, is_plain) in [(false, false), (true, false), (false, true), (true, true)] {
                    let mut x = random.tile(dtype, outer * n * inner);
                    if is_plain && dtype.is_float() {
                        // The numbers contain neither NaN nor zeros.
                        let number = |i: usize| f64::from((i * 7919 % 997) as u32) - 498.25;
                        x = (0..x.len()).map(|i| encode(dtype, Number::Float(number(i)))).collect();
                    }
                    let mut expected = x.clone();
                    for line in 0..outer * inner {
                        let at = |k: usize| {
                            let k = if reverse { n - 1 - k } else { k };
                            (line / inner * n + k) * inner + line % inner
                        };
                        let combined = |x: u64, y: u64| {
                            encode(dtype, combine(function, dtype, decode(dtype, x), decode(dtype, y)))
                        };
                        if inner > 1 {
                            for k in 1..n {
                                expected[at(k)] = combined(expected[at(k - 1)], x[at(k)]);
                            }
                            continue;
                        }
                        // The method of Hillis and Steele scans blocks of 16 elements.
                        for first in (0..n).step_by(16) {
                            let end = n.min(first + 16);
                            for distance in [1, 2, 4, 8] {
                                for k in (first + distance..end).rev() {
                                    expected[at(k)] = combined(expected[at(k - distance)], expected[at(k)]);
                                }
                            }
                            for k in (first..end).filter(|_| first > 0) {
                                expected[at(k)] = combined(expected[at(first - 1)], expected[at(k)]);
                            }
                        }
                    }
                    let mut tile = pack(dtype, &x);
                    scan(function, dtype, (Axis { outer, n, inner }, reverse), tile.bytes_mut());
                    let found = unpack(dtype, tile.bytes());
                    for (index, (&found, &expected)) in found.iter().zip(&expected).enumerate() {
                        assert!(
                            same(dtype, found, expected),
                            "{function:?} {dtype} {outer} {n} {inner} {reverse} element {index}: \
                             {found:#x}, expected {expected:#x}"
                        );
                    }
                }
            }
        }
    }
}
