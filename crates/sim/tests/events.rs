//! Tests the events of a launch: accesses, copies, arrivals and waits, in the order of the warps.

use tilewright_sim::{
    ClusterEvents, Event, EventKind as E, Events, FaultKind, Launch, Piece, Region, SimTarget, Simulator,
};

/// Returns a kernel of two warps. The first thread copies 64 bytes to shared memory. All threads
/// wait for the phase, which expects a number of bytes. The first 16 threads store the copied bytes.
fn text(expected: u32) -> String {
    format!(
        ".version 8.6
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 source, .param .u64 target)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    .shared .align 16 .b8 buffer[64];
    .shared .align 8 .b64 barrier;
    ld.param.u64 %rd1, [source];
    ld.param.u64 %rd2, [target];
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [barrier], 1;
    @%p1 fence.proxy.async;
    bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [barrier], {expected};
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buffer], [%rd1], 64, [barrier];
POLL:
    mbarrier.try_wait.parity.shared.b64 %p2, [barrier], 0;
    @!%p2 bra POLL;
    mov.u32 %r2, buffer;
    and.b32 %r3, %r1, 15;
    shl.b32 %r3, %r3, 2;
    add.u32 %r2, %r2, %r3;
    ld.shared.b32 %r4, [%r2];
    cvt.u64.u32 %rd3, %r3;
    add.u64 %rd3, %rd2, %rd3;
    setp.lt.u32 %p3, %r1, 16;
    @%p3 st.global.b32 [%rd3], %r4;
    ret;
}}
"
    )
}

struct Recorded {
    clusters: Vec<ClusterEvents>,
    fault: Option<FaultKind>,
    source: u64,
    target: u64,
}

fn record(expected: u32, blocks: u32, room: u64) -> Recorded {
    let simulator = Simulator::new(SimTarget::new("sm_90").expect("a target"));
    let module = simulator.load(&text(expected)).unwrap_or_else(|error| panic!("{error}"));
    let (source, mut target): (Vec<u8>, _) = ((0..64).collect(), vec![0_u8; 64]);
    let addresses = [source.as_ptr() as u64, target.as_ptr() as u64];
    let regions = [Region::read_only(&source), Region::of(&mut target)];
    let parameters: Vec<u8> = addresses.iter().flat_map(|address| address.to_le_bytes()).collect();
    let events = Events::new(room);
    let mut launch = Launch::new("kernel", [blocks, 1, 1], [64, 1, 1], &parameters, &regions);
    launch.events = Some(&events);
    let fault = module.launch(&launch).err().map(|fault| fault.kind);
    if fault.is_none() {
        assert_eq!(target, source);
    }
    let (clusters, instructions) = events.into_parts();
    assert!(instructions.iter().all(|(location, text)| location.ptx_line > 0 && !text.is_empty()));
    Recorded { clusters, fault, source: addresses[0], target: addresses[1] }
}

fn of_kind(events: &[Event], kind: E) -> Vec<&Event> {
    events.iter().filter(|event| event.kind == kind).collect()
}

#[test]
fn a_copy_arrives_and_ends_the_waits() {
    let Recorded { clusters, fault, source, target } = record(64, 3, 1 << 20);
    assert_eq!(fault, None);
    assert_eq!(clusters.iter().map(|cluster| cluster.cluster).collect::<Vec<_>>(), [0, 1, 2]);
    for ClusterEvents { events, is_cut_short, has_stopped, .. } in &clusters {
        assert!(!is_cut_short && !has_stopped);
        let kinds: Vec<_> = events.iter().filter(|event| event.warp == 0).map(|event| event.kind).collect();
        let expected = [
            E::Init,
            E::BarrierArrive,
            E::BarrierPass,
            E::Arrive,
            E::CopyToShared,
            E::Complete,
            E::Wait,
            E::Store,
        ];
        assert_eq!(kinds, expected);
        let [copy] = of_kind(events, E::CopyToShared)[..] else { panic!("one copy: {events:?}") };
        assert_eq!(copy.pieces, [Piece { row: 0, offset: 0, address: source, bytes: 64 }]);
        let [arrive] = of_kind(events, E::Arrive)[..] else { panic!("one arrival: {events:?}") };
        let [complete] = of_kind(events, E::Complete)[..] else {
            panic!("one arrival of a copy: {events:?}")
        };
        assert_eq!((arrive.detail.count, arrive.detail.bytes, arrive.detail.completes), (1, 64, false));
        assert_eq!((complete.detail.bytes, complete.detail.completes), (64, true));
        let waits = of_kind(events, E::Wait);
        assert_eq!(waits.iter().map(|wait| wait.warp).collect::<Vec<_>>(), [0, 1]);
        for wait in waits {
            assert_eq!((wait.detail.place, wait.detail.phase), (arrive.detail.place, 0));
        }
        // Only lanes 0 to 15 of the first warp store.
        let [store] = of_kind(events, E::Store)[..] else { panic!("one store: {events:?}") };
        let piece = |lane| Piece { row: lane, offset: 0, address: target + 4 * u64::from(lane), bytes: 4 };
        assert_eq!(store.pieces, (0..16).map(piece).collect::<Vec<_>>());
    }
}

#[test]
fn a_wait_that_nothing_ends_is_blocked() {
    // The copy has 64 of the 128 bytes.
    let Recorded { clusters, fault, .. } = record(128, 1, 1 << 20);
    let Some(FaultKind::Deadlock { waiting }) = fault else { panic!("no deadlock: {fault:?}") };
    let lacks: Vec<_> = waiting.iter().filter_map(|group| group.barrier).collect();
    assert_eq!(lacks.len(), 2);
    for barrier in lacks {
        assert_eq!((barrier.phase, barrier.arrivals, barrier.bytes), (0, (0, 1), 64));
    }
    let [ClusterEvents { events, has_stopped: true, .. }] = &clusters[..] else { panic!("{clusters:?}") };
    let blocked: Vec<_> =
        of_kind(events, E::Blocked).iter().map(|event| (event.warp, event.detail.phase)).collect();
    assert_eq!(blocked.iter().filter(|found| **found == (0, 0)).count(), 1);
    assert_eq!(blocked.iter().filter(|found| **found == (1, 0)).count(), 1);
}

#[test]
fn events_beyond_the_room_are_dropped() {
    let whole = record(64, 1, 1 << 20).clusters[0].events.len();
    let Recorded { clusters, fault, .. } = record(64, 1, 512);
    assert_eq!(fault, None);
    assert!(clusters[0].is_cut_short && clusters[0].events.len() < whole);
}
