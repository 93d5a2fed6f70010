//! Tests asynchronous copies and barriers in shared memory, with and without mistakes.

mod support;

use support::{expect_fault, run, run_cluster};
use tilewright_sim::{FaultKind, OutOfBoundsFill, Swizzle, TensorDataType, TensorMap};

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 7 + index / 256) as u8).collect()
}

/// Runs a body with `threads` threads on `input` and returns the output.
fn copy(body: &str, threads: u32, input: &[u8], output_bytes: usize) -> Vec<u8> {
    let mut output = vec![0xee; output_bytes];
    run(body, threads, input, &mut output, &[0; 128]).expect("the body is right");
    output
}

fn mistake(body: &str, threads: u32) -> FaultKind {
    expect_fault(body, threads, &bytes(4096), &[0; 128])
}

/// Returns a body in which each thread copies 16 bytes by `cp.async`, then stores its neighbor's
/// bytes.
fn neighbors(wait: &str) -> String {
    format!(
        "
    mul.lo.u32 %r5, %r1, 16;
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd5, %rd1, %rd4;
    add.u32 %r6, %r2, %r5;
    cp.async.cg.shared.global [%r6], [%rd5], 16;
    {wait}
    bar.sync 0;
    xor.b32 %r7, %r5, 16;
    add.u32 %r7, %r2, %r7;
    ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r7];
    add.u64 %rd6, %rd2, %rd4;
    st.global.v4.b32 [%rd6], {{%r10, %r11, %r12, %r13}};
"
    )
}

#[test]
fn copies_arrive_at_the_wait() {
    let input = bytes(1024);
    let expected: Vec<u8> = (0..1024).map(|index| input[index ^ 16]).collect();
    let groups = "cp.async.commit_group; cp.async.wait_group 0;";
    assert_eq!(copy(&neighbors(groups), 64, &input, 1024), expected);
    assert_eq!(copy(&neighbors("cp.async.wait_all;"), 64, &input, 1024), expected);
}

#[test]
fn a_missing_wait_is_a_race_with_the_copy() {
    for wait in [
        "",
        "cp.async.commit_group;",
        "cp.async.wait_group 0;",
        "cp.async.commit_group; cp.async.wait_group 1;",
    ] {
        let FaultKind::Race { first, is_write, .. } = mistake(&neighbors(wait), 64) else {
            panic!("`{wait}` did not race");
        };
        assert!(first.is_write && !is_write && first.agent.contains("asynchronous"), "{first:?}");
    }
}

#[test]
fn waits_keep_the_most_recent_groups() {
    // Two groups with one copy each. With one group in flight, only the first copy may be read.
    let body = |offset: u32| {
        format!(
            "
    mul.lo.u32 %r5, %r1, 16;
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd5, %rd1, %rd4;
    add.u32 %r6, %r2, %r5;
    cp.async.cg.shared.global [%r6], [%rd5], 16;
    cp.async.commit_group;
    cp.async.cg.shared.global [%r6+512], [%rd5+512], 16;
    cp.async.commit_group;
    cp.async.wait_group 1;
    ld.shared.b32 %r10, [%r6+{offset}];
    cp.async.wait_group 0;
"
        )
    };
    copy(&body(0), 32, &bytes(1024), 16);
    assert!(matches!(mistake(&body(512), 32), FaultKind::Race { .. }));
}

#[test]
fn sources_may_be_shorter_or_ignored() {
    let body = "
    mul.lo.u32 %r5, %r1, 16;
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd5, %rd1, %rd4;
    add.u32 %r6, %r2, %r5;
    mul.lo.u32 %r7, %r1, 4;
    min.u32 %r7, %r7, 16;
    setp.gt.u32 %p1, %r1, 4;
    @%p1 mov.u32 %r7, 0;
    cp.async.cg.shared.global [%r6], [%rd5], 16, %r7;
    cp.async.wait_all;
    ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r6];
    add.u64 %rd6, %rd2, %rd4;
    st.global.v4.b32 [%rd6], {%r10, %r11, %r12, %r13};
";
    // The input ends after the copied bytes.
    let input = bytes(80);
    let output = copy(body, 32, &input, 512);
    for (index, &byte) in output.iter().enumerate() {
        let (lane, place) = (index / 16, index % 16);
        let copied = lane <= 4 && place < lane * 4;
        assert_eq!(byte, if copied { input[index] } else { 0 }, "byte {place} of lane {lane}");
    }
}

