//! Tests tensor copies, which signal barriers in shared memory. Most use a program that loads tiles
//! into a ring, doubles them, and stores them.

use tilewright_layout::{Layout, SwizzleMode, blocked, swizzled};
use tilewright_sim::{OutOfBoundsFill, Swizzle, TensorDataType, TensorMap};

use super::{Argument, Head, Memory, by_rows, with_operand, without};

/// Returns a map of a dense tensor, the contiguous axis first in `extents` and `boxes`.
pub fn map(
    memory: &mut Memory,
    ty: TensorDataType,
    extents: &[u64],
    boxes: &[u32],
    swizzle: Swizzle,
) -> Memory {
    let mut stride = u64::from(ty.bytes());
    let strides = extents.iter().map(|extent| {
        stride *= extent;
        stride
    });
    let map = TensorMap {
        data_type: ty,
        address: memory.address(),
        extents: extents.to_vec(),
        strides: strides.take(extents.len() - 1).collect(),
        box_extents: boxes.to_vec(),
        element_strides: vec![1; extents.len()],
        swizzle,
        fill: OutOfBoundsFill::Zero,
        pixels: None,
    };
    Memory::new(&map.encode().expect("it is a tensor map"))
}

pub const ROWS: u32 = 32;
pub const COLUMNS: u32 = 128;
const SLOTS: u32 = 3;
const SLOT_BYTES: u32 = ROWS * COLUMNS * 2;

/// Returns a program that doubles a matrix through a ring of three slots. The matrix has `steps`
/// times 32 rows of 128 columns. Each slot is two boxes.
pub fn ring() -> (Head, String) {
    let out = SLOTS * SLOT_BYTES;
    let barriers = out + SLOT_BYTES;
    let mut head = Head::new("sm_90a", 4, barriers + 8 * SLOTS);
    let m = head.add(swizzled(&[ROWS, COLUMNS], &[1, 0], 16, SwizzleMode::Bytes128));
    let l = head.add(by_rows([ROWS, COLUMNS], 8, 4));
    let (slot, tile) =
        (format!("buffer<1, fp16[{ROWS}, {COLUMNS}]@{m}>"), format!("fp16[{ROWS}, {COLUMNS}]@{l}"));
    let kernel = format!(
        "kernel func0 @k(%from: *int8, %to: *int8, %steps: int32) {{
  %zero = constant {{value = 0:int32}} : int32
  %one = constant {{value = 1:int32}} : int32
  %slots = constant {{value = {SLOTS}:int32}} : int32
  %rows = constant {{value = {ROWS}:int32}} : int32
  %buffer = alloc {{offset = 0}} : buffer<{SLOTS}, fp16[{ROWS}, {COLUMNS}]@{m}>
  %result = alloc {{offset = {out}}} : {slot}
  %full = alloc {{offset = {barriers}}} : mbarrier<{SLOTS}>
  mbarrier_init %full {{arrivals = 1}}
  fence_proxy
  barrier
  %ahead = constant {{value = {}:int32}} : int32
  for_loop %zero, %ahead, %one {{options = \"stages=0 unroll=0\"}} (%i: int32) {{
    %early = slot %buffer, %i : {slot}
    %row = mul %i, %rows : int32
    mbarrier_expect %full, %i {{bytes = {SLOT_BYTES}}}
    tensor_load %early, %from, %full, %i, %row, %zero
    yield_values
  }}
  for_loop %zero, %steps, %one {{options = \"stages=0 unroll=0\"}} (%j: int32) {{
    %next = add %j, %ahead : int32
    %place = int_rem %next, %slots : int32
    %more = lt %next, %steps : int1
    if_else %more () {{
      %late = slot %buffer, %place : {slot}
      %row = mul %next, %rows : int32
      mbarrier_expect %full, %place {{bytes = {SLOT_BYTES}}}
      tensor_load %late, %from, %full, %place, %row, %zero
      yield_values
    }} () {{
      yield_values
    }}
    %own = int_rem %j, %slots : int32
    %round = int_div %j, %slots : int32
    %phase = and %round, %one : int32
    mbarrier_wait %full, %own, %phase
    %here = slot %buffer, %own : {slot}
    %value = local_load %here {{matrix = false}} : {tile}
    %double = add %value, %value : {tile}
    tensor_store_wait {{pending = 0, complete = false}}
    barrier
    local_store %result, %double
    fence_proxy
    barrier
    %target = mul %j, %rows : int32
    tensor_store %result, %to, %target, %zero
    yield_values
  }}
  tensor_store_wait {{pending = 0, complete = false}}
  barrier
  dealloc %full
  dealloc %result
  return_values
}}
",
        SLOTS - 1
    );
    (head, kernel)
}

