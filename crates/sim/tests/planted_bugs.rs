//! Plants bugs, such as a missing fence, that do not change every result.

mod common;
mod support;

use common::{fault, load, memory};
use tilewright_sim::{
    Fault, FaultKind, Launch, OutOfBoundsFill, Region, Report, SimTarget, Simulator, Swizzle, TensorDataType,
    TensorMap, Watch,
};

/// Memory aligned for bulk copies.
#[repr(align(16))]
struct Words([u32; 128]);

/// Launches a text on `sm_90a` with a watch for races and uninitialized reads. Returns the outcome
/// and the findings.
fn watched(
    text: &str,
    grid: u32,
    threads: u32,
    buffers: &mut [&mut [u32]],
) -> (Result<Report, Box<Fault>>, Vec<FaultKind>) {
    let module = load("sm_90a", text);
    let regions: Vec<_> =
        buffers.iter_mut().map(|buffer| Region::of(bytemuck::cast_slice_mut(buffer))).collect();
    let parameters: Vec<u8> = regions.iter().flat_map(|region| region.address().to_le_bytes()).collect();
    let watch = Watch::new(true, true);
    let mut launch = Launch::new("kernel", [grid, 1, 1], [threads, 1, 1], &parameters, &regions);
    launch.watch = Some(&watch);
    let result = module.launch(&launch);
    (result, watch.into_findings().into_iter().map(|(fault, _)| fault.kind).collect())
}

/// Returns the findings of a launch that completes.
fn races(text: &str, grid: u32, threads: u32, buffers: &mut [&mut [u32]]) -> Vec<FaultKind> {
    let (result, found) = watched(text, grid, threads, buffers);
    result.unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    found
}

/// Returns a kernel with pointers in `%rd1` and `%rd2`, `%tid.x` in `%r1` and 1 KiB of shared
/// memory at `%r2`.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 a, .param .u64 b)
{{
    .reg .pred %p<8>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<16>;
    .shared .align 128 .b8 memory[1024];
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, memory;
{body}
    ret;
}}
"
    )
}

/// Returns a kernel with two bulk copies of 128 bytes, the second at offset `place`. One thread
/// executes `between` between them, and `after` and `read` at the end.
fn bulk_stores(place: u32, between: &str, after: &str, read: &str) -> String {
    kernel(&format!(
        "
    setp.ne.u32 %p1, %r1, 0;
    shl.b32 %r3, %r1, 2;
    add.u32 %r3, %r2, %r3;
    st.shared.b32 [%r3], %r1;
    add.u32 %r4, %r1, 100;
    st.shared.b32 [%r3+128], %r4;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p1 bra DONE;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 128;
    cp.async.bulk.commit_group;
    {between}
    cp.async.bulk.global.shared::cta.bulk_group [%rd1+{place}], [%r2+128], 128;
    cp.async.bulk.commit_group;
    {after}
    {read}
DONE:"
    ))
}

const READ_WAIT: &str = "cp.async.bulk.wait_group.read 0;";
const WAIT: &str = "cp.async.bulk.wait_group 0;";

#[test]
fn a_thread_waits_for_its_bulk_stores_before_it_exits() {
    let run = |text: &str| {
        let (mut a, mut b) = (Words([0; 128]), [0_u32; 1]);
        common::launch_with(
            &load("sm_90a", text),
            [1; 3],
            [32, 1, 1],
            vec![memory(&mut a.0), memory(&mut b)],
            |_| (),
        )
    };
    for wait in [READ_WAIT, WAIT] {
        run(&bulk_stores(128, "", wait, "")).unwrap_or_else(|fault| panic!("{fault}"));
    }
    let late = bulk_stores(128, READ_WAIT, READ_WAIT, "");
    run(&late).unwrap_or_else(|fault| panic!("{fault}"));
    let one_left = "cp.async.bulk.wait_group.read 1;";
    let not_committed =
        bulk_stores(128, "", WAIT, "").replace("commit_group;\n    cp.async.bulk.wait", "wait");
    for text in [bulk_stores(128, "", "", ""), bulk_stores(128, "", one_left, ""), not_committed] {
        let FaultKind::Illegal(found) = fault(run(&text)) else { panic!("{text}") };
        assert!(found.contains("cp.async.bulk.wait_group is missing"), "{found}");
    }
}

