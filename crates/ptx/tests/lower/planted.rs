//! Plants mistakes in the PTX of kernels, which must be noticed. The simulator finds a fault, or
//! the result changes.

use tilewright_ir::Dtype;

use crate::common::{Random, RandomTensor, Value, compile, int, kernel, lower, run_cpu, run_text, zeros};

const F32: Dtype = Dtype::F32;
const TARGET: &str = "sm_80";
const WARPS: u32 = 4;

/// A kernel with its arguments. `output` is the index of the written argument.
struct Case {
    target: &'static str,
    text: String,
    shared_bytes: u32,
    grid: [u32; 3],
    values: Vec<Value>,
    output: usize,
    expected: Value,
}

impl Case {
    fn new(module: &tilewright_ir::Module, grid: [u32; 3], values: Vec<Value>, output: usize) -> Self {
        Self::on(TARGET, module, grid, values, output)
    }

    fn on(
        target: &'static str,
        module: &tilewright_ir::Module,
        grid: [u32; 3],
        values: Vec<Value>,
        output: usize,
    ) -> Self {
        Self::of(lower(module, target, WARPS), target, module, grid, values, output)
    }

    fn of(
        (text, shared_bytes): (String, u32),
        target: &'static str,
        module: &tilewright_ir::Module,
        grid: [u32; 3],
        values: Vec<Value>,
        output: usize,
    ) -> Self {
        let mut expected = values.clone();
        run_cpu(module, grid, &mut expected);
        let expected = expected.swap_remove(output);
        let case = Self { target, text, shared_bytes, grid, values, output, expected };
        assert_eq!(case.outcome(&case.text), Ok(true), "without a mistake it is right");
        case
    }

    /// Returns whether a PTX text computes the CPU's result. `Err` is the fault.
    fn outcome(&self, text: &str) -> Result<bool, String> {
        let mut values = self.values.clone();
        run_text(text, self.shared_bytes, self.target, WARPS, self.grid, &mut values)?;
        let (Value::Tensor(found), Value::Tensor(expected)) = (&values[self.output], &self.expected) else {
            panic!("the output is a tensor")
        };
        let floats = |bytes: &[u8]| {
            let numbers =
                bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four")));
            numbers.collect::<Vec<f32>>()
        };
        let pairs = floats(found).into_iter().zip(floats(expected));
        Ok(pairs.into_iter().all(|(x, y)| (x - y).abs() <= 1e-4 * y.abs().max(1.0)))
    }

    /// Removes the line with index `number` among those with a word.
    fn without(&self, word: &str, number: usize) -> String {
        let mut removed = false;
        let lines = self.text.lines().enumerate().filter(|(index, line)| {
            let place = self.text.lines().take(*index).filter(|line| line.contains(word)).count();
            let is_it = line.contains(word) && place == number;
            removed |= is_it;
            !is_it
        });
        let text = lines.map(|(_, line)| line).collect::<Vec<_>>().join("\n");
        assert!(removed, "there is no {word} number {number}");
        text
    }
}

fn softmax() -> Case {
    let source = std::fs::read_to_string(tilewright_testkit::project_root().join("benches/kernels.py"));
    let source = source.expect("the benchmarks' kernels are there");
    let (rows, columns) = (2, 781);
    let module = compile("k.py", &source, "softmax_kernel", "*fp32:16, *fp32:16, int32, int32, 1024");
    let mut random = Random(4);
    let x = random.tensor(F32, rows * columns);
    let values = vec![zeros(F32, rows * columns), x, int(columns as i32), int(columns as i32)];
    Case::new(&module, [rows as u32, 1, 1], values, 0)
}

fn product() -> Case {
    let text = "
@triton.jit
def k(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)
    cols = tl.arange(0, N)
    depth = tl.arange(0, K)
    x = tl.load(a + rows[:, None] * K + depth[None, :])
    y = tl.load(b + depth[:, None] * N + cols[None, :])
    tl.store(c + rows[:, None] * N + cols[None, :], tl.dot(x, y))
";
    let module = kernel(text, "*fp16:16, *fp16:16, *fp32:16, 64, 64, 64");
    let mut random = Random(5);
    let values =
        vec![random.tensor(Dtype::F16, 64 * 64), random.tensor(Dtype::F16, 64 * 64), zeros(F32, 64 * 64)];
    Case::new(&module, [1, 1, 1], values, 2)
}