fn outcome(head: &Head, text: &str, steps: u32) -> Result<bool, String> {
    outcome_of_boxes(head, text, steps, ([64, ROWS], Swizzle::Bytes128))
}

/// Returns whether the result is right with load boxes of this extent and swizzle. `Err` is the
/// fault.
fn outcome_of_boxes(
    head: &Head,
    text: &str,
    steps: u32,
    (boxes, swizzle): ([u32; 2], Swizzle),
) -> Result<bool, String> {
    // The last boxes exceed the tensor by two rows and eight columns.
    let (rows, columns) = (steps * ROWS - 2, COLUMNS - 8);
    let numbers: Vec<half::f16> =
        (0..rows * columns).map(|index| half::f16::from_f32((index % 1999) as f32 / 4.0)).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let (mut from, mut to) = (Memory::new(&bytes), Memory::zeros(bytes.len()));
    let extents = [u64::from(columns), u64::from(rows)];
    let mut first = map(&mut from, TensorDataType::F16, &extents, &boxes, swizzle);
    let mut second = map(&mut to, TensorDataType::F16, &extents, &[64, ROWS], Swizzle::Bytes128);
    let mut arguments = [
        Argument::Memory(&mut first),
        Argument::Memory(&mut second),
        Argument::Int(steps as i32),
        Argument::Hidden(&mut from),
        Argument::Hidden(&mut to),
    ];
    head.run(text, &mut arguments)?;
    let found = to.bytes().as_chunks().0.iter().map(|bytes| half::f16::from_le_bytes(*bytes));
    Ok(found.zip(numbers).all(|(found, number)| found.to_f32() == 2.0 * number.to_f32()))
}

#[test]
fn a_ring_of_slots_turns_several_times() {
    let (head, kernel) = ring();
    let text = head.lower(&kernel);
    // Each of two loops loads two boxes and arrives once.
    assert_eq!(text.matches("cp.async.bulk.tensor.2d.shared::cluster.global").count(), 4, "{text}");
    assert_eq!(text.matches("mbarrier.arrive.expect_tx").count(), 2, "{text}");
    for steps in [2, 3, 8] {
        assert_eq!(outcome(&head, &text, steps), Ok(true), "{steps} steps\n{text}");
    }
}

#[test]
fn each_mistake_is_found() {
    let (head, kernel) = ring();
    let text = head.lower(&kernel);
    let fault = |text: &str| outcome(&head, text, 8).expect_err("the mistake is found");
    // Fence 0 is for initialized barriers, and fence 1 for the result.
    let found = fault(&without(&text, "fence.proxy.async", 1));
    assert!(found.contains("proxy"), "{found}");
    for number in 0..3 {
        let found = fault(&without(&text, "bar.sync", number));
        assert!(
            found.contains("race") || found.contains("visible") || found.contains("mbarrier"),
            "{number}: {found}"
        );
    }
    // Nothing orders the copy before the load.
    let wait = text.lines().position(|line| line.contains("mbarrier.try_wait")).expect("there is a wait");
    let jump = text.lines().nth(wait + 1).expect("it is a loop");
    let found = fault(&text.replacen(jump, "", 1));
    assert!(found.contains("race"), "{found}");
    // The first wait returns at once.
    let start = text.find("mbarrier.try_wait").expect("there is a wait");
    let line = text[start..].split(';').next().expect("it ends");
    let parity = line.rsplit(", ").next().expect("it has a parity");
    let wrong = line.replace(parity, "%other");
    let text_of_wrong =
        text.replacen("mbarrier.try_wait", "xor.b32 %other, PARITY, 1;\nmbarrier.try_wait", 1);
    let text_of_wrong = text_of_wrong.replace("PARITY", parity).replace(line, &wrong);
    let text_of_wrong = text_of_wrong.replacen(".reg .pred", ".reg .b32 %other;\n.reg .pred", 1);
    let found = fault(&text_of_wrong);
    assert!(found.contains("race"), "{found}");
    // The barrier expects bytes that never arrive.
    let expect = text.lines().find(|line| line.contains("expect_tx")).expect("there is one");
    let more = expect.replace(&SLOT_BYTES.to_string(), &(SLOT_BYTES + 16).to_string());
    let found = fault(&text.replacen(expect, &more, 1));
    assert!(found.contains("deadlock") || found.contains("wait"), "{found}");
    let found = fault(&with_operand(&text, "cp.async.bulk.wait_group.read", "1"));
    assert!(found.contains("race"), "{found}");
    // Half of the rows bring too few bytes. Without a swizzle, boxes do not have the slots' layout.
    let found = outcome_of_boxes(&head, &text, 8, ([64, ROWS / 2], Swizzle::Bytes128)).expect_err("it waits");
    assert!(found.contains("deadlock") || found.contains("wait"), "{found}");
    assert_eq!(outcome_of_boxes(&head, &text, 8, ([64, ROWS], Swizzle::None)), Ok(false));
}

