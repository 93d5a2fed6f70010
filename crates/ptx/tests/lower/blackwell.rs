//! Tests Blackwell's 32-byte accesses and arithmetic on pairs of fp32. Compares results with the
//! CPU, and assembles the text.

use tilewright_ir::{Dtype, Module};
use tilewright_testkit::Ptxas;

use crate::common::{Random, RandomTensor, Value, check_on, float, int, kernel, lower, zeros};

const F32: Dtype = Dtype::F32;

/// Returns a kernel that adds two tensors whose addresses are multiples of `alignment`.
fn sum(dtype: Dtype, alignment: u32, n: &str, block: u32) -> Module {
    let text = "
@triton.jit
def k(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask, other=1), mask=mask)
";
    let pointer = format!("*{dtype}:{alignment}");
    kernel(text, &format!("{pointer}, {pointer}, {pointer}, {n}, {block}"))
}

#[test]
fn aligned_accesses_move_32_bytes() {
    let cases = [
        (F32, 1024, "v8.b32", "v4.b32"),
        (Dtype::F16, 2048, "v8.b32", "v4.b32"),
        (Dtype::I8, 4096, "v8.b32", "v4.b32"),
        (Dtype::F64, 512, "v4.b64", "v2.b64"),
    ];
    for (dtype, block, wide, narrow) in cases {
        for (target, alignment, vector) in [
            ("sm_100", 32, wide),
            ("sm_100a", 64, wide),
            ("sm_120", 32, wide),
            ("sm_100", 16, narrow),
            ("sm_90a", 32, narrow),
        ] {
            let (text, _) = lower(&sum(dtype, alignment, "int32:32", block), target, 4);
            let accesses = if vector == wide { 1 } else { 2 };
            let count = |what: &str| text.matches(&format!("{what}.global.{vector}")).count();
            let found = (count("ld"), count("st"));
            assert_eq!(found, (2 * accesses, accesses), "{dtype} on {target}\n{text}");
            let version = if vector == wide { ".version 8.8" } else { ".version 8." };
            assert!(text.contains(version), "{target}\n{text}");
            assert_eq!(text.contains(".version 8.8"), vector == wide, "{target}\n{text}");
        }
    }
}

#[test]
fn accesses_of_32_bytes_move_the_same_elements() {
    for dtype in [F32, Dtype::F16, Dtype::BF16, Dtype::F64, Dtype::I8, Dtype::U8, Dtype::I16, Dtype::I64] {
        for n in [4096, 2048 - 32, 32] {
            let mut random = Random(5);
            let values = [random.tensor(dtype, 4096), random.tensor(dtype, 4096), zeros(dtype, 4096), int(n)];
            let module = sum(dtype, 32, "int32:32", 4096);
            check_on(&[("sm_100", 4), ("sm_120", 8)], &module, [1, 1, 1], &values, &[dtype; 3], 0.0);
        }
    }
}

/// A kernel on tiles of 32 rows and 64 columns. It has broadcasts, constants, a loop with carried
/// tiles, and sums of products.
const ARITHMETIC: &str = "
@triton.jit
def k(x, y, rows, out, sums, scale, n, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :]
    a = tl.load(x + i * N + j)
    b = tl.load(y + i * N + j)
    row = tl.load(rows + i)
    column = tl.load(rows + M + j)
    total = tl.zeros([M, N], tl.float32)
    for step in range(n):
        total = total * row + tl.fma(a, b, column) - scale
        a = a * 0.5 - b
    tl.store(out + i * N + j, tl.maximum(total, -1000.0) + 1.0)
    tl.store(sums + tl.arange(0, M), tl.sum(a * b, axis=1))
";
const SIGNATURE: &str = "*fp32:16, *fp32:16, *fp32:16, *fp32:16, *fp32:16, fp32, int32, 32, 64";

fn arithmetic_values() -> Vec<Value> {
    let mut random = Random(11);
    let [a, b] = [0; 2].map(|_| random.tensor(F32, 32 * 64));
    let rows = random.tensor(F32, 96);
    vec![a, b, rows, zeros(F32, 32 * 64), zeros(F32, 32), float(0.375), int(3)]
}

