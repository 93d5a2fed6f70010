//! Loops that ask for it are unrolled (`tl.range(loop_unroll_factor=…)`).
//!
//! ```text
//! for %i = %low to %high by 1 carry %x {       %middle = %low + (%high - %low) / 4 * 4
//!   %y = … %i, %x                              for %i = %low to %middle by 4 carry %x {
//!   yield %y                            ──>      %y = … %i, %x ; %j = %i + 1 ; %z = … %j, %y ; …
//! }                                            } : %u
//!                                              for %i = %middle to %high by 1 carry %x = %u { %y = … %i, %x }
//! ```
//! What is left behind the last whole iteration is not pipelined. A step that is no positive constant, and counters of 64 bits,
//! whose difference may overflow, leave a loop as it is.

use tilewright_ir::{Block, Dtype, Function, Inst, LoopOptions, Module, Op};

use crate::remarks::{self, Because};
use crate::unrolling::{Plan, unroll_loop};

/// The most instructions that a loop may have when it is unrolled.
const MOST_INSTS: usize = 4096;

/// Unrolls the loops of a kernel, inner ones first.
pub fn unroll(module: &mut Module) {
    let entry = module.entry;
    let function = &mut module.functions[entry];
    let mut found: Vec<(Block, Inst)> = Vec::new();
    let mut blocks = vec![function.entry];
    while let Some(block) = blocks.pop() {
        for &inst in &function.blocks[block].insts {
            let data = &function.insts[inst];
            blocks.extend(&data.regions);
            if matches!(&data.op, Op::For { options } if options.unroll_factor > 1) {
                found.push((block, inst));
            }
        }
    }
    for (block, inst) in found.into_iter().rev() {
        let plan = plan(function, inst);
        let because = || match &plan {
            Ok(plan) => Because::done(format!("unrolled {} times", plan.factor), "the program asks for it"),
            Err(reason) => Because::missed("not unrolled", *reason),
        };
        remarks::about("unrolling", function, inst, || "loop".into(), because);
        if let Ok(plan) = plan {
            let Op::For { options } = &mut function.insts[inst].op else { continue };
            options.unroll_factor = 0;
            unroll_loop(function, block, inst, &plan);
        }
    }
}

fn plan(function: &Function, inst: Inst) -> Result<Plan, &'static str> {
    let data = &function.insts[inst];
    let Op::For { options } = &data.op else { return Err("it is no loop") };
    let dtype = function.ty(data.operands[0]).dtype().filter(|dtype| *dtype == Dtype::I32);
    let dtype = dtype.ok_or("its counter does not have 32 bits")?;
    let step = match function.defining_op(data.operands[2]) {
        Some(Op::Constant { value }) => value.as_int(),
        // tidy: wildcard because any other step is known at run time alone
        _ => None,
    };
    let step = step.and_then(|step| i64::try_from(step).ok()).filter(|step| *step > 0);
    let step = step.ok_or("its step is no positive number that is known")?;
    let factor = options.unroll_factor;
    let mut insts = 0;
    function.walk(data.regions[0], &mut |_| insts += 1);
    if insts * factor as usize > MOST_INSTS || i32::try_from(step * i64::from(factor)).is_err() {
        return Err("it would be too long");
    }
    let rest = LoopOptions { unroll_factor: 0, num_stages: 1, warp_specialize: false, ..options.clone() };
    Ok(Plan { factor, step, dtype, rest })
}
