//! Tests warp specialization: one partition copies, a warpgroup computes dots.

use std::fmt::Write;

use tilewright_layout::{Fragment, Layout, Mma, SwizzleMode, blocked, swizzled};
use tilewright_sim::{Swizzle, TensorDataType};

use super::tensors::map;
use super::{Argument, Head, Memory, without};
use crate::common::Random;

const M: u32 = 64;
const N: u32 = 64;
const K: u32 = 64;
const SLOTS: u32 = 3;
const BYTES: u32 = (M + N) * K * 2;

/// Returns a program in which a warpgroup computes a dot along K. `producer` fills a slot.
/// `arrivals` is the number at the barrier of a full slot. `partitions` has attributes of
/// `warp_specialize`. `rest` is a third partition, or code.
fn pipeline(producer: &str, arrivals: u32, partitions: &str, rest: &str) -> (Head, String) {
    let barriers = SLOTS * BYTES;
    let mut head = Head::new("sm_90a", 8, barriers + 16 * SLOTS);
    let a = head.add(swizzled(&[M, K], &[1, 0], 16, SwizzleMode::Bytes128));
    let b = head.add(swizzled(&[K, N], &[1, 0], 16, SwizzleMode::Bytes128));
    let acc = Mma::new(64, N, 16, 16).layout(Fragment::Accumulator, &[M, N], [4, 1]);
    let (flat, acc) = (head.add(acc.reshape(&[M * N])), head.add(acc));
    let one_warp = blocked(&[K, N], &[1, 8], &[4, 8], &[1, 1], &[1, 0]);
    let (line, tile) = (head.add(one_warp.reshape(&[K * N])), head.add(one_warp));
    let size = M * N;
    let (b_offset, empty) = (SLOTS * M * K * 2, barriers + 8 * SLOTS);
    let kernel = format!(
        "kernel func0 @k(%am: *int8, %bm: *int8, %a: *fp16 {{divisibility = 16}}, %b: *fp16 {{divisibility = 16}}, %c: *fp32 {{divisibility = 16}}, %steps: int32) {{
  %zero = constant {{value = 0:int32}} : int32
  %one = constant {{value = 1:int32}} : int32
  %slots = constant {{value = {SLOTS}:int32}} : int32
  %deep = constant {{value = {K}:int32}} : int32
  %as = alloc {{offset = 0}} : buffer<{SLOTS}, fp16[{M}, {K}]@{a}>
  %bs = alloc {{offset = {b_offset}}} : buffer<{SLOTS}, fp16[{K}, {N}]@{b}>
  %full = alloc {{offset = {barriers}}} : mbarrier<{SLOTS}>
  %empty = alloc {{offset = {empty}}} : mbarrier<{SLOTS}>
  mbarrier_init %full {{arrivals = {arrivals}}}
  mbarrier_init %empty {{arrivals = 4}}
  fence_proxy
  barrier
  warp_specialize {partitions} () {{
    %nothing = constant {{value = 0.0:fp32}} : fp32
    %none = splat %nothing {{shape = [{M}, {N}]}} : fp32[{M}, {N}]@{acc}
    %sum = for_loop %zero, %steps, %one, %none {{options = \"stages=0 unroll=0\"}} (%i: int32, %acc: fp32[{M}, {N}]@{acc}) {{
      %slot = int_rem %i, %slots : int32
      %round = int_div %i, %slots : int32
      %phase = and %round, %one : int32
      mbarrier_wait %full, %slot, %phase
VISIBLE      %left = slot %as, %slot : buffer<1, fp16[{M}, {K}]@{a}>
      %right = slot %bs, %slot : buffer<1, fp16[{K}, {N}]@{b}>
      %product = wgmma %left, %right, %acc {{instruction = m64n{N}k16, warps = [4, 1], max_imprecise_acc = 0, transposed_a = false, transposed_b = false}} : pending<fp32[{M}, {N}]@{acc}>
      %next = wgmma_wait %product {{pending = 0}} : fp32[{M}, {N}]@{acc}
      mbarrier_arrive %empty, %slot
      yield_values %next
    }} : fp32[{M}, {N}]@{acc}
    %places = arange {{start = 0, end = {size}}} : int32[{size}]@{flat}
    %target = splat %c {{shape = [{size}]}} : *fp32[{size}]@{flat}
    %there = ptr_add %target, %places : *fp32[{size}]@{flat}
    %result = reshape %sum {{shape = [{size}]}} : fp32[{size}]@{flat}
    store %there, %result {{cache = \"\", eviction = \"\", axis = 0, width = 2}}
    yield_values
  }} () {{
    for_loop %zero, %steps, %one {{options = \"stages=0 unroll=0\"}} (%i: int32) {{
      %slot = int_rem %i, %slots : int32
      %round = int_div %i, %slots : int32
      %turn = add %round, %one : int32
      %phase = and %turn, %one : int32
      mbarrier_wait %empty, %slot, %phase
      %left = slot %as, %slot : buffer<1, fp16[{M}, {K}]@{a}>
      %right = slot %bs, %slot : buffer<1, fp16[{K}, {N}]@{b}>
      %at = mul %i, %deep : int32
{producer}      yield_values
    }}
    yield_values
  }} {rest}
  dealloc %empty
  dealloc %full
  return_values
}}
"
    );
    let kernel = kernel.replace("@LINE", &format!("@{line}")).replace("@TILE", &format!("@{tile}"));
    (head, kernel)
}

