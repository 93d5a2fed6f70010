//! Describes the boxes that tensor copies move, and finds their tensor maps.
//! [`crate::assign::boxes`] marks the accesses to boxes with the op `tensor_box`.

use cranelift_entity::packed_option::PackedOption;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{ElementwiseFn, Inst, Location, Value};
use tilewright_layout::Layout;

use super::device_tensor_maps;
use super::tensor_maps::map_plan;
use crate::assign::boxes::MapId;
use tilewright_gpu_ir::box_layout::BoxLayout;
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::target::Feature;
use tilewright_gpu_ir::{Function, GpuOp, Header, LaunchInteger, Op, TensorMapBox, TensorMapPlan};

/// A box of a tensor, moved between global memory and a buffer in shared memory.
#[derive(Clone)]
pub(super) struct Boxed {
    /// The `tensor_box` of the box, which returns pointers to it.
    pub mark: Inst,
    /// For each axis of the buffer, the axis of the pointers.
    pub axes: SmallVec<[usize; 5]>,
    pub shape: ir::Shape,
    /// The layout of the box in the buffer.
    pub boxes: BoxLayout,
    pub is_written: bool,
}

impl Boxed {
    /// Returns the box of a load, if tensor copies can load it or its transpose.
    pub fn of_load(
        header: &Header,
        function: &Function,
        load: Inst,
        stored: Value,
        memory: &Layout,
    ) -> Option<Self> {
        let (loaded, axes) = transposed(function, stored)?;
        let mark = function.defining_inst(function.insts[load].operands[0])?;
        let Op::Gpu(GpuOp::TensorBox {}) = function.insts[mark].op else { return None };
        if loaded != function.insts[load].results[0] || !header.target.features.has(Feature::Tma) {
            return None;
        }
        let tile = function.ty(stored).as_registers()?;
        let bits = element_bits(tile);
        let layout = BoxLayout::of(memory, bits)?;
        let fits = (layout.bytes * layout.count).is_multiple_of(layout.alignment);
        let boxed = Self { mark, axes, shape: tile.shape.clone(), boxes: layout, is_written: false };
        (fits && boxed.plan(header, function).is_some()).then_some(boxed)
    }

    /// Returns the tensor map of the box, and the id of its original map.
    ///
    /// The axes of the buffer are the last ones of the map. Returns `None` if no tensor copy can
    /// move the box.
    pub fn plan(&self, header: &Header, function: &Function) -> Option<(TensorMapPlan, MapId)> {
        let (number, plan) = map_plan(header, function, function.insts[self.mark].operands[1])?;
        let plan = plan.transposed(&self.axes)?;
        let own = plan.strides.len() - self.axes.len();
        if plan.strides[own + self.boxes.order[0]] != LaunchInteger::constant(1) {
            return None;
        }
        let mut extents: SmallVec<[u32; 5]> =
            std::iter::repeat_n(1, own).chain(self.boxes.extents(&self.shape)).collect();
        if let Some(axis) = self.gathered_row_indices(function) {
            // A gather copies each row separately.
            let bits = plan.element.bytes() as u32 * 8;
            if !self.boxes.can_gather_rows(bits) {
                return None;
            }
            extents[axis] = 1;
        }
        let swizzle = self.boxes.swizzle;
        let copied = Some(TensorMapBox {
            extents,
            swizzle,
            fills_nan: false,
            is_written: self.is_written,
            pixels: None,
        });
        Some((TensorMapPlan { copied, ..plan }, number))
    }

    /// Returns whether another load's box has the same map and order of axes.
    pub fn is_of_map_of(&self, other: &Self, header: &Header, function: &Function) -> bool {
        self.axes == other.axes && self.plan(header, function) == other.plan(header, function)
    }

    /// Returns the index of the coordinate that is a tile of row indices.
    pub fn gathered_row_indices(&self, function: &Function) -> Option<usize> {
        let coordinates = self.coordinates(function, self.mark);
        coordinates.iter().position(|value| is_tile(function, *value))
    }

    /// Returns the coordinates of a `tensor_box`. Those of other axes come first, then one for each
    /// axis of the buffer.
    pub fn coordinates(&self, function: &Function, mark: Inst) -> SmallVec<[Value; 5]> {
        let coordinates = &function.insts[mark].operands[2..];
        let (own, of_tile) = coordinates.split_at(coordinates.len() - self.axes.len());
        own.iter().copied().chain(self.axes.iter().map(|axis| of_tile[*axis])).collect()
    }
}

