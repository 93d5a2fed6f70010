//! Executes `cp.async`: each lane copies 4, 8 or 16 bytes from global to shared memory.

use tilewright_sanitize::Mode;

use super::barriers::{record_change, with_barrier};
use super::pointer::Pointer;
use super::{Channel, illegal};
use crate::context::{Context, Execute, Flow, ResolvedAddress, aligned};
use crate::events::{Detail, EventKind, Piece};
use crate::fault::{OfLane, Outcome};
use crate::memory::Clock;
use crate::memory::shared::Accessor;
use crate::registers::{Slot, lanes_of};
use crate::watch::Touch;

/// The copied part of the source. Zeros fill the rest of the destination.
pub(crate) enum SourceSize {
    /// All bytes.
    All,
    /// The number of bytes in the register.
    Bytes(Slot),
    /// No bytes where the predicate is true, otherwise all.
    IgnoredIf(Slot),
}

/// `cp.async.ca` and `cp.async.cg`.
pub(crate) struct Copy {
    pub destination: Pointer,
    pub source: Pointer,
    /// 4, 8 or 16 bytes.
    pub bytes: usize,
    pub source_size: SourceSize,
}

impl Copy {
    /// Returns the number of bytes that a lane copies.
    fn source_bytes(&self, context: &Context<'_>, lane: usize) -> Outcome<usize> {
        match self.source_size {
            SourceSize::All => Ok(self.bytes),
            SourceSize::IgnoredIf(slot) => Ok(if context.get(slot, lane) & 1 == 1 { 0 } else { self.bytes }),
            SourceSize::Bytes(slot) => {
                let size = context.get(slot, lane) as u32 as usize;
                if size > self.bytes {
                    return illegal(format!("cp.async of {} bytes has a source of {size} bytes", self.bytes))
                        .of_lane(lane);
                }
                Ok(size)
            }
        }
    }
}

impl Execute for Copy {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let warp = context.warp;
        let agent = context.fork(Channel::Copies(warp));
        let (mut requests, mut offsets) = (Vec::new(), Vec::new());
        for lane in lanes_of(context.lanes) {
            let mut bytes = [0; 16];
            let size = self.source_bytes(context, lane)?;
            let buffer = self.destination.shared(context, lane).of_lane(lane)?;
            if let Some(events) = &mut context.events {
                events.copy(EventKind::CopyToShared, buffer, 0);
            }
            if size > 0 {
                let source = self.source.global(context, lane).of_lane(lane)?;
                aligned(ResolvedAddress::Global(source), self.bytes as u32, false).of_lane(lane)?;
                if let Some(events) = &mut context.events {
                    let (row, bytes) = (lane as u32, size as u32);
                    events.piece(EventKind::CopyToShared, Piece { row, offset: 0, address: source, bytes });
                }
                context.load_global(source, lane, &mut bytes[..size]).map_err(Into::into).of_lane(lane)?;
                let touch =
                    Touch { address: source, bytes: size, reads: true, writes: false, mode: Mode::Plain };
                context.watch_copy(&agent, touch, None);
                requests.push((source, size as u64));
            }
            let (rank, offset) = self.destination.shared(context, lane).of_lane(lane)?;
            aligned(ResolvedAddress::Shared { rank, offset }, self.bytes as u32, true).of_lane(lane)?;
            let accessor = Accessor::generic(&agent, context.instruction, false);
            context.blocks[rank].shared.write(&accessor, offset, &bytes[..self.bytes]).of_lane(lane)?;
            offsets.push((lane, offset));
        }
        if !requests.is_empty() {
            context.count_global(requests.into_iter(), false);
        }
        context.counters.bytes_written += (offsets.len() * self.bytes) as u64;
        context.counters.shared(&offsets, self.bytes);
        let lanes = context.lanes;
        context.block().asynchronous.warp(warp).copies.begin(lanes, agent.clock);
        Ok(Flow::Next)
    }
}

/// `cp.async.commit_group`.
pub(crate) struct Commit;

impl Execute for Commit {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let (warp, lanes) = (context.warp, context.lanes);
        context.block().asynchronous.warp(warp).copies.commit(lanes);
        context.record(EventKind::CommitCopies, Detail::default());
        Ok(Flow::Next)
    }
}

/// `cp.async.wait_group` and `cp.async.wait_all`.
pub(crate) struct Wait {
    /// The maximum number of groups that may remain in flight. `None` also waits for uncommitted
    /// copies.
    pub keep: Option<usize>,
}

impl Execute for Wait {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let (warp, lanes) = (context.warp, context.lanes);
        let copies = &mut context.block().asynchronous.warp(warp).copies;
        if self.keep.is_none() {
            copies.commit(lanes);
        }
        for clock in copies.wait(lanes, self.keep.unwrap_or(0)) {
            context.agent.acquire(&clock);
        }
        if self.keep.is_none() {
            context.record(EventKind::CommitCopies, Detail::default());
        }
        let count = self.keep.unwrap_or(0) as u32;
        context.record(EventKind::WaitCopies, Detail { count, ..Detail::default() });
        Ok(Flow::Next)
    }
}

/// `cp.async.mbarrier.arrive`: arrives at a barrier when the copies of the lanes are complete.
pub(crate) struct ArriveAfterCopies {
    pub barrier: Pointer,
    /// True with `.noinc`: the expected count includes the arrivals. Otherwise, each arrival first
    /// increments the pending count.
    pub is_expected: bool,
}

impl Execute for ArriveAfterCopies {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let warp = context.warp;
        for lane in lanes_of(context.lanes) {
            let place = self.barrier.shared(context, lane).of_lane(lane)?;
            let mut clock = Clock::new(context.agents);
            for copy in context.block().asynchronous.warp(warp).copies.pending(1 << lane) {
                clock.join(copy);
            }
            let change = with_barrier(context, place, |barrier| {
                let before = barrier.phase();
                if self.is_expected {
                    barrier.arrive(1, true, &clock)?;
                } else {
                    barrier.track(&clock);
                }
                Ok((before, barrier.phase()))
            })
            .of_lane(lane)?;
            record_change(context, EventKind::Arrive, place, change, (self.is_expected.into(), 0));
        }
        Ok(Flow::Next)
    }
}
