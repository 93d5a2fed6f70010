//! Defines the state that an instruction can access: lanes, registers and memory.

use crate::asynchronous;
use crate::asynchronous::device_tensor_maps::DeviceTensorMaps;
use crate::cluster_accesses::ClusterAccesses;
use crate::cluster_launches::ClusterLaunches;
use crate::counters::StepCounters;
use crate::events::{Detail, EventKind, EventLog, Piece};
use crate::fault::{Cause, FaultKind, Outcome};
use crate::memory::lanes::{LaneAccess, LaneShadow};
use crate::memory::shared::Accessor;
use crate::memory::{Agent, Global, Local, RANK_SHIFT, Shared, Space, TensorMemory, WINDOW_BYTES, resolve};
use crate::registers::{Registers, Slot};
use crate::watch::Watch;

/// The control flow after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// The lanes go on to the next instruction.
    Next,
    /// The instruction cannot complete yet and has changed nothing. The lanes execute it again in
    /// the next turn. It is a fault if no step of the cluster completes in a whole round.
    Wait,
}

pub(crate) trait Execute: Send + Sync {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow>;
}

/// The part of a block that other blocks of the cluster can access.
pub(crate) struct BlockMemory {
    pub shared: Shared,
    pub tensor: TensorMemory,
    /// The accesses of each lane, in a launch that is watched for races.
    pub lanes: Option<LaneShadow>,
    pub cluster_accesses: ClusterAccesses,
    pub asynchronous: asynchronous::AsyncState,
}

/// Returns the number of agents of a cluster: the warps of all blocks by rank, then the channels.
pub(crate) fn agents(blocks: usize, warps: usize) -> usize {
    blocks * (warps + asynchronous::channels(warps))
}

/// The memory and the offset that an address resolves to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResolvedAddress {
    /// Global memory, at this address.
    Global(u64),
    /// The rank of the block in the cluster, and the offset in its shared memory.
    Shared { rank: usize, offset: u64 },
    /// The offset in the local memory of the lane.
    Local(u64),
    /// The offset in the parameters of the kernel.
    Param(u64),
}

/// The state space that an instruction names for its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddressSpace {
    /// The upper bits of the address select the state space.
    Generic,
    Global,
    /// `.shared::cta` or `.shared::cluster`. Both have the same addresses for the warp's own block.
    Shared,
    Local,
    Param,
}

/// The state that an executing instruction accesses.
pub(crate) struct Context<'a> {
    /// The lanes that execute the instruction, at least one.
    pub lanes: u32,
    pub warp: usize,
    pub warps: usize,
    pub rank: usize,
    pub instruction: u32,
    pub registers: &'a mut Registers,
    pub global: &'a Global<'a>,
    /// The tensor maps that the kernel has written to global memory.
    pub maps: &'a DeviceTensorMaps,
    /// The clusters of the grid that have not begun.
    pub launches: &'a ClusterLaunches,
    /// Observes accesses to global memory, if the caller requested it. `cluster` is the index in
    /// the grid.
    pub watch: Option<&'a Watch>,
    pub cluster: u64,
    /// Caches the region of the last access.
    pub hint: &'a mut usize,
    /// The memory of the cluster's blocks, by rank.
    pub blocks: &'a mut [BlockMemory],
    pub local: &'a mut Local,
    /// The bytes of the kernel's parameters.
    pub parameters: &'a [u8],
    /// The warp as an agent of the race detector.
    pub agent: &'a mut Agent,
    /// The number of agents of the cluster.
    pub agents: usize,
    /// The number of attempts of the warp to execute a step, which `%clock` reads.
    pub time: u64,
    pub counters: &'a mut StepCounters,
    /// The global address of the warp's last atomic read.
    pub polled: &'a mut u64,
    /// The output of `vprintf`.
    pub printed: &'a mut String,
    /// The events of the cluster, if the caller requested them.
    pub events: Option<&'a mut EventLog>,
}

