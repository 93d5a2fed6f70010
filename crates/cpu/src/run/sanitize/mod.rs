//! Checks the programs of the grid.
//!
//! The kernel is compiled without liveness analysis and fusion. Only one step sets each slot, and
//! slots keep their values, so a check can also read operands after the step. The programs run one
//! after another on one thread, so findings are deterministic. Programs that wait take turns.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tilewright_base::Diagnostic;
use tilewright_ir::Module;
use tilewright_sanitize::{Check, Checks, Clock, Releases, Shadow};

use crate::assembly::Assembler;
use crate::compile::sanitize::{CheckKind, CheckPoint, Plan};
use crate::program::{BlockId, Program};
use crate::run::launch::Launch;
use crate::run::machine::Machine;
use crate::run::observer::{End, Observe, Observer, Unit};
use crate::run::trace::Tracing;

mod access;
mod hints;
mod masked;
mod numbers;
mod offsets;
mod report;

use numbers::NonFinite;
pub use report::{Finding, Occurrence, OtherAccess};

/// A program that was compiled for sanitized launches.
#[derive(Debug)]
pub struct SanitizedProgram {
    program: Program,
    plan: Plan,
}

impl SanitizedProgram {
    /// Compiles the kernel of a module that was not optimized. Fails in the same cases as
    /// [`Program::with_assembler`].
    pub fn new(module: &Module, assembler: Option<&dyn Assembler>) -> Result<Self, Box<Diagnostic>> {
        let program = crate::compile::whole(module, assembler)?;
        let plan = Plan::new(&program);
        Ok(Self { program, plan })
    }

    /// Returns the program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs the program for every point of the grid, and returns the findings. A program continues
    /// after a finding. A fault that ends [`Program::launch`] also ends this launch.
    pub fn launch(&self, launch: &Launch<'_>, checks: Checks) -> (Result<(), Box<Diagnostic>>, Vec<Finding>) {
        self.launch_observed(launch, checks, None)
    }

    /// Runs and checks the program, and optionally records it.
    pub fn launch_observed(
        &self,
        launch: &Launch<'_>,
        checks: Checks,
        tracing: Option<Tracing<'_>>,
    ) -> (Result<(), Box<Diagnostic>>, Vec<Finding>) {
        let state = SanitizerState {
            shadow: Shadow::new(self.plan.unit),
            releases: Releases::default(),
            findings: Vec::new(),
            known: FxHashMap::default(),
        };
        let sanitizing = Sanitizing { checks, plan: &self.plan, state: Mutex::new(state) };
        let launch = Launch { threads: 1, ..*launch };
        let outcome = match &tracing {
            Some(tracing) => self.program.start(&launch, &[tracing, &sanitizing]),
            None => self.program.start(&launch, &[&sanitizing]),
        };
        let state = sanitizing.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (outcome, state.findings)
    }
}

struct Sanitizing<'a> {
    checks: Checks,
    plan: &'a Plan,
    state: Mutex<SanitizerState>,
}

struct SanitizerState {
    shadow: Shadow,
    releases: Releases,
    findings: Vec<Finding>,
    /// The index in `findings` of each distinct finding.
    known: FxHashMap<report::Key, usize>,
}

struct Checker<'a> {
    shared: &'a Sanitizing<'a>,
    /// The index of the running program.
    agent: u32,
    /// The current step of the program's vector clock. Each release begins a new step.
    step: u32,
    /// The number of barriers, acquires and releases so far.
    phase: u32,
    /// The steps of other programs that happen before the next access.
    clock: Clock,
    /// The steps that have produced NaN or infinity from finite numbers.
    made: Vec<NonFinite>,
    /// The marks of the values that depend on masked-off lanes.
    masked: masked::Masked,
}

impl Observe for Sanitizing<'_> {
    fn observer(&self) -> Box<dyn Observer + '_> {
        Box::new(Checker {
            shared: self,
            agent: 0,
            step: 1,
            phase: 0,
            clock: Clock::default(),
            made: Vec::new(),
            masked: masked::Masked::default(),
        })
    }
}

impl Observer for Checker<'_> {
    fn begin(&mut self, machine: &Machine<'_>) {
        let ([x, y, z], grid) = (machine.id, machine.grid);
        self.agent = z.wrapping_mul(grid[1]).wrapping_add(y).wrapping_mul(grid[0]).wrapping_add(x);
        self.step = 1;
        self.phase = 0;
        self.clock = Clock::default();
        self.made.clear();
        self.masked.clear();
    }

    fn enter(&mut self, machine: &Machine<'_>, block: BlockId) {
        if self.follows_masks(block) {
            masked::enter(self, machine, block);
        }
    }

    fn before(&mut self, machine: &Machine<'_>, unit: &Unit<'_>) {
        let (step, point) = (unit.step(), self.point(unit));
        match point.what {
            CheckKind::Access => access::plain(self, machine, step, point),
            CheckKind::Barrier => self.phase += 1,
            CheckKind::Hint if self.has(Check::Alignment) => hints::check(self, machine, step, point),
            CheckKind::Offset if self.has(Check::Overflow) => offsets::check(self, machine, step, point),
            CheckKind::Nothing
            | CheckKind::Atomic
            | CheckKind::Hint
            | CheckKind::Offset
            | CheckKind::Numbers
            | CheckKind::Combined => {}
        }
        if self.follows_masks(unit.id) {
            masked::before(self, machine, step, point);
        }
    }

    fn after(&mut self, machine: &Machine<'_>, unit: &Unit<'_>, end: End) {
        if end != End::Done {
            return;
        }
        let (step, point) = (unit.step(), self.point(unit));
        match point.what {
            CheckKind::Atomic => access::atomic(self, machine, step, point),
            CheckKind::Numbers | CheckKind::Combined if self.has(Check::Nan) => {
                numbers::note(self, machine, step, point);
            }
            CheckKind::Nothing
            | CheckKind::Access
            | CheckKind::Barrier
            | CheckKind::Hint
            | CheckKind::Offset
            | CheckKind::Numbers
            | CheckKind::Combined => {}
        }
        if self.follows_masks(unit.id) {
            masked::after(self, machine, step, point);
        }
    }
}

impl Checker<'_> {
    fn has(&self, check: Check) -> bool {
        self.shared.checks.has(check)
    }

    /// Returns the check point of a step. The steps inside of a reduction, scan or map have empty
    /// check points.
    fn point(&self, unit: &Unit<'_>) -> CheckPoint {
        self.shared.plan.points[unit.id as usize].get(unit.index).copied().unwrap_or_default()
    }

    /// Returns whether marks of masked-off lanes propagate through a block.
    fn follows_masks(&self, block: BlockId) -> bool {
        self.has(Check::Init) && !self.shared.plan.points[block as usize].is_empty()
    }
}
