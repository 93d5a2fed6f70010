//! Measures each launch between [`start_profile`] and [`stop_profile`].
//!
//! On the CPU, each step of the program is timed. The simulator counts instructions and memory
//! accesses. On a GPU, the kernel is timed (see `gpu_times`).
//!
//! [`take_profile`] returns the measurements as JSON: kernels with their steps or counts, and
//! launches with their kernel, time and scope ([`set_scope`]).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use serde_json::{Value as Json, json};
use tilewright_base::{Code, Diagnostic};
use tilewright_cpu::{Program, StepProfile};
use tilewright_cuda::StreamRef;
use tilewright_sim as sim;
use tilewright_sim::{Estimate, GPUS, GpuModel, Instruction, Report, StepCounters};

use crate::clock::profile_clock;
use crate::gpu_times::{self, Time, Timing};
use crate::reports::describe_variant;
use crate::variants::ChosenVariant;
use crate::{Device, Error, Handle, MachineCode, Value};

static IS_ACTIVE: AtomicBool = AtomicBool::new(false);
static RECORDS: Mutex<Option<Records>> = Mutex::new(None);

thread_local! {
    static SCOPE: Cell<u64> = const { Cell::new(0) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

#[derive(Default)]
struct Records {
    kernels: Vec<Kernel>,
    /// The indices of kernels, by the address of their code, and a text of the device and the
    /// variant.
    known: FxHashMap<(usize, String), usize>,
    launches: Vec<Launch>,
}

/// The measurements of all launches of one variant of a kernel.
struct Kernel {
    /// The code of the handle. This reference keeps its address, a key of [`Records::known`],
    /// unique.
    _code: Arc<MachineCode>,
    name: String,
    form: String,
    device: Device,
    architecture: &'static str,
    shared_bytes: u32,
    threads: u32,
    registers: Option<u32>,
    spills: Option<u32>,
    /// The total size in bytes of the tensors of the first launch.
    tensor_bytes: u64,
    launches: u64,
    steps: Vec<StepProfile>,
    report: Option<Report>,
}

struct Launch {
    kernel: usize,
    scope: u64,
    thread: u64,
    grid: [u32; 3],
    /// The time of [`profile_clock`] at which the launch began on the host, in nanoseconds.
    start: u64,
    host_nanoseconds: u64,
    timing: Option<Timing>,
}

/// Returns whether launches are measured.
#[inline]
pub(crate) fn is_active() -> bool {
    IS_ACTIVE.load(Ordering::Relaxed)
}

/// Starts to measure launches.
pub fn start_profile() {
    // The first call starts the clock.
    profile_clock();
    records(|_| {});
    IS_ACTIVE.store(true, Ordering::Relaxed);
}

/// Stops measuring. The measurements remain until [`take_profile`] returns them.
pub fn stop_profile() {
    IS_ACTIVE.store(false, Ordering::Relaxed);
    if records(|records| records.launches.iter().all(|launch| launch.timing.is_none())) {
        gpu_times::stop();
    }
}

/// Sets the scope of later launches of this thread. Returns the previous scope.
pub fn set_scope(scope: u64) -> u64 {
    SCOPE.replace(scope)
}

fn records<T>(call: impl FnOnce(&mut Records) -> T) -> T {
    let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
    call(records.get_or_insert_default())
}

fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    THREAD.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// Measures a launch. A launch that fails is not recorded.
#[cold]
pub(crate) fn measure(
    handle: &Handle,
    stream: StreamRef<'_>,
    (grid, arguments): ([u32; 3], &[Value<'_>]),
    launch: impl FnOnce(Option<&Observer>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut observer = Observer::default();
    let device = handle.device();
    let before = match device {
        Device::Cuda(_) => Some(gpu_times::before(device.context()?, stream)?),
        Device::Cpu | Device::Sim(_) => None,
    };
    let start = profile_clock();
    launch(Some(&observer))?;
    let host_nanoseconds = profile_clock() - start;
    let timing = before.map(|before| before.after(stream)).transpose()?;
    let steps = observer.steps.get_mut().unwrap_or_else(PoisonError::into_inner).take();
    let report = observer.report.get_mut().unwrap_or_else(PoisonError::into_inner).take();
    let other = observer.other.get_mut().unwrap_or_else(PoisonError::into_inner).take();
    let (scope, thread) = (SCOPE.get(), thread_number());
    records(|records| {
        let kernel = records.kernel(handle, other.as_ref(), arguments);
        records.kernels[kernel].add(steps, report);
        records.launches.push(Launch { kernel, scope, thread, grid, start, host_nanoseconds, timing });
    });
    Ok(())
}

/// Collects the results of a measured launch.
#[derive(Default)]
pub(crate) struct Observer {
    steps: Mutex<Option<Vec<StepProfile>>>,
    report: Mutex<Option<Report>>,
    other: Mutex<Option<ChosenVariant>>,
}

impl Observer {
    pub(crate) fn run_program(
        &self,
        program: &Program,
        launch: &tilewright_cpu::Launch<'_>,
    ) -> Result<(), Box<Diagnostic>> {
        let profile = program.new_profile();
        program.launch_profiled(launch, &profile)?;
        *self.steps.lock().unwrap_or_else(PoisonError::into_inner) = Some(program.profiled(&profile));
        Ok(())
    }

    pub(crate) fn report(&self, report: Report) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    /// Stores the variant that was launched; `None` for the handle's own code.
    pub(crate) fn variant(&self, other: Option<ChosenVariant>) {
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = other;
    }
}

impl Records {
    fn kernel(&mut self, handle: &Handle, other: Option<&ChosenVariant>, arguments: &[Value<'_>]) -> usize {
        let form = describe_variant(handle, other);
        let handle_code = &handle.compiled.code;
        let key = (Arc::as_ptr(handle_code) as usize, format!("{}{form}", handle.device()));
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let metadata = &handle.compiled.metadata;
        let resources = match other {
            Some(other) => Some(other.variant.loaded.resources(metadata.resources)),
            None => handle.resources().ok(),
        };
        let code = match (other, &**handle_code) {
            (Some(other), _) => Some(&other.variant.code),
            (None, MachineCode::Gpu(code)) => Some(&**code),
            (None, MachineCode::Cpu(_)) => None,
        };
        let is_gpu = matches!(handle.device(), Device::Cuda(_));
        self.kernels.push(Kernel {
            _code: Arc::clone(handle_code),
            name: handle.compiled.name.clone(),
            form,
            device: handle.device(),
            architecture: metadata.target.architecture(),
            shared_bytes: code.map_or(0, |code| code.shared_bytes),
            threads: code.map_or(0, |code| code.threads),
            registers: resources.filter(|_| is_gpu).map(|resources| resources.registers),
            spills: resources.filter(|_| is_gpu).map(|resources| resources.spills),
            tensor_bytes: tensor_bytes(arguments),
            launches: 0,
            steps: Vec::new(),
            report: None,
        });
        self.known.insert(key, self.kernels.len() - 1);
        self.kernels.len() - 1
    }
}

/// Returns the total size in bytes of the tensors of a launch, each counted once.
fn tensor_bytes(arguments: &[Value<'_>]) -> u64 {
    fn add(values: &[Value<'_>], tensors: &mut BTreeMap<u64, u64>) {
        for value in values {
            match value {
                Value::Pointer(pointer) => {
                    tensors.insert(pointer.region.address(), pointer.region.len() as u64);
                }
                Value::Tuple(items) => add(items, tensors),
                // tidy: wildcard because nothing else is memory
                _ => {}
            }
        }
    }
    let mut tensors = BTreeMap::new();
    add(arguments, &mut tensors);
    tensors.values().sum()
}

impl Kernel {
    fn add(&mut self, steps: Option<Vec<StepProfile>>, report: Option<Report>) {
        self.launches += 1;
        for step in steps.into_iter().flatten() {
            let is_same = |known: &&mut StepProfile| {
                known.name == step.name
                    && known.lines == step.lines
                    && known.is_machine_code == step.is_machine_code
            };
            match self.steps.iter_mut().find(is_same) {
                Some(known) => known.cost.add(&step.cost),
                None => self.steps.push(step),
            }
        }
        let Some(report) = report else { return };
        match &mut self.report {
            Some(known) => {
                known.blocks += report.blocks;
                for (sum, new) in known.instructions.iter_mut().zip(&report.instructions) {
                    sum.counters.add(&new.counters);
                }
            }
            none => *none = Some(report),
        }
    }

    /// Estimates the total time of the simulated launches on `gpu`, by default a GPU of their
    /// architecture. Returns `None` without a simulated launch or a model of such a GPU.
    fn estimate(&self, gpu: Option<GpuModel>) -> Option<Estimate> {
        let report = self.report.as_ref()?;
        let gpu = gpu.or_else(|| GpuModel::of(self.architecture))?;
        Some(Estimate::new(report, self.launches, self.tensor_bytes, gpu))
    }

    fn describe(&self, gpu: Option<GpuModel>) -> Json {
        let step = |step: &StepProfile| {
            json!({
                "name": step.name,
                "lines": step.lines,
                "machineCode": step.is_machine_code,
                "executions": step.cost.executions,
                "ns": step.cost.nanoseconds,
                "read": step.cost.bytes_read,
                "written": step.cost.bytes_written,
                "flops": step.cost.operations,
            })
        };
        let mut page = json!({
            "name": self.name,
            "form": self.form,
            "device": self.device.to_string(),
            "target": self.architecture,
            "launches": self.launches,
            "threads": self.threads,
            "shared": self.shared_bytes,
            "tensorBytes": self.tensor_bytes,
            "steps": self.steps.iter().map(step).collect::<Json>(),
        });
        for (name, value) in [("registers", self.registers), ("spills", self.spills)] {
            if let Some(value) = value {
                page[name] = value.into();
            }
        }
        if let (Some(report), Some(estimate)) = (&self.report, self.estimate(gpu)) {
            page["sim"] = simulated(report, &estimate);
        }
        page
    }
}

/// Describes the counters of the simulator, and the model's estimate.
fn simulated(report: &Report, estimate: &Estimate) -> Json {
    let class = |(class, counters): (sim::Class, StepCounters)| {
        (class.to_string(), json!([counters.executions, counters.lanes]))
    };
    let mut lines = BTreeMap::<Option<(String, u32)>, Vec<&Instruction>>::new();
    for instruction in report.instructions.iter().filter(|one| one.counters.executions > 0) {
        lines.entry(instruction.location.kernel.clone()).or_default().push(instruction);
    }
    let line = |(place, instructions): (Option<(String, u32)>, Vec<&Instruction>)| {
        let mut sum = StepCounters::default();
        for one in &instructions {
            sum.add(&one.counters);
        }
        let busy = sim::busy(instructions.iter().copied(), estimate.gpu, f64::from(estimate.active));
        let (bound, clocks) = busy.longest();
        let (file, line) = place.unwrap_or_default();
        let mut page = counters(&sum);
        page["file"] = file.into();
        page["line"] = line.into();
        page["bound"] = bound.name().into();
        page["clocks"] = clocks.into();
        page
    };
    let total = report.total();
    json!({
        "blocks": report.blocks,
        "barriers": report.barriers(),
        "total": counters(&total),
        "classes": report.by_class().into_iter().map(class).collect::<Json>(),
        "lines": lines.into_iter().map(line).collect::<Json>(),
        "estimate": {
            "gpu": estimate.gpu.name,
            "ns": estimate.nanoseconds,
            "multiprocessors": estimate.active,
            "of": estimate.gpu.multiprocessors,
            "bound": estimate.busy.longest().0.name(),
            "operations": estimate.operations,
            "memoryBytes": estimate.memory_bytes,
            "intensity": estimate.intensity(),
            "roof": estimate.roof(total.tensor_operations > 0),
            "bandwidth": estimate.gpu.bandwidth,
            "clock": estimate.gpu.clock,
            "busy": estimate.busy.0.iter().map(|(bound, clocks)| (bound.name(), *clocks)).collect::<Json>(),
        },
    })
}

fn counters(counters: &StepCounters) -> Json {
    json!({
        "instructions": counters.executions,
        "requests": counters.global_requests,
        "sectors": counters.sectors,
        "idealSectors": counters.ideal_sectors,
        "wavefronts": counters.wavefronts,
        "idealWavefronts": counters.ideal_wavefronts,
        "read": counters.bytes_read,
        "written": counters.bytes_written,
        "globalRead": counters.global_bytes_read,
        "globalWritten": counters.global_bytes_written,
        "tensor": counters.tensor_operations,
    })
}

/// Returns the measurements since the last call, as JSON. The time of a simulated launch is the
/// estimate for a real GPU. This is the GPU with the name `gpu`, or by default a GPU of the
/// launch's architecture.
pub fn take_profile(gpu: Option<&str>) -> Result<String, Error> {
    let gpu = gpu.map(model).transpose()?;
    let taken = records(std::mem::take);
    let estimates: Vec<Option<f64>> = taken
        .kernels
        .iter()
        .map(|kernel| Some(kernel.estimate(gpu)?.nanoseconds / kernel.launches.max(1) as f64))
        .collect();
    let timings: Vec<(u64, &Timing)> =
        taken.launches.iter().filter_map(|launch| Some((launch.start, launch.timing.as_ref()?))).collect();
    let (times, notes) = gpu_times::take(&timings);
    let mut times = times.into_iter();
    if !is_active() {
        gpu_times::stop();
    }
    let launch = |launch: &Launch| {
        let time = if launch.timing.is_some() {
            times.next().flatten()
        } else if let Some(nanoseconds) = estimates[launch.kernel] {
            Some(Time { start: launch.start, nanoseconds, by: "model" })
        } else {
            let nanoseconds = launch.host_nanoseconds as f64;
            Some(Time { start: launch.start, nanoseconds, by: "clock" })
        };
        launch.describe(time.as_ref())
    };
    let page = json!({
        "kernels": taken.kernels.iter().map(|kernel| kernel.describe(gpu)).collect::<Json>(),
        "launches": taken.launches.iter().map(launch).collect::<Json>(),
        "notes": notes,
    });
    Ok(page.to_string())
}

impl Launch {
    /// Describes a launch. An unknown time is null.
    fn describe(&self, time: Option<&Time>) -> Json {
        json!({
            "kernel": self.kernel,
            "scope": self.scope,
            "thread": self.thread,
            "grid": self.grid,
            "start": time.map_or(self.start, |time| time.start),
            "ns": time.map(|time| time.nanoseconds),
            "by": time.map(|time| time.by),
            "host": self.host_nanoseconds,
        })
    }
}

fn model(name: &str) -> Result<GpuModel, Error> {
    GpuModel::named(name).ok_or_else(|| {
        let names: Vec<&str> = GPUS.iter().map(|gpu| gpu.name).collect();
        Diagnostic::new(Code::NoDevice, format!("there is no model of a GPU '{name}'"))
            .note(format!("there are {}", names.join(", ")))
            .into()
    })
}
