//! Emits uniform values, index tiles and ranges, which need no loop over elements.

use tilewright_ir::{
    ArithmeticFn, BitwiseFn, ComparisonFn, DivisionFn, Dtype, ElementwiseFamily as Family, ElementwiseFn, Op,
};
use tilewright_native::ir::{IntBinary, IntCompare, Value};

use super::super::plan::Form;
use super::super::vectors::{Elements, elements};
use super::{Emitter, Repr};
use crate::program::nest::Word;
use crate::program::{Action, Slot, Step};
use crate::types::{Number, TileType};

impl<'a> Emitter<'a> {
    pub(super) fn uniform_step(&mut self, step: &'a Step) {
        let _origin = self.origin(step);
        let slot = step.results[0];
        let ty = self.ty(slot);
        let operands: Vec<Slot> = step.operands.iter().map(|operand| operand.slot).collect();
        let Action::Op(op) = &step.action else { unreachable!("only a reduction has another action") };
        let value = match op {
            Op::Constant { value } => self.uniform_of_bits(ty, value.bits),
            Op::ProgramId { axis } => {
                let index = self.program_index.filter(|_| *axis == 0);
                Repr::Integer(index.unwrap_or_else(|| self.word(Word::ProgramId(*axis as usize))))
            }
            Op::NumPrograms { axis } => Repr::Integer(self.word(Word::ProgramCount(*axis as usize))),
            Op::Arange { start, .. } => {
                let (start, layout) = (self.int(*start), self.layout(slot));
                let offset = self.row_offset(&layout);
                let index = self.add(start, offset);
                if layout.extent > 1 {
                    Repr::Affine { base: index, stride: self.int(1) }
                } else {
                    Repr::Integer(self.extended(ty.number, index))
                }
            }
            Op::Splat { .. } | Op::ExpandDims { .. } | Op::Broadcast { .. } | Op::Reshape { .. } => {
                self.values[&operands[0]]
            }
            Op::Transpose { .. } => self.values[&operands[0]],
            Op::PtrAdd {} => self.pointers(ty, operands[0], operands[1]),
            Op::Elementwise { function } => self.function_of_uniforms(*function, slot, &operands),
            Op::Cast { .. } => self.cast_uniform(operands[0], slot),
            Op::Bitcast { .. } => self.bitcast_uniform(operands[0], slot),
            Op::Load { .. } => self.scalar_load(step),
            // tidy: wildcard because the plan has no other op with a uniform result
            _ => unreachable!("`{}` has no uniform result", op.name()),
        };
        self.values.insert(slot, value);
    }

    pub(super) fn uniform_of_bits(&self, ty: &TileType, bits: u64) -> Repr {
        if !ty.is_pointer() && ty.dtype().is_float() {
            let bits = self.int(bits as i64);
            return Repr::Float(self.vectors.splat(ty.dtype(), bits));
        }
        Repr::Integer(self.int(if ty.is_pointer() { bits as i64 } else { ty.number.extend(bits) }))
    }

    pub(super) fn pointers(&mut self, ty: &TileType, pointer: Slot, offset: Slot) -> Repr {
        let size = self.int(ty.pointee as i64);
        if let (Repr::Integer(pointer), Repr::Integer(offset)) = (self.values[&pointer], self.values[&offset])
        {
            let offset = self.mul(offset, size);
            return Repr::Integer(self.add(pointer, offset));
        }
        let (base, stride) = self.affine(pointer);
        let (start, step) = self.affine(offset);
        self.check_wrap(offset, start, step);
        let (start, step) = (self.mul(start, size), self.mul(step, size));
        Repr::Affine { base: self.add(base, start), stride: self.add(stride, step) }
    }

    /// Checks that no element of an index tile wraps.
    pub(super) fn check_wrap(&mut self, slot: Slot, base: Value, stride: Value) {
        let (ty, extent) = (self.ty(slot), self.layout(slot).extent);
        let last = self.int(extent as i64 - 1);
        let reach = self.mul(stride, last);
        let end = self.add(base, reach);
        if ty.number.bits() < 64 {
            let wrapped = self.extended(ty.number, end);
            let fits = self.compare(IntCompare::Eq, wrapped, end);
            self.check(fits);
        } else {
            // The bounds are half of the range of 64-bit integers, so that later sums do not wrap.
            for value in [base, end] {
                let half = self.int(1 << 62);
                let biased = self.add(value, half);
                let most = self.int(i64::MIN);
                let fits = self.compare(IntCompare::LtUnsigned, biased, most);
                self.check(fits);
            }
        }
    }

