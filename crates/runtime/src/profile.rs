//! Profiles: what each launch took, while somebody asks for it. On the CPU each step is measured, on the simulator what was counted
//! is kept, on a GPU the kernel is timed (see `gpu_times`).
//!
//! A launch looks once whether anybody asks. What was measured is given as JSON ([`take_profile`]): kernels, each with its steps
//! or counts, and launches, each with its kernel, its time and the scope that its thread was in ([`set_scope`]).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tilewright_base::{Code, Diagnostic, Json};
use tilewright_cpu::{Program, StepProfile};
use tilewright_cuda::StreamRef;
use tilewright_sim as sim;
use tilewright_sim::{Estimate, GPUS, GpuModel, Instruction, Report, StepCounters};

use crate::clock::profile_clock;
use crate::forms::OtherForm;
use crate::gpu_times::{self, Time, Timing};
use crate::reports::{form_of, is_same_code};
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
    /// Kernels by the handle's address and what it is, as an address may be used again.
    known: FxHashMap<(usize, String), usize>,
    launches: Vec<Launch>,
}

/// Launches of one form of a kernel.
struct Kernel {
    name: String,
    form: String,
    device: Device,
    architecture: &'static str,
    shared_bytes: u32,
    threads: u32,
    registers: Option<u32>,
    spills: Option<u32>,
    /// The bytes of the tensors of a launch.
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
    /// Since the epoch, on the host.
    start: u64,
    host_nanoseconds: u64,
    /// On a GPU.
    timing: Option<Timing>,
}

/// Whether launches are measured.
#[inline]
pub(crate) fn is_active() -> bool {
    IS_ACTIVE.load(Ordering::Relaxed)
}

/// Measures launches from now on.
pub fn start_profile() {
    // Times count from here.
    profile_clock();
    records(|_| {});
    IS_ACTIVE.store(true, Ordering::Relaxed);
}

/// Measures no more; what was measured stays until it is taken.
pub fn stop_profile() {
    IS_ACTIVE.store(false, Ordering::Relaxed);
    if records(|records| records.launches.iter().all(|launch| launch.timing.is_none())) {
        gpu_times::stop();
    }
}

/// The number that launches of this thread have from now on; gives the one before.
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

/// Measures a launch. What could not be launched is no launch.
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

/// What a launch hands over while it is measured.
#[derive(Default)]
pub(crate) struct Observer {
    steps: Mutex<Option<Vec<StepProfile>>>,
    report: Mutex<Option<Report>>,
    other: Mutex<Option<OtherForm>>,
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

    /// The form that was launched, if it is not the handle's own.
    pub(crate) fn form(&self, other: Option<OtherForm>) {
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = other;
    }
}