#[test]
fn bulk_stores_are_read_back_after_a_whole_wait() {
    let run = |wait| {
        let (mut a, mut b) = (Words([0; 128]), [0_u32; 1]);
        let read = "ld.global.b32 %r5, [%rd1+4]; st.global.b32 [%rd2], %r5;";
        let found = races(&bulk_stores(128, "", wait, read), 1, 32, &mut [&mut a.0, &mut b]);
        assert_eq!((a.0[1], a.0[33], b[0]), (1, 101, 1));
        found
    };
    assert_eq!(run(WAIT), []);
    let found = run(READ_WAIT);
    assert!(matches!(&found[..], [FaultKind::GlobalRace { is_write: false, .. }]), "{found:?}");
    // The second group may be in flight, and writes other bytes.
    assert_eq!(run(&format!("cp.async.bulk.wait_group 1; {READ_WAIT}")), []);
}

#[test]
fn bulk_stores_to_one_place_may_arrive_in_any_order() {
    let run = |place, between| {
        let (mut a, mut b) = (Words([0; 128]), [0_u32; 1]);
        races(&bulk_stores(place, between, WAIT, ""), 1, 32, &mut [&mut a.0, &mut b])
    };
    for (place, between) in [(64, WAIT), (128, READ_WAIT), (128, "")] {
        assert_eq!(run(place, between), [], "{place} {between}");
    }
    for between in ["", READ_WAIT] {
        let found = run(64, between);
        assert!(matches!(&found[..], [FaultKind::GlobalRace { is_write: true, .. }]), "{found:?}");
    }
}

/// Returns a kernel in which block 0 writes 64 words and sets a flag, for which block 1 waits
/// before it reads.
fn handover() -> String {
    kernel(
        "
    mov.u32 %r3, %ctaid.x;
    setp.ne.u32 %p1, %r3, 0;
    setp.ne.u32 %p2, %r1, 0;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd4, %rd1, %rd3;
    @%p1 bra TAKE;
    st.global.b32 [%rd4], %r1;
    bar.sync 0;
    @%p2 bra DONE;
    mov.u32 %r4, 1;
    st.release.gpu.global.b32 [%rd2], %r4;
    bra DONE;
TAKE:
    @%p2 bra TAKEN;
WAIT:
    ld.acquire.gpu.global.b32 %r5, [%rd2];
    setp.eq.u32 %p3, %r5, 0;
    @%p3 bra WAIT;
TAKEN:
    bar.sync 0;
    xor.b32 %r6, %r1, 63;
    mul.wide.u32 %rd5, %r6, 4;
    add.u64 %rd6, %rd1, %rd5;
    ld.global.b32 %r7, [%rd6];
    st.global.b32 [%rd4+256], %r7;
DONE:",
    )
}

#[test]
fn flags_order_blocks_by_release_acquire_and_barriers() {
    let run = |text: &str| {
        let (mut a, mut b) = (Words([0; 128]), [0_u32; 1]);
        races(text, 2, 64, &mut [&mut a.0, &mut b])
    };
    assert_eq!(run(&handover()), []);
    let fenced = handover()
        .replace("st.release.gpu.global", "fence.acq_rel.gpu;\n    st.relaxed.gpu.global")
        .replace("ld.acquire.gpu.global", "ld.relaxed.gpu.global")
        .replace("TAKEN:", "    fence.acq_rel.gpu;\nTAKEN:");
    assert_eq!(run(&fenced), []);
    let barrier = "    bar.sync 0;\n    @%p2 bra DONE;";
    for (part, replacement) in [
        ("st.release.gpu", "st.relaxed.gpu"),
        ("ld.acquire.gpu", "ld.relaxed.gpu"),
        ("st.release.gpu", "st.release.cta"),
        (barrier, "    @%p2 bra DONE;"),
        ("TAKEN:\n    bar.sync 0;", "TAKEN:"),
    ] {
        let text = handover();
        assert!(text.contains(part), "{part}");
        let found = run(&text.replacen(part, replacement, 1));
        assert!(matches!(found[0], FaultKind::GlobalRace { .. }), "{part}: {found:?}");
    }
    // Without the flag, nothing orders the accesses.
    let unordered = handover().replace("ld.acquire.gpu.global.b32 %r5, [%rd2]", "mov.b32 %r5, 1");
    assert!(run(&unordered).iter().any(|kind| matches!(kind, FaultKind::GlobalRace { .. })));
}