#[test]
fn copies_check_their_addresses() {
    let body = |destination: u32, source: u32| {
        format!("cp.async.ca.shared.global [%r2+{destination}], [%rd1+{source}], 8; cp.async.wait_all;")
    };
    copy(&body(8, 16), 1, &bytes(64), 16);
    assert!(matches!(mistake(&body(4, 0), 1), FaultKind::Misaligned { .. }));
    assert!(matches!(mistake(&body(0, 4), 1), FaultKind::Misaligned { .. }));
    assert!(matches!(mistake(&body(0, 4096), 1), FaultKind::OutOfBounds { .. }));
    assert!(matches!(mistake(&body(16384, 0), 1), FaultKind::OutOfBounds { .. }));
}

/// Returns a body with a barrier at the start of shared memory, initialized with `count` before
/// `rest`.
fn with_barrier(count: u32, rest: &str) -> String {
    format!(
        "
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], {count};
    bar.sync 0;
{rest}
"
    )
}

/// Returns a wait for a phase of the barrier.
fn wait(parity: u32) -> String {
    format!(
        "
WAIT{parity}:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], {parity};
    @!%p2 bra WAIT{parity};
"
    )
}

#[test]
fn barriers_take_copies_with_them() {
    for (suffix, arrive) in [(".noinc", ""), ("", "mbarrier.arrive.shared.b64 %rd9, [%r2];")] {
        let body = with_barrier(
            32,
            &format!(
                "
    mul.lo.u32 %r5, %r1, 4;
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd5, %rd1, %rd4;
    add.u32 %r6, %r2, %r5;
    cp.async.ca.shared.global [%r6+64], [%rd5], 4;
    cp.async.mbarrier.arrive{suffix}.shared.b64 [%r2];
    {arrive}
    {}
    ld.shared.b32 %r10, [%r6+64];
    add.u64 %rd6, %rd2, %rd4;
    st.global.b32 [%rd6], %r10;
",
                wait(0)
            ),
        );
        let input = bytes(128);
        assert_eq!(copy(&body, 32, &input, 128), input);
    }
}

/// Returns a body in which warp 1 fills shared memory and arrives, and warp 0 waits and writes the
/// output.
fn handover(wait: &str) -> String {
    with_barrier(
        32,
        &format!(
            "
    shl.b32 %r5, %r3, 2;
    add.u32 %r6, %r2, %r5;
    setp.eq.u32 %p3, %r4, 0;
    @%p3 bra CONSUME;
    add.u32 %r7, %r3, 100;
    st.shared.b32 [%r6+64], %r7;
    mbarrier.arrive.shared.b64 _, [%r2];
    bra END;
CONSUME:
    {wait}
    ld.shared.b32 %r8, [%r6+64];
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd4, %rd2, %rd4;
    st.global.b32 [%rd4], %r8;
END:
"
        ),
    )
}