fn add() -> Case {
    let text = "
@triton.jit
def k(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + 1.0, mask=mask)
";
    let module = kernel(text, "*fp32:16, *fp32:16, int32, 512");
    let mut random = Random(6);
    let values = vec![random.tensor(F32, 997), zeros(F32, 997), int(997)];
    Case::new(&module, [2, 1, 1], values, 1)
}

/// Two dots of warpgroups in a loop. An operand of the second is the result of the first.
fn chain_of_products() -> Case {
    let text = "
@triton.jit
def k(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)
    cols = tl.arange(0, N)
    depth = tl.arange(0, K)
    x = tl.load(a + rows[:, None] * K + depth[None, :])
    acc = tl.zeros((M, N), tl.float32)
    for i in range(0, 2 * K, K):
        y = tl.load(b + (i + depth[:, None]) * N + cols[None, :])
        z = tl.dot(x, y)
        acc = tl.dot(z.to(tl.float16), y, acc)
    tl.store(c + rows[:, None] * N + cols[None, :], acc)
";
    let module = kernel(text, "*fp16:16, *fp16:16, *fp32:16, 64, 32, 32");
    let mut random = Random(8);
    let mut values = vec![random.tensor(Dtype::F16, 64 * 32), random.tensor(Dtype::F16, 64 * 32)];
    values.push(zeros(F32, 64 * 32));
    Case::on("sm_90a", &module, [1, 1, 1], values, 2)
}

