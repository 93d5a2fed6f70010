//! Executes the `mbarrier` instructions.
//!
//! A table outside of shared memory has the state of each barrier. Shared memory has bits that
//! encode the state; different bits mean that an ordinary store has overwritten the barrier, which
//! is a fault.
//!
//! To the race detector, initializing and invalidating a barrier are writes, and all other
//! operations are atomic reads. A use that is not ordered after the initialization is therefore a
//! race.

use super::mbarrier::{Mbarrier, Token};
use super::pointer::Pointer;
use super::{Barrier, illegal};
use crate::context::{Context, Execute, Flow, ResolvedAddress, aligned};
use crate::events::{Detail, EventKind};
use crate::fault::{FaultKind, OfLane, Outcome};
use crate::memory::shared::Accessor;
use crate::memory::{Agent, Clock};
use crate::registers::{Slot, lanes_of};

/// The size of a barrier in bytes.
pub(super) const BARRIER_BYTES: usize = 8;

/// The address of a barrier: the block's rank and the offset in its shared memory.
pub(crate) type BarrierAddress = (usize, u64);

/// `mbarrier.init`.
pub(crate) struct Init {
    pub barrier: Pointer,
    pub count: Slot,
}

impl Execute for Init {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        for lane in lanes_of(context.lanes) {
            let (rank, offset) = self.barrier.shared(context, lane).of_lane(lane)?;
            aligned(ResolvedAddress::Shared { rank, offset }, BARRIER_BYTES as u32, true).of_lane(lane)?;
            let state = Mbarrier::new(context.get(self.count, lane) as u32, Clock::new(context.agents))
                .map_err(Into::into)
                .of_lane(lane)?;
            write(context, (rank, offset), &state.bits().to_le_bytes()).of_lane(lane)?;
            let barrier =
                Barrier { bits: state.bits(), state, maker: (context.rank, context.warp), is_public: false };
            if context.blocks[rank].asynchronous.barriers.insert(offset, barrier).is_some() {
                return illegal(format!(
                    "mbarrier.init of the mbarrier at {offset:#x} in shared memory, which is initialized already: mbarrier.inval is missing"
                ))
                .of_lane(lane);
            }
            let count = context.get(self.count, lane) as u32;
            record_change(context, EventKind::Init, (rank, offset), (0, 0), (count, 0));
        }
        Ok(Flow::Next)
    }
}

/// `mbarrier.inval`.
pub(crate) struct Invalidate {
    pub barrier: Pointer,
}

impl Execute for Invalidate {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        for lane in lanes_of(context.lanes) {
            let (rank, offset) = self.barrier.shared(context, lane).of_lane(lane)?;
            with_barrier(context, (rank, offset), |_| Ok(())).of_lane(lane)?;
            write(context, (rank, offset), &[0; BARRIER_BYTES]).of_lane(lane)?;
            context.blocks[rank].asynchronous.barriers.remove(&offset);
        }
        Ok(Flow::Next)
    }
}

fn write(context: &mut Context<'_>, (rank, offset): BarrierAddress, bytes: &[u8]) -> Outcome {
    let accessor = Accessor::generic(context.agent, context.instruction, false);
    context.blocks[rank].shared.write(&accessor, offset, bytes)
}

/// Applies a change to a barrier on behalf of the warp.
///
/// # Errors
/// If there is no barrier, or an ordinary store has overwritten it. Also if its initialization is
/// not ordered before this access, or if the change fails.
pub(super) fn with_barrier<T>(
    context: &mut Context<'_>,
    (rank, offset): BarrierAddress,
    change: impl FnOnce(&mut Mbarrier) -> Result<T, FaultKind>,
) -> Outcome<T> {
    let accessor = Accessor::generic(context.agent, context.instruction, true);
    let memory = &mut context.blocks[rank];
    let Some(barrier) = memory.asynchronous.barriers.get_mut(&offset) else {
        return illegal(format!(
            "there is no mbarrier at {offset:#x} in shared memory: mbarrier.init is missing"
        ));
    };
    let mut bytes = [0; BARRIER_BYTES];
    memory.shared.peek(offset, &mut bytes)?;
    if u64::from_le_bytes(bytes) != barrier.bits {
        return illegal(format!(
            "the mbarrier at {offset:#x} in shared memory was overwritten by an ordinary store"
        ));
    }
    memory.shared.read(&accessor, offset, &mut bytes)?;
    let result = change(&mut barrier.state)?;
    barrier.bits = barrier.state.bits();
    memory.shared.poke(offset, &barrier.bits.to_le_bytes())?;
    Ok(result)
}

