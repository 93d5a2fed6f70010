//! Plans the tensor maps of the tensor copies that a program states (Gluon).

use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic};
use tilewright_ir::{Definition, DeviceFn, Function, Inst, Op, SharedTiles, Value, constant_int};

use super::TensorBoxes;
use crate::launcher::Launcher;
use crate::tile::legality::at;
use tilewright_gpu_ir::box_layout::BoxLayout;
use tilewright_gpu_ir::{LaunchInteger, LaunchTerm, TensorMapBox, TensorMapPlan};

/// Returns the index of the first operand of a tensor copy that describes its tensor. The operands
/// from this index on are base, extents, strides and coordinates.
pub fn first_of_tensor(function: &DeviceFn) -> usize {
    match function {
        DeviceFn::TensorLoad { .. } => 5,
        // tidy: wildcard because the other tensor copy is a store
        _ => 2,
    }
}

/// Returns the rank of the tensor of a copy with this number of operands.
pub fn rank_of_tensor(function: &DeviceFn, operands: usize) -> usize {
    // For `n` axes, these operands are 1 base, `n` extents, `n - 1` strides (none for the last
    // axis) and `n` coordinates: `3 * n` operands.
    (operands - first_of_tensor(function)) / 3
}

impl TensorBoxes {
    /// Plans a tensor map for each tensor, box and swizzle of the tensor copies of a kernel.
    ///
    /// # Errors
    /// If a tensor is not described by arguments of the launch, if the launcher makes no tensor
    /// maps, or if no tensor copy fills shared memory with a layout that the program states.
    pub fn stated(function: &Function, launcher: Launcher<'_>) -> Result<Self, Box<Diagnostic>> {
        let mut found = Self::default();
        let mut error = None;
        function.walk(function.entry, &mut |inst| {
            let Op::Device { function: device } = &function.insts[inst].op else { return };
            let (DeviceFn::TensorLoad { tiles, .. } | DeviceFn::TensorStore { tiles }) = device else {
                return;
            };
            let is_written = matches!(device, DeviceFn::TensorStore { .. });
            match plan(function, inst, device, (tiles, is_written)) {
                Ok(plan) => {
                    let place = found.maps.iter().position(|other| *other == plan).unwrap_or_else(|| {
                        found.maps.push(plan);
                        found.maps.len() - 1
                    });
                    found.of_copy.insert(inst, place);
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
            if let Some(plan) = found.of_copy.get(&inst).map(|place| &found.maps[*place])
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

fn plan(
    function: &Function,
    inst: Inst,
    device: &DeviceFn,
    (tiles, is_written): (&SharedTiles, bool),
) -> Result<TensorMapPlan, String> {
    let data = &function.insts[inst];
    let rank = rank_of_tensor(device, data.operands.len());
    let parts = &data.operands[first_of_tensor(device)..];
    let base = argument(function, parts[0])
        .ok_or("the descriptor of a tensor copy is not an argument of the launch")?;
    let at_launch = |value: Value| {
        let constant = constant_int(function, value).and_then(|number| i64::try_from(number).ok());
        let from_argument = || {
            let term =
                LaunchTerm { factor: 1, arguments: SmallVec::from_slice(&[argument(function, value)?]) };
            Some(LaunchInteger(vec![term]))
        };
        constant
            .map(LaunchInteger::constant)
            .or_else(from_argument)
            .ok_or("an extent or a stride of the descriptor is not an argument of the launch")
    };
    let extents = parts[1..=rank].iter().map(|value| at_launch(*value)).collect::<Result<_, _>>()?;
    let mut strides: SmallVec<[LaunchInteger; 5]> =
        parts[1 + rank..2 * rank].iter().map(|value| at_launch(*value)).collect::<Result<_, _>>()?;
    strides.push(LaunchInteger::constant(1));
    let bits = tiles.dtype.bits();
    let memory = tiles.layout.linear(&tiles.shape, bits)?;
    let boxes = BoxLayout::of(&memory, bits)
        .ok_or_else(|| format!("no tensor copy fills shared memory with the layout {}", tiles.layout))?;
    // A tensor may have leading axes that the memory lacks.
    let own = boxes.extents(&tiles.shape);
    let mut box_extents: SmallVec<[u32; 5]> = SmallVec::from_elem(1, rank.saturating_sub(own.len()));
    box_extents.extend(own.iter().skip(own.len().saturating_sub(rank)).copied());
    Ok(TensorMapPlan {
        element: tiles.dtype,
        base,
        offset: LaunchInteger::default(),
        extents,
        strides,
        nonnegative: SmallVec::new(),
        copied: Some(TensorMapBox { extents: box_extents, swizzle: boxes.swizzle, is_written }),
    })
}

/// Returns the index of the kernel argument that a value is, or from which only casts compute the
/// value. Returns `None` for other values.
fn argument(function: &Function, value: Value) -> Option<u32> {
    match function.values[value].definition {
        Definition::Parameter(block, index) => (block == function.entry).then_some(index),
        Definition::Result(inst, _) => match &function.insts[inst].op {
            Op::Cast { .. } => argument(function, function.insts[inst].operands[0]),
            // tidy: wildcard because other ops compute
            _ => None,
        },
    }
}
