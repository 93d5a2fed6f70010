//! Tracing: a machine that records what its programs do.
//!
//! A machine without a tracer looks once a block whether it has one. One with a tracer runs the programs that are recorded
//! with values step by step, and the others as they are, fused loops included: of these it records what memory they access.
//! One that has a checker as well ([`crate::run::sanitize`]) has each step checked; such a program has no fused loops.

use std::time::Instant;

use tilewright_trace::{Batch, Recording, Role};

use crate::compile::points::{Point, TracePoints};
use crate::program::{Action, Block, BlockId, Step};
use crate::run::argument::Argument;
use crate::run::fault::Outcome;
use crate::run::machine::Machine;
use crate::run::ops;
use crate::run::sanitize::{self, Checked};
use crate::run::value::{Form, Value};
use crate::types::{SYMBOLIC_RANK, TileType};

/// What a launch is recorded to.
#[derive(Clone, Copy, Debug)]
pub struct Tracing<'a> {
    /// What is recorded of the program.
    pub points: &'a TracePoints,
    /// The recording.
    pub recording: &'a Recording<'a>,
}

/// Records the programs that one thread runs.
pub(crate) struct Tracer<'a> {
    points: &'a TracePoints,
    batch: Batch<'a>,
    /// Whether steps run inside of another one, which combines elements.
    is_muted: bool,
}

impl<'a> Tracer<'a> {
    pub(crate) fn new(tracing: Tracing<'a>) -> Self {
        Self { points: tracing.points, batch: tracing.recording.batch(), is_muted: false }
    }

    /// Records pointers and masks of an access, or with values all operands. False if there is no room.
    fn before(&mut self, machine: &Machine<'_>, number: u32) -> bool {
        let point = &self.points.points[number as usize];
        let has_values = self.batch.has_values();
        if !has_values && !point.is_access || !self.batch.event(number) {
            return false;
        }
        for &(role, operand) in &point.operands {
            let ty = machine.type_of(operand);
            match role {
                Role::Pointer => self.pointers(machine, ty, machine.value(operand)),
                Role::Mask => self.value(ty, machine.form(operand)),
                _ if has_values => self.value(ty, machine.form(operand)),
                _ => {}
            }
        }
        true
    }

    /// Records the results of a program with values.
    fn after(&mut self, machine: &Machine<'_>, point: &Point, nanoseconds: u64) {
        if self.batch.has_values() {
            for &result in &point.results {
                self.value(machine.ty(result), machine.form_of(result));
            }
            self.batch.took(nanoseconds);
        }
    }

    /// Records that there are no results.
    fn stopped(&mut self, point: &Point) {
        if self.batch.has_values() {
            point.results.iter().for_each(|_| self.batch.absent());
            self.batch.took(0);
        }
    }

    fn pointers(&mut self, machine: &Machine<'_>, ty: &TileType, value: &Value) {
        let parameter = value.provenance.index();
        let base = match parameter.map(|parameter| &machine.arguments[parameter]) {
            Some(Argument::Pointer { address, .. }) => *address as i64,
            _ => 0,
        };
        self.batch.relative_to(parameter);
        match &value.form {
            Form::Uniform(address) => {
                self.batch.uniform((*address as i64).wrapping_sub(base) as u64);
            }
            Form::Affine(affine) => {
                let rank = ty.shape().len().min(SYMBOLIC_RANK);
                self.batch.affine(affine.base.wrapping_sub(base), &affine.strides[..rank]);
            }
            Form::Dense(tile) => {
                let addresses: &[i64] = bytemuck::cast_slice(tile.bytes());
                self.batch.pointers(addresses.iter().map(|address| address.wrapping_sub(base)));
            }
            Form::Box(_) => unreachable!("pointers are no booleans"),
        }
    }

    fn value(&mut self, ty: &TileType, form: &Form) {
        let rank = ty.shape().len().min(SYMBOLIC_RANK);
        match form {
            Form::Uniform(bits) => self.batch.uniform(*bits),
            Form::Affine(affine) => self.batch.affine(affine.base, &affine.strides[..rank]),
            Form::Box(mask) => {
                let ranges = mask.low.iter().copied().zip(mask.high.iter().copied());
                self.batch.ranges(ranges.take(rank));
            }
            Form::Dense(tile) if ty.number.is_bool() => self.batch.bits(tile.bytes()),
            Form::Dense(tile) => self.batch.elements(tile.bytes()),
        }
    }
}

/// Calls a function with the machine and its tracer, which is there.
fn with_tracer<'a, T>(
    machine: &mut Machine<'a>,
    call: impl FnOnce(&mut Tracer<'a>, &Machine<'a>) -> T,
) -> Option<T> {
    let mut tracer = machine.tracer.take()?;
    let result = call(&mut tracer, machine);
    machine.tracer = Some(tracer);
    Some(result)
}

