//! Compares reductions, to the bit, with sums in the documented order.

use tilewright_cpu::kernels::reduce::{Axis, Combine, reduce};
use tilewright_ir::Dtype;

use crate::oracle::{Number, Random, RandomElements, decode, encode, pack, same, unpack};

pub const COMBINES: [Combine; 9] = [
    Combine::Sum,
    Combine::Product,
    Combine::Min,
    Combine::Max,
    Combine::MinNan,
    Combine::MaxNan,
    Combine::And,
    Combine::Or,
    Combine::Xor,
];

fn combine_floats(combine: Combine, dtype: Dtype, x: f64, y: f64) -> f64 {
    let smaller = |x: f64, y: f64| if x < y || (x == y && x.is_sign_negative()) { x } else { y };
    // Narrow floats accumulate in binary32.
    let round = |value: f64| if dtype == Dtype::F64 { value } else { f64::from(value as f32) };
    match combine {
        Combine::Sum => round(x + y),
        Combine::Product => round(x * y),
        Combine::MinNan | Combine::MaxNan if x.is_nan() || y.is_nan() => f64::NAN,
        _ if x.is_nan() => y,
        _ if y.is_nan() => x,
        Combine::Min | Combine::MinNan => smaller(x, y),
        Combine::Max | Combine::MaxNan => -smaller(-x, -y),
        Combine::And | Combine::Or | Combine::Xor => panic!("not of floats"),
    }
}

fn combine_ints(combine: Combine, x: i128, y: i128) -> i128 {
    match combine {
        Combine::Sum => x + y,
        Combine::Product => x.wrapping_mul(y),
        Combine::Min | Combine::MinNan => x.min(y),
        Combine::Max | Combine::MaxNan => x.max(y),
        Combine::And => x & y,
        Combine::Or => x | y,
        Combine::Xor => x ^ y,
    }
}

pub fn combine(function: Combine, dtype: Dtype, x: Number, y: Number) -> Number {
    match (x, y) {
        (Number::Float(x), Number::Float(y)) => Number::Float(combine_floats(function, dtype, x, y)),
        (Number::Int(x), Number::Int(y)) => {
            let bits = encode(dtype, Number::Int(combine_ints(function, x, y)));
            let one_bit = dtype == Dtype::I1 && function == Combine::Sum;
            if one_bit { Number::Int((x + y) & 1) } else { decode(dtype, bits) }
        }
        _ => unreachable!("one type"),
    }
}

fn expect(function: Combine, dtype: Dtype, n: usize, inner: usize, block: &[Number]) -> Vec<Number> {
    let f = |x: Number, y: Number| combine(function, dtype, x, y);
    if inner < 64 && inner.is_power_of_two() {
        let mut count = (1 << block.len().ilog2()).min(64);
        let mut chains = block[..count].to_vec();
        for (index, &value) in block.iter().enumerate().skip(count) {
            chains[index % count] = f(chains[index % count], value);
        }
        while count > inner {
            count /= 2;
            for i in 0..count {
                chains[i] = f(chains[i], chains[i + count]);
            }
        }
        chains[..inner].to_vec()
    } else {
        let column = |i| (1..n).fold(block[i], |sum, row| f(sum, block[row * inner + i]));
        (0..inner).map(column).collect()
    }
}

fn check(function: Combine, dtype: Dtype, axis: Axis, random: &mut Random) {
    let bit = |x: u64| if dtype == Dtype::I1 { x & 1 } else { x };
    let elements = axis.outer * axis.n * axis.inner;
    let x: Vec<u64> = random.tile(dtype, elements).into_iter().map(bit).collect();
    check_tile(function, dtype, axis, &x);
}

fn check_tile(function: Combine, dtype: Dtype, axis: Axis, x: &[u64]) {
    let Axis { outer, n, inner } = axis;
    let numbers: Vec<Number> = x.iter().map(|&x| decode(dtype, x)).collect();
    let mut out = pack(dtype, &vec![0; outer * inner]);
    reduce(function, dtype, axis, out.bytes_mut(), pack(dtype, x).bytes());
    let found = unpack(dtype, out.bytes());
    let expect = numbers.chunks(n * inner).flat_map(|block| expect(function, dtype, n, inner, block));
    for (index, (found, expect)) in found.into_iter().zip(expect).enumerate() {
        let expect = encode(dtype, expect);
        assert!(
            same(dtype, found, expect),
            "{function:?} {dtype} {axis:?} element {index}: {found:#x} ({:?}), expected {expect:#x}",
            decode(dtype, found)
        );
    }
}

