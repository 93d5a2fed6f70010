//! Tests the divergence of lanes, and warp-synchronous instructions.

mod common;

use common::{evaluate, fault, kernel, launch, memory};
use tilewright_sim::FaultKind;

/// Runs a body on 32 lanes with the lane in `%t`, and returns `%d`.
fn lanes(body: &str) -> Vec<u32> {
    try_lanes(body).unwrap_or_else(|fault| panic!("{fault}"))
}

fn try_lanes(body: &str) -> Result<Vec<u32>, Box<tilewright_sim::Fault>> {
    let body = format!(
        "
    .reg .b64 %out;
    .reg .b32 %t, %d, %e, %i, %j, %v;
    .reg .f32 %f;
    .reg .pred %p, %q;
    ld.param.u64 %out, [out];
    mov.u32 %t, %laneid;
    mad.wide.u32 %out, %t, 4, %out;
{body}
    st.global.u32 [%out], %d;
    ret;"
    );
    let mut out = vec![0_u32; 32];
    launch(&kernel(&["out"], &body), 1, 32, vec![memory(&mut out)])?;
    Ok(out)
}

#[test]
fn lanes_that_diverge_meet_again() {
    // Collatz sequences: lanes leave the loop at different times, and it has a branch.
    let out = lanes(
        "
    add.u32 %v, %t, 1;
    mov.u32 %d, 0;
$loop:
    setp.eq.u32 %p, %v, 1;
    @%p bra $end;
    and.b32 %e, %v, 1;
    setp.eq.u32 %q, %e, 0;
    add.u32 %d, %d, 1;
    @%q bra $even;
    mad.lo.u32 %v, %v, 3, 1;
    bra $loop;
$even:
    shr.u32 %v, %v, 1;
    bra $loop;
$end:
    vote.sync.ballot.b32 %e, %p, -1;
    popc.b32 %e, %e;
    mad.lo.u32 %d, %d, 100, %e;",
    );
    let steps = |mut v: u32| {
        let mut steps = 0;
        while v != 1 {
            v = if v.is_multiple_of(2) { v / 2 } else { 3 * v + 1 };
            steps += 1;
        }
        steps
    };
    assert_eq!(out, (1..=32).map(|v| steps(v) * 100 + 32).collect::<Vec<_>>());
}

#[test]
fn a_lane_may_wait_for_another_of_its_warp() {
    // Each lane takes a lock. Its holder is at a higher step than the spinning lanes.
    let body = "
    .reg .b64 %lock;
    .reg .b32 %d, %e;
    .reg .pred %p;
    ld.param.u64 %lock, [lock];
$spin:
    atom.global.cas.b32 %d, [%lock], 0, 1;
    setp.ne.u32 %p, %d, 0;
    @%p bra $spin;
    ld.global.u32 %e, [%lock+4];
    add.u32 %e, %e, 1;
    st.global.u32 [%lock+4], %e;
    membar.gl;
    atom.global.exch.b32 %d, [%lock], 0;
    ret;";
    let mut lock = vec![0_u32; 2];
    launch(&kernel(&["lock"], body), 4, 64, vec![memory(&mut lock)]).unwrap();
    assert_eq!(lock, [0, 256]);
}

#[test]
fn indexed_branches_choose_for_each_lane() {
    let out = lanes(
        "
    and.b32 %i, %t, 3;
$table: .branchtargets $a, $b, $c, $b;
    brx.idx %i, $table;
$a:
    mov.u32 %d, 10;
    bra $end;
$b:
    mov.u32 %d, 20;
    bra $end;
$c:
    mov.u32 %d, 30;
$end:
    activemask.b32 %e;
    popc.b32 %e, %e;
    add.u32 %d, %d, %e;",
    );
    assert_eq!(out, (0..32).map(|t| [42, 52, 62, 52][t % 4]).collect::<Vec<_>>());
}

#[test]
fn shuffles_exchange_values() {
    let down = lanes(
        "    mul.lo.u32 %v, %t, 7;\n    shfl.sync.down.b32 %d|%p, %v, 5, 31, -1;\n    @!%p mov.u32 %d, 999;",
    );
    assert_eq!(down, (0..32).map(|t| if t + 5 < 32 { (t + 5) * 7 } else { 999 }).collect::<Vec<_>>());
    let segments = lanes("    shfl.sync.up.b32 %d, %t, 1, 0x1800, -1;");
    assert_eq!(segments, (0..32).map(|t| if t % 8 == 0 { t } else { t - 1 }).collect::<Vec<_>>());
    let index = lanes("    mul.lo.u32 %i, %t, 3;\n    shfl.sync.idx.b32 %d, %t, %i, 31, -1;");
    assert_eq!(index, (0..32).map(|t| t * 3 % 32).collect::<Vec<_>>());
}

#[test]
fn shuffles_within_parts_of_a_warp() {
    // Both halves shuffle in different branches, with their own masks.
    let out = lanes(
        "
    setp.lt.u32 %p, %t, 16;
    @%p bra $low;
    shfl.sync.bfly.b32 %d, %t, 1, 31, 0xffff0000;
    bra $end;
$low:
    shfl.sync.bfly.b32 %d, %t, 15, 31, 0x0000ffff;
$end:",
    );
    assert_eq!(out, (0..32).map(|t| if t < 16 { t ^ 15 } else { t ^ 1 }).collect::<Vec<_>>());
}

