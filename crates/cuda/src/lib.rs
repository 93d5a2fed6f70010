//! Opens the CUDA driver at run time, and wraps its functions.
//!
//! Also caches cubins on disk. Building this crate needs no part of CUDA. The first call of
//! [`Driver::get`] opens the driver.
//!
//! ```text
//! PTX ──assemble(_cached)──> cubin ──Module::load──> Module ──function──> Function
//!     ──configure──> LaunchConfiguration ──launch──> the device
//! ```
//!
//! ```no_run
//! use tilewright_cuda::{
//!     AssembleOptions, Cache, Context, DeviceBuffer, Driver, LaunchOptions, Module, Parameters, Settings, StreamRef,
//!     assemble_cached,
//! };
//!
//! # fn main() -> Result<(), tilewright_cuda::Error> {
//! # let ptx = "";
//! let context = Context::current_or_primary(Driver::get()?.device(0)?)?;
//! let cache = Cache::new(&Settings::from_environment());
//! let cubin = assemble_cached(&cache, context, "scale", ptx, AssembleOptions::default())?;
//! let scale = Module::load(context, "scale", &cubin)?.function("scale")?.configure(LaunchOptions::new(128))?;
//!
//! let buffer = DeviceBuffer::from_bytes(context, &[0; 4096])?;
//! let mut parameters = Parameters::new();
//! parameters.push(buffer.address()).push(1024_u32).push(2.0_f32);
//! scale.launch([8, 1, 1], StreamRef::DEFAULT, parameters.as_bytes())?;
//! context.synchronize()?;
//! # Ok(())
//! # }
//! ```
//!
//! - `sys` declares the C interface of the driver; `calls` has methods that call its functions.
//!   Only these two modules, `cupti`, `cache`, and functions whose conditions only the caller can
//!   check contain `unsafe` code.
//! - `driver`, `device`, `context`: the driver, its devices, and the contexts in which threads use
//!   the devices.
//! - `memory`, `stream`: buffers, streams, events.
//! - `image`, `assemble`, `module`, `launch`, `tensor_map`: the steps from device code to a running
//!   kernel.
//! - `cache`, `settings`: the cache of cubins on disk, and the environment variables of the driver
//!   and of the cache.
//! - `cupti`: the times of kernels, if NVIDIA's profiling library is installed.
//!
//! Invariants:
//!
//! - The driver and CUPTI are the only global state. Any thread may use every value.
//! - The caller's current context stays current.
//! - A launch allocates nothing.
//! - The [`Error`] of a failed call names the call and its subject, such as the kernel.
//! - If a process forks after the driver was initialized, every call of the driver in the child
//!   returns [`Error::Forked`].

mod assemble;
mod cache;
mod calls;
mod context;
mod cupti;
mod device;
mod driver;
mod error;
mod image;
mod launch;
mod memory;
mod module;
mod settings;
mod stream;
mod sys;
mod tensor_map;

pub use assemble::{AssembleOptions, Assembled, assemble, assemble_cached};
pub use cache::{
    Cache, CacheEntry, Distrust, EntryState, Key, Provenance, Removed, StoredFile, remove_least_recent,
};
pub use context::Context;
pub use cupti::{Cupti, KernelTime};
pub use device::{Device, Properties};
pub use driver::Driver;
pub use error::{CallError, Capability, Error, Version};
pub use launch::{LaunchConfiguration, LaunchOptions, MAX_GRID, Parameters};
pub use memory::DeviceBuffer;
pub use module::{Function, FunctionAttributes, Module};
pub use settings::{CACHE_LIMIT, Settings};
pub use stream::{Event, Stream, StreamRef};
pub use tensor_map::{
    TensorMap, TensorMapElement, TensorMapFill, TensorMapInterleave, TensorMapPromotion, TensorMapRule,
    TensorMapSource, TensorMapSwizzle, TensorMapWindow,
};
