//! Records the events of a launch: accesses to global memory, copies, barriers and dots.
//!
//! A cluster runs on one host thread, so its events have an order. Asynchronous operations take
//! effect when they start. A reader of the events finds the wait that an operation needs by its
//! barrier and phase, or by its group.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::fault::Location;

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum EventKind {
    /// The threads read global memory.
    Load,
    /// The threads write global memory.
    Store,
    /// The threads read and write global memory at once.
    Atomic,
    /// A copy from global to shared memory starts.
    CopyToShared,
    /// A copy from shared to global memory starts.
    CopyToGlobal,
    /// The bytes of a copy, or the dots of a commit, arrive at an `mbarrier`.
    Complete,
    /// An `mbarrier` is initialized.
    Init,
    /// Threads arrive at an `mbarrier`.
    Arrive,
    /// An `mbarrier` expects more bytes, without an arrival.
    Expect,
    /// A warp finds the phase of an `mbarrier` incomplete, and begins to wait.
    Blocked,
    /// A warp finds the phase of an `mbarrier` complete, and goes on.
    Wait,
    /// A dot of `wgmma` or `tcgen05` starts.
    Dot,
    /// A dot of `mma`, which is complete after the instruction.
    SyncDot,
    /// A group of `cp.async` copies ends.
    CommitCopies,
    /// A group of bulk copies ends.
    CommitStores,
    /// A group of `wgmma` ends.
    CommitDots,
    /// A warp waits for its groups of `cp.async` copies.
    WaitCopies,
    /// A warp waits for its groups of bulk copies.
    WaitStores,
    /// A warp waits for its groups of `wgmma`.
    WaitDots,
    /// A warp arrives at a barrier of the block.
    BarrierArrive,
    /// A warp passes a barrier of the block.
    BarrierPass,
}

/// A part of an access to global memory, contiguous in a lane or in a row of a box.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The lane, or the row of the box.
    pub row: u32,
    /// The offset of the part in its row, in bytes.
    pub offset: u32,
    /// The address in global memory.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u32,
}

/// An event of a warp.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The kind.
    pub kind: EventKind,
    /// The index of the instruction in the list of all instructions of the events.
    pub instruction: u32,
    /// The rank of the warp's block in its cluster.
    pub rank: u32,
    /// The index of the warp in its block.
    pub warp: u32,
    /// The facts that depend on the kind.
    pub detail: Detail,
    /// The accessed global memory, for accesses and copies.
    pub pieces: Vec<Piece>,
}

/// The facts of an event that depend on its kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Detail {
    /// The rank of the block and the offset in its shared memory: of a barrier or, for a copy, of
    /// the buffer. For a barrier of the block, the second number is its index.
    pub place: Option<(u32, u32)>,
    /// The phase of the barrier. For a wait, it is the phase that the warp needs; -1 is the phase
    /// before the first one.
    pub phase: i64,
    /// The arrivals, or the groups that may stay in flight.
    pub count: u32,
    /// The bytes that arrive, or that are expected.
    pub bytes: u32,
    /// True if the event completes the phase.
    pub completes: bool,
}

/// The events of one cluster of blocks, which is one program.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ClusterEvents {
    /// The index of the cluster in the grid.
    pub cluster: u64,
    /// The events, in the order of the simulator.
    pub events: Vec<Event>,
    /// True if events are missing, because the launch had no room left.
    pub is_cut_short: bool,
    /// True if the cluster ended with a fault.
    pub has_stopped: bool,
}

/// Collects the events of a launch.
#[derive(Debug)]
pub struct Events {
    room: Arc<AtomicI64>,
    clusters: Mutex<Vec<ClusterEvents>>,
    instructions: Mutex<Vec<(Location, String)>>,
}