#[test]
fn barriers_order_earlier_accesses() {
    let output = copy(&handover(&wait(0)), 64, &[], 128);
    let expected: Vec<u8> = (100..132u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(output, expected);
    // Expected without the wait: a fault in every order of the warps.
    assert!(matches!(mistake(&handover(""), 64), FaultKind::Race { .. } | FaultKind::Unwritten { .. }));
    // The consumer waits for parity 1. Before the producer, it races; after the producer, it waits
    // forever.
    let fault = mistake(&handover(&wait(1)), 64);
    assert!(matches!(
        fault,
        FaultKind::Race { .. } | FaultKind::Unwritten { .. } | FaultKind::Deadlock { .. }
    ));
}

#[test]
fn tokens_name_their_phase() {
    let body = with_barrier(
        32,
        "
    mbarrier.arrive.shared.b64 %rd4, [%r2];
POLL:
    mbarrier.test_wait.shared.b64 %p2, [%r2], %rd4;
    @!%p2 bra POLL;
    mbarrier.pending_count.b64 %r5, %rd4;
    shl.b32 %r6, %r1, 2;
    cvt.u64.u32 %rd5, %r6;
    add.u64 %rd5, %rd2, %rd5;
    st.global.b32 [%rd5], %r5;
",
    );
    let output = copy(&body, 32, &[], 128);
    // The first lane reads the full count.
    let pending = words(&output);
    assert!(pending.contains(&32) && pending.iter().all(|count| (1..=32).contains(count)), "{pending:?}");
}

#[test]
fn phases_that_never_complete_are_deadlocks() {
    for wait in
        [wait(0), "POLL: mbarrier.test_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra POLL;".to_owned()]
    {
        let body = with_barrier(33, &format!("mbarrier.arrive.shared.b64 _, [%r2]; {wait}"));
        let FaultKind::Deadlock { waiting } = mistake(&body, 32) else { panic!("no deadlock") };
        assert_eq!(waiting.len(), 1);
    }
}

#[test]
fn misused_barriers_are_faults() {
    let illegal = |body: &str, threads: u32, part: &str| match mistake(body, threads) {
        FaultKind::Illegal(text) => assert!(text.contains(part), "{text}"),
        other => panic!("{other:?}"),
    };
    illegal("mbarrier.arrive.shared.b64 _, [%r2];", 1, "mbarrier.init is missing");
    illegal("mbarrier.init.shared.b64 [%r2], 0;", 1, "count of 0");
    illegal(
        "mbarrier.init.shared.b64 [%r2], 1; mbarrier.init.shared.b64 [%r2], 1;",
        1,
        "is initialized already",
    );
    illegal(
        "mbarrier.init.shared.b64 [%r2], 1; st.shared.b32 [%r2], 5; mbarrier.arrive.shared.b64 _, [%r2];",
        1,
        "overwritten",
    );
    illegal(
        "mbarrier.init.shared.b64 [%r2], 1; mbarrier.inval.shared.b64 [%r2]; mbarrier.arrive.shared.b64 _, [%r2];",
        1,
        "mbarrier.init is missing",
    );
    illegal(&with_barrier(2, "mbarrier.arrive.shared.b64 _, [%r2], 3;"), 1, "3 arrivals");
    copy(
        "mbarrier.init.shared.b64 [%r2], 1; mbarrier.inval.shared.b64 [%r2]; mbarrier.init.shared.b64 [%r2], 2;",
        1,
        &[],
        16,
    );
    assert!(matches!(mistake("mbarrier.init.shared.b64 [%r2+4], 1;", 1), FaultKind::Misaligned { .. }));
    // Another warp uses the barrier, unordered with its initialization.
    let unordered = "
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 64;
    setp.eq.u32 %p2, %r4, 1;
    @%p2 mbarrier.arrive.shared.b64 _, [%r2];
";
    assert!(matches!(mistake(unordered, 64), FaultKind::Race { .. } | FaultKind::Illegal(_)));
}

/// Returns a body in which one thread copies 256 bytes to shared memory, and all threads write them
/// out.
fn bulk_load(publish: &str, expected: u32, wait: &str) -> String {
    format!(
        "
    setp.eq.u32 %p1, %r1, 0;
    @!%p1 bra READY;
    mbarrier.init.shared::cta.b64 [%r2], 1;
    {publish}
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {expected};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+128], [%rd1], 256, [%r2];
READY:
    bar.sync 0;
    {wait}
    shl.b32 %r5, %r1, 2;
    add.u32 %r6, %r2, %r5;
    ld.shared.b32 %r7, [%r6+128];
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd4, %rd2, %rd4;
    st.global.b32 [%rd4], %r7;
"
    )
}

#[test]
fn bulk_copies_complete_at_their_barrier() {
    let input = bytes(256);
    let body = bulk_load("fence.mbarrier_init.release.cluster;", 256, &wait(0));
    assert_eq!(copy(&body, 64, &input, 256), input);
    let body = bulk_load("fence.proxy.async.shared::cta;", 256, "");
    assert!(matches!(mistake(&body, 64), FaultKind::Race { .. }));
    let body = bulk_load("fence.proxy.async.shared::cta;", 272, &wait(0));
    assert!(matches!(mistake(&body, 64), FaultKind::Deadlock { .. }));
    let FaultKind::Illegal(text) = mistake(&bulk_load("", 256, &wait(0)), 64) else { panic!("no fault") };
    assert!(text.contains("fence.mbarrier_init"), "{text}");
}

