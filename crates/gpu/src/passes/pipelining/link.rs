//! Loops in a row that copy boxes of the same tensors to slots of the same shape have their rings in common: what a loop would copy for
//! iterations that do not come is what the first iterations of the next loop read. So these do not wait for copies that begin when the
//! loop before has ended.
//!
//! ```text
//! for %i = %a to %b {                                      for %i = %a to %b {
//!   … acquire %r ; fill from %i + 2 if that comes            … acquire %r ; fill from %i + 2, of this loop or of the next one
//! } ; take, release twice ; dealloc %r               =>    }
//! %s = alloc ; fill %s, %s                                 for %j = %c to %d {
//! for %j = %c to %d { … take %s … }                          … take %r …
//! }                                                        }
//! ```
//! The coordinates of boxes have to grow alike with the counters of both loops. Then those of an iteration that does not come, moved by
//! the same distance each, are those of the iteration of the next loop that comes as late ([`Link::coordinates`]).

use std::collections::BTreeSet;

use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{Definition, Effect, ElementwiseFn, Inst, OpFamily, Operation, Value};

use super::dots::LateDots;
use super::emit::Emit;
use super::memory_order::{Order, orders};
use super::plan::{LoopPlan, RingLoad};
use crate::passes::global_memory::GlobalAccesses;
use tilewright_gpu_ir::{Function, GpuOp, Module, Op, Type};

/// What the next loop reads.
pub struct Link {
    /// What its counter begins with, and where it ends.
    lower: Value,
    upper: Value,
    /// Of each load, where its boxes begin, in this loop and in the next one.
    coordinates: Vec<[Coordinates; 2]>,
    /// Scalars that the next loop needs for that, from between the loops.
    between: Vec<Inst>,
    /// How many iterations the next loop has at least.
    least: i128,
    /// The next loop, if it runs beside the end of this one.
    pub joined: Option<Inst>,
}

/// Where the box of a load begins, in each iteration.
struct Coordinates {
    counter: Value,
    /// What they are computed by, in the body of the loop.
    insts: Vec<Inst>,
    values: SmallVec<[Value; 5]>,
}

/// What is added to coordinates of iterations that do not come.
#[derive(Clone)]
pub(super) struct Continued {
    /// Of each load, for each coordinate that is moved.
    pub shifts: Vec<SmallVec<[Option<Value>; 5]>>,
    /// From this counter on an iteration of the next loop does not come either, where that is not known.
    pub end: Option<Value>,
}

/// Finds out which loops follow another one.
pub(super) fn link(module: &Module, global: &GlobalAccesses<'_>, plans: &mut [LoopPlan]) {
    for number in 1..plans.len() {
        let (before, behind) = plans.split_at_mut(number);
        let next = &mut behind[0];
        let last = before.iter_mut().rev().find(|plan| plan.block == next.block);
        // What a short loop leaves to the one behind it would be of the loop before.
        if let Some(plan) = last.filter(|plan| !plan.follows)
            && let Some(link) = (Pair { module, function: module.kernel(), global, plan, next }).link()
        {
            plan.next = Some(link);
            next.follows = true;
        }
    }
}

/// Two loops of one block.
struct Pair<'a> {
    module: &'a Module,
    function: &'a Function,
    global: &'a GlobalAccesses<'a>,
    plan: &'a LoopPlan,
    next: &'a LoopPlan,
}

