//! Tests the operands of tensor core instructions, with and without mistakes.

mod support;

use half::f16;
use support::{expect_fault, run};
use tilewright_sim::FaultKind;

fn halves(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(|value| f16::from_f32(value).to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

fn small(index: usize) -> f32 {
    (index * 5 % 11) as f32 - 4.0
}

/// Each thread copies 16 bytes of the input to shared memory, and 16 more at offset 512.
const STAGE: &str = "
    shl.b32 %r5, %r1, 4;
    add.u32 %r6, %r2, %r5;
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd5, %rd1, %rd4;
    ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd5];
    st.shared.v4.b32 [%r6], {%r10, %r11, %r12, %r13};
    ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd5+512];
    st.shared.v4.b32 [%r6+512], {%r10, %r11, %r12, %r13};
    bar.sync 0;
";

#[test]
fn fragments_from_shared_memory_multiply() {
    // A is 16x16 at offset 0 and B is 16x8 at offset 512, both row-major. C counts from 0.
    let body = format!(
        "{STAGE}
    and.b32 %r7, %r3, 15;
    shl.b32 %r7, %r7, 5;
    shr.u32 %r8, %r3, 4;
    shl.b32 %r8, %r8, 4;
    add.u32 %r7, %r7, %r8;
    add.u32 %r7, %r7, %r2;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r7];
    and.b32 %r9, %r3, 15;
    shl.b32 %r9, %r9, 4;
    add.u32 %r9, %r9, %r2;
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{%r24, %r25}}, [%r9+512];
    mov.f32 %f1, 0f00000000;
    mov.f32 %f2, 0f3F800000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f3, %f4, %f5, %f6}}, {{%r20, %r21, %r22, %r23}}, {{%r24, %r25}}, {{%f1, %f2, %f1, %f2}};
    shr.u32 %r30, %r3, 2;
    and.b32 %r31, %r3, 3;
    shl.b32 %r30, %r30, 5;
    shl.b32 %r31, %r31, 3;
    add.u32 %r30, %r30, %r31;
    cvt.u64.u32 %rd6, %r30;
    add.u64 %rd6, %rd2, %rd6;
    st.global.v2.f32 [%rd6], {{%f3, %f4}};
    st.global.v2.f32 [%rd6+256], {{%f5, %f6}};
"
    );
    let (a, b): (Vec<f32>, Vec<f32>) =
        ((0..256).map(small).collect(), (0..128).map(|i| small(i + 3)).collect());
    let mut input = halves(a.iter().chain(&b).copied());
    input.resize(1024, 0);
    let mut output = vec![0; 512];
    run(&body, 32, &input, &mut output, &[0; 128]).unwrap();
    for (index, value) in floats(&output).into_iter().enumerate() {
        let (row, column) = (index / 8, index % 8);
        let sum: f32 = (0..16).map(|k| a[row * 16 + k] * b[k * 8 + column]).sum();
        assert_eq!(value, sum + (column % 2) as f32, "at {row}, {column}");
    }
}

#[test]
fn four_small_products_of_a_warp() {
    // All elements of A are 1 and of B 2. C alternates between 0 and 1.
    let body = "
    mov.b32 %r10, 0x3c003c00;
    mov.b32 %r11, 0x40004000;
    mov.f32 %f1, 0f00000000;
    mov.f32 %f2, 0f3F800000;
    mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f10, %f11, %f12, %f13, %f14, %f15, %f16, %f17}, {%r10, %r10}, {%r11, %r11}, {%f1, %f2, %f1, %f2, %f1, %f2, %f1, %f2};
    shl.b32 %r5, %r1, 3;
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd4, %rd2, %rd4;
    st.global.v2.f32 [%rd4], {%f10, %f17};
";
    let mut output = vec![0; 256];
    run(body, 32, &[], &mut output, &[0; 128]).unwrap();
    assert_eq!(floats(&output), [8.0, 9.0].repeat(32));
}

#[test]
fn matrices_move_and_turn() {
    // Two 8x8 blocks are loaded, transposed by `movmatrix` or in the store, and stored.
    for (turn, store) in [
        (
            "movmatrix.sync.aligned.m8n8.trans.b16 %r20, %r20; movmatrix.sync.aligned.m8n8.trans.b16 %r21, %r21;",
            "",
        ),
        ("", ".trans"),
    ] {
        let body = format!(
            "{STAGE}
    ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r20, %r21}}, [%r6];
    {turn}
    stmatrix.sync.aligned.m8n8.x2{store}.shared.b16 [%r6+1024], {{%r20, %r21}};
    bar.sync 0;
    setp.lt.u32 %p1, %r1, 16;
    @!%p1 bra DONE;
    ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r6+1024];
    add.u64 %rd6, %rd2, %rd4;
    st.global.v4.b32 [%rd6], {{%r10, %r11, %r12, %r13}};
