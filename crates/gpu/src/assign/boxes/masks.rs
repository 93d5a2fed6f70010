//! Translates a mask to bounds of the indices along single axes. A bound compares an index with a
//! [`Form`], a polynomial of scalars.

use tilewright_ir::analysis::polynomial::Monomial;
use tilewright_ir::analysis::scalar_evolution::{Form, ScalarEvolution, Term, result_axis};
use tilewright_ir::{Dtype, Element, ElementwiseFn, Op, OpFamily, Value, constant_int};

/// A bound of the index along one axis: a conjunct of a mask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The index along the axis, plus the form, is less than 0.
    Below(usize, Form),
    /// The index along the axis, plus the form, is at least 0.
    From(usize, Form),
}

impl Bound {
    /// Returns the bound for the result of a shape op. `axis` maps an axis of the operand to the
    /// axis of the result.
    fn with_axis(self, axis: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        Some(match self {
            Self::Below(own, rest) => Self::Below(axis(own)?, rest),
            Self::From(own, rest) => Self::From(axis(own)?, rest),
        })
    }
}

/// Returns the bounds whose conjunction is the mask. Returns `None` if the mask is not a
/// conjunction of bounds.
pub fn bounds(evolution: &mut ScalarEvolution<'_>, mask: Value) -> Option<Vec<Bound>> {
    let conjuncts = Masks { evolution }.conjuncts(mask)?;
    Some(conjuncts.into_iter().map(|(_, bound)| bound).collect())
}

/// Returns the indices that a mask bounds. An index is a position along an axis, or an element of a
/// tile of loaded indices. Returns `None` if the mask is not a conjunction of bounds.
pub fn bounded_indices(evolution: &mut ScalarEvolution<'_>, mask: Value) -> Option<Vec<Term>> {
    let conjuncts = Masks { evolution }.conjuncts(mask)?;
    Some(conjuncts.into_iter().map(|(index, _)| index).collect())
}

struct Masks<'a, 'f> {
    evolution: &'a mut ScalarEvolution<'f>,
}

impl Masks<'_, '_> {
    /// Returns the bounded indices and their bounds, whose conjunction is the mask. Returns `None`
    /// for a mask with a negation, a disjunction or a loaded condition.
    fn conjuncts(&mut self, mask: Value) -> Option<Vec<(Term, Bound)>> {
        let function = self.evolution.function;
        let data = &function.insts[function.defining_inst(mask)?];
        match (&data.op, &data.operands[..]) {
            (Op::Elementwise { function: ElementwiseFn::And }, &[a, b]) => {
                let mut found = self.conjuncts(a)?;
                found.extend(self.conjuncts(b)?);
                Some(found)
            }
            (Op::Elementwise { function }, &[a, b]) => Some(vec![self.comparison(*function, [a, b])?]),
            (op, &[operand]) if op.family() == OpFamily::Shape => {
                let (op, shape) = (op.as_shape()?, &function.ty(operand).shape);
                let moved = |axis: usize| result_axis(op, shape, axis);
                let found = self.conjuncts(operand)?;
                found
                    .into_iter()
                    .map(|(index, bound)| Some((index.with_axis(moved)?, bound.with_axis(moved)?)))
                    .collect()
            }
            // tidy: wildcard because other conditions do not bound the index along one axis
            _ => None,
        }
    }

    fn comparison(&mut self, function: ElementwiseFn, [a, b]: [Value; 2]) -> Option<(Term, Bound)> {
        // The comparison is `small + more < great`.
        let (small, great, more) = match function {
            ElementwiseFn::Lt => (a, b, 0),
            ElementwiseFn::Le => (a, b, -1),
            ElementwiseFn::Gt => (b, a, 0),
            ElementwiseFn::Ge => (b, a, -1),
            // tidy: wildcard because other functions do not bound
            _ => return None,
        };
        // For nonnegative indices, `index < max(x, 0)` is `index < x`, and `index >= max(x, 0)` is
        // `index >= x`. With `<=` or `>`, index 0 and a negative `x` give another result.
        let is_strict = more == 0;
        let (small, great) = (self.side(small, great, !is_strict)?, self.side(great, small, is_strict)?);
        let difference = small.minus(&great)?.offset(more)?;
        let (axis, index) = difference.terms().find_map(|(product, _)| match product[..] {
            [term @ (Term::Axis(axis) | Term::Element(axis, _))] => Some((axis, term)),
            // tidy: wildcard because the index is a single term; all other products are in `rest`
            _ => None,
        })?;
        let (factor, rest) = difference.factor_of(index)?;
        if rest.any(Term::is_of_tile) {
            return None;
        }
        match factor.as_constant()? {
            1 => Some((index, Bound::Below(axis, rest))),
            // `-index + rest < 0` means that the index is at least `rest + 1`.
            -1 => Some((index, Bound::From(axis, rest.offset(1)?.scaled(-1)?))),
            _ => None,
        }
    }

