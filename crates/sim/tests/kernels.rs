//! Tests handwritten kernels with and without planted bugs.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{fault, launch, launch_with, load, memory, value};
use tilewright_sim::{FaultKind, LoadedModule, Space, Waiting};

const ADD: &str = "
.version 7.8
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 z, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<11>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u64 %rd3, [z];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra $done;
    cvta.to.global.u64 %rd4, %rd1;
    mul.wide.s32 %rd5, %r5, 4;
    add.s64 %rd6, %rd4, %rd5;
    cvta.to.global.u64 %rd7, %rd2;
    add.s64 %rd8, %rd7, %rd5;
    ld.global.f32 %f1, [%rd6];
    ld.global.f32 %f2, [%rd8];
    add.f32 %f3, %f1, %f2;
    cvta.to.global.u64 %rd9, %rd3;
    add.s64 %rd10, %rd9, %rd5;
    .loc 1 17 5
    st.global.f32 [%rd10], %f3;
$done:
    ret;
}
.file 1 \"add.py\"
";

/// Memory aligned to 256 bytes, as by a driver.
#[repr(align(256))]
struct Aligned<const N: usize>([f32; N]);

#[test]
fn vectors_are_added() {
    const N: usize = 1000;
    let mut x = Box::new(Aligned::<N>(std::array::from_fn(|i| i as f32 * 0.5)));
    let mut y = Box::new(Aligned::<N>(std::array::from_fn(|i| 1e-3 * i as f32)));
    let mut z = Box::new(Aligned::<N>([0.0; N]));
    let arguments = vec![memory(&mut x.0), memory(&mut y.0), memory(&mut z.0), value(N as u32)];
    let report = launch(ADD, 8, 128, arguments).unwrap();
    for i in 0..N {
        assert_eq!(z.0[i], x.0[i] + y.0[i], "{i}");
    }
    // 31 warps access 4 sectors and one warp 1 sector, in two loads and a store.
    let total = report.total();
    assert_eq!((total.global_requests, total.sectors, total.ideal_sectors), (3 * 32, 3 * 125, 3 * 125));
    assert_eq!(report.instructions[19].counters.executions, 32, "the addition");
    assert_eq!(report.instructions[19].counters.lanes, N as u64);
}

#[test]
fn an_off_by_one_mask_is_out_of_bounds() {
    let text = ADD.replace("setp.ge.s32", "setp.gt.s32");
    let (mut x, mut y, mut z) = (vec![1.0_f32; 101], vec![1.0_f32; 101], vec![0.0_f32; 100]);
    let arguments = vec![memory(&mut x), memory(&mut y), memory(&mut z), value(100_u32)];
    let found = launch(&text, 1, 128, arguments).unwrap_err();
    let FaultKind::OutOfBounds { space, is_store, bytes, nearest, .. } = found.kind else {
        panic!("{found}")
    };
    assert_eq!((space, is_store, bytes, nearest), (Space::Global, true, 4, Some((2, 4))));
    assert_eq!((found.warp, found.lane), (3, Some(4)));
    let addresses: Vec<_> = found.regions.iter().map(|(address, _)| *address).collect();
    assert_eq!(found.regions.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [404, 404, 400]);
    assert_eq!(found.parameters, [&addresses[..], &[100]].concat());
    let location = found.location.unwrap();
    assert_eq!(location.kernel, Some(("add.py".into(), 17)));
    assert_eq!(text.lines().nth(location.ptx_line as usize - 1).unwrap().trim(), found.instruction.unwrap());
}

const SUM: &str = "
.version 7.8
.target sm_80
.address_size 64
.shared .align 16 .b8 partial[16];
.visible .entry sum(.param .u64 x, .param .u64 out)
{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .f32 %f<20>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.f32 %f1, [%rd4];
    shfl.sync.bfly.b32 %f2, %f1, 16, 31, -1;
    add.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %f2, %f1, 8, 31, -1;
    add.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %f2, %f1, 4, 31, -1;
    add.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %f2, %f1, 2, 31, -1;
    add.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1;
    add.f32 %f1, %f1, %f2;
    and.b32 %r2, %r1, 31;
    shr.u32 %r3, %r1, 5;
    setp.ne.s32 %p1, %r2, 0;
    mov.u32 %r4, partial;
    shl.b32 %r5, %r3, 2;
    add.s32 %r6, %r4, %r5;
    @%p1 bra $skip;
    st.shared.f32 [%r6], %f1;
$skip:
    bar.sync 0;
    setp.ne.s32 %p2, %r1, 0;
    @%p2 bra $done;
    ld.shared.v4.f32 {%f3, %f4, %f5, %f6}, [partial];
    add.f32 %f3, %f3, %f4;
    add.f32 %f5, %f5, %f6;
    add.f32 %f3, %f3, %f5;
    st.global.f32 [%rd2], %f3;
$done:
    ret;
}
";

