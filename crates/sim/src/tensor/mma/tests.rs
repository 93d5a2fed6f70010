//! Compares multiplications of every shape and type with a loop over integers.

use super::*;
use Element::{B1, Bf16, E2m1, E2m3, E3m2, E4m3, E5m2, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};

/// Returns every dense `mma` of the ISA: (m, n, k), A, B, C, D.
fn all() -> Vec<Mma> {
    let mut all = Vec::new();
    let mut add =
        |shapes: &[(usize, usize, usize)], inputs: &[Element], accumulators: &[Element], same: bool| {
            for &(m, n, k) in shapes {
                for &a in inputs {
                    for &b in inputs.iter().filter(|&&b| !same || a == b) {
                        for &c in accumulators {
                            all.push(Mma { m, n, k, a, b, c, d: c, product: IntegerProduct::Wrapping });
                        }
                    }
                }
            }
        };
    add(&[(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)], &[F64], &[F64], true);
    add(&[(16, 8, 8), (16, 8, 16)], &[F16], &[F16, F32], true);
    add(&[(16, 8, 8), (16, 8, 16)], &[Bf16], &[F32], true);
    add(&[(16, 8, 4), (16, 8, 8)], &[Tf32], &[F32], true);
    add(&[(16, 8, 16), (16, 8, 32)], &[E4m3, E5m2], &[F16, F32], false);
    add(&[(8, 8, 16), (16, 8, 16), (16, 8, 32)], &[S8, U8], &[S32], false);
    add(&[(8, 8, 32), (16, 8, 32), (16, 8, 64)], &[S4, U4], &[S32], false);
    add(&[(8, 8, 128), (16, 8, 128), (16, 8, 256)], &[B1], &[S32], true);
    all
}

/// Returns the bits of a small integer by the definition of the format.
fn encode(element: Element, value: i64) -> u64 {
    let narrow = |exponent_bits: u32, mantissa_bits: u32| {
        if value == 0 {
            return 0;
        }
        let magnitude = value.unsigned_abs();
        let exponent = magnitude.ilog2();
        let mantissa = (magnitude << mantissa_bits >> exponent) & ((1 << mantissa_bits) - 1);
        let biased = u64::from(exponent) + (1 << (exponent_bits - 1)) - 1;
        u64::from(value < 0) << (exponent_bits + mantissa_bits) | biased << mantissa_bits | mantissa
    };
    match element {
        F64 => narrow(11, 52),
        F32 | Tf32 => narrow(8, 23),
        F16 => narrow(5, 10),
        Bf16 => narrow(8, 7),
        E4m3 => narrow(4, 3),
        E5m2 => narrow(5, 2),
        E2m3 => narrow(2, 3),
        E3m2 => narrow(3, 2),
        E2m1 => narrow(2, 1),
        S32 | S8 | U8 | S4 | U4 | B1 => value as u64,
    }
}

/// Returns small integers that the format represents exactly.
fn matrix(rows: usize, columns: usize, element: Element, seed: i64) -> Matrix<i64> {
    let mut matrix = Matrix::new(rows, columns);
    for (index, value) in matrix.elements.iter_mut().enumerate() {
        let noise = (index as i64 * 2_654_435_761 + seed * 40_503) >> 7;
        *value = match element {
            U8 | U4 => noise.rem_euclid(16),
            S8 | S4 => noise.rem_euclid(16) - 8,
            B1 => noise & 1,
            F64 | F32 | Tf32 | F16 | Bf16 | E4m3 | E5m2 | E2m3 | E3m2 | E2m1 | S32 => noise.rem_euclid(7) - 3,
        };
    }
    matrix
}

/// Returns `A B + C`.
fn expected(mma: &Mma, [left, right, before]: [&Matrix<i64>; 3]) -> Matrix<i64> {
    let mut sums = before.clone();
    for row in 0..mma.m {
        for column in 0..mma.n {
            for at in 0..mma.k {
                let (x, y) = (left[(row, at)], right[(at, column)]);
                sums[(row, column)] += match mma.product {
                    IntegerProduct::XorPopcount => x ^ y,
                    IntegerProduct::AndPopcount | IntegerProduct::Wrapping | IntegerProduct::Saturating => {
                        x * y
                    }
                };
            }
        }
    }
    sums
}

