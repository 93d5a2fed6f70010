//! Defines the rewriter of one loop. [`super::lower_loads`] lowers loads to rings,
//! [`super::schedule_loops`](mod@super::schedule_loops) assigns stages, and [`super::expand`] emits
//! the pipelined loop.

use cranelift_entity::packed_option::PackedOption;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{
    Block, Definition, Dtype, ElementwiseFn, Inst, Literal, Location, Rounding, Value, ValueData,
    constant_int,
};

use super::super::boxed::{map_for, mask_coordinate};
use super::loop_plan::{LoopPlan, RingLoad};
use tilewright_gpu_ir::{Buffer, Deferred, Function, GpuOp, Header, Op, Padding, Type};

/// The last iteration's ops of the last stage, with their orders. The next loop's first step runs
/// them.
pub(super) struct Tail(pub Vec<(u32, Inst)>);

/// The bounds of a fused loop's successor. The kernel computes them before the fused loop, or in
/// the outer loop.
#[derive(Clone)]
pub(super) struct NextLoop {
    /// Maps each outer scalar to its recomputed value for the next iteration.
    pub copies: FxHashMap<Value, Value>,
    /// The lower bound of the counter.
    pub lower: Value,
    /// The distance that the counter covers. `None` if the successor has enough iterations for the
    /// slots filled ahead.
    pub length: Option<Value>,
}

/// The copies for the successor that replace copies out of range.
#[derive(Clone)]
pub(super) struct Continued {
    pub next: NextLoop,
    pub coordinates: Vec<SmallVec<[NextCoordinate; 5]>>,
    /// The distance between the successor's counter and this loop's.
    pub distance: Value,
    /// The counter at which the successor ends. `None` if it has enough iterations for the slots
    /// filled ahead.
    pub end: Option<Value>,
}

#[derive(Clone, Copy)]
pub(super) enum NextCoordinate {
    /// The coordinate of this loop.
    Same,
    /// A scalar that is the same in every iteration.
    Invariant(Value),
    /// The coordinate of this loop plus a distance.
    Moved(Value),
    /// A scalar that the body computes.
    Computed,
}

#[derive(Default)]
pub(super) struct PreviousLoop {
    pub rings: Vec<Value>,
    pub tail: Option<Tail>,
}

/// The values with which a loop tests whether an iteration is in range.
pub(super) struct Bounds {
    /// At index `n`, the end for the iteration `n` after the current one. That iteration is in
    /// range if the current counter is before this end.
    ends: Vec<Value>,
    /// At index `n >= 1`, the distance of the counter in `n` steps.
    steps: Vec<Value>,
    /// True if the loop counts upwards: a constant, or a run-time value.
    is_up: Result<bool, Value>,
}

pub(super) struct LoopRewriter<'a> {
    pub(super) header: &'a mut Header,
    pub(super) function: &'a mut Function,
    pub(super) plan: &'a LoopPlan,
    pub(super) body: Block,
    /// The number of slots of each ring.
    pub(super) slots: u32,
    /// The distance in iterations between a copy and the take of its slot.
    pub(super) distance: u32,
    counter: Type,
    pub(super) rings: Vec<Value>,
    pub(super) continued: Option<Continued>,
    pub(super) location: PackedOption<Location>,
    pub(super) out: Vec<Inst>,
    pub(super) before: Vec<Inst>,
}

impl Bounds {
    /// Returns the end for the iteration `count` after the current one.
    pub(super) fn end(&self, count: usize) -> Value {
        self.ends[count]
    }
}

impl<'a> LoopRewriter<'a> {
    pub(super) fn new(
        header: &'a mut Header,
        function: &'a mut Function,
        plan: &'a LoopPlan,
        slots: u32,
    ) -> Self {
        let inst = plan.inst;
        let body = function.insts[inst].regions[0];
        let counter = function.ty(function.blocks[body].parameters[0]).clone();
        let location = function.insts[inst].location;
        let lead = plan.groups.iter().map(|group| group.lead).max().unwrap_or(0);
        let distance = slots.saturating_sub(1) + lead;
        let (rings, out, before) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            header,
            function,
            plan,
            body,
            slots,
            distance,
            counter,
            rings,
            continued: None,
            location,
            out,
            before,
        }
    }
}

