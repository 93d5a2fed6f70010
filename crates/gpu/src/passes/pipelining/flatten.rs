//! A loop in a loop that asks for it (`tl.range(…, flatten=True)`) fills slots for the next iteration of the loop around where it has
//! nothing left to copy for itself: the first blocks of a persistent kernel's next tile are copied while the last products of this one
//! and what comes behind them run. The rings are never empty between two tiles.
//!
//! ```text
//!                                              %r = alloc ; fill %r from 0, 1, 2 of %lo           before both loops
//! for %tile = %lo to %hi {                     for %tile = %lo to %hi {
//!   %r = alloc ; fill %r from 0, 1, 2            for %k = 0 to %n - 3 { … fill from %k + 3 }
//!   for %k = 0 to %n - 3 { … fill … }     =>     for %j = 0 to 2 { … fill from %j of the next %tile }
//!   for %j = 0 to 2 { … }                        … fill from 2 of the next %tile
//!   … ; dealloc %r                               …
//! }                                            } ; take, release all ; dealloc %r
//! ```
//! Which tile is next is said by the counter of the loop around: scalars that are computed of it are computed once more. What belongs
//! to no tile, or to an iteration that does not come, is a box outside of its tensor, as everywhere.
//!
//! **A tile takes as many slots as it has iterations, but at least as many as are filled ahead**, so that what it leaves is of the next
//! one always. A loop whose product runs into the next iteration ([`super::dots`]) multiplies those that are too many, which are
//! zeros. Another one fills for itself or for the next tile in each iteration, and behind it, if it is short, takes what is left of its own
//! ([`Emit::catch_up`]).
//!
//! **What forbids it**, besides what forbids pipelining: stores of the loop around that may touch what is copied, as those of this tile
//! would come behind loads of the next one; boxes that begin where more than the counters says; copies by `cp.async`.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{
    Block, BlockData, Definition, Dtype, Effect, ElementwiseFn, Inst, LoopOptions, Operation, Value,
};

use super::emit::{Bounds, Emit};
use super::link::literal;
use super::memory_order::{Order, orders};
use super::plan::{LoopPlan, find_loops};
use crate::passes::global_memory::GlobalAccesses;
use crate::remarks::{self, Because};
use tilewright_gpu_ir::{Function, GpuOp, Module, Type};

/// More than this is not counted ahead.
const MOST_AHEAD: i128 = 1 << 30;

/// What the next iteration of the loop around copies first.
pub struct Flat {
    pub outer: Inst,
    /// Where that loop stands.
    pub block: Block,
    /// Its step, where that is a constant.
    step: Option<i128>,
    /// Where the counter of the pipelined loop begins and ends.
    bounds: [Value; 2],
    /// Scalars of the body of the loop around that are computed of its counter.
    tile: Vec<Inst>,
    /// Scalars of the body of the pipelined loop that are computed of both counters.
    insts: Vec<Inst>,
    /// Where the box of each load begins.
    coordinates: Vec<SmallVec<[Value; 5]>>,
}

/// Finds out which pipelined loops are flattened with the loop around that asks for it.
pub(super) fn flatten(module: &Module, plans: &mut [LoopPlan]) {
    let function = module.kernel();
    let mut loops = Vec::new();
    find_loops(function, function.entry, &mut loops);
    let asks = |inst: Inst| matches!(function.insts[inst].op.as_tile(), Some(ir::Op::For { options }) if options.flatten);
    loops.retain(|(inst, _)| asks(*inst));
    if loops.is_empty() {
        return;
    }
    let global = GlobalAccesses::new(module);
    for (outer, block) in loops {
        let body = function.insts[outer].regions[0];
        let mut inner = plans.iter_mut().filter(|plan| plan.block == body);
        let found = match (inner.next(), inner.next()) {
            (Some(plan), None) => {
                let flat = Nest { function, global: &global, plan, outer, block }.flat();
                flat.map(|flat| plan.flat = Some(flat))
            }
            (Some(_), Some(_)) => Err("several loops in it are pipelined"),
            (None, _) => Err("no loop that is pipelined stands in it, but for branches"),
        };
        if let Err(reason) = found {
            let because = || Because::missed("not flattened", reason);
            remarks::about("pipelining", function, outer, || "loop".into(), because);
        }
    }
}

