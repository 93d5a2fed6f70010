//! Records the steps of programs.
//!
//! The recording selects the *programs with values*, which run step by step with the values of
//! their steps recorded. Other programs also run fused loops, and only their memory accesses are
//! recorded.

use std::time::Instant;

use tilewright_trace::{Batch, Kind, Recording, Role};

use crate::compile::trace_points::{TracePoint, TracePoints};
use crate::program::{Action, BlockId};
use crate::run::argument::Argument;
use crate::run::machine::Machine;
use crate::run::observer::{End, Observe, Observer, Unit};
use crate::run::value::{Form, Value};
use crate::types::{SYMBOLIC_RANK, TileType};

/// The trace points and the recording of a traced launch.
#[derive(Clone, Copy, Debug)]
pub struct Tracing<'a> {
    /// The trace points of the program.
    pub points: &'a TracePoints,
    /// The recording that receives the events.
    pub recording: &'a Recording<'a>,
}

impl Observe for Tracing<'_> {
    fn observer(&self) -> Box<dyn Observer + '_> {
        let Self { points, recording } = *self;
        let batch = recording.batch();
        Box::new(Tracer { points, batch, is_muted: false, began: Instant::now(), running: Vec::new() })
    }
}

struct Tracer<'a> {
    points: &'a TracePoints,
    batch: Batch<'a>,
    /// True inside of a recorded reduction, scan or map, whose inner steps are not recorded.
    is_muted: bool,
    /// The time at which the program began.
    began: Instant,
    /// The steps that have begun, the innermost last.
    running: Vec<Running>,
}

#[derive(Default)]
struct Running {
    /// The index of the step's trace point, if the step is recorded.
    recorded: Option<u32>,
    /// The time at which the step began, if its values are recorded.
    began: Option<Instant>,
    /// True if the steps in the step's blocks are not recorded.
    mutes: bool,
    /// For a fused group: the position of its first event in the batch.
    mark: Option<usize>,
}

impl Tracer<'_> {
    /// Records a step: the pointers and mask of an access, or all operands in a program with
    /// values. Returns false if the step is not recorded, or if the recording is full.
    fn event(&mut self, machine: &Machine<'_>, number: u32) -> bool {
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

    /// Records the results of a step, in a program with values.
    fn results(&mut self, machine: &Machine<'_>, point: &TracePoint, nanoseconds: u64) {
        if self.batch.has_values() {
            for &result in &point.results {
                self.value(machine.ty(result), machine.form_of(result));
            }
            self.batch.end_event(nanoseconds);
        }
    }

    /// Records that a step has failed, without results.
    fn stopped(&mut self, point: &TracePoint) {
        if self.batch.has_values() {
            point.results.iter().for_each(|_| self.batch.absent());
            self.batch.end_event(0);
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
            Form::Box(_) | Form::InPlace(_) => unreachable!("pointers are not booleans or floats"),
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
            Form::InPlace(_) => unreachable!("an observed load copies its elements"),
        }
    }
}

impl Observer for Tracer<'_> {
    fn begin(&mut self, machine: &Machine<'_>) {
        let ([x, y, z], grid) = (machine.id.map(u64::from), machine.grid.map(u64::from));
        self.is_muted = false;
        self.running.clear();
        self.batch.begin((z * grid[1] + y) * grid[0] + x);
        self.began = Instant::now();
    }

    fn end(&mut self, has_failed: bool) {
        self.batch.end(self.began.elapsed().as_nanos() as u64, has_failed);
    }

    fn enter(&mut self, machine: &Machine<'_>, block: BlockId) {
        let Some(number) = self.points.loops[block as usize].filter(|_| !self.is_muted) else { return };
        if !self.batch.has_values() || !self.batch.event(number) {
            return;
        }
        let has_counter =
            self.points.ops[number as usize].values.iter().any(|value| value.role == Role::Counter);
        let counter = machine.block(block).parameters.first().filter(|_| has_counter);
        if let Some(&counter) = counter {
            self.value(machine.ty(counter), machine.form_of(counter));
        }
        self.batch.end_event(0);
    }

    fn allows_fusion(&self) -> bool {
        !self.batch.has_values()
    }

    fn before(&mut self, machine: &Machine<'_>, unit: &Unit<'_>) {
        let numbers = if self.is_muted { &[][..] } else { &self.points.steps[unit.id as usize][..] };
        let mut running = Running::default();
        if matches!(unit.step().action, Action::Fused(_)) {
            running.mark = Some(self.batch.mark());
            for &number in numbers.get(unit.members.clone()).unwrap_or_default().iter().flatten() {
                self.event(machine, number);
            }
        } else if let Some(&Some(number)) = numbers.get(unit.index)
            && self.points.ops[number as usize].kind != Kind::Loop
        {
            running.recorded = self.event(machine, number).then_some(number);
            running.mutes = unit.combines();
            self.is_muted |= running.mutes;
            if running.recorded.is_some() && self.batch.has_values() {
                running.began = Some(Instant::now());
            }
        }
        self.running.push(running);
    }

    fn after(&mut self, machine: &Machine<'_>, _unit: &Unit<'_>, end: End) {
        let Some(Running { recorded, began, mutes, mark }) = self.running.pop() else { return };
        let nanoseconds = began.map_or(0, |began| began.elapsed().as_nanos() as u64);
        if mutes {
            self.is_muted = false;
        }
        if end == End::LeftToMembers
            && let Some(mark) = mark
        {
            self.batch.rewind(mark);
        }
        if let Some(number) = recorded {
            let points = self.points;
            let point = &points.points[number as usize];
            if end == End::Done { self.results(machine, point, nanoseconds) } else { self.stopped(point) }
        }
    }
}