#[test]
fn reductions_add_up_and_need_what_stores_need() {
    let (head, kernel) = ring();
    let stored = "tensor_store %result, %to, %target, %zero";
    assert!(kernel.contains(stored));
    let reduced = "tensor_reduce %result, %to, %target, %zero {kind = \"add\"}";
    // The old values are zero, so the sums equal the stored values.
    let text = head.lower(&kernel.replace(stored, reduced));
    assert_eq!(text.matches("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add").count(), 2, "{text}");
    assert_eq!(outcome(&head, &text, 8), Ok(true), "{text}");
    let twice = head.lower(&kernel.replace(stored, &format!("{reduced}\n    {reduced}")));
    assert_eq!(outcome(&head, &twice, 2), Ok(false), "it is added twice");
    let fault = |text: &str| outcome(&head, text, 8).expect_err("the mistake is found");
    let found = fault(&without(&text, "fence.proxy.async", 1));
    assert!(found.contains("proxy"), "{found}");
    let found = fault(&with_operand(&text, "cp.async.bulk.wait_group.read", "1"));
    assert!(found.contains("race"), "{found}");
    for number in 1..3 {
        let found = fault(&without(&text, "bar.sync", number));
        assert!(found.contains("race") || found.contains("visible"), "{number}: {found}");
    }
}

/// Returns a program that adds blocks of a matrix. Eight warps release slots at a barrier in shared
/// memory, so the loop has no block barrier.
fn handed_back() -> (Head, String) {
    const TURNS: u32 = 2;
    let out = TURNS * SLOT_BYTES;
    let barriers = out + SLOT_BYTES;
    let mut head = Head::new("sm_90a", 8, barriers + 16 * TURNS);
    let m = head.add(swizzled(&[ROWS, COLUMNS], &[1, 0], 16, SwizzleMode::Bytes128));
    let l = head.add(by_rows([ROWS, COLUMNS], 8, 8));
    let (slot, tile) =
        (format!("buffer<1, fp16[{ROWS}, {COLUMNS}]@{m}>"), format!("fp16[{ROWS}, {COLUMNS}]@{l}"));
    let empty = barriers + 8 * TURNS;
    let kernel = format!(
        "kernel func0 @k(%from: *int8, %to: *int8, %steps: int32) {{
  %zero = constant {{value = 0:int32}} : int32
  %one = constant {{value = 1:int32}} : int32
  %slots = constant {{value = {TURNS}:int32}} : int32
  %rows = constant {{value = {ROWS}:int32}} : int32
  %none = constant {{value = 0.0:fp16}} : fp16
  %start = splat %none {{shape = [{ROWS}, {COLUMNS}]}} : {tile}
  %buffer = alloc {{offset = 0}} : buffer<{TURNS}, fp16[{ROWS}, {COLUMNS}]@{m}>
  %result = alloc {{offset = {out}}} : {slot}
  %full = alloc {{offset = {barriers}}} : mbarrier<{TURNS}>
  mbarrier_init %full {{arrivals = 1}}
  %empty = alloc {{offset = {empty}}} : mbarrier<{TURNS}>
  mbarrier_init %empty {{arrivals = 8}}
  fence_proxy
  barrier
  %sum = for_loop %zero, %steps, %one, %start {{options = \"stages=0 unroll=0\"}} (%j: int32, %acc: {tile}) {{
    %own = int_rem %j, %slots : int32
    %round = int_div %j, %slots : int32
    %phase = and %round, %one : int32
    %before = xor %phase, %one : int32
    mbarrier_wait %empty, %own, %before
    %here = slot %buffer, %own : {slot}
    %row = mul %j, %rows : int32
    mbarrier_expect %full, %own {{bytes = {SLOT_BYTES}}}
    tensor_load %here, %from, %full, %own, %row, %zero
    mbarrier_wait %full, %own, %phase
    %value = local_load %here {{matrix = false}} : {tile}
    mbarrier_arrive %empty, %own
    %next = add %acc, %value : {tile}
    yield_values %next
  }} : {tile}
  local_store %result, %sum
  fence_proxy
  barrier
  tensor_store %result, %to, %zero, %zero
  tensor_store_wait {{pending = 0, complete = false}}
  return_values
}}
"
    );
    (head, kernel)
}

