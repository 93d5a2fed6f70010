//! The asynchronous instructions: copies, their barriers and the fences between proxies.
//!
//! An asynchronous operation does its work when it begins, but as an agent of its own (see [`crate::memory::clock`]):
//! nothing is ordered after it until somebody waits for it. An access to its data without the wait is a race, and is
//! reported as one; so a program that passes could not have seen whether the data came early or late.

pub(crate) mod barriers;
pub(crate) mod bulk;
pub(crate) mod copies;
pub(crate) mod fences;
pub(crate) mod groups;
pub(crate) mod made_maps;
mod mbarrier;
mod pointer;
pub(crate) mod tensor_copies;
pub(crate) mod tensor_map;
mod unfenced;

use std::collections::BTreeMap;

use crate::fault::{FaultKind, Outcome};
use crate::memory::Clock;
use crate::tensor::{Convoy, Products, WARPGROUP_WARPS};
use groups::Groups;
use mbarrier::Mbarrier;
pub(crate) use pointer::Pointer;
use unfenced::Unfenced;

/// How many channels the barriers of a block share. Two barriers on one channel are told apart less sharply: whoever
/// waits for the later copy is taken to know the earlier one as well.
const BARRIER_CHANNELS: usize = 16;

/// How many channels of asynchronous operations a block of so many warps has: agents of the race detector, each of which
/// completes its operations in the order in which they began.
pub(crate) fn channels(warps: usize) -> usize {
    4 * warps + BARRIER_CHANNELS
}

/// What orders asynchronous operations among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Channel {
    /// The `cp.async` groups of a warp.
    Copies(usize),
    /// What the bulk groups of a warp read.
    BulkReads(usize),
    /// What they write, which may be done long after, and in any order.
    BulkWrites(usize),
    /// The `wgmma` groups of a warp.
    Products(usize),
    /// The barrier at this offset in shared memory.
    Barrier(u64),
}

impl Channel {
    /// Its number in the block.
    fn number(self) -> usize {
        match self {
            Self::Barrier(offset) => (offset / 8) as usize % BARRIER_CHANNELS,
            Self::Copies(warp) => BARRIER_CHANNELS + 4 * warp,
            Self::BulkReads(warp) => BARRIER_CHANNELS + 4 * warp + 1,
            Self::Products(warp) => BARRIER_CHANNELS + 4 * warp + 2,
            Self::BulkWrites(warp) => BARRIER_CHANNELS + 4 * warp + 3,
        }
    }
}

/// What is under way in a block.
pub(crate) struct State {
    /// Per channel, how many operations have begun: the steps of its agent.
    begun: Vec<u32>,
    /// The barriers, by their offsets in shared memory.
    barriers: BTreeMap<u64, Barrier>,
    warps: Vec<WarpState>,
    /// By warpgroup.
    convoys: Vec<Convoy>,
    /// What was written to global memory, of a kernel that has bulk copies of tensors.
    pub unfenced: Option<Unfenced>,
}

/// A barrier in shared memory.
struct Barrier {
    state: Mbarrier,
    /// Its bits as they should be in memory.
    bits: u64,
    /// Who made it: the rank of the block, and the warp.
    maker: (usize, usize),
    /// Whether a fence or a barrier of the block has come since, so that the asynchronous proxy sees it.
    is_public: bool,
}

/// What is under way in a warp.
#[derive(Default)]
struct WarpState {
    copies: Groups<Clock>,
    /// The bulk groups as far as their reads go, and as far as their writes go.
    bulk_reads: Groups<Clock>,
    bulk_writes: Groups<Clock>,
    products: Products,
    /// How many tests of barriers have failed in a row.
    failed_tests: u32,
    /// The phase of each barrier at which the warp has tested it and found another one complete.
    tested: BTreeMap<barriers::BarrierPlace, u64>,
}

impl State {
    /// Of a block of so many warps, of a kernel that copies boxes of tensors or does not.
    pub fn new(warps: usize, has_tensor_copies: bool) -> Self {
        Self {
            begun: vec![0; channels(warps)],
            barriers: BTreeMap::new(),
            warps: std::iter::repeat_with(WarpState::default).take(warps).collect(),
            convoys: std::iter::repeat_with(Convoy::default).take(warps.div_ceil(WARPGROUP_WARPS)).collect(),
            unfenced: has_tensor_copies.then(Unfenced::default),
        }
    }

    /// The products of a warp.
    pub fn products(&mut self, warp: usize) -> &mut Products {
        &mut self.warps[warp].products
    }

    /// The order of a warpgroup's instructions.
    pub fn convoy(&mut self, warpgroup: usize) -> &mut Convoy {
        &mut self.convoys[warpgroup]
    }

    /// Notes that the asynchronous proxy sees the barriers that a warp (of the block of that rank) has made: a fence or a
    /// barrier of the block has come.
    pub fn publish(&mut self, maker: (usize, usize)) {
        for barrier in self.barriers.values_mut().filter(|barrier| barrier.maker == maker) {
            barrier.is_public = true;
        }
    }

    fn warp(&mut self, warp: usize) -> &mut WarpState {
        &mut self.warps[warp]
    }

    /// Whether lanes have begun bulk copies that may not have read all of their sources yet.
    pub fn reads_in_bulk(&self, warp: usize, lanes: u32) -> bool {
        self.warps[warp].bulk_reads.is_under_way(lanes)
    }

    /// Begins an operation: the number of its channel in the block, and its step there.
    pub fn begin(&mut self, channel: Channel) -> (usize, u32) {
        let number = channel.number();
        self.begun[number] += 1;
        (number, self.begun[number])
    }
}

fn illegal<T>(text: String) -> Outcome<T> {
    Err(FaultKind::Illegal(text).into())
}
