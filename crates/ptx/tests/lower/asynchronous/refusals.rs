//! Tests the messages with which the verifier and the lowering refuse programs.

use tilewright_layout::{Fragment, Layout, Mma, SwizzleMode, blocked, swizzled};

use super::Head;

/// Returns the message that refuses a kernel with this body.
fn refusal(target: &'static str, warps: u32, layouts: &[Layout], body: &str) -> String {
    let mut head = Head::new(target, warps, 65536);
    for layout in layouts {
        head.add(layout.clone());
    }
    head.refusal(&format!("kernel func0 @k(%x: *fp16, %i: int32) {{\n{body}\n  return_values\n}}\n"))
}

#[test]
fn an_op_that_the_target_lacks_is_named() {
    for (op, target) in [
        ("commit_group", "sm_75"),
        ("wait_group {pending = 0}", "sm_75"),
        ("fence_proxy", "sm_80"),
        ("tensor_store_wait {pending = 0, complete = false}", "sm_80"),
    ] {
        let name = op.split(' ').next().expect("it has a name");
        let found = refusal(target, 4, &[], &format!("  {op}"));
        assert_eq!(found, format!("`{name}` is not available on {target}"));
    }
    let body = "  %b = alloc {offset = 0} : mbarrier<2>\n  mbarrier_init %b {arrivals = 1}";
    assert_eq!(refusal("sm_80", 4, &[], body), "`mbarrier_init` is not available on sm_80");
}

#[test]
fn places_and_coordinates() {
    let found = refusal("sm_90a", 4, &[], "  %b = alloc {offset = 4} : mbarrier<2>");
    assert!(found.contains("alloc needs %b at a multiple of 8 bytes, and it is placed at byte 4"), "{found}");
    let load = |offset: u32, coordinates: &str| {
        format!(
            "  %t = alloc {{offset = {offset}}} : buffer<1, fp16[16, 64]@L0>
  %b = alloc {{offset = 0}} : mbarrier<1>
  mbarrier_init %b {{arrivals = 1}}
  fence_proxy
  barrier
  mbarrier_expect %b, %i {{bytes = 2048}}
  tensor_load %t, %x, %b, %i{coordinates}"
        )
    };
    let swizzle = swizzled(&[16, 64], &[1, 0], 16, SwizzleMode::Bytes128);
    let found = refusal("sm_90a", 4, std::slice::from_ref(&swizzle), &load(1536, ", %i, %i"));
    assert!(
        found.contains("tensor_load needs %t at a multiple of 1024 bytes, and it is placed at byte 1536"),
        "{found}"
    );
    for coordinates in [", %i", ", %i, %i, %i, %i, %i, %i"] {
        let found = refusal("sm_90a", 4, std::slice::from_ref(&swizzle), &load(1024, coordinates));
        assert!(found.contains("coordinates is not available"), "{found}");
    }
    // Neighboring elements are swapped, so no box has this layout.
    let pairs = "[16,64] offset (0,2) (0,1) (0,4) (0,8) (0,16) (0,32) (1,0) (2,0) (4,0) (8,0)".parse();
    let pairs: Layout = pairs.expect("it is a layout");
    let found = refusal("sm_90a", 4, &[pairs], &load(1024, ", %i, %i"));
    assert!(found.contains("a tensor copy of buffer"), "{found}");
}

