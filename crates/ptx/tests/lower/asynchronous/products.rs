//! Tests dots of warpgroups with every type and layout of `wgmma`. The results are compared with
//! fp64.

use std::fmt::Write;

use tilewright_ir::Dtype;
use tilewright_layout::{Fragment, Input, Layout, Mma, SwizzleMode, swizzled};

use super::{Argument, Head, Memory, by_rows, without};
use crate::common::{Random, decode, element};

/// Returns the memory layout of an operand. The arguments are the extents along m (or n) and k, the
/// axis of m or n, and the element's bits.
type Form = fn(u32, u32, usize, u32) -> Layout;

/// Swizzled layouts: K-major and MN-major, with swizzles of 128, 64 and 32 bytes.
const K_MAJOR: Form = |mn, k, axis, bits| swizzle(mn, k, axis, bits, false, SwizzleMode::Bytes128);
const MN_MAJOR: Form = |mn, k, axis, bits| swizzle(mn, k, axis, bits, true, SwizzleMode::Bytes128);
const K_MAJOR_64: Form = |mn, k, axis, bits| swizzle(mn, k, axis, bits, false, SwizzleMode::Bytes64);
const MN_MAJOR_64: Form = |mn, k, axis, bits| swizzle(mn, k, axis, bits, true, SwizzleMode::Bytes64);
const K_MAJOR_32: Form = |mn, k, axis, bits| swizzle(mn, k, axis, bits, false, SwizzleMode::Bytes32);
const MN_MAJOR_32: Form = |mn, k, axis, bits| swizzle(mn, k, axis, bits, true, SwizzleMode::Bytes32);
/// Layouts without a swizzle: chunks of 16 bytes are consecutive along the other dimension.
const K_MAJOR_PLAIN: Form = |mn, k, axis, bits| chunks([k, mn], [1 - axis, axis], bits);
const MN_MAJOR_PLAIN: Form = |mn, k, axis, bits| chunks([mn, k], [axis, 1 - axis], bits);

fn swizzle(mn: u32, k: u32, axis: usize, bits: u32, is_mn_major: bool, mode: SwizzleMode) -> Layout {
    let shape = if axis == 0 { [mn, k] } else { [k, mn] };
    let fast = if is_mn_major { axis } else { 1 - axis };
    swizzled(&shape, &[fast, 1 - fast], bits, mode)
}

fn chunks([fast, slow]: [u32; 2], [fast_axis, slow_axis]: [usize; 2], bits: u32) -> Layout {
    let count = |axis: usize, size: u32| Layout::identity(2, axis, Input::Offset, size);
    let chunk = 128 / bits;
    count(fast_axis, chunk).product(&count(slow_axis, slow)).product(&count(fast_axis, fast / chunk))
}

#[derive(Clone, Copy)]
struct Case {
    a: Dtype,
    b: Dtype,
    sum: Dtype,
    shape: [u32; 3],
    /// The number of columns of one instruction.
    n: u32,
    warps: [u32; 2],
    left: Form,
    right: Form,
    /// True if A is in registers.
    from_registers: bool,
}

const HALF: Case = Case {
    a: Dtype::F16,
    b: Dtype::F16,
    sum: Dtype::F32,
    shape: [64, 128, 64],
    n: 128,
    warps: [4, 1],
    left: K_MAJOR,
    right: MN_MAJOR,
    from_registers: false,
};

/// The text that computes `%sum` from the operands and `%acc`, by one dot.
const ONE_PRODUCT: &str = "  %product = wgmma %left, %b_buffer, %acc {INSTRUCTION} : pending<ACC>
  %sum = wgmma_wait %product {pending = 0} : ACC
";

/// Two dots in the same registers, while a third dot is in flight. The result is three times the
/// dot.
const THREE_PRODUCTS: &str = "  %p1 = wgmma %left, %b_buffer, %acc {INSTRUCTION} : pending<ACC>
  %q = wgmma %left, %b_buffer, %acc {INSTRUCTION} : pending<ACC>
  %p2 = wgmma %left, %b_buffer, %p1 {INSTRUCTION} : pending<ACC>
  %beside = wgmma_wait %q {pending = 1} : ACC
  %twice = add %beside, %beside : ACC
  %both = wgmma_wait %p2 {pending = 0} : ACC
  %three = add %both, %twice : ACC
  %sum = sub %three, %beside : ACC
";

