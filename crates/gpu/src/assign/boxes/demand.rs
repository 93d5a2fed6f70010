//! Proves that no stored value depends on the elements of a tile past a bound.

use rustc_hash::FxHashSet;
use tilewright_ir::analysis::scalar_evolution::{Form, ScalarEvolution, result_axis};
use tilewright_ir::{Definition, Function, Inst, Op, OpFamily, Parents, Uses, Value};

use super::masks::{Bound, bounds};

pub struct Structure {
    pub uses: Uses,
    pub parents: Parents,
}

impl Structure {
    pub fn new(function: &Function) -> Self {
        Self { uses: Uses::new(function), parents: Parents::new(function) }
    }
}

/// Returns whether the elements with `index + rest >= 0` along an axis are unused. A mask must
/// exclude them from each store of a value that is computed from them.
pub fn is_needed_only_below(
    evolution: &mut ScalarEvolution<'_>,
    structure: &Structure,
    value: Value,
    axis: usize,
    rest: &Form,
) -> bool {
    let mut demand = Demand { evolution, structure, rest, seen: FxHashSet::default() };
    demand.is_below(value, axis)
}

struct Demand<'a, 'f> {
    evolution: &'a mut ScalarEvolution<'f>,
    structure: &'a Structure,
    rest: &'a Form,
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

    fn use_is_below(&mut self, inst: Inst, operand: usize, axis: usize) -> bool {
        let function = self.evolution.function;
        let data = &function.insts[inst];
        let rank = |value: Value| function.ty(value).rank();
        match (&data.op, data.op.family()) {
            (Op::Elementwise { .. } | Op::Cast { .. } | Op::Bitcast { .. } | Op::Hint { .. }, _) => {
                self.is_below(data.results[0], axis)
            }
            (op, OpFamily::Shape) => {
                let axis =
                    op.as_shape().and_then(|op| result_axis(op, &function.ty(data.operands[0]).shape, axis));
                axis.is_some_and(|axis| self.is_below(data.results[0], axis))
            }
            // Rows of A are rows of the result, and columns of B are columns of the result. The dot
            // reduces the columns of A and the rows of B, so it needs all of them. Earlier axes
            // belong to the batch. Scales are small, and count as needed.
            (_, OpFamily::Dot) => {
                let from_end = rank(data.operands[operand]) - axis;
                let is_reduced = (operand, from_end) == (0, 1) || (operand, from_end) == (1, 2);
                let is_reduced = is_reduced || operand > 2;
                !is_reduced && self.is_below(data.results[0], axis)
            }
            (Op::Reduce { axis: along, .. }, _) => {
                let along = *along as usize;
                let axis_of_result = if axis > along { axis - 1 } else { axis };
                rank(data.operands[operand]) > 1
                    && axis != along
                    && data.results.iter().all(|result| self.is_below(*result, axis_of_result))
            }
            (Op::Store { .. }, _) => operand == 1 && self.is_masked(data.operands.get(2).copied(), axis),
            (Op::For { .. }, _) => {
                let Some(index) = operand.checked_sub(3) else { return false };
                self.is_carried_below(inst, index, axis)
            }
            (Op::Yield { .. }, _) => {
                let owner = self.structure.parents.enclosing(inst).next();
                owner.is_some_and(|owner| self.is_carried_below(owner, operand, axis))
            }
            // tidy: wildcard because other ops may need all elements
            _ => false,
        }
    }

    fn is_carried_below(&mut self, inst: Inst, index: usize, axis: usize) -> bool {
        let function = self.evolution.function;
        if !matches!(function.insts[inst].op, Op::For { .. } | Op::If { .. }) {
            return false;
        }
        let Some(carried) = function.carried(inst).nth(index) else { return false };
        self.is_below(carried.result, axis)
            && carried.parameters.iter().all(|parameter| self.is_below(*parameter, axis))
    }

    fn is_masked(&mut self, mask: Option<Value>, axis: usize) -> bool {
        let bounds = mask.and_then(|mask| bounds(self.evolution, mask)).unwrap_or_default();
        bounds
            .iter()
            .any(|bound| matches!(bound, Bound::Below(other, rest) if *other == axis && rest == self.rest))
    }
}

pub fn is_kernel_parameter(function: &Function, value: Value) -> bool {
    matches!(function.values[value].definition, Definition::Parameter(block, _) if block == function.entry)
}
