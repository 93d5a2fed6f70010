//! Inline assembly on a CPU: who embeds the executor says what runs it. The executor knows no PTX.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tilewright_ir::{Dtype, Element};

use crate::memory::Region;

/// Inline assembly as a kernel has it.
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
    /// How many elements of each a run has.
    pub pack: u32,
}

/// Makes assembly executable.
pub trait Assembler {
    /// The executable form, or why there is none.
    fn assemble(&self, code: &AssemblyCode<'_>) -> Result<Arc<dyn Assembly>, AssemblyError>;
}

/// Why assembly cannot be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AssemblyError {
    /// It is wrong.
    Wrong(String),
    /// It may be right, but has something that nothing here runs.
    Unknown(String),
}

/// Assembly that can be run.
pub trait Assembly: fmt::Debug + Send + Sync {
    /// Runs it so many times. Of each operand, outputs first, there are as many words, one for each run; those of the inputs
    /// hold the bits of the register, and so do those of the outputs afterwards.
    fn run(
        &self,
        runs: usize,
        words: &mut [u64],
        regions: &[Region<'_>],
        stop: &AtomicBool,
    ) -> Result<(), AssemblyFault>;
}

/// Why a run stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssemblyFault {
    /// Whether it touched memory that it may not.
    pub is_out_of_bounds: bool,
    /// What happened.
    pub message: String,
}
