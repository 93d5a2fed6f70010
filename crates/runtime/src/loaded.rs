//! Loads the code of a kernel once, on a GPU or in the simulator.

use std::sync::{Arc, Once, RwLock};

use tilewright_base::{Code, Diagnostic};
use tilewright_compiler::{GpuCode, Multiprocessor, Occupancy, Resources, TensorMapVariant, Tuning};
use tilewright_cuda::{
    AssembleOptions, Cache, Context, Function, LaunchConfiguration, LaunchOptions, Module, Parameters,
    Settings, assemble_cached,
};
use tilewright_sim as sim;

use crate::error::OutOfResources;
use crate::lock;
use crate::options::OptionId;
use crate::tensor_maps::{Blocks, PAIR, TensorMaps, Unfit};
use crate::{Device, Error, Options};

/// A kernel that is loaded on a GPU, real or simulated.
#[derive(Debug)]
pub enum Loaded {
    /// A kernel in the simulator.
    Sim {
        /// The module.
        module: sim::LoadedModule,
        /// The number of blocks of a program. They run as a cluster.
        cluster: u32,
        /// The tensor maps that the kernel takes.
        tensor_maps: Option<Box<TensorMaps>>,
    },
    /// A kernel in the memory of a GPU.
    Cuda {
        /// The kernel, ready to be launched.
        launch: LaunchConfiguration,
        /// The kernel for clusters of two blocks that share their tensor copies, if the code and
        /// the options permit them.
        pairs: Option<Box<LaunchConfiguration>>,
        /// The cubin of the kernel.
        cubin: Vec<u8>,
        /// The tensor maps that the kernel takes.
        tensor_maps: Option<Box<TensorMaps>>,
    },
}

impl Loaded {
    /// Loads a kernel. For a GPU, assembles it first, unless `code` or the cache has the cubin.
    pub(crate) fn new(name: &str, code: &GpuCode, device: Device, options: &Options) -> Result<Self, Error> {
        let limit = code.target.max_shared_bytes;
        if code.shared_bytes > limit {
            let (required, limit) = (code.shared_bytes.into(), limit.into());
            return Err(Error::OutOfResources(OutOfResources { required, limit, name: "shared memory" }));
        }
        match device {
            Device::Cuda(_) if cfg!(feature = "cuda") => Self::on_gpu(code, device, options),
            Device::Cpu | Device::Sim(_) if cfg!(feature = "sim") => {
                let target = sim::SimTarget::new(code.target.name).expect("the simulator knows every target");
                let loaded = sim::Simulator::new(target).load(&code.ptx);
                let refuse = |error: sim::LoadError| refused(name, &error.to_string());
                let module = loaded.map_err(refuse)?;
                let tensor_maps = TensorMaps::new(code, None, |index| {
                    let places =
                        module.parameters(&code.entry).map_err(|fault| refused(name, &fault.to_string()))?;
                    Ok(places[index].offset)
                })?;
                let tensor_maps = tensor_maps.map(Box::new);
                Ok(Self::Sim { module, cluster: code.cluster(), tensor_maps })
            }
            Device::Cpu | Device::Sim(_) | Device::Cuda(_) => Err(device.left_out()),
        }
    }

