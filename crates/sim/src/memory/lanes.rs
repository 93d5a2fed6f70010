//! Detects races between the lanes of a warp in shared memory.
//!
//! The race detector of shared memory treats a warp as one agent. A launch that is watched for
//! races also checks lanes: two lanes access a byte, at least one writes, and no synchronization is
//! in between. `bar.warp.sync`, a barrier, and an acquiring wait for an `mbarrier` synchronize
//! lanes. A write that does not change the bytes does not race with an earlier write.

use super::shadow::{Proxy, Record};
use crate::fault::{Cause, Outcome};

/// The lane of an access, its warp and its phase.
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

/// The last reads or writes of a byte, by lanes of one warp in one phase.
#[derive(Clone, Copy, Default)]
struct LastAccess {
    agent: u32,
    phase: u32,
    lanes: u32,
    instruction: u32,
}

impl LastAccess {
    /// Returns the other lanes of these accesses, or 0 for another warp or phase.
    fn others(&self, now: &LaneAccess) -> u32 {
        let is_same = self.agent == now.agent && self.phase == now.phase;
        if is_same { self.lanes & !(1 << now.lane) } else { 0 }
    }

    fn of(now: &LaneAccess) -> Self {
        Self { agent: now.agent, phase: now.phase, lanes: 1 << now.lane, instruction: now.instruction }
    }
}

pub struct LaneShadow {
    writes: Vec<LastAccess>,
    reads: Vec<LastAccess>,
}

impl LaneShadow {
    pub fn new(bytes: usize) -> Self {
        Self { writes: vec![LastAccess::default(); bytes], reads: vec![LastAccess::default(); bytes] }
    }

    /// Checks and records an access within bounds. `is_same` returns whether the write keeps the
    /// byte at an offset.
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
