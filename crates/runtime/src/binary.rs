//! Loads device code and launches it by its driver handle.
//!
//! `triton.compile` and torch's Inductor launch their kernels in this way. The source of the kernel
//! is unknown, so the caller states the types of the arguments.
//!
//! ```text
//! bytes ──load──> handle ──Manner::configure──> LaunchConfiguration ──Call──> the GPU
//!                                        Slot for each parameter ──┘
//! ```

mod call;
mod signature;

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tilewright_base::{Code, Diagnostic};
use tilewright_cuda::{
    Cache, Function, FunctionAttributes, LaunchConfiguration, LaunchOptions, Module, Settings,
};

use crate::loaded::Assembler;
use crate::{Device, Error};

pub use call::Call;
pub use signature::{ArgumentType, Slot};

type Kernels = FxHashMap<u64, (u64, Function)>;

/// The kernels that [`load`] has loaded, and those that [`share`] has registered.
static LOADED: Mutex<Option<Kernels>> = Mutex::new(None);

fn loaded() -> MutexGuard<'static, Option<Kernels>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A loaded kernel: the driver's handles, which other libraries can use, and its attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binary {
    /// The driver's handle of the module (`CUmodule`).
    pub module: u64,
    /// The driver's handle of the kernel (`CUfunction`).
    pub function: u64,
    /// The driver's attributes of the kernel.
    pub attributes: FunctionAttributes,
}

/// Assembles PTX for a GPU, or reads its cubin from the cache. Returns the cubin, and a warning if
/// the cache cannot be used.
///
/// `block` has the number of threads and the bytes of shared memory of a block. Without
/// `max_registers`, this function may choose the number of registers of a thread. More blocks are
/// then resident, or fewer registers are spilled.
pub fn assemble(
    device: Device,
    kernel: &str,
    ptx: &str,
    max_registers: Option<u32>,
    block: (u32, u32),
) -> Result<(Vec<u8>, Option<String>), Error> {
    let cache = Cache::new(&Settings::from_environment());
    let (gpu, context) = (device.gpu()?, device.context()?);
    let assembler = Assembler { gpu, context, cache: &cache, name: kernel };
    let (_, cubin) = assembler.assemble(ptx, max_registers, block)?;
    Ok((cubin, cache.take_warning()))
}

/// Loads a kernel of a cubin, a fat binary or PTX on a GPU. Fails if the GPU cannot give a block
/// `shared_bytes` bytes of dynamic shared memory.
pub fn load(device: Device, kernel: &str, image: &[u8], shared_bytes: u32) -> Result<Binary, Error> {
    let module = Module::load(device.context()?, kernel, image)?;
    let function = module.function(kernel)?;
    // Too large a value of `shared_bytes` fails here, not at the first launch.
    function.configure(LaunchOptions { shared_bytes, ..LaunchOptions::new(1) })?;
    let (module, number, attributes) = (module.raw(), function.raw(), function.attributes());
    loaded().get_or_insert_default().insert(number, (module, function));
    Ok(Binary { module, function: number, attributes })
}

/// Registers an already loaded kernel, so that [`function`] finds it, and returns its handle. To
/// remove the kernel, pass this handle to [`unload`] in place of a module's handle.
pub fn share(function: &Function) -> u64 {
    let number = function.raw();
    loaded().get_or_insert_default().insert(number, (number, function.clone()));
    number
}

/// Removes the kernel of the module with this handle. This unloads the module, unless another
/// [`Function`] still uses the module. Fails if there is no such kernel.
pub fn unload(module: u64) -> Result<(), Error> {
    let mut kernels = loaded();
    let of_module = kernels.iter().flatten().find(|(_, (owner, _))| *owner == module);
    let found = of_module.map(|(&number, _)| number);
    let unloaded = found.and_then(|number| kernels.as_mut()?.remove(&number));
    // Dropping the kernel calls the driver without the lock.
    drop(kernels);
    let message = || format!("no module with the handle {module:#x} is loaded");
    unloaded.map(drop).ok_or_else(|| invalid(message()).into())
}

/// Returns the kernel with this handle.
pub fn function(number: u64) -> Result<Function, Error> {
    let kernels = loaded();
    let found = kernels.as_ref().and_then(|kernels| Some(kernels.get(&number)?.1.clone()));
    drop(kernels);
    found.ok_or_else(|| {
        let note = "kernels are loaded by `driver.active.utils.load_binary`, and a compiled kernel's `_init_handles()`";
        invalid(format!("no kernel with the handle {number:#x} is loaded")).note(note).into()
    })
}

/// Returns the maximum number of resident clusters on the GPU, for the kernel with the handle
/// `number`. A cluster has `cluster` blocks of 128 threads each.
pub fn max_active_clusters(number: u64, shared_bytes: u32, cluster: u32) -> Result<u32, Error> {
    let options = LaunchOptions { shared_bytes, cluster: [cluster, 1, 1], ..LaunchOptions::new(128) };
    Ok(function(number)?.configure(options)?.max_active_clusters()?)
}

/// The settings of a launch, except its grid, stream and arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manner {
    /// The handle of the kernel.
    pub function: u64,
    /// Triton's packed metadata: the warps of a block, the blocks of a cluster, and the bytes of
    /// dynamic shared memory of a block. A cluster of 0 blocks counts as one block.
    pub packed: (u32, u32, u32),
    /// True if all programs have to be resident at the same time.
    pub is_cooperative: bool,
    /// True if the kernel may start before the preceding kernel on the stream has ended.
    pub is_programmatic: bool,
}

impl Manner {
    /// Returns the launch configuration for these settings.
    pub fn configure(self) -> Result<LaunchConfiguration, Error> {
        let (warps, cluster, shared_bytes) = self.packed;
        let options = LaunchOptions {
            shared_bytes,
            cluster: [cluster.max(1), 1, 1],
            programmatic: self.is_programmatic,
            cooperative: self.is_cooperative,
            ..LaunchOptions::new(warps.saturating_mul(32))
        };
        Ok(function(self.function)?.configure(options)?)
    }
}

fn invalid(message: String) -> Diagnostic {
    Diagnostic::new(Code::InvalidArgument, message)
}
