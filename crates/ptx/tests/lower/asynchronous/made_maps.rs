//! Tests tensor maps that the kernel makes from a pointer and integers. Loads have the right
//! results, and the simulator detects mistakes.

use tilewright_gpu_ir::TensorMapPlan;
use tilewright_layout::Layout;
use tilewright_sim::{Swizzle, TensorDataType};

use super::tensors::{COLUMNS, ROWS, map, ring};
use super::{Argument, Head, Memory, without};

/// Returns a program that doubles a matrix through a tensor map that it makes. The height is a
/// parameter, and the width is 120 columns.
fn program() -> (Head, String) {
    let (mut head, kernel) = ring();
    let bytes = head.shared_bytes.next_multiple_of(128);
    head.shared_bytes = bytes + 128;
    let layout = head.add(Layout::strided(&[128], &[0]));
    let plan = "fp16 at p0 + 0, extents [p1; 120], strides [120; 1], box [32, 64], swizzle 128";
    head.made_maps.push(TensorMapPlan::parse(plan).expect("this is a plan"));
    let made = format!(
        "  %template = alloc {{offset = {bytes}}} : buffer<1, int8[128]@{layout}>
  %from = make_tensor_map %template, %matrix, %height {{map = 0}} : *int8
  barrier
  dealloc %template
  %slots = constant"
    );
    let kernel = kernel.replace("@k(%from: *int8, %to: *int8, %steps: int32)", HEAD);
    (head, kernel.replacen("  %slots = constant", &made, 1))
}

const HEAD: &str = "@k(%matrix: *fp16, %to: *int8, %steps: int32, %height: int32)";
const WIDTH: u32 = COLUMNS - 8;

/// Returns whether the result is right for a matrix of this height.
fn outcome(head: &Head, text: &str, height: u32) -> Result<bool, String> {
    let steps = 4;
    let rows = steps * ROWS;
    let numbers: Vec<half::f16> =
        (0..rows * WIDTH).map(|index| half::f16::from_f32((index % 1999 + 1) as f32 / 4.0)).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let (mut from, mut to) = (Memory::new(&bytes), Memory::zeros(bytes.len()));
    let extents = [u64::from(WIDTH), u64::from(rows)];
    let mut target = map(&mut to, TensorDataType::F16, &extents, &[64, ROWS], Swizzle::Bytes128);
    let mut arguments = [
        Argument::Memory(&mut from),
        Argument::Memory(&mut target),
        Argument::Int(steps as i32),
        Argument::Int(height as i32),
        Argument::Hidden(&mut to),
    ];
    head.run(text, &mut arguments)?;
    let found = to.bytes().as_chunks().0.iter().map(|bytes| half::f16::from_le_bytes(*bytes));
    let expected = numbers.iter().enumerate().map(|(index, number)| {
        let is_there = index as u32 / WIDTH < height;
        if is_there { 2.0 * number.to_f32() } else { 0.0 }
    });
    Ok(found.map(half::f16::to_f32).eq(expected))
}

#[test]
fn boxes_of_a_map_that_the_kernel_makes() {
    let (head, kernel) = program();
    let text = head.lower(&kernel);
    assert_eq!(text.matches("tensormap.cp_fenceproxy").count(), 1, "{text}");
    // Zeros follow the last row.
    for height in [4 * ROWS, 3 * ROWS + 5, 1, 0] {
        assert_eq!(outcome(&head, &text, height), Ok(true), "{height} rows\n{text}");
    }
}

#[test]
fn what_is_missing_is_found() {
    let (head, kernel) = program();
    let text = head.lower(&kernel);
    let height = 3 * ROWS + 5;
    let found = outcome(&head, &without(&text, "fence.proxy.tensormap", 0), height);
    let found = found.expect_err("the copies do not know of the map");
    assert!(found.contains("generic.acquire is missing"), "{found}");
    for word in ["tensormap.cp_fenceproxy", "box_dim", "global_stride", "swizzle_mode", "global_address"] {
        let found = outcome(&head, &without(&text, word, 0), height);
        assert!(found != Ok(true), "without {word}\n{text}");
    }
}

/// A kernel that copies the words of used map entries to its parameter's memory.
const LOOK: &str = "
.visible .entry look(.param .u64 look_param_0)
{
  .reg .b32 %value;
  .reg .b32 %lane;
  .reg .b64 %from, %to, %skipped;
  ld.param.u64 %to, [look_param_0];
  mov.u32 %lane, %tid.x;
  mul.wide.u32 %skipped, %lane, 4;
  mov.u64 %from, tensor_maps_taken;
  add.u64 %from, %from, %skipped;
  add.u64 %to, %to, %skipped;
  ld.global.b32 %value, [%from];
  st.global.b32 [%to], %value;
  ret;
}
";

#[test]
fn the_place_is_given_back() {
    let (head, kernel) = program();
    let text = head.lower(&kernel);
    assert_eq!(places_taken(&head, &text), 0);
    assert_eq!(places_taken(&head, &without(&text, "red.release", 0)), 1);
}

/// Runs the kernel, and returns the map entries still marked as used.
fn places_taken(head: &Head, text: &str) -> u32 {
    let loaded = head.load(&format!("{text}{LOOK}"));
    let (mut from, mut to) = (Memory::zeros(16), Memory::zeros(240 * 64));
    let mut target = map(&mut to, TensorDataType::F16, &[120, 64], &[64, ROWS], Swizzle::Bytes128);
    let mut arguments = [
        Argument::Memory(&mut from),
        Argument::Memory(&mut target),
        Argument::Int(2),
        Argument::Int(0),
        Argument::Hidden(&mut to),
    ];
    head.launch(&loaded, "k", &mut arguments).expect("it stores zeros");
    let mut words = Memory::zeros(4 * 128);
    head.launch(&loaded, "look", &mut [Argument::Memory(&mut words)]).expect("it looks");
    words.bytes().iter().map(|byte| byte.count_ones()).sum()
}
