//! Distributes the clusters of a grid over the threads of the host.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rayon::prelude::*;
use tilewright_ptx::isa::{FunctionId, SpecialRegister};
use tilewright_sanitize::Mode;

use crate::asynchronous;
use crate::asynchronous::device_tensor_maps::DeviceTensorMaps;
use crate::barrier::{BLOCK_BARRIERS, BlockBarrier};
use crate::block::{Cluster, Machine, Stopped};
use crate::cluster_accesses::ClusterAccesses;
use crate::cluster_launches::ClusterLaunches;
use crate::context::{BlockMemory, agents};
use crate::counters::StepCounters;
use crate::decode::{Fill, Parameter, Program};
use crate::events::{EventLog, Events};
use crate::fault::{Cause, Fault, FaultKind, Polling, RacingAccess, Stop, Waiting, WaitingGroup};
use crate::memory::lanes::LaneShadow;
use crate::memory::shadow::{Proxy, Record};
use crate::memory::{Agent, Clock, Global, Local, Region, Shared, TensorMemory};
use crate::module::LoadedModule;
use crate::padding::{PaddedReads, Reader};
use crate::registers::{LANES, Lanes, Registers};
use crate::report::{Instruction, Report};
use crate::residency::{Residency, SeenStates, resident_blocks};
use crate::unwritten::prefer_unwritten;
use crate::warp::Warp;
use crate::watch::{Watch, WatchFinding};

/// A kernel launch: the grid, the parameters, and the memory that the kernel may access.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The name of the kernel.
    pub kernel: &'a str,
    /// Blocks of the grid, x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block, x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster, x, y, z. Each has to divide the extent of the grid.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory, in addition to the module's static shared memory.
    pub dynamic_shared_bytes: u32,
    /// The parameter buffer with the layout of [`LoadedModule::parameters`].
    pub parameters: &'a [u8],
    /// The memory that the kernel may access in addition to the module's variables.
    pub regions: &'a [Region<'a>],
    /// Becomes true when the caller cancels the launch.
    pub interrupt: Option<&'a AtomicBool>,
    /// Collects races and reads of uninitialized bytes in global memory, as the watch specifies. A
    /// watch for races also reports races between lanes of a warp in shared memory. A watch for
    /// uninitialized reads also reports reads of uninitialized registers. The findings in shared
    /// memory and registers are faults that end the launch.
    pub watch: Option<&'a Watch>,
    /// Collects loads that end in the padding of a region; the padding then reads as 0. Without a
    /// collector, such loads are faults.
    pub padded: Option<&'a PaddedReads>,
    /// Collects the events of each cluster.
    pub events: Option<&'a Events>,
    /// True if an instruction may use the results of a `tcgen05.ld` before `tcgen05.wait::ld`. The
    /// ISA forbids it, but `ptxas` tracks these registers, and the official Triton relies on it.
    pub tracks_loads: bool,
}

impl<'a> Launch<'a> {
    /// Returns a launch without clusters, dynamic shared memory, cancellation, watch or other
    /// collectors.
    pub fn new(
        kernel: &'a str,
        grid: [u32; 3],
        block: [u32; 3],
        parameters: &'a [u8],
        regions: &'a [Region<'a>],
    ) -> Self {
        let (cluster, dynamic_shared_bytes, interrupt) = ([1; 3], 0, None);
        Self {
            kernel,
            grid,
            block,
            cluster,
            dynamic_shared_bytes,
            parameters,
            regions,
            interrupt,
            watch: None,
            padded: None,
            events: None,
            tracks_loads: false,
        }
    }
}

struct Tally {
    counters: Vec<StepCounters>,
    /// The output of each cluster, by index.
    printed: Vec<(u64, String)>,
}

impl Tally {
    fn merged(mut self, other: Self) -> Self {
        for (mine, theirs) in self.counters.iter_mut().zip(&other.counters) {
            mine.add(theirs);
        }
        self.printed.extend(other.printed);
        self
    }

    fn keep_printed(&mut self, cluster: u64, text: String) {
        if !text.is_empty() {
            self.printed.push((cluster, text));
        }
    }