impl Context<'_> {
    #[inline]
    pub fn get(&self, slot: Slot, lane: usize) -> u64 {
        self.registers.get(slot)[lane]
    }

    #[inline]
    pub fn set(&mut self, slot: Slot, lane: usize, value: u64) {
        self.registers.get_mut(slot)[lane] = value;
    }

    /// Records that a lane accesses global memory.
    #[inline]
    pub fn record_access(&mut self, kind: EventKind, place: ResolvedAddress, lane: usize, bytes: usize) {
        if let (Some(events), ResolvedAddress::Global(address)) = (&mut self.events, place) {
            events.piece(kind, Piece { row: lane as u32, offset: 0, address, bytes: bytes as u32 });
        }
    }

    /// Records an event of the warp.
    #[inline]
    pub fn record(&mut self, kind: EventKind, detail: Detail) {
        if let Some(events) = &mut self.events {
            events.note(kind, self.instruction, (self.rank, self.warp), detail);
        }
    }

    pub fn block(&mut self) -> &mut BlockMemory {
        &mut self.blocks[self.rank]
    }

    /// Resolves an address. An address of shared memory that no block has becomes an out-of-bounds
    /// offset in the warp's own block.
    #[inline]
    pub fn locate(&self, space: AddressSpace, address: u64) -> ResolvedAddress {
        let (space, address) = match space {
            AddressSpace::Generic => resolve(address),
            AddressSpace::Global => (Space::Global, address),
            // Shared addresses have 32 bits. The upper half of a register may have the window of a
            // generic address.
            AddressSpace::Shared => (Space::Shared, address & (WINDOW_BYTES - 1)),
            AddressSpace::Local => (Space::Local, address & (WINDOW_BYTES - 1)),
            AddressSpace::Param => (Space::Param, address & (WINDOW_BYTES - 1)),
        };
        match space {
            Space::Global => ResolvedAddress::Global(address),
            Space::Local => ResolvedAddress::Local(address),
            Space::Param => ResolvedAddress::Param(address),
            Space::Shared => {
                let (rank, offset) = ((address >> RANK_SHIFT) as usize, address & ((1 << RANK_SHIFT) - 1));
                match rank {
                    0 => ResolvedAddress::Shared { rank: self.rank, offset },
                    _ if rank <= self.blocks.len() => ResolvedAddress::Shared { rank: rank - 1, offset },
                    _ => ResolvedAddress::Shared { rank: self.rank, offset: address },
                }
            }
        }
    }

    /// Publishes an atomic write to shared memory. With `releases`, an acquiring reader is ordered
    /// after everything that this warp has done. Otherwise, only after what preceded the warp's
    /// last fence.
    pub fn publish(&mut self, place: ResolvedAddress, releases: bool) {
        let ResolvedAddress::Shared { rank, offset } = place else { return };
        if releases {
            let clock = self.agent.release();
            self.blocks[rank].shared.publish(offset, &clock);
        } else if let Some(clock) = self.agent.publishes() {
            self.blocks[rank].shared.publish(offset, clock);
        }
    }

    /// Observes an atomic read. The steps that other agents have published at the address happen
    /// before later accesses of this warp. Without `acquires`, the order begins at its next fence.
    pub fn observe(&mut self, place: ResolvedAddress, acquires: bool) {
        if let ResolvedAddress::Global(address) = place {
            *self.polled = address;
        }
        let ResolvedAddress::Shared { rank, offset } = place else { return };
        let Some(clock) = self.blocks[rank].shared.published(offset) else { return };
        if acquires {
            self.agent.acquire(clock);
        } else {
            self.agent.observe(clock);
        }
    }

    /// Counts an access to global memory, after the access. `accesses` has the address and bytes of
    /// each lane.
    pub fn count_global(&mut self, accesses: impl Iterator<Item = (u64, u64)>, is_store: bool) {
        let Self { global, hint, counters, .. } = self;
        let accesses = accesses.map(|(address, len)| (global.device_address(hint, address), len));
        counters.global(accesses, is_store);
    }

    /// Reads bytes of global memory for a lane.
    #[inline]
    pub fn load_global(&mut self, address: u64, lane: usize, to: &mut [u8]) -> Result<(), FaultKind> {
        let reader = (self.cluster, self.rank * self.warps + self.warp, lane);
        let instruction = self.instruction;
        self.global.load(self.hint, address, to, || (instruction, reader))
    }

    /// Reads bytes for a lane. A misaligned address is a fault.
    #[inline]
    pub fn read(
        &mut self,
        place: ResolvedAddress,
        lane: usize,
        alignment: u32,
        is_atomic: bool,
        to: &mut [u8],
    ) -> Outcome {
        aligned(place, alignment, false)?;
        match place {
            ResolvedAddress::Global(address) => self.load_global(address, lane, to)?,
            ResolvedAddress::Shared { rank, offset } => {
                self.visit(place, self.agent.index, self.agent.step())?;
                let accessor = Accessor::generic(self.agent, self.instruction, is_atomic);
                self.blocks[rank].shared.read(&accessor, offset, to)?;
                if !is_atomic {
                    self.watch_lane((rank, offset), lane, to.len(), None)?;
                }
            }
            ResolvedAddress::Local(offset) => {
                self.local.read(lane, offset, to)?;
            }
            ResolvedAddress::Param(offset) => {
                let start = bounded(Space::Param, offset, to.len(), self.parameters.len(), false)?;
                to.copy_from_slice(&self.parameters[start..start + to.len()]);
            }
        }
        Ok(())
    }

    /// Writes bytes for a lane. A misaligned address is a fault.
    #[inline]
    pub fn write(
        &mut self,
        place: ResolvedAddress,
        lane: usize,
        alignment: u32,
        is_atomic: bool,
        from: &[u8],
    ) -> Outcome {
        aligned(place, alignment, true)?;
        match place {
            ResolvedAddress::Global(address) => {
                self.global.write(self.hint, address, from)?;
                self.note_written(address, from.len());
            }
            ResolvedAddress::Shared { rank, offset } => {
                self.visit(place, self.agent.index, self.agent.step())?;
                if !is_atomic {
                    self.watch_lane((rank, offset), lane, from.len(), Some(from))?;
                }
                let accessor = Accessor::generic(self.agent, self.instruction, is_atomic);
                self.blocks[rank].shared.write(&accessor, offset, from)?;
            }
            ResolvedAddress::Local(offset) => {
                self.local.write(lane, offset, from)?;
            }
            ResolvedAddress::Param(address) => return Err(FaultKind::ReadOnly { address }.into()),
        }
        Ok(())
    }

    /// Records a write of the generic proxy to global memory, for the check of proxy fences.
    #[inline]
    pub fn note_written(&mut self, address: u64, bytes: usize) {
        if let Some(unfenced) = &mut self.block().asynchronous.unfenced_writes {
            unfenced.write(address, bytes);
        }
    }

    /// Checks an access of a lane to shared memory for races with other lanes since their last
    /// synchronization. `data` is what a write will store.
    #[inline]
    pub fn watch_lane(
        &mut self,
        (rank, offset): (usize, u64),
        lane: usize,
        bytes: usize,
        data: Option<&[u8]>,
    ) -> Outcome {
        let block = &mut self.blocks[rank];
        let Some(lanes) = &mut block.lanes else { return Ok(()) };
        let mut old = vec![0; bytes];
        block.shared.peek(offset, &mut old)?;
        let now = LaneAccess {
            agent: self.agent.index as u32,
            lane: lane as u32,
            phase: self.agent.lane_phase,
            instruction: self.instruction,
            is_write: data.is_some(),
        };
        lanes.access(now, offset, bytes, |byte| data.is_some_and(|data| data[byte] == old[byte]))
    }

    /// Begins an asynchronous operation on a channel. Its agent is ordered after everything that
    /// this warp has done, and a waiting warp acquires its clock.
    pub fn fork(&mut self, channel: asynchronous::Channel) -> Agent {
        let (agent, step) = self.begin(channel);
        self.agent.fork(agent, step)
    }

    /// Begins an operation that is unordered with the others of its channel.
    pub fn fork_unordered(&mut self, channel: asynchronous::Channel) -> Agent {
        let (agent, step) = self.begin(channel);
        self.agent.fork_unordered(agent, step)
    }

    fn begin(&mut self, channel: asynchronous::Channel) -> (usize, u32) {
        let (number, step) = self.blocks[self.rank].asynchronous.begin(channel);
        let first = self.blocks.len() * self.warps + self.rank * asynchronous::channels(self.warps);
        (first + number, step)
    }

    /// Records an access to the shared memory of another block or by an asynchronous copy. It must
    /// complete before the last warp of that block exits.
    #[inline]
    pub fn visit(&mut self, place: ResolvedAddress, agent: usize, step: u32) -> Outcome {
        match place {
            ResolvedAddress::Shared { rank, .. }
                if rank != self.rank || agent >= self.blocks.len() * self.warps =>
            {
                self.blocks[rank].cluster_accesses.note(agent, step, self.instruction)
            }
            ResolvedAddress::Shared { .. }
            | ResolvedAddress::Global(_)
            | ResolvedAddress::Local(_)
            | ResolvedAddress::Param(_) => Ok(()),
        }
    }
}

