//! Tests the counters with access patterns whose counts are known.

mod common;

use common::{kernel, launch, load, memory};
use tilewright_sim::{Class, Launch, Region, Report};

#[repr(align(256))]
struct Aligned([u32; 4096]);

/// Runs a load of 32 lanes at the offsets `lane * stride` in bytes.
fn global(stride: u32, load: &str) -> Report {
    let mut words = Box::new(Aligned([0; 4096]));
    let arguments = vec![memory(&mut words.0)];
    launch(&strided(stride, load), 1, 32, arguments).expect("the launch is legal")
}

fn strided(stride: u32, load: &str) -> String {
    let body = format!(
        "
    .reg .b64 %a, %at;
    .reg .b32 %t, %r<4>;
    ld.param.u64 %a, [a];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %at, %t, {stride}, %a;
    {load}
    ret;"
    );
    kernel(&["a"], &body)
}

/// Returns the requests, the sectors, and the ideal sectors.
fn requests(report: &Report) -> (u64, u64, u64) {
    let total = report.total();
    (total.global_requests, total.sectors, total.ideal_sectors)
}

#[test]
fn a_kernel_without_instructions_ends() {
    let report = launch(&kernel(&["a"], ""), 1, 32, vec![memory(&mut [0; 4])]).expect("the launch is legal");
    assert_eq!(requests(&report), (0, 0, 0));
}

#[test]
fn sectors_of_global_requests() {
    let count = |stride, load| requests(&global(stride, load));
    assert_eq!(count(4, "ld.global.u32 %r0, [%at];"), (1, 4, 4));
    assert_eq!(count(16, "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%at];"), (1, 16, 16));
    assert_eq!(count(32, "ld.global.u32 %r0, [%at];"), (1, 32, 4), "a column");
    assert_eq!(count(0, "ld.global.u32 %r0, [%at];"), (1, 1, 1), "the same for all");
    assert_eq!(count(4, "ld.global.u32 %r0, [%at+16];"), (1, 5, 4), "across a boundary");
    assert_eq!(count(8, "ld.global.u8 %r0, [%at];"), (1, 8, 1));
}

