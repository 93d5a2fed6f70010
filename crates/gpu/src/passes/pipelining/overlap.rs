//! A product that runs beside what the next iteration computes.
//!
//! A body that computes scores by one product, weights from these, and sums up by a second product with the weights, as
//! attention does, leaves the tensor cores idle while it computes weights. So an iteration begins the second product late: the
//! body becomes the late part of one iteration and the early part of the next.
//!
//! ```text
//!                                         %s = finish (product %q, k(0)) ; %w = … %s        before the loop
//! for %i carry %o {                       for %i to less one carry %o, %w {
//!   %s = finish (product %q, k(%i))         %t = product %q, k(%i + 1)
//!   %w = … %s                        =>     %u = product (cast %w), v(%i), %o
//!   %o.1 = finish (product %w, v(%i), %o)   %s = finish %t ; %w.1 = … %s
//! }                                         %o.1 = finish %u
//!                                         } ; finish (product %w, v(last), %o)              if there is an iteration
//! ```
//! The early part is computed for the first iteration before the loop, whether that comes or not: slots of iterations that do not
//! come are zeros, and what the loop carries is selected. (FlashAttention-3, arXiv 2407.08608, overlaps a warpgroup with itself
//! so.)

use std::collections::BTreeSet;

use cranelift_entity::EntitySet;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{
    Block, BlockData, Definition, Effect, ElementwiseFn, Inst, OpFamily, Operation, Value, ValueData,
};

use super::emit::{Bounds, Emit};
use super::plan::{Body, RingLoad, Way};
use crate::cost_model;
use crate::language::{Deferred, GpuOp, Op, Type};
use crate::layout_rules::element_bits;
use crate::target::WARPGROUP_WARPS;

/// How the body of a loop is divided.
pub struct Overlap {
    /// The product that is begun an iteration late.
    pub product: Inst,
    /// The load that it alone reads, by its number.
    pub load: usize,
    /// What belongs to the late part: the product, what depends on it, and what its accumulator alone needs.
    pub late: FxHashSet<Inst>,
    /// What A of the product alone is made by, of the early part: the registers that it writes, the product reads.
    pub last: FxHashSet<Inst>,
    /// With what the late part leaves the sum as it is, if that is known.
    pub neutral: Option<Neutral>,
}

/// Where slots are zeros and one value is ones, a late part that multiplies a sum and adds a product to it does nothing.
pub struct Neutral {
    /// What A of the product is, or is converted from: any finite numbers.
    pub zeros: Value,
    /// What the sum is multiplied by.
    pub ones: Option<Value>,
}

/// The late part of a loop's last iteration, for the next loop to run beside what that computes first.
pub(super) struct Tail {
    /// Up to where its product begins.
    begin: Vec<Inst>,
    end: Vec<Inst>,
}

/// What comes before the first iteration of a loop that goes on where another one ended.
pub(super) struct Before {
    pub tail: Tail,
    pub fills: Vec<Inst>,
}

