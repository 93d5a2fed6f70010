//! Memory operands in executable form.

use crate::context::{AddressSpace, Context, Place};
use crate::fault::{FaultKind, Outcome};
use crate::registers::Slot;

/// A memory operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    /// The register that the address counts from.
    pub base: Slot,
    /// Bytes after it.
    pub offset: i64,
    /// What the instruction says of the state space.
    pub space: AddressSpace,
}

impl Pointer {
    /// The address of a lane.
    #[inline]
    pub fn at(&self, context: &Context<'_>, lane: usize) -> u64 {
        context.get(self.base, lane).wrapping_add_signed(self.offset)
    }

    /// Where it points in a lane.
    pub fn place(&self, context: &Context<'_>, lane: usize) -> Place {
        context.locate(self.space, self.at(context, lane))
    }

    /// The block by its rank, and the offset in its shared memory.
    pub fn shared(&self, context: &Context<'_>, lane: usize) -> Outcome<(usize, u64)> {
        match self.place(context, lane) {
            Place::Shared { rank, offset } => Ok((rank, offset)),
            Place::Global(address) | Place::Local(address) | Place::Param(address) => {
                Err(FaultKind::Illegal(format!("{address:#x} is not an address of shared memory")).into())
            }
        }
    }

    /// The address in global memory.
    pub fn global(&self, context: &Context<'_>, lane: usize) -> Outcome<u64> {
        match self.place(context, lane) {
            Place::Global(address) => Ok(address),
            Place::Shared { offset: address, .. } | Place::Local(address) | Place::Param(address) => {
                Err(FaultKind::Illegal(format!("{address:#x} is not an address of global memory")).into())
            }
        }
    }
}

impl Place {
    /// The place so many bytes behind.
    pub fn offset(self, bytes: u64) -> Self {
        match self {
            Self::Global(address) => Self::Global(address + bytes),
            Self::Shared { rank, offset } => Self::Shared { rank, offset: offset + bytes },
            Self::Local(offset) => Self::Local(offset + bytes),
            Self::Param(offset) => Self::Param(offset + bytes),
        }
    }
}
