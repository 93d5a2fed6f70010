//! Tests state spaces, access widths, atomic operations, variables and clusters.

mod common;

use common::{Random, fault, kernel, launch, launch_with, load, memory, value};
use tilewright_sim::{FaultKind, Region, Space};

#[repr(align(16))]
struct Words([u32; 512]);

#[test]
fn vectors_are_loaded_and_stored() {
    let body = "
    .reg .b64 %in, %out, %at;
    .reg .b32 %t, %a<4>;
    .reg .b64 %b<2>;
    .reg .b16 %c<4>;
    .reg .b128 %w;
    ld.param.u64 %in, [in];
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %at, %t, 64, %in;
    mad.wide.u32 %out, %t, 64, %out;
    ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%at];
    st.global.v4.u32 [%out], {%a3, %a2, %a1, %a0};
    ld.global.v2.u64 {%b0, %b1}, [%at+16];
    st.global.v2.u64 [%out+16], {%b1, %b0};
    ld.global.v4.u16 {%c0, %c1, %c2, %c3}, [%at+32];
    st.global.v4.u16 [%out+32], {%c3, %c2, %c1, %c0};
    ld.global.s8 %a0, [%at+40];
    st.global.u32 [%out+40], %a0;
    ld.global.b8 %a1, [%at+41];
    st.global.u32 [%out+44], %a1;
    ld.global.b128 %w, [%at+48];
    st.global.b128 [%out+48], %w;
    ret;";
    let mut random = Random(1);
    let mut input = Words(std::array::from_fn(|_| random.bits() as u32));
    let mut output = Words([0; 512]);
    launch(&kernel(&["in", "out"], body), 1, 32, vec![memory(&mut input.0), memory(&mut output.0)]).unwrap();
    for (from, to) in input.0.chunks(16).zip(output.0.chunks(16)) {
        assert_eq!(to[..4], [from[3], from[2], from[1], from[0]]);
        assert_eq!(to[4..8], [from[6], from[7], from[4], from[5]]);
        assert_eq!(to[8..10], [from[9].rotate_left(16), from[8].rotate_left(16)]);
        assert_eq!(to[10] as i32, i32::from(from[10] as i8));
        assert_eq!(to[11], from[10] >> 8 & 0xff);
        assert_eq!(to[12..], from[12..]);
    }
}

#[test]
fn atomic_operations_of_many_blocks() {
    let body = "
    .reg .b64 %out;
    .reg .b32 %t, %b, %k, %old;
    .reg .b16 %h;
    .reg .f32 %f;
    .reg .f64 %g;
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mov.u32 %b, %ctaid.x;
    mad.lo.u32 %k, %b, 64, %t;
    atom.global.add.u32 %old, [%out], %k;
    red.global.max.u32 [%out+4], %k;
    red.global.or.b32 [%out+8], %k;
    cvt.rn.f32.u32 %f, %k;
    red.global.add.f32 [%out+12], %f;
    cvt.rn.f64.u32 %g, %k;
    atom.global.add.f64 %g, [%out+16], %g;
    atom.global.inc.u32 %old, [%out+24], 9;
    red.global.min.s32 [%out+28], -5;
    cvt.u16.u32 %h, 15360;
    red.global.add.noftz.f16 [%out+32], %h;
    atom.global.cas.b32 %old, [%out+36], 0, 77;
    atom.global.dec.u32 %old, [%out+40], 100;
    ret;";
    let mut out = vec![0_u64; 6];
    launch(&kernel(&["out"], body), 8, 64, vec![memory(&mut out)]).unwrap();
    let n: u64 = 8 * 64;
    let sum = n * (n - 1) / 2;
    let words: Vec<u32> = out.iter().flat_map(|x| [*x as u32, (*x >> 32) as u32]).collect();
    assert_eq!((words[0], words[1], words[2]), (sum as u32, n as u32 - 1, n as u32 - 1));
    assert_eq!(f32::from_bits(words[3]), sum as f32);
    assert_eq!(f64::from_bits(out[2]), sum as f64);
    assert_eq!(words[6], (n % 10) as u32, "0 to 9, then from 0 again");
    assert_eq!(words[7] as i32, -5);
    assert_eq!(half::f16::from_bits(words[8] as u16).to_f32(), 512.0);
    assert_eq!(words[9], 77);
    // The first decrement changes 0 to 100, and so does every 101st after it.
    assert_eq!(words[10], 100 - ((n - 1) % 101) as u32);
}