#[test]
fn a_shuffle_that_waits_for_lanes_elsewhere_is_found() {
    let body = "
    setp.lt.u32 %p, %t, 16;
    @%p bra $low;
    bar.warp.sync -1;
    mov.u32 %d, %t;
    bra $end;
$low:
    shfl.sync.bfly.b32 %d, %t, 1, 31, -1;
$end:";
    assert!(matches!(fault(try_lanes(body).map(|_| unreachable!())), FaultKind::Deadlock { .. }));
    let own = "    shfl.sync.bfly.b32 %d, %t, 1, 31, 0x7fffffff;";
    assert!(matches!(fault(try_lanes(own).map(|_| unreachable!())), FaultKind::Illegal(_)));
}

#[test]
fn votes_matches_and_reductions() {
    assert_eq!(lanes("    setp.lt.u32 %p, %t, 5;\n    vote.sync.ballot.b32 %d, !%p, -1;"), [!31; 32]);
    let any =
        lanes("    setp.eq.u32 %p, %t, 5;\n    vote.sync.any.pred %q, %p, -1;\n    selp.u32 %d, 1, 0, %q;");
    assert_eq!(any, [1; 32]);
    let all =
        lanes("    setp.eq.u32 %p, %t, 5;\n    vote.sync.all.pred %q, %p, -1;\n    selp.u32 %d, 1, 0, %q;");
    assert_eq!(all, [0; 32]);
    let same = lanes("    shr.u32 %v, %t, 3;\n    match.any.sync.b32 %d, %v, -1;");
    assert_eq!(same, (0..32).map(|t| 0xff << (t / 8 * 8)).collect::<Vec<_>>());
    assert_eq!(lanes("    match.all.sync.b32 %d|%p, %t, -1;"), [0; 32]);
    assert_eq!(lanes("    redux.sync.add.s32 %d, %t, -1;"), [496; 32]);
    assert_eq!(lanes("    sub.s32 %v, 3, %t;\n    redux.sync.min.s32 %d, %v, -1;"), [(-28_i32) as u32; 32]);
    let parts = lanes(
        "    setp.lt.u32 %p, %t, 16;\n    selp.b32 %e, 0xffff, 0xffff0000, %p;\n    redux.sync.max.u32 %d, %t, %e;",
    );
    assert_eq!(parts, (0..32).map(|t| if t < 16 { 15 } else { 31 }).collect::<Vec<_>>());
    // Lanes 0 to 3 do not participate.
    let elected = lanes(
        "    mov.u32 %d, 0;\n    setp.lt.u32 %q, %t, 4;\n    @%q bra $end;\n    elect.sync %e|%p, 0xfffffff0;\n    selp.u32 %d, 1, 0, %p;\n$end:",
    );
    assert_eq!(elected.iter().sum::<u32>(), 1);
}

#[test]
fn functions_are_called() {
    let text = "
.version 8.0
.target sm_90
.address_size 64
.func (.param .b32 result) square_plus(.param .b32 a, .param .align 8 .b8 pair[16])
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    .reg .pred %p;
    ld.param.u32 %r1, [a];
    ld.param.u64 %rd1, [pair+8];
    setp.gt.u32 %p, %r1, 20;
    @%p bra $large;
    cvt.u32.u64 %r2, %rd1;
    mad.lo.u32 %r3, %r1, %r1, %r2;
    st.param.b32 [result], %r3;
    ret;
$large:
    st.param.b32 [result], 7;
    ret;
}
.visible .entry kernel(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    .reg .pred %p;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    cvt.u64.u32 %rd2, %r1;
    setp.ne.u32 %p, %r1, 3;
    mov.u32 %r2, 1;
    {
    .param .b32 p0;
    st.param.b32 [p0], %r1;
    .param .align 8 .b8 p1[16];
    st.param.b64 [p1], 0;
    st.param.b64 [p1+8], %rd2;
    .param .b32 r0;
    @%p call.uni (r0), square_plus, (p0, p1);
    @%p ld.param.b32 %r2, [r0];
    }
    mad.wide.u32 %rd3, %r1, 4, %rd1;
    st.global.u32 [%rd3], %r2;
    ret;
}";
    let mut out = vec![0_u32; 32];
    launch(text, 1, 32, vec![memory(&mut out)]).unwrap();
    let expected = |t: u32| {
        if t == 3 {
            1
        } else if t > 20 {
            7
        } else {
            t * t + t
        }
    };
    assert_eq!(out, (0..32).map(expected).collect::<Vec<_>>());
}

#[test]
fn selections() {
    let rows = common::rows(31, 32);
    let results = evaluate("slct.b32.s32 %d, %a, %b, %c;", "b32", &["b32"; 3], &rows);
    for ([a, b, c], result) in rows.into_iter().zip(results) {
        assert_eq!(result, if (c as i32).is_negative() { b } else { a });
    }
}
