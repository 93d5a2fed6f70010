//! Tests clusters of two blocks that fill the slots of a ring together. They fill one slot while
//! they read the other. Without one of the synchronizations, the simulator finds a fault.

use tilewright_layout::{SwizzleMode, swizzled};
use tilewright_sim::{Swizzle, TensorDataType};

use super::tensors::map;
use super::{Argument, Head, Memory, by_rows, without};

const ROWS: u32 = 32;
const SLOTS: u32 = 2;
const STEPS: u32 = 5;

/// Returns a program that doubles a matrix of `columns` columns. Every program doubles the same
/// matrix, and stores its result after the previous ones.
fn ring(columns: u32, pairs: u32) -> (Head, String) {
    let slot_bytes = ROWS * columns * 2;
    let barriers = (SLOTS + 1) * slot_bytes;
    let mut head = Head::new("sm_90a", 4, barriers + 16 * SLOTS).of_pairs(pairs);
    let m = head.add(swizzled(&[ROWS, columns], &[1, 0], 16, SwizzleMode::Bytes128));
    let l = head.add(by_rows([ROWS, columns], 8, 4));
    let tile = format!("fp16[{ROWS}, {columns}]");
    let kernel = format!(
        "kernel func0 @k(%from: *int8, %to: *int8, %steps: int32, %programs: int32) {{
  %zero = constant {{value = 0:int32}} : int32
  %one = constant {{value = 1:int32}} : int32
  %slots = constant {{value = {SLOTS}:int32}} : int32
  %rows = constant {{value = {ROWS}:int32}} : int32
  %pid = program_id {{axis = 0}} : int32
  %first = mul %pid, %steps : int32
  %other = xor %pid, %one : int32
  %is_there = lt %other, %programs : int1
  %buffer = alloc {{offset = 0}} : buffer<{SLOTS}, {tile}@{m}>
  %result = alloc {{offset = {result}}} : buffer<1, {tile}@{m}>
  %full = alloc {{offset = {barriers}}} : mbarrier<{SLOTS}>
  mbarrier_init %full {{arrivals = 1}}
  %empty = alloc {{offset = {empty}}} : mbarrier<{SLOTS}>
  mbarrier_init %empty {{arrivals = 4}}
  fence_proxy
  cluster_arrive
  cluster_wait
  multicast_loads %buffer, %full, %empty, %is_there
  barrier
  %begin = slot %buffer, %zero : buffer<1, {tile}@{m}>
  mbarrier_expect %full, %zero {{bytes = {slot_bytes}}}
  tensor_load %begin, %from, %full, %zero, %zero, %zero
  for_loop %zero, %steps, %one {{options = \"stages=0 unroll=0\"}} (%j: int32) {{
    %next = add %j, %one : int32
    %place = int_rem %next, %slots : int32
    %later = int_div %next, %slots : int32
    %turned = xor %later, %one : int32
    %gone = and %turned, %one : int32
    mbarrier_wait %empty, %place, %gone
    %late = slot %buffer, %place : buffer<1, {tile}@{m}>
    %row = mul %next, %rows : int32
    mbarrier_expect %full, %place {{bytes = {slot_bytes}}}
    tensor_load %late, %from, %full, %place, %row, %zero
    %own = int_rem %j, %slots : int32
    %round = int_div %j, %slots : int32
    %phase = and %round, %one : int32
    mbarrier_wait %full, %own, %phase
    %here = slot %buffer, %own : buffer<1, {tile}@{m}>
    %value = local_load %here {{matrix = false}} : {tile}@{l}
    mbarrier_arrive %empty, %own
    %double = add %value, %value : {tile}@{l}
    tensor_store_wait {{pending = 0, complete = false}}
    barrier
    local_store %result, %double
    fence_proxy
    barrier
    %after = add %first, %j : int32
    %target = mul %after, %rows : int32
    tensor_store %result, %to, %target, %zero
    yield_values
  }}
  %last = int_rem %steps, %slots : int32
  %times = int_div %steps, %slots : int32
  %parity = and %times, %one : int32
  mbarrier_wait %full, %last, %parity
  cluster_arrive
  tensor_store_wait {{pending = 0, complete = false}}
  barrier
  dealloc %result
  cluster_wait
  return_values
}}
",
        result = SLOTS * slot_bytes,
        empty = barriers + 8 * SLOTS,
    );
    (head, kernel)
}

