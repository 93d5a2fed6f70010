//! Online softmax: a warp skips multiplications of an accumulator by 1. (Milakov and Gimelshein,
//! arXiv 1805.02867.)
//!
//! A loop over the blocks of a row multiplies its accumulators by `2^(m - max(m, x))`. `m` is the
//! largest score so far, and `x` that of the block. The factor is 1 unless `x` is larger than `m`,
//! which few blocks of a long row have. Multiplication by 1 is exact, so a warp may skip it.
//!
//! ```text
//! %n = max %m, %x ; %d = sub %m, %n ; %f = exp2 %d        %n = … ; %d = … ; %f = …
//! %b = broadcast (expand_dims %f)                    =>   %b = …
//! %s = mul %acc, %b                                       %s = rescale %acc, %b
//! ```
//! Only accumulators of dots become `rescale`: their multiplications cost much more than a vote and
//! a branch.

use tilewright_ir as ir;
use tilewright_ir::{Block, Definition, Dtype, ElementwiseFn, Inst, Parents, Value, constant_float};

use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::{Function, GpuOp, Header, Module, Op};

/// Replaces multiplications of accumulators by correction factors with `rescale`.
pub fn skip_rescaling(module: &mut Module) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    let mut loops = Vec::new();
    function.walk(function.entry, &mut |inst| {
        if let Op::Tile(ir::Op::For { .. }) = function.insts[inst].op {
            loops.push(inst);
        }
    });
    for inst in loops {
        let body = function.insts[inst].regions[0];
        for mul in function.blocks[body].insts.clone() {
            let Some(operands) = rescaled_operands(header, function, body, mul) else { continue };
            let data = &mut function.insts[mul];
            data.op = GpuOp::Rescale {}.into();
            data.operands = operands.into_iter().collect();
            remarks::about(
                "rescaling",
                function,
                mul,
                || remarks::subject(function, mul, None),
                || {
                    let reason = "the maximum of a row seldom changes";
                    RemarkReason::done("skipped by warps whose factors are all 1", reason)
                },
            );
        }
    }
}

/// Returns the operands of a `rescale` for `mul`: a dot's accumulator and the factors. The
/// accumulator is fp32 and has at least `rescaled_registers` registers.
fn rescaled_operands(header: &Header, function: &Function, body: Block, mul: Inst) -> Option<[Value; 2]> {
    let data = &function.insts[mul];
    let Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Mul, .. }) = data.op else { return None };
    let result = data.results[0];
    let ty = function.ty(result);
    let registers = header.layouts.get(ty.layout()?).registers();
    let is_f32 = ty.as_registers()?.dtype() == Some(Dtype::F32);
    let is_accumulator = function.blocks[body].insts.iter().any(|inst| {
        let data = &function.insts[*inst];
        let is_dot =
            matches!(data.op, Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::MmaSync { .. } | GpuOp::FmaDot { .. }));
        is_dot && data.operands[2] == result
    });
    if !is_f32 || registers < header.target.tuning.rescaled_registers || !is_accumulator {
        return None;
    }
    let &[one, other] = &data.operands[..] else { return None };
    let is_factor = |value| is_correction_factor(function, value, FactorBound::Any, &mut Vec::new());
    if is_factor(other) { Some([one, other]) } else { is_factor(one).then_some([other, one]) }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FactorBound {
    /// No bound: the kernel may select any other value in place of the maximum.
    Any,
    /// At most 1: a value selected instead of the maximum is at least as large.
    AtMostOne,
}

/// Returns whether a value is a correction factor: 1, `exp(m - max(m, n))` or
/// `exp2(m - max(m, n))`.
///
/// Shape ops, selections and loops may carry the factor. `seen` has the visited values, because a
/// loop may carry its own factor.
pub fn is_correction_factor(
    function: &Function,
    value: Value,
    bound: FactorBound,
    seen: &mut Vec<Value>,
) -> bool {
    if seen.contains(&value) {
        return true;
    }
    seen.push(value);
    let inst = match function.values[value].definition {
        Definition::Result(inst, _) => inst,
        Definition::Parameter(body, index) => {
            let owner = Parents::new(function).owner(body).map(|owner| &function.insts[owner]);
            let Some(owner) = owner.filter(|data| matches!(data.op, Op::Tile(ir::Op::For { .. }))) else {
                return false;
            };
            let Some(carried) = (index as usize).checked_sub(1) else { return false };
            let yielded = function.yielded(body)[carried];
            return is_correction_factor(function, owner.operands[carried + 3], bound, seen)
                && is_correction_factor(function, yielded, bound, seen);
        }
    };
    let data = &function.insts[inst];
    match &data.op {
        Op::Tile(ir::Op::Constant { .. }) => constant_float(function, value) == Some(1.0),
        Op::Tile(op) if op.as_shape().is_some() || matches!(op, ir::Op::Splat { .. }) => {
            is_correction_factor(function, data.operands[0], bound, seen)
        }
        Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Select, .. }) => {
            data.operands[1..].iter().all(|choice| is_correction_factor(function, *choice, bound, seen))
        }
        Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Exp | ElementwiseFn::Exp2, .. }) => {
            is_difference_to_maximum(function, data.operands[0], bound)
        }
        // tidy: wildcard because no other op computes a factor
        _ => false,
    }
}

/// Returns whether a value is `m - max(m, n)`. The kernel may select a value that satisfies `bound`
/// in place of the maximum.
fn is_difference_to_maximum(function: &Function, value: Value, bound: FactorBound) -> bool {
    let Some((ElementwiseFn::Sub, &[old, maximum])) = elementwise(function, value) else { return false };
    let is_maximum = |value: Value| {
        let computed = elementwise(function, value);
        computed.is_some_and(|(function, operands)| function == ElementwiseFn::Max && operands.contains(&old))
    };
    match elementwise(function, maximum) {
        Some((ElementwiseFn::Select, &[condition, yes, no])) => {
            let is_either = is_maximum(yes) || is_maximum(no);
            is_either
                && (bound == FactorBound::Any || is_selected_as_upper_bound(function, condition, [yes, no]))
        }
        // tidy: wildcard because no other op selects a maximum
        _ => is_maximum(maximum),
    }
}

/// Returns whether `yes` or `no` is a constant, selected only as an upper bound.
fn is_selected_as_upper_bound(function: &Function, condition: Value, [yes, no]: [Value; 2]) -> bool {
    use ElementwiseFn::{Eq, Ge, Gt, Le, Lt, Ne};
    let Some((comparison, &[value, bound])) = elementwise(function, condition) else { return false };
    let other = match comparison {
        Eq | Lt | Le if value == no => yes,
        Ne | Gt | Ge if value == yes => no,
        // tidy: wildcard because no other comparison bounds the value from above
        _ => return false,
    };
    constant_float(function, bound)
        .zip(constant_float(function, other))
        .is_some_and(|(bound, other)| bound <= other)
}

fn elementwise(function: &Function, value: Value) -> Option<(ElementwiseFn, &[Value])> {
    let data = &function.insts[function.defining_inst(value)?];
    let Op::Gpu(GpuOp::Elementwise { function, .. }) = data.op else { return None };
    Some((function, &data.operands))
}