fn run(mma: &Mma, a: &Matrix<i64>, b: &Matrix<i64>, c: &Matrix<i64>) -> Vec<Lanes> {
    let [a, b, c] = [(MatrixRole::A, a), (MatrixRole::B, b), (MatrixRole::Accumulator, c)]
        .map(|(operand, matrix)| mma.fragment(operand).scatter(matrix, encode));
    mma.execute(&a, &b, &c)
}

#[test]
fn every_shape_and_type_multiplies() {
    for mut mma in all() {
        let products = if mma.a == B1 {
            [IntegerProduct::XorPopcount, IntegerProduct::AndPopcount]
        } else {
            [IntegerProduct::Wrapping, IntegerProduct::Saturating]
        };
        for product in products {
            mma.product = product;
            assert!(mma.exists(), "{mma:?}");
            let a = matrix(mma.m, mma.k, mma.a, 1);
            let b = matrix(mma.k, mma.n, mma.b, 2);
            let c = matrix(mma.m, mma.n, mma.c, 3);
            let d = mma.fragment(MatrixRole::Accumulator).scatter(&expected(&mma, [&a, &b, &c]), encode);
            assert_eq!(run(&mma, &a, &b, &c), d, "{mma:?}");
        }
    }
}

#[test]
fn integers_wrap_or_saturate() {
    let mut mma = Mma { m: 8, n: 8, k: 16, a: U8, b: U8, c: S32, d: S32, product: IntegerProduct::Wrapping };
    let ones = Matrix { rows: 8, columns: 16, elements: vec![1; 128] };
    let c = Matrix { rows: 8, columns: 8, elements: vec![i64::from(i32::MAX) - 15; 64] };
    let wrapped = run(&mma, &ones, &ones.transposed(), &c);
    assert!(wrapped.iter().flatten().all(|&bits| bits as u32 as i32 == i32::MIN));
    mma.product = IntegerProduct::Saturating;
    let saturated = run(&mma, &ones, &ones.transposed(), &c);
    assert!(saturated.iter().flatten().all(|&bits| bits as u32 as i32 == i32::MAX));
}

#[test]
fn sums_are_rounded_once() {
    // Each of 8 products is 2^-24, half of the last place of 1 in f32. Expected: the exact sum 1 +
    // 2^-21.
    let mma = Mma { m: 16, n: 8, k: 8, a: F16, b: F16, c: F32, d: F32, product: IntegerProduct::Wrapping };
    let tiny = mma
        .fragment(MatrixRole::A)
        .scatter(&Matrix { rows: 16, columns: 8, elements: vec![0u16; 128] }, |_, _| {
            u64::from(half::f16::from_f32(2f32.powi(-12)).to_bits())
        });
    let b = mma
        .fragment(MatrixRole::B)
        .scatter(&Matrix { rows: 8, columns: 8, elements: vec![0u16; 64] }, |_, _| {
            u64::from(half::f16::from_f32(2f32.powi(-12)).to_bits())
        });
    let c = vec![[u64::from(1f32.to_bits()); 32]; 4];
    let d = mma.execute(&tiny, &b, &c);
    assert!(d.iter().flatten().all(|&bits| f32::from_bits(bits as u32) == 1.0 + 2f32.powi(-21)));
}

#[test]
fn shapes_that_the_isa_lacks_do_not_exist() {
    let exists =
        |m, n, k, a, b, c| Mma { m, n, k, a, b, c, d: c, product: IntegerProduct::Wrapping }.exists();
    assert!(!exists(16, 8, 32, F16, F16, F32));
    assert!(!exists(16, 8, 16, F16, Bf16, F32));
    assert!(!exists(16, 8, 16, Bf16, Bf16, F16));
    assert!(!exists(8, 8, 16, F16, F16, F16));
    assert!(!exists(16, 8, 32, S8, S4, S32));
}