/// Runs two blocks that write a word each. In `access`, a thread of the second block accesses the
/// word of the first. `last` follows.
fn neighbors(access: &str, last: &str) -> Result<(), FaultKind> {
    let body = format!(
        "
    mov.u32 %r5, %cluster_ctarank;
    setp.eq.u32 %p1, %r1, 0;
    setp.eq.u32 %p2, %r5, 1;
    and.pred %p3, %p1, %p2;
    @%p1 st.shared.b32 [%r2], %r5;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mapa.shared::cluster.u32 %r10, %r2, 0;
    {access}
    {last}
"
    );
    support::run_cluster(&body, 2, 32, &[], &mut [0; 64], &[0; 128])
}

#[test]
fn a_block_stays_while_others_access_its_memory() {
    let meet = "barrier.cluster.arrive.release.aligned;\n    barrier.cluster.wait.acquire.aligned;";
    let accesses = [
        "@%p3 ld.shared::cluster.b32 %r11, [%r10];",
        "@%p3 st.shared::cluster.b32 [%r10], %r5;",
        "@%p3 atom.shared::cluster.add.u32 %r11, [%r10], %r5;",
    ];
    for access in accesses {
        neighbors(access, meet).expect("the block waits");
        for last in ["", "bar.sync 0;", "barrier.cluster.arrive.release.aligned;"] {
            let found = neighbors(access, last);
            let Err(FaultKind::EndedBlock { rank: 0, access: found }) = found else {
                panic!("{last}: {found:?}")
            };
            assert!(access.contains(&found.instruction), "{found:?}");
        }
        // The blocks meet before the access, so nothing orders it before the exit of the first
        // block.
        let early = neighbors(&format!("{meet}\n    {access}"), "");
        assert!(matches!(early, Err(FaultKind::EndedBlock { .. })), "{early:?}");
    }
    neighbors("", "").expect("there is no access");
}

#[test]
fn local_memory_is_written_before_it_is_read() {
    let run = |store: &str| {
        let text = kernel(&format!(
            "
    .local .align 16 .b8 own[32];
    mov.u64 %rd5, own;
    {store}
    ld.local.v2.b32 {{%r5, %r6}}, [%rd5+8];
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd4, %rd1, %rd3;
    st.global.b32 [%rd4], %r6;"
        ));
        let (mut a, mut b) = ([0_u32; 32], [0_u32; 1]);
        common::launch_with(
            &load("sm_90a", &text),
            [1; 3],
            [32, 1, 1],
            vec![memory(&mut a), memory(&mut b)],
            |_| (),
        )
    };
    run("st.local.v2.b32 [%rd5+8], {%r1, %r2};").unwrap_or_else(|fault| panic!("{fault}"));
    for store in [
        "",
        "st.local.b32 [%rd5+8], %r1;",
        "setp.lt.u32 %p1, %r1, 31; @%p1 st.local.v2.b32 [%rd5+8], {%r1, %r2};",
    ] {
        let found = fault(run(store));
        assert!(matches!(&found, FaultKind::Illegal(text) if text.contains("local memory")), "{found:?}");
    }
}