/// Returns whether the result is right for this number of programs. `said` is the kernel's number
/// of programs; 0 without pairs.
fn outcome(head: &Head, text: &str, columns: u32, programs: u32, said: u32) -> Result<bool, String> {
    let count = STEPS * ROWS * columns;
    let numbers: Vec<half::f16> =
        (0..count).map(|index| half::f16::from_f32((index % 1999) as f32 / 4.0)).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let (mut from, mut to) = (Memory::new(&bytes), Memory::zeros(bytes.len() * programs as usize));
    let rows = if columns == 64 { ROWS / 2 } else { ROWS };
    let (ty, swizzle) = (TensorDataType::F16, Swizzle::Bytes128);
    let (wide, high) = (u64::from(columns), u64::from(STEPS * ROWS));
    let mut first = map(&mut from, ty, &[wide, high], &[64, rows], swizzle);
    let mut second = map(&mut to, ty, &[wide, high * u64::from(programs)], &[64, ROWS], swizzle);
    let mut arguments = [
        Argument::Memory(&mut first),
        Argument::Memory(&mut second),
        Argument::Int(STEPS as i32),
        Argument::Int(said as i32),
        Argument::Hidden(&mut from),
        Argument::Hidden(&mut to),
    ];
    head.run(text, &mut arguments)?;
    let found: Vec<f32> =
        to.bytes().as_chunks().0.iter().map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()).collect();
    let expected = numbers.iter().map(|number| 2.0 * number.to_f32()).cycle();
    Ok(found.into_iter().zip(expected).all(|(found, expected)| found == expected))
}

#[test]
fn each_block_copies_half_to_both() {
    // 128 columns are two boxes, one for each block. 64 columns are one box, a half for each block.
    for columns in [128, 64] {
        let (head, kernel) = ring(columns, 2);
        let text = head.lower(&kernel);
        assert_eq!(text.matches(".multicast::cluster").count(), 2, "{text}");
        assert_eq!(outcome(&head, &text, columns, 4, 4), Ok(true), "{text}");
        // With three programs, the last block has none. With 0, each block fills its slots itself.
        assert_eq!(outcome(&head, &text, columns, 3, 3), Ok(true), "{text}");
        assert_eq!(outcome(&head, &text, columns, 4, 0), Ok(true), "{text}");
    }
}

#[test]
fn each_mistake_is_found() {
    let (head, kernel) = ring(128, 1);
    let text = head.lower(&kernel);
    let fault = |text: &str| outcome(&head, text, 128, 2, 2).expect_err("the mistake is found");
    // Both blocks copy the same half, so it gets too many bytes.
    let wrong = text.replace("%cluster_ctarank", "0");
    assert_ne!(wrong, text);
    let found = fault(&wrong);
    assert!(found.contains("race") || found.contains("uninitialized shared memory"), "{found}");
    // Threads arrive only at their own block, so the other's slot is filled too early.
    let own =
        text.replace("mapa.shared::cluster.u32", "add.u32").replace("mbarrier.init.shared::cta.b64", "INIT");
    let line =
        own.lines().find(|line| line.contains("add.u32") && !text.contains(*line)).expect("it is there");
    let (before, rank) = line.trim_end_matches(';').rsplit_once(", ").expect("it has two operands");
    let own = own
        .replace(line, &format!("{before}, 0; // {rank}"))
        .replace("INIT", "mbarrier.init.shared::cta.b64");
    let found = fault(&own);
    assert!(found.contains("race"), "{found}");
    // Without the first cluster barrier, a block uses barriers that are not initialized. Without
    // the last, it exits while its shared memory is accessed.
    let found = fault(&without(&without(&text, "barrier.cluster.wait", 0), "barrier.cluster.arrive", 0));
    assert!(found.contains("mbarrier") || found.contains("race") || found.contains("visible"), "{found}");
    let found = fault(&without(&without(&text, "barrier.cluster.wait", 1), "barrier.cluster.arrive", 1));
    assert!(found.contains("exits"), "{found}");
}
