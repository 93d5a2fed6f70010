//! Plans the tensor maps of the tensor copies that a program states (Gluon).

use cranelift_entity::EntitySet;
use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic};
use tilewright_ir::{
    Definition, DeviceFn, Dtype, Function, Inst, Op, Parents, SharedTiles, Value, constant_int,
};

use super::{DeviceMap, MapId, TensorBoxes};
use crate::launcher::Launcher;
use crate::tile::legality::at;
use tilewright_gpu_ir::box_layout::BoxLayout;
use tilewright_gpu_ir::{LaunchInteger, LaunchTerm, TensorMapBox, TensorMapPlan};

/// Returns the index of the base among the operands of a tensor copy. The extents, the strides and
/// the coordinates follow the base.
pub fn first_of_tensor(function: &DeviceFn) -> usize {
    match function {
        DeviceFn::TensorLoad { .. } => 5,
        DeviceFn::MulticastLoad { .. } | DeviceFn::WindowLoad { .. } => 6,
        // tidy: wildcard because the other tensor copy is a store
        _ => 2,
    }
}

/// Returns the rank of a copy's tensor.
pub fn rank_of_tensor(function: &DeviceFn, operands: usize) -> usize {
    // For `n` axes, these are 1 base, `n` extents, `n - 1` strides and `n` coordinates. An im2col
    // copy also has offsets.
    match function {
        DeviceFn::WindowLoad { window, .. } => window.steps.len(),
        // tidy: wildcard because other copies have no offsets
        _ => (operands - first_of_tensor(function)) / 3,
    }
}

/// Returns the number of coordinates and offsets, the last operands of a copy.
pub fn places_of_copy(function: &DeviceFn, operands: usize) -> usize {
    let rank = rank_of_tensor(function, operands);
    match function {
        DeviceFn::WindowLoad { .. } => 2 * rank - 2,
        // tidy: wildcard because other copies have no offsets
        _ => rank,
    }
}

impl TensorBoxes {
    /// Plans a map for each tensor, box and swizzle of a kernel's tensor copies.
    ///
    /// # Errors
    /// If the launcher makes no tensor maps, or a tensor copy cannot fill a stated layout. The call
    /// also fails if a worker uses a map that the kernel makes.
    pub fn stated(function: &Function, launcher: Launcher<'_>) -> Result<Self, Box<Diagnostic>> {
        let mut found = Self::default();
        let mut error = None;
        let of_workers = in_workers(function);
        function.walk(function.entry, &mut |inst| {
            let Op::Device { function: device } = &function.insts[inst].op else { return };
            let (DeviceFn::TensorLoad { tiles, .. }
            | DeviceFn::MulticastLoad { tiles, .. }
            | DeviceFn::WindowLoad { tiles, .. }
            | DeviceFn::TensorStore { tiles }) = device
            else {
                return;
            };
            let is_written = matches!(device, DeviceFn::TensorStore { .. });
            match plan(function, inst, device, (tiles, is_written)) {
                Ok(Plan::Launch(plan)) => {
                    let index = found.maps.iter().position(|other| *other == plan).unwrap_or_else(|| {
                        found.maps.push(plan);
                        found.maps.len() - 1
                    });
                    found.of_copy.insert(inst, MapId::Launch(index));
                }
                Ok(Plan::Device(_)) if of_workers.contains(inst) => {
                    let message = "a worker copies by a descriptor that the kernel makes";
                    error.get_or_insert_with(|| {
                        let hint = "pass the descriptor to the kernel, or copy in the default partition";
                        Box::new(at(function, inst, Code::NotOnThisDevice, message).hint(hint))
                    });
                }
                Ok(Plan::Device(map)) => {
                    let maps = &mut found.device_maps;
                    let index = maps.iter().position(|other| *other == map).unwrap_or_else(|| {
                        maps.push(map);
                        maps.len() - 1
                    });
                    found.of_copy.insert(inst, MapId::Device(index));
                }
                Err(message) => {
                    error.get_or_insert_with(|| Box::new(at(function, inst, Code::NotOnThisDevice, message)));
                }
            }
            if !launcher.makes_tensor_maps {
                let message = "a tensor copy needs a launcher that makes tensor maps";
                error.get_or_insert_with(|| {
                    let hint = "on the command line, pass `--tensor-maps`";
                    Box::new(at(function, inst, Code::NotOnThisDevice, message).hint(hint))
                });
            }
            if let Some(MapId::Launch(index)) = found.of_copy.get(&inst)
                && let plan = &found.maps[*index]
                && launcher.without.iter().any(|access| access.base == plan.base)
            {
                let message = "no tensor map can be made of this descriptor";
                error.get_or_insert_with(|| {
                    let hint = "strides are multiples of 16 bytes, and extents and coordinates fit 32 bits";
                    Box::new(at(function, inst, Code::NotOnThisDevice, message).hint(hint))
                });
            }
        });
        error.map_or(Ok(found), Err)
    }
}

enum Plan {
    Launch(TensorMapPlan),
    Device(DeviceMap),
}

/// Returns the instructions in workers.
fn in_workers(function: &Function) -> EntitySet<Inst> {
    let mut found = EntitySet::new();
    function.walk(function.entry, &mut |inst| {
        if let Op::StartWorkers { .. } = function.insts[inst].op {
            for region in &function.insts[inst].regions {
                function.walk(*region, &mut |inner| {
                    found.insert(inner);
                });
            }
        }
    });
    found
}

