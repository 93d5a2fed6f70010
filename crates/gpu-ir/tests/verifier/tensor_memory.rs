//! Tests of the ops on tensor memory.

use tilewright_gpu_ir::Gpu;
use tilewright_ir::{parse_dialect, print};

/// L0 is a load's layout, L1 and L2 are A and B, L3 is no load's.
const HEAD: &str = "\
gpu sm_100a, 4 warps, 0 bytes of shared memory, explicit
L0 = [128,64] register (0,1) (0,2) (0,4) (0,8) (0,16) (0,32) lane (1,0) (2,0) (4,0) (8,0) (16,0) warp (32,0) (64,0)
L1 = [128,16] offset (0,1) (0,2) (0,4) (0,8) (1,0) (2,0) (4,0) (8,0) (16,0) (32,0) (64,0)
L2 = [64,16] offset (0,1) (0,2) (0,4) (0,8) (1,0) (2,0) (4,0) (8,0) (16,0) (32,0)
L3 = [128,64] register (0,1) (0,2) (0,4) (0,8) (0,16) (0,32) lane (32,0) (2,0) (4,0) (8,0) (16,0) warp (1,0) (64,0)
kernel func0 @k(%yes: int1, %x: fp32, %y: fp16) {
  %0 = constant {value = 0:int32} : int32
  %t = splat %x {shape = [128, 64]} : fp32[128, 64]@L0
  %u = splat %x {shape = [128, 64]} : fp32[128, 64]@L3
  %a = alloc {offset = ?} : buffer<1, fp16[128, 16]@L1>
  %b = alloc {offset = ?} : buffer<1, fp16[64, 16]@L2>
  %bar = alloc {offset = ?} : mbarrier<1>
  mbarrier_init %bar, %0 {arrivals = 1}
  fence_proxy
  barrier
  %acc = alloc {offset = ?} : tensor_memory<1, fp32[128, 64], m128n64, stride 1, cta_group 1>
  %p = alloc {offset = ?} : tensor_memory<1, fp16[128, 16], m128n16, stride 1, cta_group 1>
";

const BODY: &str = "\
  tcgen05_mma %a, %b, %acc, %yes {transposed_a = false, transposed_b = true}
  tcgen05_commit %bar, %0 {pair = false}
  mbarrier_wait %bar, %0, %0
  %s = tmem_load %acc : fp32[128, 64]@L0
  tmem_store %acc, %s
";

fn check(body: &str) -> Result<String, String> {
    let text = format!("{HEAD}{body}  return_values\n}}\n");
    let module = parse_dialect::<Gpu>(&text).map_err(|error| error.message)?;
    let printed = print(&module, false);
    let again = parse_dialect::<Gpu>(&printed).map_err(|error| error.message)?;
    assert_eq!(print(&again, false), printed);
    Ok(printed)
}

/// Replaces the first `from` of the body, and returns the verifier's message.
#[track_caller]
fn refused(from: &str, to: &str, expected: &str) {
    assert!(BODY.contains(from), "{from}");
    let error = check(&BODY.replacen(from, to, 1)).expect_err("it is wrong");
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_dot_is_awaited_before_its_accumulator_is_accessed() {
    let printed = check(BODY).unwrap();
    assert!(printed.contains("tensor_memory<1, fp32[128, 64], m128n64, stride 1, cta_group 1>"));
    let missing = "while a tcgen05_mma writes it: add a";
    refused(
        "  mbarrier_wait %bar, %0, %0\n",
        "",
        "tmem_load reads %acc while a tcgen05_mma writes it: add an mbarrier_wait for %bar",
    );
    refused("  tcgen05_commit %bar, %0 {pair = false}\n  mbarrier_wait %bar, %0, %0\n", "", missing);
    // Another dot may use the accumulator, and a write to an operand may not come before the wait.
    let again = BODY.lines().next().unwrap();
    check(&BODY.replacen("  tcgen05_commit", &format!("{again}\n  tcgen05_commit"), 1)).unwrap();
    let write =
        "  %v = splat %y {shape = [128, 16]} : fp16[128, 16]@L4\n  local_store %a, %v\n  mbarrier_wait";
    let layout = "L4 = [128,16] register (0,1) (0,2) (0,4) (0,8) lane (1,0) (2,0) (4,0) (8,0) (16,0) warp (32,0) (64,0)\n";
    let head = HEAD.replacen("kernel", &format!("{layout}kernel"), 1);
    let text = format!("{head}{}  return_values\n}}\n", BODY.replacen("  mbarrier_wait", write, 1));
    let error = parse_dialect::<Gpu>(&text).unwrap_err().message;
    assert!(error.contains("local_store writes %a while a tcgen05_mma reads it"), "{error}");
}

#[test]
fn memory_that_a_dot_uses_is_not_freed() {
    let after = BODY.split_once("  mbarrier_wait").unwrap().1;
    refused(
        &format!("  mbarrier_wait{after}"),
        "  dealloc %acc\n",
        "dealloc frees %acc while a tcgen05_mma writes it",
    );
    refused("  tmem_store %acc, %s", "  dealloc %acc\n  tmem_store %acc, %s", "after the dealloc");
}

#[test]
fn layouts_are_those_of_instructions() {
    refused("tmem_store %acc, %s", "tmem_store %acc, %u", "no instruction moves fp32[128, 64]@L3");
}

#[test]
fn operands_fit() {
    let dot = "tcgen05_mma %a, %b, %acc";
    check(&BODY.replacen(dot, "tcgen05_mma %p, %b, %acc", 1)).unwrap();
    refused("transposed_b = true", "transposed_b = false", "cannot multiply fp16[128, 16] by fp16[64, 16]");
    refused(dot, "tcgen05_mma %a, %p, %acc", "takes a buffer of one slot");
    refused(dot, "tcgen05_mma %a, %b, %a", "takes tensor memory of one slot");
    refused(dot, "tcgen05_mma %acc, %b, %acc", "no kind for fp32[128, 64]");
}

#[test]
fn types_are_checked() {
    for (ty, expected) in [
        ("tensor_memory<1, fp32[128, 64], m32n64, stride 1, cta_group 1>", "blocks of 64 or 128 rows"),
        ("tensor_memory<1, fp32[64, 64], m128n64, stride 1, cta_group 1>", "blocks of 64 or 128 rows"),
        ("tensor_memory<1, fp32[128, 64], m128n64, stride 2, cta_group 1>", "elements are packed"),
        ("tensor_memory<1, fp32[128, 64], m128n64, stride 1, cta_group 3>", "one block or two blocks"),
        ("tensor_memory<1, fp16[64, 2], m64n2, stride 1, cta_group 2>", "elements are packed"),
    ] {
        let error = check(&format!("  %z = alloc {{offset = ?}} : {ty}\n")).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    for text in
        ["tensor_memory<0, fp32[128, 64], m128n64, stride 1, cta_group 1>", "tensor_memory<1, fp32[128, 64]>"]
    {
        assert!(check(&format!("  %z = alloc {{offset = ?}} : {text}\n")).is_err(), "{text}");
    }
    let error = check("  tcgen05_dealloc {columns = 48}\n").unwrap_err();
    assert!(error.contains("a power of two from 32 to 512 columns, not 48"), "{error}");
}

/// Layouts and allocations of dots with scales: A and B have K = 32, so each row has one scale.
const SCALED_LAYOUTS: &str = "\
L4 = [128,4] offset (0,1) (0,2) (32,0) (64,0) (1,0) (2,0) (4,0) (8,0) (16,0)
L5 = [128,32] offset (0,1) (0,2) (0,4) (0,8) (0,16) (1,0) (2,0) (4,0) (8,0) (16,0) (32,0) (64,0)
L6 = [64,32] offset (0,1) (0,2) (0,4) (0,8) (0,16) (1,0) (2,0) (4,0) (8,0) (16,0) (32,0)
L7 = [128,4] register (0,1) (0,2) (32,0) (64,0) lane (1,0) (2,0) (4,0) (8,0) (16,0) warp (0,0) (0,0)
";

const SCALED_BODY: &str = "\
  %from = alloc {offset = ?} : buffer<1, uint8[128, 4]@L4>
  %f = alloc {offset = ?} : buffer<1, uint8[128, 32]@L5>
  %g = alloc {offset = ?} : buffer<1, uint8[64, 32]@L6>
  %scales = alloc {offset = ?} : tensor_memory<1, uint8[128, 4], m32n4, stride 1, cta_group 1>
  %sa = alloc {offset = ?} : tensor_memory<1, uint8[128, 1], m32n1, stride 1, cta_group 1>
  %sb = alloc {offset = ?} : tensor_memory<1, uint8[64, 1], m32n1, stride 1, cta_group 1>
  tcgen05_copy %from, %scales
  tcgen05_mma_scaled %f, %g, %acc, %sa, %sb, %yes {a_format = e4m3, b_format = e5m2, transposed_a = false, transposed_b = true}
  tcgen05_commit %bar, %0 {pair = false}
  mbarrier_wait %bar, %0, %0
  %s = tmem_load %scales : uint8[128, 4]@L7
  tmem_store %scales, %s
  %r = tmem_load %acc : fp32[128, 64]@L0
";

fn check_scaled(body: &str) -> Result<(), String> {
    let head = HEAD.replacen("kernel", &format!("{SCALED_LAYOUTS}kernel"), 1);
    let text = format!("{head}{body}  return_values\n}}\n");
    let module = parse_dialect::<Gpu>(&text).map_err(|error| error.message)?;
    let printed = print(&module, false);
    let again = parse_dialect::<Gpu>(&printed).map_err(|error| error.message)?;
    assert_eq!(print(&again, false), printed);
    Ok(())
}

#[test]
fn copies_and_scaled_dots_are_awaited_and_fit() {
    check_scaled(SCALED_BODY).unwrap();
    for (from, to, expected) in [
        (
            "  mbarrier_wait %bar, %0, %0\n",
            "",
            "tmem_load reads %scales while a tcgen05_copy writes it: add an mbarrier_wait for %bar",
        ),
        ("tcgen05_copy %from, %scales", "tcgen05_copy %f, %scales", "the tiles differ"),
        ("tcgen05_copy %from, %scales", "tcgen05_copy %scales, %scales", "takes a buffer of one slot"),
        (
            "%sa, %sb, %yes",
            "%scales, %sb, %yes",
            "needs scales [128, 1], found tensor_memory<1, uint8[128, 4]",
        ),
        ("%sa, %sb, %yes", "%sa, %acc, %yes", "the scales of both operands"),
        ("b_format = e5m2", "b_format = e2m1", "with `fp4_padded=True`"),
        ("transposed_b = true", "transposed_b = false", "cannot multiply uint8[128, 32] by uint8[64, 32]"),
        ("uint8[128, 4]@L7", "uint8[128, 4]@L4", "uint8[128, 4]@L4"),
    ] {
        assert!(SCALED_BODY.contains(from), "{from}");
        let error = check_scaled(&SCALED_BODY.replacen(from, to, 1)).expect_err(expected);
        assert!(error.contains(expected), "{error}");
    }
}
