//! Opens the CUDA driver at run time, and wraps its contexts, memory, modules and launches; caches
//! cubins on disk. Building this crate needs no part of CUDA, and the driver is not opened before
//! [`Driver::get`] is called.
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
//!   `unsafe` is in these two modules, in `cupti` and `cache`, and in functions whose conditions
//!   only the caller can check.
//! - `driver`, `device`, `context`: the driver, its devices, and the contexts in which threads use
//!   the devices.
//! - `memory`, `stream`: buffers, streams, events.
//! - `image`, `assemble`, `module`, `launch`, `tensor_map`: from device code to a running kernel.
//! - `cache`, `settings`: the cache of cubins on disk, and the environment variables of driver and
//!   cache.
//! - `cupti`: the times of kernels, from NVIDIA's profiling library, if it is installed.
//!
//! Invariants: the driver and CUPTI are the only global state; every value may be used from any
//! thread; the caller's current context stays current; a launch allocates nothing; the [`Error`] of
//! a failed call names the call and its subject, such as the kernel; in a child that was forked
//! after the driver was initialized, every call of the driver returns [`Error::Forked`].

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
