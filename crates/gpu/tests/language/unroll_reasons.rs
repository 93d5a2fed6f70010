//! Tests the reasons of `unroll_by_ring_depth`, one obstacle for each kernel.

use tilewright_base::collect_remarks;
use tilewright_gpu::PASSES;
use tilewright_gpu_ir::Gpu;
use tilewright_ir::{parse_dialect, verify};

/// The cases of the pass. The first kernel is unrolled.
const CASES: &str = include_str!("../../../../tests/gpu/unroll_by_ring_depth.gpu");

/// Replaces a text of the first kernel. Returns the decision and the reason.
fn remark_after(old: &str, new: &str) -> (String, String) {
    let kernel = CASES.split("// RUN: unroll_by_ring_depth\n").nth(1).expect("there is a case");
    let kernel = kernel.split("// ----").next().expect("a case has an input");
    assert!(kernel.contains(old), "{old}");
    let mut program = parse_dialect::<Gpu>(&kernel.replace(old, new)).expect("the text is a kernel");
    verify(&program).expect("the kernel is correct");
    let pass = PASSES.iter().find(|pass| pass.name == "unroll_by_ring_depth").expect("the pass exists");
    let (result, remarks) = collect_remarks(|| pass.run(&mut program));
    result.expect("the pass accepts every kernel");
    let [remark] = &remarks[..] else { panic!("one loop has one remark, found {remarks:#?}") };
    (remark.decision.clone(), remark.reason.clone())
}

#[test]
fn the_reason_names_the_obstacle() {
    assert_eq!(remark_after("ring<3", "ring<3").0, "unrolled 3 times");
    for (old, new, expected) in [
        ("b = alloc {offset = ?} : ring<3", "b = alloc {offset = ?} : ring<2", "return to their first slots"),
        ("ring<3", "ring<5", "too many or too long"),
        ("int32", "int16", "fewer than 32 bits"),
        ("%c0, %n, %c1", "%c0, %n, %n", "step is not a positive constant"),
        ("value = 1:int32", "value = -1:int32", "step is not a positive constant"),
        ("value = 1:int32", "value = 2000000000:int32", "exceeds 32 bits"),
        ("unroll=0", "unroll=1", "unroll factor of 1"),
        ("wgmma %p, %l", "wgmma %v, %l", "no dot has a first operand"),
    ] {
        let (decision, reason) = remark_after(old, new);
        assert!(decision.starts_with("not unrolled"), "{new}: {decision}");
        assert!(reason.contains(expected), "{new}: {reason}");
    }
}