#[test]
fn all_types_and_shapes() {
    let mut random = Random(30);
    let shapes = [
        (1, 1, 1),
        (3, 2, 1),
        (2, 7, 1),
        (5, 32, 1),
        (4, 64, 1),
        (2, 65, 1),
        (3, 256, 1),
        (1, 1000, 1),
        (2, 16, 16),
        (2, 5, 8),
        (1, 3, 3),
        (2, 9, 100),
        (1, 8, 64),
        (2, 4, 130),
        (4, 1, 32),
        // Shapes with and without squares of 16 rows, and with remaining rows.
        (16, 16, 1),
        (16, 64, 1),
        (20, 15, 1),
        (35, 20, 1),
        (49, 100, 1),
    ];
    for &dtype in Dtype::ALL {
        for function in COMBINES {
            if dtype.is_float() && matches!(function, Combine::And | Combine::Or | Combine::Xor) {
                continue;
            }
            for (outer, n, inner) in shapes {
                check(function, dtype, Axis { outer, n, inner }, &mut random);
            }
        }
    }
}

/// Input: more elements than the reduction widens at a time.
#[test]
fn long_rows_of_narrow_floats() {
    let mut random = Random(31);
    let shapes =
        [(2, 5000, 1), (1, 1025, 1), (1, 700, 8), (1, 66, 16), (2, 100, 130), (1, 3000, 3), (1, 70, 65)];
    for dtype in [Dtype::F16, Dtype::BF16, Dtype::F8E4NV] {
        for function in [Combine::Sum, Combine::Product, Combine::Min, Combine::MaxNan] {
            for (outer, n, inner) in shapes {
                let axis = Axis { outer, n, inner };
                check(function, dtype, axis, &mut random);
                // The second half cancels the first, so the sum consists of rounding errors, which
                // depend on the order.
                let mut tile: Vec<u64> = Vec::new();
                for _ in 0..outer {
                    let start = tile.len();
                    for row in 0..n {
                        for column in 0..inner {
                            let number = if 2 * row < n {
                                let mantissa = 1.0 + random.below(1024) as f64 / 1024.0;
                                Number::Float(mantissa * 2_f64.powi(random.below(29) as i32 - 14))
                            } else {
                                match decode(dtype, tile[start + (n - 1 - row) * inner + column]) {
                                    Number::Float(x) => Number::Float(-x),
                                    Number::Int(_) => panic!("a float type"),
                                }
                            };
                            tile.push(encode(dtype, number));
                        }
                    }
                }
                check_tile(function, dtype, axis, &tile);
            }
        }
    }
}

/// Input: rows of numbers, with zeros, and with a NaN.
#[test]
fn extremes_of_rows_without_nan() {
    for dtype in [Dtype::F32, Dtype::F64] {
        let bits = |value: f64| encode(dtype, Number::Float(value));
        for function in [Combine::Min, Combine::Max, Combine::MinNan, Combine::MaxNan] {
            for (outer, n) in [(1, 1), (3, 5), (1, 64), (2, 200), (17, 70)] {
                let axis = Axis { outer, n, inner: 1 };
                let number = |i: usize| f64::from((i * 7919 % 997) as u32) - 498.25;
                let plain: Vec<u64> = (0..outer * n).map(|i| bits(number(i))).collect();
                check_tile(function, dtype, axis, &plain);
                for sign in [1.0, -1.0] {
                    let zero = |i: usize| bits(if i.is_multiple_of(3) { -0.0 } else { 0.0 });
                    let far = |i: usize| bits(sign * (1.0 + i as f64));
                    let zeros = (0..outer * n).map(|i| if i.is_multiple_of(2) { zero(i) } else { far(i) });
                    check_tile(function, dtype, axis, &zeros.collect::<Vec<u64>>());
                }
                for place in [0, n / 2, outer * n - 1] {
                    let mut with_nan = plain.clone();
                    with_nan[place] = bits(f64::NAN);
                    check_tile(function, dtype, axis, &with_nan);
                }
            }
        }
    }
}