/// Returns a body in which all threads write shared memory, and one thread copies it out.
fn bulk_store(fence: &str, wait: &str) -> String {
    format!(
        "
    shl.b32 %r5, %r1, 2;
    add.u32 %r6, %r2, %r5;
    mad.lo.u32 %r7, %r1, %r1, 5;
    st.shared.b32 [%r6], %r7;
    {fence}
    bar.sync 0;
    setp.eq.u32 %p1, %r1, 0;
    @!%p1 bra COPIED;
    cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 256;
    cp.async.bulk.commit_group;
    {wait}
COPIED:
    bar.sync 0;
    st.shared.b32 [%r6], 0;
"
    )
}

#[test]
fn bulk_stores_want_a_fence_and_a_wait() {
    let expected: Vec<u8> = (0..64u32).flat_map(|thread| (thread * thread + 5).to_le_bytes()).collect();
    for wait in ["cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group 0;"] {
        assert_eq!(copy(&bulk_store("fence.proxy.async.shared::cta;", wait), 64, &[], 256), expected);
    }
    let wait = "cp.async.bulk.wait_group.read 0;";
    assert!(matches!(mistake(&bulk_store("", wait), 64), FaultKind::MissingProxyFence { .. }));
    assert!(matches!(
        mistake(&bulk_store("fence.proxy.async;", ""), 64),
        FaultKind::Race { is_write: true, .. }
    ));
}

#[test]
fn bulk_reductions_combine() {
    // The operation and type, and the result as a function of the old output and the stored value.
    type Combine = fn(u32, u32) -> u32;
    let cases: [(&str, Combine); 7] = [
        ("add.u32", |old, new| old.wrapping_add(new)),
        ("min.s32", |old, new| (old as i32).min(new as i32) as u32),
        ("max.u32", u32::max),
        ("and.b32", |old, new| old & new),
        ("or.b32", |old, new| old | new),
        ("xor.b32", |old, new| old ^ new),
        ("add.f32", |old, new| (f32::from_bits(old) + f32::from_bits(new)).to_bits()),
    ];
    for (operation, combine) in cases {
        let is_float = operation.ends_with("f32");
        let body = bulk_store("fence.proxy.async;", "cp.async.bulk.wait_group 0;")
            .replace(
                "st.shared.b32 [%r6], %r7;",
                if is_float {
                    "cvt.rn.f32.u32 %f1, %r7; st.shared.f32 [%r6], %f1;"
                } else {
                    "st.shared.b32 [%r6], %r7;"
                },
            )
            .replace(
                "cp.async.bulk.global.shared::cta.bulk_group",
                &format!("cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}"),
            );
        let before: Vec<u32> = (0..64u32)
            .map(|i| if is_float { (i as f32 * 0.5).to_bits() } else { i.wrapping_mul(0x9e37_79b9) })
            .collect();
        let mut output: Vec<u8> = before.iter().flat_map(|word| word.to_le_bytes()).collect();
        run(&body, 64, &[], &mut output, &[0; 128]).unwrap();
        for (index, (word, old)) in output.chunks(4).zip(before).enumerate() {
            let stored = (index * index + 5) as u32;
            let stored = if is_float { (stored as f32).to_bits() } else { stored };
            assert_eq!(
                u32::from_le_bytes(word.try_into().unwrap()),
                combine(old, stored),
                "{operation} at {index}"
            );
        }
    }
}

fn map(
    address: u64,
    data_type: TensorDataType,
    extents: &[u64],
    box_extents: &[u32],
    swizzle: Swizzle,
) -> TensorMap {
    let mut strides = Vec::new();
    let mut stride = u64::from(data_type.bytes());
    for extent in &extents[..extents.len() - 1] {
        stride *= extent;
        strides.push(stride);
    }
    TensorMap {
        data_type,
        address,
        extents: extents.to_vec(),
        strides,
        box_extents: box_extents.to_vec(),
        element_strides: vec![1; extents.len()],
        swizzle,
        fill: OutOfBoundsFill::Zero,
        pixels: None,
    }
}