impl Body<'_> {
    /// How the body can be divided, if it can.
    pub(super) fn overlap(&self, loads: &[RingLoad]) -> Option<Overlap> {
        let function = self.function;
        let insts = &function.blocks[self.block].insts;
        let is_product = |inst: &Inst| matches!(function.insts[*inst].op, Op::Gpu(GpuOp::Wgmma { .. }));
        let products: Vec<Inst> = insts.iter().copied().filter(is_product).collect();
        let &[first, product] = &products[..] else { return None };
        let load = loads.iter().position(|load| self.is_read_by_alone(load, product))?;
        let mut late = self.depending(product)?;
        if late.contains(&first) {
            return None;
        }
        let mut needed: FxHashSet<Value> = [function.insts[product].operands[0]].into_iter().collect();
        let mut last = FxHashSet::default();
        for inst in self.exclusive(&late) {
            let data = &function.insts[inst];
            if data.results.iter().any(|value| needed.contains(value)) {
                needed.extend(&data.operands);
                last.insert(inst);
            } else {
                late.insert(inst);
            }
        }
        let Way::Buffer { alloc, .. } = &loads[load].way else { return None };
        let memory = function.insts[*alloc].results[0];
        let ends = self.uses.of[memory].iter().copied();
        late.extend(ends.filter(|user| matches!(function.insts[*user].op, Op::Gpu(GpuOp::Dealloc {}))));
        late.insert(*alloc);
        let may_run_apart =
            insts.iter().all(|inst| self.is_early_or_late(*inst, &late, loads)) && self.fits(product, first);
        let neutral = self.neutral(product, &late, &last);
        may_run_apart.then_some(Overlap { product, load, late, last, neutral })
    }

    /// With what the late part leaves the sum as it is, if it does no more than to multiply that and to add a product.
    fn neutral(&self, product: Inst, late: &FxHashSet<Inst>, last: &FxHashSet<Inst>) -> Option<Neutral> {
        let function = self.function;
        let [mut zeros, sum] = [0, 2].map(|place| function.insts[product].operands[place]);
        while let Some(inst) = function.defining_inst(zeros).filter(|inst| last.contains(inst)) {
            zeros = function.insts[inst].operands[0];
        }
        // Registers of less are carried in pairs.
        function.ty(zeros).as_registers().filter(|tile| element_bits(tile) == 32)?;
        let mut known: FxHashSet<Inst> = [product].into_iter().collect();
        let is_carried = |value: Value| matches!(function.values[value].definition, Definition::Parameter(block, _) if block == self.block);
        let mut ones = None;
        if !is_carried(sum) {
            let scaling = function.defining_inst(sum)?;
            let data = &function.insts[scaling];
            let &Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Mul, .. }) = &data.op else {
                return None;
            };
            known.insert(scaling);
            let mut factor = data.operands[1];
            if !is_carried(data.operands[0]) {
                return None;
            }
            while let Some(inst) = function.defining_inst(factor).filter(|inst| late.contains(inst)) {
                function.insts[inst].op.as_tile().and_then(ir::Op::as_shape)?;
                known.insert(inst);
                factor = function.insts[inst].operands[0];
            }
            ones = Some(factor);
        }
        let is_known = |inst: &Inst| {
            let is_own = matches!(
                function.insts[*inst].op,
                Op::Gpu(GpuOp::Finish { .. } | GpuOp::Alloc { .. } | GpuOp::Dealloc {})
            );
            is_own || known.contains(inst)
        };
        let is_late = |value: Value| function.defining_inst(value).is_some_and(|inst| late.contains(&inst));
        (late.iter().all(is_known) && !is_late(zeros)).then_some(Neutral { zeros, ones })
    }

    /// Whether a product reads what was loaded, as B, and nothing else does.
    fn is_read_by_alone(&self, load: &RingLoad, product: Inst) -> bool {
        let function = self.function;
        let Way::Buffer { alloc, .. } = &load.way else { return false };
        let memory = function.insts[*alloc].results[0];
        let [a, b] = [0, 1].map(|place| function.insts[product].operands[place]);
        let reads = self.uses.of[memory].iter().filter(|user| {
            !matches!(function.insts[**user].op, Op::Gpu(GpuOp::LocalStore {} | GpuOp::Dealloc {}))
        });
        b == memory && function.ty(a).as_registers().is_some() && reads.count() == 1
    }

    /// What depends on a product, or on what it was in the iteration before: the accumulator and what is made of it.
    fn depending(&self, product: Inst) -> Option<FxHashSet<Inst>> {
        let function = self.function;
        let mut late: FxHashSet<Inst> = [product].into_iter().collect();
        let mut work: Vec<Value> = function.insts[product].results.to_vec();
        let mut seen = EntitySet::new();
        while let Some(value) = work.pop() {
            if !seen.insert(value) {
                continue;
            }
            for user in self.uses.of[value].iter().copied() {
                // What is used in a region belongs to what has the region.
                self.place(user)?;
                let data = &function.insts[user];
                if data.op.info().effect == Effect::Terminator {
                    let places = (0..data.operands.len()).filter(|place| data.operands[*place] == value);
                    work.extend(places.map(|place| function.blocks[self.block].parameters[place + 1]));
                } else {
                    late.insert(user);
                    work.extend(&data.results);
                }
            }
        }
        Some(late)
    }

    /// What only the late part needs and costs little, conversions and changes of shape: the last ones first.
    fn exclusive(&self, late: &FxHashSet<Inst>) -> Vec<Inst> {
        let function = self.function;
        let mut found: Vec<Inst> = Vec::new();
        for inst in function.blocks[self.block].insts.iter().rev() {
            let data = &function.insts[*inst];
            let op = data.op.as_tile();
            let is_cheap =
                matches!(op, Some(ir::Op::Cast { .. })) || op.is_some_and(|op| op.as_shape().is_some());
            let is_own = |value: &Value| {
                let users = &self.uses.of[*value];
                let is_late = |user: &Inst| late.contains(user) || found.contains(user);
                function.ty(*value).layout().is_some() && !users.is_empty() && users.iter().all(is_late)
            };
            if is_cheap && !late.contains(inst) && data.results.iter().all(is_own) {
                found.push(*inst);
            }
        }
        found
    }

    /// Whether an instruction may be where it would be: the early part once more before the loop, the late part behind it.
    fn is_early_or_late(&self, inst: Inst, late: &FxHashSet<Inst>, loads: &[RingLoad]) -> bool {
        let function = self.function;
        let data = &function.insts[inst];
        let info = data.op.info();
        let carried = |value: &Value| match function.values[*value].definition {
            Definition::Parameter(block, place) if block == self.block => Some(place),
            Definition::Parameter(..) | Definition::Result(..) => None,
        };
        if info.effect == Effect::Terminator {
            // The early part ends an iteration ahead of the counter, and of what the late part carries.
            let is_behind = |place: u32| place == 0 || self.is_yielded_late(place, late);
            return !data.operands.iter().filter_map(carried).any(is_behind);
        }
        if late.contains(&inst) {
            let is_late = |value: &Value| {
                carried(value).is_none_or(|place| place > 0 && self.is_yielded_late(place, late))
            };
            let is_own = matches!(
                data.op,
                Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::Finish { .. } | GpuOp::Alloc { .. } | GpuOp::Dealloc {})
            );
            let is_plain = info.effect == Effect::Pure && data.regions.is_empty();
            return (is_own || is_plain) && data.operands.iter().all(is_late);
        }
        let mut inner = true;
        for region in &data.regions {
            function.walk(*region, &mut |user| {
                let from_body = |value: &Value| match function.values[*value].definition {
                    Definition::Parameter(block, _) => block == self.block,
                    Definition::Result(inst, _) => self.place(inst).is_some(),
                };
                inner &= !function.insts[user].operands.iter().any(from_body);
            });
        }
        let may_repeat = match &data.op {
            Op::Gpu(GpuOp::Load { .. }) => loads.iter().any(|load| load.inst == inst),
            Op::Gpu(
                GpuOp::Wgmma { .. }
                | GpuOp::Finish { .. }
                | GpuOp::FenceProxy {}
                | GpuOp::Alloc { .. }
                | GpuOp::LocalStore {}
                | GpuOp::LocalLoad { .. }
                | GpuOp::Dealloc {},
            ) => true,
            // tidy: wildcard because all others may if they only compute
            _ => info.effect == Effect::Pure,
        };
        inner && may_repeat && !matches!(info.family, OpFamily::Loop | OpFamily::Branch)
    }

    fn is_yielded_late(&self, place: u32, late: &FxHashSet<Inst>) -> bool {
        let value = self.function.yielded(self.block)[place as usize - 1];
        self.function.defining_inst(value).is_some_and(|inst| late.contains(&inst))
    }

    /// Whether both accumulators and the weights are likely to have room.
    fn fits(&self, product: Inst, first: Inst) -> bool {
        let function = self.function;
        let threads = self.header.num_warps * 32;
        let words = |value: Value| {
            let Some(tile) = function.ty(value).as_registers() else { return 0 };
            let bits = tile.dtype().map_or(64, ir::Dtype::bits);
            tile.shape.iter().product::<u32>() * bits / 32 / threads
        };
        let [weights, sums] = [0, 2].map(|place| words(function.insts[product].operands[place]));
        let scores = words(function.insts[first].operands[2]);
        cost_model::fits(weights + sums + scores, threads)
    }
}