fn sum(text: &str, threads: u32) -> (Result<tilewright_sim::Report, Box<tilewright_sim::Fault>>, f32) {
    let mut x: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let mut out = vec![0.0_f32; 1];
    let result = launch(text, 1, threads, vec![memory(&mut x), memory(&mut out)]);
    (result, out[0])
}

#[test]
fn a_block_sums() {
    let (report, result) = sum(SUM, 128);
    assert_eq!(result, 127.0 * 64.0);
    assert_eq!(report.unwrap().barriers(), 4);
}

#[test]
fn a_removed_barrier_is_a_race() {
    let text = SUM.replace("bar.sync 0;", "");
    let found = sum(&text, 128).0.unwrap_err();
    let FaultKind::Race { first, is_write, .. } = &found.kind else { panic!("{found}") };
    assert!(*is_write != first.is_write, "{found}");
    let lines: Vec<_> =
        [&first.instruction, found.instruction.as_ref().unwrap()].into_iter().cloned().collect();
    assert!(lines.iter().any(|line| line.starts_with("st.shared")), "{found}");
    assert!(lines.iter().any(|line| line.starts_with("ld.shared")), "{found}");
}

#[test]
fn a_read_of_uninitialized_memory() {
    // Three warps leave the fourth word uninitialized.
    let found = sum(SUM, 96).0.unwrap_err();
    assert_eq!(found.kind, FaultKind::Unwritten { offset: 12 });
    assert!(found.instruction.unwrap().starts_with("ld.shared.v4"));
}

#[test]
fn a_misaligned_vector_load() {
    let text = SUM.replace("[partial];", "[partial+4];").replace("partial[16]", "partial[32]");
    let kind = fault(sum(&text, 128).0);
    assert_eq!(
        kind,
        FaultKind::Misaligned { space: Space::Shared, is_store: false, address: 4, alignment: 16 }
    );
}

#[test]
fn a_store_past_the_end_of_shared_memory() {
    let text = SUM.replace("partial[16]", "partial[12]");
    let kind = fault(sum(&text, 128).0);
    let FaultKind::OutOfBounds { space: Space::Shared, is_store: true, address: 12, nearest, .. } = kind
    else {
        panic!("{kind}")
    };
    assert_eq!(nearest, Some((0, 4)));
}

#[test]
fn a_barrier_in_a_branch_is_divergent() {
    let text = SUM.replace(
        "    st.shared.f32 [%r6], %f1;\n$skip:\n    bar.sync 0;",
        "    st.shared.f32 [%r6], %f1;\n    bar.sync 0;\n$skip:",
    );
    assert_ne!(text, SUM);
    assert_eq!(fault(sum(&text, 128).0), FaultKind::DivergentBarrier { present: 1, missing: !1 });
}

#[test]
fn warps_at_different_barriers_wait_for_ever() {
    let text = SUM.replace(
        "    bar.sync 0;",
        "    setp.eq.s32 %p3, %r3, 2;\n    @%p3 bar.sync 1;\n    @!%p3 bar.sync 2;",
    );
    let FaultKind::Deadlock { waiting } = fault(sum(&text, 128).0) else { panic!("no deadlock") };
    let places: Vec<_> = waiting.iter().map(|place| (place.warp, place.instruction.as_str())).collect();
    let expected = [
        (0, "@!%p3 bar.sync 2;"),
        (1, "@!%p3 bar.sync 2;"),
        (2, "@%p3 bar.sync 1;"),
        (3, "@!%p3 bar.sync 2;"),
    ];
    assert_eq!(places, expected);
}

