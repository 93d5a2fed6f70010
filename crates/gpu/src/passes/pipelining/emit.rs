//! The rewriting of one loop: rings, what comes before the first iteration, what an iteration does ahead, and where slots take
//! the place of loads.

use std::collections::BTreeMap;

use cranelift_entity::packed_option::PackedOption;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{
    Block, Definition, Dtype, ElementwiseFn, Inst, Literal, Location, Rounding, Value, ValueData,
};

use super::super::tensor_copies::{map_for, outside_unless, place_of_condition};
use super::link::Continued;
use super::overlap::{Before, Tail};
use super::plan::{Group, Level, LoopPlan, RingLoad, Way};
use crate::language::{Buffer, Deferred, Function, GpuOp, Header, Op, Type};

/// Pipelines a loop with so many slots, which are filled so many iterations ahead: what the next loop may have of it.
pub fn pipeline(
    header: &mut Header,
    function: &mut Function,
    plan: &LoopPlan,
    (slots, distance): (u32, u32),
    kept: Option<Kept>,
) -> Kept {
    let inst = plan.inst;
    let body = function.insts[inst].regions[0];
    let counter = function.ty(function.blocks[body].parameters[0]).clone();
    let Kept { rings, tail } = kept.unwrap_or_default();
    let mut emit = Emit {
        header,
        function,
        plan,
        body,
        distance,
        counter,
        rings,
        continued: None,
        is_in_vain: false,
        location: None.into(),
        out: Vec::new(),
    };
    emit.location = emit.function.insts[inst].location;
    if let Some(flat) = &plan.flat {
        emit.flatten(flat, slots);
        return Kept::default();
    }
    if !plan.follows {
        emit.make_rings(slots);
    }
    let bounds = emit.bounds();
    emit.continued = plan.next.as_ref().map(|link| emit.continued(link));
    let mut before = std::mem::take(&mut emit.out);
    let initial: Vec<_> = plan.groups.iter().map(|group| emit.prologue(group, &bounds)).collect();
    let fills = std::mem::take(&mut emit.out);
    let beside = if let Some(tail) = tail {
        Some(Before { tail, fills })
    } else {
        before.extend(fills);
        None
    };
    let carried = emit.function.insts[inst].results.len();
    let ahead = emit.steady_state(&bounds, &initial);
    let takes = emit.take_slots();
    emit.remove_fences();
    let (mut behind, mut tail) = (Vec::new(), None);
    if let Some(overlap) = &plan.overlap {
        let parts = (&mut before, beside);
        (behind, tail) = emit.overlap(overlap, carried, (takes, ahead), &bounds, parts);
    } else if let Some(chain) = &plan.chain {
        behind = emit.chain(chain, (takes, ahead), &bounds, &mut before);
    } else {
        let place = if distance == 0 { 0 } else { emit.place_ahead() };
        let insts = &mut emit.function.blocks[body].insts;
        // What an iteration takes was filled before, by itself even.
        let (first, place, second) = if distance == 0 { (takes, 0, ahead) } else { (ahead, place, takes) };
        insts.splice(place..place, first);
        insts.splice(0..0, second);
    }
    behind.extend(emit.ends());
    emit.put(plan.block, inst, before, behind);
    Kept { rings: emit.rings, tail }
}

/// What a loop leaves to the next one.
#[derive(Default)]
pub struct Kept {
    rings: Vec<Value>,
    /// What is left of the last iteration.
    tail: Option<Tail>,
}

/// What is carried of a level: the values that its iteration begins with, and those that it was the last to load.
#[derive(Clone, Default)]
struct Carried {
    /// By the number of the parameter of the body.
    parameters: BTreeMap<u32, Value>,
    /// By the result of the load.
    loaded: BTreeMap<Value, Value>,
}

/// How it is told whether an iteration comes.
pub(super) struct Bounds {
    /// The iteration so many behind that of a counter comes if the counter is before this.
    ends: Vec<Value>,
    /// So many steps.
    steps: Vec<Value>,
    /// Whether the loop counts upwards, where it is not known.
    is_up: Result<bool, Value>,
}

