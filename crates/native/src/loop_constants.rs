//! Chooses the vector constants that stay in registers during an innermost loop.
//!
//! Each use of another constant loads or computes it. Such loads take 6% of the time of `exp` with
//! AVX-512, and 10% with AVX2. A spilled vector costs more, so constants use only free registers.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    ir::{Binary, Block, Function, Inst, Op, Type, Value},
    uses::{Uses, jumps},
};

/// The registers for the temporaries of instruction sequences.
const RESERVED: usize = 4;

/// The constants in registers, for each block that jumps to itself.
pub type LoopConstants = FxHashMap<Block, Vec<Value>>;

pub type Weight<'a> = &'a dyn Fn(Value) -> usize;

/// Chooses constants for each block that jumps to itself and has one other predecessor. `registers`
/// is the number of vector registers.
pub fn loop_constants(
    function: &Function,
    uses: &Uses,
    reachable: &[Block],
    registers: usize,
    weight: Weight<'_>,
) -> LoopConstants {
    let mut entries = vec![0; function.blocks.len()];
    // The caller also enters the first block.
    entries[0] = 2;
    let mut is_loop = vec![false; function.blocks.len()];
    for &block in reachable {
        for jump in function.block(block).terminator.iter().flat_map(jumps) {
            if jump.block == block {
                is_loop[block.0 as usize] = true;
            } else {
                entries[jump.block.0 as usize] += 1;
            }
        }
    }
    let constants = constant_weights(function, weight);
    let headers =
        reachable.iter().filter(|block| is_loop[block.0 as usize] && entries[block.0 as usize] == 1);
    headers.map(|&block| (block, chosen(function, uses, block, registers, weight, &constants))).collect()
}

pub fn constant_weights(function: &Function, weight: Weight<'_>) -> FxHashMap<Value, usize> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    insts
        .filter_map(|inst| match inst.op {
            // The lanes are equal, so one register represents both registers of a 64-bit vector.
            Op::Constant(..) => Some((inst.result?, 1)),
            Op::Iota(_) => inst.result.map(|result| (result, weight(result))),
            // tidy: wildcard because the other operations are not constant vectors
            _ => None,
        })
        .collect()
}

fn read_operands(inst: &Inst) -> &[Value] {
    match inst.op {
        // Shifts contain constant counts.
        Op::Binary(Binary::Shl | Binary::Shr | Binary::Sar) => &inst.operands[..1],
        // tidy: wildcard because only shifts have immediate counts
        _ => &inst.operands,
    }
}

fn chosen(
    function: &Function,
    uses: &Uses,
    block: Block,
    registers: usize,
    weight: Weight<'_>,
    constants: &FxHashMap<Value, usize>,
) -> Vec<Value> {
    let data = function.block(block);
    let mut counts: FxHashMap<Value, usize> = FxHashMap::default();
    for inst in data.insts.iter().filter(|inst| uses.is_live(inst)) {
        for operand in read_operands(inst).iter().filter(|operand| constants.contains_key(operand)) {
            *counts.entry(*operand).or_default() += 1;
        }
    }
    let mut order: Vec<(Value, usize)> = counts.into_iter().collect();
    order.sort_by_key(|&(value, count)| (std::cmp::Reverse(count), value));
    let taken = max_live(function, uses, block, weight, constants) + RESERVED;
    let mut free = registers.saturating_sub(taken);
    order.retain(|(value, _)| match free.checked_sub(constants[value]) {
        Some(rest) => {
            free = rest;
            true
        }
        None => false,
    });
    order.into_iter().map(|(value, _)| value).collect()
}

/// Returns the maximum number of vector registers of the live values, without constants.
pub fn max_live(
    function: &Function,
    uses: &Uses,
    block: Block,
    weight: Weight<'_>,
    constants: &FxHashMap<Value, usize>,
) -> usize {
    let data = function.block(block);
    let insts = || data.insts.iter().filter(|inst| uses.is_live(inst));
    let is_vector = |value: &Value| function.ty(*value) != Type::Int && !constants.contains_key(value);
    let arguments = data.terminator.iter().flat_map(jumps).flat_map(|jump| &jump.arguments);
    let arguments: Vec<Value> = arguments.copied().filter(|value| uses.is_used(*value)).collect();
    let operands = insts().flat_map(|inst| &inst.operands).copied();
    let mut live: FxHashSet<Value> = operands
        .filter(|&value| uses.of(value).definition.0 != block)
        .chain(arguments)
        .filter(is_vector)
        .collect();
    let total = |live: &FxHashSet<Value>| live.iter().map(|&value| weight(value)).sum::<usize>();
    let mut now = total(&live);
    let mut most = now;
    for inst in data.insts.iter().rev().filter(|inst| uses.is_live(inst)) {
        if let Some(result) = inst.result
            && live.remove(&result)
        {
            now -= weight(result);
        }
        for &operand in inst.operands.iter().filter(|operand| is_vector(operand)) {
            if live.insert(operand) {
                now += weight(operand);
            }
        }
        most = most.max(now);
    }
    most
}
