//! Resolves memory operands.

use crate::context::{AddressSpace, Context, ResolvedAddress};
use crate::fault::{FaultKind, Outcome};
use crate::registers::Slot;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    pub base: Slot,
    pub offset: i64,
    pub space: AddressSpace,
}

impl Pointer {
    #[inline]
    pub fn at(&self, context: &Context<'_>, lane: usize) -> u64 {
        context.get(self.base, lane).wrapping_add_signed(self.offset)
    }

    pub fn place(&self, context: &Context<'_>, lane: usize) -> ResolvedAddress {
        context.locate(self.space, self.at(context, lane))
    }

    /// Returns the rank of the block and the offset in its shared memory. Other spaces are an
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

    /// Returns the address in global memory. Other spaces are an error.
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
