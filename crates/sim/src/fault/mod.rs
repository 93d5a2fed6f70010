//! What goes wrong in a launch: every finding of the simulator's checks is one [`FaultKind`], and says where it stands.

mod display;

use std::fmt;

use crate::memory::Space;
use crate::memory::shadow::Record;

/// Where an instruction stands.
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

/// A launch that cannot go on.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The name of the kernel.
    pub kernel: String,
    /// The instruction, where there is one.
    pub location: Option<Location>,
    /// Its text.
    pub instruction: Option<String>,
    /// `%ctaid` of the block.
    pub block: [u32; 3],
    /// The warp in its block.
    pub warp: u32,
    /// The lane, where it is about one.
    pub lane: Option<u32>,
    /// What each parameter of the kernel held: its first 8 bytes, as a number.
    pub parameters: Vec<u64>,
    /// The regions of the launch: address and length in bytes.
    pub regions: Vec<(u64, usize)>,
    /// What the blocks have printed before, those that have, in the order of the grid.
    pub printed: Vec<String>,
}

impl Fault {
    /// A fault of a launch as a whole.
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

/// An access that takes part in a race.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RacingAccess {
    /// What accessed: "warp 3", or "an asynchronous copy".
    pub agent: String,
    /// Whether it wrote.
    pub is_write: bool,
    /// Where its instruction stands.
    pub location: Location,
    /// Its text.
    pub instruction: String,
}

/// A warp, or a part of one, that waits or runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The block in its cluster.
    pub block: u32,
    /// The warp in its block.
    pub warp: u32,
    /// Its lanes that wait here.
    pub lanes: u32,
    /// Where they wait.
    pub location: Location,
    /// The text of the instruction.
    pub instruction: String,
}

/// A block that reads global memory again and again until another one changes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Polling {
    /// `%ctaid` of the block.
    pub block: [u32; 3],
    /// The address of its last atomic read.
    pub address: u64,
    /// Where it waits.
    pub location: Location,
    /// The text of the instruction.
    pub instruction: String,
}

/// The ways to go wrong.
#[derive(Clone, PartialEq, Debug)]
pub enum FaultKind {
    /// A byte of the access lies outside what the launch may touch.
    OutOfBounds {
        /// The state space.
        space: Space,
        /// Whether it writes.
        is_store: bool,
        /// The address in the space.
        address: u64,
        /// The bytes of the access.
        bytes: u32,
        /// The allocation that is nearest: its number among the regions of the launch, and by how many bytes the access
        /// misses it (negative: it begins before). None if it misses each by more bytes than that has.
        nearest: Option<(usize, i64)>,
    },
    /// The address is not a multiple of the size of the access.
    Misaligned {
        /// The state space.
        space: Space,
        /// Whether it writes.
        is_store: bool,
        /// The address in the space.
        address: u64,
        /// What it has to be a multiple of.
        alignment: u32,
    },
    /// A store to memory that may only be read.
    ReadOnly {
        /// The address.
        address: u64,
    },
    /// A read of shared memory that nobody has written.
    Unwritten {
        /// The first such byte in the shared memory of the block.
        offset: u32,
    },
    /// Two accesses to the same shared memory, at least one a write, that nothing orders.
    Race {
        /// The first byte in the shared memory of the block.
        offset: u32,
        /// The access that came first in this run.
        first: RacingAccess,
        /// Whether the second one, the instruction of the fault, wrote.
        is_write: bool,
    },
    /// Two accesses to the same global memory, at least one a write, that nothing orders. It does not end a launch.
    GlobalRace {
        /// The address of the second one.
        address: u64,
        /// Its bytes.
        bytes: u32,
        /// The access that came first in this run.
        first: Box<RacingAccess>,
        /// The block of the first one.
        block: [u32; 3],
        /// Whether the first one is atomic.
        is_atomic: bool,
        /// Whether the second one, the instruction of the fault, wrote.
        is_write: bool,
    },
    /// A read of global memory that nobody has written. It does not end a launch.
    UnwrittenGlobal {
        /// The address.
        address: u64,
        /// The bytes of the access.
        bytes: u32,
    },
    /// The asynchronous proxy accesses what the generic proxy wrote, without a fence between the proxies.
    MissingProxyFence {
        /// The first byte in the shared memory of the block.
        offset: u32,
        /// The write.
        write: RacingAccess,
    },
    /// A block of a cluster ends, and so its shared memory, while somebody may still access that.
    EndedBlock {
        /// The rank of the block in its cluster.
        rank: u32,
        /// The access.
        access: RacingAccess,
    },
    /// A barrier, or another instruction that a warp executes together, that a part of the warp reaches while the rest
    /// cannot come. At an aligned barrier of the block, lanes of the warp that have exited count as the rest; a warp that
    /// has exited as a whole does not, as the ISA says of `exit`.
    DivergentBarrier {
        /// The lanes that are there.
        present: u32,
        /// The lanes that are not.
        missing: u32,
    },
    /// All warps wait for each other.
    Deadlock {
        /// Where each stands.
        waiting: Vec<Waiting>,
    },
    /// All resident blocks wait for memory that none of them changes, and no other block can begin before one of them ends.
    Starved {
        /// The first ones of the blocks that wait, in the order of the grid.
        waiting: Vec<Polling>,
        /// How many blocks are resident.
        resident: u64,
        /// How many blocks have not begun.
        not_begun: u64,
        /// The first one of these.
        next: Option<[u32; 3]>,
    },
    /// The kernel executed `trap`.
    Trap,
    /// An assertion of the kernel's source failed.
    Assertion {
        /// The condition.
        message: String,
        /// The file.
        file: String,
        /// The line.
        line: u32,
        /// The function.
        function: String,
    },
    /// Something the simulator does not do, by name.
    Unsupported(String),
    /// Something that the PTX ISA does not allow, in words.
    Illegal(String),
    /// The caller cancelled the launch.
    Cancelled {
        /// Where the warps of one cluster stood.
        standing: Vec<Waiting>,
    },
}

/// What went wrong, before the scheduler adds where.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Cause {
    /// A fault that needs nothing more.
    Plain(FaultKind),
    /// [`FaultKind::Race`].
    Race { offset: u32, first: Record, is_write: bool },
    /// [`FaultKind::MissingProxyFence`].
    MissingProxyFence { offset: u32, write: Record },
    /// [`FaultKind::EndedBlock`].
    EndedBlock { rank: usize, access: Record },
    /// [`FaultKind::Deadlock`]: warps of the cluster, lanes, and sites in the program.
    Deadlock(Vec<(usize, u32, u32)>),
    /// [`FaultKind::Cancelled`]: the same.
    Cancelled(Vec<(usize, u32, u32)>),
}

/// A fault on its way up.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stop {
    pub cause: Cause,
    pub lane: Option<u32>,
}

/// What the parts of an instruction return. The fault is boxed, so that the result is small.
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

/// Adds to a fault the lane that it is about.
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
