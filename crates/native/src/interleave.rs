//! Interleaves independent chains of instructions.
//! A loop with several vectors per iteration has a chain of dependent instructions per vector. A
//! single `exp` is a chain of 27 instructions and 64 cycles. The schedulers of a processor then do
//! not see the next chain. This pass alternates the chains of a group:
//!
//! ```text
//! before: a1 a2 a3 b1 b2 b3      after: a1 b1 a2 b2 a3 b3
//! ```
//!
//! Groups are as large as the vector registers permit.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    ir::{Block, Function, Inst, Op, Type, Value},
    loop_constants::{Weight, constant_weights, max_live},
    uses::Uses,
};

/// The sizes of groups, in the order in which the pass tries them.
const GROUPS: [usize; 3] = [4, 3, 2];

/// The fewest instructions of an interleaved chain. The processor overlaps shorter chains itself.
const MIN_CHAIN: usize = 12;

/// The number of vector registers by which the live values may exceed the available registers.
/// Spills of values with few uses, such as accumulators, cost less than the latency of a chain.
///
/// The value 8 is between the measured values 4 and 12. Measured: time relative to code without
/// groups, for the values 0, 4 and 12, EPYC (AVX2), 2026-11-28. Softmax: 0.93, 0.91, 0.86. Gelu
/// (erf): 0.97, 0.81, 0.82. Gelu (tanh): 1.0, 0.81, 0.90.
const MAX_SPILLED: usize = 8;

/// Interleaves the chains of each block. Moves no load or store across a store. `registers` is the
/// number of vector registers.
pub fn interleave(function: &mut Function, reachable: &[Block], registers: usize, weight: Weight<'_>) {
    let uses = &Uses::new(function, reachable);
    let constants = constant_weights(function, weight);
    for &block in reachable {
        let (chains, dependencies) = chains(function, uses, block);
        if chains.len() < 2 {
            continue;
        }
        let old = std::mem::take(&mut function.blocks[block.0 as usize].insts);
        let fits = GROUPS.iter().any(|&size| {
            let order = merged(&chains, &dependencies, size);
            function.blocks[block.0 as usize].insts = order.iter().map(|&index| old[index].clone()).collect();
            max_live(function, uses, block, weight, &constants) <= registers + MAX_SPILLED
        });
        if !fits {
            function.blocks[block.0 as usize].insts = old;
        }
    }
}

/// For each instruction: the earlier instructions that must stay before it.
type Dependencies = Vec<SmallVec<[usize; 4]>>;

/// Returns the chains of a block, as ascending indices, and the dependencies of its instructions.
fn chains(function: &Function, uses: &Uses, block: Block) -> (Vec<Vec<usize>>, Dependencies) {
    let insts = &function.block(block).insts;
    let mut definitions: FxHashMap<Value, usize> = FxHashMap::default();
    let mut parents: Vec<usize> = (0..insts.len()).collect();
    let mut dependencies: Dependencies = Vec::with_capacity(insts.len());
    // The last store, and the loads after it.
    let mut store: Option<usize> = None;
    let mut loads: Vec<usize> = Vec::new();
    for (index, inst) in insts.iter().enumerate() {
        let operands = inst.operands.iter().filter_map(|operand| definitions.get(operand).copied());
        let mut before: SmallVec<[usize; 4]> = operands.collect();
        for &definition in before.iter().filter(|&&definition| is_of_one_chain(function, &insts[definition]))
        {
            let (x, y) = (root(&mut parents, definition), root(&mut parents, index));
            parents[x.max(y)] = x.min(y);
        }
        match access(inst.op) {
            Access::None => {}
            Access::Load => {
                before.extend(store);
                loads.push(index);
            }
            Access::Store => {
                before.extend(store.replace(index));
                before.extend(loads.drain(..));
            }
        }
        dependencies.push(before);
        if let Some(result) = inst.result {
            definitions.insert(result, index);
        }
    }
    let mut by_root: Vec<Vec<usize>> = vec![Vec::new(); insts.len()];
    for index in (0..insts.len()).filter(|&index| uses.is_live(&insts[index])) {
        by_root[root(&mut parents, index)].push(index);
    }
    by_root.retain(|chain| chain.len() >= MIN_CHAIN);
    (by_root, dependencies)
}

fn root(parents: &mut [usize], mut index: usize) -> usize {
    while parents[index] != index {
        parents[index] = parents[parents[index]];
        index = parents[index];
    }
    index
}

