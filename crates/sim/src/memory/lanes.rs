//! Records the lanes of a warp that have accessed each byte of a block's shared memory since the
//! warp last synchronized its lanes.
//!
//! The race detector of shared memory treats a warp as one agent. A launch that is watched for
//! races also detects races between lanes of a warp. Such a race is two accesses of different lanes
//! to a byte, at least one of them a write, without synchronization in between. `bar.warp.sync`, a
//! barrier, or an acquiring wait for an `mbarrier` synchronizes lanes. A write that does not change
//! the bytes does not race with an earlier write.

use super::shadow::{Proxy, Record};
use crate::fault::{Cause, Outcome};

/// The lane that accesses a byte, with its warp and phase.
#[derive(Clone, Copy, Debug)]
pub struct LaneAccess {
    /// The agent of the warp.
    pub agent: u32,
    pub lane: u32,
    /// The warp's [`lane_phase`](super::clock::Agent::lane_phase).
    pub phase: u32,
    pub instruction: u32,
    pub is_write: bool,
}

/// The last reads of a byte, or its last writes, by lanes of the same warp in the same phase.
#[derive(Clone, Copy, Default)]
struct LastAccess {
    agent: u32,
    phase: u32,
    lanes: u32,
    instruction: u32,
}

impl LastAccess {
    /// Returns a mask of the other lanes of these accesses, or 0 if the accesses are of another
    /// warp or phase.
    fn others(&self, now: &LaneAccess) -> u32 {
        let is_same = self.agent == now.agent && self.phase == now.phase;
        if is_same { self.lanes & !(1 << now.lane) } else { 0 }
    }

    fn of(now: &LaneAccess) -> Self {
        Self { agent: now.agent, phase: now.phase, lanes: 1 << now.lane, instruction: now.instruction }
    }
}

/// The lane accesses of a block's shared memory.
pub struct LaneShadow {
    writes: Vec<LastAccess>,
    reads: Vec<LastAccess>,
}

impl LaneShadow {
    /// Creates the shadow of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        Self { writes: vec![LastAccess::default(); bytes], reads: vec![LastAccess::default(); bytes] }
    }

    /// Checks and records an access within bounds. `is_same` returns whether the write keeps the
    /// value of the byte at an offset in the access.
    pub fn access(
        &mut self,
        now: LaneAccess,
        offset: u64,
        bytes: usize,
        is_same: impl Fn(usize) -> bool,
    ) -> Outcome {
        for byte in 0..bytes {
            let place = offset as usize + byte;
            let (write, read) = (self.writes[place], self.reads[place]);
            let races = write.others(&now) != 0 && !(now.is_write && is_same(byte));
            let first = match () {
                () if races => Some((write, true)),
                () if now.is_write && read.others(&now) != 0 => Some((read, false)),
                () => None,
            };
            if let Some((first, is_write)) = first {
                let first = Record {
                    agent: first.agent,
                    step: 0,
                    instruction: first.instruction,
                    proxy: Proxy::Generic,
                    is_atomic: false,
                    is_write,
                };
                return Err(Cause::Race { offset: place as u32, first, is_write: now.is_write }.into());
            }
            let kept = if now.is_write { &mut self.writes[place] } else { &mut self.reads[place] };
            let others = kept.others(&now);
            *kept = LastAccess::of(&now);
            kept.lanes |= others;
        }
        Ok(())
    }
}
