//! Compares dots with sums of exact products, and tests the order of additions.

use std::io::Write;

use tilewright_cpu::kernels::dot::{Extents, Matrix, Scratch, dot};
use tilewright_cpu::kernels::instructions::Level;
use tilewright_ir::Dtype;

use crate::oracle::{Number, Random, decode, encode, pack, unpack};

/// Returns integers and halves with exact products and sums.
fn exact_tile(random: &mut Random, dtype: Dtype, elements: usize) -> Vec<u64> {
    let number = |x: i64| if dtype.is_int() { Number::Int(x.into()) } else { Number::Float(x as f64 / 2.0) };
    (0..elements).map(|_| encode(dtype, number(random.below(7) as i64 - 3))).collect()
}

fn transpose(tile: &[u64], rows: usize, columns: usize) -> Vec<u64> {
    (0..rows * columns).map(|i| tile[i % rows * columns + i / rows]).collect()
}

fn value(dtype: Dtype, bits: u64) -> f64 {
    match decode(dtype, bits) {
        Number::Int(x) => x as f64,
        Number::Float(x) => x,
    }
}

fn check(acc: Dtype, types: (Dtype, Dtype), extents: Extents, scratch: &mut Scratch) {
    let mut random = Random(40);
    let Extents { m, n, k } = extents;
    let (a, b) = (exact_tile(&mut random, types.0, m * k), exact_tile(&mut random, types.1, k * n));
    let c = exact_tile(&mut random, acc, m * n);
    let expect: Vec<f64> = (0..m * n)
        .map(|i| {
            let product = |l: usize| value(types.0, a[i / n * k + l]) * value(types.1, b[l * n + i % n]);
            value(acc, c[i]) + (0..k).map(product).sum::<f64>()
        })
        .collect();
    for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
        let stored_a = pack(types.0, &if transpose_a { transpose(&a, m, k) } else { a.clone() });
        let stored_b = pack(types.1, &if transpose_b { transpose(&b, k, n) } else { b.clone() });
        let matrix = |dtype, tile, rows, columns, transposed| {
            let stored = Matrix::new(dtype, tile, if transposed { rows } else { columns });
            if transposed { stored.transposed() } else { stored }
        };
        let left = matrix(types.0, stored_a.bytes(), m, k, transpose_a);
        let right = matrix(types.1, stored_b.bytes(), k, n, transpose_b);
        let mut out = pack(acc, &c);
        dot(acc, out.bytes_mut(), left, right, extents, scratch);
        let found: Vec<f64> = unpack(acc, out.bytes()).into_iter().map(|bits| value(acc, bits)).collect();
        assert_eq!(found, expect, "{acc} {types:?} {extents:?} {transpose_a} {transpose_b}");
    }
}

#[test]
fn all_types_and_shapes() {
    use Dtype::I32;
    for level in Level::ALL {
        let mut scratch = Scratch::at_most(level);
        all_shapes(&mut scratch);
        check(I32, (I32, I32), Extents { m: 4, n: 4, k: 4 }, &mut scratch);
    }
}

fn all_shapes(scratch: &mut Scratch) {
    use Dtype::{BF16, F8E4NV, F8E5, F16, F32, F64, I8, I32, U8};
    for (acc, a, b) in [
        (F32, F32, F32),
        (F64, F64, F64),
        (I32, I8, I8),
        (I32, U8, I8),
        (I32, I8, U8),
        (I32, U8, U8),
        (F32, F16, F16),
        (F32, BF16, BF16),
        (F32, F8E5, F8E4NV),
        (F16, F16, F16),
        (BF16, BF16, BF16),
    ] {
        for (m, n, k) in [
            (1, 1, 1),
            (16, 16, 16),
            (32, 64, 16),
            (7, 5, 3),
            (64, 128, 32),
            (13, 100, 9),
            (2, 256, 64),
            (17, 33, 2),
            (16, 16, 64),
            (48, 80, 128),
            (64, 64, 64),
        ] {
            check(acc, (a, b), Extents { m, n, k }, scratch);
        }
    }
}

/// Returns the levels that this processor has, and prints the others.
fn available(is_bf16: bool) -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(move |level| {
        let is_available = level.is_available(is_bf16);
        if !is_available {
            let kind = if is_bf16 { "bf16" } else { "8-bit integers" };
            // The harness shows the output of `eprintln!` only if a test fails.
            let _ = writeln!(std::io::stderr(), "\nSKIPPED dots: no instructions of {level:?} for {kind}");
        }
        is_available
    })
}

