//! Looks up tensor maps of the launch and of the kernel.

use tilewright_ir::Value;

use crate::assign::boxes::MapId;
use tilewright_gpu_ir::{Function, GpuOp, Header, Op, TensorMapPlan};

/// Returns the id and the plan of the map of a `tensor_box` or a copy.
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

/// Returns the index of a map among the tensor map parameters. Returns `None` for other values.
pub(super) fn launch_map_index(header: &Header, function: &Function, map: Value) -> Option<usize> {
    let parameters = &function.blocks[function.entry].parameters;
    let first = parameters.len().checked_sub(header.tensor_maps.len())?;
    parameters[first..].iter().position(|parameter| *parameter == map)
}