/// A pipelined loop and the loop around.
struct Nest<'a> {
    function: &'a Function,
    global: &'a GlobalAccesses<'a>,
    plan: &'a LoopPlan,
    outer: Inst,
    block: Block,
}

impl Nest<'_> {
    /// What is needed of the next iteration, or why it cannot be had.
    fn flat(&self) -> Result<Flat, &'static str> {
        let (function, plan) = (self.function, self.plan);
        let body = function.insts[self.outer].regions[0];
        self.may_count_ahead()?;
        if plan.late.is_some() {
            return Err("the loop in it begins one of two products an iteration late");
        }
        self.may_copy_early(body)?;
        let mut coordinates = Vec::new();
        for load in &plan.loads {
            let boxed = load.boxed.as_ref().ok_or("a load that goes through a ring is no tensor copy")?;
            if self.is_inside(function.insts[boxed.mark].operands[1], body) {
                return Err("a tensor map is made in it");
            }
            if boxed.gathered_row_indices(function).is_some() {
                return Err("a copy is of rows by number");
            }
            coordinates.push(boxed.coordinates(function, boxed.mark));
        }
        let bounds = [0, 1].map(|place| function.insts[plan.inst].operands[place]);
        let wanted = coordinates.iter().flatten().copied().collect();
        let (insts, mut wanted) = self
            .scalars(function.insts[plan.inst].regions[0], wanted)
            .ok_or("where a copy is from depends on more than the counter of the loop in it")?;
        wanted.extend(bounds);
        let (tile, _) = self
            .scalars(body, wanted)
            .ok_or("what the loop in it copies first is not computed of scalars and the counter alone")?;
        let step = literal(function, function.insts[self.outer].operands[2]);
        Ok(Flat { outer: self.outer, block: self.block, step, bounds, tile, insts, coordinates })
    }

    fn may_count_ahead(&self) -> Result<(), &'static str> {
        let function = self.function;
        let is_int32 = |inst: Inst| {
            let tile = function.ty(function.insts[inst].operands[0]).as_registers();
            tile.and_then(ir::Type::dtype) == Some(Dtype::I32)
        };
        let most = MOST_AHEAD / i128::from(self.plan.stages);
        if ![self.outer, self.plan.inst].into_iter().all(is_int32) {
            Err("a counter is no int32")
        } else if self.plan.step.is_none_or(|step| step < 1 || step > most) {
            Err("the step of the loop in it is no positive constant")
        } else {
            Ok(())
        }
    }

    /// Whether no iteration of the loop around may write what the next one loads.
    fn may_copy_early(&self, body: Block) -> Result<(), &'static str> {
        let mut found = Ok(());
        self.function.walk(body, &mut |inst| match orders(&self.function.insts[inst].op) {
            Order::None => {}
            Order::Own if self.plan.loads.iter().all(|load| !self.global.may_alias(load.inst, inst)) => {}
            Order::Own => found = Err("a store or atomic in it may touch what its next iteration loads"),
            Order::All => found = Err("it orders accesses to memory"),
        });
        found
    }

    fn is_inside(&self, value: Value, body: Block) -> bool {
        let mut found = false;
        let Some(made) = self.function.defining_inst(value) else { return false };
        self.function.walk(body, &mut |inst| found |= inst == made);
        found
    }

    /// The scalars of the body of a loop that values are computed by, of its counter alone, and what they need from outside.
    fn scalars(&self, body: Block, mut wanted: Vec<Value>) -> Option<(Vec<Inst>, Vec<Value>)> {
        let function = self.function;
        let insts = &function.blocks[body].insts;
        let is_scalar =
            |value: &Value| function.ty(*value).as_registers().is_some_and(|tile| tile.rank() == 0);
        let (mut places, mut outside) = (BTreeSet::new(), Vec::new());
        while let Some(value) = wanted.pop() {
            let inst = match function.values[value].definition {
                Definition::Parameter(block, number) if block == body && number > 0 => return None,
                Definition::Parameter(block, _) if block == body => continue,
                Definition::Parameter(..) => {
                    outside.push(value);
                    continue;
                }
                Definition::Result(inst, _) => inst,
            };
            let Some(place) = insts.iter().position(|other| *other == inst) else {
                outside.push(value);
                continue;
            };
            let data = &function.insts[inst];
            let is_pure = data.op.info().effect == Effect::Pure && data.regions.is_empty();
            if !is_pure || !data.operands.iter().chain(&data.results).all(is_scalar) {
                return None;
            }
            if places.insert(place) {
                wanted.extend(&data.operands);
            }
        }
        Some((places.into_iter().map(|place| insts[place]).collect(), outside))
    }
}

