//! Tests `cp.async`: copies of a tile in flight while threads add 1.

use tilewright_layout::{Layout, blocked};

use super::{Argument, Head, Memory, float_bytes, with_operand, without};

const TILE: u32 = 512;
const TILES: i32 = 5;

/// Returns a program that adds 1 to `n` numbers, tile by tile. It copies the next tile ahead, and
/// reads 0 from index `n` on.
fn doubled(target: &'static str) -> (Head, String) {
    let mut head = Head::new(target, 4, 2 * TILE * 4);
    let l = head.add(blocked(&[TILE], &[4], &[32], &[4], &[0]));
    let m = head.add(Layout::strided(&[TILE], &[0]));
    // A thread reads data that other threads have copied.
    let r = head.add(blocked(&[TILE], &[1], &[32], &[4], &[0]));
    let kernel = format!(
        "kernel func0 @k(%x: *fp32 {{divisibility = 16}}, %out: *fp32 {{divisibility = 16}}, %n: int32, %tiles: int32) {{
  %zero = constant {{value = 0:int32}} : int32
  %one = constant {{value = 1:int32}} : int32
  %size = constant {{value = {TILE}:int32}} : int32
  %half = constant {{value = 1.0:fp32}} : fp32
  %ones = splat %half {{shape = [{TILE}]}} : fp32[{TILE}]@{r}
  %buffer = alloc {{offset = 0}} : buffer<2, fp32[{TILE}]@{m}>
  %range = arange {{start = 0, end = {TILE}}} : int32[{TILE}]@{l}
  %end = splat %n {{shape = [{TILE}]}} : int32[{TILE}]@{l}
  %source = splat %x {{shape = [{TILE}]}} : *fp32[{TILE}]@{l}
  %target = splat %out {{shape = [{TILE}]}} : *fp32[{TILE}]@{r}
  %places = arange {{start = 0, end = {TILE}}} : int32[{TILE}]@{r}
  %first = slot %buffer, %zero : buffer<1, fp32[{TILE}]@{m}>
  %p0 = ptr_add %source, %range : *fp32[{TILE}]@{l}
  %m0 = lt %range, %end : int1[{TILE}]@{l}
  copy_async %first, %p0, %m0 {{cache = \"\", axis = 0, width = 4}}
  commit_group
  %after = for_loop %zero, %tiles, %one, %range {{options = \"stages=0 unroll=0\"}} (%i: int32, %offsets: int32[{TILE}]@{l}) {{
    %steps = splat %size {{shape = [{TILE}]}} : int32[{TILE}]@{l}
    %ahead = add %offsets, %steps : int32[{TILE}]@{l}
    %parity = and %i, %one : int32
    %other = xor %parity, %one : int32
    %next = slot %buffer, %other : buffer<1, fp32[{TILE}]@{m}>
    %p1 = ptr_add %source, %ahead : *fp32[{TILE}]@{l}
    %m1 = lt %ahead, %end : int1[{TILE}]@{l}
    copy_async %next, %p1, %m1 {{cache = \"\", axis = 0, width = 4}}
    commit_group
    wait_group {{pending = 1}}
    barrier
    %this = slot %buffer, %parity : buffer<1, fp32[{TILE}]@{m}>
    %value = local_load %this {{matrix = false}} : fp32[{TILE}]@{r}
    %sum = add %value, %ones : fp32[{TILE}]@{r}
    %base = mul %i, %size : int32
    %bases = splat %base {{shape = [{TILE}]}} : int32[{TILE}]@{r}
    %own = add %bases, %places : int32[{TILE}]@{r}
    %p2 = ptr_add %target, %own : *fp32[{TILE}]@{r}
    store %p2, %sum {{cache = \"\", eviction = \"\", axis = 0, width = 1}}
    barrier
    yield_values %ahead
  }} : int32[{TILE}]@{l}
  wait_group {{pending = 0}}
  dealloc %buffer
  return_values
}}
"
    );
    (head, kernel)
}

fn outcome(head: &Head, text: &str, n: usize) -> Result<Vec<f32>, String> {
    let numbers: Vec<f32> = (0..n).map(|index| index as f32 / 4.0).collect();
    let mut x = Memory::new(&float_bytes(&numbers));
    let mut out = Memory::zeros((TILE as usize) * TILES as usize * 4);
    let mut arguments =
        [Argument::Memory(&mut x), Argument::Memory(&mut out), Argument::Int(n as i32), Argument::Int(TILES)];
    head.run(text, &mut arguments)?;
    Ok(out.floats())
}

#[test]
fn copies_run_ahead_of_the_sums() {
    for target in ["sm_80", "sm_90a"] {
        let (head, kernel) = doubled(target);
        let text = head.lower(&kernel);
        assert_eq!(text.matches("cp.async.cg.shared.global").count(), 2, "{text}");
        for n in [2560, 2048, 1000, 4] {
            let found = outcome(&head, &text, n).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
            for (index, value) in found.iter().enumerate() {
                let expected = if index < n { index as f32 / 4.0 + 1.0 } else { 1.0 };
                assert_eq!(*value, expected, "{target}: element {index} of {n}");
            }
        }
    }
}

#[test]
fn a_missing_wait_or_barrier_is_a_race() {
    let (head, kernel) = doubled("sm_80");
    let text = head.lower(&kernel);
    for (word, number) in [("cp.async.wait_group", 0), ("bar.sync", 0), ("bar.sync", 1)] {
        let outcome = outcome(&head, &without(&text, word, number), 2560).map(|_| ());
        let fault = outcome.expect_err("a race is found");
        assert!(fault.contains("race"), "{word} {number}: {fault}");
    }
    let late = with_operand(&text, "cp.async.wait_group", "2");
    assert!(outcome(&head, &late, 2560).map(|_| ()).expect_err("it is too early").contains("race"));
}

#[test]
fn narrow_copies_are_made_once() {
    // Each copy moves 4 bytes, and two of the four warps hold duplicates.
    let mut head = Head::new("sm_80", 4, 256);
    let l = head.add(blocked(&[128], &[2], &[32], &[4], &[0]));
    let m = head.add(Layout::strided(&[128], &[0]));
    let kernel = format!(
        "kernel func0 @k(%x: *fp16 {{divisibility = 16}}, %out: *fp16 {{divisibility = 16}}) {{
  %buffer = alloc {{offset = 0}} : buffer<1, fp16[128]@{m}>
  %range = arange {{start = 0, end = 128}} : int32[128]@{l}
  %source = splat %x {{shape = [128]}} : *fp16[128]@{l}
  %target = splat %out {{shape = [128]}} : *fp16[128]@{l}
  %p0 = ptr_add %source, %range : *fp16[128]@{l}
  copy_async %buffer, %p0 {{cache = \"\", axis = 0, width = 2}}
  commit_group
  wait_group {{pending = 0}}
  barrier
  %value = local_load %buffer {{matrix = false}} : fp16[128]@{l}
  %p1 = ptr_add %target, %range : *fp16[128]@{l}
  store %p1, %value {{cache = \"\", eviction = \"\", axis = 0, width = 2}}
  dealloc %buffer
  return_values
}}
"
    );
    let text = head.lower(&kernel);
    assert!(text.contains("cp.async.ca.shared.global"), "{text}");
    let bytes: Vec<u8> = (0..=255).collect();
    let (mut x, mut out) = (Memory::new(&bytes), Memory::zeros(256));
    let report = head.run(&text, &mut [Argument::Memory(&mut x), Argument::Memory(&mut out)]);
    report.unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    assert_eq!(out.bytes(), bytes);
    let copies = text.lines().filter(|line| line.contains("cp.async.ca")).collect::<Vec<_>>();
    assert!(
        copies.iter().all(|line| line.trim().starts_with('@')),
        "threads that hold copies do not copy: {copies:?}"
    );
}
