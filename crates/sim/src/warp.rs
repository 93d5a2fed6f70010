//! Tracks the program position of each lane of a warp, and their divergence.
//!
//! Lanes at the same step are a group and execute together. The group with the lowest step runs
//! first, so that diverged lanes rejoin:
//!
//! ```text
//! step 4: @p bra 7           lanes 0 to 7 go to step 7, the others to step 5
//! step 5, 6                  the others run first
//! step 7                     all lanes are one group again
//! ```
//!
//! Compilers mostly order blocks so that paths rejoin at a higher step. Otherwise, lanes rejoin at
//! the next warp-synchronous instruction. Only counters depend on this.
//!
//! A lane at a lower step may spin until a lane at a higher step acts, so the preference flips
//! every [`PREFERENCE_STEPS`] steps. The group that is deepest in calls ([`crate::call`]) comes
//! before all others. At warp-synchronous instructions, a group waits for the other lanes.

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
    /// True if the step could not complete in this turn.
    pub is_waiting: bool,
    /// The barrier for which these lanes wait: its index and generation.
    pub arrived: Option<(usize, u64)>,
}

pub(crate) struct Warp {
    pub index: usize,
    /// The rank of the block in the cluster.
    pub rank: usize,
    pub registers: Registers,
    pub agent: Agent,
    pub local: Local,
    /// The region of global memory of the last access.
    pub hint: usize,
    /// The lanes that exist in the block.
    pub existing: u32,
    /// The lanes that have not exited.
    pub alive: u32,
    /// The groups of lanes, sorted by step.
    pub groups: SmallVec<[Group; 4]>,
    /// The number of attempts to execute a step.
    pub time: u64,
    /// The generation of the cluster's barrier at which lanes have arrived.
    pub cluster_arrival: Option<u64>,
    /// The lanes that have arrived in `cluster_arrival`.
    pub cluster_arrived: u32,
    /// The active calls of each lane, or empty if all are inlined.
    pub returns: Vec<Vec<Return>>,
    /// The global address of the warp's last atomic read.
    pub polled: u64,
}

/// The steps of a warp before the preference among its groups flips.
const PREFERENCE_STEPS: u64 = 4096;

impl Warp {
    /// Hashes the state that determines the next steps, without shared and global memory.
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

    /// Returns the group to run next, if any can run.
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

    /// Moves lanes of a group to a step.
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

    /// Moves lanes of a group to their own steps, and the rest to the next step.
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

    /// Makes lanes of a group wait, and moves the rest to the next step.
    pub fn hold(&mut self, index: usize, lanes: u32) {
        let group = &mut self.groups[index];
        let (rest, step) = (group.lanes & !lanes, group.step);
        group.is_waiting = true;
        if rest != 0 {
            self.send(index, rest, step + 1);
        }
    }

    /// Removes exiting lanes of a group, and moves the rest to the next step.
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