impl Events {
    /// Creates a collector of events of at most about `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        let room = Arc::new(AtomicI64::new(bytes.min(i64::MAX as u64) as i64));
        Self { room, clusters: Mutex::default(), instructions: Mutex::default() }
    }

    /// Returns the events of each cluster, by index, and the location and text of each instruction.
    pub fn into_parts(self) -> (Vec<ClusterEvents>, Vec<(Location, String)>) {
        let mut clusters = self.clusters.into_inner().unwrap_or_else(PoisonError::into_inner);
        clusters.sort_by_key(|cluster| cluster.cluster);
        (clusters, self.instructions.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn resolve(&self, instructions: Vec<(Location, String)>) {
        *self.instructions.lock().unwrap_or_else(PoisonError::into_inner) = instructions;
    }

    pub(crate) fn keep(&self, cluster: u64, log: EventLog, has_stopped: bool) {
        let EventLog { events, is_cut_short, .. } = log;
        let kept = ClusterEvents { cluster, events, is_cut_short, has_stopped };
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    }
}

/// The rank of a block, and an offset in its shared memory.
type Place = (usize, u64);

/// The events of a running cluster.
#[derive(Debug)]
pub(crate) struct EventLog {
    room: Arc<AtomicI64>,
    events: Vec<Event>,
    is_cut_short: bool,
    /// The pieces of the step that executes, and what it does with them.
    pieces: Vec<Piece>,
    access: Option<(EventKind, Detail)>,
    /// The barrier and the phase for which a warp waits, by rank and index.
    blocked: FxHashMap<(u32, u32), (Place, i64)>,
}

impl EventLog {
    pub fn new(all: &Events) -> Self {
        Self {
            room: Arc::clone(&all.room),
            events: Vec::new(),
            is_cut_short: false,
            pieces: Vec::new(),
            access: None,
            blocked: FxHashMap::default(),
        }
    }

    /// Adds a part of the access that the current step makes.
    pub fn piece(&mut self, kind: EventKind, piece: Piece) {
        self.access.get_or_insert((kind, Detail::default()));
        self.pieces.push(piece);
    }

    /// Begins the copy of a lane. Its pieces follow.
    pub fn copy(&mut self, kind: EventKind, (rank, offset): Place, bytes: u32) {
        let place = Some((rank as u32, offset as u32));
        self.access.get_or_insert((kind, Detail { place, bytes, ..Detail::default() }));
    }

    /// Ends the access of the current step, if it made one.
    #[inline]
    pub fn end_access(&mut self, site: u32, (rank, warp): (usize, usize)) {
        let Some((kind, detail)) = self.access.take() else { return };
        let pieces = std::mem::take(&mut self.pieces);
        self.push(Event { kind, instruction: site, rank: rank as u32, warp: warp as u32, detail, pieces });
    }

    /// Adds an event without an access.
    pub fn note(&mut self, kind: EventKind, site: u32, (rank, warp): (usize, usize), detail: Detail) {
        // A copy starts before its bytes arrive.
        self.end_access(site, (rank, warp));
        let (rank, warp) = (rank as u32, warp as u32);
        let event = Event { kind, instruction: site, rank, warp, detail, pieces: Vec::new() };
        // The lanes of a warp that do the same make one event.
        match self.events.last_mut() {
            Some(last) if *last == event && !matches!(kind, EventKind::Dot | EventKind::SyncDot) => {}
            Some(last) if is_same_arrival(last, &event) => {
                last.detail.count += detail.count;
                last.detail.completes |= detail.completes;
            }
            _ => self.push(event),
        }
    }

    /// Notes that a warp waits for a phase, once.
    pub fn blocked(&mut self, site: u32, warp: (usize, usize), place: Place, detail: Detail) {
        let key = (warp.0 as u32, warp.1 as u32);
        if self.blocked.insert(key, (place, detail.phase)) != Some((place, detail.phase)) {
            self.note(EventKind::Blocked, site, warp, detail);
        }
    }

    /// Notes that a warp found the phase complete.
    pub fn passed(&mut self, site: u32, warp: (usize, usize), detail: Detail) {
        self.blocked.remove(&(warp.0 as u32, warp.1 as u32));
        self.note(EventKind::Wait, site, warp, detail);
    }

    fn push(&mut self, event: Event) {
        let bytes = size_of::<Event>() + event.pieces.len() * size_of::<Piece>();
        self.is_cut_short |= self.room.fetch_sub(bytes as i64, Ordering::Relaxed) < bytes as i64;
        if !self.is_cut_short {
            self.events.push(event);
        }
    }
}

/// Returns whether an event is another arrival of the same instruction in the same phase.
fn is_same_arrival(last: &Event, event: &Event) -> bool {
    let whole = |event: &Event| {
        let Detail { place, phase, bytes, .. } = event.detail;
        (event.kind, event.instruction, event.rank, event.warp, place, phase, bytes)
    };
    event.kind == EventKind::Arrive && !last.detail.completes && whole(last) == whole(event)
}
