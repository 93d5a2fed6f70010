//! Simplifies elementwise functions, and moves them before splats and broadcasts.
//!
//! `integer.rs` and `float.rs` have the identities of integers and floats.

use tilewright_ir::{
    ComparisonFn, Dtype, ElementwiseFamily as Family, ElementwiseFn, Literal, Op, Shape, Type, Value,
};

use super::{Canonicalizer, Operands, fold};

impl Canonicalizer<'_> {
    pub(super) fn elementwise(
        &mut self,
        function: ElementwiseFn,
        operands: &[Value],
        ty: &Type,
    ) -> Option<Value> {
        if let Some(value) = self.fold_elementwise(function, operands) {
            return Some(self.make_constant(value, &ty.shape));
        }
        let simpler = match *operands {
            [condition, x, y] if function == ElementwiseFn::Select => self.select(condition, x, y, ty),
            [x, y] if let Family::Comparison(comparison) = function.family() => {
                self.compare(comparison, x, y, ty)
            }
            [x, y] => self.binary(function, x, y, ty),
            [x] => self.unary(function, x, ty),
            _ => None,
        };
        simpler.or_else(|| self.before_splat(function, operands, ty)).or_else(|| {
            let op = Op::Elementwise { function };
            self.before_broadcast(&op, operands, ty)
        })
    }

    fn fold_elementwise(&self, function: ElementwiseFn, operands: &[Value]) -> Option<Literal> {
        let mut literals = [Literal::bool(false); 3];
        for (index, &operand) in operands.iter().enumerate() {
            *literals.get_mut(index)? = self.constant(operand)?;
        }
        fold::elementwise(function, literals.get(..operands.len())?)
    }

    fn binary(&mut self, function: ElementwiseFn, x: Value, y: Value, ty: &Type) -> Option<Value> {
        let dtype = ty.dtype()?;
        if let Some(value) = self.accumulate(function, x, y, ty) {
            return Some(value);
        }
        if dtype.is_int() {
            self.int_binary(function, x, y, ty)
        } else if !dtype.is_fp8() {
            self.float_binary(function, x, y, ty)
        } else {
            // An 8-bit format saturates, so x * 1 differs from an infinite x.
            None
        }
    }

    fn unary(&mut self, function: ElementwiseFn, x: Value, ty: &Type) -> Option<Value> {
        use ElementwiseFn as F;
        match function {
            // Negating a float changes only the sign, also of NaN and -0.
            F::Neg | F::Not => self.argument_of(x, function),
            F::Abs if self.argument_of(x, F::Abs).is_some() || is_unsigned(ty) => Some(x),
            F::Abs => {
                let inner = self.argument_of(x, F::Neg)?;
                Some(self.make_elementwise(F::Abs, &[inner], ty))
            }
            // The smallest number of this format is -1.875. Its floor, -2, saturates to -1.875.
            F::Floor | F::Ceil if ty.dtype() == Some(Dtype::F8E4B15) => None,
            F::Floor | F::Ceil => {
                let is_whole =
                    self.argument_of(x, F::Floor).or_else(|| self.argument_of(x, F::Ceil)).is_some();
                is_whole.then_some(x)
            }
            // tidy: wildcard because no other function is idempotent or its own inverse
            _ => None,
        }
        .or_else(|| (function == F::Not).then(|| self.inverted(x, ty)).flatten())
    }

    /// Returns the negation of the comparison `x`, if it has no other use and the negation is a
    /// comparison.
    fn inverted(&mut self, x: Value, ty: &Type) -> Option<Value> {
        use ComparisonFn as C;
        if !self.is_used_once(x) {
            return None;
        }
        let data = &self.function.insts[self.function.defining_inst(x)?];
        let (&Op::Elementwise { function }, &[a, b]) = (&data.op, &data.operands[..]) else { return None };
        let Family::Comparison(comparison) = function.family() else { return None };
        let has_nan = self.function.ty(a).dtype().is_some_and(Dtype::is_float);
        let inverse = match comparison {
            C::Eq => C::Ne,
            C::Ne => C::Eq,
            // If one operand is NaN, both x < y and x >= y are false.
            _ if has_nan => return None,
            C::Lt => C::Ge,
            C::Ge => C::Lt,
            C::Le => C::Gt,
            C::Gt => C::Le,
        };
        Some(self.make_elementwise(inverse.into(), &[a, b], ty))
    }

    fn select(&mut self, condition: Value, x: Value, y: Value, ty: &Type) -> Option<Value> {
        use ElementwiseFn as F;
        if x == y {
            return Some(x);
        }
        if let Some(literal) = self.constant(condition) {
            return Some(if literal.bits != 0 { x } else { y });
        }
        if let Some(inner) = self.argument_of(condition, F::Not) {
            return Some(self.make_elementwise(F::Select, &[inner, y, x], ty));
        }
        let (a, b) = (self.constant(x), self.constant(y));
        if ty.is_bool() {
            return match (a.map(|x| x.bits != 0), b.map(|y| y.bits != 0)) {
                (Some(true), Some(false)) => Some(condition),
                (Some(false), Some(true)) => Some(self.make_elementwise(F::Not, &[condition], ty)),
                (Some(true), _) => Some(self.make_elementwise(F::Or, &[condition, y], ty)),
                (_, Some(false)) => Some(self.make_elementwise(F::And, &[condition, x], ty)),
                _ => None,
            };
        }
        (a.is_some() && a == b).then_some(x)
    }

    fn compare(&mut self, function: ComparisonFn, x: Value, y: Value, ty: &Type) -> Option<Value> {
        use ComparisonFn as C;
        let dtype = self.function.ty(x).dtype();
        let has_nan = dtype.is_some_and(Dtype::is_float);
        if x == y {
            let known = match function {
                C::Lt | C::Gt => Some(false),
                C::Ne if !has_nan => Some(false),
                C::Eq | C::Le | C::Ge if !has_nan => Some(true),
                // NaN does not equal itself.
                C::Eq | C::Ne | C::Le | C::Ge => None,
            };
            return known.map(|known| self.make_constant(Literal::bool(known), &ty.shape));
        }
        if self.constant(x).is_some() && self.constant(y).is_none() {
            let mirrored = match function {
                C::Lt => C::Gt,
                C::Gt => C::Lt,
                C::Le => C::Ge,
                C::Ge => C::Le,
                C::Eq | C::Ne => return None,
            };
            return Some(self.make_elementwise(mirrored.into(), &[y, x], ty));
        }
        if function == C::Ne
            && let Some(differ) = self.differing_truths(x, y, ty)
        {
            return Some(differ);
        }
        let bound = self.constant(y)?.as_int()?;
        let (low, high) = self.span(x).or_else(|| dtype?.int_range())?;
        if dtype?.is_bool() && matches!(function, C::Eq | C::Ne) {
            let is_x = (bound != 0) == (function == C::Eq);
            return Some(if is_x { x } else { self.make_elementwise(ElementwiseFn::Not, &[x], ty) });
        }
        let known = match function {
            C::Lt if bound <= low => false,
            C::Lt if bound > high => true,
            C::Ge if bound <= low => true,
            C::Ge if bound > high => false,
            C::Gt if bound >= high => false,
            C::Gt if bound < low => true,
            C::Le if bound >= high => true,
            C::Le if bound < low => false,
            // The result depends on x.
            C::Eq | C::Ne | C::Lt | C::Le | C::Gt | C::Ge => return None,
        };
        Some(self.make_constant(Literal::bool(known), &ty.shape))
    }

    /// Applies a function to the scalars of splats, and splats the result.
    fn before_splat(&mut self, function: ElementwiseFn, operands: &[Value], ty: &Type) -> Option<Value> {
        if ty.is_scalar() {
            return None;
        }
        let scalars: Operands =
            operands.iter().map(|&operand| self.uniform(operand)).collect::<Option<_>>()?;
        let scalar_ty = ty.with_shape(Shape::scalar());
        let result = self.make_elementwise(function, &scalars, &scalar_ty);
        Some(self.make_splat(result, &ty.shape))
    }

    /// Applies an op to the sources of broadcasts, all from one shape, and of splats, and
    /// broadcasts the result. At least one operand must be a broadcast, and the tile must have
    /// elements.
    pub(super) fn before_broadcast(&mut self, op: &Op, operands: &[Value], ty: &Type) -> Option<Value> {
        let mut shape: Option<Shape> = None;
        let mut sources = Operands::new();
        for &operand in operands {
            if let Some(source) = self.operand_of(operand, |op| matches!(op, Op::Broadcast { .. })) {
                let found = &self.function.ty(source).shape;
                if shape.as_ref().is_some_and(|shape| shape != found) {
                    return None;
                }
                shape = Some(found.clone());
                sources.push(source);
            } else {
                // A splat fits any shape, so its scalar is kept until the shape is known.
                sources.push(self.operand_of(operand, |op| matches!(op, Op::Splat { .. }))?);
            }
        }
        let shape = shape.filter(|_| ty.shape.elements() > 0)?;
        for source in &mut sources {
            if self.function.ty(*source).is_scalar() {
                *source = self.make_splat(*source, &shape);
            }
        }
        let result = self.make(op.clone(), &sources, &ty.with_shape(shape));
        Some(self.make(Op::Broadcast { shape: ty.shape.clone() }, &[result], ty))
    }

    /// Rewrites `c + dot(a, b, 0)` to `dot(a, b, c)` if the dot has no other use and its
    /// `max_imprecise_acc` is 0. The dot may have scales. Its products may then be added in any order. Of two such dots, the
    /// right one accumulates: it is usually the last, so the operands of the other dot are dead by
    /// then.
    fn accumulate(&mut self, function: ElementwiseFn, x: Value, y: Value, ty: &Type) -> Option<Value> {
        if function != ElementwiseFn::Add {
            return None;
        }
        for (dot, other) in [(y, x), (x, y)] {
            let Some(inst) = self.function.defining_inst(dot) else { continue };
            let data = &self.function.insts[inst];
            let (Op::Dot { max_imprecise_acc: 0, .. } | Op::DotScaled { .. }, &[a, b, acc, ref scales @ ..]) =
                (&data.op, &data.operands[..])
            else {
                continue;
            };
            let is_zero = self.is_constant(acc, |acc| acc.bits == 0 || acc.as_float() == Some(0.0));
            if is_zero && self.is_used_once(dot) {
                let op = data.op.clone();
                let operands = [&[a, b, other], scales].concat();
                return Some(self.make(op, &operands, ty));
            }
        }
        None
    }
}

fn is_unsigned(ty: &Type) -> bool {
    ty.dtype().is_some_and(|dtype| dtype.is_int() && !dtype.is_signed())
}
