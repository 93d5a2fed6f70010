//! What an instruction sees while it executes: the lanes, their registers, and all memory they can reach.

use crate::asynchronous;
use crate::asynchronous::made_maps::MadeMaps;
use crate::counters::StepCounters;
use crate::fault::{Cause, FaultKind, Outcome};
use crate::memory::lanes::{LaneAccess, LaneShadow};
use crate::memory::shared::Accessor;
use crate::memory::{Agent, Global, Local, RANK_SHIFT, Shared, Space, WINDOW_BYTES, resolve};
use crate::registers::{Registers, Slot};
use crate::visits::Visits;
use crate::watch::Watch;

/// What happens after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// The lanes go on to the next instruction.
    Next,
    /// The instruction cannot complete yet and has changed nothing: the lanes execute it again when something else in
    /// the cluster has happened. If nothing can happen any more, that is a deadlock.
    Wait,
}

/// An instruction in executable form.
pub(crate) trait Execute: Send + Sync {
    /// Executes it for the lanes of the context.
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow>;
}

/// What the blocks of a cluster share with each other: per block, its shared memory and what is under way in it.
pub(crate) struct BlockMemory {
    pub shared: Shared,
    /// In a launch that is watched for races.
    pub lanes: Option<LaneShadow>,
    pub visits: Visits,
    pub asynchronous: asynchronous::State,
}

/// How many agents a cluster has: the warps of all blocks by rank, then the channels of their asynchronous operations.
pub(crate) fn agents(blocks: usize, warps: usize) -> usize {
    blocks * (warps + asynchronous::channels(warps))
}

/// A byte's place, after its address was resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Global memory, at this address.
    Global(u64),
    /// The shared memory of the block with this rank in the cluster, at this offset.
    Shared { rank: usize, offset: u64 },
    /// Memory of the lane, at this offset.
    Local(u64),
    /// The parameters of the kernel, at this offset.
    Param(u64),
}

/// Which state space an address is in, as the instruction says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddressSpace {
    /// The address says itself.
    Generic,
    Global,
    /// `.shared::cta` or `.shared::cluster`: addresses of the own block are the same in both.
    Shared,
    Local,
    Param,
}

/// What the instruction sees.
pub(crate) struct Context<'a> {
    /// The lanes that execute it: never none.
    pub lanes: u32,
    /// The warp in its block.
    pub warp: usize,
    /// How many warps the block has.
    pub warps: usize,
    /// The rank of the block in its cluster.
    pub rank: usize,
    /// Its index in the program.
    pub instruction: u32,
    pub registers: &'a mut Registers,
    pub global: &'a Global<'a>,
    /// The tensor maps that the launch has made.
    pub maps: &'a MadeMaps,
    /// What the launch is watched for, and the number of the cluster in it.
    pub watch: Option<&'a Watch>,
    pub cluster: u64,
    /// Remembers which region the warp accessed last.
    pub hint: &'a mut usize,
    /// By rank.
    pub blocks: &'a mut [BlockMemory],
    pub local: &'a mut Local,
    /// The parameters of the kernel.
    pub parameters: &'a [u8],
    /// The warp, as the race detector sees it.
    pub agent: &'a mut Agent,
    /// How many agents the cluster has.
    pub agents: usize,
    /// How many instructions the warp has executed: its clock.
    pub time: u64,
    pub counters: &'a mut StepCounters,
    /// The address in global memory that the warp reads last by an atomic access.
    pub polled: &'a mut u64,
    /// What the kernel has printed.
    pub printed: &'a mut String,
}

