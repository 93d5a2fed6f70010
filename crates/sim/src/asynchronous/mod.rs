//! Implements asynchronous copies, their barriers, and the fences between proxies.
//!
//! The simulator performs an asynchronous operation at once, but as a separate agent (see
//! [`crate::memory::clock`]). Nothing is ordered after it until an agent waits for it:
//!
//! ```text
//! cp.async [s], [g]           the channel of the warp writes s
//! ld.shared [s]               race: the warp does not know that write
//! cp.async.wait_all
//! ld.shared [s]               ordered
//! ```
//!
//! The result of a program without faults therefore does not depend on when its copies complete.

pub(crate) mod barriers;
pub(crate) mod bulk;
pub(crate) mod cluster_launches;
pub(crate) mod copies;
pub(crate) mod device_tensor_maps;
pub(crate) mod fences;
pub(crate) mod groups;
mod mbarrier;
mod pointer;
mod proxy_visibility;
pub(crate) mod tensor_copies;
pub(crate) mod tensor_map;

use std::collections::BTreeMap;

use crate::fault::{FaultKind, Outcome};
use crate::memory::Clock;
use crate::tensor::{Convoy, PendingTensorMemory, PendingWgmmas, WARPGROUP_WARPS};
pub(crate) use barriers::BarrierAddress;
use groups::Groups;
use mbarrier::Mbarrier;
pub(crate) use pointer::Pointer;
use proxy_visibility::UnfencedWrites;

/// The number of channels that the barriers of a block share. Two barriers of one channel make the
/// race detector less precise: a wait at one then covers earlier copies at the other.
const BARRIER_CHANNELS: usize = 16;

/// Returns the number of asynchronous channels of a block. Each channel is an agent, and completes
/// its operations in order, except for [`Channel::BulkWrites`].
pub(crate) fn channels(warps: usize) -> usize {
    7 * warps + BARRIER_CHANNELS
}

/// The channel of an asynchronous operation. Warps are indices in the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Channel {
    /// The `cp.async` groups of a warp.
    Copies(usize),
    BulkReads(usize),
    /// The writes of a warp's bulk groups, which complete in any order.
    BulkWrites(usize),
    /// The `wgmma` groups of a warp.
    Wgmma(usize),
    TensorLoads(usize),
    TensorStores(usize),
    /// The dots and copies in tensor memory of a warp, which the ISA keeps in order.
    TensorDots(usize),
    /// The copies that complete at the barrier at this offset in shared memory.
    Barrier(u64),
}

impl Channel {
    fn index(self) -> usize {
        match self {
            Self::Barrier(offset) => (offset / 8) as usize % BARRIER_CHANNELS,
            Self::Copies(warp) => BARRIER_CHANNELS + 7 * warp,
            Self::BulkReads(warp) => BARRIER_CHANNELS + 7 * warp + 1,
            Self::Wgmma(warp) => BARRIER_CHANNELS + 7 * warp + 2,
            Self::BulkWrites(warp) => BARRIER_CHANNELS + 7 * warp + 3,
            Self::TensorLoads(warp) => BARRIER_CHANNELS + 7 * warp + 4,
            Self::TensorStores(warp) => BARRIER_CHANNELS + 7 * warp + 5,
            Self::TensorDots(warp) => BARRIER_CHANNELS + 7 * warp + 6,
        }
    }
}

pub(crate) struct AsyncState {
    /// The number of operations begun on each channel, which is the step of its agent.
    begun: Vec<u32>,
    /// The barriers, by offset in shared memory.
    barriers: BTreeMap<u64, Barrier>,
    warps: Vec<WarpState>,
    /// The order in which the warps of each warpgroup execute `wgmma`.
    convoys: Vec<Convoy>,
    /// The writes to global memory since the last `fence.proxy.async` for it. `None` in a kernel
    /// without bulk copies from global memory.
    pub unfenced_writes: Option<UnfencedWrites>,
}

/// A barrier in shared memory.
struct Barrier {
    state: Mbarrier,
    /// The bits in shared memory.
    bits: u64,
    /// The warp that initialized the barrier: the rank of its block, and its index.
    maker: (usize, usize),
    /// True if a fence or a barrier has made the object visible to the asynchronous proxy.
    is_public: bool,
}

#[derive(Default)]
struct WarpState {
    copies: Groups<Clock>,
    /// The clocks of the reads and the writes of bulk groups.
    bulk_reads: Groups<Clock>,
    bulk_writes: Groups<Clock>,
    wgmmas: PendingWgmmas,
    tensor_memory: PendingTensorMemory,
    failed_tests: u32,
    /// The barrier and the phase for which the warp waits.
    waits_for: Option<(BarrierAddress, i64)>,
    /// The phase of each barrier when the warp last found the tested phase complete.
    tested: BTreeMap<BarrierAddress, u64>,
}

impl AsyncState {
    /// Creates the state of a block. `has_bulk_loads` enables the check for missing proxy fences
    /// between writes to global memory and bulk copies from it.
    pub fn new(warps: usize, has_bulk_loads: bool) -> Self {
        Self {
            begun: vec![0; channels(warps)],
            barriers: BTreeMap::new(),
            warps: std::iter::repeat_with(WarpState::default).take(warps).collect(),
            convoys: std::iter::repeat_with(Convoy::default).take(warps.div_ceil(WARPGROUP_WARPS)).collect(),
            unfenced_writes: has_bulk_loads.then(UnfencedWrites::default),
        }
    }

    /// Returns the `wgmma`s of a warp in flight.
    pub fn wgmmas(&mut self, warp: usize) -> &mut PendingWgmmas {
        &mut self.warps[warp].wgmmas
    }

    pub fn tensor_memory(&mut self, warp: usize) -> &mut PendingTensorMemory {
        &mut self.warps[warp].tensor_memory
    }

    pub fn convoy(&mut self, warpgroup: usize) -> &mut Convoy {
        &mut self.convoys[warpgroup]
    }

    /// Returns the barrier for which a warp waits, and the phase.
    pub fn waits_for(&self, warp: usize) -> Option<(BarrierAddress, i64)> {
        self.warps[warp].waits_for
    }

    /// Returns the arrivals and the bytes that the current phase of a barrier lacks, and the
    /// arrivals that each phase needs.
    pub fn missing(&self, offset: u64) -> Option<(u32, i64, u32)> {
        self.barriers.get(&offset).map(|barrier| barrier.state.missing())
    }

    /// Makes the barriers of a warp visible to the asynchronous proxy, at a fence or a barrier.
    pub fn publish(&mut self, maker: (usize, usize)) {
        for barrier in self.barriers.values_mut().filter(|barrier| barrier.maker == maker) {
            barrier.is_public = true;
        }
    }

    fn warp(&mut self, warp: usize) -> &mut WarpState {
        &mut self.warps[warp]
    }

    /// Returns whether lanes have bulk copies that may still read their sources.
    pub fn reads_in_bulk(&self, warp: usize, lanes: u32) -> bool {
        self.warps[warp].bulk_reads.is_under_way(lanes)
    }

    /// Begins an operation. Returns the index of its channel and its step.
    pub fn begin(&mut self, channel: Channel) -> (usize, u32) {
        let index = channel.index();
        self.begun[index] += 1;
        (index, self.begun[index])
    }
}

fn illegal<T>(text: String) -> Outcome<T> {
    Err(FaultKind::Illegal(text).into())
}
