//! Memory operands in executable form.

use crate::context::{AddressSpace, Context, ResolvedAddress};
use crate::fault::{FaultKind, Outcome};
use crate::registers::Slot;

/// A memory operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    /// The base register of the address.
    pub base: Slot,
    /// The offset in bytes.
    pub offset: i64,
    /// The state space that the instruction names.
    pub space: AddressSpace,
}

impl Pointer {
    /// Returns the unresolved address of a lane.
    #[inline]
    pub fn at(&self, context: &Context<'_>, lane: usize) -> u64 {
        context.get(self.base, lane).wrapping_add_signed(self.offset)
    }

    /// Resolves the address of a lane.
    pub fn place(&self, context: &Context<'_>, lane: usize) -> ResolvedAddress {
        context.locate(self.space, self.at(context, lane))
    }

    /// Returns the rank of a block and the offset in its shared memory; other state spaces are an
    /// error.
    pub fn shared(&self, context: &Context<'_>, lane: usize) -> Outcome<(usize, u64)> {
        match self.place(context, lane) {
            ResolvedAddress::Shared { rank, offset } => Ok((rank, offset)),
            ResolvedAddress::Global(address)
            | ResolvedAddress::Local(address)
            | ResolvedAddress::Param(address) => {
                Err(FaultKind::Illegal(format!("{address:#x} is not an address of shared memory")).into())
            }
        }
    }

    /// Returns the address in global memory; other state spaces are an error.
    pub fn global(&self, context: &Context<'_>, lane: usize) -> Outcome<u64> {
        match self.place(context, lane) {
            ResolvedAddress::Global(address) => Ok(address),
            ResolvedAddress::Shared { offset: address, .. }
            | ResolvedAddress::Local(address)
            | ResolvedAddress::Param(address) => {
                Err(FaultKind::Illegal(format!("{address:#x} is not an address of global memory")).into())
            }
        }
    }
}

impl ResolvedAddress {
    /// Returns the address `bytes` bytes later.
    pub fn offset(self, bytes: u64) -> Self {
        match self {
            Self::Global(address) => Self::Global(address + bytes),
            Self::Shared { rank, offset } => Self::Shared { rank, offset: offset + bytes },
            Self::Local(offset) => Self::Local(offset + bytes),
            Self::Param(offset) => Self::Param(offset + bytes),
        }
    }
}