#[test]
fn pairs_have_the_results_of_elements() {
    let module = kernel(ARITHMETIC, SIGNATURE);
    let on = [("sm_100", 1), ("sm_100", 4), ("sm_100", 8)];
    check_on(&on, &module, [1, 1, 1], &arithmetic_values(), &[F32; 5], 1e-6);
    let edges = [f32::NAN, f32::INFINITY, -0.0, 0.0, 1e-45, -1e-38, f32::MAX, f32::MIN];
    let bytes = |first: usize| {
        let numbers = (0..32 * 64).map(|index| edges[(index * 5 + index / 8 + first) % 8]);
        Value::Tensor(numbers.flat_map(f32::to_le_bytes).collect())
    };
    let text = "
@triton.jit
def k(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, a * b)
    tl.store(out + N + i, a + b)
    tl.store(out + 2 * N + i, a - b)
    tl.store(out + 3 * N + i, tl.fma(a, b, a))
";
    let module = kernel(text, "*fp32:16, *fp32:16, *fp32:16, 2048");
    let values = [bytes(0), bytes(3), zeros(F32, 4 * 2048)];
    check_on(&[("sm_100", 4)], &module, [1, 1, 1], &values, &[F32; 3], 0.0);
}

#[test]
fn adjacent_elements_are_computed_in_pairs() {
    let module = kernel(ARITHMETIC, SIGNATURE);
    let (text, _) = lower(&module, "sm_100", 4);
    for instruction in ["add.f32x2", "sub.f32x2", "mul.f32x2", "fma.rn.f32x2"] {
        assert!(text.contains(instruction), "{instruction}\n{text}");
    }
    // The reduction's products are single, because the assembler contracts each with its addition.
    let products = 32 * 64 / 128;
    assert_eq!(text.matches("mul.f32 ").count(), products, "{text}");
    for target in ["sm_90a", "sm_120"] {
        assert!(!lower(&module, target, 4).0.contains("f32x2"), "{target}");
    }
    // Each function reads the words of the previous function's pairs.
    let text = "
@triton.jit
def k(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.store(y + i, (a * a + 1.0) * a - 3.0)
";
    let (text, _) = lower(&kernel(text, "*fp32:16, *fp32:16, 1024"), "sm_100", 4);
    assert_eq!(text.matches("f32x2").count(), 4 * 4, "{text}");
    let moves =
        text.lines().filter_map(|line| line.trim_start().strip_prefix("mov.b64")).map(str::trim_start);
    let (unpacked, others): (Vec<&str>, Vec<&str>) = moves.partition(|operands| operands.starts_with('{'));
    let packed = others.iter().filter(|operands| operands.contains('{'));
    assert_eq!((packed.count(), unpacked.len()), (4, 4), "{text}");
}

#[test]
fn dots_of_fp32_are_computed_in_pairs() {
    let text = "
@triton.jit
def k(x, y, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :]
    d = tl.arange(0, K)
    a = tl.load(x + i * K + d[None, :])
    b = tl.load(y + d[:, None] * N + j)
    tl.store(out + i * N + j, tl.dot(a, b, input_precision='ieee'))
";
    let module = kernel(text, "*fp32:16, *fp32:16, *fp32:16, 32, 32, 16");
    let (text, _) = lower(&module, "sm_100", 4);
    assert_eq!(text.matches("fma.rn.f32x2").count(), 32 * 32 / 128 * 16 / 2, "{text}");
    assert_eq!(text.matches("fma.rn.f32 ").count(), 0, "{text}");
    let mut random = Random(3);
    let values = [random.tensor(F32, 32 * 16), random.tensor(F32, 16 * 32), zeros(F32, 32 * 32)];
    check_on(&[("sm_100", 4)], &module, [1, 1, 1], &values, &[F32; 3], 1e-6);
}

#[test]
fn ptxas_accepts_the_instructions_of_blackwell() {
    let Some(ptxas) = Ptxas::find_or_skip("ptxas_accepts_the_instructions_of_blackwell") else { return };
    let modules =
        [kernel(ARITHMETIC, SIGNATURE), sum(F32, 32, "int32:32", 1024), sum(Dtype::F64, 32, "int32", 512)];
    for module in &modules {
        for target in ["sm_100", "sm_100a", "sm_120"] {
            let (text, _) = lower(module, target, 4);
            let assembled = ptxas.assemble(&text, target).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let usage = assembled.usage("k").expect("the kernel is in the report");
            assert_eq!((usage.spill_stores, usage.spill_loads), (0, 0), "{target}");
        }
    }
}