#[test]
fn a_slot_that_is_not_handed_back_is_a_race() {
    let (head, kernel) = handed_back();
    let text = head.lower(&kernel);
    let steps = 7;
    let outcome = |text: &str| {
        let count = steps * ROWS * COLUMNS;
        let numbers: Vec<half::f16> =
            (0..count).map(|index| half::f16::from_f32((index % 61) as f32)).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let (mut from, mut to) = (Memory::new(&bytes), Memory::zeros(SLOT_BYTES as usize));
        let map_of = |memory: &mut Memory, rows: u32| {
            let extents = [u64::from(COLUMNS), u64::from(rows)];
            map(memory, TensorDataType::F16, &extents, &[64, ROWS], Swizzle::Bytes128)
        };
        let (mut first, mut second) = (map_of(&mut from, steps * ROWS), map_of(&mut to, ROWS));
        let mut arguments = [
            Argument::Memory(&mut first),
            Argument::Memory(&mut second),
            Argument::Int(steps as i32),
            Argument::Hidden(&mut from),
            Argument::Hidden(&mut to),
        ];
        head.run(text, &mut arguments)?;
        let found = to.bytes().as_chunks().0.iter().map(|bytes| half::f16::from_le_bytes(*bytes).to_f32());
        let block = (ROWS * COLUMNS) as usize;
        let sum = |place: usize| numbers.iter().skip(place).step_by(block).map(|x| x.to_f32()).sum::<f32>();
        Ok::<bool, String>(found.enumerate().all(|(place, found)| found == sum(place)))
    };
    assert_eq!(outcome(&text), Ok(true), "{text}");
    // The wait for an empty slot is missing.
    let wait = text.lines().position(|line| line.contains("mbarrier.try_wait")).expect("there is a wait");
    let jump = text.lines().nth(wait + 1).expect("it is a loop");
    let found = outcome(&text.replacen(jump, "", 1)).expect_err("the mistake is found");
    assert!(found.contains("race"), "{found}");
    // The next wait never ends.
    let arrive = text.lines().find(|line| line.contains("mbarrier.arrive") && !line.contains("expect_tx"));
    let found = outcome(&text.replacen(arrive.expect("warps arrive"), "", 1)).expect_err("it waits");
    assert!(found.contains("deadlock") || found.contains("wait"), "{found}");
}

