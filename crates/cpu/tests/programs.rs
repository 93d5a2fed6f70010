//! Compares whole kernels, such as softmax, matmul and attention, with references on the host.
#![allow(clippy::many_single_char_names, reason = "formulas are read in their usual letters")]

mod common;

use common::{Arg, f32s, i32s, int, run};

const ADD: &str = "\
kernel func0 @add(%x: *fp32, %y: *fp32, %z: *fp32, %n: int32) {
  %pid = program_id {axis = 0} : int32
  %block = constant {value = 64:int32} : int32
  %start = mul %pid, %block : int32
  %0 = splat %start {shape = [64]} : int32[64]
  %1 = arange {start = 0, end = 64} : int32[64]
  %offs = add %0, %1 : int32[64]
  %2 = splat %n {shape = [64]} : int32[64]
  %mask = lt %offs, %2 : int1[64]
  %3 = splat %x {shape = [64]} : *fp32[64]
  %4 = ptr_add %3, %offs : *fp32[64]
  %a = load %4, %mask {cache = \"\", eviction = \"\", volatile = false} : fp32[64]
  %5 = splat %y {shape = [64]} : *fp32[64]
  %6 = ptr_add %5, %offs : *fp32[64]
  %b = load %6, %mask {cache = \"\", eviction = \"\", volatile = false} : fp32[64]
  %c = add %a, %b : fp32[64]
  %7 = splat %z {shape = [64]} : *fp32[64]
  %8 = ptr_add %7, %offs : *fp32[64]
  store %8, %c, %mask {cache = \"\", eviction = \"\"}
  return_values
}
";

#[test]
fn vector_add() {
    for n in [0, 1, 63, 64, 65, 1000] {
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let y: Vec<f32> = (0..n).map(|i| 0.5 * i as f32).collect();
        let mut args = [f32s(&x), f32s(&y), f32s(&vec![0.0; n]), int(n as i64)];
        run(ADD, [n.div_ceil(64) as u32, 1, 1], &mut args);
        let expected: Vec<f32> = (0..n).map(|i| 1.5 * i as f32).collect();
        assert_eq!(args[2].as_f32(), expected);
    }
}

#[test]
fn it_prints() {
    let text = common::program(ADD).to_string();
    assert!(text.starts_with("cpu program add(s0 x: *fp32"), "{text}");
}

const ARGMAX: &str = "\
kernel func0 @argmax(%x: *fp32, %z: *int32) {
  %offs = arange {start = 0, end = 13} : int32[13]
  %3 = splat %x {shape = [13]} : *fp32[13]
  %4 = ptr_add %3, %offs : *fp32[13]
  %a = load %4 {cache = \"\", eviction = \"\", volatile = false} : fp32[13]
  %v, %i = reduce %a, %offs {axis = 0} (%v1: fp32, %i1: int32, %v2: fp32, %i2: int32) {
    %gt = gt %v1, %v2 : int1
    %v3 = select %gt, %v1, %v2 : fp32
    %i3 = select %gt, %i1, %i2 : int32
    yield_values %v3, %i3
  } : fp32, int32
  store %z, %i {cache = \"\", eviction = \"\"}
  return_values
}
";

#[test]
fn argmax() {
    let x: Vec<f32> = (0..13).map(|i| ((i * 7) % 13) as f32).collect();
    let mut args = [f32s(&x), i32s(&[0])];
    run(ARGMAX, [1, 1, 1], &mut args);
    assert_eq!(args[1].as_i32(), [11]);
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
}

fn assert_close(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(found) - expected).abs() <= tolerance, "{index}: {found}, expected {expected}");
    }
}

/// Multiplies the rows of `a` by the rows of `b`, of length k.
fn products(a: &[f64], b: &[f64], k: usize) -> Vec<f64> {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    a.chunks(k).flat_map(|x| b.chunks(k).map(move |y| dot(x, y))).collect()
}

fn transposed(a: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|j| a.chunks(columns).map(move |row| row[j])).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| value.into()).collect()
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> = row.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    exponentials.iter().map(|x| x / sum).collect()
}

#[test]
fn softmax_of_rows() {
    let (rows, columns) = (5, 781);
    let x = numbers(rows * columns, 1);
    let mut args = [
        f32s(&vec![0.0; rows * columns]),
        f32s(&x),
        int(columns as i64),
        int(columns as i64),
        int(columns as i64),
    ];
    run(include_str!("kernels/softmax.ir"), [rows as u32, 1, 1], &mut args);
    let expected: Vec<f64> = wide(&x).chunks(columns).flat_map(softmax).collect();
    assert_close(&args[0].as_f32(), &expected, 1e-7);
}

