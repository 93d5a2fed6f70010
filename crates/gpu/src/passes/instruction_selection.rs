//! Selects warp-wide instructions: `redux.sync` and `ldmatrix`.
//!
//! `ldmatrix` loads operands of dots, and tiles that would otherwise take narrower accesses.
//!
//! Runs after the lowering of conversions, which decides the tiles in shared memory and the
//! reductions within a warp.

use tilewright_ir::Inst;

use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::warp_instructions::{
    can_use_ldmatrix, prefers_ldmatrix, redux_function, warps_of_dot,
};
use tilewright_gpu_ir::{GpuOp, Module, Op};

pub fn select_instructions(module: &mut Module) {
    let header = &module.header;
    for function in module.functions.values_mut() {
        for inst in function.insts.keys().collect::<Vec<Inst>>() {
            let data = &function.insts[inst];
            let op = match &data.op {
                Op::Gpu(GpuOp::Reduce { axis, scope, .. }) => {
                    let redux = redux_function(header, function, data).is_some();
                    let tile = data.operands.first().and_then(|operand| function.ty(*operand).tile());
                    let subject = || remarks::subject(function, inst, tile.as_ref());
                    remarks::about("instruction_selection", function, inst, subject, || {
                        if redux {
                            RemarkReason::done("redux.sync", "redux.sync computes this integer function")
                        } else {
                            let reason = "redux.sync is for integers of 32 bits, on sm_80 and newer";
                            RemarkReason::note("shuffles between lanes", reason)
                        }
                    });
                    GpuOp::Reduce { axis: *axis, scope: *scope, redux }
                }
                Op::Gpu(GpuOp::MmaSync { instruction, warps, precision, max_imprecise_acc, .. }) => {
                    let count = warps_of_dot(warps).expect("the verifier checks the warps of dots");
                    let [matrix_a, matrix_b] = [0, 1].map(|place| {
                        let operand = function.ty(data.operands[place]);
                        can_use_ldmatrix(header, operand, place, *instruction, count)
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
                    GpuOp::LocalLoad { matrix: *matrix || prefers_ldmatrix(header, from, to) }
                }
                // tidy: wildcard because each other op has one implementation
                _ => continue,
            };
            function.insts[inst].op = op.into();
        }
    }
}