#[test]
fn copies_whose_elements_do_not_lie_together() {
    // A thread holds 4 by 4 elements, but the buffer is column-major.
    let square = blocked(&[64, 32], &[4, 4], &[4, 8], &[4, 1], &[1, 0]);
    let columns = Layout::strided(&[64, 32], &[0, 1]);
    let body = "  %p = splat %x {shape = [64, 32]} : *fp16[64, 32]@L0
  %t = alloc {offset = 0} : buffer<1, fp16[64, 32]@L1>
  copy_async %t, %p {cache = \"\", axis = 1, width = 4}";
    let found = refusal("sm_80", 4, &[square, columns], body);
    assert!(found.contains("contiguous along axis 1 are not contiguous in the buffer"), "{found}");
}

/// Returns the message that refuses a dot with these memory layouts.
fn product(a: Layout, b: Layout, instruction: &str, offset: u32) -> String {
    let acc = Mma::new(64, 64, 16, 16).layout(Fragment::Accumulator, &[64, 64], [4, 1]);
    let body = format!(
        "  %a = alloc {{offset = {offset}}} : buffer<1, fp16[64, 64]@L0>
  %b = alloc {{offset = 8192}} : buffer<1, fp16[64, 64]@L1>
  %zero = constant {{value = 0.0:fp32}} : fp32
  %acc = splat %zero {{shape = [64, 64]}} : fp32[64, 64]@L2
  %p = wgmma %a, %b, %acc {{instruction = {instruction}, warps = [4, 1], max_imprecise_acc = 0, transposed_a = false, transposed_b = false}} : pending<fp32[64, 64]@L2>
  %r = wgmma_wait %p {{pending = 0}} : fp32[64, 64]@L2"
    );
    refusal("sm_90a", 4, &[a, b, acc], &body)
}

#[test]
fn operands_that_no_descriptor_can_say() {
    let good = swizzled(&[64, 64], &[1, 0], 16, SwizzleMode::Bytes128);
    let plain = pairs_of_rows();
    let found = product(plain.clone(), good.clone(), "m64n64k16", 0);
    assert!(found.contains("operand A of `wgmma`"), "{found}");
    let found = product(good.clone(), plain, "m64n64k16", 0);
    assert!(found.contains("operand B of `wgmma`"), "{found}");
    let other = swizzled(&[64, 64], &[0, 1], 16, SwizzleMode::Bytes128);
    let found = product(good.clone(), other.clone(), "m64n64k16", 16384 + 512);
    assert!(
        found.contains("wgmma needs %a at a multiple of 1024 bytes, and it is placed at byte 16896"),
        "{found}"
    );
    for instruction in ["m64n48k16", "m16n8k16", "m64n64k32"] {
        let found = product(good.clone(), other.clone(), instruction, 0);
        assert!(found.contains("wgmma has no Mma"), "{found}");
    }
}

/// Returns a layout of chunks of 8 elements that alternate between two rows.
fn pairs_of_rows() -> Layout {
    let count = |axis: usize, size: u32| Layout::identity(2, axis, tilewright_layout::Input::Offset, size);
    count(1, 8).product(&count(0, 2)).product(&count(1, 8)).product(&count(0, 32))
}

#[test]
fn partitions_that_cannot_be() {
    let partitions = |attributes: &str, first: &str| {
        format!(
            "  warp_specialize {{{attributes}}} () {{\n{first}    yield_values\n  }} () {{\n    yield_values\n  }}"
        )
    };
    let four = blocked(&[128], &[1], &[32], &[4], &[0]);
    let eight = blocked(&[256], &[1], &[32], &[8], &[0]);
    let own = "    %r = arange {start = 0, end = 256} : int32[256]@L1\n";
    for (attributes, first, expected) in [
        ("warps = [4, 2], registers = [0, 0]", "", "the partitions take 6 warps of 8"),
        ("warps = [4, 4], registers = [20, 0]", "", "not 20"),
        ("warps = [4, 4], registers = [100, 0]", "", "not 100"),
        ("warps = [2, 6], registers = [40, 0]", "", "a register count for 2 warps from warp 0 on"),
        ("warps = [4, 4], registers = [24, 264]", "", "not 264"),
        ("warps = [4, 4], registers = [0, 0]", own, "in a partition of 4 warps"),
        ("warps = [4, 4], registers = [0, 0]", "    barrier\n", "a barrier of the block is in partition 0"),
    ] {
        let found = refusal("sm_90a", 8, &[four.clone(), eight.clone()], &partitions(attributes, first));
        assert!(found.contains(expected), "{attributes}: {found}");
    }
    // 16 warps with the average of 136 registers need 69,632.
    let found = refusal("sm_90a", 16, &[], &partitions("warps = [4, 12], registers = [232, 104]", ""));
    assert!(found.contains("the partitions take 69632 registers at the start"), "{found}");
    let found = refusal("sm_80", 8, &[], &partitions("warps = [4, 4], registers = [40, 80]", ""));
    assert_eq!(found, "`warp_specialize` is not available on sm_80");
}

#[test]
fn rings_are_lowered_before() {
    let memory = Layout::strided(&[128], &[0]);
    let body = "  %ring = alloc {offset = 0} : ring<2, fp16[128]@L0>\n  %slot = acquire %ring : empty<fp16[128]@L0>\n  publish %slot";
    let found = refusal("sm_90a", 4, &[memory], body);
    assert_eq!(found, "`acquire` is not available on sm_90a");
}
