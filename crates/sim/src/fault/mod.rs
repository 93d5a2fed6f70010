//! Defines the faults of a launch, each with its source location.

mod display;

use std::fmt;

use crate::memory::Space;
use crate::memory::shadow::Record;

/// The position of an instruction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Location {
    /// The line of the PTX text, from 1.
    pub ptx_line: u32,
    /// File and line of the kernel's source, from the nearest `.loc` before the instruction.
    pub kernel: Option<(String, u32)>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}", self.ptx_line)?;
        match &self.kernel {
            Some((file, line)) => write!(f, " ({file}:{line})"),
            None => Ok(()),
        }
    }
}

/// A finding of a launch. A fault ends the launch, except for `GlobalRace`, `UnwrittenGlobal` and
/// the loads that [`PaddedReads`](crate::PaddedReads) collects.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The name of the kernel.
    pub kernel: String,
    /// The position of the instruction, if the fault has one.
    pub location: Option<Location>,
    /// The text of the instruction.
    pub instruction: Option<String>,
    /// `%ctaid` of the block.
    pub block: [u32; 3],
    /// The index of the warp in its block.
    pub warp: u32,
    /// The lane, if the fault concerns one lane.
    pub lane: Option<u32>,
    /// The first 8 bytes of each kernel parameter, as an integer.
    pub parameters: Vec<u64>,
    /// The regions of the launch: address and length in bytes.
    pub regions: Vec<(u64, usize)>,
    /// The output of each cluster that has printed, in the order of the grid.
    pub printed: Vec<String>,
}

impl Fault {
    pub(crate) fn of_launch(kernel: &str, kind: FaultKind) -> Box<Self> {
        Box::new(Self {
            kind,
            kernel: kernel.into(),
            location: None,
            instruction: None,
            block: [0; 3],
            warp: 0,
            lane: None,
            parameters: Vec::new(),
            regions: Vec::new(),
            printed: Vec::new(),
        })
    }
}

/// The other access that a fault names, such as the first access of a race.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RacingAccess {
    /// The accessing agent: "warp 3", "warp 3 of block 1 of the cluster", or "an asynchronous
    /// operation".
    pub agent: String,
    /// True if the access is a write.
    pub is_write: bool,
    /// The position of the accessing instruction.
    pub location: Location,
    /// The PTX text of the accessing instruction.
    pub instruction: String,
}

/// Lanes of a warp at the same instruction, in a fault that lists the positions of all lanes. In a
/// deadlock the lanes wait. In a cancelled launch they may also run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The rank of the block in its cluster.
    pub block: u32,
    /// The index of the warp in its block.
    pub warp: u32,
    /// A mask of the warp's lanes at this position.
    pub lanes: u32,
    /// The position of the lanes.
    pub location: Location,
    /// The text of the instruction.
    pub instruction: String,
    /// The `mbarrier` for which the lanes wait, if they wait for one.
    pub barrier: Option<BarrierWait>,
}

/// A wait for a phase of an `mbarrier`, and what the phase lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierWait {
    /// The rank of the block that has the barrier.
    pub block: u32,
    /// The offset of the barrier in the shared memory of the block.
    pub offset: u32,
    /// The phase, from 0.
    pub phase: i64,
    /// The arrivals that the phase lacks, and those that it needs.
    pub arrivals: (u32, u32),
    /// The bytes that the phase lacks.
    pub bytes: i64,
}

/// A block that polls global memory until another block changes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Polling {
    /// `%ctaid` of the block.
    pub block: [u32; 3],
    /// The address of the last atomic read of global memory by the warp that polls.
    pub address: u64,
    /// The position of the poll.
    pub location: Location,
    /// The text of the instruction.
    pub instruction: String,
}