/// What an iteration of the loop around copies first.
pub(super) struct Ahead {
    /// What its scalars are.
    copies: FxHashMap<Value, Value>,
    /// Where the counter of the pipelined loop begins.
    lower: Value,
    /// How far that counter goes, but no farther than slots are filled ahead; zero if it does not come.
    length: Value,
}

impl Emit<'_> {
    /// Pipelines a loop together with the loop around.
    pub(super) fn flatten(&mut self, flat: &Flat) {
        let fills = self.lower_loads();
        self.schedule(&fills);
        let first = self.first_tile(flat);
        for number in 0..self.distance {
            let offset = self.offset(number);
            self.fill_first(flat, &first, offset);
        }
        let around = std::mem::take(&mut self.out);
        self.expand(None);
        let rings = self.rings.clone();
        for _ in 0..self.distance {
            self.take_turn(&rings);
        }
        let after = std::mem::take(&mut self.out);
        self.put(flat.block, flat.outer, around, after);
    }

    /// So many iterations, as what is added to the counter.
    pub(super) fn offset(&mut self, iterations: u32) -> Value {
        let step = self.plan.step.expect("it is a constant where loops are flattened");
        self.constant(Dtype::I32, step * i128::from(iterations))
    }

    fn wide(&mut self, value: Value) -> Value {
        self.cast(value, Dtype::I64)
    }

    fn cast(&mut self, value: Value, dtype: Dtype) -> Value {
        let (element, rounding) = (ir::Element::Value(dtype), ir::Rounding::NearestEven);
        self.value(ir::Op::Cast { element, rounding }, &[value], Type::scalar(ir::Type::scalar(dtype)))
    }

    fn scalar(&mut self, function: ElementwiseFn, operands: &[Value]) -> Value {
        let ty = self.function.ty(operands[operands.len() - 1]).clone();
        self.elementwise(function, operands, ty)
    }

    fn compare(&mut self, function: ElementwiseFn, operands: [Value; 2]) -> Value {
        self.elementwise(function, &operands, Type::scalar(ir::Type::scalar(Dtype::I1)))
    }

    /// Whether one number is before another one on the way of the loop around.
    fn is_before(&mut self, flat: &Flat, numbers: [Value; 2]) -> Value {
        match flat.step {
            Some(step) if step > 0 => self.compare(ElementwiseFn::Lt, numbers),
            Some(_) => self.compare(ElementwiseFn::Gt, numbers),
            None => {
                let step = self.function.insts[flat.outer].operands[2];
                let zero = self.constant(Dtype::I32, 0);
                let is_up = self.compare(ElementwiseFn::Gt, [step, zero]);
                let [up, down] = [ElementwiseFn::Lt, ElementwiseFn::Gt].map(|way| self.compare(way, numbers));
                self.scalar(ElementwiseFn::Select, &[is_up, up, down])
            }
        }
    }

    fn first_tile(&mut self, flat: &Flat) -> Ahead {
        let [lower, upper] = [0, 1].map(|place| self.function.insts[flat.outer].operands[place]);
        let comes = self.is_before(flat, [lower, upper]);
        self.tile(flat, lower, comes)
    }

    /// The next iteration of the loop around, seen from this one.
    pub(super) fn next_tile(&mut self, flat: &Flat) -> Ahead {
        let data = &self.function.insts[flat.outer];
        let (upper, step) = (data.operands[1], data.operands[2]);
        let counter = self.function.blocks[data.regions[0]].parameters[0];
        // Of 64 bits, since the counter behind the last one may be none of 32.
        let [this, upper, far] = [counter, upper, step].map(|value| self.wide(value));
        let left = self.scalar(ElementwiseFn::Sub, &[upper, this]);
        let comes = self.is_before(flat, [far, left]);
        let next = self.scalar(ElementwiseFn::Add, &[counter, step]);
        self.tile(flat, next, comes)
    }

    fn tile(&mut self, flat: &Flat, counter: Value, comes: Value) -> Ahead {
        let body = self.function.insts[flat.outer].regions[0];
        let mut copies = FxHashMap::default();
        copies.insert(self.function.blocks[body].parameters[0], counter);
        for inst in &flat.tile {
            self.copy(*inst, &mut copies);
        }
        let [lower, upper] = flat.bounds.map(|value| copies.get(&value).copied().unwrap_or(value));
        let length = self.iterations([lower, upper], false);
        let zero = self.constant(Dtype::I32, 0);
        let length = self.scalar(ElementwiseFn::Select, &[comes, length, zero]);
        Ahead { copies, lower, length }
    }

    /// How far a counter goes, but no farther than slots are filled ahead: in whole steps, if these are wanted.
    fn iterations(&mut self, bounds: [Value; 2], in_steps: bool) -> Value {
        let step = self.plan.step.expect("it is a constant where loops are flattened");
        let [lower, upper] = bounds.map(|value| self.wide(value));
        let mut length = self.scalar(ElementwiseFn::Sub, &[upper, lower]);
        let most = step * i128::from(self.distance);
        for (function, limit) in [(ElementwiseFn::Max, 0), (ElementwiseFn::Min, most)] {
            let limit = self.constant(Dtype::I64, limit);
            length = self.scalar(function, &[length, limit]);
        }
        let length = self.cast(length, Dtype::I32);
        if in_steps { self.whole_steps(length, step) } else { length }
    }

    /// The next whole number of steps.
    fn whole_steps(&mut self, length: Value, step: i128) -> Value {
        if step == 1 {
            return length;
        }
        let ty = self.function.ty(length).clone();
        let dtype = ty.as_registers().and_then(ir::Type::dtype).expect("it is an integer");
        let [more, step] = [step - 1, step].map(|number| self.constant(dtype, number));
        let length = self.scalar(ElementwiseFn::Add, &[length, more]);
        let over = self.scalar(ElementwiseFn::IntRem, &[length, step]);
        self.scalar(ElementwiseFn::Sub, &[length, over])
    }

    /// Fills the next slots as the iteration of a tile that is so far behind its first one.
    pub(super) fn fill_first(&mut self, flat: &Flat, tile: &Ahead, offset: Value) {
        let counter = self.scalar(ElementwiseFn::Add, &[tile.lower, offset]);
        let comes = self.compare(ElementwiseFn::Lt, [offset, tile.length]);
        let coordinates = self.boxes(flat, tile.copies.clone(), counter);
        self.fill_boxes(coordinates, Some(comes));
    }

    /// What an iteration of a loop that drains does ahead, for iterations that are in range.
    pub(super) fn fill_later(&mut self, flat: &Flat, bounds: &Bounds) -> Vec<Inst> {
        let counter = self.function.blocks[self.body].parameters[0];
        let later = self.later(counter, self.distance, bounds);
        let coordinates = self.boxes(flat, FxHashMap::default(), later);
        self.fill_boxes(coordinates, None);
        std::mem::take(&mut self.out)
    }

    /// What is subtracted from a counter of this tile for how far that of the next one is, whose slots are filled then.
    pub(super) fn counter_of_next(&mut self, flat: &Flat) -> Value {
        let step = self.plan.step.expect("it is a constant where loops are flattened");
        let most = step * i128::from(self.distance);
        let [lower, upper] = flat.bounds.map(|value| self.wide(value));
        let length = self.scalar(ElementwiseFn::Sub, &[upper, lower]);
        let least = self.constant(Dtype::I64, most);
        let length = self.scalar(ElementwiseFn::Max, &[length, least]);
        let length = self.whole_steps(length, step);
        let length = self.cast(length, Dtype::I32);
        let end = self.scalar(ElementwiseFn::Add, &[flat.bounds[0], length]);
        let ahead = self.offset(self.distance);
        self.scalar(ElementwiseFn::Sub, &[end, ahead])
    }

    /// What an iteration does ahead: for an iteration of this tile if that comes, else for one of the next tile.
    pub(super) fn fill_this_or_next(
        &mut self,
        flat: &Flat,
        next: &Ahead,
        first: Value,
        bounds: &Bounds,
    ) -> Vec<Inst> {
        let counter = self.function.blocks[self.body].parameters[0];
        let comes = self.in_range(counter, self.distance, bounds);
        let later = self.later(counter, self.distance, bounds);
        let mut coordinates = self.boxes(flat, FxHashMap::default(), later);
        let offset = self.scalar(ElementwiseFn::Sub, &[counter, first]);
        let others = self.scalar(ElementwiseFn::Add, &[next.lower, offset]);
        let others = self.boxes(flat, next.copies.clone(), others);
        let other_comes = self.compare(ElementwiseFn::Lt, [offset, next.length]);
        for (own, other) in coordinates.iter_mut().flatten().zip(others.into_iter().flatten()) {
            let [one, number] = [*own, other].map(|value| literal(self.function, value));
            if *own != other && (one.is_none() || one != number) {
                *own = self.scalar(ElementwiseFn::Select, &[comes, *own, other]);
            }
        }
        let comes = self.scalar(ElementwiseFn::Or, &[comes, other_comes]);
        self.fill_boxes(coordinates, Some(comes));
        std::mem::take(&mut self.out)
    }

    /// Behind a loop with fewer iterations than are filled ahead, takes what is left of this tile and fills that for the next one.
    pub(super) fn catch_up(&mut self, flat: &Flat, next: &Ahead) {
        let from = self.iterations(flat.bounds, true);
        let [to, step] = [self.distance, 1].map(|count| self.offset(count));
        let outside = std::mem::take(&mut self.out);
        let body = self.function.blocks.push(BlockData::default());
        let int = Type::scalar(ir::Type::scalar(Dtype::I32));
        let counter = self.function.add_parameter(body, int, None);
        let rings = self.rings.clone();
        self.take_turn(&rings);
        self.fill_first(flat, next, counter);
        self.emit(ir::Op::Yield {}, &[], None);
        self.function.blocks[body].insts = std::mem::replace(&mut self.out, outside);
        let options = LoopOptions { num_stages: 1, ..LoopOptions::default() };
        let loop_inst = self.emit(ir::Op::For { options }, &[from, to, step], None);
        self.function.insts[loop_inst].regions = smallvec![body];
    }

    /// Where the boxes of an iteration begin.
    fn boxes(
        &mut self,
        flat: &Flat,
        mut copies: FxHashMap<Value, Value>,
        counter: Value,
    ) -> Vec<SmallVec<[Value; 5]>> {
        copies.insert(self.function.blocks[self.body].parameters[0], counter);
        for inst in &flat.insts {
            self.copy(*inst, &mut copies);
        }
        let copy = |value: &Value| copies.get(value).copied().unwrap_or(*value);
        flat.coordinates.iter().map(|values| values.iter().map(copy).collect()).collect()
    }

    /// Slots are filled with boxes: outside of all tensors, if a condition is false.
    fn fill_boxes(&mut self, coordinates: Vec<SmallVec<[Value; 5]>>, comes: Option<Value>) {
        for (number, mut coordinates) in coordinates.into_iter().enumerate() {
            let slot = self.acquire(number);
            if let Some(comes) = comes {
                coordinates[0] = self.outside_unless(comes, coordinates[0]);
            }
            self.fill_box(number, slot, &coordinates);
            self.emit(GpuOp::Publish {}, &[slot], None);
        }
    }
}
