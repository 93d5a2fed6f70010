//! A product that runs into the next iteration.
//!
//! Products that sum up in the same registers end in the order in which they were begun, so the next one need not wait for the
//! last: what has to wait is who writes a slot that the last one reads.
//!
//! ```text
//!                                       %a = take %r ; %p = product %a, %zero             before the loop
//! for %i carry %sum {                   for %i to less one carry %p, %a {
//!   %a = take %r                          %b = take %r
//!   %sum.1 = finish (product %a, %sum)    %q = product %b, %p
//!   release %a                      =>    %q.1 = settle %q                                but one product has ended
//!   acquire, copy, publish                release %a ; acquire, copy, publish
//! }                                     } ; %sum = finish %p ; release %a
//! ```
//! The first iteration stands before the loop, whether it comes or not: slots of iterations that do not come are zeros.

use rustc_hash::FxHashMap;
use smallvec::smallvec;
use tilewright_ir as ir;
use tilewright_ir::{
    BlockData, Definition, Dtype, Effect, Inst, LoopOptions, OpFamily, Operation, Value, ValueData,
};

use super::emit::{Bounds, Emit};
use super::flatten::{Ahead, Flat};
use super::plan::{Body, RingLoad, Way};
use crate::language::{Deferred, GpuOp, Op, Type};
use crate::layout_rules::element_bits;

/// The product of a loop that does nothing else with what it loads.
pub struct Chain {
    pub product: Inst,
    /// The wait for it.
    pub finish: Inst,
    /// Which of the values that the loop carries is the sum.
    pub place: usize,
    /// The last slots are multiplied behind the loop.
    pub has_tail: bool,
}

impl Body<'_> {
    /// The product of the loop, if it may run into the next iteration.
    pub(super) fn chain(&self, loads: &[RingLoad]) -> Option<Chain> {
        let function = self.function;
        let insts = &function.blocks[self.block].insts;
        let is_dot = |inst: &Inst| function.insts[*inst].op.info().family == OpFamily::Dot;
        let products: Vec<Inst> = insts.iter().copied().filter(is_dot).collect();
        let &[product] = &products[..] else { return None };
        let data = &function.insts[product];
        let Op::Gpu(GpuOp::Wgmma { max_imprecise_acc: 0, .. }) = data.op else { return None };
        let &[a, b, sum] = &data.operands[..] else { return None };
        // An operand in registers would be written while the product reads it, and one of other memory may be infinite: times the
        // zeros of a slot whose iteration does not come that is no number.
        let is_slot = |value: &Value| {
            loads.iter().any(|load| match &load.way {
                Way::Buffer { alloc, .. } => function.insts[*alloc].results[0] == *value,
                Way::Registers => false,
            })
        };
        if ![a, b].iter().all(is_slot) {
            return None;
        }
        let is_of_product = |load: &RingLoad| match &load.way {
            Way::Buffer { alloc, .. } => [a, b].contains(&function.insts[*alloc].results[0]),
            Way::Registers => false,
        };
        if !loads.iter().all(is_of_product) {
            return None;
        }
        let only_user = |value: Value| match self.uses.of[value][..] {
            [user] => Some(user),
            _ => None,
        };
        let finish = only_user(data.results[0]).filter(|inst| self.place(*inst).is_some())?;
        let finished = &function.insts[finish];
        let is_finish = matches!(finished.op, Op::Gpu(GpuOp::Finish { .. })) && finished.operands.len() == 1;
        let Definition::Parameter(block, number) = function.values[sum].definition else { return None };
        let place = (number as usize).checked_sub(1).filter(|_| block == self.block)?;
        let yields = only_user(finished.results[0]) == function.terminator(self.block)
            && function.yielded(self.block)[place] == finished.results[0];
        let is_word = function.ty(sum).as_registers().is_some_and(|tile| element_bits(tile) == 32);
        let is_alone = only_user(sum) == Some(product) && is_finish && yields && is_word;
        let may_repeat = insts.iter().all(|inst| {
            [product, finish].contains(inst)
                || self.is_plain(*inst)
                || is_of_load(loads, *inst)
                || self.is_of_buffer(loads, *inst)
        });
        // What else is carried is for addresses alone, which are computed ahead.
        let results = &function.insts[self.inst].results;
        let is_sum =
            (0..results.len()).all(|other| other == place || self.uses.of[results[other]].is_empty());
        let has_tail = loads.iter().all(|load| load.boxed.is_some());
        (is_alone && may_repeat && is_sum).then_some(Chain { product, finish, place, has_tail })
    }

    /// Whether an instruction only computes, or ends the iteration.
    fn is_plain(&self, inst: Inst) -> bool {
        let data = &self.function.insts[inst];
        let effect = data.op.info().effect;
        let is_fence = matches!(data.op, Op::Gpu(GpuOp::FenceProxy {}));
        is_fence || (data.regions.is_empty() && matches!(effect, Effect::Pure | Effect::Terminator))
    }

    /// Whether it ends the life of a buffer whose place slots take.
    fn is_of_buffer(&self, loads: &[RingLoad], inst: Inst) -> bool {
        let data = &self.function.insts[inst];
        let is_its = |load: &RingLoad| match &load.way {
            Way::Buffer { alloc, .. } => self.function.insts[*alloc].results[0] == data.operands[0],
            Way::Registers => false,
        };
        matches!(data.op, Op::Gpu(GpuOp::Dealloc {})) && loads.iter().any(is_its)
    }
}