impl<F: Fn(&mut Context<'_>) -> Outcome<Flow> + Send + Sync> Execute for F {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        self(context)
    }
}

#[inline]
fn bounded(space: Space, offset: u64, bytes: usize, len: usize, is_store: bool) -> Outcome<usize> {
    if offset.checked_add(bytes as u64).is_none_or(|end| end > len as u64) {
        let nearest = Some((0, (offset as i64).saturating_add(bytes as i64).saturating_sub(len as i64)));
        let bytes = bytes as u32;
        return Err(Cause::Plain(FaultKind::OutOfBounds {
            space,
            is_store,
            address: offset,
            bytes,
            nearest,
        })
        .into());
    }
    Ok(offset as usize)
}

/// Checks the alignment of an access.
#[inline]
pub(crate) fn aligned(place: ResolvedAddress, alignment: u32, is_store: bool) -> Outcome {
    let (space, address) = match place {
        ResolvedAddress::Global(address) => (Space::Global, address),
        ResolvedAddress::Shared { offset, .. } => (Space::Shared, offset),
        ResolvedAddress::Local(offset) => (Space::Local, offset),
        ResolvedAddress::Param(offset) => (Space::Param, offset),
    };
    if address & u64::from(alignment - 1) != 0 {
        return Err(FaultKind::Misaligned { space, is_store, address, alignment }.into());
    }
    Ok(())
}
