//! Masks as bounds of the indices along single axes.

use tilewright_ir::{Dtype, Element, ElementwiseFn, Op, OpFamily, Value, constant_int};

use super::affine::{Affine, new_axis};
use super::atoms::{Atom, Polynomial, Product};

/// A bound of the index along an axis: what a mask, or a part of it, says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The index plus this is less than 0.
    Below(usize, Polynomial),
    /// The index plus this is 0 or more.
    From(usize, Polynomial),
}

impl Bound {
    /// The same of the axis that its own becomes.
    fn with_axis(self, axis: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        Some(match self {
            Self::Below(own, rest) => Self::Below(axis(own)?, rest),
            Self::From(own, rest) => Self::From(axis(own)?, rest),
        })
    }
}

impl Affine<'_> {
    /// A tile of conditions as bounds that hold together; nothing if it is anything else.
    pub fn bounds(&mut self, mask: Value) -> Option<Vec<Bound>> {
        Some(self.conjuncts(mask)?.into_iter().map(|(_, bound)| bound).collect())
    }

    /// The indices that a mask bounds, if it is bounds alone: those of the tile, and tiles of any numbers.
    pub fn bounded(&mut self, mask: Value) -> Option<Vec<Atom>> {
        Some(self.conjuncts(mask)?.into_iter().map(|(index, _)| index).collect())
    }

    /// The indices that a mask bounds and their bounds, of which it is the conjunction; nothing of any other mask, such as one
    /// with a negation, an alternative or a loaded condition in it.
    fn conjuncts(&mut self, mask: Value) -> Option<Vec<(Atom, Bound)>> {
        let data = &self.function.insts[self.function.defining_inst(mask)?];
        match (&data.op, &data.operands[..]) {
            (Op::Elementwise { function: ElementwiseFn::And }, &[a, b]) => {
                let mut found = self.conjuncts(a)?;
                found.extend(self.conjuncts(b)?);
                Some(found)
            }
            (Op::Elementwise { function }, &[a, b]) => Some(vec![self.comparison(*function, [a, b])?]),
            (op, &[operand]) if op.family() == OpFamily::Shape => {
                let (op, shape) = (op.as_shape()?, &self.function.ty(operand).shape);
                let moved = |axis: usize| new_axis(op, shape, axis);
                let found = self.conjuncts(operand)?;
                found
                    .into_iter()
                    .map(|(index, bound)| Some((index.with_axis(moved)?, bound.with_axis(moved)?)))
                    .collect()
            }
            // tidy: wildcard because other conditions are none of the indices along single axes
            _ => None,
        }
    }

    /// The index that a comparison bounds, and the bound.
    fn comparison(&mut self, function: ElementwiseFn, [a, b]: [Value; 2]) -> Option<(Atom, Bound)> {
        // The smaller side, the greater one, and what is added so that the first is less than the second.
        let (small, great, more) = match function {
            ElementwiseFn::Lt => (a, b, 0),
            ElementwiseFn::Le => (a, b, -1),
            ElementwiseFn::Gt => (b, a, 0),
            ElementwiseFn::Ge => (b, a, -1),
            // tidy: wildcard because the others are no bounds
            _ => return None,
        };
        // For every index from 0 on, `index < max(x, 0)` and `index >= max(x, 0)` say the same as with x. `index <= max(x, 0)` and
        // `index > max(x, 0)` do not: they differ for index 0 if x is negative.
        let is_strict = more == 0;
        let (small, great) = (self.side(small, great, !is_strict)?, self.side(great, small, is_strict)?);
        let difference = small.minus(&great)?.plus(&Polynomial::constant(more))?;
        let (axis, index) = difference.terms().find_map(|(product, _)| match product[..] {
            [atom @ (Atom::Axis(axis) | Atom::Row(axis, _))] => Some((axis, atom)),
            // tidy: wildcard because all other products are part of the rest
            _ => None,
        })?;
        let (factor, rest) = difference.factor_of(index)?;
        if rest.any(|atom| matches!(atom, Atom::Axis(_) | Atom::Row(..))) {
            return None;
        }
        match factor.as_constant()? {
            1 => Some((index, Bound::Below(axis, rest))),
            // -index + rest < 0: the index is rest + 1 or more.
            -1 => {
                let least = rest.plus(&Polynomial::constant(1))?;
                Some((index, Bound::From(axis, least.times(&Polynomial::constant(-1))?)))
            }
            _ => None,
        }
    }

    /// One side of a comparison. A bound that was clamped to what the index on the other side can be is the bound itself, if the
    /// comparison allows it.
    fn side(&mut self, side: Value, other: Value, may_be_clamped: bool) -> Option<Polynomial> {
        let index = self.integer(other).filter(|sum| sum.wraps.is_empty()).map(|sum| sum.number);
        if may_be_clamped
            && let Some(index) = index
            && let Some((start, extent)) = self.range_of_index(other, &index)
            && let Some(inner) = self.clamped(side, start, extent)
        {
            return self.integer(inner).filter(|sum| sum.wraps.is_empty()).map(|sum| sum.number);
        }
        let sum = self.integer(side)?;
        sum.wraps.is_empty().then_some(sum.number)
    }

    /// The first of the numbers from 0 on that a tile counts, and how many they are: also of those that come before it where it is
    /// a part of what the blocks of a cluster count together.
    fn range_of_index(&self, tile: Value, index: &Polynomial) -> Option<(i64, i64)> {
        let shape = &self.function.ty(tile).shape;
        let is_axis = |product: &Product| matches!(product[..], [Atom::Axis(_)]);
        let (own, before) = index.split(is_axis);
        let axis = (0..shape.len()).find(|axis| own == Polynomial::var(Atom::Axis(*axis)))?;
        let most = before.terms().try_fold(0_i64, |most, (product, factor)| {
            let [Atom::Value(rank)] = product[..] else { return None };
            let product = self.most_of_rank(rank)?.checked_mul(factor).filter(|_| factor > 0)?;
            most.checked_add(product)
        })?;
        Some((0, most.checked_add(i64::from(shape[axis]))?))
    }

    /// The number of the last block of a cluster, of a value that is the number of the block in its cluster.
    fn most_of_rank(&self, value: Value) -> Option<i64> {
        let data = &self.function.insts[self.function.defining_inst(value)?];
        let Op::Elementwise { function: ElementwiseFn::IntRem } = data.op else { return None };
        let is_program = matches!(self.function.defining_op(data.operands[0]), Some(Op::ProgramId { .. }));
        let blocks = constant_int(self.function, data.operands[1]).filter(|_| is_program)?;
        i64::try_from(blocks).ok().filter(|blocks| *blocks > 0).map(|blocks| blocks - 1)
    }

    /// The `x` of `min(max(x, 0), c)`, where `c` is the extent or more.
    fn clamped(&self, tile: Value, start: i64, extent: i64) -> Option<Value> {
        let inst = |value: Value| self.function.defining_inst(value).map(|inst| &self.function.insts[inst]);
        let constant = |value: Value| constant_int(self.function, value);
        let mut value = tile;
        loop {
            let data = inst(value)?;
            match &data.op {
                // Each of these types holds every number up to the most that a clamp may give here.
                Op::Splat { .. } | Op::Cast { element: Element::Value(Dtype::I32 | Dtype::I64), .. } => {
                    value = data.operands[0];
                }
                Op::Elementwise { function: ElementwiseFn::Min } => {
                    if !(i128::from(extent)..=i128::from(i32::MAX)).contains(&constant(data.operands[1])?) {
                        return None;
                    }
                    let inner = inst(data.operands[0])?;
                    let Op::Elementwise { function: ElementwiseFn::Max } = inner.op else { return None };
                    return (constant(inner.operands[1])? == i128::from(start)).then_some(inner.operands[0]);
                }
                // tidy: wildcard because nothing else clamps
                _ => return None,
            }
        }
    }
}