    /// Returns the output of all clusters, in the order of `printed`.
    fn texts(self) -> Vec<String> {
        self.printed.into_iter().map(|(_, text)| text).collect()
    }
}

/// The maximum number of rounds for which a thread runs a cluster before it runs another one, if
/// clusters may wait for each other.
const ROUNDS: u64 = 8;
/// The maximum host memory of all clusters that run at once, in bytes, if clusters may wait for
/// each other. The limit always allows one cluster for each thread.
const MAX_RUNNING_BYTES: usize = 1 << 30;
/// The maximum number of waiting blocks that [`FaultKind::Starved`] names.
const MAX_NAMED: usize = 4;

/// A cluster that has begun.
struct Running<'a> {
    /// The position of the cluster among the clusters.
    position: [u32; 3],
    cluster: Cluster<'a>,
    states: SeenStates,
}

struct CheckedLaunch<'a> {
    module: &'a LoadedModule,
    launch: &'a Launch<'a>,
    program: &'a Program,
    machine: Machine<'a>,
    shared_bytes: usize,
}

fn volume(extent: [u32; 3]) -> u64 {
    extent.iter().fold(1, |product, axis| product.saturating_mul(u64::from(*axis)))
}

fn padded(extent: &[u32]) -> [u32; 3] {
    std::array::from_fn(|axis| extent.get(axis).copied().unwrap_or(1))
}

