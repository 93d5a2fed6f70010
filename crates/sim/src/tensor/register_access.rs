//! Defines the accesses of other instructions to registers that asynchronous tensor core
//! instructions use.

use crate::registers::Slot;

/// An access of another instruction to a register of a `wgmma`, or to a copy of one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WgmmaRegisterAccess {
    /// Reads the register.
    Read(Slot),
    /// Writes the register. If `unfences` is true, the next `wgmma` needs another `wgmma.fence`.
    Write { slot: Slot, unfences: bool },
    /// Copies the register. Compilers copy accumulators in flight and rely on `ptxas` to remove the
    /// copies. No instruction may read such a copy before the wait.
    Copy { from: Slot, to: Slot },
}