    pub(super) fn function_of_uniforms(
        &mut self,
        function: ElementwiseFn,
        slot: Slot,
        operands: &[Slot],
    ) -> Repr {
        let last = *operands.last().expect("a function has operands");
        let number = self.ty(last).number;
        let form = self.plan.known[&slot].form;
        let family = function.family();
        if let Repr::Affine { base, .. } = self.values[&operands[0]]
            && matches!(family, Family::Division(_) | Family::Comparison(_))
            && form != Form::Range
        {
            return self.function_of_segment(function, number, base, operands[1]);
        }
        match form {
            Form::Uniform if number.dtype.is_float() => {
                let values: Vec<Value> = operands.iter().map(|&operand| self.splatted(operand)).collect();
                let result = self.vectors.apply(function, number.dtype, &values);
                let to = self.ty(slot);
                if to.dtype().is_float() {
                    Repr::Float(result)
                } else {
                    Repr::Integer(self.vectors.first(to.dtype(), result))
                }
            }
            Form::Uniform => {
                let values: Vec<Value> = operands.iter().map(|&operand| self.integer(operand)).collect();
                Repr::Integer(self.vectors.apply_to_integers(function, number, &values))
            }
            Form::Affine(_) => self.affine_function(function, number, operands),
            Form::Range => self.range_function(function, slot, operands),
            Form::Dense => unreachable!("a loop computes dense tiles"),
        }
    }

    /// Emits a function of the indices of a segment. `first` is the first index. The second operand
    /// is a multiple of the length of the segment.
    fn function_of_segment(
        &mut self,
        function: ElementwiseFn,
        number: Number,
        first: Value,
        other: Slot,
    ) -> Repr {
        let other = self.integer(other);
        let Family::Division(division) = function.family() else {
            return Repr::Integer(self.vectors.apply_to_integers(function, number, &[first, other]));
        };
        // Division rounds towards zero, so negative indices of one segment might have different
        // quotients.
        let zero = self.int(0);
        let is_positive = self.compare(IntCompare::LeSigned, zero, first);
        self.check(is_positive);
        match division {
            DivisionFn::IntDiv => Repr::Integer(self.binary(IntBinary::DivUnsigned, first, other)),
            DivisionFn::IntRem => {
                Repr::Affine { base: self.binary(IntBinary::RemUnsigned, first, other), stride: self.int(1) }
            }
        }
    }

    pub(super) fn affine_function(
        &mut self,
        function: ElementwiseFn,
        number: Number,
        operands: &[Slot],
    ) -> Repr {
        let (x, dx) = self.affine(operands[0]);
        let (y, dy) = self.affine(operands[1]);
        let (base, stride) = match function.family() {
            Family::Arithmetic(ArithmeticFn::Add) => (self.add(x, y), self.add(dx, dy)),
            Family::Arithmetic(ArithmeticFn::Sub) => (self.sub(x, y), self.sub(dx, dy)),
            Family::Arithmetic(ArithmeticFn::Mul) => {
                let by = if self.known(dx) == Some(0) { x } else { y };
                let stride = if self.known(dx) == Some(0) { dy } else { dx };
                (self.mul(x, y), self.mul(stride, by))
            }
            // tidy: wildcard because no other function of indices is affine
            _ => unreachable!("{function:?} of indices is not affine"),
        };
        let signed = Number::new(if number.bits() == 64 { Dtype::I64 } else { signed_of(number) });
        Repr::Affine { base: self.extended(number, base), stride: self.extended(signed, stride) }
    }