/// Returns a body in which one thread loads a box to offset 1024, and all threads copy `bytes`
/// bytes of it out.
fn tensor_load(coordinates: &[i32], bytes: u32) -> String {
    let rank = coordinates.len();
    let list: Vec<String> = coordinates.iter().map(i32::to_string).collect();
    format!(
        "
    setp.eq.u32 %p1, %r1, 0;
    @!%p1 bra READY;
    mbarrier.init.shared::cta.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {bytes};
    cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2+1024], [%rd3, {{{}}}], [%r2];
READY:
    bar.sync 0;
    {}
    shl.b32 %r5, %r1, 2;
LOOP:
    setp.ge.u32 %p3, %r5, {bytes};
    @%p3 bra DONE;
    add.u32 %r6, %r2, %r5;
    ld.shared.b32 %r7, [%r6+1024];
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd4, %rd2, %rd4;
    st.global.b32 [%rd4], %r7;
    add.u32 %r5, %r5, 128;
    bra LOOP;
DONE:
",
        list.join(", "),
        wait(0)
    )
}

#[test]
fn tensor_loads_of_every_rank_fill_elements_outside() {
    let extents = [24_u64, 5, 4, 3, 2];
    let boxes = [16_u32, 3, 2, 2, 2];
    let coordinates = [-8, 3, -1, 2, 1];
    for rank in 1..=5 {
        let (extents, boxes, coordinates) = (&extents[..rank], &boxes[..rank], &coordinates[..rank]);
        let count: u64 = extents.iter().product();
        let tensor: Vec<u16> = (0..count).map(|index| index as u16 + 1).collect();
        let input: Vec<u8> = tensor.iter().flat_map(|value| value.to_le_bytes()).collect();
        let map = map(input.as_ptr() as u64, TensorDataType::U16, extents, boxes, Swizzle::None);
        let elements: u32 = boxes.iter().product();
        let mut output = vec![0xee; elements as usize * 2];
        run(&tensor_load(coordinates, elements * 2), 32, &input, &mut output, &map.encode().unwrap())
            .unwrap();
        for (index, value) in output.chunks(2).enumerate() {
            let (mut rest, mut at, mut inside, mut place) = (index as i64, 0, true, 1);
            for dimension in 0..rank {
                let box_extent = i64::from(boxes[dimension]);
                let here = rest % box_extent + i64::from(coordinates[dimension]);
                rest /= box_extent;
                inside &= (0..extents[dimension] as i64).contains(&here);
                at += here * place;
                place *= extents[dimension] as i64;
            }
            let expected = if inside { tensor[at as usize] } else { 0 };
            assert_eq!(u16::from_le_bytes([value[0], value[1]]), expected, "rank {rank}, element {index}");
        }
    }
}

#[test]
fn tensor_loads_swizzle_lines() {
    for (swizzle, line, rows) in
        [(Swizzle::Bytes32, 32, 2), (Swizzle::Bytes64, 64, 4), (Swizzle::Bytes128, 128, 8)]
    {
        let input = bytes(line * 16);
        let map =
            map(input.as_ptr() as u64, TensorDataType::U8, &[line as u64, 16], &[line as u32, 16], swizzle);
        let mut output = vec![0xee; line * 16];
        run(&tensor_load(&[0, 0], line as u32 * 16), 32, &input, &mut output, &map.encode().unwrap())
            .unwrap();
        for (index, &byte) in input.iter().enumerate() {
            // The swizzle permutes the chunks of a 128-byte line by the index of this line.
            let chunk = (index / 16) ^ ((index / 128) % rows);
            assert_eq!(output[chunk * 16 + index % 16], byte, "{swizzle:?} byte {index}");
        }
    }
}

#[test]
fn a_map_whose_base_is_no_memory_faults() {
    // The box is the second line of the tensor. The base of the map is one line before `input`.
    let input = bytes(256);
    let base = input.as_ptr() as u64 - 64;
    let map = map(base, TensorDataType::U8, &[64, 5], &[64, 1], Swizzle::None).encode().unwrap();
    let fault = expect_fault(&tensor_load(&[0, 1], 64), 32, &input, &map);
    assert!(
        matches!(fault, FaultKind::OutOfBounds { address, is_store: false, .. } if address == base),
        "{fault:?}"
    );
}

