//! Runs a program for every point of a grid, on several threads.
//!
//! At first, only the calling thread works, unless the launch is estimated to be long. It wakes
//! other threads if the remaining work repays that. A thread takes chunks of programs, which shrink
//! towards the end of the grid.
//!
//! Programs that are likely to wait for each other use [`scheduler`](crate::run::scheduler)
//! instead.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Instant;

use smallvec::SmallVec;
use tilewright_base::Diagnostic;

use crate::program::Program;
use crate::run::argument::Argument;
use crate::run::fault::{Fault, FaultKind, Outcome};
use crate::run::grid::coordinates;
use crate::run::interrupt::{Control, Interrupt, POLL_INTERVAL};
use crate::run::kernels::buffer::OutOfMemory;
use crate::run::machine::Machine;
use crate::run::memory::Region;
use crate::run::observer::Observe;
use crate::run::padding::PaddedReads;
use crate::run::profile::Profile;
use crate::run::scheduler::Scheduler;
use crate::run::trace::Tracing;
use crate::tuning::{MAX_CHUNK_PROGRAMS, MAX_NANOSECONDS_BETWEEN_CHECKS, MIN_PARALLEL_NANOSECONDS};

/// A launch of a program.
pub struct Launch<'a> {
    /// The number of programs along x, y and z. The linear index of a program increases fastest
    /// along x. If a number is 0, no program runs.
    pub grid: [u32; 3],
    /// The arguments, one for each parameter.
    pub arguments: &'a [Argument<'a>],
    /// Memory that pointers of unknown provenance may access, in addition to the memory of the
    /// arguments. A pointer that is cast from an integer has unknown provenance, for example.
    pub foreign: &'a [Region<'a>],
    /// The maximum number of threads, including the calling thread. A value of 0 means 1.
    pub threads: usize,
    /// Stops the launch early.
    pub interrupt: Interrupt<'a>,
    /// Records the loads that end in the padding of a region (see [`PaddedReads`]); such loads read
    /// 0. Without a recorder, such loads are faults.
    pub padded: Option<&'a PaddedReads>,
    /// True if machine code may execute steps. Otherwise, the machine executes all steps one by
    /// one, with the same result.
    pub machine_code: bool,
}

struct Shared<'a> {
    program: &'a Program,
    launch: &'a Launch<'a>,
    observers: &'a [&'a dyn Observe],
    regions: &'a [Region<'a>],
    total: u64,
    /// The lowest index of a program that no thread has taken yet.
    next: AtomicU64,
    stop: AtomicBool,
    /// The lowest index of a program that faulted, or `u64::MAX`. Programs with lower indices still
    /// run, so that every launch reports the same fault.
    faulted: AtomicU64,
    /// The fault to report, and the index of its program. For an interrupt, the index is
    /// `u64::MAX`.
    fault: Mutex<Option<(u64, Box<Fault>)>>,
    /// The number of helper threads that still work.
    helpers: Mutex<usize>,
    helper_done: Condvar,
}

/// Measures programs while no helper threads work.
struct Probe {
    start: Instant,
    done: u64,
    /// The number of programs until the next read of the clock.
    chunk: u64,
}

impl Probe {
    /// Counts programs that have run. Returns whether the remaining work repays waking other
    /// threads.
    fn finds_work(&mut self, shared: &Shared<'_>, programs: u64) -> bool {
        self.done += programs;
        self.chunk = self.done.min(MAX_CHUNK_PROGRAMS);
        let each = self.start.elapsed().as_nanos() as u64 / self.done;
        shared.program.measured.store(each.max(1), Ordering::Relaxed);
        each.saturating_mul(shared.total - self.done) > MIN_PARALLEL_NANOSECONDS
    }
}

/// Decrements the number of helpers when dropped, even if the helper panics.
struct HelperGuard<'s, 'a>(&'s Shared<'a>);

impl Drop for HelperGuard<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The programs that this thread has taken will not complete, so the launch must end.
            self.0.stop.store(true, Ordering::Relaxed);
        }
        *self.0.helpers.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.helper_done.notify_one();
    }
}

