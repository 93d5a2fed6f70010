//! Compiles kernels for the arguments of calls, and launches the code.
//!
//! This crate does not need Python.
//!
//! ```text
//! caller's arguments ──convert──> Value ──Kernel::bind──> a Value for each parameter
//!   ──Kernel::lookup──> key (specialize.rs) ──> Handle, compiled now or earlier
//!   ──Handle::launch──> the CPU's executor
//!                   ──> one buffer of parameters (gpu.rs) ──> the simulator or a GPU's driver
//! ```
//! [`binary`] launches device code that the caller knows only by its driver handle, as Triton's
//! driver module does.
//!
//! [`interpret`] is interpret mode: Python runs the body of a kernel, and each op is compiled and
//! evaluated separately.
//!
//! A caller converts each argument to a [`Value`] once. The warm path is [`Kernel::lookup`] and
//! [`Handle::launch`]. It allocates nothing for a usual number of arguments, and acquires only
//! shared locks and the lock of the kernel's tensor maps.
//!
//! Only the cubins of the driver's assembler are cached on disk (`tilewright_cuda::Cache`). Other
//! code is compiled as fast as a cached file is found and checked. A matmul of 13 parameters with
//! four helper functions compiles in 208 us; its module is read in another 61 us. The warm path
//! takes 0.1 us for 5 arguments. `crates/tilewright/examples/timings.rs` measures these times.

pub mod binary;
mod bounds;
mod checks;
mod clock;
mod describe;
mod device;
mod dump;
mod error;
mod fault;
mod gpu;
mod gpu_times;
mod grid;
mod handle;
#[cfg(feature = "python-syntax")]
pub mod interpret;
mod kernel;
mod key;
mod knobs;
mod launch;
mod loaded;
pub mod lock;
mod options;
mod padded;
mod profile;
mod reports;
mod sanitize;
mod signature;
mod simulated_trace;
#[cfg(feature = "python-syntax")]
mod source;
mod specialize;
mod tensor_maps;
mod threads;
mod trace;
mod value;
mod variants;

pub use bounds::{BoundsFinding, BoundsReport, BoundsVerdict};
pub use clock::profile_clock;
pub use describe::{DescribedLayout, parse_argument};
pub use device::{Device, Selection, claim_capability, multiprocessors_of};
pub use error::{Error, OutOfResources};
pub use gpu_times::set_cupti_folders;
pub use grid::Grid;
pub use handle::{Attachment, Bound, Handle};
pub use kernel::Kernel;
pub use key::is_same_value;
pub use knobs::{FpFusion, Knobs};
pub use loaded::Loaded;
pub use options::{Consumer, DefaultValue, OPTIONS, OptionId, OptionInfo, OptionKind, Options};
pub use padded::{
    allow_padded_reads, are_padded_reads_allowed, keep_padded_reads, padding_of, take_padded_reads,
};
pub use profile::{set_scope, start_profile, stop_profile, take_profile};
pub use reports::{keep_reports, take_reports};
pub use sanitize::{
    SanitizerReport, SourcePlace, keep_reports_of_launch, print_findings, sanitizer_checks,
    sanitizer_reports, with_checks,
};
pub use signature::{Annotation, ArgumentSource, Binding, Parameter, ParameterKind, Signature, parse_dtype};
#[cfg(feature = "python-syntax")]
pub use source::SourceModule;
pub use threads::{num_threads, set_num_threads};
pub use trace::{TraceRequest, layouts_of_launch};
pub use value::{Pointer, Value};

pub use tilewright_base::memory::Region;
pub use tilewright_compiler::bounds::{Expression as BoundsExpression, Statement as BoundsStatement};
pub use tilewright_compiler::{
    CompiledKernel, MachineCode, Metadata, ParameterType, Resources, Stage, Target,
};
pub use tilewright_cpu::{IS_OPTIMIZED, Interrupt};
pub use tilewright_cuda as cuda;
pub use tilewright_cuda::{
    Context, DeviceBuffer, Driver, Event as CudaEvent, LaunchConfiguration, Stream as CudaStream, StreamRef,
};
pub use tilewright_sanitize::{Check, Checks, MEMORY};
