//! Replaces results that an earlier instruction has already computed.
//!
//! An integer is shared if the earlier block dominates the later one. Vectors and masks are shared
//! only inside of a block, where they occupy a register for a shorter time.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    dominators::Dominators,
    ir::{Block, Function, Inst, IntBinary, IntCompare, Op, Target, Terminator, Type, Value},
    layout::reachable_blocks,
};

type Key = (Op, SmallVec<[Value; 4]>);

/// Replaces the uses of repeated results. The repeated instructions remain, without uses.
pub fn number_values(function: &mut Function) {
    let dominators = Dominators::new(function);
    let mut computed: FxHashMap<Key, SmallVec<[(Block, Value); 1]>> = FxHashMap::default();
    let mut replaced: Vec<Value> = (0..function.types.len() as u32).map(Value).collect();
    for block in reachable_blocks(function) {
        let data = &mut function.blocks[block.0 as usize];
        for inst in &mut data.insts {
            for operand in &mut inst.operands {
                *operand = replaced[operand.0 as usize];
            }
            let Some(result) = inst.result else { continue };
            if !is_pure(inst.op) {
                continue;
            }
            let is_local = function.types[result.0 as usize] != Type::Int;
            let known = computed.entry(key(inst)).or_default();
            let same = known.iter().find(|&&(other, _)| {
                if is_local {
                    other == block
                } else {
                    dominators.dominates(other.0 as usize, block.0 as usize)
                }
            });
            match same {
                Some(&(_, value)) => replaced[result.0 as usize] = value,
                None => known.push((block, result)),
            }
        }
        if let Some(terminator) = &mut data.terminator {
            replace_in(terminator, &replaced);
        }
    }
}

fn replace_in(terminator: &mut Terminator, replaced: &[Value]) {
    let replace = |value: &mut Value| *value = replaced[value.0 as usize];
    let arguments = |target: &mut Target| target.arguments.iter_mut().for_each(replace);
    match terminator {
        Terminator::Jump(target) => arguments(target),
        Terminator::Branch(condition, target, other) => {
            replace(condition);
            arguments(target);
            arguments(other);
        }
        Terminator::Return(value) => replace(value),
    }
}

/// Returns the operation and its operands, sorted for commutative operations on integers.
fn key(inst: &Inst) -> Key {
    use IntBinary as F;
    let mut operands = inst.operands.clone();
    let is_commutative = matches!(
        inst.op,
        Op::IntBinary(F::Add | F::Mul | F::And | F::Or | F::Xor | F::Min | F::Max)
            | Op::IntCompare(IntCompare::Eq | IntCompare::Ne)
    );
    if is_commutative {
        operands.sort_unstable();
    }
    (inst.op, operands)
}

/// Returns whether an operation depends only on its operands and has no effect.
fn is_pure(op: Op) -> bool {
    match op {
        Op::IntConstant(_)
        | Op::IntBinary(_)
        | Op::IntCompare(_)
        | Op::IntSelect
        | Op::IntExtend { .. }
        | Op::Constant(..)
        | Op::Splat(_)
        | Op::First
        | Op::Iota(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::MultiplyAdd
        | Op::Compare(_)
        | Op::Select
        | Op::Convert(..)
        | Op::Rotate(_)
        | Op::MaskConstant(_)
        | Op::MaskBinary(_)
        | Op::MaskNot
        | Op::MaskSelect
        | Op::FirstLanes
        | Op::MaskOfBits
        | Op::MaskBits => true,
        Op::IntLoad { .. }
        | Op::IntStore { .. }
        | Op::Load { .. }
        | Op::Store { .. }
        | Op::Prefetch { .. }
        | Op::LoadSplat { .. }
        | Op::Gather(_)
        | Op::Scatter
        | Op::Call { .. } => false,
    }
}