/// Returns an order in which the chains of each group alternate. Other instructions are before
/// their first user in a chain, or at the end.
fn merged(chains: &[Vec<usize>], dependencies: &Dependencies, size: usize) -> Vec<usize> {
    let mut order = Vec::with_capacity(dependencies.len());
    let mut is_placed = vec![false; dependencies.len()];
    for group in chains.chunks(size) {
        let longest = group.iter().map(Vec::len).max().unwrap_or(0);
        for place in 0..longest {
            for &index in group.iter().filter_map(|chain| chain.get(place)) {
                insert(index, dependencies, &mut is_placed, &mut order);
            }
        }
    }
    for index in 0..dependencies.len() {
        insert(index, dependencies, &mut is_placed, &mut order);
    }
    order
}

/// Appends an instruction, after its dependencies, unless it is already in the order.
fn insert(index: usize, dependencies: &Dependencies, is_placed: &mut [bool], order: &mut Vec<usize>) {
    if std::mem::replace(&mut is_placed[index], true) {
        return;
    }
    for &before in &dependencies[index] {
        insert(before, dependencies, is_placed, order);
    }
    order.push(index);
}

/// Returns whether an instruction is in one chain with the users of its result. Chains may share
/// integers, constants, splats, and the mask of the first lanes.
fn is_of_one_chain(function: &Function, inst: &Inst) -> bool {
    let is_shared = matches!(
        inst.op,
        Op::Constant(..) | Op::Iota(_) | Op::MaskConstant(_) | Op::Splat(_) | Op::FirstLanes
    );
    !is_shared && inst.result.is_some_and(|result| function.ty(result) != Type::Int)
}

/// How an instruction accesses memory.
enum Access {
    None,
    Load,
    Store,
}

fn access(op: Op) -> Access {
    match op {
        Op::IntLoad { .. } | Op::Load { .. } | Op::LoadSplat { .. } | Op::Gather(_) => Access::Load,
        // A call may access any memory.
        Op::IntStore { .. } | Op::Store { .. } | Op::Scatter | Op::Call { .. } => Access::Store,
        Op::Prefetch { .. }
        | Op::IntConstant(_)
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
        | Op::MaskBits => Access::None,
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_SPILLED, MIN_CHAIN, interleave};
    use crate::{
        Builder, Place,
        ir::{Binary, Function, Lane, Op, Type, Value},
        layout::reachable_blocks,
    };

    const VECTOR_REGISTERS: usize = 4;

    /// Returns a function with four chains, which load a vector and square it repeatedly. With
    /// `stores_at_once`, each chain ends with its store. Otherwise, the stores follow all chains.
    fn four_chains(stores_at_once: bool) -> Function {
        let mut builder = Builder::new(8);
        let base = builder.argument();
        let mut products = Vec::new();
        for index in 0..4 {
            let place = Place { base, index: None, offset: 32 * index };
            let mut value = builder.load(Lane::F32, place, None);
            for _ in 0..MIN_CHAIN {
                value = builder.binary(Binary::Mul, value, value);
            }
            if stores_at_once {
                builder.store(place, value, None, false);
            }
            products.push((place, value));
        }
        for (place, value) in products.into_iter().filter(|_| !stores_at_once) {
            builder.store(place, value, None, false);
        }
        builder.ret(base);
        builder.finish()
    }

    /// Returns a letter per instruction after interleaving: l(oad), m(ultiply), s(tore).
    fn interleaved(mut function: Function, registers: usize) -> String {
        let types = function.types.clone();
        let weight = |value: Value| if types[value.0 as usize] == Type::Int { 0 } else { VECTOR_REGISTERS };
        let reachable = reachable_blocks(&function);
        interleave(&mut function, &reachable, registers, &weight);
        let letter = |op: Op| match op {
            Op::Load { .. } => 'l',
            Op::Store { .. } => 's',
            // tidy: wildcard because all other instructions of the function multiply
            _ => 'm',
        };
        function.blocks[0].insts.iter().map(|inst| letter(inst.op)).collect()
    }

    #[test]
    fn chains_take_turns() {
        let order = interleaved(four_chains(false), 64);
        assert_eq!(order, format!("llll{}ssss", "m".repeat(4 * MIN_CHAIN)));
    }

    #[test]
    fn groups_fit_into_the_registers() {
        // In any order, the last chain needs a register while three results are live.
        let registers = 4 * VECTOR_REGISTERS - MAX_SPILLED;
        assert!(interleaved(four_chains(false), registers).starts_with("ll"));
        let one_after_another = interleaved(four_chains(false), registers - 1);
        assert!(one_after_another.starts_with(&format!("l{}l", "m".repeat(MIN_CHAIN))));
    }

    #[test]
    fn loads_do_not_change_places_with_stores() {
        let order = interleaved(four_chains(true), 64);
        let accesses: String = order.chars().filter(|&letter| letter != 'm').collect();
        assert_eq!(accesses, "lslslsls");
    }
}
