//! Launches kernels on a GPU, real or simulated.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use smallvec::SmallVec;
use tilewright_compiler::MachineCode;
use tilewright_cpu::{Finding, Interrupt};
use tilewright_cuda::{MAX_GRID, Parameters, StreamRef};
use tilewright_ir::Element;
use tilewright_sim as sim;

use crate::fault::{from_fault, from_watch};
use crate::loaded::Loaded;
use crate::profile::Observer;
use crate::specialize::pack;
use crate::tensor_maps::PAIR;
use crate::variants::{self, ChosenVariant};
use crate::{Error, Grid, Handle, Value, padded, reports, sanitize};

/// The events and the findings of a launch on the simulator that is recorded.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) events: &'a sim::Events,
    pub(crate) findings: &'a Mutex<Vec<Finding>>,
}

/// The memory that a launch on the simulator may touch.
type Regions<'m> = SmallVec<[sim::Region<'m>; 16]>;

/// Launches a kernel. Only the simulator needs `foreign`: memory besides that of the arguments. The
/// grid must not be empty.
#[inline]
pub(crate) fn launch(
    handle: &Handle,
    loaded: &Loaded,
    stream: StreamRef<'_>,
    grid: Grid,
    (arguments, foreign): (&[Value<'_>], &[crate::Region<'_>]),
    (interrupt, observer): (Interrupt<'_>, Option<&Observer>),
) -> Result<(), Error> {
    thread_local! {
        /// The buffer of parameters, whose memory is reused from launch to launch.
        static PARAMETERS: RefCell<Parameters> = RefCell::new(Parameters::new());
    }
    PARAMETERS.with_borrow_mut(|parameters| {
        parameters.clear();
        match loaded {
            Loaded::Cuda { .. } if cfg!(feature = "cuda") => {
                handle.pass(arguments, &mut |element, value| pack(element, value, parameters))?;
                start(handle, loaded, stream, grid.extents(), parameters, observer)
            }
            Loaded::Sim { .. } if cfg!(feature = "sim") => simulate_passed(
                handle,
                loaded,
                grid,
                (arguments, foreign),
                (interrupt, observer, None),
                parameters,
            ),
            Loaded::Cuda { .. } | Loaded::Sim { .. } => Err(handle.device().left_out()),
        }
    })
}

/// Launches a kernel on the simulator, and records its events.
pub(crate) fn record(
    handle: &Handle,
    loaded: &Loaded,
    grid: Grid,
    memory: (&[Value<'_>], &[crate::Region<'_>]),
    interrupt: Interrupt<'_>,
    record: Record<'_>,
) -> Result<(), Error> {
    match loaded {
        Loaded::Sim { .. } if cfg!(feature = "sim") => {
            let tools = (interrupt, None, Some(record));
            simulate_passed(handle, loaded, grid, memory, tools, &mut Parameters::new())
        }
        Loaded::Cuda { .. } | Loaded::Sim { .. } => Err(handle.device().left_out()),
    }
}

/// The interrupt of a launch on the simulator, and those who observe it.
type Tools<'a> = (Interrupt<'a>, Option<&'a Observer>, Option<Record<'a>>);

/// Passes the arguments, and runs a kernel in the simulator.
fn simulate_passed(
    handle: &Handle,
    loaded: &Loaded,
    grid: Grid,
    (arguments, foreign): (&[Value<'_>], &[crate::Region<'_>]),
    tools: Tools<'_>,
    parameters: &mut Parameters,
) -> Result<(), Error> {
    handle.check_meaning(grid, (arguments, foreign), tools.0)?;
    let mut regions = Regions::new();
    handle.pass(arguments, &mut |element, value| {
        if let (Element::Pointer(_), Value::Pointer(pointer)) = (element, value) {
            regions.push(pointer.region);
        }
        pack(element, value, parameters)
    })?;
    regions.extend_from_slice(foreign);
    simulate(handle, loaded, grid.extents(), parameters, &regions, tools)
}