#[test]
fn waste_is_reported_per_line() {
    let text = strided(
        32,
        ".loc 1 5 0
    ld.global.u32 %r0, [%a];
    st.global.u32 [%a], %r0;
    .loc 1 7 0
    ld.global.u32 %r1, [%at];
    ld.global.u32 %r2, [%at+4];
    ld.global.u32 %r3, [%a];
    .loc 1 9 0
    st.global.u16 [%at], 0;",
    ) + ".file 1 \"k.py\"\n";
    let mut words = Box::new(Aligned([0; 4096]));
    let report = launch(&text, 1, 32, vec![memory(&mut words.0)]).expect("the launch is legal").to_string();
    let (_, table) = report.split_once("where\n").expect("there is a table");
    // Each lane reads a word in its own sector. Contiguous words would fill 4 sectors, or 2 with
    // elements of 2 bytes.
    let expected = [
        "         2         64         56          0          0  k.py:7: ld.global.u32 (2 in PTX lines 16 to 17)",
        "         1          1          0          0          0  k.py:7: ld.global.u32 (PTX line 18)",
        "         1         32         30          0          0  k.py:9: st.global.u16 (PTX line 20)",
        "         2          2          0          0          0  k.py:5: ld.global.u32, st.global.u32 (2 in PTX lines 13 to 14)",
    ];
    assert_eq!(table.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn sectors_are_counted_from_the_start_of_an_allocation() {
    let mut words = Box::new(Aligned([0; 4096]));
    for (load, expected) in
        [("ld.global.u32 %r0, [%at];", (1, 4, 4)), ("ld.global.u32 %r0, [%at+4];", (1, 5, 4))]
    {
        for start in [0, 4, 8, 63, 64, 100] {
            let report = launch(&strided(4, load), 1, 32, vec![memory(&mut words.0[start..start + 33])]);
            assert_eq!(requests(&report.expect("the launch is legal")), expected, "{load} from word {start}");
        }
    }
}

#[test]
fn neighbors_on_the_host_share_no_sector() {
    let body = "
    .reg .b64 %a, %b;
    .reg .b32 %t, %r;
    .reg .pred %p;
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    mov.u32 %t, %tid.x;
    setp.ge.u32 %p, %t, 16;
    selp.b64 %a, %a, %b, %p;
    ld.global.u32 %r, [%a];
    ret;";
    let mut words = Box::new(Aligned([0; 4096]));
    let (a, b) = words.0[..8].split_at_mut(4);
    let report = launch(&kernel(&["a", "b"], body), 1, 32, vec![memory(a), memory(b)]);
    assert_eq!(requests(&report.expect("the launch is legal")), (1, 2, 1));
}

#[test]
fn regions_that_overlap_are_one_allocation() {
    let words = Box::new(Aligned([0; 4096]));
    let bytes: &[u8] = bytemuck::cast_slice(&words.0);
    let module = load("sm_100", &strided(4, "ld.global.u32 %r0, [%at];"));
    for (from, sectors) in [(0, 4), (16, 5), (256, 4)] {
        let regions = [Region::read_only(&bytes[from..]), Region::read_only(&bytes[..1024])];
        let address = regions[0].address().to_le_bytes();
        let report = module.launch(&Launch::new("kernel", [1; 3], [32, 1, 1], &address, &regions));
        assert_eq!(requests(&report.expect("the launch is legal")), (1, sectors, 4), "from byte {from}");
    }
}

/// Runs a store to shared memory of 32 lanes at the offsets `lane * stride` in bytes.
fn shared(stride: u32, store: &str) -> (u64, u64) {
    let body = format!(
        "
    .reg .b32 %t, %at, %r<4>;
    .shared .align 16 .b8 memory[8192];
    mov.u32 %t, %tid.x;
    mov.u32 %at, memory;
    mad.lo.u32 %at, %t, {stride}, %at;
    {store}
    ret;"
    );
    let mut word = [0_u32];
    let report = launch(&kernel(&["a"], &body), 1, 32, vec![memory(&mut word)]).expect("the launch is legal");
    assert_eq!(report.bank_conflicts(), report.total().wavefronts - report.total().ideal_wavefronts);
    (report.total().wavefronts, report.bank_conflicts())
}

#[test]
fn bank_conflicts_of_shared_accesses() {
    let word = "st.shared.u32 [%at], %r0;";
    assert_eq!(shared(4, word), (1, 0));
    assert_eq!(shared(8, word), (2, 1), "two lanes a bank");
    assert_eq!(shared(128, word), (32, 31), "a column of 32 words");
    assert_eq!(shared(132, word), (1, 0), "padded");
    assert_eq!(shared(0, word), (1, 0), "one word for all");
    assert_eq!(
        shared(16, "st.shared.v4.u32 [%at], {%r0, %r1, %r2, %r3};"),
        (4, 0),
        "512 bytes take four wavefronts"
    );
    assert_eq!(shared(8, "st.shared.v2.u32 [%at], {%r0, %r1};"), (2, 0));
    assert_eq!(shared(256, "st.shared.v2.u32 [%at], {%r0, %r1};"), (32, 30));
}

#[test]
fn instructions_are_counted_by_class() {
    let report = global(4, "ld.global.u32 %r0, [%at];\n    add.s32 %r1, %r0, 1;\n    add.s32 %r1, %r1, 1;");
    let classes = report.by_class();
    let executions = |class| classes.get(&class).map_or(0, |counters| counters.executions);
    assert_eq!(executions(Class::GlobalLoad), 1);
    assert_eq!(executions(Class::Integer), 3);
    assert_eq!(executions(Class::Parameter), 1);
    assert_eq!(executions(Class::Control), 1);
    assert_eq!(report.total().executions, 7);
    assert_eq!(report.total().bytes_read, 128);
    let table = report.to_string();
    assert!(table.ends_with("  PTX line 12: ld.global.u32\n"), "{table}");
}

#[test]
fn copies_to_shared_memory_write_no_global_bytes() {
    let of_lanes = "
    mad.lo.u32 %at, %t, 4, %at;
    mul.wide.u32 %offset, %t, 4;
    add.u64 %a, %a, %offset;
    cp.async.ca.shared.global [%at+128], [%a], 4;
    cp.async.wait_all;";
    let of_bytes = "
    setp.ne.u32 %p, %t, 0;
    @%p bra END;
    mbarrier.init.shared::cta.b64 [%at], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%at], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%at+128], [%a], 128, [%at];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%at], 0;
    @!%p bra WAIT;
END:";
    for copy in [of_lanes, of_bytes] {
        let body = format!(
            "
    .reg .b64 %a, %offset;
    .reg .b32 %t, %at;
    .reg .pred %p;
    .shared .align 128 .b8 memory[256];
    ld.param.u64 %a, [a];
    mov.u32 %t, %tid.x;
    mov.u32 %at, memory;
{copy}
    ret;"
        );
        let mut words = Box::new(Aligned([0; 4096]));
        let report =
            launch(&kernel(&["a"], &body), 1, 32, vec![memory(&mut words.0)]).expect("the launch is legal");
        let total = report.total();
        assert_eq!((total.bytes_read, total.bytes_written), (128, 128), "{copy}");
        assert_eq!((total.global_bytes_read, total.global_bytes_written), (128, 0), "{copy}");
        let table = report.to_string();
        assert!(table.contains("; 128 bytes read, 0 written\n"), "{table}");
    }
}
