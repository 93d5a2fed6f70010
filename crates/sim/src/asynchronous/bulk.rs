//! Executes bulk copies and reductions of linear memory, `st.async` and `red.async`.

use tilewright_sanitize::Mode;

use super::barriers::{self, BarrierAddress};
use super::pointer::Pointer;
use super::{Channel, illegal};
use crate::context::{Context, Execute, Flow, ResolvedAddress, aligned};
use crate::events::{Detail, EventKind, Piece};
use crate::fault::{OfLane, Outcome};
use crate::memory::shared::Accessor;
use crate::memory::{Agent, Proxy};
use crate::registers::{Slot, lanes_of};
use crate::watch::Touch;

/// The alignment in bytes of the addresses and sizes of bulk copies.
const GRANULE: u32 = 16;

/// The completion mechanism of a bulk copy.
pub(crate) enum Completion {
    /// `complete_tx` on a barrier.
    Barrier(Pointer),
    /// The bulk group of the thread that executes the copy.
    Group,
}

/// Combines the old element of the destination with an element of the source.
pub(crate) type Combine = Box<dyn Fn(u64, u64) -> u64 + Send + Sync>;

/// An elementwise combination of the destination with the source.
pub(crate) struct Reduction {
    pub element_bytes: usize,
    pub combine: Combine,
}

/// `cp.async.bulk` and `cp.reduce.async.bulk`.
pub(crate) struct BulkCopy {
    pub destination: Pointer,
    pub source: Pointer,
    pub bytes: Slot,
    pub completion: Completion,
    /// A mask of the ranks of the blocks that receive the data, or only the block of the
    /// destination.
    pub mask: Option<Slot>,
    pub reduction: Option<Reduction>,
}

impl Execute for BulkCopy {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        for lane in lanes_of(context.lanes) {
            self.execute_lane(context, lane).of_lane(lane)?;
        }
        Ok(Flow::Next)
    }
}

impl BulkCopy {
    fn execute_lane(&self, context: &mut Context<'_>, lane: usize) -> Outcome {
        let size = context.get(self.bytes, lane) as u32;
        if !size.is_multiple_of(GRANULE) {
            return illegal(format!(
                "a bulk copy of {size} bytes: the size has to be a multiple of {GRANULE}"
            ));
        }
        let (source, destination) = (self.source.place(context, lane), self.destination.place(context, lane));
        aligned(source, GRANULE, false)?;
        aligned(destination, GRANULE, true)?;
        let operation = begin(context, &self.completion, lane)?;
        record_bulk(context, source, destination, size);
        let mut data = vec![0; size as usize];
        read(context, &operation.reads, (source, lane), &mut data)?;
        let targets = targets(context, self.mask, lane, destination, operation.barrier)?;
        for (destination, barrier) in targets {
            write(context, operation.writes(), destination, &data, self.reduction.as_ref())?;
            if let Some(barrier) = barrier {
                barriers::complete(context, barrier, size, operation.writes())?;
            }
        }
        operation.end(context, lane);
        Ok(())
    }
}

/// Records a copy of contiguous bytes between global and shared memory.
fn record_bulk(context: &mut Context<'_>, source: ResolvedAddress, destination: ResolvedAddress, bytes: u32) {
    let Some(events) = &mut context.events else { return };
    let (kind, buffer, address) = match (source, destination) {
        (ResolvedAddress::Global(address), ResolvedAddress::Shared { rank, offset }) => {
            (EventKind::CopyToShared, (rank, offset), address)
        }
        (ResolvedAddress::Shared { rank, offset }, ResolvedAddress::Global(address)) => {
            (EventKind::CopyToGlobal, (rank, offset), address)
        }
        _ => return,
    };
    events.copy(kind, buffer, bytes);
    events.piece(kind, Piece { row: 0, offset: 0, address, bytes });
}

/// A copy that has begun.
pub(super) struct Operation {
    /// The agent that reads the source, and writes the destination unless `writes` is set.
    pub reads: Agent,
    /// The agent that writes global memory in a launch with a [`Watch`](crate::watch::Watch). Such
    /// writes may happen in any order, long after the reads.
    writes: Option<Agent>,
    /// The barrier that the copy completes.
    pub barrier: Option<BarrierAddress>,
}

impl Operation {
    pub fn writes(&self) -> &Agent {
        self.writes.as_ref().unwrap_or(&self.reads)
    }

