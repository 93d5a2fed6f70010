//! Unrolls the loops that request it (`tl.range(loop_unroll_factor=…)`).
//!
//! ```text
//! for %i = %low to %high by 1 carry %x {       %middle = %low + (%high - %low) / 4 * 4
//!   %y = … %i, %x                              for %i = %low to %middle by 4 carry %x {
//!   yield %y                            ──>      %y = … %i, %x ; %j = %i + 1 ; %z = … %j, %y ; …
//! }                                            } : %u
//!                                              for %i = %middle to %high by 1 carry %x = %u { %y = … %i, %x }
//! ```
//! The loop over the remaining iterations is not pipelined. A loop stays if its step is not a
//! positive constant, or its unrolled body would be too long. It also stays if its counter is not
//! an int32, because the difference of 64-bit bounds may overflow.

use tilewright_ir::{
    Block, Cursor, Dtype, Element, ElementwiseFn, Function, Inst, Op, Rounding, Type, Unrolling, Value,
    constant_int, unroll_loop,
};

use crate::remarks::{self, RemarkReason};

/// The maximum number of instructions of an unrolled loop.
const MAX_INSTS: usize = 4096;

/// Unrolls the loops of a kernel, inner ones first.
pub fn unroll(function: &mut Function) {
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
            Ok(plan) => {
                RemarkReason::done(format!("unrolled {} times", plan.factor), "the program requests it")
            }
            Err(reason) => RemarkReason::missed("not unrolled", *reason),
        };
        remarks::about("unrolling", function, inst, || "loop".into(), because);
        if let Ok(plan) = plan {
            Rewriter { cursor: Cursor::before(function, block, inst) }.run(block, inst, &plan);
        }
    }
}

struct Plan {
    factor: u32,
    step: i64,
    dtype: Dtype,
}

fn plan(function: &Function, inst: Inst) -> Result<Plan, &'static str> {
    let data = &function.insts[inst];
    let Op::For { options } = &data.op else { return Err("it is not a loop") };
    let dtype = function.ty(data.operands[0]).dtype().filter(|dtype| *dtype == Dtype::I32);
    let dtype = dtype.ok_or("its counter does not have 32 bits")?;
    let step = constant_int(function, data.operands[2]);
    let step = step.and_then(|step| i64::try_from(step).ok()).filter(|step| *step > 0);
    let step = step.ok_or("its step is not a positive constant")?;
    let factor = options.unroll_factor;
    let mut insts = 0;
    function.walk(data.regions[0], &mut |_| insts += 1);
    if insts * factor as usize > MAX_INSTS || i32::try_from(step * i64::from(factor)).is_err() {
        return Err("the unrolled loop would be too long");
    }
    Ok(Plan { factor, step, dtype })
}

struct Rewriter<'f> {
    /// A cursor before the loop.
    cursor: Cursor<'f>,
}

impl Rewriter<'_> {
    fn run(mut self, block: Block, inst: Inst, plan: &Plan) {
        let data = self.cursor.function.insts[inst].clone();
        let Plan { factor, step, dtype } = *plan;
        let middle = self.middle(data.operands[0], data.operands[1], step * i64::from(factor), dtype);
        let Op::For { options } = &mut self.cursor.function.insts[inst].op else { return };
        options.unroll_factor = 0;
        let mut options = options.clone();
        options.num_stages = 1;
        options.warp_specialize = false;
        let unrolling = Unrolling { factor, step, dtype, middle };
        unroll_loop(&mut self.cursor, (block, inst), &unrolling, Op::For { options });
    }

    /// Returns the counter after the last unrolled iteration, which adds `advance`.
    fn middle(&mut self, lower: Value, upper: Value, advance: i64, dtype: Dtype) -> Value {
        let [low, high] = [lower, upper].map(|bound| self.cast(bound, Dtype::I64));
        let zero = self.cursor.int(Dtype::I64, 0);
        let advance = self.cursor.int(Dtype::I64, advance);
        let distance = self.binary(ElementwiseFn::Sub, high, low);
        let distance = self.binary(ElementwiseFn::Max, distance, zero);
        let whole = self.binary(ElementwiseFn::IntDiv, distance, advance);
        let whole = self.binary(ElementwiseFn::Mul, whole, advance);
        let middle = self.binary(ElementwiseFn::Add, low, whole);
        self.cast(middle, dtype)
    }

    fn cast(&mut self, value: Value, dtype: Dtype) -> Value {
        let op = Op::Cast { element: Element::Value(dtype), rounding: Rounding::NearestEven };
        self.cursor.value(op, &[value], Type::scalar(dtype))
    }

    fn binary(&mut self, function: ElementwiseFn, a: Value, b: Value) -> Value {
        let ty = self.cursor.function.ty(a).clone();
        self.cursor.elementwise(function, &[a, b], ty)
    }
}