/// One dot before a loop and four in the loop accumulate in the same registers.
const PRODUCTS_IN_A_LOOP: &str = "  %zero = constant {value = 0:int32} : int32
  %one = constant {value = 1:int32} : int32
  %four = constant {value = 4:int32} : int32
  %first = wgmma %left, %b_buffer, %acc {INSTRUCTION} : pending<ACC>
  %last = for_loop %zero, %four, %one, %first {options = \"stages=0 unroll=0\"} (%i: int32, %p: pending<ACC>) {
    %next = wgmma %left, %b_buffer, %p {INSTRUCTION} : pending<ACC>
    yield_values %next
  } : pending<ACC>
  %sum = wgmma_wait %last {pending = 0} : ACC
";

impl Case {
    fn depth(self) -> u32 {
        256 / (self.a.bits())
    }

    fn program(self, products: &str) -> (Head, String) {
        let [m, n, k] = self.shape;
        let bits = self.a.bits();
        let bytes = bits / 8;
        let count = self.warps[0] * self.warps[1];
        let a_bytes = (m * k * bytes).next_multiple_of(1024);
        let mut head = Head::new("sm_90a", count, a_bytes + k * n * bytes);
        let mma = Mma::new(64, self.n, self.depth(), bits);
        let acc = mma.layout(Fragment::Accumulator, &[m, n], self.warps);
        let (flat, acc) = (head.add(acc.reshape(&[m * n])), head.add(acc));
        let mut body = String::new();
        let operands = [
            ("a", self.a, [m, k], (self.left)(m, k, 0, bits), 0),
            ("b", self.b, [k, n], (self.right)(n, k, 1, bits), a_bytes),
        ];
        let mut buffers = Vec::new();
        for (name, dtype, shape, memory, offset) in operands {
            let rows = by_rows(shape, 16 / bytes, count);
            let (size, width) = (shape[0] * shape[1], 16 / bytes);
            let (flat, rows, memory) = (head.add(rows.reshape(&[size])), head.add(rows), head.add(memory));
            let ty = format!("{dtype}[{}, {}]", shape[0], shape[1]);
            write!(
                body,
                "  %{name}_r = arange {{start = 0, end = {size}}} : int32[{size}]@{flat}
  %{name}_s = splat %{name} {{shape = [{size}]}} : *{dtype}[{size}]@{flat}
  %{name}_p = ptr_add %{name}_s, %{name}_r : *{dtype}[{size}]@{flat}
  %{name}_f = load %{name}_p {{cache = \"\", eviction = \"\", volatile = false, axis = 0, width = {width}}} : {dtype}[{size}]@{flat}
  %{name}_t = reshape %{name}_f {{shape = [{}, {}]}} : {ty}@{rows}
  %{name}_buffer = alloc {{offset = {offset}}} : buffer<1, {ty}@{memory}>
  local_store %{name}_buffer, %{name}_t
",
                shape[0], shape[1]
            )
            .expect("writing to a string does not fail");
            buffers.push(ty);
        }
        let (left, load) = if self.from_registers {
            let fragment = head.add(mma.layout(Fragment::A, &[m, k], self.warps));
            let ty = &buffers[0];
            (
                "%a_registers",
                format!("  %a_registers = local_load %a_buffer {{matrix = false}} : {ty}@{fragment}\n"),
            )
        } else {
            ("%a_buffer", String::new())
        };
        let sum = self.sum;
        let instruction = format!(
            "instruction = m64n{}k{}, warps = [{}, {}], max_imprecise_acc = 0, transposed_a = false, transposed_b = false",
            self.n,
            self.depth(),
            self.warps[0],
            self.warps[1]
        );
        let acc = format!("{sum}[{m}, {n}]@{acc}");
        let products =
            products.replace("%left", left).replace("INSTRUCTION", &instruction).replace("ACC", &acc);
        let (size, zero) = (m * n, if sum.is_float() { "0.0" } else { "0" });
        let kernel = format!(
            "kernel func0 @k(%a: *{} {{divisibility = 16}}, %b: *{} {{divisibility = 16}}, %c: *{sum} {{divisibility = 16}}) {{
{body}  fence_proxy
  barrier
{load}  %nothing = constant {{value = {zero}:{sum}}} : {sum}
  %acc = splat %nothing {{shape = [{m}, {n}]}} : {acc}
{products}  %c_r = arange {{start = 0, end = {size}}} : int32[{size}]@{flat}
  %c_s = splat %c {{shape = [{size}]}} : *{sum}[{size}]@{flat}
  %c_p = ptr_add %c_s, %c_r : *{sum}[{size}]@{flat}
  %c_f = reshape %sum {{shape = [{size}]}} : {sum}[{size}]@{flat}
  store %c_p, %c_f {{cache = \"\", eviction = \"\", axis = 0, width = 2}}
  dealloc %a_buffer
  dealloc %b_buffer
  return_values
}}
",
            self.a, self.b
        );
        (head, kernel)
    }

    /// Returns whether a PTX text computes `times` times the dot. `Err` is the fault.
    fn outcome(self, head: &Head, text: &str, times: f64) -> Result<bool, String> {
        let [m, n, k] = self.shape.map(|extent| extent as usize);
        let mut random = Random(7);
        let (left, a_bytes) = numbers(&mut random, self.a, m * k);
        let (right, b_bytes) = numbers(&mut random, self.b, k * n);
        let [mut first, mut second] = [a_bytes, b_bytes].map(|bytes| Memory::new(&bytes));
        let mut sums = Memory::zeros(m * n * self.sum.bytes());
        let mut arguments =
            [Argument::Memory(&mut first), Argument::Memory(&mut second), Argument::Memory(&mut sums)];
        head.run(text, &mut arguments)?;
        let found = sums.bytes();
        let is_right = |index: usize| {
            let (row, column) = (index / n, index % n);
            let sum: f64 = (0..k).map(|inner| left[row * k + inner] * right[inner * n + column]).sum();
            let found = element(found, self.sum, index);
            let found =
                if self.sum.is_float() { decode(self.sum, found) } else { f64::from(found as u32 as i32) };
            found == times * sum
        };
        Ok((0..m * n).all(is_right))
    }

    fn check(self) {
        let (head, kernel) = self.program(ONE_PRODUCT);
        let text = head.lower(&kernel);
        let outcome = self.outcome(&head, &text, 1.0);
        assert_eq!(outcome, Ok(true), "{kernel}\n{text}");
    }
}

/// Returns numbers of the type whose products and sums are exact, with their bytes.
fn numbers(random: &mut Random, dtype: Dtype, count: usize) -> (Vec<f64>, Vec<u8>) {
    // Values with their bits. A float is 0, 0.5, 1, 1.5, 2 or -1.
    let table: [(f64, u64); 6] = match dtype {
        Dtype::F8E4NV => [(0.0, 0), (0.5, 0x30), (1.0, 0x38), (1.5, 0x3c), (2.0, 0x40), (-1.0, 0xb8)],
        Dtype::F8E5 => [(0.0, 0), (0.5, 0x38), (1.0, 0x3c), (1.5, 0x3e), (2.0, 0x40), (-1.0, 0xbc)],
        Dtype::I8 => [(0.0, 0), (3.0, 3), (127.0, 127), (-1.0, 0xff), (-7.0, 0xf9), (-128.0, 0x80)],
        Dtype::U8 => [(0.0, 0), (3.0, 3), (127.0, 127), (255.0, 0xff), (7.0, 7), (128.0, 0x80)],
        _ => [0.0, 0.5, 1.0, 1.5, 2.0, -1.0].map(|value: f64| {
            let bits = match dtype {
                Dtype::F16 => half::f16::from_f64(value).to_bits().into(),
                Dtype::BF16 => half::bf16::from_f64(value).to_bits().into(),
                _ => (value as f32).to_bits().into(),
            };
            (value, bits)
        }),
    };
    let chosen: Vec<(f64, u64)> = (0..count).map(|_| table[random.bits() as usize % table.len()]).collect();
    let bytes = chosen.iter().flat_map(|(_, bits)| bits.to_le_bytes()[..dtype.bytes()].to_vec()).collect();
    (chosen.into_iter().map(|(value, _)| value).collect(), bytes)
}

#[test]
fn operands_in_either_order_with_every_swizzle() {
    for [k_major, mn_major] in [
        [K_MAJOR, MN_MAJOR],
        [K_MAJOR_64, MN_MAJOR_64],
        [K_MAJOR_32, MN_MAJOR_32],
        [K_MAJOR_PLAIN, MN_MAJOR_PLAIN],
    ] {
        for left in [k_major, mn_major] {
            for right in [k_major, mn_major] {
                Case { left, right, ..HALF }.check();
            }
        }
    }
}

#[test]
fn the_left_operand_may_be_in_registers() {
    for right in [K_MAJOR, MN_MAJOR] {
        Case { from_registers: true, right, ..HALF }.check();
    }
    Case { from_registers: true, a: Dtype::F32, b: Dtype::F32, right: K_MAJOR, ..HALF }.check();
    let (a, shape) = (Dtype::I8, [64, 128, 128]);
    Case { from_registers: true, a, b: a, sum: Dtype::I32, shape, right: K_MAJOR, ..HALF }.check();
}

#[test]
fn every_type() {
    let (f16, bf16, f32) = (Dtype::F16, Dtype::BF16, Dtype::F32);
    let (e4m3, e5m2) = (Dtype::F8E4NV, Dtype::F8E5);
    for (a, b, sum) in [
        (f16, f16, f16),
        (bf16, bf16, f32),
        (f32, f32, f32),
        (e4m3, e4m3, f32),
        (e5m2, e4m3, f32),
        (e4m3, e5m2, f16),
        (Dtype::I8, Dtype::I8, Dtype::I32),
        (Dtype::U8, Dtype::U8, Dtype::I32),
    ] {
        Case { a, b, sum, right: K_MAJOR, shape: [64, 64, 128], n: 64, ..HALF }.check();
    }
}

#[test]
fn products_larger_than_an_instruction_by_several_warpgroups() {
    for right in [K_MAJOR, MN_MAJOR] {
        let case = Case { right, n: 64, ..HALF };
        Case { shape: [128, 128, 64], ..case }.check();
        Case { shape: [128, 64, 64], warps: [8, 1], ..case }.check();
        Case { shape: [64, 256, 64], warps: [4, 2], ..case }.check();
        Case { shape: [256, 128, 64], warps: [8, 2], ..case }.check();
        Case { shape: [128, 64, 64], warps: [8, 1], from_registers: true, ..case }.check();
    }
}

#[test]
fn a_product_goes_on_beside_another() {
    for from_registers in [false, true] {
        let case = Case { from_registers, ..HALF };
        let (head, kernel) = case.program(THREE_PRODUCTS);
        let text = head.lower(&kernel);
        assert_eq!(case.outcome(&head, &text, 3.0), Ok(true), "{text}");
        // The second dot uses the registers of the first; the third has others.
        let sums: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("wgmma.mma_async"))
            .map(|line| line.split('{').nth(1).expect("it has an accumulator"))
            .collect();
        let depth = case.shape[2] as usize / 16;
        let [first, beside, second] = [0, 1, 2].map(|product| sums[product * depth].split(',').next());
        assert!(first == second && first != beside, "{sums:?}");
    }
}

#[test]
fn products_under_way_go_around_a_loop() {
    for sum in [Dtype::F32, Dtype::F16] {
        let case = Case { sum, ..HALF };
        let (head, kernel) = case.program(PRODUCTS_IN_A_LOOP);
        let text = head.lower(&kernel);
        assert_eq!(case.outcome(&head, &text, 5.0), Ok(true), "{text}");
        let start = text.find("$loop").expect("there is a loop");
        let body = text[start..].split("$end").next().expect("it ends");
        assert_eq!(body.matches("mov.b32").count(), 0, "the registers stay where they are\n{text}");
    }
}

#[test]
fn each_mistake_is_found() {
    let (head, kernel) = HALF.program(THREE_PRODUCTS);
    let text = head.lower(&kernel);
    let fault = |text: &str| HALF.outcome(&head, text, 3.0).expect_err("the mistake is found");
    for (word, number, expected) in [
        ("fence.proxy.async", 0, "proxy"),
        ("bar.sync", 0, "race"),
        ("wgmma.fence", 0, "wgmma.fence"),
        ("wgmma.wait_group", 0, "wgmma.wait_group"),
        ("wgmma.wait_group", 1, "wgmma.wait_group"),
        ("wgmma.commit_group", 1, "wgmma.wait_group"),
    ] {
        let found = fault(&without(&text, word, number));
        assert!(found.contains(expected), "{word} {number}: {found}");
    }
    let wait = text.lines().find(|line| line.contains("wgmma.wait_group")).expect("there is one");
    let found = fault(&text.replacen(wait, &wait.replace("1;", "2;"), 1));
    assert!(found.contains("wgmma.wait_group"), "{found}");
    // Replaces the swizzle in a descriptor by a wrong one.
    let mode = text.lines().find(|line| line.contains("1073741888")).unwrap_or_default();
    assert!(
        !mode.is_empty(),
        "the high word of a descriptor: 64 times 16 bytes, 128 bytes of swizzle\n{text}"
    );
    assert_ne!(HALF.outcome(&head, &text.replace("1073741888", "-2147483584"), 3.0), Ok(true));
}