#[test]
fn registers_are_written_before_they_are_read() {
    let run = |body: &str| {
        let store = "mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd4, %rd1, %rd3;
    st.global.b32 [%rd4], %r9;";
        let text = kernel(&format!("    {body}\n    {store}"));
        let (mut a, mut b) = ([0_u32; 32], [0_u32; 1]);
        watched(&text, 1, 32, &mut [&mut a, &mut b]).0
    };
    let right = [
        "mov.u32 %r9, 1;",
        // Every read is initialized: on both paths, under two guards, in a first iteration, or in
        // the reading lanes.
        "setp.lt.u32 %p1, %r1, 5; @%p1 mov.u32 %r9, 1; @!%p1 mov.u32 %r9, 2;",
        "setp.lt.u32 %p1, %r1, 5; @%p1 bra ONE; mov.u32 %r9, 1; bra BOTH; ONE: mov.u32 %r9, 2; BOTH:",
        "mov.u32 %r4, 0; LOOP: setp.eq.u32 %p1, %r4, 0; @%p1 mov.u32 %r9, 7; add.u32 %r9, %r9, 1;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 3; @%p2 bra LOOP;",
        "mov.u32 %r9, 0; setp.lt.u32 %p1, %r1, 5; @%p1 mov.u32 %r5, 1; @%p1 add.u32 %r9, %r5, 1;",
    ];
    for body in right {
        run(body).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
    }
    let wrong = [
        ("", "%r9"),
        ("setp.lt.u32 %p1, %r1, 31; @%p1 mov.u32 %r9, 1;", "%r9"),
        ("setp.lt.u32 %p1, %r1, 5; @%p1 bra ONE; mov.u32 %r9, 1; ONE:", "%r9"),
        ("mov.u32 %r9, 0; @%p3 mov.u32 %r9, 1;", "%p3"),
        ("mov.u32 %r9, 0; ld.shared.b32 %r8, [%r7];", "%r7"),
        (
            "mov.u32 %r4, 0; LOOP: setp.eq.u32 %p1, %r4, 1; @%p1 mov.u32 %r9, 7; add.u32 %r9, %r9, 1;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 3; @%p2 bra LOOP;",
            "%r9",
        ),
    ];
    for (body, register) in wrong {
        let found = run(body).expect_err(body);
        let FaultKind::Illegal(text) = &found.kind else { panic!("{found}") };
        assert!(
            text.contains(&format!("the uninitialized register {register}")) && found.location.is_some(),
            "{found}"
        );
    }
}

/// Returns a kernel in which lanes exchange values through shared memory. One lane stores them by a
/// bulk copy.
fn exchange(wait: &str, second: &str, third: &str) -> String {
    kernel(&format!(
        "
    shl.b32 %r3, %r1, 2;
    add.u32 %r3, %r2, %r3;
    xor.b32 %r4, %r3, 4;
    st.shared.b32 [%r3], %r1;
    {wait}
    ld.shared.b32 %r5, [%r4];
    {second}
    st.shared.b32 [%r3], %r5;
    fence.proxy.async.shared::cta;
    {third}
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 128;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
DONE:"
    ))
}

#[test]
fn lanes_of_a_warp_synchronize() {
    let run = |text: &str| {
        let (mut a, mut b) = (Words([0; 128]), [0_u32; 1]);
        let (result, found) = watched(text, 1, 32, &mut [&mut a.0, &mut b]);
        assert_eq!(found, []);
        result.map(|_| a.0[..32].to_vec()).map_err(|fault| fault.kind)
    };
    let sync = "bar.warp.sync 0xffffffff;";
    let turned: Vec<u32> = (0..32).map(|lane| lane ^ 1).collect();
    for wait in [sync, "bar.sync 0;"] {
        assert_eq!(run(&exchange(wait, wait, wait)).as_ref(), Ok(&turned), "{wait}");
    }
    let shuffle = "shfl.sync.idx.b32 %r6, %r1, 0, 31, 0xffffffff;";
    for wait in ["", shuffle] {
        // The races: a read of another lane's write, a write of bytes that another lane has read,
        // and a bulk copy of bytes that other lanes have written.
        for (text, writes) in [
            (exchange(wait, sync, sync), false),
            (exchange(sync, wait, sync), true),
            (exchange(sync, sync, wait), false),
        ] {
            let found = run(&text);
            assert!(
                matches!(&found, Err(FaultKind::Race { is_write, .. }) if *is_write == writes),
                "{found:?}\n{text}"
            );
        }
    }
}

