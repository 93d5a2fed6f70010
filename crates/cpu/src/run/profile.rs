//! Profiling: an observer that measures what each step of the programs takes.
//!
//! The program is the one that any launch runs, fused loops included, so that what is measured is what is executed. A step is
//! measured without the steps of its regions. Looking at the clock takes some 30 ns a step, which is part of what is measured.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tilewright_ir::{Op, OpFamily};

use crate::compile::points::name;
use crate::program::{Action, Program, Step, Use};
use crate::run::machine::Machine;
use crate::run::observer::{End, Observe, Observer, Unit};
use crate::run::value::Form;
use crate::types::TileType;

/// What was measured of a step.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StepCost {
    /// How often it was executed.
    pub executions: u64,
    /// How long that took, summed over threads.
    pub nanoseconds: u64,
    /// Bytes that lanes read; masked lanes read none.
    pub bytes_read: u64,
    /// Bytes that lanes wrote.
    pub bytes_written: u64,
    /// Operations on floats: one for each element and function, two for each product and sum of a matrix product.
    pub operations: u64,
}

impl StepCost {
    /// Adds other costs.
    pub fn add(&mut self, other: &Self) {
        self.executions += other.executions;
        self.nanoseconds += other.nanoseconds;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.operations += other.operations;
    }
}

/// A step, and what was measured of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepProfile {
    /// Its op; of a fused loop the ops of its members: `load + mul + store`.
    pub name: String,
    /// The lines of the source that it is of, outermost calls: file and line. A fused loop may be of several.
    pub lines: Vec<(String, u32)>,
    /// What was measured.
    pub cost: StepCost,
}

/// What is measured of the launches of a program. Threads add to it when they are done.
#[derive(Debug)]
pub struct Profile {
    /// The number of the first step of each block.
    begins: Vec<usize>,
    costs: Mutex<Vec<StepCost>>,
}

impl Program {
    /// An empty profile.
    pub fn new_profile(&self) -> Profile {
        let mut count = 0;
        let begins = self.blocks.iter().map(|block| {
            count += block.steps.len();
            count - block.steps.len()
        });
        let begins = begins.collect();
        Profile { begins, costs: Mutex::new(vec![StepCost::default(); count]) }
    }

    /// The steps that were executed, in the order of the program, with what was measured of them.
    pub fn profiled(&self, profile: &Profile) -> Vec<StepProfile> {
        let costs = profile.costs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for (block, begin) in self.blocks.iter().zip(&profile.begins) {
            for (place, step) in block.steps.iter().enumerate() {
                let cost = costs[begin + place];
                if cost.executions > 0 {
                    let members = match &step.action {
                        Action::Fused(group) => &block.steps[place + 1..=place + group.members],
                        _ => std::slice::from_ref(step),
                    };
                    found.push(StepProfile { name: joined(members), lines: self.lines(members), cost });
                }
            }
        }
        found
    }

    fn lines(&self, steps: &[Step]) -> Vec<(String, u32)> {
        let mut lines = Vec::new();
        for step in steps {
            let Some(span) = self.sites[step.site as usize].last() else { continue };
            let file = self.sources.file(span.file);
            let line = (file.name.clone(), file.line_column(span.start).0);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }
}

/// The names of steps, each once.
fn joined(steps: &[Step]) -> String {
    let mut names: Vec<String> = Vec::new();
    for step in steps {
        let name = match &step.action {
            Action::Op(op) => name(op),
            Action::Dot { .. } => "dot".into(),
            Action::Reduce { .. } => "reduce".into(),
            Action::Scan { .. } => "scan".into(),
            Action::Map { .. } => "map".into(),
            Action::Assembly(_) => "inline_asm".into(),
            Action::Fused(_) => "fused loop".into(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" + ")
}

impl Observe for Profile {
    fn observer(&self) -> Box<dyn Observer + '_> {
        let count = self.costs.lock().unwrap_or_else(PoisonError::into_inner).len();
        let costs = vec![StepCost::default(); count];
        Box::new(Profiler { profile: self, costs, inner: 0, is_muted: false, running: Vec::new() })
    }
}

/// Measures the programs that one thread runs.
struct Profiler<'a> {
    profile: &'a Profile,
    costs: Vec<StepCost>,
    /// What steps in regions have taken since the step around them began.
    inner: u64,
    /// Whether steps run inside of another one, which combines elements.
    is_muted: bool,
    /// The steps that have begun, the innermost last: nothing for those that are not measured.
    running: Vec<Option<Running>>,
}

/// A step that has begun.
struct Running {
    work: StepCost,
    /// What the steps beside it have taken so far.
    outer: u64,
    began: Instant,
}

impl Drop for Profiler<'_> {
    fn drop(&mut self) {
        let mut sums = self.profile.costs.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, cost) in sums.iter_mut().zip(&self.costs) {
            sum.add(cost);
        }
    }
}

