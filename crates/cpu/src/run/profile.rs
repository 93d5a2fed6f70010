//! Measures each step of the programs of the grid.
//!
//! A nest in machine code and a fused loop are each one row of the profile. Programs and iterations
//! are measured one by one, so a call of machine code executes only one of them. The time of a step
//! excludes the steps of its regions, and includes about 30 ns for reading the clock.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir::{Op, OpFamily};

use crate::program::describe::step_names;
use crate::program::{Action, Block, Nest, Program, Slot, Step, Use};
use crate::run::machine::Machine;
use crate::run::observer::{End, Observe, Observer, Unit};
use crate::run::value::Form;
use crate::types::TileType;

/// The measured cost of a step.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StepCost {
    /// The number of executions.
    pub executions: u64,
    /// The time of the executions, summed over threads.
    pub nanoseconds: u64,
    /// The bytes that lanes read; lanes that are masked off read none.
    pub bytes_read: u64,
    /// The bytes that lanes wrote.
    pub bytes_written: u64,
    /// The number of operations. Each result of a float function counts 1, and so does each operand
    /// element of a reduction or a scan. Each multiply-add of a dot counts 2.
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

/// A step and its measured cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepProfile {
    /// The name of the op. For a nest or a fused loop, the names of its members' ops, such as
    /// `load + mul + store`.
    pub name: String,
    /// The file and the line of the step. For an inlined step, they are those of the outermost
    /// call. A nest or a fused loop may have several lines.
    pub lines: Vec<(String, u32)>,
    /// True if the row is a nest, which machine code executes.
    pub is_machine_code: bool,
    /// The measured cost.
    pub cost: StepCost,
}

/// The measured costs of a program's launches. Each thread adds its costs when it ends.
#[derive(Debug)]
pub struct Profile {
    /// The index in `costs` of the first step of each block.
    begins: Vec<usize>,
    /// The masks of each nest; the key is the index of the nest.
    masks: FxHashMap<usize, NestMasks>,
    costs: Mutex<Vec<StepCost>>,
}

impl Program {
    /// Creates an empty profile.
    pub fn new_profile(&self) -> Profile {
        let mut count = 0;
        let begins = self.blocks.iter().map(|block| {
            count += block.steps.len();
            count - block.steps.len()
        });
        let begins = begins.collect();
        Profile {
            begins,
            masks: NestMasks::of_program(self),
            costs: Mutex::new(vec![StepCost::default(); count]),
        }
    }

    /// Returns the executed steps, block by block, with their measured costs.
    pub fn profiled(&self, profile: &Profile) -> Vec<StepProfile> {
        let costs = profile.costs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for (block, begin) in self.blocks.iter().zip(&profile.begins) {
            for (place, step) in block.steps.iter().enumerate() {
                let cost = costs[begin + place];
                if cost.executions > 0 {
                    let members = match Self::members(step) {
                        0 => std::slice::from_ref(step),
                        count => &block.steps[place + 1..=place + count],
                    };
                    found.push(StepProfile {
                        name: step_names(members),
                        lines: self.lines_of(members),
                        is_machine_code: matches!(step.action, Action::Nest(_)),
                        cost,
                    });
                }
            }
        }
        found
    }
}

/// The masks of a nest. Machine code sets no slots, so the machine computes the masks before it
/// measures the nest.
#[derive(Default, Debug)]
struct NestMasks {
    steps: Vec<Step>,
    /// The masks that depend on loads or reductions. Their elements count as true.
    unknown: FxHashSet<Slot>,
}

impl NestMasks {
    fn of_program(program: &Program) -> FxHashMap<usize, Self> {
        let mut masks = FxHashMap::default();
        if !program.blocks.iter().any(Block::has_nests) {
            return masks;
        }
        let steps = program.blocks.iter().flat_map(|block| &block.steps);
        let definitions: FxHashMap<Slot, &Step> =
            steps.flat_map(|step| step.results.iter().map(move |&slot| (slot, step))).collect();
        for block in &program.blocks {
            for (index, step) in block.steps.iter().enumerate() {
                if let Action::Nest(nest) = &step.action {
                    let imports = nest.imports.iter().filter_map(|slot| definitions.get(slot).copied());
                    let members = &block.steps[index + 1..=index + nest.members];
                    let steps: Vec<&Step> = imports.chain(members).collect();
                    masks.insert(nest.index, Self::new(&steps));
                }
            }
        }
        masks
    }

    /// Finds the masks of the steps, which are in the order of execution.
    fn new(steps: &[&Step]) -> Self {
        let masks: Vec<Slot> = steps.iter().filter_map(|step| Some(mask_of(step)?.slot)).collect();
        let mut needed: FxHashSet<Slot> = masks.iter().copied().collect();
        for step in steps.iter().rev() {
            if step.results.iter().any(|slot| needed.contains(slot)) {
                needed.extend(step.operands.iter().map(|operand| operand.slot));
            }
        }
        let mut unknown: FxHashSet<Slot> =
            steps.iter().flat_map(|step| step.results.iter().copied()).collect();
        let mut computing = Vec::new();
        for &step in steps {
            let is_computable = matches!(step.action, Action::Op(_))
                && step.is_pure()
                && !step.is_load()
                && step.results.iter().all(|slot| needed.contains(slot))
                && !step.operands.iter().any(|operand| unknown.contains(&operand.slot));
            if is_computable {
                step.results.iter().for_each(|slot| _ = unknown.remove(slot));
                let mut step = step.clone();
                // The nest reads the operands again.
                step.operands.iter_mut().for_each(|operand| operand.last = false);
                step.kills.clear();
                computing.push(step);
            }
        }
        unknown.retain(|slot| masks.contains(slot));
        Self { steps: computing, unknown }
    }
}