    /// Adds the copy to its bulk group, unless it completes a barrier.
    pub fn end(self, context: &mut Context<'_>, lane: usize) {
        if self.barrier.is_none() {
            let warp = context.warp;
            let state = context.block().asynchronous.warp(warp);
            state.bulk_reads.begin(1 << lane, self.reads.clock);
            if let Some(writes) = self.writes {
                state.bulk_writes.begin(1 << lane, writes.completed());
            }
        }
    }
}

pub(super) fn begin(context: &mut Context<'_>, completion: &Completion, lane: usize) -> Outcome<Operation> {
    Ok(match completion {
        Completion::Group => {
            let warp = context.warp;
            let reads = context.fork(Channel::BulkReads(warp));
            let writes = context.watch.map(|_| context.fork_unordered(Channel::BulkWrites(warp)));
            Operation { reads, writes, barrier: None }
        }
        Completion::Barrier(pointer) => {
            let place = pointer.shared(context, lane)?;
            let reads = context.fork(Channel::Barrier(place.1));
            Operation { reads, writes: None, barrier: Some(place) }
        }
    })
}

/// Returns the destinations and barriers: the given pair, or the same offsets in each block of the
/// mask.
pub(super) fn targets(
    context: &Context<'_>,
    mask: Option<Slot>,
    lane: usize,
    destination: ResolvedAddress,
    barrier: Option<BarrierAddress>,
) -> Outcome<Vec<(ResolvedAddress, Option<BarrierAddress>)>> {
    let Some(slot) = mask else { return Ok(vec![(destination, barrier)]) };
    let mask = context.get(slot, lane) as u16;
    let ResolvedAddress::Shared { offset, .. } = destination else {
        return illegal("a multicast copy has to go to shared memory".into());
    };
    if mask == 0 || u32::from(mask) >> context.blocks.len() != 0 {
        return illegal(format!(
            "the mask {mask:#x} of a multicast copy has to select at least one of the cluster's {} blocks, \
             and no other",
            context.blocks.len()
        ));
    }
    let ranks = (0..context.blocks.len()).filter(|rank| mask >> rank & 1 == 1);
    Ok(ranks
        .map(|rank| (ResolvedAddress::Shared { rank, offset }, barrier.map(|(_, barrier)| (rank, barrier))))
        .collect())
}

/// Reads the source of a copy.
pub(super) fn read(
    context: &mut Context<'_>,
    agent: &Agent,
    (place, lane): (ResolvedAddress, usize),
    to: &mut [u8],
) -> Outcome {
    match place {
        ResolvedAddress::Global(address) => {
            let unfenced = &context.blocks[context.rank].asynchronous.unfenced_writes;
            if let Some(at) = unfenced.as_ref().and_then(|unfenced| unfenced.first(address, to.len())) {
                return illegal(format!(
                    "missing fence.proxy.async: a bulk copy reads global memory at {at:#x}, which its block wrote through the \
                     generic proxy"
                ));
            }
            context.load_global(address, lane, to)?;
            let touch = Touch { address, bytes: to.len(), reads: true, writes: false, mode: Mode::Plain };
            context.watch_copy(agent, touch, None);
            if !to.is_empty() {
                context.count_global(std::iter::once((address, to.len() as u64)), false);
            }
        }
        ResolvedAddress::Shared { rank, offset } => {
            context.visit(place, agent.index, agent.step())?;
            let accessor = accessor(context, agent);
            context.blocks[rank].shared.read(&accessor, offset, to)?;
            // The copy may miss writes of other lanes, unless a barrier of the warp precedes it.
            context.watch_lane((rank, offset), lane, to.len(), None)?;
            context.counters.bytes_read += to.len() as u64;
        }
        ResolvedAddress::Local(_) | ResolvedAddress::Param(_) => {
            return illegal("a bulk copy has to read global or shared memory".into());
        }
    }
    Ok(())
}

/// Writes the destination through the asynchronous proxy, combined with its old content in a
/// reduction.
pub(super) fn write(
    context: &mut Context<'_>,
    agent: &Agent,
    place: ResolvedAddress,
    from: &[u8],
    reduction: Option<&Reduction>,
) -> Outcome {
    write_by(context, (agent, Proxy::Async), place, from, reduction)
}

