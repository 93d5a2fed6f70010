//! Defines machine code outside of executable memory.

use std::fmt;

/// The machine code of a function, followed by its constants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    /// The instructions, then the constants. The code runs at any multiple of 64.
    pub(crate) bytes: Vec<u8>,
    /// The number of bytes of the instructions.
    pub(crate) instruction_bytes: usize,
    /// The size of the spill slots in bytes.
    pub(crate) spill_bytes: usize,
    /// The offsets at which the origin of instructions changes, with the new origins. Empty without
    /// [`compile_with_origins`](crate::compile_with_origins).
    pub(crate) origins: Vec<(usize, u32)>,
}

impl Code {
    /// Returns the instructions and constants.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the instructions, without the constants.
    pub fn instructions(&self) -> &[u8] {
        &self.bytes[..self.instruction_bytes]
    }

    /// Returns the size of the spill slots in the frame of the function, in bytes.
    pub fn spill_bytes(&self) -> usize {
        self.spill_bytes
    }
}

/// The reason why a function has no machine code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CompileError {
    /// The number of lanes of the function differs from that of the target's vectors.
    Lanes {
        /// The number of lanes of the function.
        function: usize,
        /// The number of lanes of the target's vectors.
        target: usize,
    },
    /// The target has no instructions for an operation on this type.
    Unsupported(String),
    /// The register allocator failed.
    Registers(String),
    /// The encoder refused an instruction.
    Encoding(String),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lanes { function, target } => {
                write!(f, "the function has vectors of {function} lanes but the target has {target}")
            }
            Self::Unsupported(what) => write!(f, "the target cannot compute {what}"),
            Self::Registers(why) => write!(f, "the register allocation failed: {why}"),
            Self::Encoding(why) => write!(f, "the encoder refused an instruction: {why}"),
        }
    }
}

impl std::error::Error for CompileError {}