fn mask_of(step: &Step) -> Option<Use> {
    match step.op() {
        Some(Op::Load { .. } | Op::AtomicLoad { .. }) => step.operands.get(1).copied(),
        Some(Op::Store { .. } | Op::AtomicStore { .. } | Op::AtomicRmw { .. }) => {
            step.operands.get(2).copied()
        }
        // tidy: wildcard because the profile counts the masks of no other op
        _ => None,
    }
}

impl Observe for Profile {
    fn before_nest(&self, nest: &Nest) -> &[Step] {
        self.masks.get(&nest.index).map_or(&[], |masks| &masks.steps)
    }

    fn observer(&self) -> Box<dyn Observer + '_> {
        let count = self.costs.lock().unwrap_or_else(PoisonError::into_inner).len();
        let costs = vec![StepCost::default(); count];
        Box::new(Profiler { profile: self, costs, inner: 0, is_muted: false, running: Vec::new() })
    }
}

/// Measures the programs of one thread.
struct Profiler<'a> {
    profile: &'a Profile,
    costs: Vec<StepCost>,
    /// The time of the inner steps that have ended since the innermost running step began.
    inner: u64,
    /// True inside of a reduction, scan or map, whose inner steps are not measured.
    is_muted: bool,
    /// The steps that have begun, innermost last, or `None` for unmeasured steps.
    running: Vec<Option<Running>>,
}

/// A step that has begun.
struct Running {
    work: StepCost,
    /// The value of [`Profiler::inner`] when the step began.
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
    fn allows_nests(&self) -> bool {
        true
    }

    fn before(&mut self, machine: &Machine<'_>, unit: &Unit<'_>) {
        if self.is_muted {
            self.running.push(None);
            return;
        }
        let masks = match &unit.step().action {
            Action::Nest(nest) => self.profile.masks.get(&nest.index),
            // tidy: wildcard because the masks of other steps are in slots
            _ => None,
        };
        let mut work = StepCost::default();
        for member in unit.steps() {
            let mask =
                mask_of(member).filter(|mask| masks.is_none_or(|masks| !masks.unknown.contains(&mask.slot)));
            work.add(&work_of(machine, member, mask));
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
        let cost = &mut self.costs[self.profile.begins[unit.id as usize] + unit.index];
        cost.nanoseconds += own;
        if end == End::Done {
            cost.add(&StepCost { executions: 1, nanoseconds: 0, ..work });
        }
    }
}

/// Returns the bytes and the operations of a step. `mask` is `None` if there is no mask or its
/// elements are unknown.
fn work_of(machine: &Machine<'_>, step: &Step, mask: Option<Use>) -> StepCost {
    let mut work = StepCost::default();
    let elements = |operand: Use| machine.type_of(operand).elements() as u64;
    let bytes = |operand: Option<&Use>| {
        let Some(&operand) = operand else { return 0 };
        let ty = machine.type_of(operand);
        let size = ty.element.pointee().map_or(0, |dtype| dtype.bytes() as u64);
        size * mask.map_or(elements(operand), |mask| active(machine.type_of(mask), machine.form(mask)))
    };
    match &step.action {
        Action::Dot { .. } => {
            let [a, _, sum] = [0, 1, 2].map(|place| step.operands.get(place).copied());
            if let (Some(a), Some(sum)) = (a, sum) {
                // One multiply-add per column of A. A may be transposed, so its columns are its
                // elements divided by the rows of the result.
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
                work.bytes_read = bytes(step.operands.first());
            }
            Op::Store { .. } | Op::AtomicStore { .. } => {
                work.bytes_written = bytes(step.operands.first());
            }
            Op::AtomicRmw { .. } => {
                work.bytes_read = bytes(step.operands.first());
                work.bytes_written = work.bytes_read;
            }
            // tidy: wildcard because only arithmetic counts among the other ops
            op if op.family() == OpFamily::Pointwise => {
                let ty = machine.ty(step.result());
                let is_arithmetic = matches!(op, Op::Elementwise { .. });
                if is_arithmetic && ty.element.value().is_some_and(tilewright_ir::Dtype::is_float) {
                    work.operations = ty.elements() as u64;
                }
            }
            // tidy: wildcard because only arithmetic counts among the other ops
            _ => {}
        },
        Action::Map { .. } | Action::Sort(_) | Action::Assembly(_) | Action::Fused(_) | Action::Nest(_) => {}
    }
    work
}

/// Returns how many lanes of a mask are true.
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
        Form::Affine(_) | Form::InPlace(_) => all,
    }
}
