//! Writes the program of each block of a cluster (`cluster.rs`).
//!
//! Each instruction is written once for each needed form of its results: whole, or a part along an
//! axis.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{
    Block, BlockData, Carried, Cursor, Dtype, ElementwiseFn, Function, Inst, InstData, Op, OpFamily, Shape,
    Type, Value,
};

use super::cluster::{Form, Forms, operand_forms};

pub struct Writer<'f> {
    cursor: Cursor<'f>,
    blocks: u32,
    forms: Forms,
    /// The forms of stores and atomic operations.
    roots: FxHashMap<Inst, Form>,
    /// The values of the new program, by the old value and its form.
    made: FxHashMap<(Value, Form), Value>,
    program: Option<Value>,
    rank: Option<Value>,
}

impl<'f> Writer<'f> {
    pub fn new(function: &'f mut Function, blocks: u32, forms: Forms, roots: FxHashMap<Inst, Form>) -> Self {
        let entry = function.entry;
        let cursor = Cursor::at_start(function, entry);
        Self { cursor, blocks, forms, roots, made: FxHashMap::default(), program: None, rank: None }
    }

    pub fn write(mut self) {
        let entry = self.cursor.function.entry;
        for parameter in self.cursor.function.blocks[entry].parameters.clone() {
            self.made.insert((parameter, Form::Whole), parameter);
        }
        let insts = self.cursor.take_rest();
        let number = self.scalar(Op::ProgramId { axis: 0 }, &[]);
        let blocks = self.number(self.blocks);
        self.program = Some(self.binary(ElementwiseFn::IntDiv, number, blocks));
        self.rank = Some(self.binary(ElementwiseFn::IntRem, number, blocks));
        self.insts(&insts, true);
    }

    /// Writes the instructions of the entry or a region in the needed forms.
    fn insts(&mut self, insts: &[Inst], is_entry: bool) {
        for &inst in insts {
            self.cursor.use_location_of(inst);
            match self.cursor.function.insts[inst].op.family() {
                OpFamily::Loop | OpFamily::Branch => self.control(inst),
                // Terminators of regions are written with their regions.
                OpFamily::Terminator if !is_entry => {}
                OpFamily::Store | OpFamily::Atomic => self.store(inst),
                OpFamily::Terminator | OpFamily::Promise => self.root(inst),
                // tidy: wildcard because all others only compute results
                _ => self.compute(inst),
            }
        }
    }

    fn value(&self, value: Value, form: Form) -> Value {
        let form = if self.cursor.function.ty(value).is_scalar() { Form::Whole } else { form };
        self.made[&(value, form)]
    }

    fn values(&self, values: &[Value], form: Form) -> SmallVec<[Value; 4]> {
        values.iter().map(|value| self.value(*value, form)).collect()
    }

    fn forms(&self, value: Value) -> SmallVec<[Form; 1]> {
        let mut forms = self.forms.get(&value).cloned().unwrap_or_default();
        forms.sort_unstable();
        forms
    }

    /// Keeps the entry's terminator and hints about scalars. Only passes before the division use
    /// hints about tiles.
    fn root(&mut self, inst: Inst) {
        let InstData { op, operands, .. } = self.cursor.function.insts[inst].clone();
        if operands.iter().all(|value| self.cursor.function.ty(*value).is_scalar()) {
            let operands = self.values(&operands, Form::Whole);
            self.push(op, &operands, &[]);
        }
    }

    /// Stores a part in each block, and an undivided value in the first block.
    fn store(&mut self, inst: Inst) {
        let InstData { op, operands, results, .. } = self.cursor.function.insts[inst].clone();
        let form = self.roots[&inst];
        let mut operands = self.values(&operands, form);
        if form == Form::Whole {
            let zero = self.number(0);
            let rank = self.rank();
            let mut mask = self.binary(ElementwiseFn::Eq, rank, zero);
            let shape = self.cursor.function.ty(operands[0]).shape.clone();
            if !shape.is_empty() {
                let ty = Type::tile(Dtype::I1, shape.clone());
                mask = self.push(Op::Splat { shape }, &[mask], &[ty])[0];
            }
            if operands.len() > op.info().operands.len() {
                let own = operands.pop().expect("the op has a mask");
                mask = self.binary(ElementwiseFn::And, own, mask);
            }
            operands.push(mask);
        }
        let types: Vec<Type> = results.iter().map(|result| self.ty(*result, form)).collect();
        self.push(op, &operands, &types);
    }

