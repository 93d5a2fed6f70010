//! Kernels on a GPU, real or simulated: code becomes a loaded module once, and a launch is one pass over the arguments.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic};
use tilewright_compiler::{GpuCode, Resources};
use tilewright_cpu::Interrupt;
use tilewright_cuda::{
    AssembleOptions, Cache, Context, LaunchConfiguration, LaunchOptions, MAX_GRID, Parameters, Settings,
    StreamRef, assemble_cached,
};
use tilewright_frontend::Constant;
use tilewright_ir::Element;
use tilewright_sim as sim;

use crate::error::OutOfResources;
use crate::fault::from_fault;
use crate::options::OptionId;
use crate::specialize::pack;
use crate::{Device, Error, Grid, Handle, Options, Value, reports};

/// A kernel as a GPU has it.
#[derive(Debug)]
pub enum Loaded {
    /// In the simulator.
    Sim(sim::Module),
    /// In the memory of a GPU.
    Cuda {
        /// The kernel, ready to be launched.
        launch: LaunchConfiguration,
        /// Its machine code.
        cubin: Vec<u8>,
    },
}

impl Loaded {
    /// Loads a kernel; for a GPU it is assembled before, unless the cache has the machine code.
    pub(crate) fn new(name: &str, code: &GpuCode, device: Device, options: &Options) -> Result<Self, Error> {
        let limit = code.target.max_shared_bytes;
        if code.shared_bytes > limit {
            let (required, limit) = (code.shared_bytes.into(), limit.into());
            return Err(Error::OutOfResources(OutOfResources { required, limit, name: "shared memory" }));
        }
        match device {
            Device::Cuda(_) => Self::on_gpu(name, code, device, options),
            Device::Cpu | Device::Sim(_) => {
                let target = sim::Target::new(code.target.name).expect("the simulator knows every target");
                let loaded = sim::Simulator::new(target).load(&code.ptx);
                let refuse = |error: sim::LoadError| {
                    let message = format!("kernel `{name}`: the simulator cannot load the PTX: {error}");
                    Error::from(Diagnostic::new(Code::DeviceFault, message))
                };
                loaded.map(Self::Sim).map_err(refuse)
            }
        }
    }

    fn on_gpu(name: &str, code: &GpuCode, device: Device, options: &Options) -> Result<Self, Error> {
        let gpu = device.gpu()?;
        let context = match Context::current(gpu.driver())? {
            Some(context) if context.device() == gpu => context,
            Some(_) => Context::primary(gpu)?,
            None => Context::current_or_primary(gpu)?,
        };
        let cache = Cache::new(&Settings::from_environment());
        let assemble = AssembleOptions {
            max_registers: options.max_registers,
            line_info: true,
            ..AssembleOptions::default()
        };
        let cubin = assemble_cached(&cache, context, name, &code.ptx, assemble)?;
        let function = tilewright_cuda::Module::load(context, name, &cubin)?.function(name)?;
        let is_set = |name: &str| {
            OptionId::parse(name).is_some_and(|option| options.get(option) == Constant::Bool(true))
        };
        let launch = function.configure(LaunchOptions {
            shared_bytes: code.shared_bytes,
            programmatic: is_set("launch_pdl"),
            cooperative: is_set("launch_cooperative_grid"),
            ..LaunchOptions::new(code.threads)
        })?;
        Ok(Self::Cuda { launch, cubin })
    }

    /// What the kernel takes, of which the compiler has said a part.
    pub(crate) fn resources(&self, known: Resources) -> Resources {
        match self {
            Self::Sim(_) => known,
            Self::Cuda { launch, .. } => {
                let attributes = launch.function().attributes();
                Resources { registers: attributes.registers, spills: attributes.spills(), ..known }
            }
        }
    }

    /// The machine code, if there is one.
    pub fn cubin(&self) -> Option<&[u8]> {
        match self {
            Self::Sim(_) => None,
            Self::Cuda { cubin, .. } => Some(cubin),
        }
    }

