//! Compares kernels in the simulator with the CPU.

use tilewright_ir::Dtype;

use crate::common::{Random, RandomTensor, Value, check, checked_kernel, float, int, kernel, run_sim, zeros};

const F32: Dtype = Dtype::F32;

#[test]
fn vector_add_of_every_length() {
    let text = "
@triton.jit
def k(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask, other=1), mask=mask)
";
    for dtype in
        [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64, Dtype::I8, Dtype::U8, Dtype::I16, Dtype::I64]
    {
        for (divisibility, n) in [(16, 1024), (16, 992), (1, 997), (1, 1)] {
            let signature = format!("*{dtype}:16, *{dtype}:16, *{dtype}:16, int32:{divisibility}, 512");
            let mut random = Random(3);
            let values = [
                random.tensor(dtype, n as usize),
                random.tensor(dtype, n as usize),
                zeros(dtype, n as usize),
                int(n),
            ];
            check(&kernel(text, &signature), [2, 1, 1], &values, &[dtype, dtype, dtype, Dtype::I32], 0.0);
        }
    }
}

#[test]
fn reductions_along_both_axes() {
    let text = "
@triton.jit
def k(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    tile = tl.load(x + i[:, None] * N + j[None, :])
    tl.store(rows + i, tl.sum(tile, axis=1))
    tl.store(columns + j, tl.max(tile, axis=0))
    tl.store(out, tl.sum(tile) - tl.min(tile))
";
    for dtype in [Dtype::F32, Dtype::F16, Dtype::I32, Dtype::I8, Dtype::F64] {
        for (m, n) in [(4, 128), (64, 32), (128, 2), (1, 256), (16, 16)] {
            let sum = if dtype.is_int() { Dtype::I32 } else { dtype };
            let signature = format!("*{dtype}:16, *{sum}, *{sum}, *{dtype}, {m}, {n}");
            let mut random = Random(m as u64);
            let values = [random.tensor(dtype, m * n), zeros(sum, 1), zeros(sum, m), zeros(dtype, n)];
            let tolerance = if dtype == Dtype::F16 { 2e-2 } else { 1e-5 };
            check(&kernel(text, &signature), [1, 1, 1], &values, &[dtype, sum, sum, dtype], tolerance);
        }
    }
}

#[test]
fn the_place_of_the_largest() {
    let text = "
@triton.jit
def k(x, out, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    tile = tl.load(x + i[:, None] * N + j[None, :])
    tl.store(out + i, tl.argmax(tile, axis=1))
";
    for (m, n) in [(4, 256), (64, 32), (2, 2)] {
        let mut random = Random(9);
        let values = [random.tensor(F32, m * n), zeros(Dtype::I32, m)];
        let signature = format!("*fp32:16, *int32, {m}, {n}");
        check(&kernel(text, &signature), [1, 1, 1], &values, &[F32, Dtype::I32], 0.0);
    }
}

#[test]
fn softmax_and_layer_norm_of_odd_rows() {
    let source = std::fs::read_to_string(tilewright_testkit::project_root().join("benches/kernels.py"));
    let source = source.expect("the benchmarks' kernels are there");
    let (rows, columns) = (3, 781);
    let mut random = Random(4);
    let x = random.tensor(F32, rows * columns);
    let module =
        crate::common::compile("k.py", &source, "softmax_kernel", "*fp32:16, *fp32:16, int32, int32, 1024");
    let values = [zeros(F32, rows * columns), x.clone(), int(columns as i32), int(columns as i32)];
    check(&module, [rows as u32, 1, 1], &values, &[F32, F32, Dtype::I32, Dtype::I32], 1e-6);
    let signature = "*fp32:16, *fp32:16, *fp32:16, *fp32:16, int32, int32, fp32, 1024";
    let module = crate::common::compile("k.py", &source, "layer_norm_kernel", signature);
    let [weight, bias] = [random.tensor(F32, columns), random.tensor(F32, columns)];
    let stride = int(columns as i32);
    let values = [x, weight, bias, zeros(F32, rows * columns), stride.clone(), stride, float(1e-5)];
    check(&module, [rows as u32, 1, 1], &values, &[F32; 7], 1e-5);
}

#[test]
fn matrix_products_of_every_type() {
    let text = "
@triton.jit
def k(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, P: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    cols = tl.program_id(1) * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    acc = tl.zeros((M, N), dtype=c.dtype.element_ty)
    for start in range(0, k, K):
        inner = start + depth
        x = tl.load(a + rows[:, None] * k + inner[None, :], mask=(rows[:, None] < m) & (inner[None, :] < k), other=0)
        y = tl.load(b + inner[:, None] * n + cols[None, :], mask=(inner[:, None] < k) & (cols[None, :] < n), other=0)
        acc = tl.dot(x, y, acc, input_precision=P)
    tl.store(c + rows[:, None] * n + cols[None, :], acc, mask=(rows[:, None] < m) & (cols[None, :] < n))
";
    let cases = [
        (Dtype::F16, Dtype::F32, "ieee"),
        (Dtype::BF16, Dtype::F32, "ieee"),
        (Dtype::F32, Dtype::F32, "ieee"),
        (Dtype::F32, Dtype::F32, "tf32"),
        (Dtype::F32, Dtype::F32, "tf32x3"),
        (Dtype::F32, Dtype::F32, "bf16x3"),
        (Dtype::F32, Dtype::F32, "bf16x6"),
        (Dtype::F64, Dtype::F64, "ieee"),
        (Dtype::I8, Dtype::I32, "ieee"),
    ];
    for (dtype, sum, precision) in cases {
        for (m, n, k, blocks) in [(33, 40, 50, [32, 32, 32]), (16, 64, 64, [16, 64, 32])] {
            let [block_m, block_n, block_k] = blocks;
            let signature = format!(
                "*{dtype}:16, *{dtype}:16, *{sum}:16, int32, int32, int32, {block_m}, {block_n}, {block_k}, {precision}"
            );
            let mut random = Random(5);
            let values = [
                random.tensor(dtype, m * k),
                random.tensor(dtype, k * n),
                zeros(sum, m * n),
                int(m as i32),
                int(n as i32),
                int(k as i32),
            ];
            let grid = [m.div_ceil(block_m) as u32, n.div_ceil(block_n) as u32, 1];
            let dtypes = [dtype, dtype, sum, Dtype::I32, Dtype::I32, Dtype::I32];
            let tolerance = match precision {
                "bf16x3" => 1e-4,
                _ if sum.is_float() => 1e-5,
                _ => 0.0,
            };
            check(&kernel(text, &signature), grid, &values, &dtypes, tolerance);
        }
    }
}

#[test]
fn attention_chains_two_products() {
    let source = std::fs::read_to_string(tilewright_testkit::project_root().join("benches/kernels.py"));
    let source = source.expect("the benchmarks' kernels are there");
    let (rows, head) = (64, 32);
    for dtype in [Dtype::F16, F32] {
        let signature = format!(
            "*{dtype}:16, *{dtype}:16, *{dtype}:16, *fp32:16, int32, int32:16, int32:16, fp32, 32, 32, 32"
        );
        let module = crate::common::compile("k.py", &source, "attention_kernel", &signature);
        let mut random = Random(12);
        let [q, k, v] = [0; 3].map(|_| random.tensor(dtype, 2 * rows * head));
        let values = [
            q,
            k,
            v,
            zeros(F32, 2 * rows * head),
            int((rows * head) as i32),
            int(head as i32),
            int(rows as i32),
            float(0.25),
        ];
        let dtypes = [dtype, dtype, dtype, F32, Dtype::I32, Dtype::I32, Dtype::I32, F32];
        check(&module, [rows as u32 / 32, 2, 1], &values, &dtypes, if dtype == F32 { 1e-5 } else { 2e-3 });
    }
}

#[test]
fn tiles_of_two_and_three_axes_change_their_shape() {
    let text = "
@triton.jit
def k(x, out, M: tl.constexpr, N: tl.constexpr):
    tile = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    cube = tl.reshape(tile, (N, 2, M // 2))
    sums = tl.sum(cube, axis=1)
    turned = tl.permute(cube, (2, 0, 1))
    flat = tl.reshape(turned, (M * N,))
    tl.store(out + tl.arange(0, M * N), flat)
    tl.store(out + M * N + tl.arange(0, N)[:, None] * (M // 2) + tl.arange(0, M // 2)[None, :], sums)
";
    for (m, n) in [(32, 64), (8, 16), (4, 2)] {
        let values = [Random(13).tensor(F32, m * n), zeros(F32, 2 * m * n)];
        let module = kernel(text, &format!("*fp32:16, *fp32:16, {m}, {n}"));
        check(&module, [1, 1, 1], &values, &[F32, F32], 1e-6);
    }
}

#[test]
fn accesses_are_coalesced_and_free_of_bank_conflicts() {
    let source = std::fs::read_to_string(tilewright_testkit::project_root().join("benches/kernels.py"));
    let source = source.expect("the benchmarks' kernels are there");
    // Returns the sectors and wavefronts beyond those that the bytes need.
    let excess = |kernel: &str, signature: &str, grid: u32, mut values: Vec<Value>| {
        let module = crate::common::compile("k.py", &source, kernel, signature);
        let report = run_sim(&module, "sm_90a", 4, [grid, 1, 1], &mut values)
            .unwrap_or_else(|fault| panic!("{fault}"));
        (report.excess_sectors(), report.bank_conflicts())
    };
    let mut random = Random(15);
    for (length, divisibility) in [(4096, 16), (3997, 1)] {
        let signature = format!("*fp32:16, *fp32:16, *fp32:16, int32:{divisibility}, 1024");
        let [x, y] = [0; 2].map(|_| random.tensor(F32, length));
        let values = vec![x, y, zeros(F32, length), int(length as i32)];
        assert_eq!(excess("add_kernel", &signature, 4, values), (0, 0), "vector add of {length}");
    }
    // Each row begins at a sector; the mask excludes columns past its end.
    for (columns, stride, divisibility) in [(1024, 1024, 16), (781, 1024, 1), (781, 784, 1), (13, 16, 1)] {
        let rows = |random: &mut Random, dtype| random.tensor(dtype, 3 * stride);
        let numbers = [int(stride as i32), int(columns as i32)];
        let signature = format!("*fp32:16, *fp32:16, int32:16, int32:{divisibility}, 1024");
        let mut values = vec![zeros(F32, 3 * stride), rows(&mut random, F32)];
        values.extend(numbers.clone());
        assert_eq!(excess("softmax_kernel", &signature, 3, values), (0, 0), "softmax of {columns}");
        for dtype in [F32, Dtype::F16] {
            let signature = format!(
                "*{dtype}:16, *{dtype}:16, *{dtype}:16, *{dtype}:16, int32:16, int32:{divisibility}, fp32, 1024"
            );
            let [weight, bias] = [0; 2].map(|_| random.tensor(dtype, columns));
            let mut values = vec![rows(&mut random, dtype), weight, bias, zeros(dtype, 3 * stride)];
            values.extend(numbers.clone());
            values.push(float(1e-5));
            let found = excess("layer_norm_kernel", &signature, 3, values);
            assert_eq!(found, (0, 0), "layer norm of {columns} {dtype}");
        }
    }
    let [left, right] = [random.tensor(Dtype::F16, 64 * 64), random.tensor(Dtype::F16, 64 * 64)];
    let size = int(64);
    let mut values = vec![left, right, zeros(F32, 64 * 64)];
    values.extend(std::iter::repeat_n(size, 6));
    let signature = "*fp16:16, *fp16:16, *fp32:16, int32:16, int32:16, int32:16, int32:16, 1, int32:16, 1, int32:16, 1, \
                     64, 64, 32";
    assert_eq!(excess("matmul_kernel", signature, 1, values).1, 0);
}

#[test]
fn integer_reductions_use_the_instruction_of_the_warp() {
    let text = "
@triton.jit
def k(x, out, N: tl.constexpr):
    tile = tl.load(x + tl.arange(0, N))
    tl.store(out, tl.sum(tile))
    tl.store(out + 1, tl.max(tile))
    tl.store(out + 2, tl.xor_sum(tile))
";
    let module = kernel(text, "*int32:16, *int32, 256");
    for (target, count) in [("sm_75", 0), ("sm_80", 3)] {
        assert_eq!(crate::common::lower(&module, target, 4).0.matches("redux.sync").count(), count);
    }
    let values = [Random(14).tensor(Dtype::I32, 256), zeros(Dtype::I32, 3)];
    check(&module, [1, 1, 1], &values, &[Dtype::I32, Dtype::I32], 0.0);
}

#[test]
fn transposed_tiles_go_from_thread_to_thread() {
    let text = "
@triton.jit
def k(x, out, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    tile = tl.load(x + i[:, None] * N + j[None, :])
    tl.store(out + j[:, None] * M + i[None, :], tl.trans(tile))
";
    for dtype in [Dtype::F32, Dtype::F16, Dtype::I8, Dtype::F64, Dtype::I1] {
        for (m, n) in [(32, 64), (8, 4), (128, 16)] {
            let signature = format!("*{dtype}:16, *{dtype}:16, {m}, {n}");
            let mut x = Random(6).tensor(dtype, m * n);
            if let (Dtype::I1, Value::Tensor(bytes)) = (dtype, &mut x) {
                for byte in bytes {
                    *byte &= 1;
                }
            }
            check(&kernel(text, &signature), [1, 1, 1], &[x, zeros(dtype, m * n)], &[dtype, dtype], 0.0);
        }
    }
}

#[test]
fn loops_and_branches_carry_values() {
    let text = "
@triton.jit
def k(x, out, n, step, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    previous = offsets
    scaled = offsets
    pointers = x + offsets
    for i in range(n, 0, -2):
        total += tl.load(pointers) * i
        pointers += BLOCK
        previous, offsets = offsets, previous + i
        scaled = scaled * 3 + i
    for i in range(0, n, step):
        if i % 3 == 0:
            total += i
        else:
            total *= 0.5
            offsets += 1
    count = n
    while count > 2:
        count -= 3
        total += count
    if n > 4:
        total = -total
    tl.store(out + tl.arange(0, BLOCK), total + offsets - previous + scaled % 17)
";
    for n in [0, 1, 7, 10] {
        let values = [Random(8).tensor(F32, 512 * 8), zeros(F32, 512), int(n), int(3)];
        let module = kernel(text, "*fp32:16, *fp32:16, int32, int32, 512");
        check(&module, [1, 1, 1], &values, &[F32, F32, Dtype::I32, Dtype::I32], 1e-6);
    }
}

#[test]
fn failed_assertions_stop_the_kernel() {
    let text = "
@triton.jit
def k(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    tl.device_assert(value < 100, 'too large')
    tl.store(out + offsets, value)
";
    let module = checked_kernel(text, "*int32:16, *int32:16, 128");
    let mut values = [Value::Tensor(vec![0; 512]), zeros(Dtype::I32, 128)];
    run_sim(&module, "sm_80", 4, [1, 1, 1], &mut values).expect("nothing is too large");
    let Value::Tensor(bytes) = &mut values[0] else { panic!("it is a tensor") };
    bytes[4 * 77..][..4].copy_from_slice(&100_i32.to_le_bytes());
    let fault = run_sim(&module, "sm_80", 4, [1, 1, 1], &mut values).expect_err("one is too large");
    assert!(fault.contains("too large") && fault.contains("k.py"), "{fault}");
}
