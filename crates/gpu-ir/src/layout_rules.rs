//! Layout rules of ops, from operand to result and back.
//!
//! A line is the elements that differ only along one axis.

use smallvec::SmallVec;
use tilewright_ir::{Op, ShapeOp, Type};
use tilewright_layout::{Input, Layout, Parts, Reduction, blocked, coalesced, spread_over_lanes};

/// Lanes of a warp.
pub const LANES: u32 = 32;
/// The most partial results of a line that a reduction or a scan combines. For more, the operands
/// are first converted, so that each warp holds whole lines if there are enough lines.
pub const MAX_PARTIAL_RESULTS: u32 = 32;

/// Returns the layout in which the partial results of a scan are combined.
///
/// Up to eight of them are in a thread's registers. More are spread over lanes, if all lanes of a
/// warp hold the same lines.
pub fn partial_results_layout(parts: &Parts) -> Layout {
    let spread =
        (parts.count() > MAX_PARTIAL_RESULTS_IN_REGISTERS).then(|| spread_over_lanes(&parts.gathered, 1));
    spread.flatten().unwrap_or_else(|| parts.gathered.clone())
}

/// The most partial results that a thread combines. For more, a scan over lanes is faster.
const MAX_PARTIAL_RESULTS_IN_REGISTERS: u32 = 8;

/// Returns the layout of a tile that has no constraints.
pub fn default_layout(shape: &[u32], num_warps: u32) -> Layout {
    let order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
    coalesced(shape, &order, 1, LANES, num_warps)
}

/// Returns the row-major layout of a buffer.
pub fn rows(shape: &[u32]) -> Layout {
    let order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
    Layout::strided(shape, &order)
}

/// The rows that one `tile::gather4` copies.
pub const GATHERED_ROWS_PER_COPY: u32 = 4;
/// The fewest gathered rows of tensor copies: those of a swizzle pattern.
pub const MIN_GATHERED_ROWS: u32 = 8;

/// Returns the layout of row indices for gathering copies. A thread has its copies' indices in
/// consecutive registers, and each warp has all indices.
pub fn gathered_row_indices(count: u32, num_warps: u32) -> Layout {
    coalesced(&[count], &[0], GATHERED_ROWS_PER_COPY, LANES, 1).product(&Layout::replicated(
        1,
        Input::Warp,
        num_warps,
    ))
}

/// Returns the operand layout that an op needs for a result layout.
///
/// Only `Shape` ops need another layout than that of the result. Returns `None` if the operand is a
/// scalar.
pub fn operand_layout(op: &Op, operand: &Type, result: &Layout) -> Option<Layout> {
    if operand.is_scalar() {
        return None;
    }
    let Some(op) = op.as_shape() else { return Some(result.clone()) };
    Some(match op {
        ShapeOp::ExpandDims { axis } => result.remove_axis(*axis as usize),
        ShapeOp::Broadcast { shape } => grown_axes(operand, shape)
            .fold(result.clone(), |layout, axis| layout.collapse(axis))
            .without_duplicate_registers(),
        ShapeOp::Slice { steps, .. } => result.unslice(&operand.shape, &slice_steps(steps)),
        ShapeOp::Reshape { .. } => result.reshape(&operand.shape),
        ShapeOp::Transpose { permutation } => {
            let mut inverse: SmallVec<[usize; 6]> = SmallVec::from_elem(0, permutation.len());
            for (index, axis) in permutation.iter().enumerate() {
                inverse[*axis as usize] = index;
            }
            result.transpose(&inverse)
        }
    })
}

/// Returns the layout of the result of an op whose operand has this layout. Only `Shape` ops change
/// the layout.
pub fn result_layout(op: &Op, from: &Type, operand: &Layout) -> Layout {
    let Some(op) = op.as_shape() else { return operand.clone() };
    match op {
        ShapeOp::ExpandDims { axis } => operand.insert_axis(*axis as usize),
        ShapeOp::Broadcast { shape } => {
            grown_axes(from, shape).fold(operand.clone(), |layout, axis| layout.broadcast(axis, shape[axis]))
        }
        ShapeOp::Slice { steps, shape, .. } => operand.slice(shape, &slice_steps(steps)),
        ShapeOp::Reshape { shape } => operand.reshape(shape),
        ShapeOp::Transpose { permutation } => {
            let axes: SmallVec<[usize; 6]> = permutation.iter().map(|axis| *axis as usize).collect();
            operand.transpose(&axes)
        }
    }
}

