//! Inline assembly on a CPU. The executor cannot parse PTX, so its caller passes an [`Assembler`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tilewright_ir::{Dtype, Element};

use crate::memory::Region;

/// An inline assembly op of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct AssemblyCode<'a> {
    /// The text, with `$0` for the first operand.
    pub text: &'a str,
    /// The constraints.
    pub constraints: &'a str,
    /// The types of the results.
    pub results: &'a [Dtype],
    /// The types of the arguments.
    pub arguments: &'a [Element],
    /// The number of elements that one execution of the text takes from each operand.
    pub pack: u32,
}

/// Makes inline assembly executable.
pub trait Assembler {
    /// Translates the assembly to its executable form.
    fn assemble(&self, code: &AssemblyCode<'_>) -> Result<Arc<dyn Assembly>, AssemblyError>;
}

/// The reason why assembly cannot be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AssemblyError {
    /// The assembly is invalid.
    Wrong(String),
    /// The assembly may be valid, but the assembler does not support it.
    Unknown(String),
}

/// Executable inline assembly.
pub trait Assembly: fmt::Debug + Send + Sync {
    /// Runs the assembly `runs` times.
    ///
    /// `words` has `runs` words for each operand, outputs first. The words of an input hold the
    /// bits of its register in each run. This function writes the words of the outputs.
    fn run(
        &self,
        runs: usize,
        words: &mut [u64],
        regions: &[Region<'_>],
        stop: &AtomicBool,
    ) -> Result<(), AssemblyFault>;
}

/// The fault that stopped a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssemblyFault {
    /// True if the assembly accessed memory outside of the regions.
    pub is_out_of_bounds: bool,
    /// The description of the fault.
    pub message: String,
}
