//! Defines accesses to registers of asynchronous tensor core instructions.

use crate::registers::Slot;

/// An access to a register of a `wgmma`, or to a copy of one, by another instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WgmmaRegisterAccess {
    /// Reads the register.
    Read(Slot),
    /// Writes the register. If `unfences` is true, the next `wgmma` needs another `wgmma.fence`.
    Write { slot: Slot, unfences: bool },
    /// Copies the register. Compilers copy accumulators in flight and rely on `ptxas` to remove the
    /// copies. Nothing may read a copy before the wait.
    Copy { from: Slot, to: Slot },
}