/// Returns a body in which all threads write a word, and one thread stores the words as a box.
fn tensor_store([x, y]: [i32; 2]) -> String {
    format!(
        "
    shl.b32 %r5, %r1, 2;
    add.u32 %r6, %r2, %r5;
    add.u32 %r7, %r1, 1;
    st.shared.b32 [%r6], %r7;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.eq.u32 %p1, %r1, 0;
    @!%p1 bra DONE;
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd3, {{{x}, {y}}}], [%r2];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
DONE:
"
    )
}

#[test]
fn tensor_stores_skip_elements_outside() {
    let body = tensor_store([4, 2]);
    for (body, initial) in [
        (body.clone(), 0),
        (
            body.replace("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")
                .replace("shared::cta.tile", "shared::cta.add.tile"),
            1000,
        ),
    ] {
        let mut output: Vec<u8> = std::iter::repeat_n(u32::to_le_bytes(initial), 8 * 4).flatten().collect();
        let map = map(output.as_ptr() as u64, TensorDataType::U32, &[8, 4], &[8, 4], Swizzle::None)
            .encode()
            .unwrap();
        run(&body, 32, &[], &mut output, &map).unwrap();
        for (index, word) in output.chunks(4).enumerate() {
            let (x, y) = (index % 8, index / 8);
            let stored = if x >= 4 && y >= 2 { ((y - 2) * 8 + (x - 4) + 1) as u32 } else { 0 };
            assert_eq!(u32::from_le_bytes(word.try_into().unwrap()), initial + stored, "at {x}, {y}");
        }
    }
}

#[test]
fn tensor_stores_write_whole_chunks() {
    // Rows of 5 elements with a stride of 8: an H200 also writes the 3 elements after the last one.
    let mut output: Vec<u8> = std::iter::repeat_n(u32::to_le_bytes(1000), 12 * 4).flatten().collect();
    let mut map = map(output.as_ptr() as u64, TensorDataType::U32, &[8, 4], &[8, 4], Swizzle::None);
    for (extent, written) in [(8, 8), (5, 8), (4, 4)] {
        output.as_mut_slice()[..128].copy_from_slice(&1000_u32.to_le_bytes().repeat(32));
        map.extents[0] = extent;
        run(&tensor_store([0, 0]), 32, &[], &mut output, &map.encode().unwrap()).unwrap();
        for (index, word) in output.chunks(4).take(32).enumerate() {
            let expected = if index % 8 < written { index as u32 + 1 } else { 1000 };
            assert_eq!(u32::from_le_bytes(word.try_into().unwrap()), expected, "extent {extent}: {index}");
        }
    }
}

#[test]
fn tensor_copies_check_where_they_start() {
    let mut output = vec![0; 512];
    let map =
        map(output.as_ptr() as u64, TensorDataType::U32, &[8, 4], &[8, 4], Swizzle::None).encode().unwrap();
    let mut found = |body: &str, part: &str| match run(body, 32, &[], &mut output, &map) {
        Err(FaultKind::Illegal(text)) => assert!(text.contains(part), "{text}"),
        other => panic!("{other:?}"),
    };
    found(&tensor_store([2, 0]), "multiple of 16");
    found(&tensor_load(&[-1, 0], 128), "multiple of 16");
    found(&tensor_store([0, -1]), "coordinate -1");
    found(&tensor_store([-4, 0]), "coordinate -4");
}

#[test]
fn invalid_tensor_maps_are_rejected() {
    let mut output = vec![0; 512];
    let fault = run(&tensor_load(&[0, 0], 512), 32, &[], &mut output, &[0; 128]).unwrap_err();
    assert!(matches!(fault, FaultKind::Illegal(text) if text.contains("tensor map")));
}