impl Records {
    fn kernel(&mut self, handle: &Handle, other: Option<&OtherForm>, arguments: &[Value<'_>]) -> usize {
        let form = form_of(handle, other);
        let key = (std::ptr::from_ref(handle) as usize, format!("{}{form}", handle.device()));
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let metadata = &handle.compiled.metadata;
        let resources = match other {
            Some(other) => Some(other.form.loaded.resources(metadata.resources)),
            None => handle.resources().ok(),
        };
        let code = match (other, &*handle.compiled.code) {
            (Some(other), _) => Some(&other.form.code),
            (None, MachineCode::Gpu(code)) => Some(&**code),
            (None, MachineCode::Cpu(_)) => None,
        };
        let is_gpu = matches!(handle.device(), Device::Cuda(_));
        self.kernels.push(Kernel {
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

/// The bytes of the tensors of a launch, each once.
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
            match self.steps.iter_mut().find(|known| known.name == step.name && known.lines == step.lines) {
                Some(known) => known.cost.add(&step.cost),
                None => self.steps.push(step),
            }
        }
        let Some(report) = report else { return };
        match &mut self.report {
            Some(known) if is_same_code(known, &report) => {
                known.blocks += report.blocks;
                for (sum, new) in known.instructions.iter_mut().zip(&report.instructions) {
                    sum.counters.add(&new.counters);
                }
            }
            Some(_) => {}
            none => *none = Some(report),
        }
    }

    /// What its launches on the simulator would take.
    fn estimate(&self, gpu: Option<GpuModel>) -> Option<Estimate> {
        let report = self.report.as_ref()?;
        let gpu = gpu.or_else(|| GpuModel::of(self.architecture))?;
        Some(Estimate::new(report, self.launches, self.tensor_bytes, gpu))
    }

    fn describe(&self, json: &mut Json, gpu: Option<GpuModel>) {
        json.key("name").text(&self.name);
        json.key("form").text(&self.form);
        json.key("device").text(&self.device.to_string());
        json.key("target").text(self.architecture);
        json.key("launches").plain(self.launches);
        json.key("threads").plain(self.threads);
        json.key("shared").plain(self.shared_bytes);
        for (name, value) in [("registers", self.registers), ("spills", self.spills)] {
            if let Some(value) = value {
                json.key(name).plain(value);
            }
        }
        json.key("tensorBytes").plain(self.tensor_bytes);
        json.key("steps").nest('[', |json| {
            for step in &self.steps {
                json.nest('{', |json| {
                    json.key("name").text(&step.name);
                    json.key("lines").nest('[', |json| {
                        for (file, line) in &step.lines {
                            json.nest('[', |json| {
                                json.text(file);
                                json.plain(line);
                            });
                        }
                    });
                    json.key("executions").plain(step.cost.executions);
                    json.key("ns").plain(step.cost.nanoseconds);
                    json.key("read").plain(step.cost.bytes_read);
                    json.key("written").plain(step.cost.bytes_written);
                    json.key("flops").plain(step.cost.operations);
                });
            }
        });
        if let (Some(report), Some(estimate)) = (&self.report, self.estimate(gpu)) {
            json.key("sim").nest('{', |json| simulated(json, report, &estimate));
        }
    }
}

/// What the simulator has counted, and the model of it.
fn simulated(json: &mut Json, report: &Report, estimate: &Estimate) {
    json.key("blocks").plain(report.blocks);
    json.key("barriers").plain(report.barriers());
    json.key("total").nest('{', |json| counters(json, &report.total()));
    json.key("classes").nest('{', |json| {
        for (class, counters) in report.by_class() {
            json.key(&class.to_string()).list([counters.executions, counters.lanes]);
        }
    });
    let mut lines = BTreeMap::<Option<(String, u32)>, Vec<&Instruction>>::new();
    for instruction in report.instructions.iter().filter(|one| one.counters.executions > 0) {
        lines.entry(instruction.location.kernel.clone()).or_default().push(instruction);
    }
    json.key("lines").nest('[', |json| {
        for (place, instructions) in &lines {
            let mut sum = StepCounters::default();
            for one in instructions {
                sum.add(&one.counters);
            }
            let busy = sim::busy(instructions.iter().copied(), estimate.gpu, f64::from(estimate.active));
            let (bound, clocks) = busy.longest();
            json.nest('{', |json| {
                let (file, line) = place.as_ref().map_or(("", 0), |(file, line)| (file.as_str(), *line));
                json.key("file").text(file);
                json.key("line").plain(line);
                counters(json, &sum);
                json.key("bound").text(bound.name());
                json.key("clocks").plain(clocks);
            });
        }
    });
    json.key("estimate").nest('{', |json| {
        let has_products = report.total().tensor_operations > 0;
        json.key("gpu").text(estimate.gpu.name);
        json.key("ns").plain(estimate.nanoseconds);
        json.key("multiprocessors").plain(estimate.active);
        json.key("of").plain(estimate.gpu.multiprocessors);
        json.key("bound").text(estimate.busy.longest().0.name());
        json.key("operations").plain(estimate.operations);
        json.key("memoryBytes").plain(estimate.memory_bytes);
        json.key("intensity").plain(estimate.intensity());
        json.key("roof").plain(estimate.roof(has_products));
        json.key("bandwidth").plain(estimate.gpu.bandwidth);
        json.key("clock").plain(estimate.gpu.clock);
        json.key("busy").nest('{', |json| {
            for (bound, clocks) in &estimate.busy.0 {
                json.key(bound.name()).plain(clocks);
            }
        });
    });
}

fn counters(json: &mut Json, counters: &StepCounters) {
    let rows = [
        ("instructions", counters.executions),
        ("requests", counters.global_requests),
        ("sectors", counters.sectors),
        ("idealSectors", counters.ideal_sectors),
        ("wavefronts", counters.wavefronts),
        ("idealWavefronts", counters.ideal_wavefronts),
        ("read", counters.bytes_read),
        ("written", counters.bytes_written),
        ("tensor", counters.tensor_operations),
    ];
    for (name, value) in rows {
        json.key(name).plain(value);
    }
}

/// What was measured since the last call, as JSON. Launches on the simulator are estimated for the GPU with this name, else for
/// one of their architecture.
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
    let mut json = Json::default();
    json.nest('{', |json| {
        json.key("kernels").nest('[', |json| {
            for kernel in &taken.kernels {
                json.nest('{', |json| kernel.describe(json, gpu));
            }
        });
        json.key("launches").nest('[', |json| {
            for launch in &taken.launches {
                let time = if launch.timing.is_some() {
                    times.next().flatten()
                } else if let Some(nanoseconds) = estimates[launch.kernel] {
                    Some(Time { start: launch.start, nanoseconds, by: "model" })
                } else {
                    let nanoseconds = launch.host_nanoseconds as f64;
                    Some(Time { start: launch.start, nanoseconds, by: "clock" })
                };
                json.nest('{', |json| launch.describe(json, time));
            }
        });
        json.key("notes").nest('[', |json| notes.iter().for_each(|note| json.text(note)));
    });
    Ok(json.0)
}

impl Launch {
    fn describe(&self, json: &mut Json, time: Option<Time>) {
        json.key("kernel").plain(self.kernel);
        json.key("scope").plain(self.scope);
        json.key("thread").plain(self.thread);
        json.key("grid").list(self.grid);
        json.key("start").plain(time.as_ref().map_or(self.start, |time| time.start));
        if let Some(time) = time {
            json.key("ns").plain(time.nanoseconds);
            json.key("by").text(time.by);
        } else {
            // Not 0: it took some time.
            json.key("ns").plain("null");
            json.key("by").plain("null");
        }
        json.key("host").plain(self.host_nanoseconds);
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
