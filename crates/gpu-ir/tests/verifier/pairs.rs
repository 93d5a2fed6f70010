//! Tests of dots of pairs of blocks.

use tilewright_gpu_ir::Gpu;
use tilewright_ir::{parse_dialect, print};

/// L0 is a load's layout, L1 and L2 are a block's parts of A and B, L3 is a store's to A.
const HEAD: &str = "\
gpu sm_100a, 4 warps, 0 bytes of shared memory, explicit, clusters of 2
L0 = [128,64] register (0,1) (0,2) (0,4) (0,8) (0,16) (0,32) lane (1,0) (2,0) (4,0) (8,0) (16,0) warp (32,0) (64,0)
L1 = [128,16] offset (0,1) (0,2) (0,4) (0,8) (1,0) (2,0) (4,0) (8,0) (16,0) (32,0) (64,0)
L2 = [32,16] offset (0,1) (0,2) (0,4) (0,8) (1,0) (2,0) (4,0) (8,0) (16,0)
L3 = [128,16] register (0,1) (0,2) (0,4) (0,8) lane (1,0) (2,0) (4,0) (8,0) (16,0) warp (32,0) (64,0)
L4 = [1]
kernel func0 @k(%yes: int1, %y: fp16) {
  %0 = constant {value = 0:int32} : int32
  %v = splat %y {shape = [128, 16]} : fp16[128, 16]@L3
  %word = alloc {offset = ?} : buffer<1, int32[1]@L4>
  tcgen05_alloc %word {columns = 64}
  %a = alloc {offset = ?} : buffer<1, fp16[128, 16]@L1>
  %b = alloc {offset = ?} : buffer<1, fp16[32, 16]@L2>
  %bar = alloc {offset = ?} : mbarrier<1>
  %other = alloc {offset = ?} : mbarrier<1>
  mbarrier_init %bar, %0 {arrivals = 1}
  mbarrier_init %other, %0 {arrivals = 2}
  fence_proxy
  barrier
  cluster_arrive
  cluster_wait
  %acc = alloc {offset = ?} : tensor_memory<1, fp32[128, 64], m128n64, stride 1, cta_group 2>
";

const BODY: &str = "\
  local_store %a, %v
  fence_proxy
  barrier
  cluster_arrive
  cluster_wait
  tcgen05_mma %a, %b, %acc, %yes {transposed_a = false, transposed_b = true}
  tcgen05_commit %bar, %0 {pair = true}
  mbarrier_wait %bar, %0, %0
  %s = tmem_load %acc : fp32[128, 64]@L0
  cluster_arrive
  cluster_wait
  tcgen05_dealloc {columns = 64}
";

/// The barrier of the cluster before the dot, and that before the end.
const BARRIERS: [&str; 2] = [
    "  cluster_arrive\n  cluster_wait\n  tcgen05_mma",
    "  cluster_arrive\n  cluster_wait\n  tcgen05_dealloc",
];

fn check(head: &str, body: &str) -> Result<(), String> {
    let text = format!("{head}{body}  return_values\n}}\n");
    let module = parse_dialect::<Gpu>(&text).map_err(|error| error.message)?;
    let printed = print(&module, false);
    let again = parse_dialect::<Gpu>(&printed).map_err(|error| error.message)?;
    assert_eq!(print(&again, false), printed);
    Ok(())
}

/// Replaces `from` in the program, and returns the verifier's message.
#[track_caller]
fn refused(from: &str, to: &str, expected: &str) {
    assert!(format!("{HEAD}{BODY}").contains(from), "{from}");
    let [head, body] = [HEAD, BODY].map(|text| text.replacen(from, to, 1));
    let error = check(&head, &body).expect_err("it is wrong");
    assert!(error.contains(expected), "{error}");
}

#[test]
fn both_blocks_write_the_operands_before_the_dot() {
    check(HEAD, BODY).unwrap();
    refused(
        BARRIERS[0],
        "  tcgen05_mma",
        "tcgen05_mma reads %a of both blocks, but this block has not waited for the local_store of the other one",
    );
    // The other block arrives at an mbarrier of this one.
    let arrival = "  mbarrier_arrive_at %other, %0, %0 {arrivals = 1, bytes = 0}\n";
    let wait = "  mbarrier_wait %other, %0, %0\n";
    let dot = "  tcgen05_mma";
    check(HEAD, &BODY.replacen(BARRIERS[0], &format!("{arrival}{wait}{dot}"), 1)).unwrap();
    refused(BARRIERS[0], &format!("{arrival}{dot}"), "of both blocks");
}

#[test]
fn blocks_synchronize_before_tensor_memory_is_freed() {
    refused(
        BARRIERS[1],
        "  tcgen05_dealloc",
        "tcgen05_dealloc frees tensor memory that a tcgen05_mma of the other block of the pair may use",
    );
}

#[test]
fn a_dot_is_awaited() {
    refused(
        "  mbarrier_wait %bar, %0, %0\n",
        "",
        "tmem_load reads %acc while a tcgen05_mma writes it: add an mbarrier_wait for %bar",
    );
}

#[test]
fn operands_and_groups_fit() {
    // Each block has half of the columns of B.
    refused(
        "fp32[128, 64], m128n64, stride 1, cta_group 2",
        "fp32[128, 64], m128n64, stride 1, cta_group 1",
        "cannot multiply",
    );
    refused(", clusters of 2", "", "without clusters");
    refused("m128n64, stride 1, cta_group 2", "m128n32, stride 1, cta_group 2", "with one block of columns");
    let single =
        "%single = alloc {offset = ?} : tensor_memory<1, fp32[128, 64], m128n64, stride 1, cta_group 1>";
    refused("local_store %a", &format!("{single}\n  local_store %a"), "a kernel has one kind");
    let body = "  tcgen05_commit %bar, %0 {pair = true}\n";
    let (head, _) = HEAD.split_once("  %acc").unwrap();
    let error = check(head, body).unwrap_err();
    assert!(error.contains("for dots of a pair of blocks, and the kernel has none"), "{error}");
}