impl Program {
    /// Runs the program for every point of the grid.
    ///
    /// If programs fault, fails with the diagnostic of the program with the lowest linear index.
    /// All programs with lower indices have then run. If programs are likely to wait for each
    /// other, the first fault in time ends the launch instead. Programs with lower indices may then
    /// not have run. Also fails if the interrupt stops the launch.
    ///
    /// Panics if the numbers of arguments and parameters differ. Also panics if an argument is a
    /// scalar and its parameter a pointer, or the reverse.
    pub fn launch(&self, launch: &Launch<'_>) -> Result<(), Box<Diagnostic>> {
        self.start(launch, &[])
    }

    /// Runs the program like [`Self::launch`], and measures each step.
    pub fn launch_profiled(&self, launch: &Launch<'_>, profile: &Profile) -> Result<(), Box<Diagnostic>> {
        self.start(launch, &[profile])
    }

    /// Runs the program like [`Self::launch`], and records it. The program must have been compiled
    /// by [`Program::for_traces`].
    pub fn launch_traced(&self, launch: &Launch<'_>, tracing: Tracing<'_>) -> Result<(), Box<Diagnostic>> {
        self.start(launch, &[&tracing])
    }

    pub(crate) fn start(
        &self,
        launch: &Launch<'_>,
        observers: &[&dyn Observe],
    ) -> Result<(), Box<Diagnostic>> {
        self.check_arguments(launch.arguments);
        let [x, y, z] = launch.grid.map(u64::from);
        let total = x.saturating_mul(y).saturating_mul(z);
        if total == 0 {
            return Ok(());
        }
        let pointers = launch.arguments.iter().filter_map(|argument| match argument {
            Argument::Pointer { region, .. } => Some(*region),
            Argument::Scalar(_) => None,
        });
        let regions: SmallVec<[Region<'_>; 16]> = pointers.chain(launch.foreign.iter().copied()).collect();
        let shared = Shared {
            program: self,
            launch,
            observers,
            regions: &regions,
            total,
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            faulted: AtomicU64::new(u64::MAX),
            fault: Mutex::new(None),
            helpers: Mutex::new(0),
            helper_done: Condvar::new(),
        };
        shared.run();
        let fault = shared.fault.into_inner().unwrap_or_else(PoisonError::into_inner);
        match fault {
            None => Ok(()),
            Some((number, fault)) => {
                let id = coordinates(launch.grid, number);
                let name = |index: usize| self.parameters[index].name.clone();
                Err(Box::new(fault.diagnostic(self, launch.arguments, &name, id)))
            }
        }
    }

    /// Returns the measured time of one program in nanoseconds, or the estimate before the first
    /// measurement.
    fn nanoseconds(&self) -> u64 {
        let measured = self.measured.load(Ordering::Relaxed);
        if measured == 0 { self.estimate } else { measured }
    }

    fn check_arguments(&self, arguments: &[Argument<'_>]) {
        assert!(arguments.len() == self.parameters.len(), "a launch has an argument for each parameter");
        for (parameter, argument) in self.parameters.iter().zip(arguments) {
            let is_pointer = matches!(argument, Argument::Pointer { .. });
            let wanted = self.ty(parameter.slot).is_pointer();
            assert!(is_pointer == wanted, "argument {} is of the wrong kind", parameter.name);
        }
    }
}

impl PaddedReads {
    /// Returns the diagnostic of each recorded load, as a launch without a recorder reports it.
    pub fn diagnostics(&self, program: &Program, launch: &Launch<'_>) -> Vec<Diagnostic> {
        let name = |index: usize| Arc::clone(&program.parameters[index].name);
        self.diagnostics_of(program, launch.arguments, &name, launch.grid)
    }
}

impl<'a> Shared<'a> {
    fn run(&'a self) {
        let threads = self.launch.threads.max(1).min(usize::try_from(self.total).unwrap_or(usize::MAX));
        if self.program.waits && self.total > 1 {
            self.run_scheduled(threads);
            return;
        }
        if threads == 1 {
            self.work(true, None);
            return;
        }
        if self.program.nanoseconds().saturating_mul(self.total) > 2 * MIN_PARALLEL_NANOSECONDS {
            let start = Instant::now();
            self.spread(threads);
            // The time of the launch times the number of threads bounds the total time of its
            // programs. The stored measurement may be much longer: it includes the compilation to
            // machine code.
            let each = start.elapsed().as_nanos() as u64 * threads as u64 / self.total;
            let measured = self.program.measured.load(Ordering::Relaxed);
            if measured == 0 || each < measured {
                self.program.measured.store(each.max(1), Ordering::Relaxed);
            }
            return;
        }
        // Only this thread works until a measurement shows that helpers pay off.
        let mut probe = Probe { start: Instant::now(), done: 0, chunk: 1 };
        if self.work(true, Some(&mut probe)) {
            self.spread(threads);
        }
    }

    fn spread(&'a self, threads: usize) {
        let Some(pool) = pool(threads - 1) else {
            self.work(true, None);
            return;
        };
        *self.helpers.lock().unwrap_or_else(PoisonError::into_inner) = threads - 1;
        pool.in_place_scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|_| {
                    let _done = HelperGuard(self);
                    self.work(false, None);
                });
            }
            self.work(true, None);
            self.wait();
        });
    }

    /// Runs programs that wait for each other. The calling thread only polls the interrupt, because
    /// a program may wait for long. It runs programs only if the system starts no other thread.
    fn run_scheduled(&'a self, threads: usize) {
        let scheduler = Scheduler::default();
        std::thread::scope(|scope| {
            let begun = (0..threads).filter(|_| self.begin(&scheduler, scope)).count();
            if begun == 0 {
                self.work(true, None);
            }
            self.wait();
        });
    }

    /// Starts a thread. Returns false if the system refuses.
    fn begin<'s>(&'s self, scheduler: &'s Scheduler, scope: &'s Scope<'s, '_>) -> bool {
        *self.helpers.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let done = HelperGuard(self);
        let builder = std::thread::Builder::new().name("tilewright-turn".into());
        let begun = builder.spawn_scoped(scope, move || {
            let _done = done;
            self.run_until_parked(scheduler, scope);
        });
        begun.is_ok()
    }

    /// Runs programs until none is left, one fails, or a parked thread resumes in place of this
    /// thread.
    fn run_until_parked<'s>(&'s self, scheduler: &'s Scheduler, scope: &'s Scope<'s, '_>) {
        let park = || {
            let has_others = self.next.load(Ordering::Relaxed) < self.total;
            scheduler.park(&self.stop, has_others, || self.begin(scheduler, scope));
        };
        let Launch { grid, arguments, padded, machine_code, .. } = *self.launch;
        let control = Control::new(&self.stop, self.launch.interrupt, false)
            .with_scheduler(&park)
            .noting(padded)
            .with_machine_code(machine_code);
        let machine =
            unless_out_of_memory(|| Machine::new(self.program, arguments, self.regions, grid, control));
        let mut machine = match machine {
            Ok(machine) => machine,
            Err(fault) => {
                // Parked programs may wait for this thread, so the launch must end.
                self.stop.store(true, Ordering::Relaxed);
                return self.fail(0, fault);
            }
        };
        machine.observe(self.observers);
        while let Some((number, _)) = self.take(1) {
            let outcome = unless_out_of_memory(|| {
                machine.control.check()?;
                machine.run_at(coordinates(grid, number))
            });
            if let Err(fault) = outcome {
                // Other programs may wait for the failed program, so the launch must end.
                self.stop.store(true, Ordering::Relaxed);
                return self.fail(number, fault);
            }
            if scheduler.yield_now() {
                return;
            }
        }
        scheduler.yield_now();
    }

    /// Polls the interrupt function until all helpers have finished. Otherwise returns at once: the
    /// thread scope waits for the helpers.
    fn wait(&self) {
        let Interrupt::Poll(poll) = self.launch.interrupt else { return };
        let mut helpers = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
        while *helpers > 0 {
            let waited = self.helper_done.wait_timeout(helpers, POLL_INTERVAL);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            helpers = guard;
            if timeout.timed_out() && !self.stop.load(Ordering::Relaxed) {
                drop(helpers);
                if poll() {
                    self.fail(u64::MAX, Fault::new(FaultKind::Interrupted));
                }
                helpers = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Runs programs until none is left, one fails, or the probe finds work for helpers. Returns
    /// true in the last case.
    fn work(&'a self, is_caller: bool, mut probe: Option<&mut Probe>) -> bool {
        let Launch { grid, interrupt, padded, machine_code, .. } = *self.launch;
        let control = Control::new(&self.stop, interrupt, is_caller)
            .below(&self.faulted)
            .noting(padded)
            .with_machine_code(machine_code);
        let machine = unless_out_of_memory(|| {
            Machine::new(self.program, self.launch.arguments, self.regions, grid, control)
        });
        let mut machine = match machine {
            Ok(machine) => machine,
            Err(fault) => {
                self.fail(0, fault);
                return false;
            }
        };
        machine.observe(self.observers);
        let between_checks = (MAX_NANOSECONDS_BETWEEN_CHECKS / self.program.nanoseconds().max(1)).max(1);
        while let Some((first, end)) =
            self.take(probe.as_ref().map_or(MAX_CHUNK_PROGRAMS, |probe| probe.chunk))
        {
            let mut number = first;
            while number < end {
                let id = coordinates(grid, number);
                let most = (end - number).min(u64::from(grid[0] - id[0])).min(between_checks);
                let outcome = unless_out_of_memory(|| {
                    machine.control.begin(number)?;
                    machine.run_from(id, most as u32)
                });
                match outcome {
                    Ok(executed) => number += u64::from(executed),
                    Err(fault) => {
                        self.fail(number, fault);
                        return false;
                    }
                }
            }
            if let Some(probe) = &mut probe
                && probe.finds_work(self, end - first)
            {
                return true;
            }
        }
        false
    }

    /// Takes the next chunk of at most `most` programs: its first index and the index after its
    /// last.
    fn take(&self, most: u64) -> Option<(u64, u64)> {
        let threads = self.launch.threads.max(1) as u64;
        let mut first = self.next.load(Ordering::Relaxed);
        loop {
            let left = self.total.checked_sub(first).filter(|&left| left > 0)?;
            let count = (left / (threads * 8)).clamp(1, most);
            let end = first + count;
            match self.next.compare_exchange_weak(first, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some((first, end)),
                Err(now) => first = now,
            }
        }
    }

    /// Records a fault, and stops the programs with higher indices. An interrupt stops all
    /// programs, and is reported only if no program faulted.
    fn fail(&self, number: u64, fault: Box<Fault>) {
        let number = match fault.kind {
            FaultKind::Superseded => return,
            FaultKind::Interrupted => {
                self.stop.store(true, Ordering::Relaxed);
                u64::MAX
            }
            _ => {
                self.faulted.fetch_min(number, Ordering::Relaxed);
                number
            }
        };
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(lowest, _)| number < *lowest) {
            *first = Some((number, fault));
        }
    }
}

/// Runs a closure, and returns a fault if an allocation fails.
pub(crate) fn unless_out_of_memory<T>(run: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    // This is unwind-safe: after a failed allocation, nothing reads the values of the program.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        if payload.is::<OutOfMemory>() {
            return Err(Fault::new(FaultKind::OutOfMemory));
        }
        std::panic::resume_unwind(payload)
    })
}

