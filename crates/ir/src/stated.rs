//! The rules by which ops pass on the layouts that a program states (Gluon). A tile without a
//! stated layout gets one from the compiler.

use std::sync::Arc;

use tilewright_layout::{Misfit, StatedLayout};

use crate::ops::{Op, OpFamily, ShapeOp};
use crate::rules::{RuleError, RuleErrorKind};
use crate::types::Type;

/// The layout of a type, if the program states it.
type Stated = Option<Arc<StatedLayout>>;

/// Returns whether all tiles that an op of a family takes must have one layout.
pub(crate) fn is_elementwise(family: OpFamily) -> bool {
    match family {
        OpFamily::Pointwise
        | OpFamily::Load
        | OpFamily::Store
        | OpFamily::Atomic
        | OpFamily::Check
        | OpFamily::Scan
        | OpFamily::Reduction => true,
        OpFamily::Scalar
        | OpFamily::Source
        | OpFamily::Identity
        | OpFamily::Shape
        | OpFamily::Movement
        | OpFamily::Dot
        | OpFamily::Promise
        | OpFamily::Barrier
        | OpFamily::Memory
        | OpFamily::Call
        | OpFamily::Loop
        | OpFamily::Branch
        | OpFamily::Partitions
        | OpFamily::Terminator => false,
    }
}

/// Checks that the tiles that an elementwise op takes have one layout.
pub(crate) fn check(op: &Op, operands: &[Type]) -> Result<(), RuleError> {
    let mut tiles = operands.iter().filter(|ty| !ty.is_scalar());
    let Some(first) = tiles.next() else { return Ok(()) };
    match tiles.find(|ty| ty.layout != first.layout) {
        Some(other) if is_elementwise(op.family()) => {
            let name = |ty: &Type| ty.layout.as_ref().map_or("no layout".into(), |layout| layout.to_string());
            let message = format!(
                "the operands of {} must have one layout, found {} and {}",
                op.name(),
                name(first),
                name(other)
            );
            Err(RuleError {
                notes: [first, other].into_iter().filter_map(drawing).collect(),
                ..error(message)
            })
        }
        _ => Ok(()),
    }
}

/// Gives the results of an op the layouts that follow from those of its operands.
pub(crate) fn complete(op: &Op, operands: &[Type], results: &mut [Type]) -> Result<(), RuleError> {
    let Some(first) = operands.iter().find(|ty| !ty.is_scalar()) else { return Ok(()) };
    let Some(layout) = &first.layout else { return Ok(()) };
    let found: Stated = match op {
        Op::Reduce { axis } => Some(Arc::new(StatedLayout::Slice { dim: *axis, parent: layout.clone() })),
        Op::Histogram { .. } => None,
        Op::Gather { .. } => operands.get(1).and_then(|index| index.layout.clone()),
        Op::SetLayout { .. } | Op::Device { .. } | Op::Dot { .. } => return Ok(()),
        // tidy: wildcard because the other ops keep the layout or change the shape
        _ => match op.as_shape() {
            Some(shape_op) => Some(Arc::new(shaped(shape_op, first, layout).map_err(error)?)),
            None if is_elementwise(op.family()) => Some(layout.clone()),
            None => return Ok(()),
        },
    };
    for result in results.iter_mut().filter(|ty| !ty.is_scalar()) {
        *result = result.with_layout(found.clone());
    }
    Ok(())
}

/// Returns the layout of the result of an op of the family `Shape`.
fn shaped(op: ShapeOp<'_>, operand: &Type, layout: &Arc<StatedLayout>) -> Result<StatedLayout, Misfit> {
    let linear = || layout.linear(&operand.shape);
    match op {
        ShapeOp::ExpandDims { axis } => match &**layout {
            StatedLayout::Slice { dim, parent } if dim == axis => Ok((**parent).clone()),
            other => Err(format!(
                "a new axis {axis} needs a tile whose layout is a SliceLayout({axis}, …), found {other}"
            )),
        },
        ShapeOp::Broadcast { .. } => Ok((**layout).clone()),
        ShapeOp::Slice { shape, steps, .. } => {
            let steps: Vec<u32> = steps.iter().map(|step| (*step).unsigned_abs() as u32).collect();
            Ok(StatedLayout::of_linear(&linear()?.slice(shape, &steps)))
        }
        ShapeOp::Reshape { shape } if *shape == operand.shape => Ok((**layout).clone()),
        ShapeOp::Reshape { shape } => Ok(StatedLayout::of_linear(&linear()?.reshape(shape))),
        ShapeOp::Transpose { permutation } => {
            let axes: Vec<usize> = permutation.iter().map(|axis| *axis as usize).collect();
            match layout.transposed(&axes) {
                Some(transposed) => Ok(transposed),
                None => Ok(StatedLayout::of_linear(&linear()?.transpose(&axes))),
            }
        }
    }
}

/// Returns a drawing of the first elements of a tile, each with the warp, lane and register that
/// hold it.
fn drawing(ty: &Type) -> Option<String> {
    const ROWS: usize = 4;
    const COLUMNS: usize = 72;
    let layout = ty.layout.as_ref()?;
    let table = layout.linear(&ty.shape).ok()?.table();
    let rows = table.lines().take(ROWS).map(|row| {
        let shown: String = row.chars().take(COLUMNS).collect();
        if shown.len() < row.len() { format!("{shown}…") } else { shown }
    });
    let rows: Vec<String> = rows.collect();
    Some(format!(
        "the first elements of {layout}, each with its warp, lane and register:\n{}",
        rows.join("\n")
    ))
}

pub(crate) fn error(message: String) -> RuleError {
    RuleError::new(message, RuleErrorKind::Layouts)
}