impl Pair<'_> {
    fn link(&self) -> Option<Link> {
        let (function, plan, next) = (self.function, self.plan, self.next);
        let [lower, upper] = [0, 1].map(|place| function.insts[next.inst].operands[place]);
        let counter = |plan: &LoopPlan| function.ty(function.insts[plan.inst].operands[0]).clone();
        let bits = counter(plan).as_registers()?.dtype()?.bits();
        if !self.are_alike() || bits > 32 || counter(plan) != counter(next) || !self.may_copy_early() {
            return None;
        }
        let mut coordinates = Vec::new();
        for (load, other) in plan.loads.iter().zip(&next.loads) {
            let pair = [self.coordinates(plan, load)?, self.coordinates(next, other)?];
            let [own, others] = &pair;
            let grow_alike = own.values.iter().zip(&others.values).all(|(value, other)| {
                let own = growth(function, *value, own);
                own.is_some() && own == growth(function, *other, others)
            });
            if !grow_alike {
                return None;
            }
            coordinates.push(pair);
        }
        let mut wanted: Vec<Value> = vec![lower, upper];
        for [_, next] in &coordinates {
            wanted.extend(&next.values);
            wanted.extend(next.insts.iter().flat_map(|inst| &function.insts[*inst].operands));
        }
        let between = self.moved_up(wanted)?;
        let (least, joined) = (self.least_iterations(), self.may_run_beside().then_some(next.inst));
        Some(Link { lower, upper, coordinates, between, least, joined })
    }

    /// Whether the loops have the same slots, filled and taken in the same order.
    fn are_alike(&self) -> bool {
        let (plan, next) = (self.plan, self.next);
        let is_plain = |plan: &LoopPlan| plan.in_flight.is_none() && plan.step.is_some_and(|step| step > 0);
        let place = |plan: &LoopPlan| plan.late.as_ref().map(|late| late.loads.clone());
        let is_simple = |plan: &LoopPlan| {
            plan.groups.iter().all(|group| group.levels.len() == 1 && group.levels[0].parameters.is_empty())
        };
        let order = |plan: &LoopPlan| -> Vec<(Vec<usize>, u32)> {
            plan.groups.iter().map(|group| (group.loads.clone(), group.lead)).collect()
        };
        let is_same = |(one, other): (&RingLoad, &RingLoad)| {
            let maps = one.boxed.as_ref().zip(other.boxed.as_ref());
            maps.is_some_and(|(one, other)| one.is_of_map_of(other, &self.module.header, self.function))
                && (one.element, &one.shape, &one.memory) == (other.element, &other.shape, &other.memory)
        };
        [plan, next].iter().all(|plan| is_plain(plan) && is_simple(plan))
            && (plan.step, plan.stages, place(plan), order(plan))
                == (next.step, next.stages, place(next), order(next))
            && plan.loads.len() == next.loads.len()
            && plan.loads.iter().zip(&next.loads).all(is_same)
    }

    /// Whether the late part of the last iteration makes what the late part of the next loop begins with, and nothing else needs that.
    fn may_run_beside(&self) -> bool {
        let function = self.function;
        let [Some(overlap), Some(others)] = [self.plan, self.next].map(|plan| plan.late.as_ref()) else {
            return false;
        };
        let is_late = |plan: &LoopPlan, late: &LateDots, place: usize| {
            let value = function.yielded(function.insts[plan.inst].regions[0])[place];
            function.defining_inst(value).is_some_and(|inst| late.late.contains(&inst))
        };
        let results = &function.insts[self.plan.inst].results;
        let mut may = overlap.neutral.is_some();
        function.walk(function.entry, &mut |inst| {
            for (number, operand) in function.insts[inst].operands.iter().enumerate() {
                let Some(place) = results.iter().position(|result| result == operand) else { continue };
                let is_sum = inst == self.next.inst && number >= 3 && is_late(self.next, others, number - 3);
                may &= is_sum || !is_late(self.plan, overlap, place);
            }
        });
        let is_pure = |inst: &Inst| function.insts[*inst].op.info().effect == Effect::Pure;
        may && self.between().iter().all(is_pure)
    }

    fn between(&self) -> &[Inst] {
        let insts = &self.function.blocks[self.plan.block].insts;
        let place = |inst: Inst| insts.iter().position(|other| *other == inst).expect("it stands there");
        &insts[place(self.plan.inst) + 1..place(self.next.inst)]
    }

    /// Whether nothing before the next loop may write what it loads.
    fn may_copy_early(&self) -> bool {
        let mut may = true;
        let mut check = |inst: Inst| {
            let op = &self.function.insts[inst].op;
            may &= match orders(op) {
                Order::None => true,
                Order::Own => self.next.loads.iter().all(|load| !self.global.may_alias(load.inst, inst)),
                Order::All => false,
            };
        };
        self.function.walk(self.function.insts[self.plan.inst].regions[0], &mut check);
        for inst in self.between() {
            check(*inst);
            self.function.insts[*inst]
                .regions
                .iter()
                .for_each(|region| self.function.walk(*region, &mut check));
        }
        let is_loop = |inst: &Inst| self.function.insts[*inst].op.info().family == OpFamily::Loop;
        may && !self.between().iter().any(is_loop)
    }

    /// Where the boxes of a load begin, if they depend on nothing that the loop carries.
    fn coordinates(&self, plan: &LoopPlan, load: &RingLoad) -> Option<Coordinates> {
        let function = self.function;
        let body = function.insts[plan.inst].regions[0];
        let boxed = load.boxed.as_ref().filter(|boxed| boxed.gathered_row_indices(function).is_none())?;
        let values = boxed.coordinates(function, boxed.mark);
        let mut places = BTreeSet::new();
        let mut work = values.to_vec();
        while let Some(value) = work.pop() {
            match function.values[value].definition {
                Definition::Parameter(block, number) if block == body && number > 0 => return None,
                Definition::Parameter(..) => {}
                Definition::Result(inst, _) => {
                    let place = function.blocks[body].insts.iter().position(|other| *other == inst);
                    if place.is_some_and(|place| places.insert(place)) {
                        work.extend(&function.insts[inst].operands);
                    }
                }
            }
        }
        let insts = places.into_iter().map(|place| function.blocks[body].insts[place]).collect();
        Some(Coordinates { counter: function.blocks[body].parameters[0], insts, values })
    }

    /// The scalars between the loops that values need, if that is all that they need of what comes behind the first loop.
    fn moved_up(&self, mut wanted: Vec<Value>) -> Option<Vec<Inst>> {
        let function = self.function;
        let between = self.between();
        let mut places = BTreeSet::new();
        while let Some(value) = wanted.pop() {
            let Some(inst) = function.defining_inst(value) else { continue };
            if inst == self.plan.inst {
                return None;
            }
            let Some(place) = between.iter().position(|other| *other == inst) else { continue };
            let data = &function.insts[inst];
            let is_scalar = data.results.iter().all(|result| function.ty(*result).layout().is_none());
            let is_pure = data.op.info().effect == Effect::Pure && data.regions.is_empty();
            if !is_pure
                || !is_scalar
                || data.operands.iter().any(|value| function.ty(*value).layout().is_some())
            {
                return None;
            }
            if places.insert(place) {
                wanted.extend(&data.operands);
            }
        }
        Some(places.into_iter().map(|place| between[place]).collect())
    }

    /// How many iterations the next loop has at least: of one that ends a constant behind its beginning that is known.
    fn least_iterations(&self) -> i128 {
        let function = self.function;
        let [lower, upper] = [0, 1].map(|place| function.insts[self.next.inst].operands[place]);
        let Some(step) = self.next.step else { return 0 };
        let length = match (literal(function, lower), literal(function, upper)) {
            (Some(lower), Some(upper)) => Some(upper - lower),
            _ => function.defining_inst(upper).and_then(|inst| {
                let data = &function.insts[inst];
                let is_sum =
                    matches!(data.op, Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Add, .. }));
                let other = data.operands.iter().position(|value| *value == lower).filter(|_| is_sum)?;
                literal(function, data.operands[1 - other])
            }),
        };
        length.map_or(0, |length| (length + step - 1) / step)
    }
}

