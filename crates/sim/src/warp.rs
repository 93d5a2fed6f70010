//! Represents a warp: the program position of each lane, and the divergence of lanes.
//!
//! Lanes at the same step are a group and execute together. The group with the lowest step runs
//! first, unless it has to wait. A group at a higher step waits until the running group reaches its
//! step; then the two groups merge. Nearly all compilers order the basic blocks of a function so
//! that diverged paths rejoin at a higher step. Otherwise the lanes rejoin at the next
//! warp-synchronous instruction. Only the counters depend on where lanes rejoin.
//!
//! A lane at a lower step may spin until a lane at a higher step acts. So the preference flips
//! every [`PREFERENCE_STEPS`] steps. If a lane is in a call that is not inlined ([`crate::call`]),
//! the group that is deepest in calls runs first. Only then does the step decide.
//!
//! At warp-synchronous instructions (`bar.sync`, `shfl.sync`, `mma.sync` …) a group waits until the
//! other lanes have arrived.

use std::hash::{Hash, Hasher};

use smallvec::{SmallVec, smallvec};

use crate::call::Return;
use crate::memory::{Agent, Local};
use crate::registers::{LANES, Registers, lanes_of};

/// Lanes at the same step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub step: u32,
    pub lanes: u32,
    /// True if the step could not complete in the current turn of the warp.
    pub is_waiting: bool,
    /// The barrier that these lanes have arrived at and wait for: its index and the generation.
    pub arrived: Option<(usize, u64)>,
}

/// A warp.
pub(crate) struct Warp {
    /// The index of the warp in its block.
    pub index: usize,
    /// The rank of the block in the cluster.
    pub rank: usize,
    pub registers: Registers,
    pub agent: Agent,
    pub local: Local,
    /// The index of the region of global memory that the warp accessed last.
    pub hint: usize,
    /// The lanes that exist in the block.
    pub existing: u32,
    /// The lanes that have not exited.
    pub alive: u32,
    /// The groups of lanes, sorted by step.
    pub groups: SmallVec<[Group; 4]>,
    /// The number of attempts of the warp to execute a step; a step that has to wait is attempted
    /// several times.
    pub time: u64,
    /// The generation of the cluster's barrier in which lanes of the warp have arrived.
    pub cluster_arrival: Option<u64>,
    /// The lanes that have arrived at the cluster's barrier in the generation `cluster_arrival`.
    pub cluster_arrived: u32,
    /// The active calls of each lane; empty if the decoder inlined every call.
    pub returns: Vec<Vec<Return>>,
    /// The global address of the warp's last atomic read.
    pub polled: u64,
}

/// Steps of a warp before the preference among its groups flips.
const PREFERENCE_STEPS: u64 = 4096;

impl Warp {
    /// Hashes the state that determines the warp's next steps, without shared and global memory.
    pub fn hash_state(&self, hasher: &mut impl Hasher) {
        (self.alive, self.cluster_arrived, self.time / PREFERENCE_STEPS % 2).hash(hasher);
        for group in &self.groups {
            (group.step, group.lanes, group.arrived.map(|(barrier, _)| barrier)).hash(hasher);
        }
        self.registers.all().hash(hasher);
        self.local.bytes().hash(hasher);
        self.returns.iter().map(Vec::len).for_each(|depth| depth.hash(hasher));
    }

    /// Creates a warp with these lanes, at the first step.
    pub fn new(
        index: usize,
        rank: usize,
        existing: u32,
        registers: Registers,
        agent: Agent,
        local: Local,
    ) -> Self {
        let first = Group { step: 0, lanes: existing, is_waiting: false, arrived: None };
        Self {
            index,
            rank,
            registers,
            agent,
            local,
            hint: 0,
            existing,
            alive: existing,
            groups: smallvec![first],
            time: 0,
            cluster_arrival: None,
            cluster_arrived: 0,
            returns: Vec::new(),
            polled: 0,
        }
    }

    /// Returns the index of the group to run next, if any group can run.
    #[inline]
    pub fn next(&self) -> Option<usize> {
        if let [only] = &self.groups[..] {
            return (!only.is_waiting).then_some(0);
        }
        let mut ready = (0..self.groups.len()).filter(|index| !self.groups[*index].is_waiting);
        if !self.returns.is_empty() {
            // The group that is deepest in calls runs first, so that lanes rejoin at the call.
            let depth = |index: &usize| {
                let lane = self.groups[*index].lanes.trailing_zeros() as usize;
                (self.returns[lane].len(), std::cmp::Reverse(*index))
            };
            return if (self.time / PREFERENCE_STEPS).is_multiple_of(2) {
                ready.max_by_key(depth)
            } else {
                ready.min_by_key(depth)
            };
        }
        if (self.time / PREFERENCE_STEPS).is_multiple_of(2) { ready.next() } else { ready.next_back() }
    }

    /// Moves lanes of a group to a step; the rest of the group stays.
    #[inline]
    pub fn send(&mut self, index: usize, lanes: u32, step: u32) {
        let group = &mut self.groups[index];
        let moved = Group { step, lanes, is_waiting: false, arrived: None };
        if group.lanes == lanes {
            *group = moved;
            if self.groups.len() == 1 {
                return;
            }
        } else {
            group.lanes &= !lanes;
            self.groups.push(moved);
        }
        self.merge();
    }

    /// Moves each of some lanes of a group to its own step; the rest goes to the next step.
    pub fn scatter(&mut self, index: usize, lanes: u32, targets: &[u32; LANES]) {
        self.groups[index].step += 1;
        let mut rest = lanes;
        while rest != 0 {
            let target = targets[rest.trailing_zeros() as usize];
            let together = lanes_of(rest).filter(|lane| targets[*lane] == target);
            let together = together.fold(0, |mask, lane| mask | 1 << lane);
            let holder = self.groups.iter().position(|group| group.lanes & together != 0);
            self.send(holder.expect("the lanes are in a group"), together, target);
            rest &= !together;
        }
    }

    /// Makes lanes of a group wait at their step; the rest goes to the next step.
    pub fn hold(&mut self, index: usize, lanes: u32) {
        let group = &mut self.groups[index];
        let (rest, step) = (group.lanes & !lanes, group.step);
        group.is_waiting = true;
        if rest != 0 {
            self.send(index, rest, step + 1);
        }
    }

    /// Removes exiting lanes of a group; the rest goes to the next step.
    pub fn exit(&mut self, index: usize, lanes: u32) {
        self.alive &= !lanes;
        let group = &mut self.groups[index];
        group.lanes &= !lanes;
        group.step += 1;
        if group.lanes == 0 {
            self.groups.remove(index);
        }
        self.merge();
    }

    fn merge(&mut self) {
        self.groups.sort_unstable_by_key(|group| group.step);
        let mut index = 1;
        while index < self.groups.len() {
            let (before, this) = (self.groups[index - 1], self.groups[index]);
            if before.step == this.step && before.arrived.is_none() && this.arrived.is_none() {
                self.groups[index - 1].lanes |= this.lanes;
                self.groups[index - 1].is_waiting = false;
                self.groups.remove(index);
            } else {
                index += 1;
            }
        }
    }
}