    fn compute(&mut self, inst: Inst) {
        let results = self.cursor.function.insts[inst].results.clone();
        let mut forms: Vec<Form> = results.iter().flat_map(|result| self.forms(*result)).collect();
        forms.sort_unstable();
        forms.dedup();
        for form in forms {
            let made = self.compute_as(inst, form);
            for (&result, made) in results.iter().zip(made) {
                self.name(result, made);
                self.made.insert((result, form), made);
            }
        }
    }

    fn compute_as(&mut self, inst: Inst, form: Form) -> SmallVec<[Value; 1]> {
        let InstData { mut op, operands, results, regions, .. } = self.cursor.function.insts[inst].clone();
        match op {
            Op::ProgramId { axis: 0 } => {
                return smallvec![self.program.expect("`write` computes this value first")];
            }
            Op::NumPrograms { axis: 0 } => {
                let count = self.scalar(op, &[]);
                let blocks = self.number(self.blocks);
                return smallvec![self.binary(ElementwiseFn::IntDiv, count, blocks)];
            }
            Op::Arange { start, end } if form != Form::Whole => return smallvec![self.range(start, end)],
            // tidy: wildcard because no other op depends on an index in the grid or in a tile
            _ => {}
        }
        let types: Vec<Type> = results.iter().map(|result| self.ty(*result, form)).collect();
        if let Form::Part(axis) = form {
            Self::shorten(&mut op, axis, &types[0].shape);
        }
        let forms = operand_forms(self.cursor.function, inst, form)
            .unwrap_or_else(|refusal| unreachable!("each demanded form can be computed: {}", refusal.reason));
        let operands: SmallVec<[Value; 4]> =
            operands.iter().zip(forms).map(|(value, form)| self.value(*value, form)).collect();
        let regions = regions.iter().map(|region| self.cursor.function.clone_region(*region)).collect();
        let new = self.cursor.emit_with_regions(op, &operands, regions, types);
        self.cursor.function.insts[new].results.clone()
    }

    fn range(&mut self, start: i64, end: i64) -> Value {
        let extent = (end - start) / i64::from(self.blocks);
        let shape = Shape(smallvec![extent as u32]);
        let ty = Type::tile(Dtype::I32, shape.clone());
        let range = self.push(Op::Arange { start, end: start + extent }, &[], std::slice::from_ref(&ty))[0];
        let (rank, extent) = (self.rank(), self.number(extent as u32));
        let first = self.binary(ElementwiseFn::Mul, rank, extent);
        let first = self.push(Op::Splat { shape }, &[first], &[ty])[0];
        self.binary(ElementwiseFn::Add, range, first)
    }

    /// Adapts an op with a shape or an axis property to a part.
    fn shorten(op: &mut Op, axis: usize, part: &Shape) {
        match op {
            Op::Splat { shape }
            | Op::Broadcast { shape }
            | Op::Reshape { shape }
            | Op::Slice { shape, .. } => shape.clone_from(part),
            // A part begins at a multiple of its extent, so hints hold for runs inside the part.
            Op::Hint { values, .. } => {
                if let Some(value) = values.get_mut(axis) {
                    *value = power_of_two_in(*value).min(i64::from(part[axis]));
                }
            }
            // tidy: wildcard because other ops follow the shapes of their operands
            _ => {}
        }
    }