/// What is known where the parts are put together.
struct Parts {
    early: Vec<Inst>,
    late: Vec<Inst>,
    /// Made by the early part for the late one.
    crossing: Vec<Value>,
    /// By the place among what the loop carries.
    is_late: Vec<bool>,
}

impl Emit<'_> {
    /// Divides the body of the loop, which carried so many values of its own. `takes` and `ahead` are what an iteration does besides;
    /// given back is what comes behind the loop, or beside the beginning of the next one.
    pub(super) fn overlap(
        &mut self,
        overlap: &Overlap,
        carried: usize,
        (takes, ahead): (Vec<Inst>, Vec<Inst>),
        bounds: &Bounds,
        (before, beside): (&mut Vec<Inst>, Option<Before>),
    ) -> (Vec<Inst>, Option<Tail>) {
        let parts = self.parts(overlap, carried, takes);
        self.out = std::mem::take(before);
        let (comes, first) = self.first_iteration(overlap, &parts, bounds, beside);
        let loop_inst = self.plan.inst;
        for (place, value) in first.iter().enumerate().take(carried) {
            if !parts.is_late[place] {
                self.function.insts[loop_inst].operands[place + 3] = *value;
            }
        }
        let crossed = first[carried..].to_vec();
        *before = std::mem::take(&mut self.out);
        self.divided_body(overlap, &parts, ahead, bounds);
        let last = self.carry_crossing(&parts, &crossed);
        self.function.insts[loop_inst].operands[1] = bounds.end(1);
        let joined = self.plan.next.as_ref().and_then(|link| link.joined);
        let tail = joined.map(|next| self.tail_for_next(overlap, &parts, &last, next));
        if tail.is_none() {
            self.last_iteration(overlap, &parts, comes, &last);
        }
        self.finish_behind(&parts);
        (std::mem::take(&mut self.out), tail)
    }

    fn parts(&mut self, overlap: &Overlap, carried: usize, takes: Vec<Inst>) -> Parts {
        let mut insts = takes;
        insts.append(&mut self.function.blocks[self.body].insts);
        let end = insts.pop().expect("a body yields");
        self.function.blocks[self.body].insts = vec![end];
        let (late, early): (Vec<Inst>, Vec<Inst>) =
            insts.into_iter().partition(|inst| overlap.late.contains(inst));
        let made: FxHashSet<Value> =
            early.iter().flat_map(|inst| self.function.insts[*inst].results.clone()).collect();
        let mut crossing = Vec::new();
        for value in late.iter().flat_map(|inst| &self.function.insts[*inst].operands) {
            if made.contains(value) && !crossing.contains(value) {
                crossing.push(*value);
            }
        }
        let is_late = |value: &Value| {
            self.function.defining_inst(*value).is_some_and(|inst| overlap.late.contains(&inst))
        };
        let yielded = &self.function.insts[end].operands;
        let is_late = yielded.iter().take(carried).map(is_late).collect();
        Parts { early, late, crossing, is_late }
    }

    /// The early part of the first iteration, beside the late part of the last one of the loop before: whether it comes, what the
    /// loop carries behind it, and what crosses.
    fn first_iteration(
        &mut self,
        overlap: &Overlap,
        parts: &Parts,
        bounds: &Bounds,
        beside: Option<Before>,
    ) -> (Value, Vec<Value>) {
        let operands = self.function.insts[self.plan.inst].operands.clone();
        let comes = self.comes(operands[0], 0, bounds);
        let parameters = self.function.blocks[self.body].parameters.clone();
        let initial = [operands[0]].into_iter().chain(operands[3..].iter().copied());
        let mut copies: FxHashMap<Value, Value> = parameters.into_iter().zip(initial).collect();
        let end = if let Some(beside) = beside {
            self.early_beside(overlap, parts, &mut copies, beside)
        } else {
            for inst in &parts.early {
                self.copy_neutral(*inst, overlap, comes, &mut copies);
            }
            Vec::new()
        };
        let own: BTreeSet<usize> = (0..parts.is_late.len()).filter(|place| !parts.is_late[*place]).collect();
        let yielded = self.function.yielded(self.body).to_vec();
        let mut values = Vec::new();
        for place in 0..parts.is_late.len() {
            let before = operands[place + 3];
            if !own.contains(&place) {
                values.push(before);
                continue;
            }
            let value = copies.get(&yielded[place]).copied().unwrap_or(yielded[place]);
            values.push(self.selected(comes, value, before));
        }
        if !end.is_empty() {
            let is_finish =
                |inst: &&Inst| matches!(self.function.insts[**inst].op, Op::Gpu(GpuOp::Finish { .. }));
            let finish = end.iter().find(is_finish).copied();
            let last = self.last_wide(parts).and_then(|last| copies.get(&last).copied());
            if let (Some(last), Some(finish)) = (last, finish) {
                self.function.insts[finish].operands.push(last);
            }
            self.out.extend(end);
            let is_last = |inst: &&Inst| overlap.last.contains(*inst);
            parts.early.iter().filter(is_last).for_each(|inst| self.copy(*inst, &mut copies));
        }
        let neutral = self.neutral_wanted(overlap);
        for value in &parts.crossing {
            let number = match neutral {
                Some(neutral) if *value == neutral.zeros => Some(0.0),
                Some(neutral) if neutral.ones == Some(*value) => Some(1.0),
                Some(_) | None => None,
            };
            let crossed = copies[value];
            values.push(number.map_or(crossed, |number| self.where_it_comes(comes, crossed, number)));
        }
        (comes, values)
    }

    /// With what the late part does nothing, if that is computed whether there is an iteration or not.
    fn neutral_wanted<'o>(&self, overlap: &'o Overlap) -> Option<&'o Neutral> {
        let is_joined = self.plan.next.as_ref().is_some_and(|link| link.joined.is_some());
        overlap.neutral.as_ref().filter(|_| is_joined)
    }

    /// Copies an instruction of the early part; what A is converted from is zeros if the iteration does not come.
    fn copy_neutral(
        &mut self,
        inst: Inst,
        overlap: &Overlap,
        comes: Value,
        copies: &mut FxHashMap<Value, Value>,
    ) {
        let zeros = self.neutral_wanted(overlap).map(|neutral| neutral.zeros);
        let of_zeros = zeros.filter(|_| overlap.last.contains(&inst)).and_then(|zeros| {
            let known = copies.get(&zeros).copied()?;
            self.function.insts[inst].operands.contains(&zeros).then_some((zeros, known))
        });
        let Some((zeros, known)) = of_zeros else { return self.copy(inst, copies) };
        let selected = self.where_it_comes(comes, known, 0.0);
        copies.insert(zeros, selected);
        self.copy(inst, copies);
        copies.insert(zeros, known);
    }

    /// A tile, or one of the same number if an iteration does not come.
    fn where_it_comes(&mut self, comes: Value, tile: Value, number: f64) -> Value {
        let other = self.filled(tile, number);
        self.selected(comes, tile, other)
    }

    /// The early part without its end, its products begun before the late product of the loop before, and slots filled where an
    /// iteration fills them: what is to come behind it.
    fn early_beside(
        &mut self,
        overlap: &Overlap,
        parts: &Parts,
        copies: &mut FxHashMap<Value, Value>,
        Before { tail, fills }: Before,
    ) -> Vec<Inst> {
        let early: Vec<Inst> =
            parts.early.iter().copied().filter(|inst| !overlap.last.contains(inst)).collect();
        let [first, second] = self.places_beside(&early);
        for (place, inst) in early.into_iter().enumerate() {
            if place == first {
                self.out.extend(&tail.begin);
            }
            if place == second {
                self.out.extend(&fills);
            }
            self.copy(inst, copies);
            let copy = *self.out.last().expect("it was copied");
            if let Op::Gpu(GpuOp::Finish { pending }) = &mut self.function.insts[copy].op {
                *pending = Deferred(None);
            }
        }
        tail.end
    }

    /// Where the late product begins in an early part, and where slots are filled.
    fn places_beside(&self, early: &[Inst]) -> [usize; 2] {
        let is_finish = |inst: &Inst| matches!(self.function.insts[*inst].op, Op::Gpu(GpuOp::Finish { .. }));
        let finish = early.iter().position(is_finish).unwrap_or(early.len());
        // One warpgroup may be ahead of another up to where slots are filled, which is to come in time for the next iteration.
        let is_reduction = |inst: &Inst| self.function.insts[*inst].op.info().family == OpFamily::Reduction;
        let reduction = early[finish..].iter().position(is_reduction);
        let reduction = reduction.filter(|_| self.num_warps() > WARPGROUP_WARPS);
        [finish, finish + reduction.map_or(0, |place| place + 1)]
    }

    /// One of two values by a scalar condition.
    fn selected(&mut self, condition: Value, yes: Value, no: Value) -> Value {
        if yes == no {
            return yes;
        }
        let ty = self.function.ty(yes).clone();
        let tile = ty.as_registers().expect("what is carried is in registers").clone();
        let condition = if ty.layout().is_none() {
            condition
        } else {
            let shape = tile.shape.clone();
            let bools = Type::registers(tile.with_dtype(ir::Dtype::I1), ty.layout());
            self.value(ir::Op::Splat { shape }, &[condition], bools)
        };
        self.elementwise(ElementwiseFn::Select, &[condition, yes, no], ty)
    }

    /// The late part of an iteration, and the early part of the next one, its products begun before those of the late part.
    fn divided_body(&mut self, overlap: &Overlap, parts: &Parts, ahead: Vec<Inst>, bounds: &Bounds) {
        let counter = self.function.blocks[self.body].parameters[0];
        let next = self.later(counter, 1, bounds);
        for inst in &parts.early {
            if let Op::Gpu(GpuOp::Finish { pending }) = &mut self.function.insts[*inst].op {
                // The product of the late part is under way; how many that makes is counted when rings are lowered.
                *pending = Deferred(None);
            }
            for operand in &mut self.function.insts[*inst].operands {
                if *operand == counter {
                    *operand = next;
                }
            }
        }
        let [finish, ahead_place] = self.places_beside(&parts.early);
        let product = parts.late.iter().position(|inst| *inst == overlap.product);
        let behind = product.expect("the product is of the late part") + 1;
        let mut insts = std::mem::take(&mut self.out);
        let (first, rest) = parts.early.split_at(finish);
        let (before, rest) = rest.split_at(ahead_place - finish);
        let is_last = |inst: &&Inst| overlap.last.contains(inst);
        insts.extend(first.iter().filter(|inst| !is_last(inst)));
        insts.extend(&parts.late[..behind]);
        insts.extend(before.iter().filter(|inst| !is_last(inst)));
        insts.extend(ahead);
        insts.extend(rest.iter().filter(|inst| !is_last(inst)));
        insts.extend(&parts.late[behind..]);
        insts.extend(parts.early.iter().filter(is_last));
        self.function.blocks[self.body].insts.splice(0..0, insts);
    }

    /// Carries what crosses from one iteration to the next: what it is behind the loop.
    fn carry_crossing(&mut self, parts: &Parts, initial: &[Value]) -> Vec<Value> {
        let loop_inst = self.plan.inst;
        let end = self.function.terminator(self.body).expect("a body yields");
        let mut last = Vec::new();
        for (value, initial) in parts.crossing.iter().zip(initial) {
            let ValueData { ty, name, .. } = self.function.values[*value].clone();
            let parameter = self.function.add_parameter(self.body, ty.clone(), name);
            for inst in &parts.late {
                for operand in &mut self.function.insts[*inst].operands {
                    if operand == value {
                        *operand = parameter;
                    }
                }
            }
            self.function.insts[loop_inst].operands.push(*initial);
            self.function.insts[end].operands.push(*value);
            last.push(self.add_result(loop_inst, ty));
        }
        last
    }

    pub(super) fn add_result(&mut self, inst: Inst, ty: Type) -> Value {
        let definition = Definition::Result(inst, self.function.insts[inst].results.len() as u32);
        let value = self.function.values.push(ValueData { ty, definition, name: None });
        self.function.insts[inst].results.push(value);
        value
    }

    /// The late part of the last iteration for the next loop, whose sum it makes. If there was none it
    /// adds zeros.
    fn tail_for_next(&mut self, overlap: &Overlap, parts: &Parts, last: &[Value], next: Inst) -> Tail {
        let loop_inst = self.plan.inst;
        let parameters = self.function.blocks[self.body].parameters.clone();
        let crossed = &parameters[parameters.len() - last.len()..];
        let mut copies: FxHashMap<Value, Value> = crossed.iter().copied().zip(last.iter().copied()).collect();
        let late: Vec<usize> = (0..parts.is_late.len()).filter(|place| parts.is_late[*place]).collect();
        let results = self.function.insts[loop_inst].results.clone();
        copies.extend(late.iter().map(|place| (parameters[place + 1], results[*place])));
        let product = parts.late.iter().position(|inst| *inst == overlap.product);
        let behind = product.expect("the product is of the late part") + 1;
        parts.late[..behind].iter().for_each(|inst| self.copy(*inst, &mut copies));
        let begin = std::mem::take(&mut self.out);
        parts.late[behind..].iter().for_each(|inst| self.copy(*inst, &mut copies));
        let end = std::mem::take(&mut self.out);
        for place in late {
            let sum = copies[&self.function.yielded(self.body)[place]];
            for operand in &mut self.function.insts[next].operands {
                if *operand == results[place] {
                    *operand = sum;
                }
            }
        }
        Tail { begin, end }
    }

    /// A tile like another one of one number.
    fn filled(&mut self, like: Value, number: f64) -> Value {
        let ty = self.function.ty(like).clone();
        let tile = ty.as_registers().expect("what crosses is in registers").clone();
        let dtype = tile.dtype().expect("what is multiplied are numbers");
        let zero = ir::Literal { dtype, bits: 0 };
        let value = if number == 0.0 { zero } else { ir::Literal::float(dtype, number).unwrap_or(zero) };
        let scalar = Type::scalar(ir::Type::scalar(dtype));
        let scalar = self.value(ir::Op::Constant { value }, &[], scalar);
        self.value(ir::Op::Splat { shape: tile.shape.clone() }, &[scalar], ty)
    }

    /// The late part of the last iteration, if there was one.
    fn last_iteration(&mut self, overlap: &Overlap, parts: &Parts, comes: Value, last: &[Value]) {
        let loop_inst = self.plan.inst;
        let count = parts.is_late.len();
        let parameters = self.function.blocks[self.body].parameters.clone();
        let crossed = &parameters[parameters.len() - last.len()..];
        let mut copies: FxHashMap<Value, Value> = crossed.iter().copied().zip(last.iter().copied()).collect();
        let mut results: SmallVec<[Value; 1]> = smallvec![];
        let (mut yielded, mut kept) = (Vec::new(), Vec::new());
        for place in (0..count).filter(|place| parts.is_late[*place]) {
            // What was the result of the loop is that of the branch.
            let result = self.function.insts[loop_inst].results[place];
            let definition = self.function.values[result].definition;
            let ty = self.function.ty(result).clone();
            let own = self.function.values.push(ValueData { ty, definition, name: None });
            self.function.insts[loop_inst].results[place] = own;
            copies.insert(parameters[place + 1], own);
            results.push(result);
            yielded.push(self.function.yielded(self.body)[place]);
            kept.push(own);
        }
        let is_of_ring = |emit: &Self, inst: Inst| {
            matches!(emit.function.insts[inst].op, Op::Gpu(GpuOp::Take {} | GpuOp::Release {}))
        };
        let (of_ring, inside): (Vec<Inst>, Vec<Inst>) =
            parts.late.iter().copied().partition(|inst| is_of_ring(self, *inst));
        let is_take =
            |emit: &Self, inst: Inst| matches!(emit.function.insts[inst].op, Op::Gpu(GpuOp::Take {}));
        for inst in of_ring.iter().copied().filter(|inst| is_take(self, *inst)).collect::<Vec<_>>() {
            self.copy(inst, &mut copies);
        }
        let outside = std::mem::take(&mut self.out);
        for inst in inside {
            self.copy(inst, &mut copies);
        }
        let yielded: Vec<Value> = yielded.iter().map(|value| copies[value]).collect();
        self.emit(ir::Op::Yield {}, &yielded, None);
        let then = std::mem::replace(&mut self.out, outside);
        let then = self.region(then);
        let outside = std::mem::take(&mut self.out);
        self.emit(ir::Op::Yield {}, &kept, None);
        let otherwise = std::mem::replace(&mut self.out, outside);
        let otherwise = self.region(otherwise);
        let branch = self.emit(ir::Op::If {}, &[comes], None);
        self.function.insts[branch].regions = smallvec![then, otherwise];
        for (place, result) in results.iter().enumerate() {
            self.function.values[*result].definition = Definition::Result(branch, place as u32);
        }
        self.function.insts[branch].results = results;
        let releases: Vec<Inst> = of_ring.into_iter().filter(|inst| !is_take(self, *inst)).collect();
        for inst in releases {
            self.copy(inst, &mut copies);
        }
        debug_assert!(parts.late.contains(&overlap.product));
    }

    /// The tile that the early part computes last for the next iteration.
    fn last_wide(&self, parts: &Parts) -> Option<Value> {
        let is_wide = |value: &Value| {
            let tile = self.function.ty(*value).as_registers();
            tile.is_some_and(|tile| tile.rank() > 0 && element_bits(tile) == 32)
        };
        let yielded: FxHashSet<Value> = self.function.yielded(self.body).iter().copied().collect();
        let results = parts.early.iter().rev().flat_map(|inst| &self.function.insts[*inst].results);
        results.copied().find(|value| yielded.contains(value) && is_wide(value))
    }

    /// The late product is waited for behind what the early part computes last.
    fn finish_behind(&mut self, parts: &Parts) {
        let last = self.last_wide(parts);
        let is_finish = |inst: &Inst| matches!(self.function.insts[*inst].op, Op::Gpu(GpuOp::Finish { .. }));
        let finish = parts.late.iter().copied().find(is_finish);
        if let (Some(last), Some(finish)) = (last, finish) {
            self.function.insts[finish].operands.push(last);
        }
    }

    fn region(&mut self, insts: Vec<Inst>) -> Block {
        self.function.blocks.push(BlockData { parameters: smallvec![], insts })
    }
}
