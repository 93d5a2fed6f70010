//! Sanitizing: an observer that checks what the programs do.
//!
//! Programs are compiled without liveness and fusion: each step of the source is one step, each slot is set by one step and
//! keeps its value, so that a check finds operands also after the step. They run one after the other on one thread, in the
//! order of the grid (those that wait for each other in turns), so that findings do not depend on luck.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tilewright_base::Diagnostic;
use tilewright_ir::Module;
use tilewright_sanitize::{Check, Checks, Clock, Releases, Shadow};

use crate::assembly::Assembler;
use crate::compile::sanitize::{Plan, Point, What};
use crate::program::{BlockId, Program};
use crate::run::launch::Launch;
use crate::run::machine::Machine;
use crate::run::observer::{End, Observe, Observer, Unit};
use crate::run::trace::Tracing;

mod access;
mod masked;
mod numbers;
mod offsets;
mod promises;
mod report;

use numbers::Made;
pub use report::{Finding, Occurrence, Other};

/// A program that is checked while it runs.
#[derive(Debug)]
pub struct SanitizedProgram {
    program: Program,
    plan: Plan,
}

impl SanitizedProgram {
    /// Compiles the kernel of a module, before optimisation: see [`Program::with_assembler`].
    pub fn new(module: &Module, assembler: Option<&dyn Assembler>) -> Result<Self, Box<Diagnostic>> {
        let program = crate::compile::whole(module, assembler)?;
        let plan = Plan::new(&program);
        Ok(Self { program, plan })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs the program for every point of the grid, and gives what the checks have found. After a finding the program goes on;
    /// what [`Program::launch`] fails with ends the launch here too.
    pub fn launch(&self, launch: &Launch<'_>, checks: Checks) -> (Result<(), Box<Diagnostic>>, Vec<Finding>) {
        self.launch_observed(launch, checks, None)
    }

    /// The same, recorded if somebody wants that.
    pub fn launch_observed(
        &self,
        launch: &Launch<'_>,
        checks: Checks,
        tracing: Option<Tracing<'_>>,
    ) -> (Result<(), Box<Diagnostic>>, Vec<Finding>) {
        let state = State {
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

/// What the programs of a launch share that is sanitized.
struct Sanitizing<'a> {
    checks: Checks,
    plan: &'a Plan,
    state: Mutex<State>,
}

struct State {
    shadow: Shadow,
    releases: Releases,
    findings: Vec<Finding>,
    /// The place in `findings` of each that was found before.
    known: FxHashMap<report::Key, usize>,
}

/// Checks the programs that one thread runs.
struct Checker<'a> {
    shared: &'a Sanitizing<'a>,
    /// The number of the program that runs.
    agent: u32,
    /// Its step between releases.
    step: u32,
    /// How many barriers it has passed.
    phase: u32,
    /// What it knows of the other programs.
    clock: Clock,
    /// Where it has made NaN or infinity.
    made: Vec<Made>,
    /// Which values depend on lanes without any.
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
            What::Access => access::plain(self, machine, step, point),
            What::Barrier => self.phase += 1,
            What::Promise if self.has(Check::Alignment) => promises::check(self, machine, step, point),
            What::Offset if self.has(Check::Overflow) => offsets::check(self, machine, step, point),
            What::Nothing | What::Atomic | What::Promise | What::Offset | What::Numbers | What::Combined => {}
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
            What::Atomic => access::atomic(self, machine, step, point),
            What::Numbers | What::Combined if self.has(Check::Nan) => {
                numbers::note(self, machine, step, point);
            }
            What::Nothing
            | What::Access
            | What::Barrier
            | What::Promise
            | What::Offset
            | What::Numbers
            | What::Combined => {}
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

    /// How a step is checked. Steps that combine elements run inside of their op, which is checked as a whole.
    fn point(&self, unit: &Unit<'_>) -> Point {
        self.shared.plan.points[unit.id as usize].get(unit.place).copied().unwrap_or_default()
    }

    /// Whether marks of lanes without a value are followed through a block.
    fn follows_masks(&self, block: BlockId) -> bool {
        self.has(Check::Init) && !self.shared.plan.points[block as usize].is_empty()
    }
}
