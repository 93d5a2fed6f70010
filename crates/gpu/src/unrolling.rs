//! A loop as one that does several iterations at once and, behind it, one for what is left. What asks for it is in
//! `tile/unroll.rs` and `passes/slot_numbers.rs`.

use cranelift_entity::packed_option::PackedOption;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{
    Block, Dialect, Dtype, Element, ElementwiseFn, Function, Inst, Literal, Location, LoopOptions, Op,
    Rounding, Type, Value,
};

/// How a loop is unrolled.
pub struct Plan {
    /// How many iterations are one.
    pub factor: u32,
    /// What the counter grows by in an iteration, above zero.
    pub step: i64,
    /// The type of the counter.
    pub dtype: Dtype,
    /// The options of the loop of what is left.
    pub rest: LoopOptions,
}

/// Unrolls a loop of a block; the loop that does what is left behind it.
pub fn unroll_loop<D: Dialect>(function: &mut Function<D>, block: Block, inst: Inst, plan: &Plan) -> Inst
where
    D::Op: From<Op>,
    D::Type: From<Type>,
{
    let location = function.insts[inst].location;
    Unrolling { function, location, before: Vec::new() }.run(block, inst, plan)
}

struct Unrolling<'f, D: Dialect> {
    function: &'f mut Function<D>,
    location: PackedOption<Location>,
    /// What is computed before the loop.
    before: Vec<Inst>,
}

impl<D: Dialect> Unrolling<'_, D>
where
    D::Op: From<Op>,
    D::Type: From<Type>,
{
    fn run(mut self, block: Block, inst: Inst, plan: &Plan) -> Inst {
        let data = self.function.insts[inst].clone();
        let (lower, upper) = (data.operands[0], data.operands[1]);
        let long = plan.step * i64::from(plan.factor);
        let middle = self.middle(lower, upper, long, plan.dtype);
        let long = self.number(long, plan.dtype);
        let body = data.regions[0];
        let rest = self.function.clone_region(body);
        let copies: Vec<Block> = (1..plan.factor).map(|_| self.function.clone_region(body)).collect();
        for (number, copy) in (1..).zip(copies) {
            self.append(body, copy, plan.step * number, plan.dtype);
        }
        // The loop itself goes on as far as whole iterations do.
        self.function.insts[inst].operands[1] = middle;
        self.function.insts[inst].operands[2] = long;
        let types: Vec<D::Type> =
            data.results.iter().map(|result| self.function.ty(*result).clone()).collect();
        let operands = [middle, upper, data.operands[2]].into_iter().chain(data.results.iter().copied());
        let tail = self.function.create_inst(
            Op::For { options: plan.rest.clone() }.into(),
            operands.collect(),
            smallvec![rest],
            types,
            self.location,
        );
        let ends = self.function.insts[tail].results.clone();
        for (result, end) in data.results.iter().zip(&ends) {
            let name = self.function.values[*result].name.clone();
            self.function.values[*end].name = name;
        }
        let replaced: FxHashMap<Value, Value> = data.results.iter().copied().zip(ends).collect();
        for (other, data) in &mut self.function.insts {
            if other != tail {
                replace(&mut data.operands, &replaced);
            }
        }
        let insts = &mut self.function.blocks[block].insts;
        let place = insts.iter().position(|other| *other == inst).expect("the loop is in its block");
        insts.insert(place + 1, tail);
        insts.splice(place..place, self.before);
        tail
    }

    /// Where the last whole iteration ends.
    fn middle(&mut self, lower: Value, upper: Value, long: i64, dtype: Dtype) -> Value {
        let [low, high] = [lower, upper].map(|bound| self.cast(bound, Dtype::I64));
        let zero = self.number(0, Dtype::I64);
        let long = self.number(long, Dtype::I64);
        let distance = self.binary(ElementwiseFn::Sub, high, low);
        let distance = self.binary(ElementwiseFn::Max, distance, zero);
        let whole = self.binary(ElementwiseFn::IntDiv, distance, long);
        let whole = self.binary(ElementwiseFn::Mul, whole, long);
        let middle = self.binary(ElementwiseFn::Add, low, whole);
        self.cast(middle, dtype)
    }

    /// Puts a copy of the body behind what the loop does, for an iteration that is so much later.
    fn append(&mut self, body: Block, copy: Block, later: i64, dtype: Dtype) {
        let index = self.function.blocks[body].parameters[0];
        let end = self.function.blocks[body].insts.pop().expect("a body has an end");
        let start = std::mem::take(&mut self.before);
        let later = self.number(later, dtype);
        let next = self.binary(ElementwiseFn::Add, index, later);
        let made = std::mem::replace(&mut self.before, start);
        let given = [next].into_iter().chain(self.function.insts[end].operands.iter().copied());
        let parameters = std::mem::take(&mut self.function.blocks[copy].parameters);
        let replaced: FxHashMap<Value, Value> = parameters.into_iter().zip(given).collect();
        let mut inside = Vec::new();
        self.function.walk(copy, &mut |inst| inside.push(inst));
        for inst in inside {
            replace(&mut self.function.insts[inst].operands, &replaced);
        }
        let copied = std::mem::take(&mut self.function.blocks[copy].insts);
        self.function.blocks[body].insts.extend(made.into_iter().chain(copied));
    }

    fn number(&mut self, value: i64, dtype: Dtype) -> Value {
        let value = Literal::int(dtype, value.into());
        self.emit(Op::Constant { value }, smallvec![], Type::scalar(dtype).into())
    }

    fn cast(&mut self, value: Value, dtype: Dtype) -> Value {
        let op = Op::Cast { element: Element::Value(dtype), rounding: Rounding::NearestEven };
        self.emit(op, smallvec![value], Type::scalar(dtype).into())
    }

    fn binary(&mut self, function: ElementwiseFn, a: Value, b: Value) -> Value {
        let ty = self.function.ty(a).clone();
        self.emit(Op::Elementwise { function }, smallvec![a, b], ty)
    }

    fn emit(&mut self, op: Op, operands: SmallVec<[Value; 4]>, ty: D::Type) -> Value {
        let inst = self.function.create_inst(op.into(), operands, smallvec![], [ty], self.location);
        self.before.push(inst);
        self.function.insts[inst].results[0]
    }
}

/// Puts other values in the place of some operands.
pub fn replace(operands: &mut [Value], replaced: &FxHashMap<Value, Value>) {
    for operand in operands {
        if let Some(new) = replaced.get(operand) {
            *operand = *new;
        }
    }
}