DONE:
"
        );
        let input: Vec<u8> = (0..512u16).flat_map(u16::to_le_bytes).collect();
        let mut output = vec![0; 256];
        run(&body, 32, &input, &mut output, &[0; 128]).unwrap();
        for (index, value) in output.chunks(2).enumerate() {
            let (block, row, column) = (index / 64, index / 8 % 8, index % 8);
            assert_eq!(u16::from_le_bytes([value[0], value[1]]) as usize, block * 64 + column * 8 + row);
        }
    }
}

#[test]
fn matrix_instructions_check_their_addresses_and_lanes() {
    let input = vec![0; 1024];
    let mistake = |body: &str| expect_fault(&format!("{STAGE}{body}"), 32, &input, &[0; 128]);
    let load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r20}, ";
    assert!(matches!(mistake(&format!("{load}[%r6+8];")), FaultKind::Misaligned { alignment: 16, .. }));
    assert!(matches!(mistake(&format!("{load}[%r6+1024];")), FaultKind::Unwritten { .. }));
    assert!(matches!(mistake(&format!("{load}[%r6+16384];")), FaultKind::OutOfBounds { .. }));
    let divergent = format!("setp.lt.u32 %p1, %r1, 16; @%p1 exit; {load}[%r6];");
    assert!(matches!(mistake(&divergent), FaultKind::Illegal(_)));
}

/// The parts of the code of a warpgroup that computes `D = A B`. A is 64x16 at offset 0, and B is
/// 16x8 at offset 2048, both in the unswizzled K-major layout.
#[derive(Clone, Copy)]
struct Product {
    proxy_fence: &'static str,
    fence: &'static str,
    after: &'static str,
    wait: &'static str,
    threads: u32,
}

const PRODUCT: Product = Product {
    proxy_fence: "fence.proxy.async.shared::cta;",
    fence: "wgmma.fence.sync.aligned;",
    after: "",
    wait: "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
    threads: 128,
};

fn product(Product { proxy_fence, fence, after, wait, .. }: Product) -> String {
    format!(
        "
    and.b32 %r30, %r1, 127;
    shl.b32 %r5, %r30, 4;
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd5, %rd1, %rd4;
    ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd5];
    shr.u32 %r6, %r30, 4;
    shl.b32 %r6, %r6, 8;
    and.b32 %r7, %r30, 1;
    shl.b32 %r7, %r7, 7;
    add.u32 %r6, %r6, %r7;
    bfe.u32 %r7, %r30, 1, 3;
    shl.b32 %r7, %r7, 4;
    add.u32 %r6, %r6, %r7;
    add.u32 %r6, %r6, %r2;
    st.shared.v4.b32 [%r6], {{%r10, %r11, %r12, %r13}};
    setp.lt.u32 %p1, %r30, 16;
    @!%p1 bra STAGED;
    ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd5+2048];
    st.shared.v4.b32 [%r6+2048], {{%r10, %r11, %r12, %r13}};
STAGED:
    {proxy_fence}
    bar.sync 0;
    shr.u32 %r8, %r2, 4;
    cvt.u64.u32 %rd6, %r8;
    or.b64 %rd6, %rd6, 68720001024;
    add.u64 %rd7, %rd6, 128;
    mov.f32 %f3, 0f00000000;
    mov.f32 %f4, 0f00000000;
    mov.f32 %f5, 0f00000000;
    mov.f32 %f6, 0f00000000;
    mov.pred %p2, 1;
    {fence}
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f3, %f4, %f5, %f6}}, %rd6, %rd7, %p2, 1, 1, 0, 0;
    {after}
    {wait}
    and.b32 %r31, %r3, 3;
    shr.u32 %r32, %r3, 2;
    shl.b32 %r32, %r32, 5;
    shl.b32 %r31, %r31, 3;
    add.u32 %r31, %r31, %r32;
    shl.b32 %r33, %r4, 9;
    add.u32 %r31, %r31, %r33;
    cvt.u64.u32 %rd8, %r31;
    add.u64 %rd8, %rd2, %rd8;
    st.global.v2.f32 [%rd8], {{%f3, %f4}};
    st.global.v2.f32 [%rd8+256], {{%f5, %f6}};