    /// Writes a loop or a branch, which carries each value once for each form.
    fn control(&mut self, inst: Inst) {
        let InstData { op, operands, regions, .. } = self.cursor.function.insts[inst].clone();
        let all: Vec<Carried> = self.cursor.function.carried(inst).collect();
        let with_forms = |carried: Carried| {
            let forms = self.forms(carried.result);
            forms.into_iter().map(move |form| (carried.clone(), form))
        };
        let carried: Vec<(Carried, Form)> = all.into_iter().flat_map(with_forms).collect();
        let mut operands = self.values(&operands[..op.info().operands.len()], Form::Whole);
        for (Carried { initial, .. }, form) in &carried {
            operands.extend(initial.map(|initial| self.value(initial, *form)));
        }
        let regions = (0..regions.len()).map(|number| self.region(inst, number, &carried)).collect();
        let types: Vec<Type> = carried.iter().map(|(carried, form)| self.ty(carried.result, *form)).collect();
        self.cursor.use_location_of(inst);
        let new = self.cursor.emit_with_regions(op, &operands, regions, types);
        for (place, (Carried { result, .. }, form)) in carried.into_iter().enumerate() {
            let made = self.cursor.function.insts[new].results[place];
            self.name(result, made);
            self.made.insert((result, form), made);
        }
    }

    fn region(&mut self, inst: Inst, number: usize, carried: &[(Carried, Form)]) -> Block {
        let region = self.cursor.function.insts[inst].regions[number];
        let new = self.cursor.function.blocks.push(BlockData::default());
        let old = &self.cursor.function.blocks[region].parameters;
        let counters = old.len().saturating_sub(self.cursor.function.insts[inst].results.len());
        let mut parameters: Vec<(Value, Form)> =
            old[..counters].iter().map(|counter| (*counter, Form::Whole)).collect();
        let of = |(carried, form): &(Carried, Form)| Some((*carried.parameters.get(number)?, *form));
        parameters.extend(carried.iter().filter_map(of));
        for (old, form) in parameters {
            let (ty, name) = (self.ty(old, form), self.cursor.function.values[old].name.clone());
            let parameter = self.cursor.function.add_parameter(new, ty, name);
            self.made.insert((old, form), parameter);
        }
        let outer = self.cursor.enter(new);
        let insts = self.cursor.function.blocks[region].insts.clone();
        self.insts(&insts, false);
        let end = self.cursor.function.terminator(region).expect("a region has an end");
        let InstData { op, operands, location, .. } = self.cursor.function.insts[end].clone();
        let yielded = match number.checked_sub(self.cursor.function.conditions(inst).len()) {
            None => self.values(&operands, Form::Whole),
            Some(place) => {
                carried.iter().map(|(carried, form)| self.value(carried.yielded[place], *form)).collect()
            }
        };
        self.cursor.location = location;
        self.push(op, &yielded, &[]);
        self.cursor.go_to(outer);
        new
    }

    fn ty(&self, value: Value, form: Form) -> Type {
        let mut ty = self.cursor.function.ty(value).clone();
        if let Form::Part(axis) = form
            && !ty.is_scalar()
        {
            ty.shape.0[axis] /= self.blocks;
        }
        ty
    }

    fn name(&mut self, old: Value, new: Value) {
        self.cursor.function.copy_name(old, new);
    }

    fn rank(&self) -> Value {
        self.rank.expect("`write` computes this value first")
    }

    fn number(&mut self, number: u32) -> Value {
        self.cursor.int(Dtype::I32, number)
    }

    fn scalar(&mut self, op: Op, operands: &[Value]) -> Value {
        self.cursor.value(op, operands, Type::scalar(Dtype::I32))
    }

    fn binary(&mut self, function: ElementwiseFn, a: Value, b: Value) -> Value {
        let ty = self.cursor.function.ty(a).clone();
        let ty = if function == ElementwiseFn::Eq { ty.with_dtype(Dtype::I1) } else { ty };
        self.cursor.elementwise(function, &[a, b], ty)
    }

    fn push(&mut self, op: Op, operands: &[Value], types: &[Type]) -> SmallVec<[Value; 1]> {
        let inst = self.cursor.emit(op, operands, types.iter().cloned());
        self.cursor.function.insts[inst].results.clone()
    }
}

/// Returns the largest power of two in a number; 1 if it is not positive.
pub(super) fn power_of_two_in(number: i64) -> i64 {
    if number > 0 { 1 << number.trailing_zeros() } else { 1 }
}