    /// Returns the form of one side of a comparison. If `may_be_clamped`, ignores a clamp to the
    /// range of the index `other`.
    fn side(&mut self, side: Value, other: Value, may_be_clamped: bool) -> Option<Form> {
        if may_be_clamped
            && let Some(index) = self.evolution.form_everywhere(other)
            && let Some((start, extent)) = self.range_of_index(other, &index)
            && let Some(inner) = self.clamped(side, start, extent)
        {
            return self.evolution.form_everywhere(inner);
        }
        self.evolution.form_everywhere(side)
    }

    /// Returns the range of consecutive indices from 0 on; the end is exclusive. If the indices
    /// continue from block to block of a cluster, the range has those of all blocks.
    fn range_of_index(&self, tile: Value, index: &Form) -> Option<(i128, i128)> {
        let shape = &self.evolution.function.ty(tile).shape;
        let (own, before) = index.split(|product| matches!(product[..], [Term::Axis(_)]));
        let axis = (0..shape.len()).find(|axis| own == Form::var(Term::Axis(*axis)))?;
        let add = |most: i128, (product, factor): (&Monomial<Term>, i128)| {
            let [Term::Value(rank)] = product[..] else { return None };
            let product = self.max_block_rank(rank)?.checked_mul(factor).filter(|_| factor > 0)?;
            most.checked_add(product)
        };
        let most = before.terms().try_fold(0, add)?;
        Some((0, most.checked_add(i128::from(shape[axis]))?))
    }

    /// Returns the greatest rank if a value is a block's rank in its cluster.
    fn max_block_rank(&self, value: Value) -> Option<i128> {
        let function = self.evolution.function;
        let data = &function.insts[function.defining_inst(value)?];
        let Op::Elementwise { function: ElementwiseFn::IntRem } = data.op else { return None };
        let is_program = matches!(function.defining_op(data.operands[0]), Some(Op::ProgramId { .. }));
        let blocks = constant_int(function, data.operands[1]).filter(|_| is_program)?;
        (blocks > 0).then_some(blocks - 1)
    }

    /// Returns `x` for the clamp `min(max(x, start), c)`, where `c` is from `extent` to `i32::MAX`.
    /// Looks through splats and casts.
    fn clamped(&self, tile: Value, start: i128, extent: i128) -> Option<Value> {
        let function = self.evolution.function;
        let inst = |value: Value| function.defining_inst(value).map(|inst| &function.insts[inst]);
        let mut value = tile;
        loop {
            let data = inst(value)?;
            match &data.op {
                // These types hold the clamped value, which is at most `i32::MAX`.
                Op::Splat { .. } | Op::Cast { element: Element::Value(Dtype::I32 | Dtype::I64), .. } => {
                    value = data.operands[0];
                }
                Op::Elementwise { function: ElementwiseFn::Min } => {
                    let high = constant_int(function, data.operands[1])?;
                    if !(extent..=i128::from(i32::MAX)).contains(&high) {
                        return None;
                    }
                    let inner = inst(data.operands[0])?;
                    let Op::Elementwise { function: ElementwiseFn::Max } = inner.op else { return None };
                    let low = constant_int(function, inner.operands[1])?;
                    return (low == start).then_some(inner.operands[0]);
                }
                // tidy: wildcard because no other op clamps
                _ => return None,
            }
        }
    }
}