/// Input: modules that an assembler rejects. Expected: an error that marks the mistake.
#[test]
fn modules_that_an_assembler_rejects_are_not_loaded() {
    let refused = |target: &str, line: &str| {
        let text = kernel(&format!("    .reg .f32 %f<4>;\n    {line}"));
        let text = text.replace(".target sm_90a", &format!(".target {target}"));
        let simulator = Simulator::new(SimTarget::new("sm_90").expect("a target"));
        let error = simulator.load(&text).expect_err(line).to_string();
        error.split_once("line 15: ").unwrap_or_else(|| panic!("{error}")).1.to_owned()
    };
    assert_eq!(
        refused("sm_90", "add.s32 %r3, %r1, %f1;"),
        "`add.s32`: `%f1` is a register of .f32, expected .s32
      add.s32 %r3, %r1, %f1;
                        ^^^"
    );
    assert_eq!(
        refused("sm_80", "fence.proxy.async;"),
        "`fence.proxy.async` needs `.target` sm_90 or newer, but the module is for sm_80
      fence.proxy.async;
      ^^^^^^^^^^^^^^^^^"
    );
    let others = [
        ("sm_90", "mov.b64 %rd3, %r1;", "a register of .b32"),
        ("sm_90", "add.f32 %f1, %f2, 1;", "a constant integer"),
        ("sm_90", "shl.b32 %r3, %r1, %rd1;", "a register of .b64"),
        ("sm_90", "ld.global.b32 %r3, [memory];", "lies in .shared, not in .global"),
        ("sm_90", "add.sat.u32 %r3, %r1, %r2;", "`.u32` is not possible there"),
        ("sm_90", "setp.lo.s32 %p1, %r1, %r2;", "`.s32` is not possible there"),
        ("sm_90", "selp.b32 %r3, %r1, %r2, %r4;", "expected one of .pred"),
        ("sm_90", "@%r1 mov.b32 %r3, %r2;", "expected one of .pred"),
        ("sm_90", "wgmma.fence.sync.aligned;", "sm_90a"),
        ("sm_80", "ld.shared::cluster.b32 %r3, [%r2];", "sm_90 or newer"),
        ("sm_90", "ld.global.v8.b32 {%r3, %r4, %r5, %r6, %r7, %r8, %r9, %r10}, [%rd1];", "256 bits"),
        ("sm_75", "cp.async.wait_all;", "sm_80 or newer"),
        ("sm_90", "add.u32 %r3, %r1, %tid.x;", "a special register"),
        ("sm_90", "bar.sync 16;", "16 is not allowed there"),
    ];
    for (target, line, part) in others {
        let found = refused(target, line);
        assert!(found.contains(part) && found.contains('^'), "{line}: {found}");
    }
}

/// Memory aligned for a tensor map.
#[repr(align(128))]
struct Map([u32; 64]);

/// Block 0 writes a tensor map and sets a flag, for which block 1 waits before it copies.
const MAP_OF_ANOTHER_BLOCK: &str = "
    mov.u32 %r3, %ctaid.x;
    setp.eq.u32 %p1, %r3, 1;
    @%p1 bra READ;
    tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2;
    fence.proxy.tensormap::generic.release.gpu;
    st.release.gpu.global.b32 [%rd1+128], 1;
    bra END;
READ:
    ld.acquire.gpu.global.b32 %r4, [%rd1+128];
    setp.eq.u32 %p2, %r4, 0;
    @%p2 bra READ;
    fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
    mbarrier.init.shared::cta.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;
    cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2+128], [%rd1, {0}], [%r2];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], 0;
    @!%p3 bra WAIT;
    ld.shared.b32 %r5, [%r2+252];
    st.global.b32 [%rd2+128], %r5;
END:";

#[test]
fn a_map_of_another_block_is_acquired_whatever_the_watch_looks_for() {
    let module = load("sm_90a", &kernel(MAP_OF_ANOTHER_BLOCK));
    for (races, unwritten) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut map, mut tensor) = (Map([0; 64]), Words(std::array::from_fn(|word| word as u32)));
        let description = TensorMap {
            data_type: TensorDataType::U32,
            address: tensor.0.as_ptr() as u64,
            extents: vec![32],
            strides: Vec::new(),
            box_extents: vec![32],
            element_strides: vec![1],
            swizzle: Swizzle::None,
            fill: OutOfBoundsFill::Zero,
            pixels: None,
        };
        let bytes = description.encode().expect("the map is valid");
        bytemuck::cast_slice_mut(&mut map.0)[..bytes.len()].copy_from_slice(&bytes);
        let regions =
            [&mut map.0[..], &mut tensor.0].map(|words| Region::of(bytemuck::cast_slice_mut(words)));
        let parameters: Vec<u8> = regions.iter().flat_map(|region| region.address().to_le_bytes()).collect();
        let watch = Watch::new(races, unwritten);
        let mut launch = Launch::new("kernel", [2, 1, 1], [1, 1, 1], &parameters, &regions);
        launch.watch = Some(&watch);
        let outcome = module.launch(&launch);
        outcome.unwrap_or_else(|fault| panic!("races: {races}, unwritten: {unwritten}: {fault}"));
        assert_eq!(tensor.0[32], 31, "races: {races}, unwritten: {unwritten}");
    }
}