/// Counts the bytes of an asynchronous copy at a barrier.
pub(super) fn complete(
    context: &mut Context<'_>,
    place: BarrierAddress,
    bytes: u32,
    copy: &Agent,
) -> Outcome {
    let own = (context.rank, context.warp);
    if let Some(barrier) = context.blocks[place.0].asynchronous.barriers.get(&place.1)
        && !barrier.is_public
        && barrier.maker == own
    {
        return illegal(format!(
            "a bulk copy signals the mbarrier at {:#x} in shared memory, and neither fence.mbarrier_init, \
             fence.proxy.async nor a barrier came since its mbarrier.init",
            place.1
        ));
    }
    let change = with_barrier(context, place, |barrier| {
        let before = barrier.phase();
        barrier.complete(bytes, &copy.clock)?;
        Ok((before, barrier.phase()))
    })?;
    record_change(context, EventKind::Complete, place, change, (0, bytes));
    Ok(())
}

pub(crate) fn arrive_once(context: &mut Context<'_>, place: BarrierAddress, clock: &Clock) -> Outcome {
    let change = with_barrier(context, place, |barrier| {
        let before = barrier.phase();
        barrier.arrive(1, true, clock)?;
        Ok((before, barrier.phase()))
    })?;
    record_change(context, EventKind::Complete, place, change, (1, 0));
    Ok(())
}

/// Records an event at a barrier, with its phases before and after. `amounts` are arrivals and bytes.
pub(super) fn record_change(
    context: &mut Context<'_>,
    kind: EventKind,
    (rank, offset): BarrierAddress,
    (before, after): (u64, u64),
    (count, bytes): (u32, u32),
) {
    let place = Some((rank as u32, offset as u32));
    context.record(kind, Detail { place, phase: before as i64, count, bytes, completes: before != after });
}

/// `mbarrier.expect_tx` and `mbarrier.complete_tx`.
pub(crate) struct Transact {
    pub barrier: Pointer,
    pub bytes: Slot,
    /// True if the bytes have arrived, false if they are expected.
    pub is_complete: bool,
}

impl Execute for Transact {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        for lane in lanes_of(context.lanes) {
            let place = self.barrier.shared(context, lane).of_lane(lane)?;
            let bytes = context.get(self.bytes, lane) as u32;
            let clock = self.is_complete.then(|| context.agent.release());
            let change = with_barrier(context, place, |barrier| {
                let before = barrier.phase();
                match &clock {
                    Some(clock) => barrier.complete(bytes, clock)?,
                    None => barrier.expect(bytes)?,
                }
                Ok((before, barrier.phase()))
            })
            .of_lane(lane)?;
            let kind = if self.is_complete { EventKind::Complete } else { EventKind::Expect };
            record_change(context, kind, place, change, (0, bytes));
        }
        Ok(Flow::Next)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrivalKind {
    /// True for `arrive_drop`.
    pub drops: bool,
    /// True without `.noComplete`.
    pub may_complete: bool,
}

/// `mbarrier.arrive` and `mbarrier.arrive_drop`.
pub(crate) struct Arrive {
    pub barrier: Pointer,
    pub kind: ArrivalKind,
    /// The number of arrivals, 1 by default.
    pub count: Option<Slot>,
    /// `.expect_tx`: the bytes that the phase additionally expects.
    pub expected_bytes: Option<Slot>,
    /// True without `.relaxed`. Waiting agents are then ordered after the earlier accesses of this
    /// warp.
    pub releases: bool,
    pub token: Option<Slot>,
}

impl Execute for Arrive {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let step = context.agent.step();
        let clock = if self.releases { context.agent.release() } else { Clock::new(context.agents) };
        for lane in lanes_of(context.lanes) {
            let place = self.barrier.shared(context, lane).of_lane(lane)?;
            if self.releases {
                let place = ResolvedAddress::Shared { rank: place.0, offset: place.1 };
                context.visit(place, context.agent.index, step).of_lane(lane)?;
            }
            let count = self.count.map_or(1, |slot| context.get(slot, lane) as u32);
            let bytes = self.expected_bytes.map(|slot| context.get(slot, lane) as u32);
            let (Token(token), change) = with_barrier(context, place, |barrier| {
                let before = barrier.phase();
                if let Some(bytes) = bytes {
                    barrier.expect(bytes)?;
                }
                let token = if self.kind.drops {
                    barrier.drop(count, self.kind.may_complete, &clock)?
                } else {
                    barrier.arrive(count, self.kind.may_complete, &clock)?
                };
                Ok((token, (before, barrier.phase())))
            })
            .of_lane(lane)?;
            record_change(context, EventKind::Arrive, place, change, (count, bytes.unwrap_or(0)));
            if let Some(slot) = self.token {
                context.set(slot, lane, token);
            }
        }
        Ok(Flow::Next)
    }
}

