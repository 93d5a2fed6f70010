//! Simplifies integers by identities. Booleans are integers modulo 2.
//!
//! All arithmetic wraps, so sums and products may be reassociated.

use tilewright_ir::{Dtype, Element, ElementwiseFn, Literal, Op, Rounding, Type, Value};

use super::{Canonicalizer, fold};

impl Canonicalizer<'_> {
    pub(super) fn int_binary(
        &mut self,
        function: ElementwiseFn,
        x: Value,
        y: Value,
        ty: &Type,
    ) -> Option<Value> {
        if x == y
            && let Some(value) = self.int_same(function, x, ty)
        {
            return Some(value);
        }
        if let Some(constant) = self.constant(y) {
            return self
                .int_with_constant(function, x, y, constant, ty)
                .or_else(|| self.reassociate_constant(function, x, constant, ty));
        }
        if function == ElementwiseFn::Xor
            && let Some(value) = self.exclusive_or(x, y, ty)
        {
            return Some(value);
        }
        self.int_neg(function, x, y, ty).or_else(|| self.reassociate_uniform(function, x, y, ty))
    }

    /// Simplifies a function of equal operands. Quotient and remainder depend on whether the
    /// operand is zero.
    fn int_same(&mut self, function: ElementwiseFn, x: Value, ty: &Type) -> Option<Value> {
        use ElementwiseFn as F;
        match function {
            F::Sub | F::Xor => Some(self.make_constant(Literal::int(ty.dtype()?, 0), &ty.shape)),
            F::And | F::Or | F::Min | F::Max => Some(x),
            // tidy: wildcard because the others depend on x
            _ => None,
        }
    }

    fn int_with_constant(
        &mut self,
        function: ElementwiseFn,
        x: Value,
        y: Value,
        constant: Literal,
        ty: &Type,
    ) -> Option<Value> {
        use ElementwiseFn as F;
        let dtype = constant.dtype;
        let value = constant.as_int()?;
        let (low, high) = dtype.int_range()?;
        let (is_zero, is_one, is_all_ones) =
            (constant.bits == 0, constant.bits == 1, constant == Literal::int(dtype, -1));
        let is_x = match function {
            F::Add | F::Sub | F::Or | F::Xor | F::Shl | F::Shr => is_zero,
            F::Mul | F::IntDiv => is_one,
            F::And => is_all_ones,
            F::Min => value == high,
            F::Max => value == low,
            // tidy: wildcard because the others have no neutral element
            _ => false,
        };
        let is_constant = match function {
            F::Mul | F::And => is_zero,
            F::Or => is_all_ones,
            F::Min => value == low,
            F::Max => value == high,
            // tidy: wildcard because the others have no absorbing element
            _ => false,
        };
        let shifts_out = constant.bits >= u64::from(dtype.bits());
        let known = match function {
            F::IntDiv | F::IntRem if is_zero => Some(-1),
            F::IntRem if is_one || (is_all_ones && dtype.is_signed()) => Some(0),
            F::Shl if shifts_out => Some(0),
            F::Shr if shifts_out && !dtype.is_signed() => Some(0),
            // tidy: wildcard because the others depend on x
            _ => None,
        };
        if is_x {
            return Some(x);
        }
        if is_constant {
            return Some(y);
        }
        if let Some(known) = known {
            return Some(self.make_constant(Literal::int(dtype, known), &ty.shape));
        }
        if function == F::Mul
            && let Some(product) = self.narrow_product(x, constant, ty)
        {
            return Some(product);
        }
        self.int_strength(function, x, constant, ty)
    }

    /// Narrows the product of a constant and an int64 tile that was cast from int32, if no element
    /// overflows. An example is a range times a stride.
    fn narrow_product(&mut self, x: Value, constant: Literal, ty: &Type) -> Option<Value> {
        if ty.dtype() != Some(Dtype::I64) || ty.is_scalar() {
            return None;
        }
        let source = self.operand_of(x, |op| matches!(op, Op::Cast { .. }))?;
        if self.function.ty(source).dtype() != Some(Dtype::I32) {
            return None;
        }
        let (low, high) = self.span(source)?;
        let factor = constant.as_int()?;
        let fits = |place: i128| i32::try_from(place.saturating_mul(factor)).is_ok();
        if !fits(low) || !fits(high) || i32::try_from(factor).is_err() {
            return None;
        }
        let factor = self.make_constant(Literal::int(Dtype::I32, factor), &ty.shape);
        let product =
            self.make_elementwise(ElementwiseFn::Mul, &[source, factor], &ty.with_dtype(Dtype::I32));
        Some(self.make_cast(product, Element::Value(Dtype::I64), Rounding::default(), ty))
    }

    /// Returns bounds of the elements of a moved `arange`, or of the exclusive or of two tiles of 0
    /// and 1.
    pub(super) fn span(&self, tile: Value) -> Option<(i128, i128)> {
        let data = &self.function.insts[self.function.defining_inst(tile)?];
        match (&data.op, &data.operands[..]) {
            (Op::Arange { start, end }, _) => Some((i128::from(*start), i128::from(*end) - 1)),
            (
                Op::ExpandDims { .. } | Op::Broadcast { .. } | Op::Reshape { .. } | Op::Transpose { .. },
                &[source],
            ) => self.span(source),
            (Op::Elementwise { function: ElementwiseFn::Xor }, &[x, y]) => {
                let is_bit = |value| self.is_constant(value, |value| value.bits <= 1) || self.is_bit(value);
                (is_bit(x) && is_bit(y)).then_some((0, 1))
            }
            // tidy: wildcard because other ops have no known bounds without an analysis
            _ => None,
        }
    }

    /// Returns whether a tile is a moved or repeated `arange(0, 2)`.
    fn is_bit(&self, mut tile: Value) -> bool {
        let is_moved =
            |op: &Op| matches!(op, Op::ExpandDims { .. } | Op::Broadcast { .. } | Op::Reshape { .. });
        while let Some(source) = self.operand_of(tile, is_moved) {
            tile = source;
        }
        let inst = self.function.defining_inst(tile);
        inst.is_some_and(|inst| self.function.insts[inst].op == Op::Arange { start: 0, end: 2 })
    }

    /// Replaces a function with a constant operand by a cheaper function.
    fn int_strength(
        &mut self,
        function: ElementwiseFn,
        x: Value,
        constant: Literal,
        ty: &Type,
    ) -> Option<Value> {
        use ElementwiseFn as F;
        let dtype = constant.dtype;
        let is_all_ones = constant == Literal::int(dtype, -1);
        let is_power = constant.bits.is_power_of_two() && !dtype.is_signed() && !dtype.is_bool();
        let (new, operand) = match function {
            F::Mul if is_all_ones => (F::Neg, None),
            F::IntDiv if is_all_ones && dtype.is_signed() => (F::Neg, None),
            F::Xor if is_all_ones => (F::Not, None),
            F::IntDiv if is_power => (F::Shr, Some(i128::from(constant.bits.trailing_zeros()))),
            F::IntRem if is_power => (F::And, Some(i128::from(constant.bits - 1))),
            // tidy: wildcard because no other function has a cheaper form
            _ => return None,
        };
        let Some(operand) = operand else { return Some(self.make_elementwise(new, &[x], ty)) };
        let operand = self.make_constant(Literal::int(dtype, operand), &ty.shape);
        Some(self.make_elementwise(new, &[x, operand], ty))
    }

    /// Combines the constants of `(x ∘ c1) ∘ c2` to `x ∘ (c1 ∘ c2)`, or `x ∘ (c1 + c2)` for
    /// subtractions and shifts.
    fn reassociate_constant(
        &mut self,
        function: ElementwiseFn,
        x: Value,
        constant: Literal,
        ty: &Type,
    ) -> Option<Value> {
        use ElementwiseFn as F;
        match function {
            F::Add | F::Sub => {
                let (inner, first) = self.plus_constant(x)?;
                let combine = if function == F::Add { F::Add } else { F::Sub };
                let sum = fold::elementwise(combine, &[first, constant])?;
                Some(self.make_plus(inner, sum, ty))
            }
            F::Mul | F::And | F::Or | F::Xor | F::Min | F::Max => {
                let (inner, first) = self.operands_of(x, function)?;
                let combined = fold::elementwise(function, &[self.constant(first)?, constant])?;
                let combined = self.make_constant(combined, &ty.shape);
                Some(self.make_elementwise(function, &[inner, combined], ty))
            }
            F::Shl | F::Shr => {
                let (inner, first) = self.operands_of(x, function)?;
                // The sum of the counts may exceed the width, but must not wrap.
                let count = self.constant(first)?.bits.checked_add(constant.bits)?;
                let (_, high) = constant.dtype.int_range()?;
                let count = Literal::int(constant.dtype, i128::from(count).min(high));
                let count = self.make_constant(count, &ty.shape);
                Some(self.make_elementwise(function, &[inner, count], ty))
            }
            // tidy: wildcard because the others are not associative
            _ => None,
        }
    }

    fn plus_constant(&self, x: Value) -> Option<(Value, Literal)> {
        if let Some((inner, first)) = self.operands_of(x, ElementwiseFn::Add) {
            return Some((inner, self.constant(first)?));
        }
        let (inner, first) = self.operands_of(x, ElementwiseFn::Sub)?;
        Some((inner, fold::elementwise(ElementwiseFn::Neg, &[self.constant(first)?])?))
    }

    /// Builds `x + constant`, or `x - negated` if the negated constant is smaller as an unsigned
    /// number.
    fn make_plus(&mut self, x: Value, constant: Literal, ty: &Type) -> Value {
        use ElementwiseFn as F;
        let negated = fold::elementwise(F::Neg, &[constant]);
        let (function, constant) = match negated {
            Some(negated) if negated.bits < constant.bits && constant.dtype != Dtype::I1 => (F::Sub, negated),
            _ => (F::Add, constant),
        };
        let constant = self.make_constant(constant, &ty.shape);
        self.make_elementwise(function, &[x, constant], ty)
    }

    /// Simplifies sums and differences with a negated operand.
    pub(super) fn int_neg(
        &mut self,
        function: ElementwiseFn,
        x: Value,
        y: Value,
        ty: &Type,
    ) -> Option<Value> {
        use ElementwiseFn as F;
        let (new, operands) = match function {
            F::Add => match (self.argument_of(x, F::Neg), self.argument_of(y, F::Neg)) {
                (_, Some(y)) => (F::Sub, [x, y]),
                (Some(x), None) => (F::Sub, [y, x]),
                (None, None) => return None,
            },
            F::Sub if self.is_constant(x, |x| x.bits == 0) && ty.dtype().is_some_and(Dtype::is_int) => {
                return Some(self.make_elementwise(F::Neg, &[y], ty));
            }
            F::Sub => (F::Add, [x, self.argument_of(y, F::Neg)?]),
            // tidy: wildcard because the others do not absorb a sign
            _ => return None,
        };
        Some(self.make_elementwise(new, &operands, ty))
    }

    /// Rewrites `(tile ∘ s1) ∘ s2` with uniform s1 and s2 to `tile ∘ (s1 ∘ s2)`, if `tile ∘ s1` has
    /// no other use.
    fn reassociate_uniform(
        &mut self,
        function: ElementwiseFn,
        x: Value,
        y: Value,
        ty: &Type,
    ) -> Option<Value> {
        use ElementwiseFn as F;
        if ty.is_scalar() || !matches!(function, F::Add | F::Mul) {
            return None;
        }
        for (tile, scalar) in [(x, y), (y, x)] {
            let Some((a, b)) = self.operands_of(tile, function) else { continue };
            if self.uniform(scalar).is_none() || !self.is_used_once(tile) {
                continue;
            }
            let (inner, first) = match (self.uniform(a).is_some(), self.uniform(b).is_some()) {
                (false, true) => (a, b),
                (true, false) => (b, a),
                _ => continue,
            };
            let scalars = self.make_elementwise(function, &[first, scalar], ty);
            return Some(self.make_elementwise(function, &[inner, scalars], ty));
        }
        None
    }
}
