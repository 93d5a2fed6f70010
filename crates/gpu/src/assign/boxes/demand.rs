//! Which elements of a tile anybody needs: what is computed of the others is never stored.

use rustc_hash::FxHashSet;
use tilewright_ir::{Definition, Function, Inst, Op, OpFamily, Parents, Uses, Value};

use super::affine::{Affine, new_axis};
use super::atoms::Polynomial;
use super::masks::Bound;

/// The uses of values, and what is around instructions.
pub struct Structure {
    pub uses: Uses,
    pub parents: Parents,
}

impl Structure {
    pub fn new(function: &Function) -> Self {
        Self { uses: Uses::new(function), parents: Parents::new(function) }
    }
}

/// Whether nobody needs the elements of a tile whose index along an axis plus `rest` is 0 or more: all that is made of them is
/// stored under a mask that says so.
pub fn is_needed_below_alone(
    affine: &mut Affine<'_>,
    structure: &Structure,
    value: Value,
    axis: usize,
    rest: &Polynomial,
) -> bool {
    let mut demand = Demand { affine, structure, rest, seen: FxHashSet::default() };
    demand.is_below(value, axis)
}

struct Demand<'a, 'f> {
    affine: &'a mut Affine<'f>,
    structure: &'a Structure,
    rest: &'a Polynomial,
    seen: FxHashSet<(Value, usize)>,
}

impl Demand<'_, '_> {
    fn is_below(&mut self, value: Value, axis: usize) -> bool {
        if !self.seen.insert((value, axis)) {
            return true;
        }
        let uses = self.structure.uses.of(value);
        uses.iter().all(|one| self.use_is_below(one.inst, one.operand, axis))
    }

    fn use_is_below(&mut self, inst: Inst, place: usize, axis: usize) -> bool {
        let function = self.affine.function;
        let data = &function.insts[inst];
        let rank = |value: Value| function.ty(value).rank();
        match (&data.op, data.op.family()) {
            (Op::Elementwise { .. } | Op::Cast { .. } | Op::Bitcast { .. } | Op::Hint { .. }, _) => {
                self.is_below(data.results[0], axis)
            }
            (op, OpFamily::Shape) => {
                let axis =
                    op.as_shape().and_then(|op| new_axis(op, &function.ty(data.operands[0]).shape, axis));
                axis.is_some_and(|axis| self.is_below(data.results[0], axis))
            }
            // Rows of A are rows of the product, columns of B its columns; the axes before are those of a batch.
            (Op::Dot { .. }, _) => {
                let from_end = rank(data.operands[place]) - axis;
                let is_summed = (place, from_end) == (0, 1) || (place, from_end) == (1, 2);
                !is_summed && self.is_below(data.results[0], axis)
            }
            (Op::Reduce { axis: along, .. }, _) => {
                let along = *along as usize;
                let axis = if axis > along { axis - 1 } else { axis };
                rank(data.operands[place]) > 1
                    && axis != along
                    && data.results.clone().iter().all(|result| self.is_below(*result, axis))
            }
            (Op::Store { .. }, _) => place == 1 && self.is_masked(data.operands.get(2).copied(), axis),
            (Op::For { .. }, _) => {
                let Some(number) = place.checked_sub(3) else { return false };
                self.is_carried_below(inst, number, axis)
            }
            (Op::Yield { .. }, _) => {
                let owner = self.structure.parents.enclosing(inst).next();
                owner.is_some_and(|owner| self.is_carried_below(owner, place, axis))
            }
            // tidy: wildcard because of no other op is known who needs what it makes
            _ => false,
        }
    }

    fn is_carried_below(&mut self, inst: Inst, number: usize, axis: usize) -> bool {
        let function = self.affine.function;
        if !matches!(function.insts[inst].op, Op::For { .. } | Op::If { .. }) {
            return false;
        }
        let Some(carried) = function.carried(inst).nth(number) else { return false };
        self.is_below(carried.result, axis)
            && carried.parameters.iter().all(|parameter| self.is_below(*parameter, axis))
    }

    fn is_masked(&mut self, mask: Option<Value>, axis: usize) -> bool {
        let bounds = mask.and_then(|mask| self.affine.bounds(mask)).unwrap_or_default();
        bounds
            .iter()
            .any(|bound| matches!(bound, Bound::Below(other, rest) if *other == axis && rest == self.rest))
    }
}

/// Whether a value is a parameter of the kernel.
pub fn is_kernel_parameter(affine: &Affine<'_>, value: Value) -> bool {
    let function = affine.function;
    matches!(function.values[value].definition, Definition::Parameter(block, _) if block == function.entry)
}