impl Context<'_> {
    /// The value of a register in a lane.
    #[inline]
    pub fn get(&self, slot: Slot, lane: usize) -> u64 {
        self.registers.get(slot)[lane]
    }

    /// Sets the register of a lane.
    #[inline]
    pub fn set(&mut self, slot: Slot, lane: usize, value: u64) {
        self.registers.get_mut(slot)[lane] = value;
    }

    /// The own block's shared memory and operations under way.
    pub fn block(&mut self) -> &mut BlockMemory {
        &mut self.blocks[self.rank]
    }

    /// Where an address points. One that belongs to no block of the cluster is out of bounds of the own.
    #[inline]
    pub fn locate(&self, space: AddressSpace, address: u64) -> Place {
        let (space, address) = match space {
            AddressSpace::Generic => resolve(address),
            AddressSpace::Global => (Space::Global, address),
            // These addresses have 32 bits; above, a 64-bit register may hold the window of a generic address.
            AddressSpace::Shared => (Space::Shared, address & (WINDOW_BYTES - 1)),
            AddressSpace::Local => (Space::Local, address & (WINDOW_BYTES - 1)),
            AddressSpace::Param => (Space::Param, address & (WINDOW_BYTES - 1)),
        };
        match space {
            Space::Global => Place::Global(address),
            Space::Local => Place::Local(address),
            Space::Param => Place::Param(address),
            Space::Shared => {
                let (rank, offset) = ((address >> RANK_SHIFT) as usize, address & ((1 << RANK_SHIFT) - 1));
                match rank {
                    0 => Place::Shared { rank: self.rank, offset },
                    _ if rank <= self.blocks.len() => Place::Shared { rank: rank - 1, offset },
                    _ => Place::Shared { rank: self.rank, offset: address },
                }
            }
        }
    }

    /// An atomic write at a place: with `releases`, who acquires there is ordered after what this warp has done; without, after
    /// what it had done at its last fence.
    pub fn publish(&mut self, place: Place, releases: bool) {
        let Place::Shared { rank, offset } = place else { return };
        if releases {
            let clock = self.agent.release();
            self.blocks[rank].shared.publish(offset, &clock);
        } else if let Some(clock) = self.agent.publishes() {
            self.blocks[rank].shared.publish(offset, clock);
        }
    }

    /// An atomic read at a place: with `acquires`, what follows is ordered after what was published there; without, what
    /// follows this warp's next fence.
    pub fn observe(&mut self, place: Place, acquires: bool) {
        if let Place::Global(address) = place {
            *self.polled = address;
        }
        let Place::Shared { rank, offset } = place else { return };
        let Some(clock) = self.blocks[rank].shared.published(offset) else { return };
        if acquires {
            self.agent.acquire(clock);
        } else {
            self.agent.observe(clock);
        }
    }

    /// Counts an access of the warp to global memory: the first byte and the length of each lane's part, all of which were
    /// accessed.
    pub fn count_global(&mut self, accesses: impl Iterator<Item = (u64, u64)>) {
        let Self { global, hint, counters, .. } = self;
        counters.global(accesses.map(|(address, len)| (global.device_address(hint, address), len)));
    }

    /// Reads bytes of global memory for a lane.
    #[inline]
    pub fn load_global(&mut self, address: u64, lane: usize, to: &mut [u8]) -> Result<(), FaultKind> {
        let reader = (self.cluster, self.rank * self.warps + self.warp, lane);
        let instruction = self.instruction;
        self.global.load(self.hint, address, to, || (instruction, reader))
    }

    /// Reads bytes for a lane. The address is a multiple of `alignment`, or it is a fault.
    #[inline]
    pub fn read(
        &mut self,
        place: Place,
        lane: usize,
        alignment: u32,
        is_atomic: bool,
        to: &mut [u8],
    ) -> Outcome {
        aligned(place, alignment, false)?;
        match place {
            Place::Global(address) => self.load_global(address, lane, to)?,
            Place::Shared { rank, offset } => {
                self.visit(place, self.agent.index, self.agent.step())?;
                let accessor = Accessor::generic(self.agent, self.instruction, is_atomic);
                self.blocks[rank].shared.read(&accessor, offset, to)?;
                if !is_atomic {
                    self.watch_lane((rank, offset), lane, to.len(), None)?;
                }
            }
            Place::Local(offset) => {
                self.local.read(lane, offset, to)?;
            }
            Place::Param(offset) => {
                let start = bounded(Space::Param, offset, to.len(), self.parameters.len(), false)?;
                to.copy_from_slice(&self.parameters[start..start + to.len()]);
            }
        }
        Ok(())
    }

    /// Writes bytes for a lane.
    #[inline]
    pub fn write(
        &mut self,
        place: Place,
        lane: usize,
        alignment: u32,
        is_atomic: bool,
        from: &[u8],
    ) -> Outcome {
        aligned(place, alignment, true)?;
        match place {
            Place::Global(address) => {
                self.global.write(self.hint, address, from)?;
                self.note_written(address, from.len());
            }
            Place::Shared { rank, offset } => {
                self.visit(place, self.agent.index, self.agent.step())?;
                if !is_atomic {
                    self.watch_lane((rank, offset), lane, from.len(), Some(from))?;
                }
                let accessor = Accessor::generic(self.agent, self.instruction, is_atomic);
                self.blocks[rank].shared.write(&accessor, offset, from)?;
            }
            Place::Local(offset) => {
                self.local.write(lane, offset, from)?;
            }
            Place::Param(address) => return Err(FaultKind::ReadOnly { address }.into()),
        }
        Ok(())
    }

    /// The generic proxy has written to global memory.
    #[inline]
    pub fn note_written(&mut self, address: u64, bytes: usize) {
        if let Some(unfenced) = &mut self.block().asynchronous.unfenced {
            unfenced.write(address, bytes);
        }
    }

    /// Watches an access of a lane to shared memory, before it writes: whether lanes of its warp have accessed it since they
    /// last synchronised.
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

    /// Begins an asynchronous operation on a channel of the own block: an agent of its own, ordered after what this warp
    /// has done so far. Its accesses use it as [`Accessor::agent`]; whoever waits for the operation acquires its clock.
    pub fn fork(&mut self, channel: asynchronous::Channel) -> Agent {
        let (agent, step) = self.begin(channel);
        self.agent.fork(agent, step)
    }

    /// The same for an operation that may be done before and after others of its channel.
    pub fn fork_alone(&mut self, channel: asynchronous::Channel) -> Agent {
        let (agent, step) = self.begin(channel);
        self.agent.fork_alone(agent, step)
    }

    fn begin(&mut self, channel: asynchronous::Channel) -> (usize, u32) {
        let (number, step) = self.blocks[self.rank].asynchronous.begin(channel);
        let first = self.blocks.len() * self.warps + self.rank * asynchronous::channels(self.warps);
        (first + number, step)
    }

    /// Notes an access to the shared memory of a block by somebody whom its warps have to wait for before the last of them
    /// exits: warps of other blocks, and asynchronous copies.
    #[inline]
    pub fn visit(&mut self, place: Place, agent: usize, step: u32) -> Outcome {
        match place {
            Place::Shared { rank, .. } if rank != self.rank || agent >= self.blocks.len() * self.warps => {
                self.blocks[rank].visits.note(agent, step, self.instruction)
            }
            Place::Shared { .. } | Place::Global(_) | Place::Local(_) | Place::Param(_) => Ok(()),
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
pub(crate) fn aligned(place: Place, alignment: u32, is_store: bool) -> Outcome {
    let (space, address) = match place {
        Place::Global(address) => (Space::Global, address),
        Place::Shared { offset, .. } => (Space::Shared, offset),
        Place::Local(offset) => (Space::Local, offset),
        Place::Param(offset) => (Space::Param, offset),
    };
    if address & u64::from(alignment - 1) != 0 {
        return Err(FaultKind::Misaligned { space, is_store, address, alignment }.into());
    }
    Ok(())
}
