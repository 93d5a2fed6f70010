//! Reads a vector from a slot in its user's layout, without a conversion.
//!
//! ```text
//! %x = local_load %slot : fp32[32]@L0           %x = local_load %slot : fp32[32]@L2
//! %y = expand_dims %x : fp32[1, 32]@L1    ──>   %z = expand_dims %x : fp32[1, 32]@L3
//! %z = convert_layout %y : fp32[1, 32]@L3
//! ```
//! Any thread can read any element, and threads that read the same word take no extra time. A
//! conversion would take a shuffle for each element of a thread.

use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{Block, Definition, Inst, Operation, Value};

use tilewright_gpu_ir::layout_rules::operand_layout;
use tilewright_gpu_ir::{Function, GpuOp, Header, Op, Type};

/// Moves conversions of vectors into the reads of their slots.
pub fn sink_layout_into_local_load(header: &mut Header, function: &mut Function) {
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
        let Some(chain) = chain_to_read(function, &uses, conversion) else { continue };
        let result = function.insts[conversion].results[0];
        let Some(mut layout) = function.ty(result).layout() else { continue };
        // The new types of the results, from the conversion back to the read.
        let mut types: SmallVec<[Type; 2]> = SmallVec::new();
        let is_known = chain.iter().all(|inst| {
            let data = &function.insts[*inst];
            let tile =
                function.ty(data.results[0]).as_registers().expect("the vector is in registers").clone();
            types.push(Type::registers(tile, Some(layout)));
            let Some(shape @ ir::Op::ExpandDims { .. }) = data.op.as_tile() else { return true };
            let operand = function.ty(data.operands[0]).as_registers().expect("the vector is in registers");
            let needed = operand_layout(shape, operand, header.layouts.get(layout));
            needed.map(|needed| layout = header.layouts.add(needed)).is_some()
        });
        if !is_known {
            continue;
        }
        for (inst, ty) in chain.iter().zip(types) {
            let result = function.insts[*inst].results[0];
            function.values[result].ty = ty;
        }
        // The op before the conversion now defines the result of the conversion.
        function.insts[chain[0]].results[0] = result;
        function.values[result].definition = Definition::Result(chain[0], 0);
        function.blocks[block].insts.retain(|inst| *inst != conversion);
    }
}

/// Returns the ops from a conversion back to the read of a vector. Returns `None` if they have
/// other users.
fn chain_to_read(
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
                let is_vector = function.ty(value).as_registers()?.rank() == 1;
                let is_slot = matches!(function.ty(data.operands[0]), Type::Full(_));
                return (is_vector && is_slot).then_some(chain);
            }
            // tidy: wildcard because the layout of no other op is free
            _ => return None,
        }
    }
}