/// Input: mostly extreme 8-bit integers. Expected: the sums in 64 bits.
#[test]
fn eight_bit_integers_are_exact() {
    let mut random = Random(43);
    for level in available(false) {
        let mut scratch = Scratch::at_most(level);
        for (m, n, k) in [(16, 16, 64), (33, 70, 130), (64, 64, 192), (5, 17, 3), (32, 48, 64)] {
            for (a_type, b_type) in [
                (Dtype::I8, Dtype::I8),
                (Dtype::I8, Dtype::U8),
                (Dtype::U8, Dtype::I8),
                (Dtype::U8, Dtype::U8),
            ] {
                // Extreme numbers are frequent.
                let mut bytes = |count: usize| -> Vec<u8> {
                    let byte = |x: usize| if x < 256 { x as u8 } else { [0x80, 0x7f, 0xff][x % 3] };
                    (0..count).map(|_| byte(random.below(512))).collect()
                };
                let (a, b) = (bytes(m * k), bytes(k * n));
                let value = |dtype: Dtype, byte: u8| match dtype {
                    Dtype::I8 => i64::from(byte.cast_signed()),
                    _ => i64::from(byte),
                };
                let mut acc: Vec<i32> = (0..m * n).map(|_| random.below(1 << 32) as u32 as i32).collect();
                let expect: Vec<i32> = (0..m * n)
                    .map(|i| {
                        let product =
                            |l: usize| value(a_type, a[i / n * k + l]) * value(b_type, b[l * n + i % n]);
                        (i64::from(acc[i]) + (0..k).map(product).sum::<i64>()) as i32
                    })
                    .collect();
                let (left, right) = (Matrix::new(a_type, &a, k), Matrix::new(b_type, &b, n));
                let extents = Extents { m, n, k };
                dot(Dtype::I32, bytemuck::cast_slice_mut(&mut acc), left, right, extents, &mut scratch);
                assert_eq!(acc, expect, "{level:?} {a_type} {b_type} {extents:?}");
            }
        }
    }
}

/// Input: dots of bf16. Expected: close to sums of exact products in binary64.
#[test]
fn bf16_is_close_to_exact_products() {
    let mut random = Random(44);
    for level in available(true) {
        let mut scratch = Scratch::at_most(level);
        for (m, n, k) in [(16, 16, 32), (64, 64, 64), (48, 80, 96), (33, 70, 51), (1, 3, 1)] {
            let mut tile = |count: usize| -> Vec<half::bf16> {
                let number = |x: usize| half::bf16::from_f32((x as f32 - 1e6) / 3e5);
                (0..count).map(|_| number(random.below(2_000_001))).collect()
            };
            let (a, b) = (tile(m * k), tile(k * n));
            let before: Vec<f32> = (0..m * n).map(|i| i as f32 / 7.0).collect();
            let mut acc = before.clone();
            let left = Matrix::new(Dtype::BF16, bytemuck::cast_slice(&a), k);
            let right = Matrix::new(Dtype::BF16, bytemuck::cast_slice(&b), n);
            let extents = Extents { m, n, k };
            dot(Dtype::F32, bytemuck::cast_slice_mut(&mut acc), left, right, extents, &mut scratch);
            for i in 0..m * n {
                let terms = || (0..k).map(|l| a[i / n * k + l].to_f64() * b[l * n + i % n].to_f64());
                let exact = f64::from(before[i]) + terms().sum::<f64>();
                let size = f64::from(before[i]).abs() + terms().map(f64::abs).sum::<f64>();
                let error = (f64::from(acc[i]) - exact).abs();
                // Each addition rounds by at most half a unit in the last place.
                let bound = size * (k + 1) as f64 * f64::from(f32::EPSILON) / 2.0;
                assert!(error <= bound, "{level:?} {extents:?} at {i}: {} and {exact}", acc[i]);
            }
            // The order of additions is fixed.
            let mut again = before.clone();
            dot(Dtype::F32, bytemuck::cast_slice_mut(&mut again), left, right, extents, &mut scratch);
            assert_eq!(again, acc);
        }
    }
}

