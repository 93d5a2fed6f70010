//! Compares dots with sums of exact products.

use tilewright_cpu::kernels::dot::{Extents, Matrix, Scratch, dot};
use tilewright_ir::Dtype;

use crate::oracle::{Number, Random, decode, encode, pack, unpack};

/// Returns small integers and halves, whose products and sums every type represents exactly.
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
    use Dtype::{BF16, F8E4NV, F8E5, F16, F32, F64, I8, I32, U8};
    let mut scratch = Scratch::default();
    for (acc, a, b) in [
        (F32, F32, F32),
        (F64, F64, F64),
        (I32, I8, I8),
        (I32, U8, I8),
        (F32, F16, F16),
        (F32, BF16, BF16),
        (F32, F8E5, F8E4NV),
        (F16, F16, F16),
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
        ] {
            check(acc, (a, b), Extents { m, n, k }, &mut scratch);
        }
    }
    check(I32, (I32, I32), Extents { m: 4, n: 4, k: 4 }, &mut scratch);
}

/// Tests the fixed order: fused multiply-adds with k ascending.
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
