//! Looks up the tensor maps of a kernel: those that the launch passes, and those that the kernel
//! makes.

use tilewright_ir::Value;

use crate::assign::boxes::MapId;
use tilewright_gpu_ir::{Function, GpuOp, Header, Op, TensorMapPlan};

/// Returns the id and the plan of a tensor map that is an operand of a `tensor_box` or a copy.
pub(super) fn map_plan<'h>(
    header: &'h Header,
    function: &Function,
    map: Value,
) -> Option<(MapId, &'h TensorMapPlan)> {
    if let Some(Op::Gpu(GpuOp::MakeTensorMap { map })) = function.defining_op(map) {
        let index = *map as usize;
        return Some((MapId::Device(index), &header.made_maps[index]));
    }
    let index = launch_map_index(header, function, map)?;
    Some((MapId::Launch(index), &header.tensor_maps[index]))
}

/// Returns the index of a tensor map among the parameters that are tensor maps. Returns `None` if
/// the value is not such a parameter.
pub(super) fn launch_map_index(header: &Header, function: &Function, map: Value) -> Option<usize> {
    let parameters = &function.blocks[function.entry].parameters;
    let first = parameters.len().checked_sub(header.tensor_maps.len())?;
    parameters[first..].iter().position(|parameter| *parameter == map)
}
