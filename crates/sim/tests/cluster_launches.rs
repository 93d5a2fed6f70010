//! Tests the cancellation of clusters that have not begun (`clusterlaunchcontrol`).

mod support;

use support::{Argument, Shape, launch};

#[test]
fn clusters_that_have_not_begun_are_canceled() {
    // Each running block adds 1 to its own element and to that of each block that it cancels.
    let text = ".version 8.8
.target sm_100
.address_size 64
.visible .entry kernel(.param .u64 target)
{
    .reg .pred %p<8>; .reg .b32 %r<20>; .reg .b64 %rd<8>; .reg .b128 %q<2>;
    .shared .align 16 .b8 state[32];
    ld.param.u64 %rd1, [target];
    mov.u32 %r2, state;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ctaid.y;
    mbarrier.init.shared::cta.b64 [%r2+16], 1;
    fence.mbarrier_init.release.cluster;
    mov.b32 %r7, 0;
LOOP:
    mad.lo.u32 %r5, %r4, 16, %r3;
    mul.wide.u32 %rd2, %r5, 4;
    add.u64 %rd2, %rd2, %rd1;
    red.relaxed.gpu.global.add.u32 [%rd2], 1;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r2], [%r2+16];
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2+16], 16;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2+16], %r7;
    @!%p1 bra WAIT;
    xor.b32 %r7, %r7, 1;
    ld.shared.b128 %q1, [%r2];
    fence.proxy.async.shared::cta;
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q1;
    @!%p2 bra DONE;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r3, %r4, %r8, _}, %q1;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r9, %q1;
    mov.u32 %r4, %r9;
    bra LOOP;
DONE:
    ret;
}
";
    let mut output = vec![0; 16 * 4 * 4];
    let shape = Shape { grid: [16, 4, 1], threads: 1, cluster: 1, shared_bytes: 0 };
    launch(text, &shape, vec![Argument::Output(&mut output)]).unwrap();
    assert!(output.as_chunks().0.iter().all(|word| u32::from_le_bytes(*word) == 1), "{output:?}");
}
