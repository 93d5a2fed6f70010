//! The tensor maps of a kernel: those that its launch passes, and those that it makes.

use tilewright_ir::Value;

use crate::assign::boxes::MapId;
use tilewright_gpu_ir::{Function, GpuOp, Header, Op, TensorMapPlan};

/// The tensor map that a mark or a copy goes by.
pub(super) fn map_plan<'h>(
    header: &'h Header,
    function: &Function,
    map: Value,
) -> Option<(MapId, &'h TensorMapPlan)> {
    if let Some(Op::Gpu(GpuOp::MakeTensorMap { map })) = function.defining_op(map) {
        let number = *map as usize;
        return Some((MapId::Device(number), &header.made_maps[number]));
    }
    let number = map_number(header, function, map)?;
    Some((MapId::Launch(number), &header.tensor_maps[number]))
}

/// The number of the tensor map that a parameter of the kernel is.
pub(super) fn map_number(header: &Header, function: &Function, map: Value) -> Option<usize> {
    let parameters = &function.blocks[function.entry].parameters;
    let first = parameters.len().checked_sub(header.tensor_maps.len())?;
    parameters[first..].iter().position(|parameter| *parameter == map)
}