impl LoopRewriter<'_> {
    pub(super) fn num_warps(&self) -> u32 {
        self.header.num_warps
    }

    pub(super) fn emit(&mut self, op: impl Into<Op>, operands: &[Value], ty: Option<Type>) -> Inst {
        let operands = operands.iter().copied().collect();
        let inst = self.function.create_inst(op.into(), operands, smallvec![], ty, self.location);
        self.out.push(inst);
        inst
    }

    pub(super) fn value(&mut self, op: impl Into<Op>, operands: &[Value], ty: Type) -> Value {
        let inst = self.emit(op, operands, Some(ty));
        self.function.insts[inst].results[0]
    }

    pub(super) fn elementwise(&mut self, function: ElementwiseFn, operands: &[Value], ty: Type) -> Value {
        self.value(GpuOp::Elementwise { function, equal_registers: 0 }, operands, ty)
    }

    pub(super) fn constant(&mut self, dtype: Dtype, number: i128) -> Value {
        let value = Literal::int(dtype, number);
        self.value(ir::Op::Constant { value }, &[], Type::scalar(ir::Type::scalar(dtype)))
    }

    pub(super) fn slot_type(&mut self, load: &RingLoad, slots: u32) -> Buffer {
        let layout = self.header.layouts.add(load.memory.clone());
        Buffer {
            slots,
            element: load.element,
            shape: load.shape.clone(),
            layout,
            padding: Padding::default(),
        }
    }

    pub(super) fn make_rings(&mut self) {
        let plan = self.plan;
        for load in &plan.loads {
            let ty = Type::Ring(self.slot_type(load, self.slots));
            let ring = self.value(GpuOp::Alloc { offset: Deferred(None) }, &[], ty);
            self.rings.push(ring);
        }
    }

    fn dtype(&self) -> Dtype {
        let tile = self.counter.as_registers().expect("a counter is in a register");
        tile.dtype().expect("a counter is an integer")
    }

    /// Computes the bounds for up to `farthest` iterations ahead.
    pub(super) fn bounds(&mut self, farthest: u32) -> Bounds {
        let [_, upper, step] = [0, 1, 2].map(|index| self.function.insts[self.plan.inst].operands[index]);
        let (dtype, counter) = (self.dtype(), self.counter.clone());
        let is_up = if let Some(step) = self.plan.step {
            Ok(step > 0)
        } else {
            let zero = self.constant(dtype, 0);
            let bool = Type::scalar(ir::Type::scalar(Dtype::I1));
            Err(self.elementwise(ElementwiseFn::Gt, &[step, zero], bool))
        };
        let (mut ends, mut steps) = (vec![upper], vec![step]);
        for count in 1..=farthest {
            ends.push(self.end(upper, step, count));
            let steps_ahead = if let Some(step) = self.plan.step {
                self.constant(dtype, step * i128::from(count))
            } else {
                let count = self.constant(dtype, i128::from(count));
                self.elementwise(ElementwiseFn::Mul, &[step, count], counter.clone())
            };
            steps.push(steps_ahead);
        }
        Bounds { ends, steps, is_up }
    }

    /// Returns the upper bound less `count` steps, or the limit of the type on overflow.
    fn end(&mut self, upper: Value, step: Value, count: u32) -> Value {
        let (dtype, counter) = (self.dtype(), self.counter.clone());
        let (min, max) = dtype.int_range().expect("a counter is an integer");
        if let (Some(upper), Some(step)) = (constant_int(self.function, upper), self.plan.step) {
            return self.constant(dtype, (upper - step * i128::from(count)).clamp(min, max));
        }
        if dtype.bits() > 32 {
            let steps = self.plan.step.expect("a wide counter has a constant step") * i128::from(count);
            let (function, limit) =
                if steps > 0 { (ElementwiseFn::Max, min + steps) } else { (ElementwiseFn::Min, max + steps) };
            let [limit, steps] = [limit, steps].map(|number| self.constant(dtype, number));
            let nearest = self.elementwise(function, &[upper, limit], counter.clone());
            return self.elementwise(ElementwiseFn::Sub, &[nearest, steps], counter);
        }
        let wide = Type::scalar(ir::Type::scalar(Dtype::I64));
        let cast = |element: Dtype| ir::Op::Cast {
            element: ir::Element::Value(element),
            rounding: Rounding::NearestEven,
        };
        let upper = self.value(cast(Dtype::I64), &[upper], wide.clone());
        let steps = if let Some(step) = self.plan.step {
            self.constant(Dtype::I64, step * i128::from(count))
        } else {
            let step = self.value(cast(Dtype::I64), &[step], wide.clone());
            let count = self.constant(Dtype::I64, i128::from(count));
            self.elementwise(ElementwiseFn::Mul, &[step, count], wide.clone())
        };
        let mut end = self.elementwise(ElementwiseFn::Sub, &[upper, steps], wide.clone());
        let limits = [(ElementwiseFn::Max, min), (ElementwiseFn::Min, max)];
        let exceeded = match self.plan.step {
            Some(step) => &limits[usize::from(step < 0)..][..1],
            None => &limits[..],
        };
        for (function, limit) in exceeded {
            let limit = self.constant(Dtype::I64, *limit);
            end = self.elementwise(*function, &[end, limit], wide.clone());
        }
        self.value(cast(dtype), &[end], counter)
    }

    /// Returns whether the iteration `count` after that of a counter is in range. The counter's
    /// iteration is in range, or is the first one.
    pub(super) fn in_range(&mut self, counter: Value, count: u32, bounds: &Bounds) -> Value {
        let bool = Type::scalar(ir::Type::scalar(Dtype::I1));
        let end = bounds.ends[count as usize];
        let compare =
            |rewriter: &mut Self, function| rewriter.elementwise(function, &[counter, end], bool.clone());
        match bounds.is_up {
            Ok(true) => compare(self, ElementwiseFn::Lt),
            Ok(false) => compare(self, ElementwiseFn::Gt),
            Err(is_up) => {
                let [up, down] =
                    [ElementwiseFn::Lt, ElementwiseFn::Gt].map(|function| compare(self, function));
                self.elementwise(ElementwiseFn::Select, &[is_up, up, down], bool.clone())
            }
        }
    }

    /// Returns the counter `count` iterations later.
    pub(super) fn later(&mut self, counter: Value, count: u32, bounds: &Bounds) -> Value {
        let ty = self.counter.clone();
        let step = bounds.steps[count as usize];
        if count == 0 { counter } else { self.elementwise(ElementwiseFn::Add, &[counter, step], ty) }
    }

    pub(super) fn copy(&mut self, inst: Inst, copies: &mut FxHashMap<Value, Value>) {
        let data = self.function.insts[inst].clone();
        let operands = data.operands.iter().map(|value| *copies.get(value).unwrap_or(value)).collect();
        let regions = data.regions.iter().map(|region| self.function.clone_region(*region)).collect();
        let types: Vec<Type> = data.results.iter().map(|result| self.function.ty(*result).clone()).collect();
        let copy = self.function.create_inst(data.op, operands, regions, types, data.location);
        for (index, result) in data.results.iter().enumerate() {
            let new = self.function.insts[copy].results[index];
            let name = self.function.values[*result].name.clone();
            self.function.values[new].name = name;
            copies.insert(*result, new);
        }
        self.out.push(copy);
    }

    /// Acquires the next slot of the ring of a load.
    pub(super) fn acquire(&mut self, load_index: usize) -> Value {
        let load = &self.plan.loads[load_index];
        self.location = self.function.insts[load.inst].location;
        let ty = Type::Empty(self.slot_type(load, 1));
        self.value(GpuOp::Acquire {}, &[self.rings[load_index]], ty)
    }

    /// Fills a slot with the box of a load at `coordinates`.
    pub(super) fn fill_box(&mut self, load_index: usize, slot: Value, coordinates: &[Value]) {
        let plan = self.plan;
        let boxed = plan.loads[load_index].boxed.as_ref().expect("the load is a box");
        let map = map_for(self.header, self.function, boxed).expect("a box that is planned has a map");
        let operands: Vec<Value> = [slot, map].into_iter().chain(coordinates.iter().copied()).collect();
        self.emit(GpuOp::TensorFill {}, &operands, None);
    }

    pub(super) fn mask_coordinate(&mut self, condition: Value, coordinate: Value) -> Value {
        let insts = mask_coordinate(self.function, condition, coordinate, self.location);
        self.out.extend(insts);
        self.function.insts[insts[1]].results[0]
    }

    /// Takes the next slot of each of these rings, and releases these slots.
    pub(super) fn take_turn(&mut self, rings: &[Value]) {
        let mut slots = Vec::new();
        for ring in rings {
            let Type::Ring(buffer) = self.function.ty(*ring).clone() else { continue };
            let ty = Type::Full(Buffer { slots: 1, ..buffer });
            slots.push(self.value(GpuOp::Take {}, &[*ring], ty));
        }
        for slot in slots {
            self.emit(GpuOp::Release {}, &[slot], None);
        }
    }

    pub(super) fn insert_around(&mut self, block: Block, inst: Inst, before: Vec<Inst>, after: Vec<Inst>) {
        let insts = &mut self.function.blocks[block].insts;
        let index = insts.iter().position(|other| *other == inst).expect("the loop is in its block");
        insts.splice(index..=index, before.into_iter().chain([inst]).chain(after));
    }

    /// Lets the loop carry a value: `initial` first, then `next`. Returns its parameter.
    pub(super) fn carry(&mut self, initial: Value, next: Value) -> Value {
        let ValueData { ty, name, .. } = self.function.values[next].clone();
        let parameter = self.function.add_parameter(self.body, ty.clone(), name);
        let inst = self.plan.inst;
        let end = self.function.terminator(self.body).expect("a body yields");
        self.function.insts[inst].operands.push(initial);
        self.function.insts[end].operands.push(next);
        self.add_result(inst, ty);
        parameter
    }

    pub(super) fn add_result(&mut self, inst: Inst, ty: Type) -> Value {
        let definition = Definition::Result(inst, self.function.insts[inst].results.len() as u32);
        let value = self.function.values.push(ValueData { ty, definition, name: None });
        self.function.insts[inst].results.push(value);
        value
    }

    pub(super) fn selected(&mut self, condition: Value, yes: Value, no: Value) -> Value {
        if yes == no {
            return yes;
        }
        let ty = self.function.ty(yes).clone();
        let tile = ty.as_registers().expect("carried values are in registers").clone();
        let condition = if ty.layout().is_none() {
            condition
        } else {
            let shape = tile.shape.clone();
            let bools = Type::registers(tile.with_dtype(Dtype::I1), ty.layout());
            self.value(ir::Op::Splat { shape }, &[condition], bools)
        };
        self.elementwise(ElementwiseFn::Select, &[condition, yes, no], ty)
    }

    /// Selects a tile if an iteration is in range, else a tile of `number`.
    pub(super) fn select_if_in_range(&mut self, in_range: Value, tile: Value, number: f64) -> Value {
        let other = self.filled(tile, number);
        self.selected(in_range, tile, other)
    }

    /// Returns a tile of `number` with the type of another tile.
    fn filled(&mut self, like: Value, number: f64) -> Value {
        let ty = self.function.ty(like).clone();
        let tile = ty.as_registers().expect("values that cross stages are in registers").clone();
        let dtype = tile.dtype().expect("operands of dots are numbers");
        let zero = Literal { dtype, bits: 0 };
        let value = if number == 0.0 { zero } else { Literal::float(dtype, number).unwrap_or(zero) };
        let scalar = Type::scalar(ir::Type::scalar(dtype));
        let scalar = self.value(ir::Op::Constant { value }, &[], scalar);
        self.value(ir::Op::Splat { shape: tile.shape.clone() }, &[scalar], ty)
    }
}