/// Returns the coordinates of a linear index, x fastest.
fn point(number: u64, extent: [u32; 3]) -> [u32; 3] {
    let (x, y) = (u64::from(extent[0]), u64::from(extent[1]));
    [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
}

impl LoadedModule {
    /// Runs a kernel for every block of the grid. Returns the report. If clusters have faults,
    /// returns the fault of the first such cluster in grid order. If clusters may wait for each
    /// other, a fault stops all clusters. The returned fault may then be the fault of a later
    /// cluster.
    pub fn launch(&self, launch: &Launch<'_>) -> Result<Report, Box<Fault>> {
        let (id, program) = self.program(launch.kernel)?;
        let launch = &Launch { cluster: self.cluster(launch, id), ..*launch };
        let fault = |kind| Fault::of_launch(launch.kernel, kind);
        let shared_bytes = match launch.dynamic_shared_bytes as usize {
            0 => program.static_shared,
            bytes => program.dynamic_shared + bytes,
        };
        self.check(launch, id, shared_bytes, &program).map_err(fault)?;
        let regions: Vec<_> = launch.regions.iter().copied().chain([self.region()]).collect();
        let mut global = Global::new(&regions).noting(launch.padded);
        if program.may_wait_for_others {
            global.count_changes();
        }
        let end = AtomicU64::new(u64::MAX);
        let maps = DeviceTensorMaps::default();
        let launches = ClusterLaunches {
            next: AtomicU64::new(0),
            count: volume(launch.grid) / volume(launch.cluster),
            grid: std::array::from_fn(|axis| launch.grid[axis] / launch.cluster[axis]),
            cluster: launch.cluster,
        };
        let machine = Machine {
            program: &program,
            global: &global,
            maps: &maps,
            launches: &launches,
            watch: launch.watch,
            parameters: launch.parameters,
            tracks_loads: launch.tracks_loads,
            interrupt: launch.interrupt,
            end: &end,
        };
        let checked = CheckedLaunch { module: self, launch, program: &program, machine, shared_bytes };
        if let Some(watch) = launch.watch {
            watch.begin(program.least_access);
        }
        let outcome = checked.run_all(launches.count);
        if let Some(watch) = launch.watch {
            watch.end(|found| checked.found(found));
        }
        if let Some(events) = launch.events {
            let known = |site: &crate::decode::Site| {
                let text = self.line(site.line).unwrap_or_else(|| site.opcode.clone().into());
                (self.location(site.line, site.kernel), text)
            };
            events.resolve(program.sites.iter().map(known).collect());
        }
        let tally = outcome?;
        if let Some(padded) = launch.padded {
            padded.end(|instruction, reader, kind| checked.padded(instruction, reader, kind));
        }
        Ok(Report {
            kernel: launch.kernel.into(),
            blocks: volume(launch.grid),
            threads_per_block: volume(launch.block),
            shared_bytes,
            instructions: self.instructions(&program, &tally.counters),
            printed: tally.texts(),
        })
    }

    /// Returns the extent of the clusters: that of the launch, or that which the kernel requires.
    fn cluster(&self, launch: &Launch<'_>, id: FunctionId) -> [u32; 3] {
        match &self.function(id).directives.required_cluster {
            Some(required) if launch.cluster == [1; 3] => padded(required),
            Some(_) | None => launch.cluster,
        }
    }

    fn instructions(&self, program: &Program, counters: &[StepCounters]) -> Vec<Instruction> {
        let instruction = |(site, counters): (&crate::decode::Site, &StepCounters)| Instruction {
            location: self.location(site.line, site.kernel),
            opcode: site.opcode.clone().into(),
            text: self.line(site.line).unwrap_or_else(|| site.opcode.clone().into()),
            class: site.class,
            counters: *counters,
        };
        program.sites.iter().zip(counters).map(instruction).collect()
    }

    /// Checks that the device can run the launch.
    fn check(
        &self,
        launch: &Launch<'_>,
        id: FunctionId,
        shared_bytes: usize,
        program: &Program,
    ) -> Result<(), FaultKind> {
        let threads = launch.block.iter().fold(1_u64, |all, axis| all.saturating_mul(u64::from(*axis)));
        let illegal = |text: String| Err(FaultKind::Illegal(text));
        if threads == 0 || threads > 1024 {
            return illegal(format!("a block of {threads} threads: a block has 1 to 1024 threads"));
        }
        let directives = &self.function(id).directives;
        if let Some(required) = &directives.required_threads
            && padded(required) != launch.block
        {
            return illegal(format!(
                "a block of {:?} threads: the kernel requires {required:?}",
                launch.block
            ));
        }
        if let Some(most) = &directives.max_threads
            && threads > volume(padded(most))
        {
            return illegal(format!("a block of {threads} threads: the kernel allows at most {most:?}"));
        }
        if launch.grid[0] > i32::MAX as u32 || launch.grid[1..].iter().any(|axis| *axis > 0xffff) {
            let grid = launch.grid;
            return illegal(format!("a grid of {grid:?} blocks: the limits are 2147483647, 65535 and 65535"));
        }
        if launch.cluster.iter().any(|axis| *axis > 16) {
            return illegal(format!(
                "clusters of {:?} blocks: a cluster has at most 16 blocks",
                launch.cluster
            ));
        }
        let cluster = volume(launch.cluster);
        let divides =
            launch.grid.iter().zip(launch.cluster).all(|(grid, cluster)| cluster != 0 && grid % cluster == 0);
        if !divides || cluster > 16 {
            let (grid, cluster) = (launch.grid, launch.cluster);
            return illegal(format!(
                "a grid of {grid:?} blocks in clusters of {cluster:?}: a cluster has at most 16 blocks and has to divide the grid"
            ));
        }
        let limit = self.target.shared_bytes();
        if shared_bytes > limit {
            return illegal(format!(
                "{shared_bytes} bytes of shared memory: a block of {} has at most {limit}",
                self.target.name()
            ));
        }
        let end = program.parameters.last().map_or(0, |last| last.offset + last.bytes);
        if launch.parameters.len() < end {
            return illegal(format!(
                "{} bytes of parameters: the kernel expects {end}",
                launch.parameters.len()
            ));
        }
        Ok(())
    }
}

/// The host threads that run clusters.
enum Threads {
    /// The global thread pool of the process.
    Shared,
    /// A pool of this process. After a fork, a child cannot use the threads of its parent.
    Own(Arc<rayon::ThreadPool>),
    /// The calling thread only, because the system creates no threads for this child process.
    None,
}

impl Threads {
    fn of_this_process() -> Self {
        static FIRST: OnceLock<u32> = OnceLock::new();
        static OF_CHILD: Mutex<Option<(u32, Arc<rayon::ThreadPool>)>> = Mutex::new(None);
        let process = std::process::id();
        if *FIRST.get_or_init(|| process) == process {
            return Self::Shared;
        }
        let mut of_child = OF_CHILD.lock().unwrap_or_else(PoisonError::into_inner);
        match &*of_child {
            Some((owner, pool)) if *owner == process => Self::Own(pool.clone()),
            _ => {
                let Ok(pool) = rayon::ThreadPoolBuilder::new().build() else { return Self::None };
                let pool = Arc::new(pool);
                // The pool of a forked parent is leaked, because its threads cannot be joined.
                if let Some(old) = of_child.replace((process, pool.clone())) {
                    std::mem::forget(old);
                }
                Self::Own(pool)
            }
        }
    }
}

impl CheckedLaunch<'_> {
    /// Runs all clusters. They begin in the order of their indices, because blocks may wait for
    /// earlier ones.
    fn run_all(&self, clusters: u64) -> Result<Tally, Box<Fault>> {
        let next = &self.machine.launches.next;
        // The fault of the first faulting cluster in grid order.
        let first = Mutex::new(None::<(u64, Box<Fault>)>);
        let end = self.machine.end;
        let sites = self.program.sites.len();
        // One thread makes the findings of a watched launch deterministic.
        let max_threads = if self.launch.watch.is_some() { 1 } else { rayon::current_num_threads() as u64 };
        let threads = max_threads.min(clusters).max(1) as usize;
        let residency = Residency::new(self.max_running(threads));
        let work = |_: usize| {
            let mut tally = Tally { counters: vec![StepCounters::default(); sites], printed: Vec::new() };
            let mut running = VecDeque::new();
            loop {
                let has_more = || next.load(Ordering::SeqCst) < clusters.min(end.load(Ordering::Relaxed));
                if has_more() && residency.enter() {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number < clusters.min(end.load(Ordering::Relaxed)) {
                        running.push_front(self.begin(number));
                    } else {
                        residency.leave();
                    }
                }
                let Some(mut cluster) = running.pop_front() else {
                    if !has_more() {
                        break;
                    }
                    // Clusters of other threads occupy every slot of `residency`.
                    std::thread::yield_now();
                    continue;
                };
                let number = cluster.cluster.number;
                let changes = self.machine.global.changes();
                let outcome = self.run(&mut cluster, &mut tally).and_then(|has_ended| {
                    let can_begin = has_more() && !residency.is_full();
                    let stuck = if has_ended { None } else { self.stuck(&mut cluster, changes, &residency) };
                    match stuck {
                        Some(stuck) if !can_begin => {
                            Err(self.starved(&cluster, stuck, next.load(Ordering::SeqCst).min(clusters)))
                        }
                        _ => Ok(has_ended),
                    }
                });
                match outcome {
                    Ok(true) => residency.leave(),
                    Ok(false) => running.push_back(cluster),
                    Err(fault) => {
                        residency.leave();
                        let mut first = first.lock().expect("no thread panics while it holds the lock");
                        let is_consequence = matches!(fault.kind, FaultKind::Cancelled { .. })
                            && number >= end.load(Ordering::Relaxed);
                        if !is_consequence && first.as_ref().is_none_or(|(earlier, _)| number < *earlier) {
                            *first = Some((number, fault));
                        }
                        // Earlier clusters continue, so that the reported fault does not depend on
                        // the host. If clusters may wait for each other, all stop.
                        let first_to_stop = if self.program.may_wait_for_others { 0 } else { number };
                        end.fetch_min(first_to_stop, Ordering::Relaxed);
                    }
                }
            }
            for stopped in running {
                tally.keep_printed(stopped.cluster.number, stopped.cluster.printed);
                if let (Some(events), Some(log)) = (self.launch.events, stopped.cluster.events) {
                    events.keep(stopped.cluster.number, log, false);
                }
            }
            tally
        };
        let in_parallel =
            || (0..threads).into_par_iter().with_max_len(1).map(work).reduce_with(Tally::merged);
        let merged = match Threads::of_this_process() {
            Threads::Shared => in_parallel(),
            Threads::Own(pool) => pool.install(in_parallel),
            Threads::None => Some(work(0)),
        };
        let mut tally = merged.expect("there is at least one thread");
        tally.printed.sort_by_key(|(number, _)| *number);
        match first.into_inner().expect("no thread panics while it holds the lock") {
            Some((_, mut fault)) => {
                fault.printed = tally.texts();
                Err(fault)
            }
            None => Ok(tally),
        }
    }

    /// Records a stuck cluster: it repeats its states while global memory does not change. If all
    /// resident clusters are stuck, returns their polls.
    fn stuck(
        &self,
        running: &mut Running<'_>,
        changes: u64,
        residency: &Residency,
    ) -> Option<BTreeMap<u64, Polling>> {
        let is_unchanged = || self.machine.global.changes() == changes;
        let cluster = &running.cluster;
        if !is_unchanged() || !running.states.is_stuck(cluster, changes) {
            return None;
        }
        let (warp, _, site, _) = *cluster.waiting().first()?;
        let site = &self.program.sites[site as usize];
        let in_cluster = point((warp / cluster.warps_per_block) as u64, self.launch.cluster);
        let polling = Polling {
            block: std::array::from_fn(|axis| {
                running.position[axis] * self.launch.cluster[axis] + in_cluster[axis]
            }),
            address: cluster.warps[warp].polled,
            location: self.module.location(site.line, site.kernel),
            instruction: self.text(site),
        };
        residency.note(cluster.number, changes, polling).filter(|_| is_unchanged())
    }

    fn starved(&self, running: &Running<'_>, stuck: BTreeMap<u64, Polling>, begun: u64) -> Box<Fault> {
        let blocks = volume(self.launch.cluster);
        let clusters: [u32; 3] =
            std::array::from_fn(|axis| self.launch.grid[axis] / self.launch.cluster[axis]);
        let next = (begun < volume(clusters)).then(|| point(begun, clusters));
        let kind = FaultKind::Starved {
            resident: stuck.len() as u64 * blocks,
            not_begun: (volume(clusters) - begun) * blocks,
            next: next.map(|next| std::array::from_fn(|axis| next[axis] * self.launch.cluster[axis])),
            waiting: stuck.into_values().take(MAX_NAMED).collect(),
        };
        let (warp, _, site, _) = running.cluster.waiting()[0];
        let stopped = Stopped { stop: kind.into(), warp, site: Some(site) };
        Box::new(self.fault(stopped, running.position, running.cluster.warps_per_block))
    }

    /// Returns the number of clusters that may be resident. If clusters may wait for each other, it
    /// is that of the GPU, limited by the host's memory. Otherwise, it is the number of threads.
    fn max_running(&self, threads: usize) -> usize {
        if !self.program.may_wait_for_others {
            return threads;
        }
        let warps = volume(self.launch.block).div_ceil(LANES as u64) as usize;
        let registers = self.program.registers * size_of::<Lanes>();
        let local = 2 * self.program.local_bytes * LANES;
        // The race detector needs eight more bytes for each byte of shared memory.
        let block = warps * (registers + local) + self.shared_bytes * 9;
        let blocks = volume(self.launch.cluster);
        let of_host = (MAX_RUNNING_BYTES / (block * blocks as usize).max(1)).max(threads);
        let resident = resident_blocks(&self.module.target, volume(self.launch.block), self.shared_bytes);
        ((resident / blocks) as usize).clamp(1, of_host)
    }

    /// Creates a cluster with all warps at their first step.
    fn begin(&self, number: u64) -> Running<'_> {
        let launch = self.launch;
        let blocks = volume(launch.cluster) as usize;
        let threads = volume(launch.block) as usize;
        let warps = threads.div_ceil(LANES);
        let agents = agents(blocks, warps);
        let clusters: [u32; 3] = std::array::from_fn(|axis| launch.grid[axis] / launch.cluster[axis]);
        let position = point(number, clusters);
        let mut cluster = Cluster {
            machine: &self.machine,
            number,
            blocks: Vec::with_capacity(blocks),
            barriers: Vec::with_capacity(blocks),
            meeting: BlockBarrier::new(Clock::new(agents)),
            warps: Vec::with_capacity(blocks * warps),
            warps_per_block: warps,
            agents,
            counters: Vec::new(),
            printed: String::new(),
            events: launch.events.map(EventLog::new),
        };
        for rank in 0..blocks {
            let shared = Shared::new(self.shared_bytes);
            let asynchronous = asynchronous::AsyncState::new(warps, self.program.has_bulk_loads);
            let is_watched = launch.watch.is_some_and(Watch::looks_for_races);
            let lanes = is_watched.then(|| LaneShadow::new(self.shared_bytes));
            let cluster_accesses = ClusterAccesses::new(rank, agents);
            let tensor = TensorMemory::default();
            cluster.blocks.push(BlockMemory { shared, tensor, lanes, cluster_accesses, asynchronous });
            cluster
                .barriers
                .push(std::array::from_fn::<_, BLOCK_BARRIERS, _>(|_| BlockBarrier::new(Clock::new(agents))));
            for warp in 0..warps {
                let lanes = (threads - warp * LANES).min(LANES);
                let existing = if lanes == LANES { u32::MAX } else { (1 << lanes) - 1 };
                let registers = self.registers(position, rank, warp);
                let agent = Agent::new(rank * warps + warp, agents);
                let local = Local::new(self.program.local_bytes);
                let mut warp = Warp::new(warp, rank, existing, registers, agent, local);
                if self.program.watches_registers && launch.watch.is_some_and(Watch::looks_for_unwritten) {
                    warp.registers.keep_written();
                }
                if !self.program.functions.is_empty() {
                    warp.returns.resize_with(LANES, Vec::new);
                }
                cluster.warps.push(warp);
            }
        }
        Running { position, cluster, states: SeenStates::default() }
    }

    /// Runs a cluster to its end, or for at most [`ROUNDS`] rounds if clusters may wait for each
    /// other. Returns whether it has ended.
    fn run(&self, running: &mut Running<'_>, tally: &mut Tally) -> Result<bool, Box<Fault>> {
        let cluster = &mut running.cluster;
        let rounds = if self.program.may_wait_for_others { ROUNDS } else { u64::MAX };
        cluster.counters = std::mem::take(&mut tally.counters);
        let outcome = cluster.run(rounds);
        tally.counters = std::mem::take(&mut cluster.counters);
        if matches!(outcome, Ok(false)) {
            return Ok(false);
        }
        let warps = cluster.warps_per_block;
        let outcome = prefer_unwritten(&cluster.blocks, outcome.map(|_| ()), cluster.warps.len());
        tally.keep_printed(cluster.number, std::mem::take(&mut cluster.printed));
        if let (Some(events), Some(log)) = (self.launch.events, cluster.events.take()) {
            events.keep(cluster.number, log, outcome.is_err());
        }
        let fault = |stopped| Box::new(self.fault(stopped, running.position, warps));
        outcome.map(|()| true).map_err(fault)
    }

    fn registers(&self, cluster: [u32; 3], rank: usize, warp: usize) -> Registers {
        let mut registers = Registers::new(self.program.registers);
        for (slot, fill) in &self.program.fills {
            *registers.get_mut(*slot) = match *fill {
                Fill::Constant(value) => [value; LANES],
                Fill::LocalEnd => [self.program.local_bytes as u64; LANES],
                Fill::DynamicShared => [self.program.dynamic_shared as u64; LANES],
                Fill::Special(special) => {
                    std::array::from_fn(|lane| self.special(special, cluster, rank, warp, lane))
                }
            };
        }
        registers
    }

    fn special(
        &self,
        special: SpecialRegister,
        cluster: [u32; 3],
        rank: usize,
        warp: usize,
        lane: usize,
    ) -> u64 {
        use SpecialRegister as S;
        let launch = self.launch;
        let thread = point((warp * LANES + lane) as u64, launch.block);
        let in_cluster = point(rank as u64, launch.cluster);
        let block: [u32; 3] =
            std::array::from_fn(|axis| cluster[axis] * launch.cluster[axis] + in_cluster[axis]);
        let clusters: [u32; 3] = std::array::from_fn(|axis| launch.grid[axis] / launch.cluster[axis]);
        let warps = volume(launch.block).div_ceil(LANES as u64);
        let own = 1_u64 << lane;
        let narrow = match special {
            S::TidX => thread[0],
            S::TidY => thread[1],
            S::TidZ => thread[2],
            S::NtidX => launch.block[0],
            S::NtidY => launch.block[1],
            S::NtidZ => launch.block[2],
            S::CtaidX => block[0],
            S::CtaidY => block[1],
            S::CtaidZ => block[2],
            S::NctaidX => launch.grid[0],
            S::NctaidY => launch.grid[1],
            S::NctaidZ => launch.grid[2],
            S::LaneId => lane as u32,
            S::WarpId => warp as u32,
            S::NwarpId => warps as u32,
            S::ClusterIdX => cluster[0],
            S::ClusterIdY => cluster[1],
            S::ClusterIdZ => cluster[2],
            S::NclusterIdX => clusters[0],
            S::NclusterIdY => clusters[1],
            S::NclusterIdZ => clusters[2],
            S::ClusterCtaidX => in_cluster[0],
            S::ClusterCtaidY => in_cluster[1],
            S::ClusterCtaidZ => in_cluster[2],
            S::ClusterNctaidX => launch.cluster[0],
            S::ClusterNctaidY => launch.cluster[1],
            S::ClusterNctaidZ => launch.cluster[2],
            S::ClusterCtaRank => rank as u32,
            S::ClusterNctaRank => volume(launch.cluster) as u32,
            S::IsExplicitCluster => u32::from(volume(launch.cluster) > 1),
            S::LanemaskEq => own as u32,
            S::LanemaskLe => (own | (own - 1)) as u32,
            S::LanemaskLt => (own - 1) as u32,
            S::LanemaskGe => !(own - 1) as u32,
            S::LanemaskGt => !(own | (own - 1)) as u32,
            S::NsmId => 1,
            S::TotalSmemSize | S::AggrSmemSize => self.shared_bytes as u32,
            S::DynamicSmemSize => launch.dynamic_shared_bytes,
            // The simulator models one multiprocessor and one grid. A decoded step reads clocks and
            // timers (`decode/operands.rs`), so their value here is unused.
            S::SmId
            | S::GridId
            | S::CurrentGraphExec
            | S::ReservedSmemOffsetBegin
            | S::ReservedSmemOffsetEnd
            | S::ReservedSmemOffsetCap
            | S::ReservedSmemOffset0
            | S::ReservedSmemOffset1
            | S::Clock
            | S::ClockHi
            | S::Clock64
            | S::GlobalTimer
            | S::GlobalTimerLo
            | S::GlobalTimerHi => 0,
        };
        u64::from(narrow)
    }

    fn fault(&self, stopped: Stopped, cluster: [u32; 3], warps: usize) -> Fault {
        let Stopped { stop, warp, site } = stopped;
        let site = site.map(|site| &self.program.sites[site as usize]);
        let in_cluster = point((warp / warps) as u64, self.launch.cluster);
        let lane = stop.lane;
        Fault {
            kind: self.kind(stop.cause, warps),
            kernel: self.launch.kernel.into(),
            location: site.map(|site| self.module.location(site.line, site.kernel)),
            instruction: site.map(|site| self.text(site)),
            block: std::array::from_fn(|axis| cluster[axis] * self.launch.cluster[axis] + in_cluster[axis]),
            warp: (warp % warps) as u32,
            lane,
            parameters: self.program.parameters.iter().map(|place| self.parameter(*place)).collect(),
            regions: self.launch.regions.iter().map(|region| (region.address(), region.len())).collect(),
            printed: Vec::new(),
        }
    }

    /// Returns the fault of a load from padding.
    fn padded(&self, instruction: u32, (cluster, warp, lane): Reader, kind: FaultKind) -> Fault {
        let warps = volume(self.launch.block).div_ceil(LANES as u64) as usize;
        let clusters: [u32; 3] =
            std::array::from_fn(|axis| self.launch.grid[axis] / self.launch.cluster[axis]);
        let mut stop: Box<Stop> = kind.into();
        stop.lane = Some(lane as u32);
        self.fault(Stopped { stop, warp, site: Some(instruction) }, point(cluster, clusters), warps)
    }

    fn found(&self, found: &WatchFinding) -> Fault {
        let blocks = volume(self.launch.cluster) as usize;
        let warps = volume(self.launch.block).div_ceil(LANES as u64) as usize;
        let all = agents(blocks, warps) as u32;
        let clusters: [u32; 3] =
            std::array::from_fn(|axis| self.launch.grid[axis] / self.launch.cluster[axis]);
        let cluster_of = |agent: u32| point(u64::from(agent / all), clusters);
        // An asynchronous operation has no warp, so the finding names the first warp of its block.
        let warp_of = |agent: u32| match (agent % all) as usize {
            warp if warp < blocks * warps => warp,
            channel => (channel - blocks * warps) / asynchronous::channels(warps) * warps,
        };
        let WatchFinding { address, bytes, is_write, site, agent, lane, first, .. } = *found;
        let kind = match first {
            None => FaultKind::UnwrittenGlobal { address, bytes },
            Some(first) => {
                let record = Record {
                    agent: first.agent % all,
                    step: first.step,
                    instruction: first.site,
                    proxy: Proxy::Generic,
                    is_atomic: first.mode != Mode::Plain,
                    is_write: first.is_write,
                };
                let (position, warp) = (cluster_of(first.agent), warp_of(first.agent));
                let in_cluster = point((warp / warps) as u64, self.launch.cluster);
                let block =
                    std::array::from_fn(|axis| position[axis] * self.launch.cluster[axis] + in_cluster[axis]);
                let is_atomic = first.mode != Mode::Plain;
                let first = self.racing(record, warps);
                FaultKind::GlobalRace { address, bytes, first: Box::new(first), block, is_atomic, is_write }
            }
        };
        let mut stop: Box<Stop> = kind.into();
        stop.lane = lane;
        self.fault(Stopped { stop, warp: warp_of(agent), site: Some(site) }, cluster_of(agent), warps)
    }

    /// Returns the first 8 bytes of a parameter.
    fn parameter(&self, place: Parameter) -> u64 {
        let mut bytes = [0; 8];
        let len = place.bytes.min(8);
        bytes[..len].copy_from_slice(&self.launch.parameters[place.offset..place.offset + len]);
        u64::from_le_bytes(bytes)
    }

    fn text(&self, site: &crate::decode::Site) -> String {
        self.module.line(site.line).unwrap_or_else(|| site.opcode.clone().into())
    }

    fn kind(&self, cause: Cause, warps: usize) -> FaultKind {
        match cause {
            Cause::Plain(kind) => kind,
            Cause::Race { offset, first, is_write } => {
                FaultKind::Race { offset, first: self.racing(first, warps), is_write }
            }
            Cause::TensorMemoryRace { lane, column, first, is_write } => {
                FaultKind::TensorMemoryRace { lane, column, first: self.racing(first, warps), is_write }
            }
            Cause::MissingProxyFence { offset, write } => {
                FaultKind::MissingProxyFence { offset, write: self.racing(write, warps) }
            }
            Cause::EndedBlock { rank, access } => {
                FaultKind::EndedBlock { rank: rank as u32, access: self.racing(access, warps) }
            }
            Cause::Deadlock(groups) => FaultKind::Deadlock { waiting: self.waiting(groups, warps) },
            Cause::Cancelled(groups) => FaultKind::Cancelled { waiting: self.waiting(groups, warps) },
        }
    }

    fn waiting(&self, groups: Vec<WaitingGroup>, warps: usize) -> Vec<Waiting> {
        let place = |(warp, lanes, site, barrier): WaitingGroup| {
            let site = &self.program.sites[site as usize];
            Waiting {
                block: (warp / warps) as u32,
                warp: (warp % warps) as u32,
                lanes,
                location: self.module.location(site.line, site.kernel),
                instruction: self.text(site),
                barrier,
            }
        };
        groups.into_iter().map(place).collect()
    }

    fn racing(&self, record: Record, warps: usize) -> RacingAccess {
        let site = &self.program.sites[record.instruction as usize];
        let (agent, blocks) = (record.agent as usize, volume(self.launch.cluster) as usize);
        let agent = match agent {
            _ if agent >= blocks * warps => "an asynchronous operation".into(),
            _ if blocks == 1 => format!("warp {agent}"),
            _ => format!("warp {} of block {} of the cluster", agent % warps, agent / warps),
        };
        RacingAccess {
            agent,
            is_write: record.is_write,
            location: self.module.location(site.line, site.kernel),
            instruction: self.text(site),
        }
    }
}