/// Whether slots take the place of an instruction.
fn is_of_load(loads: &[RingLoad], inst: Inst) -> bool {
    loads.iter().any(|load| match &load.way {
        Way::Buffer { shapes, alloc, store } => {
            [load.inst, *alloc, *store].contains(&inst) || shapes.contains(&inst)
        }
        Way::Registers => load.inst == inst,
    })
}

impl Emit<'_> {
    /// Divides the body of the loop. `takes` and `ahead` are what an iteration does besides; given back is what comes behind the
    /// loop.
    pub(super) fn chain(
        &mut self,
        chain: &Chain,
        (takes, ahead): (Vec<Inst>, Vec<Inst>),
        bounds: &Bounds,
        before: &mut Vec<Inst>,
    ) -> Vec<Inst> {
        let insts = std::mem::take(&mut self.function.blocks[self.body].insts);
        let is_release = |inst: &Inst| matches!(self.function.insts[*inst].op, Op::Gpu(GpuOp::Release {}));
        let releases: Vec<Inst> = insts.iter().copied().filter(is_release).collect();
        let slots: Vec<Value> = releases.iter().map(|inst| self.function.insts[*inst].operands[0]).collect();
        let mut multiply = takes;
        multiply.push(chain.product);
        let is_other =
            |inst: &Inst| *inst != chain.finish && !multiply.contains(inst) && !releases.contains(inst);
        let others: Vec<Inst> = insts.into_iter().filter(is_other).collect();

        self.out = std::mem::take(before);
        let loop_inst = self.plan.inst;
        let sum = self.function.blocks[self.body].parameters[chain.place + 1];
        let zero = self.function.insts[loop_inst].operands[chain.place + 3];
        let mut first: FxHashMap<Value, Value> = [(sum, zero)].into_iter().collect();
        for inst in &multiply {
            self.copy(*inst, &mut first);
        }
        *before = std::mem::take(&mut self.out);

        self.out.extend(&multiply);
        let product = self.function.insts[chain.product].results[0];
        let ty = self.function.ty(product).clone();
        let settled = self.value(GpuOp::Settle { pending: 1 }, &[product], ty);
        self.out.extend(&releases);
        self.out.extend(ahead);
        self.out.extend(others);
        self.function.blocks[self.body].insts = std::mem::take(&mut self.out);

        let mut last = vec![self.carry_product(chain, first[&product], settled)];
        for (slot, release) in slots.iter().zip(&releases) {
            last.push(self.carry_slot(*slot, *release, first[slot]));
        }
        let left = if chain.has_tail { self.distance } else { 1 };
        self.function.insts[loop_inst].operands[1] = bounds.end(left as usize);
        let (flat, mut left_to_fill) = (self.plan.flat.as_ref(), None);
        if chain.has_tail {
            let settle = self.function.defining_inst(settled).expect("it was made above");
            let body: Vec<Inst> = multiply.into_iter().chain([settle]).chain(releases).collect();
            let next = flat.map(|flat| (flat, self.next_tile(flat)));
            last = self.tail(&body, sum, (&slots, &last), next.as_ref());
            left_to_fill = next;
        }
        self.finish_product(chain, last[0]);
        for slot in &last[1..] {
            self.emit(GpuOp::Release {}, &[*slot], None);
        }
        if let Some((flat, next)) = left_to_fill {
            let offset = self.offset(self.distance - 1);
            self.fill_first(flat, &next, offset);
        }
        std::mem::take(&mut self.out)
    }

    /// The loop carries the product under way in place of the sum: the product that is under way behind it.
    fn carry_product(&mut self, chain: &Chain, first: Value, settled: Value) -> Value {
        let (loop_inst, place) = (self.plan.inst, chain.place);
        let function = &mut *self.function;
        let ty = function.ty(settled).clone();
        let parameter = function.blocks[self.body].parameters[place + 1];
        function.values[parameter].ty = ty.clone();
        function.insts[loop_inst].operands[place + 3] = first;
        let end = function.terminator(self.body).expect("a body yields");
        function.insts[end].operands[place] = settled;
        let sum = function.insts[loop_inst].results[place];
        let definition = function.values[sum].definition;
        let last = function.values.push(ValueData { ty, definition, name: None });
        function.insts[loop_inst].results[place] = last;
        let finish = &mut function.insts[chain.finish];
        finish.op = GpuOp::Finish { pending: Deferred(None) }.into();
        finish.results = smallvec![sum];
        function.values[sum].definition = Definition::Result(chain.finish, 0);
        last
    }

    /// The sum is waited for.
    fn finish_product(&mut self, chain: &Chain, product: Value) {
        self.function.insts[chain.finish].operands = smallvec![product];
        self.out.push(chain.finish);
    }

    /// The loop carries a slot to the iteration that gives it back: the one that is left behind the loop.
    fn carry_slot(&mut self, slot: Value, release: Inst, first: Value) -> Value {
        let ValueData { ty, name, .. } = self.function.values[slot].clone();
        let parameter = self.function.add_parameter(self.body, ty.clone(), name);
        self.function.insts[release].operands[0] = parameter;
        let loop_inst = self.plan.inst;
        self.function.insts[loop_inst].operands.push(first);
        let end = self.function.terminator(self.body).expect("a body yields");
        self.function.insts[end].operands.push(slot);
        self.add_result(loop_inst, ty)
    }

    /// The slots that are full behind the loop are multiplied, by the same instructions: what is left then of what they carry, the
    /// product and the slots. Of a loop that is flattened, they are filled for the next tile.
    fn tail(
        &mut self,
        body: &[Inst],
        sum: Value,
        (slots, carried): (&[Value], &[Value]),
        next: Option<&(&Flat, Ahead)>,
    ) -> Vec<Value> {
        let int = Type::scalar(ir::Type::scalar(Dtype::I32));
        let step = if next.is_some() { self.plan.step.unwrap_or(1) } else { 1 };
        let [zero, one, count] =
            [0, step, step * (i128::from(self.distance) - 1)].map(|number| self.constant(Dtype::I32, number));
        let block = self.function.blocks.push(BlockData::default());
        let counter = self.function.add_parameter(block, int, None);
        let names: Vec<Value> = carried
            .iter()
            .map(|value| {
                let ty = self.function.ty(*value).clone();
                self.function.add_parameter(block, ty, None)
            })
            .collect();
        // What the body calls what it is given.
        let parameters = &self.function.blocks[self.body].parameters;
        let given = [sum].into_iter().chain(parameters[parameters.len() - slots.len()..].iter().copied());
        let mut copies: FxHashMap<Value, Value> = given.zip(names).collect();
        let outside = std::mem::take(&mut self.out);
        for inst in body {
            self.copy(*inst, &mut copies);
        }
        let settled = body.iter().rev().find_map(|inst| self.function.insts[*inst].results.first().copied());
        let yielded = settled.into_iter().chain(slots.iter().copied()).map(|value| copies[&value]);
        let yielded: Vec<Value> = yielded.collect();
        if let Some((flat, next)) = next {
            self.fill_first(flat, next, counter);
        }
        self.emit(ir::Op::Yield {}, &yielded, None);
        self.function.blocks[block].insts = std::mem::replace(&mut self.out, outside);
        let options = LoopOptions { num_stages: 1, ..LoopOptions::default() };
        let operands: Vec<Value> = [zero, count, one].into_iter().chain(carried.iter().copied()).collect();
        let tail = self.emit(ir::Op::For { options }, &operands, None);
        self.function.insts[tail].regions = smallvec![block];
        let types: Vec<Type> = carried.iter().map(|value| self.function.ty(*value).clone()).collect();
        types.into_iter().map(|ty| self.add_result(tail, ty)).collect()
    }
}
