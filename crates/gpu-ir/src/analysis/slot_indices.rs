//! Expresses integer scalars, such as slot indices, as a value plus a constant. The sum is modulo
//! the number of slots.

use tilewright_ir as ir;
use tilewright_ir::{Block, Definition, ElementwiseFn, Inst, Operation, Value};

use super::slots::{BaseOffset, SlotAnalysis, modulo};
use crate::{GpuOp, Op};

impl SlotAnalysis<'_> {
    /// Returns the value of an integer scalar if it is a constant.
    pub fn constant(&self, value: Value) -> Option<i64> {
        let sum = self.base_offset(value, 0);
        sum.base.is_none().then_some(sum.offset)
    }

    /// Returns a value as a base plus a constant, modulo `slots` unless `slots` is 0.
    pub fn base_offset(&self, value: Value, slots: i64) -> BaseOffset {
        if let Some(sum) = self.base_offsets.borrow().get(&(value, slots)) {
            return *sum;
        }
        let mut sum = self.local_base_offset(value, slots);
        if let Some(base) = sum.base {
            let leader = self.leader(base, slots);
            sum = BaseOffset {
                base: leader.base,
                offset: modulo(sum.offset.wrapping_add(leader.offset), slots),
            };
        }
        self.base_offsets.borrow_mut().insert((value, slots), sum);
        sum
    }

    /// Returns [`base_offset`](Self::base_offset), but each loop-carried value is its own base.
    fn local_base_offset(&self, value: Value, slots: i64) -> BaseOffset {
        // A select that wraps a counter uses one value twice. Without the cache, the work would
        // double.
        if let Some(sum) = self.local_base_offsets.borrow().get(&(value, slots)) {
            return *sum;
        }
        let sum = self.compute_base_offset(value, slots);
        self.local_base_offsets.borrow_mut().insert((value, slots), sum);
        sum
    }

    fn compute_base_offset(&self, value: Value, slots: i64) -> BaseOffset {
        let opaque = BaseOffset { base: Some(value), offset: 0 };
        let Some(inst) = self.function.defining_inst(value) else { return opaque };
        let data = &self.function.insts[inst];
        let function = match &data.op {
            Op::Tile(ir::Op::Constant { value: literal }) => {
                let number = literal.as_int().and_then(|number| i64::try_from(number).ok());
                return number
                    .map_or(opaque, |number| BaseOffset { base: None, offset: modulo(number, slots) });
            }
            Op::Tile(ir::Op::Elementwise { function }) | Op::Gpu(GpuOp::Elementwise { function, .. }) => {
                *function
            }
            // tidy: wildcard because the results of other ops are opaque
            _ => return opaque,
        };
        let operand = |index: usize| self.local_base_offset(data.operands[index], slots);
        let exact = |index: usize| {
            let sum = self.local_base_offset(data.operands[index], 0);
            sum.base.is_none().then_some(sum.offset)
        };
        let whole = |number: i64| slots > 0 && number > 0 && number % slots == 0;
        let plus = |sum: BaseOffset, number: i64| BaseOffset {
            base: sum.base,
            offset: modulo(sum.offset.wrapping_add(number), slots),
        };
        match function {
            ElementwiseFn::Add => match (operand(0), operand(1)) {
                (sum, BaseOffset { base: None, offset }) | (BaseOffset { base: None, offset }, sum) => {
                    plus(sum, offset)
                }
                _ => opaque,
            },
            ElementwiseFn::Sub => match (operand(0), operand(1)) {
                (sum, BaseOffset { base: None, offset }) => plus(sum, offset.wrapping_neg()),
                _ => opaque,
            },
            ElementwiseFn::IntRem if exact(1).is_some_and(whole) => operand(0),
            ElementwiseFn::And
                if exact(1)
                    .and_then(|bits| Some((bits, bits.checked_add(1)?)))
                    .is_some_and(|(bits, next)| whole(next) && bits & next == 0) =>
            {
                operand(0)
            }
            ElementwiseFn::Xor if slots == 2 && exact(1) == Some(1) => plus(operand(0), 1),
            ElementwiseFn::Select => self.wrapped(&data.operands, slots).unwrap_or(opaque),
            // tidy: wildcard because other functions add no constant
            _ => opaque,
        }
    }

    /// Returns the value of a select of equal values, or of a reset counter. Example:
    /// `0 if z == n else z` equals `z` modulo `slots` if `slots` divides `n`.
    fn wrapped(&self, operands: &[Value], slots: i64) -> Option<BaseOffset> {
        let [one, other] = [1, 2].map(|index| self.local_base_offset(operands[index], slots));
        if one == other {
            return Some(one);
        }
        let condition = &self.function.insts[self.function.defining_inst(operands[0])?];
        let (Op::Tile(ir::Op::Elementwise { function }) | Op::Gpu(GpuOp::Elementwise { function, .. })) =
            &condition.op
        else {
            return None;
        };
        let [left, bound] = condition.operands[..] else { return None };
        let bound = self.local_base_offset(bound, 0);
        let is_end = bound.base.is_none() && slots > 0 && bound.offset != 0 && bound.offset % slots == 0;
        // With a step larger than 1, `z` could exceed `n`, and 0 would differ from `z` modulo `n`.
        let is_step = self.local_base_offset(left, 0).offset == 1;
        let (reset, kept, at) = match function {
            ElementwiseFn::Eq => (one, other, operands[2]),
            ElementwiseFn::Ne => (other, one, operands[1]),
            ElementwiseFn::Ge if is_step => (one, other, operands[2]),
            ElementwiseFn::Lt if is_step => (other, one, operands[1]),
            // tidy: wildcard because other conditions do not compare with the end
            _ => return None,
        };
        (is_end && at == left && reset == BaseOffset { base: None, offset: 0 }).then_some(kept)
    }

    /// Returns a loop-carried value as its leader plus a constant. The leader is the loop's first
    /// carried value at a constant distance, or this value.
    ///
    /// For an unchanged value, returns its initial value.
    fn leader(&self, value: Value, slots: i64) -> BaseOffset {
        let own = BaseOffset { base: Some(value), offset: 0 };
        let (block, index, inst) = match self.function.values[value].definition {
            Definition::Parameter(block, index) => (block, index as usize, self.owner(block)),
            Definition::Result(inst, index) => {
                let Some(body) = self.function.insts[inst].regions.first() else { return own };
                (*body, index as usize + 1, Some(inst))
            }
        };
        let Some(inst) = inst else { return own };
        if !matches!(self.function.insts[inst].op.as_tile(), Some(ir::Op::For { .. })) {
            return own;
        }
        let Some((start, step)) = self.progress(inst, block, index, slots) else { return own };
        if step == 0 {
            return start;
        }
        let count = self.function.blocks[block].parameters.len();
        // The loop index is out of scope after the loop, so it is the last candidate.
        for other in (1..count).chain([0]) {
            if other == index {
                break;
            }
            let Some((other_start, other_step)) = self.progress(inst, block, other, slots) else { continue };
            if other_step == step && other_start.base == start.base {
                let leader = match self.function.values[value].definition {
                    Definition::Parameter(..) => self.function.blocks[block].parameters[other],
                    Definition::Result(..) if other == 0 => continue,
                    Definition::Result(..) => self.function.insts[inst].results[other - 1],
                };
                let offset = modulo(start.offset.wrapping_sub(other_start.offset), slots);
                return BaseOffset { base: Some(leader), offset };
            }
        }
        own
    }

    /// Returns a loop parameter's initial value and its increment per iteration. Returns `None` if
    /// the increment is not constant.
    fn progress(&self, inst: Inst, body: Block, index: usize, slots: i64) -> Option<(BaseOffset, i64)> {
        let data = &self.function.insts[inst];
        let parameter = self.function.blocks[body].parameters[index];
        if self.function.ty(parameter).as_registers().is_none_or(|tile| !tile.is_scalar()) {
            return None;
        }
        if index == 0 {
            let step = self.local_base_offset(data.operands[2], slots);
            return step.base.is_none().then(|| (self.base_offset(data.operands[0], slots), step.offset));
        }
        let next = |index: usize| self.local_base_offset(self.function.yielded(body)[index - 1], slots);
        let start = |index: usize| self.base_offset(data.operands[index + 2], slots);
        let own = next(index);
        if own.base == Some(parameter) {
            return Some((start(index), own.offset));
        }
        // The parameter may be another parameter's previous value plus a constant. If the same
        // holds in the first iteration, both advance by the same step. Before it, the other
        // parameter is its initial value minus its step.
        let Definition::Parameter(block, other) = self.function.values[own.base?].definition else {
            return None;
        };
        let other = (other as usize).checked_sub(1).filter(|_| block == body)? + 1;
        let step = next(other);
        let is_it = step.base == own.base && {
            let (start, other) = (start(index), start(other));
            let offset = other.offset.wrapping_add(own.offset).wrapping_sub(step.offset);
            start.base == other.base && start.offset == modulo(offset, slots)
        };
        is_it.then(|| (start(index), step.offset))
    }
}