#[test]
fn layer_norm_of_rows_longer_than_a_block() {
    let (rows, columns) = (3, 1500);
    let (x, w, b) = (numbers(rows * columns, 1), numbers(columns, 2), numbers(columns, 3));
    let mut args = [
        f32s(&x),
        f32s(&vec![0.0; rows * columns]),
        f32s(&w),
        f32s(&b),
        f32s(&[0.0; 3]),
        f32s(&[0.0; 3]),
        int(columns as i64),
        int(columns as i64),
        int(1e-5_f32.to_bits().into()),
    ];
    run(include_str!("kernels/layer_norm.ir"), [rows as u32, 1, 1], &mut args);
    let mut expected = Vec::new();
    for row in wide(&x).chunks(columns) {
        let mean = row.iter().sum::<f64>() / columns as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / columns as f64;
        let scale = 1.0 / (variance + 1e-5).sqrt();
        expected.extend(
            row.iter().zip(&w).zip(&b).map(|((x, &w), &b)| (x - mean) * scale * f64::from(w) + f64::from(b)),
        );
    }
    assert_close(&args[1].as_f32(), &expected, 1e-5);
}

#[test]
fn matmul_with_ragged_edges() {
    // Rows and columns wrap around, so the pointers are not affine.
    let (m, n, k) = (100, 70, 128);
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let expected = |a: &[f32], b: &[f32]| products(&wide(a), &transposed(&wide(b), n), k);
    let sizes = [int(m as i64), int(n as i64), int(k as i64)];
    let [m_arg, n_arg, k_arg] = sizes;
    let mut args = [f32s(&a), f32s(&b), f32s(&vec![0.0; m * n]), m_arg, n_arg, k_arg];
    run(include_str!("kernels/matmul_fp32.ir"), [2, 2, 1], &mut args);
    assert_close(&args[2].as_f32(), &expected(&a, &b), 1e-5);

    let bits =
        |values: &[f32]| values.iter().map(|&x| half::f16::from_f32(x).to_bits()).collect::<Vec<u16>>();
    let rounded =
        |values: &[f32]| values.iter().map(|&x| half::f16::from_f32(x).to_f32()).collect::<Vec<f32>>();
    args[0] = common::u16s(&bits(&a));
    args[1] = common::u16s(&bits(&b));
    args[2] = f32s(&vec![0.0; m * n]);
    run(include_str!("kernels/matmul_fp16.ir"), [2, 2, 1], &mut args);
    assert_close(&args[2].as_f32(), &expected(&rounded(&a), &rounded(&b)), 1e-5);
}

#[test]
fn flash_attention() {
    let (heads, length, size) = (2, 128, 64);
    let [q, k, v] = [1, 2, 3].map(|seed| numbers(heads * length * size, seed));
    // The kernel computes powers of two, so its scale contains the factor log2(e).
    let scale = 3.0_f32;
    let mut args = [
        f32s(&q),
        f32s(&k),
        f32s(&v),
        f32s(&vec![0.0; heads * length * size]),
        int(length as i64),
        int((scale * std::f32::consts::LOG2_E).to_bits().into()),
    ];
    run(include_str!("kernels/attention.ir"), [2, heads as u32, 1], &mut args);
    let mut expected = Vec::new();
    for head in 0..heads {
        let part = |x: &[f32]| wide(&x[head * length * size..][..length * size]);
        let scores: Vec<f64> =
            products(&part(&q), &part(&k), size).iter().map(|x| x * f64::from(scale)).collect();
        let weights: Vec<f64> = scores.chunks(length).flat_map(softmax).collect();
        expected.extend(products(&weights, &transposed(&part(&v), size), length));
    }
    assert_close(&args[3].as_f32(), &expected, 1e-5);
}