/// Runs a cluster of two blocks with a barrier each, which expects `expected` bytes. One thread of
/// the first block executes `action`, with the second block's shared memory in `%r10`. Each block
/// waits, and writes 64 bytes from offset 128 to the output.
fn cluster(expected: [u32; 2], action: &str) -> Vec<u8> {
    let body = format!(
        "
    mov.u32 %r5, %cluster_ctarank;
    setp.eq.u32 %p1, %r5, 0;
    selp.u32 %r6, {}, {}, %p1;
    shl.b32 %r7, %r1, 2;
    add.u32 %r8, %r2, %r7;
    add.u32 %r9, %r1, 500;
    st.shared.b32 [%r8+128], %r9;
    fence.proxy.async.shared::cta;
    setp.eq.u32 %p2, %r1, 0;
    @%p2 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p2 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], %r6;
    mapa.shared::cluster.u32 %r10, %r2, 1;
    and.pred %p3, %p1, %p2;
    @!%p3 bra ACTED;
    {action}
ACTED:
{}
    ld.shared.b32 %r11, [%r8+128];
    shl.b32 %r12, %r5, 6;
    add.u32 %r12, %r12, %r7;
    cvt.u64.u32 %rd4, %r12;
    add.u64 %rd4, %rd2, %rd4;
    st.global.b32 [%rd4], %r11;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
",
        expected[0],
        expected[1],
        wait(0)
    );
    let mut output = vec![0xee; 128];
    run_cluster(&body, 2, 16, &bytes(64), &mut output, &[0; 128]).expect("the body is right");
    output
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

#[test]
fn copies_reach_the_blocks_of_a_cluster() {
    let own: Vec<u32> = (500..516).collect();
    let output = cluster(
        [64, 64],
        "mov.b16 %h1, 3;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2+128], [%rd1], 64, [%r2], %h1;",
    );
    assert_eq!(output, [bytes(64), bytes(64)].concat());
    let output = cluster(
        [0, 32],
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10+160], [%r2+128], 32, [%r10];",
    );
    let (first, second) = output.split_at(64);
    assert_eq!(words(first), own);
    assert_eq!(words(second), [&own[..8], &own[..8]].concat());
}

#[test]
fn values_reach_the_blocks_of_a_cluster() {
    let own: Vec<u32> = (500..516).collect();
    let store = "
    mov.u32 %r20, 7;
    mov.u32 %r21, 8;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r10+136], {%r20, %r21}, [%r10];
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r10+128], %r20, [%r10];
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.u32 [%r10+132], %r20, [%r10];";
    let output = cluster([0, 16], store);
    let (first, second) = output.split_at(64);
    assert_eq!(words(first), own);
    assert_eq!(words(second)[..5], [507, 501, 7, 8, 504]);
}

/// Returns a body in which each thread writes a word, one thread loads the words with `copy`, and
/// all threads copy them out.
fn load_after_store(fence: &str, copy: &str) -> String {
    format!(
        "
    setp.eq.u32 %p1, %r1, 0;
    @!%p1 bra READY;
    mbarrier.init.shared::cta.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
READY:
    shl.b32 %r5, %r1, 2;
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd4, %rd2, %rd4;
    add.u32 %r7, %r1, 7;
    st.global.b32 [%rd4], %r7;
    {fence}
    bar.sync 0;
    @!%p1 bra BEGUN;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;
    {copy}
BEGUN:
    {}
    add.u32 %r6, %r2, %r5;
    ld.shared.b32 %r7, [%r6+1024];
    st.global.b32 [%rd4+128], %r7;
",
        wait(0)
    )
}

#[test]
fn bulk_loads_after_thread_stores_need_a_proxy_fence() {
    let of_a_box = "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2+1024], [%rd3, {0}], [%r2];";
    let of_bytes =
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+1024], [%rd2], 128, [%r2];";
    let expected: Vec<u8> = (7_u32..39).flat_map(u32::to_le_bytes).collect();
    for copy in [of_a_box, of_bytes] {
        let loaded = |fence: &str| {
            let mut output = vec![0xee; 256];
            let map = map(output.as_ptr() as u64, TensorDataType::U32, &[32], &[32], Swizzle::None);
            let map = map.encode().unwrap();
            run(&load_after_store(fence, copy), 32, &[], &mut output, &map).map(|()| output.split_off(128))
        };
        for fence in ["fence.proxy.async;", "fence.proxy.async.global;"] {
            assert_eq!(loaded(fence).unwrap(), expected, "{copy}");
        }
        for fence in ["", "fence.proxy.async.shared::cta;"] {
            let Err(found) = loaded(fence) else { panic!("no fault: {copy}") };
            assert!(
                found.to_string().contains("missing fence.proxy.async: a bulk copy reads global memory"),
                "{found}"
            );
        }
    }
}
