//! Sums of weights before the product that takes the weights, where both do not fit beside its accumulator.
//!
//! The assembler starts a product as early as it can, and adds the weights up while the tensor cores work. They are in the
//! registers twice then, as they were computed and as the product takes them. Where a thread has no room for that, it keeps
//! a part of the accumulator in memory, which takes longer than the sum.
//!
//! ```text
//! %s = reduce %p                      %s = reduce %p
//! %a = cast %p                        %a = cast %p
//! %x = wgmma %a, %b, %acc             %x = wgmma %a, %b, %acc behind %s
//! ```

use tilewright_ir::{self as ir, Block, Inst, Value};

use crate::cost_model;
use crate::remarks::{self, Because};
use tilewright_gpu_ir::layout_rules::{LANES, element_bits};
use tilewright_gpu_ir::{Function, GpuOp, Header, Module, Op};

/// Says behind which sums products start.
pub fn sums_first(module: &mut Module) {
    let header = &module.header;
    for function in module.functions.values_mut() {
        let blocks: Vec<Block> = function.blocks.keys().collect();
        for block in blocks {
            let insts = function.blocks[block].insts.clone();
            for (place, &product) in insts.iter().enumerate() {
                if let Some(sum) = sum_before(header, function, &insts[..place], product) {
                    function.insts[product].operands.push(sum);
                    remarks::about(
                        "sums_first",
                        function,
                        product,
                        || remarks::subject(function, product, None),
                        || {
                            let reason =
                                "the weights, and what it takes of them, do not fit beside its accumulator";
                            Because::done("the product starts behind the sum of its weights", reason)
                        },
                    );
                }
            }
        }
    }
}

/// The sum, or another reduction, of the tile that a product takes in registers, if it stands before the product and both
/// have no room.
fn sum_before(header: &Header, function: &Function, before: &[Inst], product: Inst) -> Option<Value> {
    let data = &function.insts[product];
    let (Op::Gpu(GpuOp::Wgmma { .. }), &[taken, _, sums]) = (&data.op, &data.operands[..]) else {
        return None;
    };
    let cast = before.iter().find(|inst| function.insts[**inst].results[..] == [taken])?;
    let cast = &function.insts[*cast];
    let Op::Tile(ir::Op::Cast { .. }) = cast.op else { return None };
    let weights = cast.operands[0];
    let words = |value: Value| {
        let ty = function.ty(value);
        let bits = ty.as_registers().map(element_bits)?;
        Some(header.layouts.get(ty.layout()?).registers() * bits / 32)
    };
    if cost_model::fits(
        words(weights)? + words(taken)? + words(sums)?,
        header.num_warps * LANES,
        header.target.tuning,
    ) {
        return None;
    }
    let is_sum = |inst: &&Inst| {
        let data = &function.insts[**inst];
        matches!(data.op, Op::Gpu(GpuOp::Reduce { .. })) && data.operands[..] == [weights]
    };
    let sum = function.insts[*before.iter().rev().find(is_sum)?].results[0];
    let is_word = function.ty(sum).as_registers().is_some_and(|ty| element_bits(ty) == 32);
    is_word.then_some(sum)
}