    /// The most threads that a block of this kernel may have.
    pub fn max_threads(&self) -> u32 {
        match self {
            Self::Sim(_) => 1024,
            Self::Cuda { launch, .. } => launch.function().attributes().max_threads_per_block,
        }
    }

    /// The number of the kernel for other libraries (`CUfunction`); 0 in the simulator.
    pub fn function(&self) -> u64 {
        match self {
            Self::Sim(_) => 0,
            Self::Cuda { launch, .. } => launch.function().raw(),
        }
    }
}

/// The memory that a launch on the simulator may touch.
type Regions<'m> = SmallVec<[sim::Region<'m>; 16]>;

/// Launches a kernel with the arguments that it was compiled for. The grid is not empty.
#[inline]
pub(crate) fn launch(
    handle: &Handle,
    loaded: &Loaded,
    stream: StreamRef<'_>,
    grid: Grid,
    arguments: &[Value<'_>],
    interrupt: Interrupt<'_>,
) -> Result<(), Error> {
    thread_local! {
        /// Its room is kept from launch to launch.
        static PARAMETERS: RefCell<Parameters> = RefCell::new(Parameters::new());
    }
    PARAMETERS.with_borrow_mut(|parameters| {
        parameters.clear();
        match loaded {
            Loaded::Cuda { launch, .. } => {
                handle.pass(arguments, &mut |element, value| pack(element, value, parameters))?;
                launch.launch(grid.extents(), stream, parameters.as_bytes()).map_err(Error::from)
            }
            Loaded::Sim(module) => {
                let mut regions = Regions::new();
                handle.pass(arguments, &mut |element, value| {
                    if let (Element::Pointer(_), Value::Pointer(pointer)) = (element, value) {
                        regions.push(pointer.region.into());
                    }
                    pack(element, value, parameters)
                })?;
                simulate(handle, module, grid, parameters.as_bytes(), &regions, interrupt)
            }
        }
    })
}

/// Runs a kernel in the simulator, and keeps what was counted if somebody wants it.
fn simulate(
    handle: &Handle,
    module: &sim::Module,
    grid: Grid,
    parameters: &[u8],
    regions: &[sim::Region<'_>],
    interrupt: Interrupt<'_>,
) -> Result<(), Error> {
    let (name, grid) = (handle.compiled.name.as_str(), grid.extents());
    if let Some(axis) = (0..3).find(|&axis| grid[axis] > MAX_GRID[axis]) {
        let kernel = name.to_owned();
        let (extent, limit) = (grid[axis], MAX_GRID[axis]);
        return Err(tilewright_cuda::Error::GridTooLarge { kernel, axis, extent, limit }.into());
    }
    let tilewright_compiler::MachineCode::Gpu(code) = &handle.compiled.code else { return Ok(()) };
    let mut launch = sim::Launch::new(name, grid, [code.threads, 1, 1], parameters, regions);
    launch.dynamic_shared_bytes = code.shared_bytes;
    let report = interruptible(module, launch, interrupt);
    let report = report.map_err(|fault| from_fault(&fault, handle))?;
    for text in &report.printed {
        print!("{text}");
    }
    reports::add(report);
    Ok(())
}

/// How often a callback is asked whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A launch that ends early when it is interrupted.
fn interruptible(
    module: &sim::Module,
    launch: sim::Launch<'_>,
    interrupt: Interrupt<'_>,
) -> Result<sim::Report, Box<sim::Fault>> {
    let poll = match interrupt {
        Interrupt::Never => return module.launch(&launch),
        Interrupt::Flag(flag) => return module.launch(&sim::Launch { interrupt: Some(flag), ..launch }),
        Interrupt::Poll(poll) => poll,
    };
    let stop = AtomicBool::new(false);
    let launch = sim::Launch { interrupt: Some(&stop), ..launch };
    let (done, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // If nobody waits for it any more, the thread that launched has panicked.
            let _ = done.send(module.launch(&launch));
        });
        // The callback is asked on this thread: only Python's main thread sees its signals.
        loop {
            match ended.recv_timeout(POLL_INTERVAL) {
                Ok(result) => return result,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if poll() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    unreachable!("the channel is open as long as this")
                }
            }
        }
    })
}
