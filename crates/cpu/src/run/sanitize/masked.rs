//! Finds uses of undefined values: masked-off lanes of loads without `other`.
//!
//! The check reports an undefined value that is stored, used by an atomic, or decides a branch. A
//! value that depends on undefined values has a mark with a flag per element. Elementwise and shape
//! ops propagate marks. Reductions, scans and dots propagate them along their axes. Other ops drop
//! marks, so that every finding is certain.

use std::rc::Rc;

use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic};
use tilewright_ir::{ElementwiseFn, Op, OpFamily};
use tilewright_sanitize::Check;

use crate::compile::sanitize::CheckPoint;
use crate::program::{Action, BlockId, Slot, Step, Use};
use crate::run::machine::Machine;
use crate::run::ops::materialize::materialize;
use crate::run::value::Form;
use crate::types::TileType;

use super::Checker;
use super::report::{Key, Report};

/// The undefined elements of a value.
#[derive(Debug)]
struct Mark {
    /// The check point of the load.
    origin: u32,
    /// True for each undefined element. A single flag applies to all elements.
    lanes: Vec<bool>,
}

impl Mark {
    fn at(&self, lane: usize) -> bool {
        self.lanes.get(lane).or(self.lanes.last()).copied().unwrap_or(false)
    }
}

#[derive(Default)]
pub(super) struct Masked {
    slots: Vec<Option<Rc<Mark>>>,
    /// True if any value has had a mark since the program began.
    is_any: bool,
}

impl Masked {
    pub fn clear(&mut self) {
        if self.is_any {
            self.slots.fill(None);
            self.is_any = false;
        }
    }

    fn of(&self, slot: Slot) -> Option<&Rc<Mark>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn set(&mut self, slot: Slot, mark: Option<Rc<Mark>>) {
        if self.slots.len() <= slot as usize {
            self.slots.resize(slot as usize + 1, None);
        }
        self.is_any |= mark.is_some();
        self.slots[slot as usize] = mark;
    }
}

pub(super) fn enter(checker: &mut Checker<'_>, machine: &Machine<'_>, block: BlockId) {
    if checker.masked.is_any {
        for &parameter in &machine.block(block).parameters {
            propagate(checker, parameter);
        }
    }
}

/// Sets the mark of a slot to the first mark of the slots that control flow copies to it.
fn propagate(checker: &mut Checker<'_>, to: Slot) {
    let plan = checker.shared.plan;
    let sources = plan.sources.get(to as usize).map_or(&[][..], |sources| sources);
    let mark = sources.iter().find_map(|&source| checker.masked.of(source).cloned());
    checker.masked.set(to, mark);
}

pub(super) fn before(checker: &Checker<'_>, machine: &Machine<'_>, step: &Step, point: CheckPoint) {
    if !checker.masked.is_any {
        return;
    }
    let Some(op) = step.op() else { return };
    let (value, predicate, does) = match op {
        Op::Store { .. } | Op::AtomicStore { .. } => (1, Some(2), "stores it"),
        Op::AtomicRmw { .. } => (1, Some(2), "combines it with memory"),
        Op::AtomicCas { .. } => (2, Some(3), "stores it"),
        Op::If {} => (0, None, "depends on it"),
        // tidy: wildcard because other ops only compute values
        _ => return,
    };
    let Some(&operand) = step.operands.get(value) else { return };
    let Some(mark) = checker.masked.of(operand.slot).cloned() else { return };
    let predicate = predicate.and_then(|place| step.operands.get(place)).copied();
    let ty = machine.type_of(operand);
    let is_on = lanes_of_mask(machine, predicate);
    let Some(lane) = (0..ty.elements()).find(|&lane| mark.at(lane) && is_on(lane)) else { return };
    let report = Report { machine, checker, number: point.number, lane: ty.lane(lane) };
    let key: Key = ("masked", point.number, mark.origin, false);
    report.add(Check::Init, key, || describe(&report, mark.origin, does));
}