    /// Assembles a kernel, unless `code` or the cache has the cubin, and loads it. Without
    /// `maxnreg`, [`Multiprocessor::assemble`] may choose the number of registers of a thread.
    fn on_gpu(code: &GpuCode, device: Device, options: &Options) -> Result<Self, Error> {
        let (gpu, context) = (device.gpu()?, device.context()?);
        let cache = Cache::new(&Settings::from_environment());
        let launch_options = LaunchOptions {
            shared_bytes: code.shared_bytes,
            cluster: [code.cluster(), 1, 1],
            programmatic: options.is_on(OptionId::LaunchPdl),
            cooperative: options.is_on(OptionId::LaunchCooperativeGrid),
            ..LaunchOptions::new(code.threads)
        };
        if let Some(cubin) = &code.cubin {
            let module = Module::load(context, &code.entry, cubin)?;
            let function = module.function(&code.entry)?;
            return Self::configured(code, context, &function, cubin.clone(), launch_options);
        }
        lock::forbid(
            || format!("the lock has no cubin of kernel '{}' for {}", code.entry, code.target.name),
            "it was written where there was neither such a GPU nor `ptxas`",
        )?;
        let max_registers = options.number(OptionId::Maxnreg);
        let assembler = Assembler { gpu, context, cache: &cache, name: &code.entry };
        let block = (code.threads, code.shared_bytes);
        let (function, cubin) = assembler.assemble(&code.ptx, max_registers, block)?;
        if let Some(warning) = cache.take_warning() {
            CACHE_WARNING.call_once(|| eprintln!("tilewright: {warning}"));
        }
        Self::configured(code, context, &function, cubin, launch_options)
    }

    fn configured(
        code: &GpuCode,
        context: Context,
        function: &Function,
        cubin: Vec<u8>,
        launch_options: LaunchOptions,
    ) -> Result<Self, Error> {
        let tensor_maps =
            TensorMaps::new(code, Some(context), |index| Ok(function.parameter_offset(index)?))?;
        let tensor_maps = tensor_maps.map(Box::new);
        let in_pairs = LaunchOptions { cluster: [PAIR, 1, 1], ..launch_options };
        let is_special = launch_options.programmatic || launch_options.cooperative;
        let has_pairs = !is_special && tensor_maps.as_ref().is_some_and(|maps| maps.has_pairs());
        let pairs = has_pairs.then(|| function.configure(in_pairs)).transpose()?.map(Box::new);
        Ok(Self::Cuda { launch: function.configure(launch_options)?, pairs, cubin, tensor_maps })
    }

    /// Returns the number of blocks of a program. They run as a cluster.
    fn cluster(&self) -> u32 {
        match self {
            Self::Sim { cluster, .. } => *cluster,
            Self::Cuda { launch, .. } => launch.options().cluster[0],
        }
    }

    /// Appends the tensor maps of the code to the parameters of a launch. The given grid counts
    /// programs; the returned grid counts blocks. If some accesses cannot have a map, returns these
    /// and appends nothing.
    #[inline]
    pub(crate) fn append_maps(
        &self,
        [x, y, z]: [u32; 3],
        regions: &[sim::Region<'_>],
        parameters: &mut Parameters,
    ) -> Result<Result<Blocks, Unfit>, Error> {
        // A saturated extent exceeds the maximum of a grid, so the launch fails.
        let grid = [x.saturating_mul(self.cluster()), y, z];
        let (maps, can_pair) = match self {
            Self::Sim { tensor_maps, .. } => (tensor_maps, true),
            Self::Cuda { tensor_maps, pairs, .. } => (tensor_maps, pairs.is_some()),
        };
        match maps {
            Some(maps) => maps.append(grid, can_pair, regions, parameters),
            None => Ok(Ok((grid, false))),
        }
    }

    /// Returns the resources that the kernel uses: `known`, with the driver's counts of registers
    /// and spills on a GPU.
    pub(crate) fn resources(&self, known: Resources) -> Resources {
        match self {
            Self::Sim { .. } => known,
            Self::Cuda { launch, .. } => {
                let attributes = launch.function().attributes();
                Resources { registers: attributes.registers, spills: attributes.spills(), ..known }
            }
        }
    }

    /// Returns the cubin; `None` in the simulator.
    pub fn cubin(&self) -> Option<&[u8]> {
        match self {
            Self::Sim { .. } => None,
            Self::Cuda { cubin, .. } => Some(cubin),
        }
    }

    /// Returns the maximum number of threads of a block of this kernel.
    pub fn max_threads(&self) -> u32 {
        match self {
            Self::Sim { .. } => 1024,
            Self::Cuda { launch, .. } => launch.function().attributes().max_threads_per_block,
        }
    }

    /// Returns the driver's kernel; `None` in the simulator.
    pub fn kernel(&self) -> Option<&Function> {
        match self {
            Self::Sim { .. } => None,
            Self::Cuda { launch, .. } => Some(launch.function()),
        }
    }
}

/// A variant of a kernel's code: compiled without tensor maps for some accesses, and loaded.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) kind: TensorMapVariant,
    pub(crate) code: GpuCode,
    pub(crate) loaded: Loaded,
}