/// The kinds of faults.
#[derive(Clone, PartialEq, Debug)]
pub enum FaultKind {
    /// A byte of the access is outside of the memory that the launch may access.
    OutOfBounds {
        /// The state space.
        space: Space,
        /// True if the access is a store.
        is_store: bool,
        /// The address in the space.
        address: u64,
        /// The size of the access in bytes.
        bytes: u32,
        /// The nearest allocation: its index among the regions of the launch, and the distance in
        /// bytes by which the access misses it. A negative distance means that the access begins
        /// before the allocation. `None` if the access misses every allocation by more than the
        /// size of that allocation. In other spaces than global memory, the index is 0, and the
        /// distance is relative to the end of the memory.
        nearest: Option<(usize, i64)>,
    },
    /// The address is not a multiple of the required alignment.
    Misaligned {
        /// The state space.
        space: Space,
        /// True if the access is a store.
        is_store: bool,
        /// The address in the space.
        address: u64,
        /// The required alignment in bytes.
        alignment: u32,
    },
    /// A store to read-only memory.
    ReadOnly {
        /// The address.
        address: u64,
    },
    /// A read of uninitialized shared memory.
    Unwritten {
        /// The first uninitialized byte of the access, as an offset in the shared memory of the
        /// block.
        offset: u32,
    },
    /// Two unordered accesses to the same byte of shared memory, at least one of them a write.
    Race {
        /// The first byte with a race, as an offset in the shared memory of the block.
        offset: u32,
        /// The access that came first in this run.
        first: RacingAccess,
        /// True if the second access is a write. The fault names the instruction of this access.
        is_write: bool,
    },
    /// Two unordered accesses to the same cell of tensor memory, at least one of them a write.
    TensorMemoryRace {
        /// The lane of the first cell with a race.
        lane: u32,
        /// The column of that cell.
        column: u32,
        /// The access that came first in this run.
        first: RacingAccess,
        /// True if the second access is a write. The fault names the instruction of this access.
        is_write: bool,
    },
    /// A read of uninitialized tensor memory.
    UnwrittenTensorMemory {
        /// The lane of the first uninitialized cell of the access.
        lane: u32,
        /// The column of that cell.
        column: u32,
    },
    /// Two unordered accesses to the same byte of global memory, at least one of them a write. The
    /// launch continues after this finding.
    GlobalRace {
        /// The address of the second access.
        address: u64,
        /// The size of the second access in bytes.
        bytes: u32,
        /// The access that came first in this run.
        first: Box<RacingAccess>,
        /// The block of the first access.
        block: [u32; 3],
        /// True if the first access is atomic.
        is_atomic: bool,
        /// True if the second access is a write. The fault names the instruction of this access.
        is_write: bool,
    },
    /// A read of uninitialized global memory. The launch continues after this finding.
    UnwrittenGlobal {
        /// The address.
        address: u64,
        /// The size of the access in bytes.
        bytes: u32,
    },
    /// The asynchronous proxy accesses bytes that the generic proxy wrote, without a proxy fence in
    /// between.
    MissingProxyFence {
        /// The first unfenced byte, as an offset in the shared memory of the block.
        offset: u32,
        /// The write through the generic proxy.
        write: RacingAccess,
    },
    /// Another agent may access the shared memory of a block after the last warp of the block has
    /// exited.
    EndedBlock {
        /// The rank of the block in its cluster.
        rank: u32,
        /// The access, which is not ordered before that exit.
        access: RacingAccess,
    },
    /// Some lanes reach a barrier, or another warp-synchronous instruction, that the other lanes
    /// cannot reach. At an aligned barrier of the block, exited lanes of a warp that still runs
    /// count as missing. A warp that has exited completely does not count, as the ISA specifies for
    /// `exit`.
    DivergentBarrier {
        /// A mask of the lanes that have arrived.
        present: u32,
        /// A mask of the lanes that have not arrived.
        missing: u32,
    },
    /// Every warp of the cluster that has not exited waits for another.
    Deadlock {
        /// The position of each group of lanes.
        waiting: Vec<Waiting>,
    },
    /// All resident blocks poll memory that none of them changes. No other block can begin before a
    /// resident block ends.
    Starved {
        /// The first clusters that wait, in the order of the grid, each with one of its waiting
        /// blocks.
        waiting: Vec<Polling>,
        /// How many blocks are resident.
        resident: u64,
        /// How many blocks have not begun.
        not_begun: u64,
        /// The first block that has not begun; `None` if all blocks have begun.
        next: Option<[u32; 3]>,
    },
    /// The kernel executed `trap`.
    Trap,
    /// An assertion of the kernel's source failed.
    Assertion {
        /// The text of the condition that does not hold.
        message: String,
        /// The file.
        file: String,
        /// The line.
        line: u32,
        /// The function.
        function: String,
    },
    /// A feature, by name, that the simulator does not support.
    Unsupported(String),
    /// A violation of the PTX ISA, in words.
    Illegal(String),
    /// The caller cancelled the launch.
    Cancelled {
        /// The position of each group of lanes of one cluster.
        waiting: Vec<Waiting>,
    },
}

/// The warp, the lanes and the site of a group, and the `mbarrier` for which it waits.
pub(crate) type WaitingGroup = (usize, u32, u32, Option<BarrierWait>);

/// The cause of a fault, with indices that `launch` resolves for the [`FaultKind`].
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Cause {
    /// A fault without an agent or a site.
    Plain(FaultKind),
    /// [`FaultKind::Race`].
    Race { offset: u32, first: Record, is_write: bool },
    /// [`FaultKind::TensorMemoryRace`].
    TensorMemoryRace { lane: u32, column: u32, first: Record, is_write: bool },
    /// [`FaultKind::MissingProxyFence`].
    MissingProxyFence { offset: u32, write: Record },
    /// [`FaultKind::EndedBlock`].
    EndedBlock { rank: usize, access: Record },
    /// [`FaultKind::Deadlock`]: the positions of the groups.
    Deadlock(Vec<WaitingGroup>),
    /// [`FaultKind::Cancelled`]: the positions of the groups.
    Cancelled(Vec<WaitingGroup>),
}

/// A fault that an instruction returns to the scheduler.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stop {
    pub cause: Cause,
    pub lane: Option<u32>,
}

/// The result of a part of an instruction. The boxed fault keeps it small.
pub(crate) type Outcome<T = ()> = Result<T, Box<Stop>>;

impl From<Cause> for Box<Stop> {
    fn from(cause: Cause) -> Self {
        Self::new(Stop { cause, lane: None })
    }
}

impl From<FaultKind> for Box<Stop> {
    fn from(kind: FaultKind) -> Self {
        Cause::Plain(kind).into()
    }
}

pub(crate) trait OfLane {
    fn of_lane(self, lane: usize) -> Self;
}

impl<T> OfLane for Outcome<T> {
    fn of_lane(self, lane: usize) -> Self {
        self.map_err(|mut stop| {
            stop.lane = Some(lane as u32);
            stop
        })
    }
}