pub(super) fn literal(function: &Function, value: Value) -> Option<i128> {
    match function.defining_op(value).and_then(Op::as_tile) {
        Some(ir::Op::Constant { value }) => value.as_int(),
        // tidy: wildcard because nothing else is a number of the text
        _ => None,
    }
}

/// By how much a value grows when the counter grows by one; none where that is not one number.
fn growth(function: &Function, value: Value, of: &Coordinates) -> Option<i128> {
    if value == of.counter {
        return Some(1);
    }
    let Some(inst) = function.defining_inst(value).filter(|inst| of.insts.contains(inst)) else {
        return Some(0);
    };
    let data = &function.insts[inst];
    let growths: Vec<i128> =
        data.operands.iter().map(|operand| growth(function, *operand, of)).collect::<Option<_>>()?;
    match (&data.op, &growths[..]) {
        (_, growths) if growths.iter().all(|growth| *growth == 0) => Some(0),
        (Op::Gpu(GpuOp::Elementwise { function, .. }), [one, other]) if *function == ElementwiseFn::Add => {
            one.checked_add(*other)
        }
        (Op::Gpu(GpuOp::Elementwise { function, .. }), [one, other]) if *function == ElementwiseFn::Sub => {
            one.checked_sub(*other)
        }
        (Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Mul, .. }), [one, 0]) => {
            one.checked_mul(literal(function, data.operands[1])?)
        }
        (Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Mul, .. }), [0, other]) => {
            other.checked_mul(literal(function, data.operands[0])?)
        }
        // tidy: wildcard because of anything else it is not known
        _ => None,
    }
}