fn describe(report: &Report<'_, '_>, origin: u32, does: &str) -> Diagnostic {
    let mut diagnostic = report.located(
        Code::MaskedValue,
        "the value of a lane that a mask leaves out is used",
        &format!("{does} here"),
    );
    if let Some(span) = report.place_of(origin) {
        diagnostic = diagnostic.secondary(span, "the load gives these lanes no value");
    }
    diagnostic
        .note("without `other`, a load returns undefined values where its mask is false")
        .hint("define the values of these lanes by `other`, such as 0.0 for a sum or -inf for a maximum: `tl.load(…, mask=mask, other=0.0)`, or exclude the lanes with `tl.where` or a mask")
}

/// Returns a function that returns whether a mask enables a lane.
fn lanes_of_mask(machine: &Machine<'_>, mask: Option<Use>) -> impl Fn(usize) -> bool + use<> {
    let mask = mask.map(|mask| materialize(machine.type_of(mask), machine.value(mask).clone()));
    move |lane| {
        mask.as_ref()
            .is_none_or(|mask| mask.bytes().get(lane).or(mask.bytes().last()).is_none_or(|&byte| byte != 0))
    }
}

pub(super) fn after(checker: &mut Checker<'_>, machine: &Machine<'_>, step: &Step, point: CheckPoint) {
    if let (Some(Op::Load { .. }), Some(&mask)) = (step.op(), step.operands.get(1))
        && point.leaves_lanes
    {
        let ty = machine.type_of(mask);
        let is_whole = matches!(machine.form(mask), Form::Uniform(bits) if *bits != 0);
        let mark = (!is_whole).then(|| {
            let is_on = lanes_of_mask(machine, Some(mask));
            let lanes = (0..ty.elements()).map(|lane| !is_on(lane)).collect();
            Rc::new(Mark { origin: point.number, lanes })
        });
        checker.masked.set(step.result(), mark);
        return;
    }
    if !checker.masked.is_any {
        return;
    }
    if matches!(step.op(), Some(Op::For { .. } | Op::While {} | Op::If {})) {
        for &result in &step.results {
            propagate(checker, result);
        }
        return;
    }
    let marks: SmallVec<[Option<Rc<Mark>>; 4]> =
        step.operands.iter().map(|operand| checker.masked.of(operand.slot).cloned()).collect();
    let origin = marks.iter().flatten().next().map(|mark| mark.origin);
    for &result in &step.results {
        let lanes = origin.and_then(|_| lanes_after(machine, step, result, &marks));
        let mark = match (origin, lanes) {
            (Some(origin), Some(lanes)) if lanes.contains(&true) => Some(Rc::new(Mark { origin, lanes })),
            _ => None,
        };
        checker.masked.set(result, mark);
    }
}

/// Returns a flag per element of a result: true if it depends on a marked element. Returns `None`
/// if the op drops marks.
fn lanes_after(
    machine: &Machine<'_>,
    step: &Step,
    result: Slot,
    marks: &[Option<Rc<Mark>>],
) -> Option<Vec<bool>> {
    let ty = machine.ty(result);
    let from = step.operands.first().map(|&operand| machine.type_of(operand));
    let at = |operand: usize, lane: usize| {
        marks.get(operand).is_some_and(|mark| mark.as_ref().is_some_and(|mark| mark.at(lane)))
    };
    let any = |lane: usize| (0..marks.len()).any(|operand| at(operand, lane));
    let all_lanes = 0..ty.elements();
    let op = match &step.action {
        Action::Op(op) => op,
        Action::Reduce { axis, .. } => return Some(along(from?, ty, *axis, &any)),
        Action::Scan { axis, .. } => {
            let (from, axis) = (from?, *axis);
            let lines = lines(from, axis, &any);
            return all_lanes.map(|lane| line_of(from.shape(), axis, lane).map(|line| lines[line])).collect();
        }
        Action::Map { pack, .. } => {
            let group = |lane: usize| (lane / pack * pack..).take(*pack);
            return Some(all_lanes.map(|lane| group(lane).any(any)).collect());
        }
        Action::Dot { transposed, .. } => return product(machine, step, ty, *transposed, &at),
        Action::Sort(_) | Action::Assembly(_) | Action::Fused(_) | Action::Nest(_) => return None,
    };
    match op {
        Op::Elementwise { function: ElementwiseFn::Select } => {
            let condition = lanes_of_mask(machine, step.operands.first().copied());
            Some(all_lanes.map(|lane| at(0, lane) || at(if condition(lane) { 1 } else { 2 }, lane)).collect())
        }
        Op::Broadcast { .. } => {
            let from = from?;
            Some(all_lanes.map(|lane| at(0, broadcast_from(from, ty, lane))).collect())
        }
        Op::Transpose { permutation } => {
            let from = from?;
            let source = |lane: usize| {
                let index = ty.lane(lane);
                let mut old = index.clone();
                for (place, &axis) in permutation.iter().enumerate() {
                    old[axis as usize] = index[place];
                }
                linear(from.shape(), &old)
            };
            Some(all_lanes.map(|lane| at(0, source(lane))).collect())
        }
        Op::Slice { starts, steps, .. } => {
            let from = from?;
            let source = |lane: usize| {
                let mut index = ty.lane(lane);
                for (axis, place) in index.iter_mut().enumerate() {
                    *place = (starts[axis] + steps[axis] * i64::from(*place)) as u32;
                }
                linear(from.shape(), &index)
            };
            Some(all_lanes.map(|lane| at(0, source(lane))).collect())
        }
        Op::ExpandDims { .. } | Op::Reshape { .. } | Op::Splat { .. } | Op::Hint { .. } => {
            Some(all_lanes.map(|lane| at(0, lane)).collect())
        }
        // tidy: wildcard because the family of any other op says whether it combines elements at
        // the same index
        op => (op.family() == OpFamily::Pointwise).then(|| all_lanes.map(any).collect()),
    }
}