/// Runs the program at a point of the grid, and records it.
pub(crate) fn run_at(machine: &mut Machine<'_>) -> Outcome {
    let ([x, y, z], grid) = (machine.id.map(u64::from), machine.grid.map(u64::from));
    with_tracer(machine, |tracer, _| {
        tracer.is_muted = false;
        tracer.batch.begin((z * grid[1] + y) * grid[0] + x);
    });
    let began = Instant::now();
    let outcome = run(machine, machine.program.body);
    let nanoseconds = began.elapsed().as_nanos() as u64;
    with_tracer(machine, |tracer, _| tracer.batch.end(nanoseconds, outcome.is_err()));
    outcome
}

/// Executes the steps of a block, and records them.
#[cold]
pub(crate) fn run<'a>(machine: &mut Machine<'a>, id: BlockId) -> Outcome {
    let block: &'a Block = machine.block(id);
    machine.clear(&block.kills);
    let Some((points, is_muted)) = machine.tracer.as_ref().map(|tracer| (tracer.points, tracer.is_muted))
    else {
        return Ok(());
    };
    if !is_muted && let Some(number) = points.loops[id as usize] {
        with_tracer(machine, |tracer, machine| {
            if tracer.batch.has_values() && tracer.batch.event(number) {
                let counter = block.parameters.first().filter(|_| {
                    points.ops[number as usize].values.iter().any(|value| value.role == Role::Counter)
                });
                if let Some(&counter) = counter {
                    tracer.value(machine.ty(counter), machine.form_of(counter));
                }
                tracer.batch.took(0);
            }
        });
    }
    let numbers = if is_muted { &[][..] } else { &points.steps[id as usize][..] };
    let entered = machine.checker.is_some().then(|| sanitize::enter(machine, id));
    let mut next = 0;
    while let Some(step) = block.steps.get(next) {
        next += 1;
        let Action::Fused(group) = &step.action else {
            let checked = entered.as_ref().map(|entered| entered.at(next - 1));
            single(machine, step, numbers.get(next - 1).copied().flatten(), checked)?;
            continue;
        };
        let members = next..next + group.members;
        if run_fused(machine, block, members.clone(), numbers)? {
            next = members.end;
        }
    }
    Ok(())
}

/// Executes a fused group, unless the program is recorded with values, or the group does not allow it.
fn run_fused<'a>(
    machine: &mut Machine<'a>,
    block: &'a Block,
    members: std::ops::Range<usize>,
    numbers: &[Option<u32>],
) -> Outcome<bool> {
    let Action::Fused(group) = &block.steps[members.start - 1].action else { return Ok(false) };
    let mark = with_tracer(machine, |tracer, machine| {
        if tracer.batch.has_values() {
            return None;
        }
        let mark = tracer.batch.mark();
        for &number in numbers[members.clone()].iter().flatten() {
            tracer.before(machine, number);
        }
        Some(mark)
    });
    let Some(Some(mark)) = mark else { return Ok(false) };
    let is_done = ops::fused::execute(machine, group, &block.steps[members])?;
    if !is_done {
        with_tracer(machine, |tracer, _| tracer.batch.rewind(mark));
    }
    Ok(is_done)
}

/// Executes a step by itself, and records it.
fn single<'a>(
    machine: &mut Machine<'a>,
    step: &'a Step,
    number: Option<u32>,
    checked: Option<Checked>,
) -> Outcome {
    let combines = matches!(step.action, Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. });
    let is_recorded = with_tracer(machine, |tracer, machine| {
        let number = number
            .filter(|&number| tracer.points.ops[number as usize].kind != tilewright_trace::Kind::Loop)?;
        let is_recorded = tracer.before(machine, number);
        tracer.is_muted |= combines;
        is_recorded.then_some((number, tracer.batch.has_values()))
    });
    let recorded = is_recorded.flatten();
    let began = recorded.filter(|(_, has_values)| *has_values).map(|_| Instant::now());
    let outcome = match checked {
        Some(checked) => sanitize::execute(machine, step, checked),
        None => ops::execute(machine, step).map_err(|fault| fault.in_step(step)),
    };
    let nanoseconds = began.map_or(0, |began| began.elapsed().as_nanos() as u64);
    with_tracer(machine, |tracer, machine| {
        if combines && number.is_some() {
            tracer.is_muted = false;
        }
        let Some((number, _)) = recorded else { return };
        let point = &tracer.points.points[number as usize];
        if outcome.is_ok() { tracer.after(machine, point, nanoseconds) } else { tracer.stopped(point) }
    });
    outcome?;
    machine.clear(&step.kills);
    Ok(())
}
