//! Which elements of a tile anybody needs: what is computed of the others is never stored.

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tilewright_ir::{Block, Definition, Inst, Op, OpFamily, Value};

use super::affine::{Affine, new_axis};
use super::masks::Bound;
use super::polynomial::Polynomial;

/// Who uses a value.
pub struct Uses {
    of_value: SecondaryMap<Value, SmallVec<[(Inst, usize); 2]>>,
    /// The instruction that has a region, and the block that an instruction is in.
    owners: FxHashMap<Block, Inst>,
    blocks: SecondaryMap<Inst, Option<Block>>,
}

impl Uses {
    /// Of the values of a function.
    pub fn new(affine: &Affine<'_>) -> Self {
        let function = affine.function;
        let mut uses =
            Self { of_value: SecondaryMap::new(), owners: FxHashMap::default(), blocks: SecondaryMap::new() };
        uses.block(affine, function.entry);
        uses
    }

    /// The block that an instruction is in.
    pub fn block_of(&self, inst: Inst) -> Option<Block> {
        self.blocks[inst]
    }

    /// The instruction that has a block as a region.
    pub fn owner(&self, block: Block) -> Option<Inst> {
        self.owners.get(&block).copied()
    }

    fn block(&mut self, affine: &Affine<'_>, block: Block) {
        for &inst in &affine.function.blocks[block].insts {
            self.blocks[inst] = Some(block);
            for (place, operand) in affine.function.insts[inst].operands.iter().enumerate() {
                self.of_value[*operand].push((inst, place));
            }
            for &region in &affine.function.insts[inst].regions {
                self.owners.insert(region, inst);
                self.block(affine, region);
            }
        }
    }
}

/// Whether nobody needs the elements of a tile whose index along an axis plus `rest` is 0 or more: all that is made of them is
/// stored under a mask that says so.
pub fn is_needed_below_alone(
    affine: &mut Affine<'_>,
    uses: &Uses,
    value: Value,
    axis: usize,
    rest: &Polynomial,
) -> bool {
    let mut demand = Demand { affine, uses, rest, seen: FxHashSet::default() };
    demand.is_below(value, axis)
}

struct Demand<'a, 'f> {
    affine: &'a mut Affine<'f>,
    uses: &'a Uses,
    rest: &'a Polynomial,
    seen: FxHashSet<(Value, usize)>,
}

impl Demand<'_, '_> {
    fn is_below(&mut self, value: Value, axis: usize) -> bool {
        if !self.seen.insert((value, axis)) {
            return true;
        }
        let uses = &self.uses.of_value[value];
        uses.iter().all(|(inst, place)| self.use_is_below(*inst, *place, axis))
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
                let owner = self.uses.blocks[inst].and_then(|block| self.uses.owners.get(&block).copied());
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
