//! The arguments of a launch.

use crate::run::memory::Region;

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// A pointer and the memory that the kernel may access through the pointer.
    Pointer {
        /// The address that the kernel receives.
        address: u64,
        /// The memory that the kernel may access.
        region: Region<'a>,
    },
    /// The bits of a number. Bits above the width of the parameter are ignored.
    Scalar(u64),
}
