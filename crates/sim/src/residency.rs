//! Limits the resident clusters as a GPU does, and detects that none makes progress.
//!
//! Blocks begin in order as soon as a multiprocessor has room, and keep their resources until they
//! end. A cluster is stuck if its registers, positions, local and shared memory repeat while global
//! memory does not change. If all resident clusters are stuck and no other can begin, the launch
//! hangs.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::{FxHashMap, FxHasher};

use crate::block::Cluster;
use crate::fault::Polling;
use crate::target::SimTarget;

/// The number of repetitions of a state after which a cluster is stuck.
const REPETITIONS: u32 = 3;
/// The maximum number of stored states of a cluster.
const MAX_STATES: usize = 1 << 12;

/// Returns the number of blocks that a GPU has resident, by its limits on threads, blocks and
/// shared memory. Only the assembler allocates registers, so their limit does not count.
pub fn resident_blocks(target: &SimTarget, threads: u64, shared_bytes: usize) -> u64 {
    let limits = target.multiprocessor();
    let warps = threads.div_ceil(32).max(1);
    let of_shared = limits.shared_bytes as u64 / (shared_bytes as u64 + limits.reserved_bytes as u64).max(1);
    let blocks = (u64::from(limits.threads) / (32 * warps)).min(limits.blocks.into()).min(of_shared).max(1);
    blocks * u64::from(limits.count)
}

/// The slots of resident clusters of a launch.
pub(crate) struct Residency {
    max_clusters: usize,
    resident: AtomicUsize,
    stuck: Mutex<StuckClusters>,
}

/// The clusters that are stuck since the last change of global memory.
#[derive(Default)]
struct StuckClusters {
    changes: u64,
    clusters: BTreeMap<u64, Polling>,
}

/// The states of a cluster since the last change of global memory.
#[derive(Default)]
pub(crate) struct SeenStates {
    changes: u64,
    found: FxHashMap<u64, u32>,
}

impl Residency {
    pub fn new(max_clusters: usize) -> Self {
        Self { max_clusters, resident: AtomicUsize::new(0), stuck: Mutex::default() }
    }

    /// Takes a slot for a cluster, if one is free.
    pub fn enter(&self) -> bool {
        let more = |resident| (resident < self.max_clusters).then_some(resident + 1);
        self.resident.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    pub fn leave(&self) {
        self.resident.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn is_full(&self) -> bool {
        self.resident.load(Ordering::SeqCst) >= self.max_clusters
    }

    /// Records that a cluster is stuck after `changes` changes. Returns the stuck clusters if all
    /// resident ones are.
    pub fn note(&self, number: u64, changes: u64, polling: Polling) -> Option<BTreeMap<u64, Polling>> {
        let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        if stuck.changes != changes {
            *stuck = StuckClusters { changes, clusters: BTreeMap::new() };
        }
        stuck.clusters.insert(number, polling);
        (stuck.clusters.len() >= self.resident.load(Ordering::SeqCst)).then(|| stuck.clusters.clone())
    }
}

impl SeenStates {
    /// Returns whether a cluster has reached its state [`REPETITIONS`] times. First drops all
    /// states after a change of global memory, or if there are more than [`MAX_STATES`].
    pub fn is_stuck(&mut self, cluster: &Cluster<'_>, changes: u64) -> bool {
        if self.changes != changes || self.found.len() > MAX_STATES {
            *self = Self { changes, found: FxHashMap::default() };
        }
        let times = self.found.entry(fingerprint(cluster)).or_default();
        *times += 1;
        *times >= REPETITIONS
    }
}

/// Returns a hash of the state, without global memory, that determines the next steps.
fn fingerprint(cluster: &Cluster<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    for warp in &cluster.warps {
        warp.hash_state(&mut hasher);
    }
    for block in &cluster.blocks {
        block.shared.bytes().hash(&mut hasher);
        block.tensor.cells().hash(&mut hasher);
    }
    hasher.finish()
}
