//! What ops do to layouts: how the layout of a result follows from that of an operand, and back.

use smallvec::SmallVec;
use tilewright_ir::{Op, Type};
use tilewright_layout::{Layout, Reduction};

/// Lanes of a warp.
pub const LANES: u32 = 32;

/// The layout of a tile that nobody asks anything of.
pub fn default_layout(shape: &[u32], num_warps: u32) -> Layout {
    let order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
    tilewright_layout::coalesced(shape, &order, 1, LANES, num_warps)
}

/// A buffer that holds a tile row after row: the offset of an element is its number in the tile.
pub fn rows(shape: &[u32]) -> Layout {
    let order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
    Layout::strided(shape, &order)
}

/// The layout that a shape op wants its operand in for a result with this layout.
///
/// `None` where the operand is a scalar.
pub fn operand_layout(op: &Op, operand: &Type, result: &Layout) -> Option<Layout> {
    if operand.is_scalar() {
        return None;
    }
    Some(match op {
        Op::ExpandDims { axis } => result.remove_axis(*axis as usize),
        Op::Broadcast { shape } => grown_axes(operand, shape)
            .fold(result.clone(), |layout, axis| layout.collapse(axis))
            .without_duplicate_registers(),
        Op::Slice { steps, .. } => result.unslice(&operand.shape, &distances(steps)),
        Op::Reshape { .. } => result.reshape(&operand.shape),
        Op::Transpose { permutation } => {
            let mut inverse: SmallVec<[usize; 6]> = SmallVec::from_elem(0, permutation.len());
            for (place, axis) in permutation.iter().enumerate() {
                inverse[*axis as usize] = place;
            }
            result.transpose(&inverse)
        }
        // tidy: wildcard because all other ops keep places
        _ => result.clone(),
    })
}

/// The layout that a shape op gives its result from an operand with this layout.
pub fn result_layout(op: &Op, from: &Type, operand: &Layout) -> Layout {
    match op {
        Op::ExpandDims { axis } => operand.insert_axis(*axis as usize),
        Op::Broadcast { shape } => {
            grown_axes(from, shape).fold(operand.clone(), |layout, axis| layout.broadcast(axis, shape[axis]))
        }
        Op::Slice { steps, shape, .. } => operand.slice(shape, &distances(steps)),
        Op::Reshape { shape } => operand.reshape(shape),
        Op::Transpose { permutation } => {
            let axes: SmallVec<[usize; 6]> = permutation.iter().map(|axis| *axis as usize).collect();
            operand.transpose(&axes)
        }
        // tidy: wildcard because all other ops keep places
        _ => operand.clone(),
    }
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
