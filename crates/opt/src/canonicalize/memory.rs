//! Simplifies accesses, additions to pointers, assertions and assumptions.

use tilewright_ir::{Dtype, ElementwiseFn, Inst, Literal, Op, Regions, Shape, Type, Value};

use super::{Canonicalizer, fold};

impl Canonicalizer<'_> {
    pub(super) fn ptr_add(&mut self, pointer: Value, offset: Value, ty: &Type) -> Option<Value> {
        if self.is_constant(offset, |offset| offset.bits == 0) {
            return Some(pointer);
        }
        if !ty.is_scalar()
            && let (Some(pointer), Some(offset)) = (self.uniform(pointer), self.uniform(offset))
        {
            let moved = self.make(Op::PtrAdd {}, &[pointer, offset], &ty.with_shape(Shape::scalar()));
            return Some(self.make_splat(moved, &ty.shape));
        }
        if let Some(narrow) = self.narrow(offset) {
            return Some(self.make(Op::PtrAdd {}, &[pointer, narrow], ty));
        }
        self.ptr_add_twice(pointer, offset, ty)
            .or_else(|| self.before_broadcast(&Op::PtrAdd {}, &[pointer, offset], ty))
    }

    /// Returns an int32 tile whose extension equals the int64 tile `offset`, if `offset` was
    /// extended from int32. Shape ops after the extension are applied to the int32 tile. `ptr_add`
    /// extends its offsets, so the extension is redundant.
    fn narrow(&mut self, offset: Value) -> Option<Value> {
        let inst = self.function.defining_inst(offset)?;
        let data = &self.function.insts[inst];
        let (op, &[source]) = (data.op.clone(), &data.operands[..]) else { return None };
        let ty = self.function.ty(offset).clone();
        match op {
            Op::Cast { .. } if ty.dtype() == Some(Dtype::I64) => {
                (self.function.ty(source).dtype() == Some(Dtype::I32)).then_some(source)
            }
            Op::ExpandDims { .. } | Op::Broadcast { .. } | Op::Reshape { .. } | Op::Transpose { .. } => {
                let narrow = self.narrow(source)?;
                Some(self.make(op, &[narrow], &ty.with_dtype(Dtype::I32)))
            }
            // tidy: wildcard because other ops compute with all 64 bits
            _ => None,
        }
    }

    /// Merges two additions of constants to a pointer. Also adds a uniform offset to a uniform base
    /// before another offset.
    fn ptr_add_twice(&mut self, pointer: Value, offset: Value, ty: &Type) -> Option<Value> {
        let data = &self.function.insts[self.function.defining_inst(pointer)?];
        let (Op::PtrAdd {}, &[base, first]) = (&data.op, &data.operands[..]) else { return None };
        if let Some(sum) = self.offset_sum(first, offset) {
            let shape = &self.function.ty(offset).shape.clone();
            let sum = self.make_constant(sum, shape);
            return Some(self.make(Op::PtrAdd {}, &[base, sum], ty));
        }
        // The uniform offset is added to the scalar base, so only the other offset needs a tile op.
        let is_uniform = !ty.is_scalar() && self.uniform(offset).is_some() && self.uniform(base).is_some();
        if is_uniform && self.uniform(first).is_none() && self.is_used_once(pointer) {
            let moved = self.make(Op::PtrAdd {}, &[base, offset], ty);
            return Some(self.make(Op::PtrAdd {}, &[moved, first], ty));
        }
        None
    }

    /// Returns the sum of two constant offsets, unless it wraps: `ptr_add` extends each offset to
    /// 64 bits.
    fn offset_sum(&self, first: Value, second: Value) -> Option<Literal> {
        let (first, second) = (self.constant(first)?, self.constant(second)?);
        let sum = first.as_int()? + second.as_int()?;
        let fits = first.dtype == second.dtype && Literal::int(first.dtype, sum).as_int() == Some(sum);
        fits.then(|| fold::elementwise(ElementwiseFn::Add, &[first, second])).flatten()
    }

    pub(super) fn load(&mut self, inst: Inst) {
        let Some(result) = self.function.result(inst) else { return self.out.push(inst) };
        let ty = self.function.ty(result).clone();
        let operands = self.function.insts[inst].operands.clone();
        let mask = operands.get(1).and_then(|&mask| self.constant(mask));
        match mask.map(|mask| mask.bits != 0) {
            Some(true) => {
                self.function.insts[inst].operands.truncate(1);
                self.changed = true;
            }
            Some(false) => {
                if let Some(value) = operands.get(2).copied().or_else(|| self.make_zero(&ty)) {
                    return self.replace(result, value);
                }
            }
            None if operands.get(2).is_some_and(|&other| self.is_constant(other, |zero| zero.bits == 0)) => {
                self.function.insts[inst].operands.truncate(2);
                self.changed = true;
            }
            None => {}
        }
        if let Some(value) = self.load_scalar(inst, &ty).or_else(|| self.load_once(inst, &ty)) {
            return self.replace(result, value);
        }
        self.out.push(inst);
    }

    /// Loads before a broadcast of the pointers, so that each address is loaded once.
    fn load_once(&mut self, inst: Inst, ty: &Type) -> Option<Value> {
        let data = &self.function.insts[inst];
        let Op::Load { volatile: false, .. } = &data.op else { return None };
        let (op, operands) = (data.op.clone(), data.operands.clone());
        self.before_broadcast(&op, &operands, ty)
    }

    fn make_zero(&mut self, ty: &Type) -> Option<Value> {
        let dtype = ty.dtype().filter(|dtype| !dtype.is_fp8())?;
        Some(self.make_constant(Literal { dtype, bits: 0 }, &ty.shape))
    }

    /// Replaces an unmasked load from one address by the splat of a scalar load.
    fn load_scalar(&mut self, inst: Inst, ty: &Type) -> Option<Value> {
        let data = &self.function.insts[inst];
        let (Op::Load { volatile: false, .. }, &[pointer]) = (&data.op, &data.operands[..]) else {
            return None;
        };
        if ty.is_scalar() || ty.shape.elements() == 0 {
            return None;
        }
        let op = data.op.clone();
        let scalar = self.uniform(pointer)?;
        let types = [ty.with_shape(Shape::scalar())];
        let load = self.function.create_inst(
            op,
            std::iter::once(scalar).collect(),
            Regions::new(),
            types,
            self.location,
        );
        self.out.push(load);
        let loaded = self.function.insts[load].results[0];
        Some(self.make_splat(loaded, &ty.shape))
    }

    pub(super) fn store(&mut self, inst: Inst) {
        let mask = self.function.insts[inst].operands.get(2).and_then(|&mask| self.constant(mask));
        match mask.map(|mask| mask.bits != 0) {
            Some(true) => {
                self.function.insts[inst].operands.truncate(2);
                self.changed = true;
            }
            Some(false) => {
                self.changed = true;
                return;
            }
            None => {}
        }
        self.out.push(inst);
    }

    /// Removes the mask of an atomic operation if it is true, and the operation if it is false.
    pub(super) fn atomic(&mut self, inst: Inst) {
        let place = match self.function.insts[inst].op {
            Op::AtomicRmw { .. } | Op::AtomicStore { .. } => 2,
            Op::AtomicLoad { .. } => 1,
            // tidy: wildcard because `atomic_cas` keeps its mask, and the others have none
            _ => return self.out.push(inst),
        };
        let mask = self.function.insts[inst].operands.get(place).and_then(|&mask| self.constant(mask));
        match mask.map(|mask| mask.bits != 0) {
            Some(true) => {
                self.function.insts[inst].operands.truncate(place);
                self.changed = true;
            }
            Some(false) => {
                let Some(result) = self.function.result(inst) else {
                    self.changed = true;
                    return;
                };
                let ty = self.function.ty(result).clone();
                if let Some(zero) = self.make_zero(&ty) {
                    return self.replace(result, zero);
                }
            }
            None => {}
        }
        self.out.push(inst);
    }

    pub(super) fn assert(&mut self, inst: Inst) {
        let operands = &self.function.insts[inst].operands;
        let known = |operand: Option<&Value>| {
            operand.and_then(|&operand| self.constant(operand)).map(|constant| constant.bits != 0)
        };
        let (condition, mask) = (known(operands.first()), known(operands.get(1)));
        if condition == Some(true) || mask == Some(false) {
            self.changed = true;
            return;
        }
        if mask == Some(true) {
            self.function.insts[inst].operands.truncate(1);
            self.changed = true;
        }
        self.out.push(inst);
    }

    pub(super) fn assume(&mut self, inst: Inst) {
        let condition = self.function.insts[inst].operands.first();
        if condition.is_some_and(|&condition| self.is_constant(condition, |constant| constant.bits != 0)) {
            self.changed = true;
            return;
        }
        self.out.push(inst);
    }
}
