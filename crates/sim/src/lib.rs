//! Executes PTX modules on the CPU: the GPU without a GPU.
//!
//! ```text
//! text ── ptx::isa ──> Module ── decode ──> Program ── launch ──> clusters ── warps ── memory
//! ```
//! - [`Simulator::load`] takes PTX of any compiler (`module`); a kernel is decoded once, at its first launch (`decode`,
//!   one file a family of instructions; `numeric` has the arithmetic).
//! - [`LoadedModule::launch`] runs the blocks of a grid on the threads of the host (`launch`). The warps of a cluster take turns
//!   on one thread (`block`, `barrier`); the lanes of a warp may diverge (`warp`, `registers`).
//! - Calls are expanded when a kernel is decoded; those that cannot be, of recursive functions and through pointers, have a
//!   stack (`call`).
//! - `memory` checks every access: bounds, alignment, bytes that nobody has written, races between warps. `asynchronous`
//!   and `tensor` are what runs beside the warps and on the tensor cores.
//! - A launch ends with a [`Report`] of what was counted (`counters`, `report`) or with a [`Fault`] that names the line of
//!   the PTX and of the kernel.
//!
//! It is written from the PTX ISA document, not from an emitter, so that it can prove an emitter wrong. What the ISA
//! leaves open is one of the allowed results; what it does not allow is a fault as far as it is noticed.
//!
//! Invariants: `unsafe` is in `memory` alone; a step whose access is a fault has not made that access; what is not
//! supported is a fault that names it when it is executed, never a wrong result.

mod asynchronous;
mod barrier;
mod block;
mod call;
mod context;
mod counters;
mod decode;
mod fault;
mod launch;
mod memory;
mod model;
mod module;
mod numeric;
mod padding;
mod registers;
mod report;
mod residency;
mod target;
mod tensor;
mod visits;
mod warp;
mod watch;

pub use asynchronous::tensor_map::{
    OutOfBoundsFill, TENSOR_MAP_BYTES, TensorDataType, TensorMap, TensorMapError,
};
pub use counters::StepCounters;
pub use decode::{Class, Parameter};
pub use fault::{Fault, FaultKind, Location, Polling, RacingAccess, Waiting};
pub use launch::Launch;
pub use memory::{Region, Space};
pub use model::{Bound, Busy, Estimate, GPUS, GpuModel, busy};
pub use module::{LoadError, LoadedModule};
pub use padding::PaddedReads;
pub use report::{Instruction, Report};
pub use target::SimTarget;
pub use tensor::Swizzle;
pub use watch::Watch;

/// A simulated device.
#[derive(Clone, Debug)]
pub struct Simulator {
    target: SimTarget,
}

impl Simulator {
    /// A device of a target.
    pub fn new(target: SimTarget) -> Self {
        Self { target }
    }

    /// Its target.
    pub fn target(&self) -> &SimTarget {
        &self.target
    }

    /// Loads a module from its text.
    pub fn load(&self, text: &str) -> Result<LoadedModule, LoadError> {
        let module = tilewright_ptx::isa::parse(text).map_err(LoadError::Parse)?;
        LoadedModule::load(&self.target, module, text)
    }

    /// Loads a module that is data already. Its lines are those that its statements carry.
    pub fn load_module(&self, module: tilewright_ptx::isa::Module) -> Result<LoadedModule, LoadError> {
        LoadedModule::load(&self.target, module, "")
    }
}
