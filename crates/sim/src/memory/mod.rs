//! Implements the memory of the simulated GPU, with checks on every access.
//!
//! - [`region`]: global memory, which is host memory of the caller;
//! - [`shared`]: the shared memory of a block;
//! - [`tensor`]: the tensor memory of a block;
//! - [`local`]: the local memory of a warp's threads;
//! - [`variables`]: the memory of a module's variables;
//! - [`lanes`]: races between the lanes of a warp;
//! - [`clock`]: the vector clocks of the race detector;
//! - [`shadow`]: the last accesses to each byte of shared memory.
//!
//! `unsafe` code is in `region` and `variables`. The upper bits of a generic address select the
//! state space. The windows of shared, local and parameter memory are at addresses that no
//! operating system gives to user programs.

pub mod clock;
pub mod lanes;
pub mod local;
pub mod region;
pub mod shadow;
pub mod shared;
pub mod tensor;
pub mod variables;

pub use clock::{Agent, Clock};
pub use local::Local;
pub use region::Global;
pub use shadow::Proxy;
pub use shared::Shared;
pub use tensor::TensorMemory;
pub use tilewright_base::memory::Region;

/// The first generic address of the shared memory of the warp's own block.
pub const SHARED_WINDOW: u64 = 0x1000_0000_0000_0000;
/// The first generic address of local memory, which each lane has for itself.
pub const LOCAL_WINDOW: u64 = 0x2000_0000_0000_0000;
/// The first generic address of the kernel's parameters.
pub const PARAM_WINDOW: u64 = 0x3000_0000_0000_0000;
/// The bytes of each window. The upper 8 of the 32 bits of a shared address select a block of the
/// cluster.
pub const WINDOW_BYTES: u64 = 1 << 32;
/// The lowest bit of the block in a shared address. `mapa` stores the rank of the block plus 1
/// there, and 0 means the warp's own block.
pub const RANK_SHIFT: u32 = 24;

/// The state spaces that accesses distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// Memory of the device: the regions of the launch and the variables of the module, including
    /// constants.
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

/// Splits a generic address into a state space and the address in it.
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