    /// Emits a comparison of indices, or a conjunction of ranges.
    pub(super) fn range_function(&mut self, function: ElementwiseFn, slot: Slot, operands: &[Slot]) -> Repr {
        let extent = self.layout(slot).extent;
        if function.family() == Family::Bitwise(BitwiseFn::And) {
            let ranges = operands.iter().map(|&operand| self.range(operand, extent));
            let ranges: Vec<(Value, Value)> = ranges.map(|range| range.expect("it is a range")).collect();
            let (low, high) = (ranges[0].0, ranges[0].1);
            let low = self.binary(IntBinary::Max, low, ranges[1].0);
            return Repr::Range { low, high: self.binary(IntBinary::Min, high, ranges[1].1) };
        }
        let Family::Comparison(function) = function.family() else {
            unreachable!("{function:?} gives no range")
        };
        for &operand in operands {
            let (base, stride) = self.affine(operand);
            let number = self.ty(operand).number;
            if self.known(stride) != Some(0) || number.bits() == 64 {
                self.check_wrap(operand, base, stride);
            }
            if number.bits() == 64 && !number.is_signed() {
                // The code compares signed integers, so no element may exceed the largest signed
                // integer.
                let last = self.int(extent as i64 - 1);
                let reach = self.mul(stride, last);
                for value in [base, self.add(base, reach)] {
                    let is_positive = self.compare(IntCompare::LeSigned, self.int(0), value);
                    self.check(is_positive);
                }
            }
        }
        let (x, dx) = self.affine(operands[0]);
        let (y, dy) = self.affine(operands[1]);
        // Finds the indices `i` for which `difference + stride * i` compares true with 0.
        let stride = self.known(self.sub(dx, dy)).expect("the plan knows the stride");
        let (function, difference) = if stride > 0 {
            (function, self.sub(x, y))
        } else {
            let mirrored = match function {
                ComparisonFn::Lt => ComparisonFn::Gt,
                ComparisonFn::Le => ComparisonFn::Ge,
                ComparisonFn::Gt => ComparisonFn::Lt,
                ComparisonFn::Ge => ComparisonFn::Le,
                ComparisonFn::Eq | ComparisonFn::Ne => function,
            };
            (mirrored, self.sub(y, x))
        };
        let (zero, one, extent) = (self.int(0), self.int(1), self.int(extent as i64));
        let clamp = |index: Value| {
            let index = self.binary(IntBinary::Max, index, zero);
            self.binary(IntBinary::Min, index, extent)
        };
        let at_least = self.sub(zero, difference);
        let above = clamp(self.add(at_least, one));
        let at_least = clamp(at_least);
        let (low, high) = match function {
            ComparisonFn::Lt => (zero, at_least),
            ComparisonFn::Le => (zero, above),
            ComparisonFn::Ge => (at_least, extent),
            ComparisonFn::Gt => (above, extent),
            ComparisonFn::Eq => (at_least, above),
            ComparisonFn::Ne => unreachable!("the plan makes no range of `ne`"),
        };
        Repr::Range { low, high }
    }

    pub(super) fn cast_uniform(&mut self, from: Slot, to: Slot) -> Repr {
        let (source, target) = (self.ty(from), self.ty(to));
        if let Repr::Affine { base, stride } = self.values[&from] {
            if target.number.bits() > source.number.bits() {
                self.check_wrap(from, base, stride);
            }
            let signed = Number::new(signed_of(target.number));
            return Repr::Affine {
                base: self.extended(target.number, base),
                stride: self.extended(signed, stride),
            };
        }
        match (source.dtype().is_float(), target.dtype().is_float()) {
            (false, false) if target.dtype().is_bool() => {
                let zero = self.int(0);
                Repr::Integer(self.compare(IntCompare::Ne, self.integer(from), zero))
            }
            (false, false) => Repr::Integer(self.extended(target.number, self.integer(from))),
            (_, to_float) => {
                let value = self.splatted(from);
                let value = self.vectors.cast(source.dtype(), target.dtype(), value);
                if to_float {
                    return Repr::Float(value);
                }
                let bits = self.vectors.first(target.dtype(), value);
                Repr::Integer(self.extended(target.number, bits))
            }
        }
    }

    pub(super) fn bitcast_uniform(&mut self, from: Slot, to: Slot) -> Repr {
        let (source, target) = (self.ty(from), self.ty(to));
        let bits = match self.values[&from] {
            Repr::Float(value) => self.vectors.first(source.dtype(), value),
            Repr::Integer(value) => value,
            Repr::Affine { .. } | Repr::Range { .. } | Repr::Dense => unreachable!("the plan refuses it"),
        };
        if !target.is_pointer() && target.dtype().is_float() {
            return Repr::Float(self.vectors.splat(target.dtype(), bits));
        }
        Repr::Integer(if target.is_pointer() { bits } else { self.extended(target.number, bits) })
    }

