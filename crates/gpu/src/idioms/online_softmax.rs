//! Online softmax (Milakov and Gimelshein, arXiv 1805.02867): warps skip the rescaling of accumulators where all factors are 1.
//!
//! A loop over the blocks of a row scales its accumulators whenever a block has a larger score: by the correction factor
//! 2^(m - max(m, n)), which is 1 where no score is larger. Few blocks of a long row have one, and a product with 1 is exact.
//!
//! ```text
//! %n = max %m, %x ; %d = sub %m, %n ; %f = exp2 %d        %n = … ; %d = … ; %f = …
//! %b = broadcast (expand_dims %f)                    =>   %b = …
//! %s = mul %sum, %b                                       %s = rescale %sum, %b
//! ```
//! Only the accumulators of dots are rescaled so: they are many registers, beside which a vote and a jump cost little.

use tilewright_ir as ir;
use tilewright_ir::{Block, Definition, Dtype, ElementwiseFn, Inst, Parents, Value, constant_float};

use crate::remarks::{self, Because};
use tilewright_gpu_ir::{Function, GpuOp, Header, Module, Op};

/// Replaces the products of accumulators and correction factors.
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
        for product in function.blocks[body].insts.clone() {
            let Some(operands) = scaled(header, function, body, product) else { continue };
            let data = &mut function.insts[product];
            data.op = GpuOp::Rescale {}.into();
            data.operands = operands.into_iter().collect();
            remarks::about(
                "rescaling",
                function,
                product,
                || remarks::subject(function, product, None),
                || Because::done("left out by warps whose factors are all 1", "a maximum seldom changes"),
            );
        }
    }
}

/// The accumulators and their factors, if this is their product in the body of a loop.
fn scaled(header: &Header, function: &Function, body: Block, product: Inst) -> Option<[Value; 2]> {
    let data = &function.insts[product];
    let Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Mul, .. }) = data.op else { return None };
    let result = data.results[0];
    let ty = function.ty(result);
    let registers = header.layouts.get(ty.layout()?).registers();
    let is_f32 = ty.as_registers()?.dtype() == Some(Dtype::F32);
    let is_summed_up = function.blocks[body].insts.iter().any(|inst| {
        let data = &function.insts[*inst];
        let is_product =
            matches!(data.op, Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::MmaSync { .. } | GpuOp::FmaDot { .. }));
        is_product && data.operands[2] == result
    });
    if !is_f32 || registers < header.target.tuning.rescaled_registers || !is_summed_up {
        return None;
    }
    let &[one, other] = &data.operands[..] else { return None };
    let is_factor = |value| is_correction_factor(function, value, Powers::Any, &mut Vec::new());
    if is_factor(other) { Some([one, other]) } else { is_factor(one).then_some([other, one]) }
}

/// Which powers are correction factors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Powers {
    /// Another number may be subtracted in place of the maximum, under any condition.
    Any,
    /// Under such conditions alone that the power is at most 1.
    AtMostOne,
}

/// Whether a value is a power of the difference of a number and the larger of it and another one, or 1, or is carried by a loop or
/// selected as such.
pub fn is_correction_factor(
    function: &Function,
    value: Value,
    powers: Powers,
    seen: &mut Vec<Value>,
) -> bool {
    if seen.contains(&value) {
        return true;
    }
    seen.push(value);
    let inst = match function.values[value].definition {
        Definition::Result(inst, _) => inst,
        Definition::Parameter(body, place) => {
            let owner = Parents::new(function).owner(body).map(|owner| &function.insts[owner]);
            let Some(owner) = owner.filter(|data| matches!(data.op, Op::Tile(ir::Op::For { .. }))) else {
                return false;
            };
            let Some(carried) = (place as usize).checked_sub(1) else { return false };
            let yielded = function.yielded(body)[carried];
            return is_correction_factor(function, owner.operands[carried + 3], powers, seen)
                && is_correction_factor(function, yielded, powers, seen);
        }
    };
    let data = &function.insts[inst];
    match &data.op {
        Op::Tile(ir::Op::Constant { .. }) => constant_float(function, value) == Some(1.0),
        Op::Tile(op) if op.as_shape().is_some() || matches!(op, ir::Op::Splat { .. }) => {
            is_correction_factor(function, data.operands[0], powers, seen)
        }
        Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Select, .. }) => {
            data.operands[1..].iter().all(|choice| is_correction_factor(function, *choice, powers, seen))
        }
        Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Exp | ElementwiseFn::Exp2, .. }) => {
            is_less_its_maximum(function, data.operands[0], powers)
        }
        // tidy: wildcard because nothing else is a power
        _ => false,
    }
}

/// Whether a value is a number less the larger of it and another one.
fn is_less_its_maximum(function: &Function, value: Value, powers: Powers) -> bool {
    let Some((ElementwiseFn::Sub, &[number, largest])) = elementwise(function, value) else { return false };
    let is_maximum = |value: Value| {
        let found = elementwise(function, value);
        found.is_some_and(|(of, operands)| of == ElementwiseFn::Max && operands.contains(&number))
    };
    match elementwise(function, largest) {
        Some((ElementwiseFn::Select, &[condition, yes, no])) => {
            let is_either = is_maximum(yes) || is_maximum(no);
            is_either && (powers == Powers::Any || is_selected_below(function, condition, [yes, no]))
        }
        // tidy: wildcard because only a maximum is one
        _ => is_maximum(largest),
    }
}

/// Whether one of two values is a number and is selected only where the other one is at most that.
fn is_selected_below(function: &Function, condition: Value, [yes, no]: [Value; 2]) -> bool {
    use ElementwiseFn::{Eq, Ge, Gt, Le, Lt, Ne};
    let Some((comparison, &[value, bound])) = elementwise(function, condition) else { return false };
    let other = match comparison {
        Eq | Lt | Le if value == no => yes,
        Ne | Gt | Ge if value == yes => no,
        // tidy: wildcard because nothing else says that it is below a number
        _ => return false,
    };
    constant_float(function, bound)
        .zip(constant_float(function, other))
        .is_some_and(|(bound, other)| bound <= other)
}

/// The function that gives a value, and its operands.
fn elementwise(function: &Function, value: Value) -> Option<(ElementwiseFn, &[Value])> {
    let data = &function.insts[function.defining_inst(value)?];
    let Op::Gpu(GpuOp::Elementwise { function, .. }) = data.op else { return None };
    Some((function, &data.operands))
}
