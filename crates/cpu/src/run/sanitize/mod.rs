//! Sanitizing: a machine that checks what its programs do.
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
use crate::program::{BlockId, Program, Step};
use crate::run::fault::Outcome;
use crate::run::launch::Launch;
use crate::run::machine::{Machine, Observers};
use crate::run::ops;
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
        let observers = Observers { sanitizing: Some(&sanitizing), tracing, ..Observers::default() };
        let outcome = self.program.start(&Launch { threads: 1, ..*launch }, observers);
        let state = sanitizing.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (outcome, state.findings)
    }
}

/// What the programs of a launch share that is sanitized.
pub(crate) struct Sanitizing<'a> {
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
pub(crate) struct Checker<'a> {
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

impl<'a> Checker<'a> {
    pub(crate) fn new(shared: &'a Sanitizing<'a>) -> Self {
        Self {
            shared,
            agent: 0,
            step: 1,
            phase: 0,
            clock: Clock::default(),
            made: Vec::new(),
            masked: masked::Masked::default(),
        }
    }

    fn has(&self, check: Check) -> bool {
        self.shared.checks.has(check)
    }
}

/// Calls a function with the checker of a machine.
fn with_checker<'a, T>(
    machine: &mut Machine<'a>,
    call: impl FnOnce(&mut Checker<'a>, &Machine<'a>) -> T,
) -> T {
    let mut checker = machine.checker.take().expect("a machine that is sanitized has a checker");
    let result = call(&mut checker, machine);
    machine.checker = Some(checker);
    result
}

/// The program at a point of the grid begins.
pub(crate) fn begin(machine: &mut Machine<'_>) {
    let ([x, y, z], grid) = (machine.id, machine.grid);
    with_checker(machine, |checker, _| {
        checker.agent = z.wrapping_mul(grid[1]).wrapping_add(y).wrapping_mul(grid[0]).wrapping_add(x);
        checker.step = 1;
        checker.phase = 0;
        checker.clock = Clock::default();
        checker.made.clear();
        checker.masked.clear();
    });
}

/// Executes the steps of a block, and checks them.
#[cold]
pub(crate) fn run(machine: &mut Machine<'_>, id: BlockId) -> Outcome {
    let entered = enter(machine, id);
    for (place, step) in machine.block(id).steps.iter().enumerate() {
        execute(machine, step, entered.at(place))?;
    }
    Ok(())
}

/// A block that is executed.
#[derive(Clone, Copy)]
pub(crate) struct Entered<'a> {
    points: &'a [Point],
    follows_masks: bool,
}

impl Entered<'_> {
    /// How the step at a place of it is checked.
    pub fn at(&self, place: usize) -> Checked {
        // What combines elements runs inside of its op, which is checked as a whole.
        let point = self.points.get(place).copied().unwrap_or_default();
        Checked { point, follows_masks: self.follows_masks }
    }
}

/// How a step is checked.
#[derive(Clone, Copy)]
pub(crate) struct Checked {
    point: Point,
    follows_masks: bool,
}

/// A block begins.
pub(crate) fn enter<'a>(machine: &mut Machine<'a>, id: BlockId) -> Entered<'a> {
    with_checker(machine, |checker, machine| {
        let points = &checker.shared.plan.points[id as usize][..];
        let follows_masks = checker.has(Check::Init) && !points.is_empty();
        if follows_masks {
            masked::enter(checker, machine, id);
        }
        Entered { points, follows_masks }
    })
}

/// Executes a step, and checks it.
pub(crate) fn execute<'a>(machine: &mut Machine<'a>, step: &'a Step, checked: Checked) -> Outcome {
    let Checked { point, follows_masks } = checked;
    if point.what != What::Nothing {
        with_checker(machine, |checker, machine| before(checker, machine, step, point));
    }
    if follows_masks {
        with_checker(machine, |checker, machine| masked::before(checker, machine, step, point));
    }
    ops::execute(machine, step).map_err(|fault| fault.in_step(step))?;
    if point.what != What::Nothing {
        with_checker(machine, |checker, machine| after(checker, machine, step, point));
    }
    if follows_masks {
        with_checker(machine, |checker, machine| masked::after(checker, machine, step, point));
    }
    Ok(())
}

fn before(checker: &mut Checker<'_>, machine: &Machine<'_>, step: &Step, point: Point) {
    match point.what {
        What::Access => access::plain(checker, machine, step, point),
        What::Barrier => checker.phase += 1,
        What::Promise if checker.has(Check::Alignment) => promises::check(checker, machine, step, point),
        What::Offset if checker.has(Check::Overflow) => offsets::check(checker, machine, step, point),
        What::Nothing | What::Atomic | What::Promise | What::Offset | What::Numbers | What::Combined => {}
    }
}

fn after(checker: &mut Checker<'_>, machine: &Machine<'_>, step: &Step, point: Point) {
    match point.what {
        What::Atomic => access::atomic(checker, machine, step, point),
        What::Numbers | What::Combined if checker.has(Check::Nan) => {
            numbers::note(checker, machine, step, point);
        }
        What::Nothing
        | What::Access
        | What::Barrier
        | What::Promise
        | What::Offset
        | What::Numbers
        | What::Combined => {}
    }
}