#[test]
fn variables_of_the_module_keep_their_values() {
    let text = "
.version 8.0
.target sm_90
.address_size 64
.const .align 4 .f32 table[4] = {0f3F800000, 0f40000000, 0f40400000, 0f40800000};
.global .align 4 .u32 count = 40;
.global .align 8 .u64 pointer = generic(count);
.visible .entry kernel(.param .u64 out)
{
    .local .align 8 .b8 stack[32];
    .reg .b64 %rd<8>;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .pred %p<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 3;
    mov.u64 %rd2, table;
    mad.wide.u32 %rd3, %r2, 4, %rd2;
    ld.const.f32 %f1, [%rd3];
    mov.u64 %rd4, stack;
    cvta.local.u64 %rd5, %rd4;
    isspacep.local %p1, %rd5;
    isspacep.shared %p2, %rd5;
    mad.wide.u32 %rd6, %r2, 4, %rd5;
    st.f32 [%rd6+8], %f1;
    mad.wide.u32 %rd6, %r2, 4, %rd4;
    ld.local.f32 %f2, [%rd6+8];
    selp.f32 %f3, %f2, 0f00000000, %p1;
    selp.f32 %f3, 0f00000000, %f3, %p2;
    ld.global.u64 %rd7, [pointer];
    atom.add.u32 %r3, [%rd7], 1;
    red.global.max.u32 [%rd1+256], %r3;
    mad.wide.u32 %rd6, %r1, 4, %rd1;
    st.global.f32 [%rd6], %f3;
    ret;
}";
    let module = load("sm_100", text);
    let mut out = vec![0.0_f32; 65];
    for _ in 0..2 {
        launch_with(&module, [1, 1, 1], [64, 1, 1], vec![memory(&mut out)], |_| ()).unwrap();
    }
    assert_eq!(out[..64], (0..64).map(|t| (t % 4 + 1) as f32).collect::<Vec<_>>());
    // The counter starts at 40, and each thread of two launches adds 1.
    assert_eq!(out[64].to_bits(), 40 + 2 * 64 - 1);
    let (address, bytes) = module.variable("count").unwrap();
    assert_eq!(bytes, 4);
    let read = "    .reg .b64 %rd<3>;\n    .reg .b32 %r;\n    ld.param.u64 %rd1, [out];\n    ld.param.u64 %rd2, [from];\n    ld.global.u32 %r, [%rd2];\n    st.global.u32 [%rd1], %r;\n    ret;";
    let reader = load("sm_100", &kernel(&["out", "from"], read));
    let mut count = vec![0_u32; 1];
    let result = launch_with(&reader, [1, 1, 1], [1, 1, 1], vec![memory(&mut count), value(address)], |_| ());
    assert!(
        matches!(fault(result), FaultKind::OutOfBounds { space: Space::Global, .. }),
        "it is another module's"
    );
}

#[test]
fn an_allocation_is_near_as_far_as_it_is_long() {
    let body = "    .reg .b64 %a, %n;\n    .reg .b32 %r;\n    ld.param.u64 %a, [a];\n    ld.param.u64 %n, [n];\n    add.u64 %a, %a, %n;\n    ld.global.u32 %r, [%a];\n    ret;";
    let module = load("sm_100", &kernel(&["a", "n"], body));
    for (offset, expected) in [
        (16, Some((0, 4))),
        (28, Some((0, 16))),
        (32, None),
        (-16, Some((0, -16))),
        (-20, None),
        (1_i64 << 40, None),
    ] {
        let mut words = [0_u32; 4];
        let result = launch_with(&module, [1; 3], [1; 3], vec![memory(&mut words), value(offset)], |_| ());
        let FaultKind::OutOfBounds { nearest, .. } = fault(result) else { panic!("{offset}") };
        assert_eq!(nearest, expected, "{offset}");
    }
}

#[test]
fn memory_that_may_only_be_read() {
    let body = "    .reg .b64 %a;\n    .reg .b32 %r;\n    ld.param.u64 %a, [a];\n    ld.global.u32 %r, [%a];\n    st.global.u32 [%a], %r;\n    ret;";
    let module = load("sm_100", &kernel(&["a"], body));
    let bytes = [0_u32; 4];
    let region = Region::read_only(bytemuck::cast_slice(&bytes));
    let parameters = region.address().to_le_bytes();
    let regions = [region];
    let launch = tilewright_sim::Launch::new("kernel", [1; 3], [1; 3], &parameters, &regions);
    assert_eq!(fault(module.launch(&launch)), FaultKind::ReadOnly { address: region.address() });
}

#[test]
fn misaligned_accesses_of_each_space() {
    for (access, space) in [
        ("ld.global.u32 %r, [%a+2];", Space::Global),
        ("ld.local.u32 %r, [stack+1];", Space::Local),
        ("st.shared.u32 [shared+2], %r;", Space::Shared),
        ("ld.param.u32 %r, [a+1];", Space::Param),
        ("atom.global.add.u32 %r, [%a+1], 1;", Space::Global),
    ] {
        let body = format!(
            "    .reg .b64 %a;\n    .reg .b32 %r;\n    .local .align 8 .b8 stack[16];\n    .shared .align 8 .b8 shared[16];\n    ld.param.u64 %a, [a];\n    {access}\n    ret;"
        );
        let mut words = [0_u64; 2];
        let found = fault(launch(&kernel(&["a"], &body), 1, 1, vec![memory(&mut words)]));
        assert!(
            matches!(found, FaultKind::Misaligned { space: known, .. } if known == space),
            "{access}: {found}"
        );
    }
}

