//! By which instructions the lanes of a warp work together: `redux.sync` in a reduction, `ldmatrix` for the operands of a product
//! in shared memory, and for tiles of which a thread by itself would load less at once.
//!
//! Behind the pass that lowers conversions, which says what is in shared memory and what is reduced in one warp.

use tilewright_ir::Inst;

use crate::remarks::{self, Because};
use tilewright_gpu_ir::warp_instructions::{
    loads_matrices, loads_more_by_matrices, warp_reduction, warps_of_product,
};
use tilewright_gpu_ir::{GpuOp, Module, Op};

/// Says it of each reduction, each product and each load from shared memory.
pub fn select_instructions(module: &mut Module) {
    let header = &module.header;
    for function in module.functions.values_mut() {
        for inst in function.insts.keys().collect::<Vec<Inst>>() {
            let data = &function.insts[inst];
            let op = match &data.op {
                Op::Gpu(GpuOp::Reduce { axis, scope, .. }) => {
                    let redux = warp_reduction(header, function, data).is_some();
                    let tile = data.operands.first().and_then(|operand| function.ty(*operand).tile());
                    let subject = || remarks::subject(function, inst, tile.as_ref());
                    remarks::about("instruction_selection", function, inst, subject, || {
                        if redux {
                            Because::done("redux.sync", "an integer function that the instruction has")
                        } else {
                            let reason = "redux.sync is for integers of 32 bits, on sm_80 and newer";
                            Because::note("shuffles between lanes", reason)
                        }
                    });
                    GpuOp::Reduce { axis: *axis, scope: *scope, redux }
                }
                Op::Gpu(GpuOp::MmaSync { instruction, warps, precision, max_imprecise_acc, .. }) => {
                    let count = warps_of_product(warps).expect("the verifier checks the warps of products");
                    let [matrix_a, matrix_b] = [0, 1].map(|place| {
                        let operand = function.ty(data.operands[place]);
                        loads_matrices(header, operand, place, *instruction, count)
                    });
                    GpuOp::MmaSync {
                        instruction: *instruction,
                        warps: warps.clone(),
                        precision: *precision,
                        max_imprecise_acc: *max_imprecise_acc,
                        matrix_a,
                        matrix_b,
                    }
                }
                Op::Gpu(GpuOp::LocalLoad { matrix }) => {
                    let (from, to) = (function.ty(data.operands[0]), function.ty(data.results[0]));
                    GpuOp::LocalLoad { matrix: *matrix || loads_more_by_matrices(header, from, to) }
                }
                // tidy: wildcard because each other op is one way
                _ => continue,
            };
            function.insts[inst].op = op.into();
        }
    }
}