/// Starts a kernel on a GPU, in the variant of the code that the arguments require.
#[inline]
pub(crate) fn start(
    handle: &Handle,
    loaded: &Loaded,
    stream: StreamRef<'_>,
    programs: [u32; 3],
    parameters: &mut Parameters,
    observer: Option<&Observer>,
) -> Result<(), Error> {
    let choice = variants::choose(handle, loaded, programs, &[], parameters)?;
    let Loaded::Cuda { launch, pairs, .. } = choice.loaded(loaded) else {
        unreachable!("`simulate` launches simulated kernels, and all variants are on one device")
    };
    let (blocks, is_paired) = choice.blocks;
    let launch = pairs.as_deref().filter(|_| is_paired).unwrap_or(launch);
    launch.launch(blocks, stream, parameters.as_bytes())?;
    if let Some(observer) = observer {
        observer.variant(choice.other);
    }
    Ok(())
}

/// Runs a kernel in the simulator, in the variant of the code that the arguments require. Passes
/// the simulator's counters to `observer` and to `reports`.
fn simulate(
    handle: &Handle,
    loaded: &Loaded,
    grid: [u32; 3],
    parameters: &mut Parameters,
    regions: &[sim::Region<'_>],
    (interrupt, observer, record): Tools<'_>,
) -> Result<(), Error> {
    let choice = variants::choose(handle, loaded, grid, regions, parameters)?;
    let (own, Loaded::Sim { module, cluster, .. }) = (&*handle.compiled.code, choice.loaded(loaded)) else {
        unreachable!("`start` launches kernels on a GPU, and all variants are on one device")
    };
    let code = match (&choice.other, own) {
        (Some(ChosenVariant { variant, .. }), _) => &variant.code,
        (None, MachineCode::Gpu(code)) => &**code,
        (None, MachineCode::Cpu(_)) => unreachable!("only code for a GPU is loaded"),
    };
    let ((grid, is_paired), parameters) = (choice.blocks, parameters.as_bytes());
    let name = handle.compiled.name.as_str();
    if let Some(axis) = (0..3).find(|&axis| grid[axis] > MAX_GRID[axis]) {
        let kernel = name.to_owned();
        let (extent, limit) = (grid[axis], MAX_GRID[axis]);
        return Err(tilewright_cuda::Error::GridTooLarge { kernel, axis, extent, limit }.into());
    }
    let mut launch = sim::Launch::new(&code.entry, grid, [code.threads, 1, 1], parameters, regions);
    launch.dynamic_shared_bytes = code.shared_bytes;
    launch.cluster = [if is_paired { PAIR } else { *cluster }, 1, 1];
    let checks = sanitize::active();
    if !checks.is_empty() {
        sanitize::require_feature()?;
    }
    let watch = (!checks.is_empty())
        .then(|| sim::Watch::new(checks.has(sanitize::Check::Race), checks.has(sanitize::Check::Init)));
    launch.watch = watch.as_ref();
    let reads = (watch.is_none() && padded::are_padded_reads_allowed()).then(sim::PaddedReads::default);
    launch.padded = reads.as_ref();
    launch.events = record.map(|record| record.events);
    let report = interruptible(module, launch, interrupt);
    for (fault, count) in watch.map_or_else(Vec::new, sim::Watch::into_findings) {
        let finding = from_watch(&fault, count, handle);
        sanitize::keep(name, &finding, &handle.compiled.module.sources);
        if let Some(record) = record {
            record.findings.lock().unwrap_or_else(PoisonError::into_inner).push(finding);
        }
    }
    let printed = report.as_ref().map_or_else(|fault| &fault.printed, |report| &report.printed);
    for text in printed {
        tilewright_base::output::print(text);
    }
    let report = report.map_err(|fault| from_fault(&fault, handle))?;
    for read in reads.map_or_else(Vec::new, sim::PaddedReads::into_faults) {
        let sources = &handle.compiled.module.sources;
        padded::keep_padded_reads(from_fault(&read, handle).diagnostics().iter().cloned(), sources);
    }
    reports::add(&report, handle, choice.other.as_ref());
    if let Some(observer) = observer {
        observer.report(report);
        observer.variant(choice.other);
    }
    Ok(())
}

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Runs a launch in the simulator, and ends it early when the caller interrupts it.
fn interruptible(
    module: &sim::LoadedModule,
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
            // Sending fails only if the launching thread has panicked.
            let _ = done.send(module.launch(&launch));
        });
        // The callback is polled on this thread: Python handles signals only on its main thread.
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
