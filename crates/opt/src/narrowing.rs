//! Narrows 64-bit divisions whose operands fit into 32 bits.
//!
//! On a GPU, a 64-bit division, such as `tl.program_id(0).to(tl.int64) % n`, calls a routine of
//! some hundred instructions.

use smallvec::{SmallVec, smallvec};
use tilewright_base::entity::SecondaryMap;
use tilewright_ir::{Block, Dtype, Element, ElementwiseFn, Function, Inst, Op, Regions, Rounding, Value};

use crate::analysis::{self, AxisInfo, Range};

/// Runs the pass. Returns whether it changed anything.
pub fn run(function: &mut Function) -> bool {
    let infos = analysis::analyze(function);
    narrow_block(function, function.entry, &infos)
}

fn narrow_block(function: &mut Function, block: Block, infos: &SecondaryMap<Value, AxisInfo>) -> bool {
    let mut changed = false;
    let insts = std::mem::take(&mut function.blocks[block].insts);
    let mut out = Vec::with_capacity(insts.len());
    for inst in insts {
        for region in function.insts[inst].regions.clone() {
            changed |= narrow_block(function, region, infos);
        }
        if let Some(dtype) = narrow_dtype(function, inst, infos) {
            narrow(function, inst, dtype, &mut out);
            changed = true;
        }
        out.push(inst);
    }
    function.blocks[block].insts = out;
    changed
}

/// Returns the 32-bit type in which a 64-bit division has the same result, if there is one.
/// Division by zero sets all bits. Sign extension keeps that, but zero extension does not, so a
/// `uint64` divisor must not be zero.
fn narrow_dtype(function: &Function, inst: Inst, infos: &SecondaryMap<Value, AxisInfo>) -> Option<Dtype> {
    let data = &function.insts[inst];
    let Op::Elementwise { function: ElementwiseFn::IntDiv | ElementwiseFn::IntRem } = data.op else {
        return None;
    };
    let [dividend, divisor] = [data.operands[0], data.operands[1]].map(|operand| infos[operand].range);
    let narrow = match function.ty(data.operands[0]).dtype()? {
        Dtype::I64 => Dtype::I32,
        Dtype::U64 if divisor.low > 0 => Dtype::U32,
        // tidy: wildcard because the other types are narrow, and a `uint64` divisor may be zero
        _ => return None,
    };
    let all = Range::of_dtype(narrow);
    // -2^31 / -1 is the only quotient of two `int32` that is no `int32`.
    let overflows =
        narrow == Dtype::I32 && dividend.low == all.low && divisor.low <= -1 && divisor.high >= -1;
    (dividend.is_within(all) && divisor.is_within(all) && !overflows).then_some(narrow)
}

/// Replaces a division by the cast of a narrow one. Appends the casts of the operands and the
/// narrow division to `out`.
fn narrow(function: &mut Function, inst: Inst, dtype: Dtype, out: &mut Vec<Inst>) {
    let data = function.insts[inst].clone();
    let wide = function.ty(data.operands[0]).clone();
    let ty = wide.with_dtype(dtype);
    let mut push = |op: Op, operands: SmallVec<[Value; 4]>| {
        let made = function.create_inst(op, operands, Regions::new(), [ty.clone()], data.location);
        out.push(made);
        function.insts[made].results[0]
    };
    let cast = |element: Element| Op::Cast { element, rounding: Rounding::default() };
    let operands = data.operands.iter().map(|operand| push(cast(ty.element), smallvec![*operand])).collect();
    let result = push(data.op, operands);
    function.insts[inst].op = cast(wide.element);
    function.insts[inst].operands = smallvec![result];
}