/// A dot of warpgroups in a loop with four slots, copied by threads.
fn copied_product() -> Case {
    let text = "
@triton.jit
def k(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STEP: tl.constexpr):
    rows = tl.arange(0, M)
    cols = tl.arange(0, N)
    depth = tl.arange(0, STEP)
    acc = tl.zeros((M, N), tl.float32)
    for i in tl.range(0, K, STEP, num_stages=4):
        x = tl.load(a + rows[:, None] * K + (i + depth)[None, :])
        y = tl.load(b + (i + depth)[:, None] * N + cols[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rows[:, None] * N + cols[None, :], acc)
";
    let module = kernel(text, "*fp16:16, *fp16:16, *fp32:16, 64, 32, 256, 32");
    let mut random = Random(9);
    let mut values = vec![random.tensor(Dtype::F16, 64 * 256), random.tensor(Dtype::F16, 256 * 32)];
    values.push(zeros(F32, 64 * 32));
    Case::on("sm_90a", &module, [1, 1, 1], values, 2)
}

#[test]
fn what_copies_for_products_of_warpgroups_lack_is_found() {
    let case = copied_product();
    let (_, body) = case.text.split_once("\n$loop").expect("there is a loop");
    let (body, _) = body.split_once("bra ").expect("it ends");
    let count = |text: &str, word: &str| text.lines().filter(|line| line.contains(word)).count();
    // One barrier is for full slots, and one for empty slots.
    for (word, times, expected) in [
        ("bar.sync", 2, "race"),
        ("fence.proxy.async", 1, "proxy"),
        ("cp.async.wait_group", 1, ""),
        ("wgmma.wait_group", 1, ""),
    ] {
        assert_eq!(count(body, word), times, "{word}\n{}", case.text);
        let (before, _) = case.text.split_once("\n$loop").expect("there is a loop");
        for number in 0..count(before, word) + times {
            let outcome = case.outcome(&case.without(word, number));
            let fault = outcome.expect_err(&format!("{word} {number}"));
            let line = fault.lines().next().unwrap_or_default();
            assert!(fault.contains(expected), "{word} {number}: {line}");
        }
    }
    // Data of the current iteration may be missing.
    let waits = body.lines().find(|line| line.contains("cp.async.wait_group")).expect("it waits");
    let (head, pending) = waits.rsplit_once(' ').expect("for a number");
    let pending: u32 = pending.trim_end_matches(';').parse().expect("a number");
    let wrong = case.text.replacen(body, &body.replace(waits, &format!("{head} {};", pending + 1)), 1);
    assert_ne!(wrong, case.text);
    assert!(case.outcome(&wrong).is_err(), "it is noticed");
}

#[test]
fn what_products_of_warpgroups_lack_is_found() {
    let case = chain_of_products();
    let count = |word: &str| case.text.lines().filter(|line| line.contains(word)).count();
    for (word, first, expected) in [
        // The loop's fence also follows the stores before the loop.
        ("fence.proxy.async", 1, "proxy"),
        ("bar.sync", 0, "race"),
        ("wgmma.fence", 0, "wgmma.fence"),
        ("wgmma.wait_group", 0, "wgmma.wait_group"),
    ] {
        assert!(count(word) > first, "{word}\n{}", case.text);
        // The simulator ignores moves to a fragment of A, for which the second `wgmma.fence` is.
        let last = if word == "wgmma.fence" { 1 } else { count(word) };
        for number in first..last {
            let outcome = case.outcome(&case.without(word, number));
            let fault = outcome.expect_err(&format!("{word} {number}"));
            assert!(
                fault.contains(expected),
                "{word} {number}: {}",
                fault.lines().next().unwrap_or_default()
            );
        }
    }
    // The stride in a descriptor: eight rows of 64 bytes.
    let high = (512_u32 / 16) | 2 << 30;
    let stride = format!("{}", high as i32);
    assert!(case.text.contains(&stride), "{}", case.text);
    let wrong = case.text.replace(&stride, &format!("{}", (((high / 2) & 0x3fff) | (2 << 30)) as i32));
    assert_ne!(case.outcome(&wrong), Ok(true), "another stride is noticed");
}

#[test]
fn each_removed_barrier_is_a_race() {
    for case in [softmax(), product()] {
        let barriers = case.text.lines().filter(|line| line.contains("bar.sync")).count();
        assert!(barriers > 0, "{}", case.text);
        for number in 0..barriers {
            let fault = case.outcome(&case.without("bar.sync", number)).expect_err("a race is found");
            assert!(fault.contains("race"), "barrier {number}: {}", fault.lines().next().unwrap_or_default());
        }
    }
}

#[test]
fn a_wrong_swizzle_gives_another_product() {
    let case = product();
    // The instruction that swizzles the column by bits of the row.
    let swizzle = case.text.lines().find(|line| line.contains("xor.b32")).expect("places are swizzled");
    let wrong = case.text.replacen(swizzle, &swizzle.replace("xor.b32", "or.b32 "), 1);
    assert_ne!(wrong, case.text);
    assert_ne!(case.outcome(&wrong), Ok(true), "it is noticed");
}

#[test]
fn a_mask_that_is_off_by_one_is_out_of_bounds() {
    let case = add();
    let wrong = case.text.replace("setp.lt.s32", "setp.le.s32");
    assert_ne!(wrong, case.text);
    let fault = case.outcome(&wrong).expect_err("element 997 is not there");
    assert!(fault.contains("out of bounds"), "{fault}");
}

#[test]
fn a_store_without_its_mask_is_out_of_bounds() {
    let case = add();
    let store = case.text.lines().rfind(|line| line.contains("st.global")).expect("there is a store");
    let (_, unguarded) = store.trim().split_once(' ').expect("it has a guard");
    let fault = case.outcome(&case.text.replacen(store, unguarded, 1)).expect_err("it is out of bounds");
    assert!(fault.contains("out of bounds"), "{fault}");
}

#[test]
fn a_vector_load_at_an_odd_place_is_misaligned() {
    // The load is a vector, and its address is increased by 4.
    let text = "
@triton.jit
def k(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets))
";
    let module = kernel(text, "*fp32:16, *fp32:16, 512");
    let mut random = Random(7);
    let case = Case::new(&module, [1, 1, 1], vec![random.tensor(F32, 600), zeros(F32, 512)], 1);
    let load = case.text.lines().find(|line| line.contains("ld.global.v4")).expect("it is a vector");
    let (before, _) = load.split_once(']').expect("it has an address");
    let shifted = load.replacen(before, &format!("{before}+4"), 1);
    let fault = case.outcome(&case.text.replacen(load, &shifted, 1)).expect_err("it is misaligned");
    assert!(fault.contains("misaligned"), "{fault}");
}

#[test]
fn a_barrier_for_some_threads_is_divergent() {
    let case = softmax();
    let barrier = case.text.lines().find(|line| line.contains("bar.sync")).expect("there is a barrier");
    // Only the first lanes of each warp reach this barrier.
    let guarded = format!(
        "{barrier}\n{{\n.reg .pred %some;\n.reg .b32 %number;\nmov.u32 %number, %laneid;\n\
         setp.lt.u32 %some, %number, 7;\n@%some bra $few;\nbra.uni $all;\n$few:\nbar.sync 0;\n$all:\n}}"
    );
    let fault = case.outcome(&case.text.replacen(barrier, &guarded, 1)).expect_err("it is divergent");
    assert!(fault.contains("diverge"), "{}", fault.lines().next().unwrap_or_default());
}