#[test]
fn an_output_larger_than_the_caches_is_filled() {
    const ELEMENTS: usize = 13 << 20;
    let addend = || Arg::Bytes(vec![0x3f; ELEMENTS * 4]);
    let mut args = [addend(), addend(), Arg::Bytes(vec![0; ELEMENTS * 4]), int(ELEMENTS as i64 - 5)];
    let sum = 2.0 * f32::from_bits(0x3f3f_3f3f);
    for round in 0..2 {
        run(include_str!("kernels/add.ir"), [(ELEMENTS / 1024) as u32, 1, 1], &mut args);
        let (filled, rest) = (args[2].as_f32(), [0.0; 5]);
        assert_eq!(filled.iter().position(|&element| element != sum), Some(ELEMENTS - 5), "{round}");
        assert_eq!(filled[ELEMENTS - 5..], rest);
    }
}

/// An int8 matmul in fp16. The second operand is transposed in memory.
const QUANTIZED: &str = "\
kernel func0 @quantized(%a: *int8, %b: *int8, %c: *fp32) {
  %zero = constant {value = 0.0:fp32} : fp32
  %k = constant {value = 8:int32} : int32
  %rows = arange {start = 0, end = 16} : int32[16]
  %0 = expand_dims %rows {axis = 1} : int32[16, 1]
  %1 = splat %k {shape = [16, 1]} : int32[16, 1]
  %2 = mul %0, %1 : int32[16, 1]
  %3 = broadcast %2 {shape = [16, 8]} : int32[16, 8]
  %depth = arange {start = 0, end = 8} : int32[8]
  %4 = expand_dims %depth {axis = 0} : int32[1, 8]
  %5 = broadcast %4 {shape = [16, 8]} : int32[16, 8]
  %offsets = add %3, %5 : int32[16, 8]
  %6 = splat %a {shape = [16, 8]} : *int8[16, 8]
  %7 = ptr_add %6, %offsets : *int8[16, 8]
  %8 = load %7 {cache = \"\", eviction = \"\", volatile = false} : int8[16, 8]
  %9 = cast %8 {element = fp16, rounding = \"rtne\"} : fp16[16, 8]
  %10 = splat %b {shape = [16, 8]} : *int8[16, 8]
  %11 = ptr_add %10, %offsets : *int8[16, 8]
  %12 = load %11 {cache = \"\", eviction = \"\", volatile = false} : int8[16, 8]
  %13 = transpose %12 {permutation = [1, 0]} : int8[8, 16]
  %14 = cast %13 {element = fp16, rounding = \"rtne\"} : fp16[8, 16]
  %acc = splat %zero {shape = [16, 16]} : fp32[16, 16]
  %15 = dot %9, %14, %acc {precision = \"ieee\", max_imprecise_acc = 0} : fp32[16, 16]
  %n = constant {value = 16:int32} : int32
  %16 = splat %n {shape = [16, 1]} : int32[16, 1]
  %17 = mul %0, %16 : int32[16, 1]
  %18 = broadcast %17 {shape = [16, 16]} : int32[16, 16]
  %19 = expand_dims %rows {axis = 0} : int32[1, 16]
  %20 = broadcast %19 {shape = [16, 16]} : int32[16, 16]
  %21 = add %18, %20 : int32[16, 16]
  %22 = splat %c {shape = [16, 16]} : *fp32[16, 16]
  %23 = ptr_add %22, %21 : *fp32[16, 16]
  store %23, %15 {cache = \"\", eviction = \"\"}
  return_values
}
";

#[test]
fn a_dot_reads_the_source_of_a_swap_and_of_a_wider_copy() {
    let text = common::program(QUANTIZED).to_string();
    assert!(text.contains("trans_b") && !text.contains("= cast"), "{text}");
    let bytes = |seed: i32| (0..128).map(|i| ((i * 37 + seed) % 255 - 127) as i8).collect::<Vec<i8>>();
    let (a, b) = (bytes(1), bytes(91));
    let wide = |values: &[i8]| values.iter().map(|&x| x.into()).collect::<Vec<f64>>();
    let mut args = [common::i8s(&a), common::i8s(&b), f32s(&[0.0; 256])];
    run(QUANTIZED, [1, 1, 1], &mut args);
    assert_close(&args[2].as_f32(), &products(&wide(&a), &wide(&b), 8), 0.0);
}

#[test]
fn a_dot_reads_rounded_operands_after_a_narrowing_cast() {
    // fp16 rounds these numbers to 1.
    let values = [1.0 + f32::EPSILON; 128];
    let mut args = [f32s(&values), f32s(&values), f32s(&[0.0; 256])];
    run(&QUANTIZED.replace("int8", "fp32"), [1, 1, 1], &mut args);
    assert_eq!(args[2].as_f32(), [8.0; 256]);
}