fn write_by(
    context: &mut Context<'_>,
    (agent, proxy): (&Agent, Proxy),
    place: ResolvedAddress,
    from: &[u8],
    reduction: Option<&Reduction>,
) -> Outcome {
    let accessor = Accessor { is_atomic: reduction.is_some(), proxy, ..accessor(context, agent) };
    let width = reduction.map_or(1, |reduction| reduction.element_bytes);
    let elements = from.chunks_exact(width).map(|bytes| {
        let mut element = [0; 8];
        element[..width].copy_from_slice(bytes);
        u64::from_le_bytes(element)
    });
    if let ResolvedAddress::Global(address) = place {
        let mode = if reduction.is_some() { Mode::Device } else { Mode::Plain };
        let touch = Touch { address, bytes: from.len(), reads: reduction.is_some(), writes: true, mode };
        context.watch_copy(agent, touch, Some(from));
    }
    match (place, reduction) {
        (ResolvedAddress::Global(address), None) => context.global.write(context.hint, address, from)?,
        (ResolvedAddress::Global(address), Some(reduction)) => {
            for (element, at) in elements.zip((address..).step_by(width)) {
                context.global.update(context.hint, at, width, |old| (reduction.combine)(old, element))?;
            }
        }
        (ResolvedAddress::Shared { rank, offset }, None) => {
            context.visit(place, agent.index, agent.step())?;
            context.blocks[rank].shared.write(&accessor, offset, from)?;
        }
        (ResolvedAddress::Shared { rank, offset }, Some(reduction)) => {
            context.visit(place, agent.index, agent.step())?;
            for (element, at) in elements.zip((offset..).step_by(width)) {
                let combine = |old: u128| (reduction.combine)(old as u64, element).into();
                context.blocks[rank].shared.update(&accessor, at, width, combine)?;
            }
        }
        (ResolvedAddress::Local(_) | ResolvedAddress::Param(_), _) => {
            return illegal("a bulk copy has to write global or shared memory".into());
        }
    }
    match place {
        ResolvedAddress::Global(_) if from.is_empty() => {}
        ResolvedAddress::Global(address) => {
            context.count_global(std::iter::once((address, from.len() as u64)), true);
        }
        ResolvedAddress::Shared { .. } | ResolvedAddress::Local(_) | ResolvedAddress::Param(_) => {
            context.counters.bytes_written += from.len() as u64;
        }
    }
    Ok(())
}

/// `st.async` and `red.async`: stores of the generic proxy whose bytes a barrier counts.
pub(crate) struct RemoteStore {
    pub destination: Pointer,
    pub values: Vec<Slot>,
    pub element_bytes: usize,
    pub barrier: Pointer,
    pub reduction: Option<Reduction>,
}

impl Execute for RemoteStore {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        for lane in lanes_of(context.lanes) {
            self.execute_lane(context, lane).of_lane(lane)?;
        }
        Ok(Flow::Next)
    }
}

impl RemoteStore {
    fn execute_lane(&self, context: &mut Context<'_>, lane: usize) -> Outcome {
        let (rank, offset) = self.destination.shared(context, lane)?;
        let mut bytes = Vec::new();
        for &slot in &self.values {
            bytes.extend_from_slice(&context.get(slot, lane).to_le_bytes()[..self.element_bytes]);
        }
        let place = ResolvedAddress::Shared { rank, offset };
        aligned(place, bytes.len() as u32, true)?;
        let barrier = self.barrier.shared(context, lane)?;
        let agent = context.fork(Channel::Barrier(barrier.1));
        write_by(context, (&agent, Proxy::Generic), place, &bytes, self.reduction.as_ref())?;
        barriers::complete(context, barrier, bytes.len() as u32, &agent)
    }
}

fn accessor<'a>(context: &Context<'_>, agent: &'a Agent) -> Accessor<'a> {
    Accessor { agent, instruction: context.instruction, proxy: Proxy::Async, is_atomic: false }
}

/// `cp.async.bulk.commit_group`.
pub(crate) struct Commit;

impl Execute for Commit {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let (warp, lanes) = (context.warp, context.lanes);
        let state = context.block().asynchronous.warp(warp);
        state.bulk_reads.commit(lanes);
        state.bulk_writes.commit(lanes);
        context.record(EventKind::CommitStores, Detail::default());
        Ok(Flow::Next)
    }
}

/// `cp.async.bulk.wait_group`. With `.read`, waits only until the sources are read.
pub(crate) struct Wait {
    /// The maximum number of groups that may remain in flight.
    pub keep: usize,
    /// True with `.read`.
    pub reads_only: bool,
}

impl Execute for Wait {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let (warp, lanes) = (context.warp, context.lanes);
        let state = context.block().asynchronous.warp(warp);
        let mut complete = state.bulk_reads.wait(lanes, self.keep);
        if !self.reads_only {
            complete.extend(state.bulk_writes.wait(lanes, self.keep));
        }
        for clock in complete {
            context.agent.acquire(&clock);
        }
        context.record(EventKind::WaitStores, Detail { count: self.keep as u32, ..Detail::default() });
        Ok(Flow::Next)
    }
}