#[test]
fn barriers_with_counts_order_their_threads() {
    // Warp 0 waits for warps 1 and 2 at a barrier of 96 threads. They only arrive, and warp 3 does
    // not.
    let text = SUM
        .replace("    bar.sync 0;", "    setp.eq.s32 %p3, %r3, 0;\n    @%p3 bar.sync 3, 96;\n    @!%p3 bar.arrive 3, 96;")
        .replace("    setp.ne.s32 %p1, %r2, 0;", "    setp.eq.s32 %p1, %r3, 3;\n    @%p1 bra $done;\n    setp.ne.s32 %p1, %r2, 0;")
        .replace("ld.shared.v4.f32 {%f3, %f4, %f5, %f6}, [partial];", "ld.shared.v2.f32 {%f3, %f4}, [partial];\n    ld.shared.f32 %f5, [partial+8];\n    mov.f32 %f6, 0f00000000;");
    let (report, result) = sum(&text, 128);
    report.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(result, 95.0 * 48.0);
    // The barrier expects 128 threads, but only 96 arrive.
    assert!(matches!(fault(sum(&text.replace(" 96;", " 128;"), 128).0), FaultKind::Deadlock { .. }));
}

#[test]
fn the_fault_of_the_first_block_is_reported() {
    // All blocks from 3 on fault. Block 3 faults last.
    let text = "
.version 7.8
.target sm_80
.address_size 64
.visible .entry faults(.param .u64 x)
{
    .reg .pred %p<4>;
    .reg .b32 %r<4>;
    mov.u32 %r1, %ctaid.x;
    setp.lt.u32 %p1, %r1, 3;
    @%p1 ret;
    setp.gt.u32 %p2, %r1, 3;
    @%p2 bra $end;
    mov.u32 %r2, 0;
$loop:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p3, %r2, 20000;
    @%p3 bra $loop;
$end:
    trap;
}
";
    for _ in 0..4 {
        let fault = launch(text, 64, 32, vec![memory(&mut [0.0_f32])]).expect_err("blocks trap");
        assert_eq!((fault.kind, fault.block), (FaultKind::Trap, [3, 0, 0]));
    }
}

static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// Returns the positions of the warps of an endless kernel that is cancelled after `milliseconds`.
fn waiting_after(module: &LoadedModule, milliseconds: u64) -> Vec<Waiting> {
    INTERRUPT.store(false, Ordering::Relaxed);
    let (mut x, mut out) = (vec![0.0_f32; 128], vec![0.0_f32; 1]);
    let arguments = vec![memory(&mut x), memory(&mut out)];
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(milliseconds));
            INTERRUPT.store(true, Ordering::Relaxed);
        });
        launch_with(module, [1, 1, 1], [128, 1, 1], arguments, |launch| launch.interrupt = Some(&INTERRUPT))
    });
    let FaultKind::Cancelled { waiting } = fault(result) else { panic!("it has no end") };
    waiting
}

#[test]
fn a_kernel_without_end_is_cancelled() {
    let module = load("sm_80", &SUM.replace("$skip:", "$skip:\n    bra $skip;"));
    let is_looping = |waiting: &Vec<Waiting>| {
        waiting.len() >= 4 && waiting.iter().any(|place| place.instruction == "bra $skip;")
    };
    // The delay grows, because a busy machine needs longer.
    let mut found = (3..17).map(|power| waiting_after(&module, 1 << power));
    let waiting = found.find(is_looping).expect("the warps reach the loop");
    // The message names the line of the PTX for each warp.
    let words = FaultKind::Cancelled { waiting }.to_string();
    assert!(words.contains("warp 3, lanes") && words.contains("PTX line"), "{words}");
}

#[test]
fn traps_and_launches_that_cannot_be() {
    let text = SUM.replace("$done:", "    trap;\n$done:");
    assert_eq!(fault(sum(&text, 128).0), FaultKind::Trap);
    assert!(matches!(fault(sum(SUM, 1056).0), FaultKind::Illegal(_)));
    let large = SUM.replace("partial[16]", "partial[200000]");
    let module = load("sm_80", &large);
    let mut x = vec![0.0_f32; 128];
    let mut out = vec![0.0_f32; 1];
    let arguments = vec![memory(&mut x), memory(&mut out)];
    let result = launch_with(&module, [1, 1, 1], [128, 1, 1], arguments, |_| ());
    assert!(matches!(fault(result), FaultKind::Illegal(_)), "sm_80 has 163 KiB");
}

#[test]
fn unsupported_instructions_fault_only_when_executed() {
    let text = SUM.replace(".version 7.8\n.target sm_80", ".version 8.6\n.target sm_90").replace(
        "    bar.sync 0;",
        "    setp.ne.s32 %p3, %r3, 9;\n    @!%p3 fma.rn.oob.f16x2 %r9, %r1, %r1, %r1;\n    bar.sync 0;",
    );
    assert_eq!(sum(&text, 128).1, 127.0 * 64.0, "it is not executed");
    let text = text.replace("@!%p3 fma.rn.oob", "fma.rn.oob");
    assert!(matches!(fault(sum(&text, 128).0), FaultKind::Unsupported(_)));
}