/// Returns a program in which one thread loads a box. The coordinates of the box are parameters.
/// Threads store its elements in order.
fn one_box(shape: &[u32], coordinates: usize) -> (Head, String) {
    let size: u32 = shape.iter().product();
    let barrier = size * 4;
    let mut head = Head::new("sm_90a", 2, barrier + 8);
    let order: Vec<usize> = (0..shape.len()).rev().collect();
    let m = head.add(Layout::strided(shape, &order));
    let flat = blocked(&[size], &[1], &[32], &[2], &[0]);
    let (tile, flat) = (head.add(flat.reshape(shape)), head.add(flat));
    let shape = format!("{shape:?}");
    let names: Vec<String> = (0..coordinates).map(|axis| format!("%c{axis}")).collect();
    let kernel = format!(
        "kernel func0 @k(%from: *int8, %x: *int32, {}) {{
  %zero = constant {{value = 0:int32}} : int32
  %box = alloc {{offset = 0}} : buffer<1, int32{shape}@{m}>
  %full = alloc {{offset = {barrier}}} : mbarrier<1>
  mbarrier_init %full {{arrivals = 1}}
  fence_proxy
  barrier
  mbarrier_expect %full, %zero {{bytes = {barrier}}}
  tensor_load %box, %from, %full, %zero, {}
  mbarrier_wait %full, %zero, %zero
  %value = local_load %box {{matrix = false}} : int32{shape}@{tile}
  %all = reshape %value {{shape = [{size}]}} : int32[{size}]@{flat}
  %range = arange {{start = 0, end = {size}}} : int32[{size}]@{flat}
  %to = splat %x {{shape = [{size}]}} : *int32[{size}]@{flat}
  %there = ptr_add %to, %range : *int32[{size}]@{flat}
  store %there, %all {{cache = \"\", eviction = \"\", axis = 0, width = 1}}
  barrier
  dealloc %full
  dealloc %box
  return_values
}}
",
        names.iter().map(|name| format!("{name}: int32")).collect::<Vec<_>>().join(", "),
        names.join(", ")
    );
    (head, kernel)
}

#[test]
fn boxes_of_every_rank_with_the_last_coordinate_contiguous() {
    let shapes: [&[u32]; 5] = [&[64], &[8, 16], &[2, 4, 16], &[2, 2, 4, 8], &[2, 2, 2, 2, 8]];
    let cases =
        shapes.iter().map(|shape| (*shape, shape.len())).chain([(&[8_u32, 16][..], 3), (&[64][..], 5)]);
    for (shape, rank) in cases {
        let (head, kernel) = one_box(shape, rank);
        let text = head.lower(&kernel);
        assert!(text.contains(&format!("cp.async.bulk.tensor.{rank}d.")), "{text}");
        // The tensor has four more elements along each axis.
        let start = |axis: usize| if axis + 1 == rank { 4 } else { axis % 3 + 1 };
        let boxes: Vec<u32> =
            std::iter::repeat_n(1, rank - shape.len()).chain(shape.iter().copied()).collect();
        let extents: Vec<u64> = boxes.iter().map(|size| u64::from(*size) + 4).collect();
        let count: u64 = extents.iter().product();
        let numbers: Vec<u8> = (0..count as u32).flat_map(u32::to_le_bytes).collect();
        let mut tensor = Memory::new(&numbers);
        let reversed = |sizes: &[u32]| sizes.iter().rev().copied().collect::<Vec<_>>();
        let inner: Vec<u64> = extents.iter().rev().copied().collect();
        let mut map = map(&mut tensor, TensorDataType::S32, &inner, &reversed(&boxes), Swizzle::None);
        let size: u32 = shape.iter().product();
        let mut found = Memory::zeros(size as usize * 4);
        let mut arguments = vec![Argument::Memory(&mut map), Argument::Memory(&mut found)];
        arguments.extend((0..rank).map(|axis| Argument::Int(start(axis) as i32)));
        arguments.push(Argument::Hidden(&mut tensor));
        head.run(&text, &mut arguments).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
        for (index, bytes) in found.bytes().as_chunks().0.iter().enumerate() {
            let (mut rest, mut place, mut stride) = (index as u64, 0, 1);
            for axis in (0..rank).rev() {
                let extent = u64::from(boxes[axis]);
                place += (rest % extent + start(axis) as u64) * stride;
                rest /= extent;
                stride *= extents[axis];
            }
            assert_eq!(
                u64::from(u32::from_le_bytes(*bytes)),
                place,
                "{shape:?} of {rank} axes, element {index}"
            );
        }
    }
}
