//! Limits how many clusters of a launch are resident, as a GPU does, and finds out that none of them can go on.
//!
//! Blocks begin in the order of their numbers, as soon as there is room, and keep their room until they end. A program that waits
//! for one without room never ends. A resident cluster is stuck if its registers, positions and shared memory are again what they were,
//! while no byte of global memory has changed: it will do the same again. If all resident clusters are stuck and no other one can
//! begin, the launch hangs.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::{FxHashMap, FxHasher};

use crate::block::Cluster;
use crate::fault::Polling;
use crate::target::SimTarget;

/// A state that is found as often has no way out.
const REPETITIONS: u32 = 3;
/// More states of a cluster are not kept.
const MAX_STATES: usize = 1 << 12;

/// Blocks that a GPU holds at a time, by what is known before the assembler has assigned registers.
pub fn resident_blocks(target: &SimTarget, threads: u64, shared_bytes: usize) -> u64 {
    let limits = target.multiprocessor();
    let warps = threads.div_ceil(32).max(1);
    let of_shared = limits.shared_bytes as u64 / (shared_bytes as u64 + limits.reserved_bytes as u64).max(1);
    let blocks = (u64::from(limits.threads) / (32 * warps)).min(limits.blocks.into()).min(of_shared).max(1);
    blocks * u64::from(limits.count)
}

/// The room of a launch.
pub(crate) struct Residency {
    /// Clusters that are resident at most.
    most: usize,
    resident: AtomicUsize,
    stuck: Mutex<Stuck>,
}

/// The clusters that are stuck while global memory has not changed.
#[derive(Default)]
struct Stuck {
    changes: u64,
    clusters: BTreeMap<u64, Polling>,
}

/// The states of a cluster that were found while global memory has not changed.
#[derive(Default)]
pub(crate) struct States {
    changes: u64,
    found: FxHashMap<u64, u32>,
}

impl Residency {
    pub fn new(most: usize) -> Self {
        Self { most, resident: AtomicUsize::new(0), stuck: Mutex::default() }
    }

    /// Takes room for a cluster, if there is some.
    pub fn enter(&self) -> bool {
        let more = |resident| (resident < self.most).then_some(resident + 1);
        self.resident.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    pub fn leave(&self) {
        self.resident.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn is_full(&self) -> bool {
        self.resident.load(Ordering::SeqCst) >= self.most
    }

    /// Notes that a cluster is stuck since global memory has changed this many times. Returns all that are stuck if these are all
    /// resident ones.
    pub fn note(&self, number: u64, changes: u64, polling: Polling) -> Option<BTreeMap<u64, Polling>> {
        let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        if stuck.changes != changes {
            *stuck = Stuck { changes, clusters: BTreeMap::new() };
        }
        stuck.clusters.insert(number, polling);
        (stuck.clusters.len() >= self.resident.load(Ordering::SeqCst)).then(|| stuck.clusters.clone())
    }
}

impl States {
    /// Whether a cluster is in a state that was found before, while global memory has changed this many times.
    pub fn is_stuck(&mut self, cluster: &Cluster<'_>, changes: u64) -> bool {
        if self.changes != changes || self.found.len() > MAX_STATES {
            *self = Self { changes, found: FxHashMap::default() };
        }
        let times = self.found.entry(fingerprint(cluster)).or_default();
        *times += 1;
        *times >= REPETITIONS
    }
}

/// A number for all that decides what a cluster does next, besides global memory.
fn fingerprint(cluster: &Cluster<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    for warp in &cluster.warps {
        warp.hash_state(&mut hasher);
    }
    for block in &cluster.blocks {
        block.shared.bytes().hash(&mut hasher);
    }
    hasher.finish()
}
