//! What ops do to layouts: how the layout of a result follows from that of an operand, and back.

use smallvec::SmallVec;
use tilewright_ir::{Op, ShapeOp, Type};
use tilewright_layout::{Input, Layout, Parts, Reduction, blocked, coalesced, spread_over_lanes};

/// Lanes of a warp.
pub const LANES: u32 = 32;
/// The most parts of a line, in different warps, that each thread combines where the order is kept.
pub const MOST_PARTS: u32 = 32;

/// Where the parts of the lines of a scan are combined: in the registers of each thread if they are few, else in the lanes of
/// each warp, if all its lanes have the same lines.
pub fn layout_of_parts(parts: &Parts) -> Layout {
    let spread = (parts.count() > MOST_PARTS_IN_REGISTERS).then(|| spread_over_lanes(&parts.gathered, 1));
    spread.flatten().unwrap_or_else(|| parts.gathered.clone())
}

/// Above it, the steps of a scan over lanes take less time than a sum after the other in each thread.
const MOST_PARTS_IN_REGISTERS: u32 = 8;

/// The layout of a tile that nobody asks anything of.
pub fn default_layout(shape: &[u32], num_warps: u32) -> Layout {
    let order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
    coalesced(shape, &order, 1, LANES, num_warps)
}

/// A buffer that holds a tile row after row: the offset of an element is its number in the tile.
pub fn rows(shape: &[u32]) -> Layout {
    let order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
    Layout::strided(shape, &order)
}

/// So many rows a copy of rows by number moves.
pub const ROWS_OF_COPY: u32 = 4;
/// The fewest rows by number that tensor copies move: those of a piece of the swizzle.
pub const LEAST_ROWS: u32 = 8;

/// The numbers of rows that tensor copies move: a thread has those of its copies next to each other, and each warp has all.
pub fn row_numbers(count: u32, num_warps: u32) -> Layout {
    coalesced(&[count], &[0], ROWS_OF_COPY, LANES, 1).product(&Layout::replicated(1, Input::Warp, num_warps))
}

/// The layout that an op wants its operand in for a result with this layout: of another family than `Shape`, the same.
///
/// `None` where the operand is a scalar.
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
        ShapeOp::Slice { steps, .. } => result.unslice(&operand.shape, &distances(steps)),
        ShapeOp::Reshape { .. } => result.reshape(&operand.shape),
        ShapeOp::Transpose { permutation } => {
            let mut inverse: SmallVec<[usize; 6]> = SmallVec::from_elem(0, permutation.len());
            for (place, axis) in permutation.iter().enumerate() {
                inverse[*axis as usize] = place;
            }
            result.transpose(&inverse)
        }
    })
}

/// The layout that an op gives its result from an operand with this layout: of another family than `Shape`, the same.
pub fn result_layout(op: &Op, from: &Type, operand: &Layout) -> Layout {
    let Some(op) = op.as_shape() else { return operand.clone() };
    match op {
        ShapeOp::ExpandDims { axis } => operand.insert_axis(*axis as usize),
        ShapeOp::Broadcast { shape } => {
            grown_axes(from, shape).fold(operand.clone(), |layout, axis| layout.broadcast(axis, shape[axis]))
        }
        ShapeOp::Slice { steps, shape, .. } => operand.slice(shape, &distances(steps)),
        ShapeOp::Reshape { shape } => operand.reshape(shape),
        ShapeOp::Transpose { permutation } => {
            let axes: SmallVec<[usize; 6]> = permutation.iter().map(|axis| *axis as usize).collect();
            operand.transpose(&axes)
        }
    }
}

/// Another layout of the result of a broadcast for which the operand needs no conversion: lanes that hold copies of the operand
/// have parts of the result, so that no thread computes what others do. None if that is [`result_layout`].
pub fn shared_result_layout(op: &Op, from: &Type, operand: &Layout) -> Option<Layout> {
    let ShapeOp::Broadcast { shape } = op.as_shape()? else { return None };
    let whole = result_layout(op, from, operand);
    let share = |layout: Option<Layout>, axis| {
        let shared = layout.as_ref().unwrap_or(&whole).shared_by_lanes(axis);
        shared.or(layout)
    };
    grown_axes(from, shape).fold(None, share)
}

/// Whether a slice fixes some of the bits of the coordinates, so that a thread which holds all that differs in those bits has
/// it in some of its registers.
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

/// The steps of a slice that [renames registers](renames_registers).
fn distances(steps: &[i64]) -> SmallVec<[u32; 6]> {
    steps
        .iter()
        .map(|step| u32::try_from(*step).expect("a slice of registers has steps of powers of two"))
        .collect()
}

/// The layout of the result of a reduction.
pub fn reduced_layout(operand: &Layout, axis: u32) -> Layout {
    Reduction::along(operand, axis as usize).result
}

/// A layout in which lines along an axis are scanned or sorted with the fewest exchanges: runs of a line in registers, in
/// lanes next, and in warps only if there are too few other lines for them.
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
        // The others hold copies.
        sizes[axis] *= if copies { count } else { 1 };
        sizes
    };
    let along = || std::iter::once(axis);
    // What lines the warps share is not there for registers and lanes.
    let warps = spread(num_warps, &mut others.iter().copied().rev().chain(along()), true);
    let registers = spread(per_thread, &mut along(), false);
    let lanes = spread(LANES, &mut along().chain(others.iter().copied()), true);
    let order: SmallVec<[usize; 6]> = along().chain(others).collect();
    blocked(shape, &registers, &lanes, &warps, &order)
}

fn grown_axes<'a>(operand: &'a Type, shape: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
    (0..shape.len()).filter(move |axis| operand.shape[*axis] != shape[*axis])
}

/// The width of an element when it moves between threads: a predicate takes a byte.
pub fn element_bits(ty: &Type) -> u32 {
    ty.element.bytes() as u32 * 8
}

/// The layout in which a thread reads an operand of a product of single elements: the rows of A and the columns of B that its
/// elements of the accumulator need, all of K in the highest bits of the register. `place` is 0 for A and 1 for B.
pub fn fma_operand_layout(accumulator: &Layout, place: usize, k: u32) -> Layout {
    let rank = accumulator.output().rank();
    let (other, k_axis) = if place == 0 { (rank - 1, rank - 1) } else { (rank - 2, rank - 2) };
    let rows = accumulator.remove_axis(other).without_duplicate_registers();
    rows.insert_axis(k_axis).broadcast(k_axis, k)
}