/// A warp writes a value and sets a flag. Another warp waits for the flag and reads the value.
const FLAG: &str = "
    .reg .b64 %out;
    .reg .b32 %t, %w, %v, %flag;
    .reg .pred %p;
    .shared .align 4 .b32 value;
    .shared .align 4 .b32 ready;
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    setp.eq.u32 %p, %t, 0;
    @%p st.shared.u32 [ready], 0;
    bar.sync 0;
    setp.lt.u32 %p, %t, 32;
    @%p bra $producer;
$spin:
    ld.acquire.cta.shared.u32 %flag, [ready];
    setp.eq.u32 %p, %flag, 0;
    @%p bra $spin;
    ld.shared.u32 %v, [value];
    st.global.u32 [%out], %v;
    ret;
$producer:
    setp.ne.u32 %p, %t, 0;
    @%p ret;
    st.shared.u32 [value], 41;
    st.release.cta.shared.u32 [ready], 1;
    ret;";

#[test]
fn flags_order_warps() {
    let mut out = vec![0_u32; 1];
    launch(&kernel(&["out"], FLAG), 1, 64, vec![memory(&mut out)]).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(out, [41]);
    // Fences around relaxed accesses order them in the same way.
    let fenced = FLAG
        .replace(
            "st.release.cta.shared.u32 [ready], 1;",
            "fence.acq_rel.cta;\n    st.relaxed.cta.shared.u32 [ready], 1;",
        )
        .replace(
            "ld.acquire.cta.shared.u32 %flag, [ready];",
            "ld.relaxed.cta.shared.u32 %flag, [ready];\n    fence.acq_rel.cta;",
        );
    launch(&kernel(&["out"], &fenced), 1, 64, vec![memory(&mut out)])
        .unwrap_or_else(|fault| panic!("{fault}"));
    // Without release and acquire, the accesses are a race.
    let relaxed =
        FLAG.replace("st.release.cta", "st.relaxed.cta").replace("ld.acquire.cta", "ld.relaxed.cta");
    let found = fault(launch(&kernel(&["out"], &relaxed), 1, 64, vec![memory(&mut out)]));
    assert!(matches!(found, FaultKind::Race { .. }), "{found}");
}

#[test]
fn the_same_value_may_be_stored_twice() {
    let body = "
    .reg .b64 %out;
    .reg .b32 %t, %v;
    .shared .align 4 .b32 word;
    ld.param.u64 %out, [out];
    mov.u32 %t, %warpid;
    mov.u32 %v, 7;
    st.shared.u32 [word], %v;
    bar.sync 0;
    ld.shared.u32 %v, [word];
    st.global.u32 [%out], %v;
    ret;";
    let mut out = vec![0_u32; 1];
    launch(&kernel(&["out"], body), 1, 128, vec![memory(&mut out)]).unwrap();
    assert_eq!(out, [7]);
    let different = body.replace("mov.u32 %v, 7", "mov.u32 %v, %t");
    let found = fault(launch(&kernel(&["out"], &different), 1, 128, vec![memory(&mut out)]));
    assert!(matches!(found, FaultKind::Race { is_write: true, .. }), "{found}");
}

#[test]
fn blocks_of_a_cluster_read_each_other() {
    let body = "
    .reg .b64 %out;
    .reg .b32 %t, %rank, %other, %at, %v, %n;
    .shared .align 4 .b32 words[32];
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mov.u32 %rank, %cluster_ctarank;
    mov.u32 %n, %ctaid.x;
    mov.u32 %at, words;
    mad.lo.u32 %at, %t, 4, %at;
    mad.lo.u32 %v, %n, 100, %t;
    st.shared.u32 [%at], %v;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    xor.b32 %other, %rank, 1;
    mapa.shared::cluster.u32 %at, %at, %other;
    ld.shared::cluster.u32 %v, [%at];
    mad.lo.u32 %n, %n, 32, %t;
    mad.wide.u32 %out, %n, 4, %out;
    st.global.u32 [%out], %v;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ret;";
    let text = kernel(&["out"], body);
    let mut out = vec![0_u32; 128];
    let run = |text: &str, out: &mut [u32]| {
        let arguments = vec![memory(out)];
        launch_with(&load("sm_100", text), [4, 1, 1], [32, 1, 1], arguments, |launch| {
            launch.cluster = [2, 1, 1];
        })
    };
    run(&text, &mut out).unwrap_or_else(|fault| panic!("{fault}"));
    let expected = |i: u32| ((i / 32) ^ 1) * 100 + i % 32;
    assert_eq!(out, (0..128).map(expected).collect::<Vec<_>>());
    let without = text.replacen("barrier.cluster.wait.aligned;", "", 1).replacen(
        "barrier.cluster.arrive.aligned;",
        "",
        1,
    );
    assert!(matches!(fault(run(&without, &mut out)), FaultKind::Race { .. } | FaultKind::Unwritten { .. }));
}
