//! The accesses of instructions to registers that asynchronous instructions of the tensor cores use.

use crate::registers::Slot;

/// An access of another instruction to a register of a `wgmma`, or to a copy of one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WgmmaRegisterAccess {
    /// Reads the register.
    Read(Slot),
    /// Writes the register. If `unfences` is true, the next `wgmma` needs another `wgmma.fence`.
    Write { slot: Slot, unfences: bool },
    /// Copies the register. Compilers copy accumulators in flight and rely on `ptxas` to remove the
    /// copies; such a copy must not be read before the wait either.
    Copy { from: Slot, to: Slot },
}