pub(super) struct Emit<'a> {
    header: &'a mut Header,
    pub(super) function: &'a mut Function,
    pub(super) plan: &'a LoopPlan,
    pub(super) body: Block,
    /// How many iterations ahead copies begin.
    pub(super) distance: u32,
    /// The type of the counter.
    counter: Type,
    /// The ring of each load.
    rings: Vec<Value>,
    /// What is copied in place of iterations that do not come.
    continued: Option<Continued>,
    /// Whether what is copied is of iterations that are known not to come.
    is_in_vain: bool,
    location: PackedOption<Location>,
    pub(super) out: Vec<Inst>,
}

impl Bounds {
    /// What the counter of an iteration is before if the one so many behind it comes.
    pub(super) fn end(&self, count: usize) -> Value {
        self.ends[count]
    }
}

impl Emit<'_> {
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

    fn slot_type(&mut self, load: &RingLoad, slots: u32) -> Buffer {
        let layout = self.header.layouts.add(load.memory.clone());
        Buffer { slots, element: load.element, shape: load.shape.clone(), layout }
    }

    pub(super) fn make_rings(&mut self, slots: u32) {
        let plan = self.plan;
        for load in &plan.loads {
            let ty = Type::Ring(self.slot_type(load, slots));
            let ring = self.value(GpuOp::Alloc { offset: Deferred(None) }, &[], ty);
            self.rings.push(ring);
        }
    }

    /// How many iterations ahead a level is.
    fn ahead(&self, group: &Group, level: usize) -> u32 {
        self.distance + group.lead + level as u32
    }

    /// The levels of all groups, with their iterations ahead.
    pub(super) fn farthest(&self) -> u32 {
        let of = |group: &Group| self.ahead(group, group.levels.len() - 1);
        self.plan.groups.iter().map(of).max().expect("a plan has loads")
    }

    fn dtype(&self) -> Dtype {
        let tile = self.counter.as_registers().expect("a counter is in a register");
        tile.dtype().expect("a counter is an integer")
    }

    /// Up to the iteration that is farthest ahead.
    pub(super) fn bounds(&mut self) -> Bounds {
        let farthest = self.farthest();
        let [_, upper, step] = [0, 1, 2].map(|place| self.function.insts[self.plan.inst].operands[place]);
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

    /// The upper bound less so many steps, or the farthest number from which none of the counters comes to it.
    fn end(&mut self, upper: Value, step: Value, count: u32) -> Value {
        let (dtype, counter) = (self.dtype(), self.counter.clone());
        let (least, most) = dtype.int_range().expect("a counter is an integer");
        if dtype.bits() > 32 {
            let steps = self.plan.step.expect("a wide counter has a constant step") * i128::from(count);
            let (function, limit) = if steps > 0 {
                (ElementwiseFn::Max, least + steps)
            } else {
                (ElementwiseFn::Min, most + steps)
            };
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
        let limits = [(ElementwiseFn::Max, least), (ElementwiseFn::Min, most)];
        let may_pass = match self.plan.step {
            Some(step) => &limits[usize::from(step < 0)..][..1],
            None => &limits[..],
        };
        for (function, limit) in may_pass {
            let limit = self.constant(Dtype::I64, *limit);
            end = self.elementwise(*function, &[end, limit], wide.clone());
        }
        self.value(cast(dtype), &[end], counter)
    }

    /// Whether the iteration so many behind that of a counter comes, if that one does or is the first one.
    pub(super) fn comes(&mut self, counter: Value, count: u32, bounds: &Bounds) -> Value {
        let bool = Type::scalar(ir::Type::scalar(Dtype::I1));
        let end = bounds.ends[count as usize];
        let compare = |emit: &mut Self, function| emit.elementwise(function, &[counter, end], bool.clone());
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

    /// The counter so many iterations later.
    pub(super) fn later(&mut self, counter: Value, count: u32, bounds: &Bounds) -> Value {
        let ty = self.counter.clone();
        let step = bounds.steps[count as usize];
        if count == 0 { counter } else { self.elementwise(ElementwiseFn::Add, &[counter, step], ty) }
    }

    /// What comes before the first iteration, as if there were iterations before it.
    fn prologue(&mut self, group: &Group, bounds: &Bounds) -> Vec<Carried> {
        let plan = self.plan;
        let lower = self.function.insts[plan.inst].operands[0];
        let first = |number: u32| (number, self.function.insts[plan.inst].operands[number as usize + 2]);
        let begin = |level: &Level| Carried {
            parameters: level.parameters.iter().map(|number| first(*number)).collect(),
            loaded: BTreeMap::new(),
        };
        let mut carried: Vec<Carried> = group.levels.iter().map(begin).collect();
        let farthest = self.ahead(group, group.levels.len() - 1);
        for before in (1..=farthest).rev() {
            let last = carried.clone();
            for (level, carried) in carried.iter_mut().enumerate() {
                let Some(iteration) = self.ahead(group, level).checked_sub(before) else { continue };
                // The loop before has filled all slots but those that are taken whether an iteration comes or not.
                if plan.follows && iteration + self.always_taken() < self.ahead(group, level) {
                    continue;
                }
                let counter = self.later(lower, iteration, bounds);
                let comes = self.comes(lower, iteration, bounds);
                let continued = self.continued.clone();
                if iteration < self.always_taken() {
                    // Zeros, if it does not come.
                    self.continued = None;
                }
                *carried = self.level(group, level, (counter, Some(comes)), &last);
                self.continued = continued;
            }
        }
        carried
    }

    /// Where an iteration does what it does ahead: first, or while its first asynchronous product is under way.
    pub(super) fn place_ahead(&self) -> usize {
        let insts = &self.function.blocks[self.body].insts;
        let is_product = |inst: &Inst| matches!(self.function.insts[*inst].op, Op::Gpu(GpuOp::Wgmma { .. }));
        insts.iter().position(is_product).map_or(0, |place| place + 1)
    }

    /// Removes fences that were for stores alone that are gone: rings have their own.
    pub(super) fn remove_fences(&mut self) {
        let mut has_store = false;
        let mut insts = std::mem::take(&mut self.function.blocks[self.body].insts);
        insts.retain(|inst| {
            let data = &self.function.insts[*inst];
            if matches!(data.op, Op::Gpu(GpuOp::FenceProxy {})) {
                return std::mem::take(&mut has_store);
            }
            let mut note = |inst: Inst| {
                has_store |= matches!(self.function.insts[inst].op, Op::Gpu(GpuOp::LocalStore {}));
            };
            note(*inst);
            data.regions.iter().for_each(|region| self.function.walk(*region, &mut note));
            true
        });
        self.function.blocks[self.body].insts = insts;
    }

    /// What a level does for one iteration, from what is carried to what is carried on.
    fn level(
        &mut self,
        group: &Group,
        number: usize,
        (counter, comes): (Value, Option<Value>),
        carried: &[Carried],
    ) -> Carried {
        let level = &group.levels[number];
        let parameters = self.function.blocks[self.body].parameters.clone();
        let mut copies: FxHashMap<Value, Value> = FxHashMap::default();
        copies.insert(parameters[0], counter);
        let own = &carried[number].parameters;
        copies.extend(own.iter().map(|(number, value)| (parameters[*number as usize], *value)));
        if let Some(later) = carried.get(number + 1) {
            copies.extend(later.loaded.iter().map(|(of, value)| (*of, *value)));
        }
        for inst in &level.insts {
            self.copy(*inst, &mut copies);
        }
        let mut loaded = BTreeMap::new();
        if number == 0 {
            self.fill_slots(group, &copies, comes);
        } else {
            for inst in &level.loads {
                let value = self.load(*inst, &copies, comes);
                loaded.insert(self.function.insts[*inst].results[0], value);
            }
        }
        let yielded = self.function.yielded(self.body);
        let next = |number: &u32| {
            let value = yielded[*number as usize - 1];
            (*number, copies.get(&value).copied().unwrap_or(value))
        };
        Carried { parameters: level.parameters.iter().map(next).collect(), loaded }
    }

    /// A copy of an instruction of the body with other operands.
    pub(super) fn copy(&mut self, inst: Inst, copies: &mut FxHashMap<Value, Value>) {
        let data = self.function.insts[inst].clone();
        let operands = data.operands.iter().map(|value| *copies.get(value).unwrap_or(value)).collect();
        let regions = data.regions.iter().map(|region| self.function.clone_region(*region)).collect();
        let types: Vec<Type> = data.results.iter().map(|result| self.function.ty(*result).clone()).collect();
        let copy = self.function.create_inst(data.op, operands, regions, types, data.location);
        for (place, result) in data.results.iter().enumerate() {
            let made = self.function.insts[copy].results[place];
            let name = self.function.values[*result].name.clone();
            self.function.values[made].name = name;
            copies.insert(*result, made);
        }
        self.out.push(copy);
    }

    /// The mask of an access that is made only if an iteration comes.
    fn masked(
        &mut self,
        inst: Inst,
        copies: &FxHashMap<Value, Value>,
        comes: Option<Value>,
    ) -> Option<Value> {
        let data = &self.function.insts[inst];
        let (pointer, mask) = (data.operands[0], data.operands.get(1).copied());
        let Some(comes) = comes else { return mask.map(|mask| copies.get(&mask).copied().unwrap_or(mask)) };
        let ty = self.function.ty(pointer).clone();
        let tile = ty.as_registers().expect("pointers are in registers").with_dtype(Dtype::I1);
        let shape = tile.shape.clone();
        let ty = Type::registers(tile, ty.layout());
        let comes = if ty.layout().is_none() {
            comes
        } else {
            self.value(ir::Op::Splat { shape }, &[comes], ty.clone())
        };
        let Some(mask) = mask else { return Some(comes) };
        let equal_registers = match self.function.defining_op(mask) {
            Some(Op::Gpu(GpuOp::Elementwise { equal_registers, .. })) => *equal_registers,
            // tidy: wildcard because no other op says it
            _ => 0,
        };
        let mask = copies.get(&mask).copied().unwrap_or(mask);
        let op = GpuOp::Elementwise { function: ElementwiseFn::And, equal_registers };
        Some(self.value(op, &[mask, comes], ty))
    }

    /// A load of a later iteration to registers.
    fn load(&mut self, inst: Inst, copies: &FxHashMap<Value, Value>, comes: Option<Value>) -> Value {
        self.location = self.function.insts[inst].location;
        let mask = self.masked(inst, copies, comes);
        let data = self.function.insts[inst].clone();
        let copy = |value: Value| copies.get(&value).copied().unwrap_or(value);
        let mut operands = vec![copy(data.operands[0])];
        operands.extend(mask);
        operands.extend(data.operands.get(2).map(|other| copy(*other)));
        let ty = self.function.ty(data.results[0]).clone();
        self.value(data.op, &operands, ty)
    }

    /// The next slot of each ring of a group is copied to.
    fn fill_slots(&mut self, group: &Group, copies: &FxHashMap<Value, Value>, comes: Option<Value>) {
        for &place in &group.loads {
            let slot = self.acquire(place);
            self.fill(place, slot, copies, comes);
            self.emit(GpuOp::Publish {}, &[slot], None);
        }
    }

    /// The next slot of the ring of a load.
    pub(super) fn acquire(&mut self, number: usize) -> Value {
        let load = &self.plan.loads[number];
        self.location = self.function.insts[load.inst].location;
        let ty = Type::Empty(self.slot_type(load, 1));
        self.value(GpuOp::Acquire {}, &[self.rings[number]], ty)
    }

    /// A slot is filled with the box that begins there, where the load is known to be one.
    pub(super) fn fill_box(&mut self, number: usize, slot: Value, coordinates: &[Value]) {
        let plan = self.plan;
        let boxed = plan.loads[number].boxed.as_ref().expect("the load is a box");
        let map = map_for(self.header, self.function, boxed).expect("a box that is planned has a map");
        let operands: Vec<Value> = [slot, map].into_iter().chain(coordinates.iter().copied()).collect();
        self.emit(GpuOp::TensorFill {}, &operands, None);
    }

    /// A slot is filled. This is the one place that says by which instruction.
    fn fill(&mut self, number: usize, slot: Value, copies: &FxHashMap<Value, Value>, comes: Option<Value>) {
        let load = &self.plan.loads[number];
        let data = self.function.insts[load.inst].clone();
        let Op::Gpu(GpuOp::Load { cache, .. }) = data.op else {
            unreachable!("a ring is filled as a load says")
        };
        let mut pointer = copies.get(&data.operands[0]).copied().unwrap_or(data.operands[0]);
        if let Some(boxed) = &load.boxed
            && let Some(mark) = self.function.defining_inst(pointer)
            && let Some(map) = map_for(self.header, self.function, boxed)
        {
            let mut coordinates = boxed.coordinates(self.function, mark);
            if let Some(comes) = comes {
                if let Some(continued) = self.continued.clone() {
                    let counter = copies[&self.function.blocks[self.body].parameters[0]];
                    self.of_this_or_next(&mut coordinates, number, &continued, (counter, comes));
                } else {
                    let place = place_of_condition(self.function, &coordinates);
                    coordinates[place] = self.outside_unless(comes, coordinates[place]);
                }
            }
            let operands: Vec<Value> = [slot, map].into_iter().chain(coordinates).collect();
            self.emit(GpuOp::TensorFill {}, &operands, None);
            return;
        }
        // What is marked as a box may be copied as one yet, and each slot then.
        let is_box = matches!(self.function.defining_op(pointer), Some(Op::Gpu(GpuOp::TensorBox { .. })));
        if self.is_in_vain && !is_box {
            return;
        }
        let mut mask = self.masked(load.inst, copies, comes);
        if let Way::Buffer { shapes, .. } = &load.way {
            for shape in shapes {
                pointer = self.renamed(pointer, *shape);
                mask = mask.map(|mask| self.renamed(mask, *shape));
            }
        }
        let op = GpuOp::CopyAsync { cache, axis: load.axis, width: load.width };
        let operands: Vec<Value> = [slot, pointer].into_iter().chain(mask).collect();
        self.emit(op, &operands, None);
    }

    pub(super) fn outside_unless(&mut self, condition: Value, coordinate: Value) -> Value {
        let insts = outside_unless(self.function, condition, coordinate, self.location);
        self.out.extend(insts);
        self.function.insts[insts[1]].results[0]
    }

    /// A tile whose places are renamed as an instruction renames those of another one.
    fn renamed(&mut self, value: Value, shape: Inst) -> Value {
        let data = self.function.insts[shape].clone();
        let result = self.function.ty(data.results[0]).clone();
        let renamed = result.as_registers().expect("it renames places in registers").shape.clone();
        let tile = self.function.ty(value).as_registers().expect("it is in registers").with_shape(renamed);
        self.value(data.op, &[value], Type::registers(tile, result.layout()))
    }

    /// Slots are taken where an iteration begins, and stand for the buffers and loads: nothing can be copied of these any more.
    pub(super) fn take_slots(&mut self) -> Vec<Inst> {
        let plan = self.plan;
        let mut gone: FxHashSet<Inst> = FxHashSet::default();
        let mut behind: FxHashMap<Inst, Vec<Inst>> = FxHashMap::default();
        let mut before: FxHashMap<Inst, Inst> = FxHashMap::default();
        for (place, load) in plan.loads.iter().enumerate() {
            self.location = self.function.insts[load.inst].location;
            let ty = Type::Full(self.slot_type(load, 1));
            let ring = self.rings[place];
            match &load.way {
                Way::Buffer { shapes, alloc, store } => {
                    let data = &mut self.function.insts[*alloc];
                    data.op = GpuOp::Take {}.into();
                    data.operands = smallvec![ring];
                    let slot = data.results[0];
                    self.function.values[slot].ty = ty;
                    self.out.push(*alloc);
                    gone.extend(shapes.iter().chain([&load.inst, alloc, store]));
                }
                Way::Registers => {
                    let slot = self.value(GpuOp::Take {}, &[ring], ty);
                    let takes = std::mem::take(&mut self.out);
                    let read = self.read(load, slot);
                    self.emit(GpuOp::Release {}, &[slot], None);
                    let mut others = std::mem::replace(&mut self.out, takes);
                    if let Some(read) = read {
                        before.insert(load.inst, read);
                        others.retain(|inst| *inst != read);
                    }
                    behind.insert(load.inst, others);
                }
            }
        }
        self.release_slots();
        let takes = std::mem::take(&mut self.out);
        let mut rest = Vec::new();
        for inst in std::mem::take(&mut self.function.blocks[self.body].insts) {
            rest.extend(before.get(&inst));
            rest.extend((!gone.contains(&inst)).then_some(inst));
            rest.extend(behind.get(&inst).into_iter().flatten());
        }
        self.function.blocks[self.body].insts = rest;
        takes
    }

    /// What was a load reads a slot; where other elements are not zero, by a selection, which a read comes before.
    fn read(&mut self, load: &RingLoad, slot: Value) -> Option<Inst> {
        let data = self.function.insts[load.inst].clone();
        let op = GpuOp::LocalLoad { matrix: false };
        let &[_, mask, other] = &data.operands[..] else {
            let data = &mut self.function.insts[load.inst];
            (data.op, data.operands) = (op.into(), smallvec![slot]);
            return None;
        };
        let ty = self.function.ty(data.results[0]).clone();
        let read = self.emit(op, &[slot], Some(ty));
        let value = self.function.insts[read].results[0];
        let data = &mut self.function.insts[load.inst];
        data.op = GpuOp::Elementwise { function: ElementwiseFn::Select, equal_registers: 0 }.into();
        data.operands = smallvec![mask, value, other];
        Some(read)
    }

    /// Slots that stand for buffers are given back where the lives of these ended.
    fn release_slots(&mut self) {
        for inst in self.function.blocks[self.body].insts.clone() {
            let data = &self.function.insts[inst];
            let is_slot = |value: &Value| matches!(self.function.ty(*value), Type::Full(_));
            if matches!(data.op, Op::Gpu(GpuOp::Dealloc {})) && is_slot(&data.operands[0]) {
                self.function.insts[inst].op = GpuOp::Release {}.into();
            }
        }
    }

    /// What an iteration does ahead.
    fn steady_state(&mut self, bounds: &Bounds, initial: &[Vec<Carried>]) -> Vec<Inst> {
        let plan = self.plan;
        let counter = self.function.blocks[self.body].parameters[0];
        for (group, initial) in plan.groups.iter().zip(initial) {
            let inner: Vec<Carried> = initial.iter().map(|carried| self.parameters(carried)).collect();
            let mut next = Vec::new();
            for level in 0..inner.len() {
                let count = self.ahead(group, level);
                // A loop with a tail is left before the first iteration that would not come.
                let has_tail = plan.chain.as_ref().is_some_and(|chain| chain.has_tail);
                // Of itself an iteration knows that it comes.
                let comes = (!has_tail && count > 0).then(|| self.comes(counter, count, bounds));
                let later = self.later(counter, count, bounds);
                self.is_in_vain = plan.never_comes(count);
                next.push(self.level(group, level, (later, comes), &inner));
                self.is_in_vain = false;
            }
            for (carried, next) in initial.iter().zip(&next) {
                self.carry(carried, next);
            }
        }
        let mut ahead = std::mem::take(&mut self.out);
        if plan.overlap.is_some() {
            // One thread begins all copies at once.
            let is_acquire =
                |inst: &Inst| matches!(self.function.insts[*inst].op, Op::Gpu(GpuOp::Acquire {}));
            ahead.sort_by_key(|inst| !is_acquire(inst));
        }
        ahead
    }

    /// The parameters of the body for what is carried.
    fn parameters(&mut self, carried: &Carried) -> Carried {
        let (function, body) = (&mut *self.function, self.body);
        let mut add = |value: Value| {
            let ValueData { ty, name, .. } = function.values[value].clone();
            function.add_parameter(body, ty, name)
        };
        let parameters = carried.parameters.iter().map(|(number, value)| (*number, add(*value))).collect();
        let loaded = carried.loaded.iter().map(|(of, value)| (*of, add(*value))).collect();
        Carried { parameters, loaded }
    }

    /// What is carried, from before the loop and from one iteration to the next.
    fn carry(&mut self, initial: &Carried, next: &Carried) {
        let inst = self.plan.inst;
        let end = self.function.terminator(self.body).expect("a body yields");
        let all = |carried: &Carried| -> SmallVec<[Value; 8]> {
            carried.parameters.values().chain(carried.loaded.values()).copied().collect()
        };
        for (initial, next) in all(initial).into_iter().zip(all(next)) {
            self.function.insts[inst].operands.push(initial);
            self.function.insts[end].operands.push(next);
            let definition = Definition::Result(inst, self.function.insts[inst].results.len() as u32);
            let ty = self.function.ty(initial).clone();
            let result = self.function.values.push(ValueData { ty, definition, name: None });
            self.function.insts[inst].results.push(result);
        }
    }

    /// Takes the slots that no iteration takes, those of all rings in turn: tensor copies that nobody waits for would keep the
    /// memory to the end.
    fn take_what_is_left(&mut self) {
        let plan = self.plan;
        let has_tail = plan.chain.as_ref().is_some_and(|chain| chain.has_tail);
        let left = |number: usize| {
            let is_of_overlap = plan.overlap.as_ref().is_some_and(|overlap| overlap.load == number);
            let is_taken = is_of_overlap || plan.chain.is_some();
            match (&plan.flat, has_tail) {
                (Some(_), _) => self.distance,
                (None, true) => 0,
                (None, false) => self.distance - u32::from(is_taken),
            }
        };
        let left: Vec<u32> = (0..plan.loads.len()).map(left).collect();
        for turn in 0..self.distance {
            self.take_turn(|number| turn < left[number]);
        }
    }

    /// Takes a slot of each of some rings that tensor copies fill, and gives them back.
    pub(super) fn take_turn(&mut self, is_taken: impl Fn(usize) -> bool) {
        let plan = self.plan;
        let mut slots = Vec::new();
        for (number, load) in plan.loads.iter().enumerate() {
            if load.boxed.is_some() && is_taken(number) {
                let ty = Type::Full(self.slot_type(load, 1));
                slots.push(self.value(GpuOp::Take {}, &[self.rings[number]], ty));
            }
        }
        for slot in slots {
            self.emit(GpuOp::Release {}, &[slot], None);
        }
    }

    /// The ends of the rings.
    pub(super) fn ends(&mut self) -> Vec<Inst> {
        let inst = self.plan.inst;
        if let Op::Tile(ir::Op::For { options }) = &mut self.function.insts[inst].op {
            options.num_stages = 1;
            if self.plan.is_short {
                options.unroll_factor = 1;
            }
        }
        self.location = self.function.insts[inst].location;
        // The next loop goes on with the rings.
        if self.plan.next.is_none() {
            self.take_what_is_left();
            for ring in self.rings.clone() {
                self.emit(GpuOp::Dealloc {}, &[ring], None);
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Puts what comes before an instruction of a block there, and what comes behind it.
    pub(super) fn put(&mut self, block: Block, inst: Inst, before: Vec<Inst>, behind: Vec<Inst>) {
        let insts = &mut self.function.blocks[block].insts;
        let place = insts.iter().position(|other| *other == inst).expect("the loop stands in its block");
        insts.splice(place..=place, before.into_iter().chain([inst]).chain(behind));
    }
}
