//! Blocked layouts: each thread holds a small box of elements.
//!
//! A warp holds a box of its lanes' boxes, and a block holds a box of its warps' boxes.

use smallvec::SmallVec;

use crate::f2::Columns;
use crate::layout::assert_permutation;
use crate::map::Layout;
use crate::space::{Hardware, Input, Tile};

/// Returns the blocked layout of `shape`. Each thread holds a box of `size_per_thread` elements.
/// The boxes of a warp's lanes form a box of `threads_per_warp` boxes. The boxes of a block's warps
/// form a box of `warps_per_block` boxes. In each of the three boxes, `order` lists the axes from
/// the fastest to the slowest. If the tile is larger than the box of a block, further registers
/// repeat the pattern. If the tile is smaller, several threads hold copies of its elements, as in
/// [`Layout::cover`].
///
/// # Panics
/// If the lists differ in length, or a size is not a power of two. The call also panics if `order`
/// is not a permutation of the axes.
pub fn blocked(
    shape: &[u32],
    size_per_thread: &[u32],
    threads_per_warp: &[u32],
    warps_per_block: &[u32],
    order: &[usize],
) -> Layout {
    assert_permutation(order, shape.len());
    let tile = Tile::new(shape);
    // For each axis, the number of coordinate bits assigned so far. A bit beyond the end of the
    // tile has no effect.
    let mut taken = SmallVec::<[u32; 6]>::from_elem(0, shape.len());
    let mut next = |axis: usize| {
        let bit = taken[axis];
        taken[axis] += 1;
        if bit < tile.bits_of(axis) { 1 << (tile.shift(axis) + bit) } else { 0 }
    };
    let mut level = |sizes: &[u32]| -> Columns {
        assert_eq!(sizes.len(), shape.len(), "a box needs one size for each axis");
        assert!(sizes.iter().all(|size| size.is_power_of_two()), "sizes are powers of two, found {sizes:?}");
        let bits = order.iter().flat_map(|axis| std::iter::repeat_n(*axis, sizes[*axis].ilog2() as usize));
        bits.map(&mut next).collect()
    };
    let mut registers = level(size_per_thread);
    registers.retain(|column| *column != 0);
    let (lanes, warps) = (level(threads_per_warp), level(warps_per_block));
    for axis in order {
        let rest = taken[*axis].min(tile.bits_of(*axis))..tile.bits_of(*axis);
        registers.extend(rest.map(|bit| 1 << (tile.shift(*axis) + bit)));
    }
    let bits = |columns: &Columns| columns.len() as u32;
    let input = Hardware::new(&[
        (Input::Register, bits(&registers)),
        (Input::Lane, bits(&lanes)),
        (Input::Warp, bits(&warps)),
    ]);
    Layout::new(input, tile, registers.into_iter().chain(lanes).chain(warps).collect())
}

/// Returns the blocked layout for accesses to a tensor in memory. `order` lists the axes from the
/// smallest stride to the largest. Each thread holds runs of `width` elements along the first of
/// these axes. The lanes follow each other along this axis, then along the next ones. The warps
/// continue after the lanes. If there are more threads than runs, the excess threads hold copies.
///
/// # Panics
/// If a number is not a power of two, or `order` is not a permutation of the axes.
pub fn coalesced(shape: &[u32], order: &[usize], width: u32, lanes: u32, warps: u32) -> Layout {
    assert_permutation(order, shape.len());
    let ones = SmallVec::<[u32; 6]>::from_elem(1, shape.len());
    let Some((first, last)) = order.first().zip(order.last()) else {
        let copies = |input, size| Layout::replicated(0, input, size);
        return copies(Input::Lane, lanes).product(&copies(Input::Warp, warps));
    };
    let mut size_per_thread = ones.clone();
    size_per_thread[*first] = width.min(shape[*first]);
    let mut left: SmallVec<[u32; 6]> =
        shape.iter().zip(&size_per_thread).map(|(size, own)| size / own).collect();
    let mut spread = |mut count: u32| {
        let mut sizes = ones.clone();
        for axis in order {
            sizes[*axis] = count.min(left[*axis]);
            count /= sizes[*axis];
            left[*axis] /= sizes[*axis];
        }
        sizes[*last] *= count;
        sizes
    };
    let (lanes, warps) = (spread(lanes), spread(warps));
    blocked(shape, &size_per_thread, &lanes, &warps, order)
}