/// Returns the thread pool of this size, or `None` if the system refuses more threads.
///
/// A forked child lacks the threads of its parent. The key therefore includes the process.
fn pool(threads: usize) -> Option<Arc<rayon::ThreadPool>> {
    static POOLS: Mutex<BTreeMap<(u32, usize), Arc<rayon::ThreadPool>>> = Mutex::new(BTreeMap::new());
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (std::process::id(), threads);
    if let Some(pool) = pools.get(&key) {
        return Some(pool.clone());
    }
    let builder = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|_| format!("tilewright-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    let pool = Arc::new(builder.build().ok()?);
    pools.insert(key, pool.clone());
    Some(pool)
}

#[cfg(test)]
mod tests {
    use tilewright_ir::parse;

    use super::*;

    #[test]
    fn a_launch_on_several_threads_corrects_the_time_of_a_program() {
        /// A time much longer than that of the program.
        const DAY: u64 = 86_400_000_000_000;
        let module = parse("kernel func0 @k() {\n  return_values\n}\n").expect("the text is valid");
        let program = Program::new(&module).expect("it can be lowered");
        program.measured.store(DAY, Ordering::Relaxed);
        let launch = Launch {
            grid: [64, 1, 1],
            arguments: &[],
            foreign: &[],
            threads: 2,
            interrupt: Interrupt::Never,
            padded: None,
            machine_code: false,
        };
        program.launch(&launch).expect("nothing fails");
        assert!(program.measured.load(Ordering::Relaxed) < DAY);
    }
}