/// Input: bf16 widened by the kernel. Expected: the bits of fp32 in order.
#[test]
fn widened_bf16_is_summed_in_order() {
    let mut random = Random(45);
    let (m, n, k) = (32, 32, 64);
    let mut tile = |count: usize| -> Vec<half::bf16> {
        (0..count).map(|_| half::bf16::from_f32((random.below(2_000_001) as f32 - 1e6) / 3e5)).collect()
    };
    let (a, b) = (tile(m * k), tile(k * n));
    let mut acc = vec![0.0_f32; m * n];
    let expect: Vec<f32> = (0..m * n)
        .map(|i| (0..k).fold(0.0, |sum, l| a[i / n * k + l].to_f32().mul_add(b[l * n + i % n].to_f32(), sum)))
        .collect();
    let widened =
        |tile, columns| Matrix { cast: Some(Dtype::F32), ..Matrix::new(Dtype::BF16, tile, columns) };
    let left = widened(bytemuck::cast_slice(&a), k);
    let right = widened(bytemuck::cast_slice(&b), n);
    let extents = Extents { m, n, k };
    dot(Dtype::F32, bytemuck::cast_slice_mut(&mut acc), left, right, extents, &mut Scratch::default());
    assert_eq!(acc, expect);
}

/// Input: bytes that the kernel casts to bf16. Expected: the bits of bf16 operands, in any layout
/// of B.
#[test]
fn bytes_cast_to_bf16_are_operands_of_bf16() {
    let mut random = Random(46);
    for (m, n, k) in [(16, 64, 64), (3, 19, 7), (9, 32, 130)] {
        let a: Vec<half::bf16> =
            (0..m * k).map(|_| half::bf16::from_f32((random.below(2_000_001) as f32 - 1e6) / 3e5)).collect();
        let b: Vec<i8> = (0..k * n).map(|_| random.below(256) as u8 as i8).collect();
        let b_wide: Vec<half::bf16> = b.iter().map(|&b| half::bf16::from_f32(b.into())).collect();
        let transposed = |index: usize| b[index % k * n + index / k];
        let b_transposed: Vec<i8> = (0..k * n).map(transposed).collect();
        let multiply = |b: Matrix<'_>| {
            let mut acc = vec![1.0_f32; m * n];
            let a = Matrix::new(Dtype::BF16, bytemuck::cast_slice(&a), k);
            let extents = Extents { m, n, k };
            dot(Dtype::F32, bytemuck::cast_slice_mut(&mut acc), a, b, extents, &mut Scratch::default());
            acc
        };
        let cast = |tile, columns| Matrix {
            cast: Some(Dtype::BF16),
            ..Matrix::new(Dtype::I8, bytemuck::cast_slice(tile), columns)
        };
        let expect = multiply(Matrix::new(Dtype::BF16, bytemuck::cast_slice(&b_wide), n));
        assert_eq!(multiply(cast(&b[..], n)), expect, "{m} {n} {k}");
        assert_eq!(multiply(cast(&b_transposed[..], k).transposed()), expect, "{m} {n} {k}, transposed");
    }
}

/// Expected: fused multiply-adds with k ascending.
#[test]
fn binary32_is_summed_in_order() {
    let mut random = Random(41);
    let (m, n, k) = (19, 150, 37);
    let float = |random: &mut Random| (random.below(2_000_001) as f32 - 1e6) / 3e5;
    let a: Vec<f32> = (0..m * k).map(|_| float(&mut random)).collect();
    let b: Vec<f32> = (0..k * n).map(|_| float(&mut random)).collect();
    let mut acc: Vec<f32> = (0..m * n).map(|_| float(&mut random)).collect();
    let expect: Vec<f32> = (0..m * n)
        .map(|i| (0..k).fold(acc[i], |sum, l| a[i / n * k + l].mul_add(b[l * n + i % n], sum)))
        .collect();
    let left = Matrix::new(Dtype::F32, bytemuck::cast_slice(&a), k);
    let right = Matrix::new(Dtype::F32, bytemuck::cast_slice(&b), n);
    let extents = Extents { m, n, k };
    dot(Dtype::F32, bytemuck::cast_slice_mut(&mut acc), left, right, extents, &mut Scratch::default());
    assert_eq!(acc, expect);
}