impl Emit<'_> {
    /// The iterations of a loop that takes slots whether one comes or not: what it leaves begins behind so many.
    pub(super) fn always_taken(&self) -> u32 {
        u32::from(self.plan.late.is_some())
    }

    /// How the boxes of the next loop are had from those of iterations that do not come.
    pub(super) fn continued(&mut self, link: &Link) -> Continued {
        let [lower, upper] = [0, 1].map(|place| self.function.insts[self.plan.inst].operands[place]);
        let insts = &mut self.function.blocks[self.plan.block].insts;
        insts.retain(|inst| !link.between.contains(inst));
        self.out.extend(&link.between);
        let length = self.length(lower, upper);
        let counter = self.function.ty(lower).clone();
        // The next loop's counter where that of this loop is at its beginning.
        let first = self.elementwise(ElementwiseFn::Sub, &[link.lower, length], counter.clone());
        let mut shifts = Vec::new();
        for [own, next] in &link.coordinates {
            let mut moved = SmallVec::new();
            let [own_values, next_values] =
                [(own, lower), (next, first)].map(|(of, counter)| self.coordinates_at(of, counter));
            for (own, next) in own_values.into_iter().zip(next_values) {
                let [one, other] = [own, next].map(|value| literal(self.function, value));
                let is_same = own == next || (one.is_some() && one == other);
                let ty = self.function.ty(own).clone();
                moved.push((!is_same).then(|| self.elementwise(ElementwiseFn::Sub, &[next, own], ty)));
            }
            shifts.push(moved);
        }
        let wanted = i128::from(self.distance - self.always_taken());
        let end = (link.least < wanted).then(|| {
            let last = self.elementwise(ElementwiseFn::Max, &[link.lower, link.upper], counter.clone());
            let far = self.elementwise(ElementwiseFn::Sub, &[last, first], counter.clone());
            self.elementwise(ElementwiseFn::Add, &[lower, far], counter)
        });
        Continued { shifts, end }
    }

    /// How far the counter goes.
    fn length(&mut self, lower: Value, upper: Value) -> Value {
        let step = self.plan.step.expect("the step of linked loops is a constant");
        let wide = Type::scalar(ir::Type::scalar(ir::Dtype::I64));
        let cast = |element: ir::Dtype| ir::Op::Cast {
            element: ir::Element::Value(element),
            rounding: ir::Rounding::NearestEven,
        };
        let [lower64, upper64] =
            [lower, upper].map(|value| self.value(cast(ir::Dtype::I64), &[value], wide.clone()));
        let length = self.elementwise(ElementwiseFn::Sub, &[upper64, lower64], wide.clone());
        let least = self.constant(ir::Dtype::I64, step * i128::from(self.always_taken()));
        let length = self.elementwise(ElementwiseFn::Max, &[length, least], wide.clone());
        let more = self.constant(ir::Dtype::I64, step - 1);
        let length = self.elementwise(ElementwiseFn::Add, &[length, more], wide.clone());
        let step_value = self.constant(ir::Dtype::I64, step);
        let over = self.elementwise(ElementwiseFn::IntRem, &[length, step_value], wide.clone());
        let length = self.elementwise(ElementwiseFn::Sub, &[length, over], wide);
        let counter = self.function.ty(lower).clone();
        let dtype = counter.as_registers().and_then(ir::Type::dtype).expect("a counter is an integer");
        self.value(cast(dtype), &[length], counter)
    }

    fn coordinates_at(&mut self, of: &Coordinates, counter: Value) -> SmallVec<[Value; 5]> {
        let mut copies = rustc_hash::FxHashMap::default();
        copies.insert(of.counter, counter);
        for inst in &of.insts {
            self.copy(*inst, &mut copies);
        }
        of.values.iter().map(|value| copies.get(value).copied().unwrap_or(*value)).collect()
    }

    /// The coordinates of an iteration of this loop if that comes, else of one of the next loop.
    pub(super) fn of_this_or_next(
        &mut self,
        coordinates: &mut [Value],
        load: usize,
        continued: &Continued,
        (counter, comes): (Value, Value),
    ) {
        for (coordinate, shift) in coordinates.iter_mut().zip(&continued.shifts[load]) {
            let Some(shift) = *shift else { continue };
            let ty = self.function.ty(*coordinate).clone();
            let dtype = ty.as_registers().and_then(ir::Type::dtype).expect("coordinates are integers");
            let zero = self.constant(dtype, 0);
            let shift = self.elementwise(ElementwiseFn::Select, &[comes, zero, shift], ty.clone());
            *coordinate = self.elementwise(ElementwiseFn::Add, &[*coordinate, shift], ty);
        }
        if let Some(end) = continued.end {
            let bool = Type::scalar(ir::Type::scalar(ir::Dtype::I1));
            let comes = self.elementwise(ElementwiseFn::Lt, &[counter, end], bool);
            coordinates[0] = self.outside_unless(comes, coordinates[0]);
        }
    }
}
