//! The memory of the simulated GPU, with checks on every access: the only `unsafe` code of this crate is in `region`.
//!
//! - [`region`]: global memory, which is memory of the host that the caller lends for the launch;
//! - [`shared`]: the shared memory of one block, with the bytes that are written and the races between warps;
//! - [`local`]: the memory of the threads of a warp, with the bytes that are written;
//! - [`lanes`]: the same between the lanes of a warp;
//! - [`clock`]: vector clocks, by which the race detector knows what is ordered;
//! - [`shadow`]: who accessed each byte of shared memory last.
//!
//! A generic address says by its upper bits which state space it points to: the windows of shared, local and parameter
//! memory begin where no host has memory of user programs.

pub mod clock;
pub mod lanes;
pub mod local;
pub mod region;
pub mod shadow;
pub mod shared;
pub mod variables;

pub use clock::{Agent, Clock};
pub use local::Local;
pub use region::Global;
pub use shadow::Proxy;
pub use shared::Shared;
pub use tilewright_base::memory::Region;

/// Where the shared memory of the own block begins among generic addresses.
pub const SHARED_WINDOW: u64 = 0x1000_0000_0000_0000;
/// Where local memory begins among generic addresses: each lane sees its own there.
pub const LOCAL_WINDOW: u64 = 0x2000_0000_0000_0000;
/// Where the parameters of the kernel begin among generic addresses.
pub const PARAM_WINDOW: u64 = 0x3000_0000_0000_0000;
/// The bytes of each window: shared addresses fit into 32 bits, with the rank of a block of the cluster in the upper 8.
pub const WINDOW_BYTES: u64 = 1 << 32;
/// A shared address that was mapped to a block of the cluster holds the block's rank plus 1 above this bit; an address
/// with 0 there belongs to the own block.
pub const RANK_SHIFT: u32 = 24;

/// A state space, as far as accesses differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// Memory of the device: what the regions of the launch and the variables of the module hold, constants too.
    Global,
    /// Memory of a block.
    Shared,
    /// Memory of a thread.
    Local,
    /// The parameters of the kernel.
    Param,
}

impl std::fmt::Display for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Global => "global",
            Self::Shared => "shared",
            Self::Local => "local",
            Self::Param => "parameter",
        })
    }
}

/// The space that a generic address points to, and the address in it.
pub fn resolve(generic: u64) -> (Space, u64) {
    let in_window = |window: u64| generic.wrapping_sub(window) < WINDOW_BYTES;
    if in_window(SHARED_WINDOW) {
        (Space::Shared, generic - SHARED_WINDOW)
    } else if in_window(LOCAL_WINDOW) {
        (Space::Local, generic - LOCAL_WINDOW)
    } else if in_window(PARAM_WINDOW) {
        (Space::Param, generic - PARAM_WINDOW)
    } else {
        (Space::Global, generic)
    }
}