fn plan(
    function: &Function,
    inst: Inst,
    device: &DeviceFn,
    (tiles, is_written): (&SharedTiles, bool),
) -> Result<Plan, String> {
    let data = &function.insts[inst];
    let rank = rank_of_tensor(device, data.operands.len());
    let parts = &data.operands[first_of_tensor(device)..];
    let bits = tiles.dtype.bits();
    let memory = tiles.layout.linear(&tiles.shape, bits)?;
    let boxes = BoxLayout::of(&memory, bits)
        .ok_or_else(|| format!("no tensor copy fills shared memory with the layout {}", tiles.layout))?;
    // The tensor may have more leading axes than the memory.
    let own = boxes.extents(&tiles.shape);
    let mut box_extents: SmallVec<[u32; 5]> = SmallVec::from_elem(1, rank.saturating_sub(own.len()));
    box_extents.extend(own.iter().skip(own.len().saturating_sub(rank)).copied());
    let fills_nan = matches!(
        device,
        DeviceFn::TensorLoad { fills_nan: true, .. } | DeviceFn::MulticastLoad { fills_nan: true, .. }
    );
    if fills_nan && bits < 16 {
        return Err("no tensor copy fills elements of 8 bits with NaN".into());
    }
    let mut pixels = None;
    if let (DeviceFn::WindowLoad { window, .. }, [count, channels]) = (device, &own[..]) {
        // A copy moves a row of the memory for each pixel.
        box_extents = SmallVec::from_elem(1, rank - 1);
        box_extents.push(*channels);
        pixels = Some((*count, window.clone()));
    }
    let is_window = pixels.is_some();
    let copied = TensorMapBox { extents: box_extents, swizzle: boxes.swizzle, fills_nan, is_written, pixels };
    // The launch makes the map if it knows all parts; otherwise the kernel makes it.
    let mut inputs = Vec::new();
    let by_launch =
        map_of(function, (parts, rank), (tiles.dtype, &copied), &mut |value| argument(function, value));
    if let Some(plan) = by_launch {
        return Ok(Plan::Launch(plan));
    }
    if is_window {
        return Err("an im2col descriptor has to be an argument of the kernel".into());
    }
    let plan = map_of(function, (parts, rank), (tiles.dtype, &copied), &mut |value| {
        let index = inputs.iter().position(|other| *other == value).unwrap_or_else(|| {
            inputs.push(value);
            inputs.len() - 1
        });
        Some(index as u32)
    });
    let plan = plan.ok_or("the parts of the descriptor are no scalars")?;
    let parents = Parents::new(function);
    let depth = |value: &Value| {
        let mut block = parents.block_of_value(function, *value);
        let mut depth = 0;
        while let Some(owner) = block.and_then(|block| parents.owner(block)) {
            block = parents.block(owner);
            depth += 1;
        }
        depth
    };
    let last = inputs.iter().copied().max_by_key(depth).ok_or("a descriptor has a base")?;
    Ok(Plan::Device(DeviceMap { plan, inputs, last }))
}

/// Returns the tensor map of a descriptor. Returns `None` if `input` does not know one of the
/// parts.
fn map_of(
    function: &Function,
    (parts, rank): (&[Value], usize),
    (element, copied): (Dtype, &TensorMapBox),
    input: &mut dyn FnMut(Value) -> Option<u32>,
) -> Option<TensorMapPlan> {
    let mut base = parts[0];
    while let Some(Op::Hint { .. }) = function.defining_op(base) {
        let inst = function.defining_inst(base)?;
        base = function.insts[inst].operands[0];
    }
    let base = input(base)?;
    let mut integer = |value: &Value| {
        let constant = constant_int(function, *value).and_then(|number| i64::try_from(number).ok());
        if let Some(constant) = constant {
            return Some(LaunchInteger::constant(constant));
        }
        let arguments = SmallVec::from_slice(&[input(*value)?]);
        Some(LaunchInteger(vec![LaunchTerm { factor: 1, arguments }]))
    };
    let extents = parts[1..=rank].iter().map(&mut integer).collect::<Option<_>>()?;
    let mut strides: SmallVec<[LaunchInteger; 5]> =
        parts[1 + rank..2 * rank].iter().map(&mut integer).collect::<Option<_>>()?;
    strides.push(LaunchInteger::constant(1));
    Some(TensorMapPlan {
        element,
        base,
        offset: LaunchInteger::default(),
        extents,
        strides,
        nonnegative: SmallVec::new(),
        copied: Some(copied.clone()),
    })
}

/// Returns the index of a kernel argument. Looks through casts that keep the number.
fn argument(function: &Function, value: Value) -> Option<u32> {
    match function.values[value].definition {
        Definition::Parameter(block, index) => (block == function.entry).then_some(index),
        Definition::Result(inst, _) => match &function.insts[inst].op {
            Op::Cast { .. } if !keeps_number(function, inst) => None,
            Op::Cast { .. } | Op::Hint { .. } => argument(function, function.insts[inst].operands[0]),
            // tidy: wildcard because other ops compute
            _ => None,
        },
    }
}

/// Returns whether a cast keeps every number of its operand. The result must have all numbers of
/// the operand's type, or be int64, in which the launch computes.
fn keeps_number(function: &Function, cast: Inst) -> bool {
    let data = &function.insts[cast];
    let (Some(from), Some(to)) =
        (function.ty(data.operands[0]).dtype(), function.ty(data.results[0]).dtype())
    else {
        // A pointer to another element type is the same address.
        return true;
    };
    let keeps_sign = from.is_signed() == to.is_signed() && to.bits() >= from.bits();
    from.is_int() && to.is_int() && (keeps_sign || to == Dtype::I64)
}
