//! Narrows divisions of 64-bit integers that fit into 32 bits: on a GPU,
//! `tl.program_id(0).to(tl.int64) % n` would call a routine of some hundred instructions.

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

/// Returns the type in which a division of 64-bit integers has the same result. A quotient or
/// remainder by zero has all bits set in either type, which extends to the same number if the type
/// is signed.
fn narrow_dtype(function: &Function, inst: Inst, infos: &SecondaryMap<Value, AxisInfo>) -> Option<Dtype> {
    let data = &function.insts[inst];
    let Op::Elementwise { function: ElementwiseFn::IntDiv | ElementwiseFn::IntRem } = data.op else {
        return None;
    };
    let [dividend, divisor] = [data.operands[0], data.operands[1]].map(|operand| infos[operand].range);
    let narrow = match function.ty(data.operands[0]).dtype()? {
        Dtype::I64 => Dtype::I32,
        Dtype::U64 if divisor.low > 0 => Dtype::U32,
        // tidy: wildcard because the others are narrow
        _ => return None,
    };
    let all = Range::of_dtype(narrow);
    // The only quotient of numbers that fit that does not fit itself.
    let overflows =
        narrow == Dtype::I32 && dividend.low == all.low && divisor.low <= -1 && divisor.high >= -1;
    (dividend.is_within(all) && divisor.is_within(all) && !overflows).then_some(narrow)
}

/// Replaces a division by the cast of a narrower one, which it appends.
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
