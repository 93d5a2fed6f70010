//! Which lanes of a warp accessed each byte of a block's shared memory since the warp last synchronised its lanes.
//!
//! The race detector of shared memory takes a warp for one agent. In a launch that is watched for races, this says more: an
//! access races with one of another lane of the same warp if at least one writes and no `bar.warp.sync`, and no barrier, stands
//! between them. A write of the bytes that are there already does not race with an earlier write.

use super::shadow::{Proxy, Record};
use crate::fault::{Cause, Outcome};

/// Who accesses.
#[derive(Clone, Copy, Debug)]
pub struct LaneAccess {
    /// The warp, by its agent.
    pub agent: u32,
    pub lane: u32,
    /// How often the warp has synchronised its lanes.
    pub phase: u32,
    pub instruction: u32,
    pub is_write: bool,
}

/// The last accesses of one kind to a byte, by lanes of one warp in one phase.
#[derive(Clone, Copy, Default)]
struct Last {
    agent: u32,
    phase: u32,
    lanes: u32,
    instruction: u32,
}

impl Last {
    /// The lanes besides that one, if they are of its warp and phase.
    fn others(&self, now: &LaneAccess) -> u32 {
        let is_same = self.agent == now.agent && self.phase == now.phase;
        if is_same { self.lanes & !(1 << now.lane) } else { 0 }
    }

    fn of(now: &LaneAccess) -> Self {
        Self { agent: now.agent, phase: now.phase, lanes: 1 << now.lane, instruction: now.instruction }
    }
}

/// The shadow of a block's shared memory.
pub struct LaneShadow {
    writes: Vec<Last>,
    reads: Vec<Last>,
}

impl LaneShadow {
    /// Of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { writes: vec![Last::default(); bytes], reads: vec![Last::default(); bytes] }
    }

    /// Notes an access that is inside. `is_same` says of a byte, counted from the first, whether it is written with what it
    /// holds already.
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
            *kept = Last::of(&now);
            kept.lanes |= others;
        }
        Ok(())
    }
}
