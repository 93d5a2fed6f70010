//! A line that is read from a slot and converted is read in the layout that is wanted.
//!
//! ```text
//! %x = local_load %slot : fp32[32]@L0           %x = local_load %slot : fp32[32]@L2
//! %y = expand_dims %x : fp32[1, 32]@L1    ──>   %z = expand_dims %x : fp32[1, 32]@L3
//! %z = convert_layout %y : fp32[1, 32]@L3
//! ```
//! Any thread can read any element, and several that read the same word take no longer than one: a shuffle for each element of a
//! thread, which the conversion would be, is not needed.

use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{Block, Definition, Inst, Operation, Value};

use tilewright_gpu_ir::layout_rules::operand_layout;
use tilewright_gpu_ir::{Function, GpuOp, Header, Op, Type};

/// Reads lines as they are wanted.
pub fn read_as_wanted(header: &mut Header, function: &mut Function) {
    let mut uses: SecondaryMap<Value, u32> = SecondaryMap::new();
    let mut conversions: Vec<(Block, Inst)> = Vec::new();
    for block in function.blocks.keys() {
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            data.operands.iter().for_each(|operand| uses[*operand] += 1);
            if matches!(data.op, Op::Gpu(GpuOp::ConvertLayout {})) {
                conversions.push((block, *inst));
            }
        }
    }
    for (block, conversion) in conversions {
        let Some(chain) = chain_of_line(function, &uses, conversion) else { continue };
        let result = function.insts[conversion].results[0];
        let Some(mut layout) = function.ty(result).layout() else { continue };
        // From the conversion back to the read.
        let mut types: SmallVec<[Type; 2]> = SmallVec::new();
        let is_known = chain.iter().all(|inst| {
            let data = &function.insts[*inst];
            let made = function.ty(data.results[0]).as_registers().expect("it is in registers").clone();
            types.push(Type::registers(made, Some(layout)));
            let Some(shape @ ir::Op::ExpandDims { .. }) = data.op.as_tile() else { return true };
            let operand = function.ty(data.operands[0]).as_registers().expect("it is in registers");
            let wanted = operand_layout(shape, operand, header.layouts.get(layout));
            wanted.map(|wanted| layout = header.layouts.add(wanted)).is_some()
        });
        if !is_known {
            continue;
        }
        for (inst, ty) in chain.iter().zip(types) {
            let made = function.insts[*inst].results[0];
            function.values[made].ty = ty;
        }
        // What was converted is made at once.
        function.insts[chain[0]].results[0] = result;
        function.values[result].definition = Definition::Result(chain[0], 0);
        function.blocks[block].insts.retain(|inst| *inst != conversion);
    }
}

/// What a conversion is of, from the last instruction to the read of a line, if nothing else uses any of it.
fn chain_of_line(
    function: &Function,
    uses: &SecondaryMap<Value, u32>,
    conversion: Inst,
) -> Option<SmallVec<[Inst; 2]>> {
    let mut chain = SmallVec::new();
    let mut value = function.insts[conversion].operands[0];
    loop {
        let inst = function.defining_inst(value).filter(|_| uses[value] == 1)?;
        let data = &function.insts[inst];
        chain.push(inst);
        match &data.op {
            Op::Tile(ir::Op::ExpandDims { .. }) => value = data.operands[0],
            Op::Gpu(GpuOp::LocalLoad { matrix: false }) => {
                let is_line = function.ty(value).as_registers()?.rank() == 1;
                let is_slot = matches!(function.ty(data.operands[0]), Type::Full(_));
                return (is_line && is_slot).then_some(chain);
            }
            // tidy: wildcard because nothing else is read in any layout
            _ => return None,
        }
    }
}