/// Returns the index in the operand of a broadcast.
fn broadcast_from(from: &TileType, to: &TileType, lane: usize) -> usize {
    let mut index = to.lane(lane);
    for (place, &extent) in index.iter_mut().zip(from.shape()) {
        if extent == 1 {
            *place = 0;
        }
    }
    linear(from.shape(), &index)
}

fn linear(shape: &[u32], index: &[u32]) -> usize {
    shape.iter().zip(index).fold(0, |place, (&extent, &index)| place * extent as usize + index as usize)
}

/// Returns the index of the vector, along an axis, that contains an element.
fn line_of(shape: &[u32], axis: usize, lane: usize) -> Option<usize> {
    let inner: usize = shape.get(axis + 1..)?.iter().map(|&extent| extent as usize).product();
    let extent = *shape.get(axis)? as usize;
    Some(lane / (inner * extent) * inner + lane % inner)
}

/// Returns a flag per vector along an axis: true if any element is marked.
fn lines(from: &TileType, axis: usize, any: &dyn Fn(usize) -> bool) -> Vec<bool> {
    let extent = from.shape().get(axis).map_or(1, |&extent| extent.max(1) as usize);
    let mut lines = vec![false; from.elements() / extent];
    for lane in (0..from.elements()).filter(|&lane| any(lane)) {
        if let Some(line) = line_of(from.shape(), axis, lane) {
            lines[line] = true;
        }
    }
    lines
}

/// Returns the marks of a reduction, whose elements combine vectors along the axis.
fn along(from: &TileType, to: &TileType, axis: usize, any: &dyn Fn(usize) -> bool) -> Vec<bool> {
    let mut lines = lines(from, axis, any);
    lines.resize(to.elements(), false);
    lines
}

/// Returns the marks of a dot, whose elements depend on a row of A, a column of B and the
/// accumulator.
fn product(
    machine: &Machine<'_>,
    step: &Step,
    ty: &TileType,
    transposed: [bool; 2],
    at: &dyn Fn(usize, usize) -> bool,
) -> Option<Vec<bool>> {
    let [a, b, _] = step.operands[..] else { return None };
    let [a, b] = [machine.type_of(a), machine.type_of(b)];
    let rank = ty.shape().len();
    // Along the axis k, a vector is a row of A or a column of B.
    let rows = lines(a, rank - 1 - usize::from(transposed[0]), &|lane| at(0, lane));
    let columns = lines(b, rank - 2 + usize::from(transposed[1]), &|lane| at(1, lane));
    let (m, n) = (ty.shape()[rank - 2] as usize, ty.shape()[rank - 1] as usize);
    let marked = |lane: usize| {
        let (batch, row, column) = (lane / (m * n), lane / n % m, lane % n);
        rows[batch * m + row] || columns[batch * n + column] || at(2, lane)
    };
    Some((0..ty.elements()).map(marked).collect())
}