    pub(super) fn splatted(&self, slot: Slot) -> Value {
        match self.values[&slot] {
            Repr::Float(value) => value,
            Repr::Integer(value) => self.vectors.splat(self.ty(slot).dtype(), value),
            Repr::Affine { .. } | Repr::Range { .. } | Repr::Dense => unreachable!("slot {slot} is uniform"),
        }
    }

    /// Emits a checked load of one element.
    pub(super) fn scalar_load(&mut self, step: &'a Step) -> Repr {
        let slot = step.results[0];
        let ty = self.ty(slot);
        let pointer = self.integer(step.operands[0].slot);
        let (zero, size) = (self.int(0), self.int(ty.size as i64));
        let condition = step.operands.get(1).map(|mask| self.integer(mask.slot));
        let bytes = condition.map_or(size, |on| self.build(|builder| builder.int_select(on, size, zero)));
        self.check_inside(step, pointer, bytes, false);
        // If the mask is false, the code loads from the argument and discards the value.
        let place = match condition {
            None => pointer,
            Some(on) => {
                let argument = self.build(|builder| builder.argument());
                self.build(|builder| builder.int_select(on, pointer, argument))
            }
        };
        let loaded = self.load_one(ty, place);
        let Some(on) = condition else { return loaded };
        match loaded {
            Repr::Float(value) => {
                let Elements::Lanes(lane) = elements(ty.dtype()) else { unreachable!("floats have lanes") };
                let other = step.operands.get(2).map(|other| self.splatted(other.slot));
                let other = other.unwrap_or_else(|| self.build(|builder| builder.constant(lane, 0)));
                let mask = self.vectors.splat(Dtype::I1, on);
                Repr::Float(self.build(|builder| builder.select(mask, value, other)))
            }
            Repr::Integer(value) => {
                let other = step.operands.get(2).map_or(zero, |other| self.integer(other.slot));
                Repr::Integer(self.build(|builder| builder.int_select(on, value, other)))
            }
            Repr::Affine { .. } | Repr::Range { .. } | Repr::Dense => loaded,
        }
    }

    pub(super) fn load_one(&self, ty: &TileType, place: Value) -> Repr {
        let bits = self.build(|builder| builder.int_load(ty.size as u8, place, 0));
        if ty.dtype().is_float() {
            return Repr::Float(self.vectors.splat(ty.dtype(), bits));
        }
        if ty.dtype().is_bool() {
            let zero = self.int(0);
            return Repr::Integer(self.compare(IntCompare::Ne, bits, zero));
        }
        Repr::Integer(self.extended(ty.number, bits))
    }

    pub(super) fn scalar_stores(&mut self, phase: usize) {
        for (index, step) in self.plan.members.iter().enumerate() {
            let is_store = matches!(step.op(), Some(Op::Store { .. }));
            if !is_store
                || self.plan.phases.get(&index) != Some(&phase)
                || self.plan.known[&step.operands[0].slot].form != Form::Uniform
            {
                continue;
            }
            let _origin = self.origin(step);
            let ty = self.ty(step.operands[1].slot);
            let pointer = self.integer(step.operands[0].slot);
            let bits = self.bits(step.operands[1].slot);
            let store = |value| self.build(|builder| builder.int_store(ty.size as u8, pointer, 0, value));
            let Some(mask) = step.operands.get(2) else {
                store(bits);
                continue;
            };
            let condition = self.integer(mask.slot);
            let (on, after) = self.build(|builder| (builder.block(), builder.block()));
            self.build(|builder| {
                builder.branch(condition, (on, &[]), (after, &[]));
                builder.switch_to(on);
            });
            store(bits);
            self.build(|builder| {
                builder.jump(after, &[]);
                builder.switch_to(after);
            });
        }
    }

    pub(super) fn bits(&self, slot: Slot) -> Value {
        self.bits_of(self.ty(slot), self.values[&slot])
    }

    pub(super) fn bits_of(&self, ty: &TileType, value: Repr) -> Value {
        match value {
            Repr::Integer(value) => value,
            Repr::Float(value) => self.vectors.first(ty.dtype(), value),
            Repr::Affine { .. } | Repr::Range { .. } | Repr::Dense => unreachable!("the value is uniform"),
        }
    }
}

fn signed_of(number: Number) -> Dtype {
    match number.bits() {
        8 => Dtype::I8,
        16 => Dtype::I16,
        32 => Dtype::I32,
        _ => Dtype::I64,
    }
}
