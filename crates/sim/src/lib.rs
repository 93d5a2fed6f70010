//! Executes PTX modules on the CPU, without a GPU.
//!
//! ```text
//! text ── ptx::isa ──> Module ── decode ──> Program ── launch ──> clusters ── warps ── memory
//! ```
//! - [`Simulator::load`] loads PTX of any compiler (`module`). A kernel is decoded at its first
//!   use. `decode` has one file for each family of instructions, and `numeric` has the arithmetic.
//! - [`LoadedModule::launch`] runs the blocks of a grid on the threads of the host (`launch`). The
//!   warps of a cluster run in turns on one thread (`block`, `barrier`). The lanes of a warp may
//!   diverge (`warp`, `registers`).
//! - The decoder inlines calls. Recursive calls, calls through pointers, and calls beyond a limit
//!   use a stack (`call`).
//! - `context` and `memory` check the bounds and the alignment of every access. In shared memory,
//!   they also check for uninitialized bytes and for races between warps. `watch` checks global
//!   memory in a watched launch. `asynchronous` implements copies that run concurrently with the
//!   warps. `tensor` implements the tensor cores.
//! - `events` records accesses, copies and synchronization for a trace, if the caller requests it.
//! - A launch ends with a [`Report`] of its counters (`counters`, `report`), or with a [`Fault`] at
//!   a line of the PTX and of the kernel.
//!
//! The simulator follows the PTX ISA document, not the emitter of this project, so that it can find
//! errors of the emitter. If the ISA permits several results, the simulator returns one of them. If
//! the ISA forbids a program, the simulator reports a fault as far as it detects the violation.
//!
//! Invariants:
//!
//! - Only `memory` contains `unsafe` code.
//! - A lane whose access faults has not changed memory by this access.
//! - An unsupported feature never causes a wrong result. It is an error at load, or a fault at
//!   execution. Both name the feature.

mod asynchronous;
mod barrier;
mod block;
mod call;
mod cluster_accesses;
mod cluster_launches;
mod context;
mod counters;
mod decode;
mod events;
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
mod unwritten;
mod warp;
mod watch;

pub use asynchronous::tensor_map::{
    OutOfBoundsFill, PixelBox, TENSOR_MAP_BYTES, TensorDataType, TensorMap, TensorMapError,
};
pub use counters::StepCounters;
pub use decode::{Class, Parameter};
pub use events::{ClusterEvents, Detail, Event, EventKind, Events, Piece};
pub use fault::{BarrierWait, Fault, FaultKind, Location, Polling, RacingAccess, Waiting};
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
    /// Creates a device of a target.
    pub fn new(target: SimTarget) -> Self {
        Self { target }
    }

    /// Returns the target of the device.
    pub fn target(&self) -> &SimTarget {
        &self.target
    }

    /// Loads a module from its text.
    pub fn load(&self, text: &str) -> Result<LoadedModule, LoadError> {
        let module = tilewright_ptx::isa::parse(text).map_err(LoadError::Parse)?;
        LoadedModule::load(&self.target, module, text)
    }

    /// Loads a parsed module. Faults give the line numbers of its statements, but not the text of
    /// the lines.
    pub fn load_module(&self, module: tilewright_ptx::isa::Module) -> Result<LoadedModule, LoadError> {
        LoadedModule::load(&self.target, module, "")
    }
}