/// Returns the program whose producer uses tensor copies.
fn by_tensor_copies(partitions: &str, rest: &str) -> (Head, String) {
    let producer = format!(
        "      mbarrier_expect %full, %slot {{bytes = {BYTES}}}
      tensor_load %left, %am, %full, %slot, %zero, %at
      tensor_load %right, %bm, %full, %slot, %at, %zero
"
    );
    let (head, kernel) = pipeline(&producer, 1, partitions, rest);
    (head, kernel.replace("VISIBLE", ""))
}

/// Returns the program whose producer warp copies by `cp.async`. Both operands are row-major; A is
/// in blocks along K.
fn by_thread_copies() -> (Head, String) {
    let size = K * N;
    let mut producer = format!(
        "      %range = arange {{start = 0, end = {size}}} : int32[{size}]@LINE
      %tile = reshape %range {{shape = [{K}, {N}]}} : int32[{K}, {N}]@TILE
      %base = mul %i, %size : int32
"
    );
    for (name, operand) in [("left", "a"), ("right", "b")] {
        write!(
            producer,
            "      %{name}_start = ptr_add %{operand}, %base : *fp16
      %{name}_all = splat %{name}_start {{shape = [{K}, {N}]}} : *fp16[{K}, {N}]@TILE
      %{name}_from = ptr_add %{name}_all, %tile : *fp16[{K}, {N}]@TILE
      copy_async %{name}, %{name}_from {{cache = \"\", axis = 1, width = 8}}
"
        )
        .expect("writing to a string does not fail");
    }
    producer += "      mbarrier_arrive_copies %full, %slot\n";
    let partitions = "{warps = [4, 1, 3], registers = [0, 0, 0]}";
    let (head, kernel) = pipeline(&producer, 32, partitions, "() {\n    yield_values\n  }");
    let size = format!("  %size = constant {{value = {size}:int32}} : int32\n  warp_specialize");
    // Copies write by the generic proxy, and dots read by the asynchronous one, so the consumer
    // needs a fence.
    (head, kernel.replace("VISIBLE", "      fence_proxy\n").replace("  warp_specialize", &size))
}

/// Returns whether the result is the dot. `is_blocked` is true if A is in blocks along K. `Err` is
/// the fault.
fn outcome(head: &Head, text: &str, steps: u32, is_blocked: bool) -> Result<bool, String> {
    let mut random = Random(11);
    let (depth, [m, n, k]) = ((K * steps) as usize, [M, N, K].map(|extent| extent as usize));
    let mut numbers = |count: usize| -> Vec<half::f16> {
        (0..count).map(|_| half::f16::from_f32((random.bits() % 9) as f32 / 2.0 - 2.0)).collect()
    };
    let bytes = |numbers: &[half::f16]| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    };
    let (left, right) = (numbers(m * depth), numbers(depth * n));
    let (mut a_memory, mut b_memory) = (Memory::new(&bytes(&left)), Memory::new(&bytes(&right)));
    let mut result = Memory::zeros(m * n * 4);
    let box_of = [64, 64];
    let mut a_map =
        map(&mut a_memory, TensorDataType::F16, &[depth as u64, m as u64], &box_of, Swizzle::Bytes128);
    let mut b_map =
        map(&mut b_memory, TensorDataType::F16, &[n as u64, depth as u64], &box_of, Swizzle::Bytes128);
    let mut arguments = [
        Argument::Memory(&mut a_map),
        Argument::Memory(&mut b_map),
        Argument::Memory(&mut a_memory),
        Argument::Memory(&mut b_memory),
        Argument::Memory(&mut result),
        Argument::Int(steps as i32),
    ];
    head.run(text, &mut arguments)?;
    let a_at = |row: usize, inner: usize| {
        let index = if is_blocked { inner / k * m * k + row * k + inner % k } else { row * depth + inner };
        left[index].to_f64()
    };
    let mut found = result.floats().into_iter().enumerate();
    Ok(found.all(|(index, found)| {
        let (row, column) = (index / n, index % n);
        let sum: f64 = (0..depth).map(|inner| a_at(row, inner) * right[inner * n + column].to_f64()).sum();
        f64::from(found) == sum
    }))
}

const THREE_PARTITIONS: &str = "{warps = [4, 1, 3], registers = [0, 0, 0]}";
const IDLE: &str = "() {\n    yield_values\n  }";

#[test]
fn a_warp_copies_and_a_warpgroup_multiplies() {
    for (partitions, rest) in [(THREE_PARTITIONS, IDLE), ("{warps = [4, 4], registers = [232, 40]}", "")] {
        let (head, kernel) = by_tensor_copies(partitions, rest);
        let text = head.lower(&kernel);
        for steps in [1, 3, 8] {
            assert_eq!(outcome(&head, &text, steps, false), Ok(true), "{steps} steps\n{text}");
        }
    }
}

#[test]
fn registers_go_from_partition_to_partition() {
    let (head, kernel) = by_tensor_copies("{warps = [4, 4], registers = [232, 40]}", "");
    let text = head.lower(&kernel);
    assert!(text.contains(".maxnreg 136"), "{text}");
    let changes: Vec<&str> = text.lines().filter(|line| line.contains("setmaxnreg")).map(str::trim).collect();
    assert_eq!(changes.len(), 2, "nothing follows: {changes:?}");
    assert!(changes[0].contains(".inc") && changes[0].contains("232"), "{changes:?}");
    assert!(changes[1].contains(".dec") && changes[1].contains("40"), "{changes:?}");
    // If code follows, all warps first return to their previous registers.
    let after = "\n  %x = constant {value = 1.0:fp32} : fp32\n  store %c, %x {cache = \"\", eviction = \"\", axis = 0, width = 1}";
    let (head, kernel) = by_tensor_copies("{warps = [4, 4], registers = [232, 40]}", after);
    let text = head.lower(&kernel);
    let changes: Vec<&str> = text.lines().filter(|line| line.contains("setmaxnreg")).map(str::trim).collect();
    assert_eq!(changes.len(), 4, "{changes:?}");
    assert!(changes[2].contains(".dec") && changes[2].contains("136"), "{changes:?}");
    assert!(changes[3].contains(".inc") && changes[3].contains("136"), "{changes:?}");
}

/// Partitions of one warpgroup change their registers together.
#[test]
fn partitions_share_the_registers_of_a_warpgroup() {
    let (head, kernel) = by_tensor_copies("{warps = [4, 1, 3], registers = [232, 40, 40]}", IDLE);
    let text = head.lower(&kernel);
    assert!(text.contains(".maxnreg 136"), "{text}");
    let changes: Vec<&str> = text.lines().filter(|line| line.contains("setmaxnreg")).map(str::trim).collect();
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!(outcome(&head, &text, 3, false), Ok(true), "{text}");
    let (head, kernel) = by_tensor_copies("{warps = [4, 1, 3], registers = [232, 40, 24]}", IDLE);
    let module = head.parse(&kernel).expect("the verifier does not know warpgroups");
    let found = tilewright_ptx::lower(&module).expect_err("a warpgroup has one number of registers");
    assert!(found.message.contains("no warpgroups"), "{found:?}");
}

#[test]
fn a_warp_copies_by_its_threads() {
    let (head, kernel) = by_thread_copies();
    let text = head.lower(&kernel);
    for steps in [2, 7] {
        assert_eq!(outcome(&head, &text, steps, true), Ok(true), "{steps} steps\n{text}");
    }
    // Fence 0 is for initialized barriers, and fence 1 for copied data.
    let found = outcome(&head, &without(&text, "fence.proxy.async", 1), 4, true).expect_err("it is found");
    assert!(found.contains("proxy"), "{found}");
}

#[test]
fn each_mistake_is_found() {
    let (head, kernel) = by_tensor_copies(THREE_PARTITIONS, IDLE);
    // The verifier finds some of the mistakes, and the simulator finds the others.
    let fault = |kernel: &str| match head.parse(kernel) {
        Ok(_) => outcome(&head, &head.lower(kernel), 8, false).expect_err("the mistake is found"),
        Err(message) => format!("refused: {message}"),
    };
    let wait_of = |barriers: &str| {
        let start = kernel.find(&format!("mbarrier_wait %{barriers}")).expect("there is a wait");
        kernel[start..].lines().next().expect("it is a line").to_owned()
    };
    for barriers in ["full", "empty"] {
        let wait = wait_of(barriers);
        let found = fault(&kernel.replacen(&wait, "", 1));
        let expected = ["race", "uninitialized shared memory", "deadlock", "refused"];
        assert!(expected.iter().any(|word| found.contains(word)), "{barriers}: {found}");
        let wrong = wait.replace("%phase", "%wrong");
        let other = format!("%wrong = xor %phase, %one : int32\n      {wrong}");
        let found = fault(&kernel.replacen(&wait, &other, 1));
        assert!(expected.iter().any(|word| found.contains(word)), "{barriers}: {found}");
    }
    // The consumer releases the slot too early.
    let arrive = "      mbarrier_arrive %empty, %slot\n";
    let early =
        kernel.replacen(arrive, "", 1).replacen("      %product", &format!("{arrive}      %product"), 1);
    let found = fault(&early);
    assert!(found.contains("race") || found.contains("refused"), "{found}");
}

/// Tests three partitions. The first passes numbers to the third through shared memory, at a named
/// barrier. The second does not wait.
#[test]
fn two_of_three_partitions_meet_at_a_barrier() {
    let mut head = Head::new("sm_80", 8, 1024);
    let m = head.add(Layout::strided(&[128], &[0]));
    let two = head.add(blocked(&[128], &[1], &[32], &[2], &[0]));
    let four = head.add(blocked(&[128], &[1], &[32], &[4], &[0]));
    let kernel = format!(
        "kernel func0 @k(%x: *int32, %y: *int32) {{
  %buffer = alloc {{offset = 0}} : buffer<1, int32[128]@{m}>
  warp_specialize {{warps = [2, 2, 4], registers = [0, 0, 0]}} () {{
    %range = arange {{start = 0, end = 128}} : int32[128]@{two}
    local_store %buffer, %range
    named_barrier {{barrier = 3, threads = 192}}
    yield_values
  }} () {{
    %nine = constant {{value = 9:int32}} : int32
    store %y, %nine {{cache = \"\", eviction = \"\", axis = 0, width = 1}}
    yield_values
  }} () {{
    named_barrier {{barrier = 3, threads = 192}}
    %own = arange {{start = 0, end = 128}} : int32[128]@{four}
    %value = local_load %buffer {{matrix = false}} : int32[128]@{four}
    %sum = add %own, %value : int32[128]@{four}
    %all = splat %x {{shape = [128]}} : *int32[128]@{four}
    %there = ptr_add %all, %own : *int32[128]@{four}
    store %there, %sum {{cache = \"\", eviction = \"\", axis = 0, width = 1}}
    yield_values
  }}
  dealloc %buffer
  return_values
}}
"
    );
    let text = head.lower(&kernel);
    let run = |text: &str| {
        let (mut x, mut y) = (Memory::zeros(512), Memory::zeros(4));
        head.run(text, &mut [Argument::Memory(&mut x), Argument::Memory(&mut y)])?;
        let found = x.bytes().as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        Ok::<bool, String>((0..128).map(|number| 2 * number).eq(found) && y.bytes() == [9, 0, 0, 0])
    };
    assert_eq!(run(&text), Ok(true), "{text}");
    let one = without(&without(&text, " 3, 192", 1), " 3, 192", 0);
    assert!(run(&one).expect_err("nothing orders them").contains("race"));
    let fault = run(&text.replacen(", 192", ", 256", 1)).expect_err("a barrier for another number");
    assert!(!fault.is_empty());
}