/// Returns an alternative to [`result_layout`] for a broadcast, also without a conversion.
///
/// In [`result_layout`], lanes with copies of the operand hold copies of the result. Here, each of
/// these lanes holds a different part. Returns `None` for other ops, and if no lanes hold copies.
pub fn shared_result_layout(op: &Op, from: &Type, operand: &Layout) -> Option<Layout> {
    let ShapeOp::Broadcast { shape } = op.as_shape()? else { return None };
    let whole = result_layout(op, from, operand);
    let share = |layout: Option<Layout>, axis| {
        let shared = layout.as_ref().unwrap_or(&whole).shared_by_lanes(axis);
        shared.or(layout)
    };
    grown_axes(from, shape).fold(None, share)
}

/// Returns whether a slice selects fixed values of some coordinate bits.
///
/// A thread with all elements that differ only in these bits has the slice in registers.
pub fn renames_registers(whole: &[u32], starts: &[i64], steps: &[i64], part: &[u32]) -> bool {
    (0..whole.len()).all(|axis| {
        let (Ok(step), Ok(start)) = (u32::try_from(steps[axis]), u32::try_from(starts[axis])) else {
            return false;
        };
        let (extent, count) = (whole[axis], part[axis]);
        let is_aligned = |kept: u32| start & (kept - step) == 0;
        let powers = step.is_power_of_two() && count.is_power_of_two() && extent.is_power_of_two();
        powers
            && start < extent
            && step.checked_mul(count).is_some_and(|kept| kept <= extent && is_aligned(kept))
    })
}

/// Returns the steps of a slice that [renames registers](renames_registers).
fn slice_steps(steps: &[i64]) -> SmallVec<[u32; 6]> {
    steps
        .iter()
        .map(|step| u32::try_from(*step).expect("a slice of registers has steps of powers of two"))
        .collect()
}

/// Returns the layout of the result of a reduction.
pub fn reduced_layout(operand: &Layout, axis: u32) -> Layout {
    Reduction::along(operand, axis as usize).result
}

/// Returns a layout for scans or sorts along an axis.
///
/// Consecutive elements are in registers, then in lanes. Warps divide a line only if there are
/// fewer lines than warps.
pub fn line_layout(shape: &[u32], axis: usize, num_warps: u32) -> Layout {
    let per_thread = (shape.iter().product::<u32>() / (LANES * num_warps)).max(1);
    let ones: SmallVec<[u32; 6]> = SmallVec::from_elem(1, shape.len());
    let others: SmallVec<[usize; 6]> = (0..shape.len()).rev().filter(|other| *other != axis).collect();
    let mut left: SmallVec<[u32; 6]> = shape.into();
    let mut spread = |mut count: u32, order: &mut dyn Iterator<Item = usize>, copies: bool| {
        let mut sizes = ones.clone();
        for axis in order {
            sizes[axis] = count.min(left[axis]);
            count /= sizes[axis];
            left[axis] /= sizes[axis];
        }
        // The remaining warps or lanes hold copies.
        sizes[axis] *= if copies { count } else { 1 };
        sizes
    };
    let along = || std::iter::once(axis);
    // Warps come first; registers, then lanes, get the rest.
    let warps = spread(num_warps, &mut others.iter().copied().rev().chain(along()), true);
    let registers = spread(per_thread, &mut along(), false);
    let lanes = spread(LANES, &mut along().chain(others.iter().copied()), true);
    let order: SmallVec<[usize; 6]> = along().chain(others).collect();
    blocked(shape, &registers, &lanes, &warps, &order)
}

fn grown_axes<'a>(operand: &'a Type, shape: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
    (0..shape.len()).filter(move |axis| operand.shape[*axis] != shape[*axis])
}

/// Returns the bits of an element that moves between threads; a predicate takes 8.
pub fn element_bits(ty: &Type) -> u32 {
    ty.element.bytes() as u32 * 8
}

/// Returns the layout of `fma_dot`'s A (0) or B (1) in registers.
///
/// A thread has the rows of A and the columns of B of its accumulator elements. The highest bits of
/// the register index are along K.
pub fn fma_operand_layout(accumulator: &Layout, index: usize, k: u32) -> Layout {
    let rank = accumulator.output().rank();
    let (other, k_axis) = if index == 0 { (rank - 1, rank - 1) } else { (rank - 2, rank - 2) };
    let rows = accumulator.remove_axis(other).without_duplicate_registers();
    rows.insert_axis(k_axis).broadcast(k_axis, k)
}
