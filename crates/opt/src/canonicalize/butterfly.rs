//! Replaces the reductions of hand-written sorting networks by butterflies.
//!
//! Two elements whose coordinates differ in one bit are partners. Without an op for their exchange,
//! a program multiplies each pair by [1, 0] and sums, which selects the lower element; [0, 1]
//! selects the upper one. It broadcasts both sums to the pair and combines them by exclusive or.
//! Here, one butterfly returns the partner of each element, and a select replaces each sum:
//!
//! ```text
//! %y = reshape %x                            %o = butterfly %x
//! %a = reduce add (mul %y, [1, 0])           %l = select (the bit is 0), %x, %o
//! %l = reshape (broadcast %a)
//! ```
//!
//! Other programs reduce each pair by exclusive or, and combine the result with an element to get
//! its partner. The butterfly replaces both ops.

use tilewright_ir::{Dtype, Element, ElementwiseFn, Literal, Op, Rounding, Shape, Type, Value};

use super::{Canonicalizer, fold};

impl Canonicalizer<'_> {
    /// Rewrites a broadcast of `tile` to the type `ty`. `tile` is a sum that picks one element of
    /// each pair along an axis, and the broadcast is along that axis.
    pub(super) fn picked(&mut self, tile: Value, ty: &Type) -> Option<Value> {
        let is_cast = |op: &Op| matches!(op, Op::Cast { .. });
        let dtype = ty.dtype().filter(|dtype| dtype.is_int() && !dtype.is_bool())?;
        let tile = self.operand_of(tile, is_cast).unwrap_or(tile);
        let data = &self.function.insts[self.function.defining_inst(tile)?];
        let (&Op::ExpandDims { axis }, &[sum]) = (&data.op, &data.operands[..]) else { return None };
        let sum = self.operand_of(sum, is_cast).unwrap_or(sum);
        let along = axis as usize;
        if ty.shape[along] != 2 || ty.shape.without(along) != self.function.ty(sum).shape {
            return None;
        }
        // The sum is one of the two elements, so no wider type is necessary.
        let wide = self.function.ty(sum).dtype()?;
        let mut product = self.reduced(sum, axis, ElementwiseFn::Add)?;
        if let Some(narrow) = self.operand_of(product, is_cast) {
            let (low, high) = self.function.ty(narrow).dtype()?.int_range()?;
            let (lowest, highest) = wide.int_range()?;
            if low < lowest || high > highest {
                return None;
            }
            product = narrow;
        }
        if self.function.ty(product).shape != ty.shape {
            return None;
        }
        let (a, b) = self.operands_of(product, ElementwiseFn::Mul)?;
        let (elements, picks_upper) = self
            .picks_upper(b, along)
            .map(|upper| (a, upper))
            .or_else(|| self.picks_upper(a, along).map(|upper| (b, upper)))?;
        let (own, own_axis, mask) = self.line_of(elements, along);
        let own_ty = self.function.ty(own).with_dtype(dtype);
        let own = self.make_cast(own, Element::Value(wide), Rounding::default(), &own_ty.with_dtype(wide));
        let own = self.make_cast(own, Element::Value(dtype), Rounding::default(), &own_ty);
        let partner = self.make(Op::Butterfly { axis: own_axis, mask }, &[own], &own_ty);
        let is_lower = self.is_lower(along, &ty.shape, &own_ty.shape);
        let (lower, upper) = if picks_upper { (partner, own) } else { (own, partner) };
        let picked = self.make_elementwise(ElementwiseFn::Select, &[is_lower, lower, upper], &own_ty);
        Some(self.make(Op::Reshape { shape: ty.shape.clone() }, &[picked], ty))
    }

    /// Rewrites `own ^ both`, where `both` is the exclusive or of each pair along an axis of two.
    /// The result is the partner of each element.
    fn partners(&mut self, own: Value, both: Value, ty: &Type) -> Option<Value> {
        let both =
            self.operand_of(both, |op| matches!(op, Op::Broadcast { .. })).filter(|_| !ty.is_bool())?;
        let data = &self.function.insts[self.function.defining_inst(both)?];
        let (&Op::ExpandDims { axis }, &[both]) = (&data.op, &data.operands[..]) else { return None };
        let along = axis as usize;
        let shape = &self.function.ty(own).shape;
        if shape[along] != 2 || self.reduced(both, axis, ElementwiseFn::Xor)? != own {
            return None;
        }
        let (own, axis, mask) = self.line_of(own, along);
        let own_ty = self.function.ty(own).clone();
        let partners = self.make(Op::Butterfly { axis, mask }, &[own], &own_ty);
        Some(self.make(Op::Reshape { shape: ty.shape.clone() }, &[partners], ty))
    }

    /// Returns the operand of the reduction `sum` along the axis `along` by the function `by`.
    fn reduced(&self, sum: Value, along: u32, by: ElementwiseFn) -> Option<Value> {
        let data = &self.function.insts[self.function.defining_inst(sum)?];
        let (Op::Reduce { axis }, &[tile], &[region]) = (&data.op, &data.operands[..], &data.regions[..])
        else {
            return None;
        };
        let block = &self.function.blocks[region];
        let (&[x, y], &[both, end]) = (&block.parameters[..], &block.insts[..]) else { return None };
        let (both, end) = (&self.function.insts[both], &self.function.insts[end]);
        let is_by = both.op == Op::Elementwise { function: by }
            && (both.operands[..] == [x, y] || both.operands[..] == [y, x])
            && end.operands[..] == both.results[..];
        (*axis == along && is_by).then_some(tile)
    }

    /// Returns whether a tile is [0, 1] along an axis of two elements, or [1, 0]. Returns `None`
    /// for other tiles.
    fn picks_upper(&self, mask: Value, axis: usize) -> Option<bool> {
        let at = |index| self.literal_at(mask, axis, index)?.as_int();
        match (at(0)?, at(1)?) {
            (0, 1) => Some(true),
            (1, 0) => Some(false),
            // tidy: wildcard because other factors pick neither element
            _ => None,
        }
    }

    /// Returns the known value of all elements with the coordinate `at` along an axis.
    fn literal_at(&self, value: Value, axis: usize, at: i64) -> Option<Literal> {
        if let Some(constant) = self.constant(value) {
            return Some(constant);
        }
        let data = &self.function.insts[self.function.defining_inst(value)?];
        let dtype = self.function.ty(value).dtype()?;
        match (&data.op, &data.operands[..]) {
            (Op::Arange { start, .. }, _) => Some(Literal::int(dtype, i128::from(*start) + i128::from(at))),
            (Op::Broadcast { .. }, &[source]) => {
                let is_one = self.function.ty(source).shape[axis] == 1;
                self.literal_at(source, axis, if is_one { 0 } else { at })
            }
            (Op::ExpandDims { axis: new }, &[source]) => {
                let new = *new as usize;
                let inner = if new < axis { axis - 1 } else { axis };
                (new != axis).then(|| self.literal_at(source, inner, at))?
            }
            (&Op::Cast { element, rounding }, &[source]) => {
                fold::cast(self.literal_at(source, axis, at)?, element, rounding)
            }
            (Op::Elementwise { function }, &[x, y]) => {
                fold::elementwise(*function, &[self.literal_at(x, axis, at)?, self.literal_at(y, axis, at)?])
            }
            // tidy: wildcard because other tiles are not known before the launch
            _ => None,
        }
    }

    /// Follows `along`, an axis of two elements, back through a reshape that computes `tile`. If
    /// `along` is one bit of a source coordinate, returns the source, the axis of this coordinate,
    /// and the mask of the bit. Otherwise, returns `tile`, `along` and 1. A bitcast after the
    /// reshape moves to the source.
    fn line_of(&mut self, tile: Value, along: usize) -> (Value, u32, u32) {
        let bits = self.operand_of(tile, |op| matches!(op, Op::Bitcast { .. }));
        let shaped = bits.unwrap_or(tile);
        let Some(source) = self.operand_of(shaped, |op| matches!(op, Op::Reshape { .. })) else {
            return (tile, along as u32, 1);
        };
        let below = |shape: &Shape, axis: usize| shape.iter().skip(axis + 1).product::<u32>();
        let stride = below(&self.function.ty(shaped).shape, along);
        let shape = self.function.ty(source).shape.clone();
        let holds = |axis: &usize| {
            let (below, extent) = (below(&shape, *axis), shape[*axis]);
            extent.is_power_of_two() && stride % below == 0 && stride / below < extent
        };
        let Some(axis) = (0..shape.len()).find(holds).filter(|_| stride.is_power_of_two()) else {
            return (tile, along as u32, 1);
        };
        let mask = stride / below(&shape, axis);
        let element = self.function.ty(tile).element;
        let ty = Type::new(element, shape);
        let source = if bits.is_some() { self.make(Op::Bitcast { element }, &[source], &ty) } else { source };
        (source, axis as u32, mask)
    }

    /// Returns a mask, reshaped to `to`, that is true where the coordinate along an axis of two is
    /// 0.
    fn is_lower(&mut self, along: usize, shape: &Shape, to: &Shape) -> Value {
        let mut ty = Type::tile(Dtype::I32, [2]);
        let mut place = self.make(Op::Arange { start: 0, end: 2 }, &[], &ty);
        for axis in (0..shape.len()).filter(|axis| *axis != along) {
            let at = if axis < along { 0 } else { ty.shape.len() };
            ty.shape.0.insert(at, 1);
            place = self.make(Op::ExpandDims { axis: at as u32 }, &[place], &ty);
        }
        let zero = self.make_constant(Literal::int(Dtype::I32, 0), &ty.shape);
        let bools = ty.with_dtype(Dtype::I1);
        let is_lower = self.make_elementwise(ElementwiseFn::Eq, &[place, zero], &bools);
        let bools = bools.with_shape(shape.clone());
        let is_lower = self.make(Op::Broadcast { shape: shape.clone() }, &[is_lower], &bools);
        self.make(Op::Reshape { shape: to.clone() }, &[is_lower], &bools.with_shape(to.clone()))
    }

    /// Simplifies an exclusive or of selects: `x ^ (c ? x ^ y : 0)` becomes `c ? y : x`, and `(c ?
    /// x : y) ^ (c ? y : x)` becomes `x ^ y`. Also applies [`Self::partners`].
    pub(super) fn exclusive_or(&mut self, x: Value, y: Value, ty: &Type) -> Option<Value> {
        use ElementwiseFn as F;
        if let Some(partners) = self.partners(x, y, ty).or_else(|| self.partners(y, x, ty)) {
            return Some(partners);
        }
        let choice = |value: Value| {
            let data = &self.function.insts[self.function.defining_inst(value)?];
            match (&data.op, &data.operands[..]) {
                (Op::Elementwise { function: F::Select }, &[condition, a, b]) => Some((condition, a, b)),
                // tidy: wildcard because only `select` selects
                _ => None,
            }
        };
        if let (Some((condition, first, second)), Some(swapped)) = (choice(x), choice(y))
            && swapped == (condition, second, first)
        {
            return Some(self.make_elementwise(F::Xor, &[first, second], ty));
        }
        for (own, other) in [(x, y), (y, x)] {
            let Some((condition, first, second)) = choice(other) else { continue };
            for (pair, rest, swaps) in [(first, second, true), (second, first, false)] {
                if !self.is_constant(rest, |rest| rest.bits == 0) {
                    continue;
                }
                let partner = match self.operands_of(pair, F::Xor) {
                    Some((one, partner) | (partner, one)) if one == own => partner,
                    // tidy: wildcard because the exclusive or does not contain `own`
                    _ => continue,
                };
                let parts = if swaps { [condition, partner, own] } else { [condition, own, partner] };
                return Some(self.make_elementwise(F::Select, &parts, ty));
            }
        }
        None
    }

    /// Simplifies a cast to a boolean of an exclusive or of a widened boolean and 0 or 1.
    pub(super) fn truth_of_exclusive_or(&mut self, value: Value, ty: &Type) -> Option<Value> {
        let (x, y) = self.operands_of(value, ElementwiseFn::Xor)?;
        self.differing_truths(x, y, ty)
    }

    /// Simplifies `x != y` of a widened boolean and 0 or 1 to an exclusive or of booleans.
    pub(super) fn differing_truths(&mut self, x: Value, y: Value, ty: &Type) -> Option<Value> {
        for (truth, number) in [(x, y), (y, x)] {
            let source = self.operand_of(truth, |op| matches!(op, Op::Cast { .. }));
            let is_bit = self.span(number).is_some_and(|(low, high)| low >= 0 && high <= 1);
            if let Some(source) = source.filter(|&source| is_bit && self.function.ty(source).is_bool()) {
                let bit = self.make_cast(number, Element::Value(Dtype::I1), Rounding::default(), ty);
                return Some(self.make_elementwise(ElementwiseFn::Xor, &[source, bit], ty));
            }
        }
        None
    }
}
