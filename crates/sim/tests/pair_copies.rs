//! Tests tensor copies whose bytes arrive at a barrier of the other block of a pair
//! (`.cta_group::2`).

mod support;

use support::run_cluster;
use tilewright_sim::{FaultKind, OutOfBoundsFill, Swizzle, TensorDataType, TensorMap};

/// Runs a cluster. One thread of each block copies 64 bytes to its own shared memory. The copies
/// signal the barrier of block 0, which adds the words of all blocks.
fn sum(blocks: u32, group: &str) -> Result<u32, FaultKind> {
    let input: Vec<u8> = (0..16 * blocks).flat_map(u32::to_le_bytes).collect();
    let map = TensorMap {
        data_type: TensorDataType::U32,
        address: input.as_ptr() as u64,
        extents: vec![16 * u64::from(blocks)],
        strides: vec![],
        box_extents: vec![16],
        element_strides: vec![1],
        swizzle: Swizzle::None,
        fill: OutOfBoundsFill::Zero,
        pixels: None,
    };
    let bytes = 64 * blocks;
    let body = format!(
        "
    mov.u32 %r5, %cluster_ctarank;
    mov.u32 %r6, 0;
    setp.eq.u32 %p1, %r1, 0;
    setp.eq.and.u32 %p2, %r5, 0, %p1;
    @%p2 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p2 fence.mbarrier_init.release.cluster;
    @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {bytes};
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mapa.shared::cluster.u32 %r10, %r2, 0;
    shl.b32 %r7, %r5, 4;
    @%p1 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{group} [%r2+128], [%rd3, {{%r7}}], [%r10];
    @!%p2 bra DONE;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], 0;
    @!%p3 bra WAIT;
    mov.u32 %r11, 0;
BLOCK:
    mapa.shared::cluster.u32 %r12, %r2, %r11;
    mov.u32 %r13, 0;
WORD:
    ld.shared::cluster.b32 %r14, [%r12+128];
    add.u32 %r6, %r6, %r14;
    add.u32 %r12, %r12, 4;
    add.u32 %r13, %r13, 1;
    setp.lt.u32 %p4, %r13, 16;
    @%p4 bra WORD;
    add.u32 %r11, %r11, 1;
    setp.lt.u32 %p5, %r11, {blocks};
    @%p5 bra BLOCK;
    st.global.b32 [%rd2], %r6;
DONE:
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
"
    );
    let mut output = vec![0; 4];
    run_cluster(&body, blocks, 1, &input, &mut output, &map.encode().expect("the map is valid"))?;
    Ok(u32::from_le_bytes(output.try_into().expect("the output is one word")))
}

#[test]
fn copies_of_a_pair_arrive_at_a_barrier_of_one_block() {
    assert_eq!(sum(2, ".cta_group::2").unwrap(), (0..32).sum());
    for (blocks, group) in [(2, ""), (2, ".cta_group::1"), (4, ".cta_group::2")] {
        let found = sum(blocks, group).expect_err("the barrier is in another block or pair");
        assert!(
            matches!(&found, FaultKind::Illegal(text) if text.contains("signals an mbarrier")),
            "{found}"
        );
    }
}