impl Observer for Profiler<'_> {
    fn before(&mut self, machine: &Machine<'_>, unit: &Unit<'_>) {
        if self.is_muted {
            self.running.push(None);
            return;
        }
        let mut work = StepCost::default();
        for member in unit.steps() {
            work.add(&work_of(machine, member));
        }
        self.is_muted = unit.combines();
        let outer = std::mem::take(&mut self.inner);
        self.running.push(Some(Running { work, outer, began: Instant::now() }));
    }

    fn after(&mut self, _machine: &Machine<'_>, unit: &Unit<'_>, end: End) {
        let Some(Some(Running { work, outer, began })) = self.running.pop() else { return };
        let nanoseconds = began.elapsed().as_nanos() as u64;
        self.is_muted = false;
        let own = nanoseconds.saturating_sub(self.inner);
        self.inner = outer + nanoseconds;
        let cost = &mut self.costs[self.profile.begins[unit.id as usize] + unit.place];
        cost.nanoseconds += own;
        if end == End::Done {
            cost.add(&StepCost { executions: 1, nanoseconds: 0, ..work });
        }
    }
}

/// What a step is about to move and to compute.
fn work_of(machine: &Machine<'_>, step: &Step) -> StepCost {
    let mut work = StepCost::default();
    let elements = |operand: Use| machine.type_of(operand).elements() as u64;
    let bytes = |operand: Option<&Use>, mask: Option<&Use>| {
        let Some(&operand) = operand else { return 0 };
        let ty = machine.type_of(operand);
        let size = ty.element.pointee().map_or(0, |dtype| dtype.bytes() as u64);
        size * mask.map_or(elements(operand), |&mask| active(machine.type_of(mask), machine.form(mask)))
    };
    match &step.action {
        Action::Dot { .. } => {
            let [a, _, sum] = [0, 1, 2].map(|place| step.operands.get(place).copied());
            if let (Some(a), Some(sum)) = (a, sum) {
                // Every element of the sum is as many products as A has columns; A may be transposed.
                let columns = machine.type_of(sum).shape().last().map_or(1, |&columns| u64::from(columns));
                let lines = (elements(sum) / columns).max(1);
                work.operations = 2 * elements(sum) * (elements(a) / lines);
            }
        }
        Action::Reduce { .. } | Action::Scan { .. } => {
            work.operations = step.operands.iter().map(|&operand| elements(operand)).sum();
        }
        Action::Op(op) => match op {
            Op::Load { .. } | Op::AtomicLoad { .. } => {
                work.bytes_read = bytes(step.operands.first(), step.operands.get(1));
            }
            Op::Store { .. } | Op::AtomicStore { .. } => {
                work.bytes_written = bytes(step.operands.first(), step.operands.get(2));
            }
            Op::AtomicRmw { .. } => {
                work.bytes_read = bytes(step.operands.first(), step.operands.get(2));
                work.bytes_written = work.bytes_read;
            }
            // tidy: wildcard because of all other ops only arithmetic counts
            op if op.family() == OpFamily::Pointwise => {
                let ty = machine.ty(step.result());
                let is_arithmetic = matches!(op, Op::Elementwise { .. });
                if is_arithmetic && ty.element.value().is_some_and(tilewright_ir::Dtype::is_float) {
                    work.operations = ty.elements() as u64;
                }
            }
            // tidy: wildcard because of all other ops only arithmetic counts
            _ => {}
        },
        Action::Map { .. } | Action::Assembly(_) | Action::Fused(_) => {}
    }
    work
}

/// The lanes that a mask has on.
fn active(ty: &TileType, form: &Form) -> u64 {
    let shape = ty.shape();
    let all = ty.elements() as u64;
    match form {
        Form::Uniform(bits) => all * (bits & 1),
        Form::Box(mask) => {
            let ranges = mask.low.iter().zip(&mask.high).zip(shape);
            ranges.map(|((&low, &high), &extent)| u64::from(high.min(extent).saturating_sub(low))).product()
        }
        Form::Dense(tile) => tile.bytes().iter().filter(|&&byte| byte != 0).count() as u64,
        Form::Affine(_) => all,
    }
}