/// The variants of a handle, except its own code.
#[derive(Default, Debug)]
pub(crate) struct Variants {
    pub(crate) known: RwLock<Vec<Arc<Variant>>>,
}

fn refused(name: &str, why: &str) -> Error {
    let message = format!("kernel `{name}`: the simulator cannot load the PTX: {why}");
    Diagnostic::new(Code::DeviceFault, message).into()
}

/// Assembles PTX to a cubin.
pub(crate) struct Assembler<'a> {
    pub(crate) gpu: tilewright_cuda::Device,
    pub(crate) context: Context,
    pub(crate) cache: &'a Cache,
    pub(crate) name: &'a str,
}

impl Assembler<'_> {
    /// Assembles and loads the kernel for blocks of `threads` threads and `shared_bytes` bytes of
    /// shared memory. Returns the kernel with its cubin.
    pub(crate) fn assemble(
        &self,
        ptx: &str,
        max_registers: Option<u32>,
        (threads, shared_bytes): (u32, u32),
    ) -> Result<(Function, Vec<u8>), Error> {
        // With few registers, the assembler may serialize the wgmma instructions. `asynchronous`
        // makes that an error.
        let load = |ptx: &str, asynchronous: bool| -> Result<_, Error> {
            let options = AssembleOptions { line_info: true, asynchronous, ..AssembleOptions::default() };
            let cubin = assemble_cached(self.cache, self.context, self.name, ptx, options)?;
            let module = Module::load(self.context, self.name, &cubin)?;
            let function = match parameter_count(ptx, self.name) {
                Some(count) => module.function_of(self.name, count)?,
                None => module.function(self.name)?,
            };
            let blocks = function.max_active_blocks(threads, shared_bytes)?;
            let (registers, spills) = (function.attributes().registers, function.attributes().spills());
            let occupancy = Occupancy { threads, shared_bytes, registers, spills, blocks };
            Ok(((function, cubin), occupancy))
        };
        multiprocessor_of(self.gpu.properties()?).assemble(ptx, max_registers, load)
    }
}

/// Returns the resources that the resident blocks of a multiprocessor share.
fn multiprocessor_of(device: &tilewright_cuda::Properties) -> Multiprocessor {
    Multiprocessor {
        registers: device.registers_per_multiprocessor,
        threads: device.max_threads_per_multiprocessor,
        blocks: device.max_blocks_per_multiprocessor,
        shared_bytes: device.shared_memory_per_multiprocessor,
        reserved_bytes: device.reserved_shared_memory_per_block,
        tuning: Tuning::of(device.capability.major * 10 + device.capability.minor),
    }
}

/// Returns the number of parameters of a kernel in PTX; `None` if the text has no such kernel.
fn parameter_count(ptx: &str, kernel: &str) -> Option<usize> {
    let (_, after) = ptx.split_once(&format!(".entry {kernel}("))?;
    Some(after.split_once(')')?.0.matches(".param ").count())
}

/// Limits the warning about an unusable cache to one in a process.
static CACHE_WARNING: Once = Once::new();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_counted() {
        let text = ".visible .entry k(\n .param .u64 .ptr .global .align 16 k_param_0,\n .param .align 64 .b8 map[128]\n)\n{\n .reg";
        assert_eq!(parameter_count(text, "k"), Some(2));
        assert_eq!(parameter_count(&text.replace("entry k(", "entry kernel()("), "kernel"), Some(0));
        assert_eq!(parameter_count(text, "other"), None);
    }
}