/// Returns the axis along which a tile is contiguous in global memory. The tile is a box of a
/// tensor, or a transpose. Returns `None` for other tiles.
pub(super) fn contiguous_axis(header: &Header, function: &Function, value: Value) -> Option<usize> {
    let (loaded, axes) = transposed(function, value)?;
    let load = function.defining_inst(loaded)?;
    let Op::Gpu(GpuOp::Load { .. }) = function.insts[load].op else { return None };
    let mark = function.defining_inst(function.insts[load].operands[0])?;
    let Op::Gpu(GpuOp::TensorBox {}) = function.insts[mark].op else { return None };
    let (_, plan) = map_plan(header, function, function.insts[mark].operands[1])?;
    let plan = plan.transposed(&axes)?;
    plan.contiguous_axis()?.checked_sub(plan.strides.len() - axes.len())
}

/// Returns the tensor map for a box, and adds a map if no map fits.
pub(super) fn map_for(header: &mut Header, function: &mut Function, boxed: &Boxed) -> Option<Value> {
    let map = function.insts[boxed.mark].operands[1];
    let (wanted, id) = boxed.plan(header, function)?;
    let number = match id {
        MapId::Launch(number) => number,
        MapId::Device(number) => {
            return device_tensor_maps::map_for(header, function, (map, number), wanted, &boxed.axes);
        }
    };
    let parameters = &function.blocks[function.entry].parameters;
    let first = parameters.len() - header.tensor_maps.len();
    if let Some(same) = header.tensor_maps.iter().position(|other| *other == wanted) {
        return Some(parameters[first + same]);
    }
    // A transposed box needs a separate map, because its axes have another order.
    if header.tensor_maps[number].copied.is_none() && boxed.axes.is_sorted() {
        header.tensor_maps[number] = wanted;
        return Some(map);
    }
    let name = format!("tensor_map{}", header.tensor_maps.len());
    let ty = function.ty(map).clone();
    let value = function.add_parameter(function.entry, ty, Some(name.as_str().into()));
    let known = function.parameters.last()?.divisibility;
    function.parameters.push(ir::Parameter { name: name.as_str().into(), divisibility: known });
    header.tensor_maps.push(wanted);
    Some(value)
}

/// Follows a value back through `transpose` ops to the tile that they permute. For each axis of the
/// value, also returns the axis of the tile.
pub(super) fn transposed(function: &Function, mut value: Value) -> Option<(Value, SmallVec<[usize; 5]>)> {
    let rank = function.ty(value).as_registers()?.rank();
    let mut axes: SmallVec<[usize; 5]> = (0..rank).collect();
    while let Some(inst) = function.defining_inst(value)
        && let Op::Tile(ir::Op::Transpose { permutation }) = &function.insts[inst].op
    {
        axes = axes.iter().map(|axis| permutation[*axis] as usize).collect();
        value = function.insts[inst].operands[0];
    }
    Some((value, axes))
}

fn is_tile(function: &Function, value: Value) -> bool {
    function.ty(value).as_registers().is_some_and(|tile| !tile.is_scalar())
}

/// Returns the index of the first scalar coordinate, which can disable a copy.
pub(super) fn place_of_condition(function: &Function, coordinates: &[Value]) -> usize {
    coordinates.iter().position(|value| !is_tile(function, *value)).unwrap_or(0)
}

/// Returns whether a copy or a `tensor_box` gathers rows.
pub(super) fn is_of_rows(function: &Function, inst: Inst) -> bool {
    let data = &function.insts[inst];
    let first = match data.op {
        Op::Gpu(GpuOp::TensorBox {} | GpuOp::TensorFill {} | GpuOp::TensorStore {}) => 2,
        Op::Gpu(GpuOp::TensorLoad {}) => 4,
        // tidy: wildcard because no other op has coordinates that may be tiles
        _ => return false,
    };
    data.operands[first..].iter().any(|value| is_tile(function, *value))
}

/// Creates instructions that disable a copy if a condition is false. They move a coordinate out of
/// any tensor. The result of the second instruction is this coordinate.
pub(super) fn mask_coordinate(
    function: &mut Function,
    condition: Value,
    coordinate: Value,
    location: PackedOption<Location>,
) -> [Inst; 2] {
    let int = function.ty(coordinate).clone();
    let value = ir::Literal::int(ir::Dtype::I32, i32::MIN.into());
    let constant = ir::Op::Constant { value }.into();
    let outside = function.create_inst(constant, smallvec![], smallvec![], [int.clone()], location);
    let place = function.insts[outside].results[0];
    let op = GpuOp::Elementwise { function: ElementwiseFn::Select, equal_registers: 0 };
    let operands = smallvec![condition, coordinate, place];
    [outside, function.create_inst(op.into(), operands, smallvec![], [int], location)]
}