/// Input: 150 blocks at a barrier of the whole grid, more than most hosts have threads.
#[test]
fn blocks_may_wait_for_blocks_that_begin_after_them() {
    const BLOCKS: usize = 150;
    let body = "
    .reg .b64 %out, %count, %place;
    .reg .b32 %block, %blocks, %next, %seen, %value;
    .reg .pred %p;
    ld.param.u64 %out, [out];
    ld.param.u64 %count, [count];
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mul.wide.u32 %place, %block, 4;
    add.u64 %place, %place, %out;
    st.global.u32 [%place], %block;
    fence.acq_rel.gpu;
    red.relaxed.gpu.global.add.u32 [%count], 1;
$wait:
    ld.acquire.gpu.global.u32 %seen, [%count];
    setp.lt.u32 %p, %seen, %blocks;
    @%p bra $wait;
    add.u32 %next, %block, 1;
    rem.u32 %next, %next, %blocks;
    mul.wide.u32 %place, %next, 4;
    add.u64 %place, %place, %out;
    ld.relaxed.gpu.global.u32 %value, [%place];
    mad.wide.u32 %place, %block, 4, %out;
    st.global.u32 [%place+600], %value;
    ret;";
    let (mut out, mut count) = (vec![0_u32; 2 * BLOCKS], vec![0_u32]);
    let arguments = vec![memory(&mut out), memory(&mut count)];
    launch(&common::kernel(&["out", "count"], body), BLOCKS as u32, 1, arguments).unwrap();
    let expected: Vec<_> = (0..BLOCKS as u32).map(|block| (block + 1) % BLOCKS as u32).collect();
    assert_eq!(out[BLOCKS..], expected);
}

/// Each block waits for a flag that the previous or next block sets when it ends.
fn chained(flag: &str, target: &str, blocks: usize) -> Result<Vec<u32>, Box<tilewright_sim::Fault>> {
    let body = format!(
        "
    .reg .b64 %flags, %place;
    .reg .b32 %block, %blocks, %from, %to, %seen;
    .reg .pred %p;
    ld.param.u64 %flags, [flags];
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    {flag}
    mad.wide.u32 %place, %from, 4, %flags;
$wait:
    ld.acquire.gpu.global.u32 %seen, [%place];
    setp.eq.u32 %p, %seen, 0;
    @%p bra $wait;
    mad.wide.u32 %place, %to, 4, %flags;
    atom.release.gpu.global.exch.b32 %seen, [%place], 1;
    ret;"
    );
    let text = common::kernel(&["flags"], &body).replace("sm_100", target);
    let mut flags = vec![0_u32; blocks + 1];
    // The first block of the chain does not wait.
    flags[if flag.contains("sub") { blocks } else { 0 }] = 1;
    let module = load(target, &text);
    launch_with(&module, [blocks as u32, 1, 1], [1, 1, 1], vec![memory(&mut flags)], |launch| {
        launch.dynamic_shared_bytes = 40 << 10;
    })?;
    Ok(flags)
}

/// Each block waits for the next one.
const BACKWARDS: &str = "add.u32 %from, %block, 1;\n    sub.u32 %to, %from, 1;";
const FORWARDS: &str = "mov.u32 %from, %block;\n    add.u32 %to, %block, 1;";

#[test]
fn blocks_that_wait_for_blocks_without_room_hang_as_on_a_gpu() {
    // A T4 holds 40 of these blocks, which need 64 KiB each.
    assert!(chained(FORWARDS, "sm_75", 100).unwrap().iter().all(|flag| *flag == 1));
    assert!(chained(BACKWARDS, "sm_75", 40).unwrap().iter().all(|flag| *flag == 1));
    let fault = chained(BACKWARDS, "sm_75", 41).unwrap_err();
    let FaultKind::Starved { waiting, resident, not_begun, next } = &fault.kind else { panic!("{fault}") };
    assert_eq!((*resident, *not_begun, *next), (40, 1, Some([40, 0, 0])));
    assert_eq!(waiting[0].block, [0, 0, 0]);
    assert_eq!(waiting[1].address - waiting[0].address, 4);
    let text = fault.to_string();
    assert!(text.contains("program (0, 0, 0) polls global memory at 0x"), "{text}");
    assert!(text.contains("1 programs, from (40, 0, 0) on"), "{text}");
}