"
    )
}

fn operands() -> (Vec<f32>, Vec<f32>) {
    ((0..1024).map(small).collect(), (0..128).map(|index| small(index + 7)).collect())
}

fn mistake(product_of: Product) -> FaultKind {
    let (a, b) = operands();
    let input = halves(a.into_iter().chain(b));
    expect_fault(&product(product_of), product_of.threads, &input, &[0; 128])
}

#[test]
fn a_warpgroup_multiplies_shared_memory_operands() {
    let (a, b) = operands();
    let mut output = vec![0; 2048];
    let input = halves(a.iter().chain(&b).copied());
    run(&product(PRODUCT), 128, &input, &mut output, &[0; 128]).unwrap();
    for (index, value) in floats(&output).into_iter().enumerate() {
        let (row, column) = (index / 8, index % 8);
        let sum: f32 = (0..16).map(|k| a[row * 16 + k] * b[column * 16 + k]).sum();
        assert_eq!(value, sum, "at {row}, {column}");
    }
}

#[test]
fn registers_of_a_product_on_its_way_are_not_touched() {
    let illegal = |product: Product, part: &str| match mistake(product) {
        FaultKind::Illegal(text) => assert!(text.contains(part), "{text}"),
        other => panic!("{other:?}"),
    };
    illegal(Product { wait: "", ..PRODUCT }, "wgmma.wait_group is missing");
    illegal(Product { wait: "wgmma.commit_group.sync.aligned;", ..PRODUCT }, "wgmma.wait_group is missing");
    illegal(Product { wait: "wgmma.wait_group.sync.aligned 0;", ..PRODUCT }, "wgmma.wait_group is missing");
    illegal(Product { after: "add.f32 %f20, %f3, %f4;", ..PRODUCT }, "read");
    illegal(Product { after: "mov.f32 %f3, 0f00000000;", ..PRODUCT }, "written");
    illegal(Product { after: "mov.f32 %f20, %f3; add.f32 %f20, %f20, %f20;", ..PRODUCT }, "read");
    illegal(Product { fence: "", ..PRODUCT }, "wgmma.fence");
    illegal(
        Product { fence: "wgmma.fence.sync.aligned; mov.f32 %f3, 0f3F800000;", ..PRODUCT },
        "wgmma.fence",
    );
}

#[test]
fn accumulators_may_be_copied_before_the_wait() {
    // Compilers copy an accumulator before the wait, and read the copy or accumulate in it
    // afterwards.
    let wait = "mov.f32 %f21, %f4; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; mov.f32 %f4, %f21;";
    let (left, right) = operands();
    let input = halves(left.into_iter().chain(right));
    let mut outputs = [vec![0; 2048], vec![0; 2048]];
    for (output, wait) in outputs.iter_mut().zip([PRODUCT.wait, wait]) {
        run(&product(Product { wait, ..PRODUCT }), 128, &input, output, &[0; 128]).unwrap();
    }
    assert_eq!(outputs[0], outputs[1]);
}

#[test]
fn operands_of_a_product_on_its_way_are_not_overwritten() {
    let overwrite = "bar.sync 0; st.shared.b32 [%r6], 0;";
    let FaultKind::Race { first, is_write: true, .. } = mistake(Product { after: overwrite, ..PRODUCT })
    else {
        panic!("no race");
    };
    assert!(!first.is_write);
    // After the wait, the write is legal.
    let (a, b) = operands();
    let wait = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; bar.sync 0; st.shared.b32 [%r6], 0;";
    let input = halves(a.into_iter().chain(b));
    run(&product(Product { wait, ..PRODUCT }), 128, &input, &mut vec![0; 2048], &[0; 128]).unwrap();
}

#[test]
fn products_read_by_the_asynchronous_proxy() {
    assert!(matches!(mistake(Product { proxy_fence: "", ..PRODUCT }), FaultKind::MissingProxyFence { .. }));
}

#[test]
fn warpgroups_are_four_warps_in_step() {
    let illegal = |product: Product, part: &str| match mistake(product) {
        FaultKind::Illegal(text) => assert!(text.contains(part), "{text}"),
        other => panic!("{other:?}"),
    };
    illegal(Product { threads: 64, ..PRODUCT }, "four warps");
    illegal(
        Product {
            fence: "wgmma.fence.sync.aligned; setp.eq.u32 %p3, %r4, 1; @%p3 wgmma.fence.sync.aligned;",
            ..PRODUCT
        },
        "all warps of the warpgroup",
    );
}