/// The phase for which an instruction waits.
#[derive(Clone, Copy)]
pub(crate) enum Phase {
    /// The phase of a token.
    Token(Slot),
    /// The current phase or the previous one, by its parity.
    Parity(Slot),
}

/// `mbarrier.test_wait` and `mbarrier.try_wait`.
///
/// On hardware, both may report a complete phase as incomplete for a while. The simulator completes
/// copies at once. A warp's first test of a complete phase still reports false, to expose programs
/// that ignore the result.
pub(crate) struct Test {
    pub barrier: Pointer,
    pub phase: Phase,
    pub is_complete: Slot,
    /// True for `try_wait`, which waits until the phase is complete. It ignores the time limit, so
    /// a program that relies on the limit deadlocks.
    pub may_wait: bool,
    /// True without `.relaxed`. Later accesses of the warp are then ordered after the arrivals.
    pub acquires: bool,
}

/// The number of consecutive failed tests after which `test_wait` waits, too. Endless polling thus
/// becomes a deadlock.
const PATIENCE: u32 = 1 << 14;

impl Test {
    /// Returns the clock to acquire if the phase is complete, and the current phase.
    fn lookup(
        &self,
        context: &mut Context<'_>,
        place: BarrierAddress,
        phase: u64,
    ) -> Outcome<(Option<Clock>, u64)> {
        with_barrier(context, place, |barrier| {
            let clock = match self.phase {
                Phase::Token(_) => barrier.test(Token(phase))?,
                Phase::Parity(_) => barrier.test_parity(phase & 1 == 1),
            };
            Ok((clock.cloned(), barrier.phase()))
        })
    }
}

/// Records that the warp waits for a phase, or that it found the phase complete.
fn record_wait(context: &mut Context<'_>, place: BarrierAddress, phase: i64, is_blocked: bool) {
    let (site, warp) = (context.instruction, (context.rank, context.warp));
    let Some(events) = &mut context.events else { return };
    let detail = Detail { place: Some((place.0 as u32, place.1 as u32)), phase, ..Detail::default() };
    if is_blocked {
        events.blocked(site, warp, place, detail);
    } else {
        events.passed(site, warp, detail);
    }
}

impl Execute for Test {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let (warp, mut is_first) = (context.warp, false);
        let mut complete = Vec::new();
        let mut needed = None;
        for lane in lanes_of(context.lanes) {
            let place = self.barrier.shared(context, lane).of_lane(lane)?;
            let (Phase::Token(slot) | Phase::Parity(slot)) = self.phase;
            let phase = context.get(slot, lane);
            let (clock, current) = self.lookup(context, place, phase).of_lane(lane)?;
            needed = Some((place, current as i64 - i64::from(clock.is_some())));
            if let Some(clock) = clock {
                let tested = &mut context.block().asynchronous.warp(warp).tested;
                is_first |= tested.insert(place, current) != Some(current);
                complete.push((lane, clock));
            }
        }
        if is_first {
            complete.clear();
        }
        let failures = &mut context.block().asynchronous.warp(warp).failed_tests;
        *failures = if complete.is_empty() { *failures + 1 } else { 0 };
        let waits = complete.is_empty() && !is_first && (self.may_wait || *failures > PATIENCE);
        context.block().asynchronous.warp(warp).waits_for = needed.filter(|_| waits);
        if let Some((place, phase)) = needed.filter(|_| !is_first) {
            record_wait(context, place, phase, complete.is_empty());
        }
        if waits {
            return Ok(Flow::Wait);
        }
        for lane in lanes_of(context.lanes) {
            context.set(self.is_complete, lane, 0);
        }
        for (lane, clock) in complete {
            context.set(self.is_complete, lane, 1);
            if self.acquires {
                context.agent.lane_phase += 1;
                context.agent.acquire(&clock);
            }
        }
        Ok(Flow::Next)
    }
}

/// `mbarrier.pending_count`.
pub(crate) struct PendingCount {
    pub d: Slot,
    pub token: Slot,
}

impl Execute for PendingCount {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        for lane in lanes_of(context.lanes) {
            let token = Token(context.get(self.token, lane));
            context.set(self.d, lane, token.pending().into());
        }
        Ok(Flow::Next)
    }
}
