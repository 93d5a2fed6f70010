//! Strided blocks: copies between memory and a tile, and from tile to tile.

use super::plan::{Axis, BlockAxes, MAX_RANK, extent, plan};
use super::{AccessError, AccessErrorKind, Region, find_outside};
use crate::run::kernels::shuffle::{SIDE, Word};

/// Reads a strided block of elements of 1, 2, 4 or 8 bytes into a tile.
///
/// Element `[i, j, …]` of the block is at `address + i * axes[0].stride + j * axes[1].stride + …`
/// in memory and at `i * axes[0].tile + …` in the tile. The other elements of the tile stay
/// unchanged, so a block may be a part of a tile.
///
/// Fails if an element is not inside the region; the tile is unchanged then. Panics if the block
/// exceeds the tile.
pub fn load_block(
    region: &Region<'_>,
    size: usize,
    address: u64,
    axes: &[Axis],
    tile: &mut [u8],
) -> Result<(), AccessError> {
    let Some(plan) = check(region, size, address, axes, tile.len())? else { return Ok(()) };
    // SAFETY: `check` has shown that every element is inside the region and inside the tile.
    unsafe { copy::<true>(size, &plan, region.pointer(address), tile.as_mut_ptr()) };
    Ok(())
}

/// Writes a strided block of elements of 1, 2, 4 or 8 bytes from a tile. See [`load_block`].
///
/// If several elements share an address, one of them is written.
pub fn store_block(
    region: &Region<'_>,
    size: usize,
    address: u64,
    axes: &[Axis],
    tile: &[u8],
) -> Result<(), AccessError> {
    let Some(plan) = check(region, size, address, axes, tile.len())? else { return Ok(()) };
    if !region.is_writable() {
        return Err(AccessError { kind: AccessErrorKind::ReadOnly, element: 0, address });
    }
    // SAFETY: `check` has shown that every element is inside the region and inside the tile. A
    // store only reads the tile.
    unsafe { copy::<false>(size, &plan, region.pointer(address), tile.as_ptr().cast_mut()) };
    Ok(())
}

/// Copies a strided block of one tile to another: transposes, broadcasts, slices.
///
/// `axes` describe the loops, outermost first: `stride` counts bytes of `from`, whose first element
/// is at byte `start`, and `tile` counts elements of `to`. Panics if an element is outside of
/// `from` or `to`.
pub fn rearrange(size: usize, axes: &[Axis], to: &mut [u8], from: &[u8], start: usize) {
    if let [outer, inner @ ..] = axes
        && axes.len() > MAX_RANK
    {
        for place in 0..outer.count {
            let start = start as i64 + place as i64 * outer.stride;
            rearrange(size, inner, &mut to[place * outer.tile * size..], from, start as usize);
        }
        return;
    }
    let region = Region::read_only(from);
    let address = region.address().wrapping_add(start as u64);
    // A load only reads the region.
    load_block(&region, size, address, axes, to).expect("the block lies in the tile");
}

/// Checks a block against the region and the length of the tile, and plans the copy. Returns `None`
/// if the block has no elements.
#[inline]
fn check(
    region: &Region<'_>,
    size: usize,
    address: u64,
    axes: &[Axis],
    tile: usize,
) -> Result<Option<BlockAxes>, AccessError> {
    assert!(matches!(size, 1 | 2 | 4 | 8), "elements have 1, 2, 4 or 8 bytes");
    let Some(plan) = plan(axes) else { return Ok(None) };
    let inside = extent(size, plan.axes()).is_some_and(|(low, high)| {
        high.checked_sub(low)
            .is_some_and(|bytes| region.contains(address.wrapping_add_signed(low), bytes as usize))
    });
    if !inside {
        return Err(find_outside(region, size, address, axes));
    }
    let last = plan.axes().iter().try_fold(0_usize, |last, axis| {
        (axis.count - 1).checked_mul(axis.tile).and_then(|reach| last.checked_add(reach))
    });
    assert!(last.is_some_and(|last| last < tile / size), "the block lies in the tile");
    Ok(Some(plan))
}

/// Copies a planned block.
///
/// # Safety
///
/// Every element of the plan is valid at `memory` for reads (`LOAD`) or writes, and at `tile` for
/// the opposite.
#[inline]
unsafe fn copy<const LOAD: bool>(size: usize, plan: &BlockAxes, memory: *mut u8, tile: *mut u8) {
    let mut axes = [Axis::default(); MAX_RANK];
    let rank = plan.axes().len();
    axes[..rank].copy_from_slice(plan.axes());
    // SAFETY: as for this function.
    unsafe {
        match size {
            1 => walk::<u8, LOAD>(order(&mut axes[..rank], 1), memory, tile.cast()),
            2 => walk::<u16, LOAD>(order(&mut axes[..rank], 2), memory, tile.cast()),
            4 => walk::<u32, LOAD>(order(&mut axes[..rank], 4), memory, tile.cast()),
            _ => walk::<u64, LOAD>(order(&mut axes[..rank], 8), memory, tile.cast()),
        }
    }
}

/// If the last axis is not contiguous in memory but another axis is, moves that other axis directly
/// before the last one.
#[inline]
fn order(axes: &mut [Axis], size: i64) -> &[Axis] {
    if let [outer @ .., last] = &mut *axes
        && last.stride != size
        && let Some(contiguous) = outer.iter().position(|axis| axis.stride == size)
    {
        outer[contiguous..].rotate_left(1);
    }
    axes
}

/// Copies one element.
///
/// # Safety
///
/// Both pointers are valid for it.
#[inline(always)]
unsafe fn element<T: Copy, const LOAD: bool>(memory: *mut u8, tile: *mut T) {
    // SAFETY: as for this function; neither needs to be aligned.
    unsafe {
        if LOAD {
            tile.write_unaligned(memory.cast::<T>().read_unaligned());
        } else {
            memory.cast::<T>().write_unaligned(tile.read_unaligned());
        }
    }
}

/// Copies a block: a loop per axis, and fast paths for the innermost ones.
///
/// # Safety
///
/// Every element of the axes is valid at `memory` and at `tile`.
unsafe fn walk<T: Word, const LOAD: bool>(axes: &[Axis], memory: *mut u8, tile: *mut T) {
    let contiguous = |axis: &Axis| axis.stride == size_of::<T>() as i64;
    // SAFETY: every pointer that is formed is that of an element of the axes.
    unsafe {
        match axes {
            [] => element::<T, LOAD>(memory, tile),
            [row] if contiguous(row) && row.tile == 1 => {
                // Counted in bytes: neither pointer has to be aligned.
                if LOAD {
                    memory.copy_to_nonoverlapping(tile.cast(), row.count * size_of::<T>());
                } else {
                    memory.copy_from_nonoverlapping(tile.cast(), row.count * size_of::<T>());
                }
            }
            [row] if LOAD && row.stride == 0 && row.tile == 1 => {
                // A loop of its own, so that the compiler vectorizes it.
                let value = memory.cast::<T>().read_unaligned();
                for i in 0..row.count {
                    tile.add(i).write_unaligned(value);
                }
            }
            [row] if LOAD && row.stride == 0 => {
                let value = memory.cast::<T>().read_unaligned();
                for i in 0..row.count {
                    tile.add(i * row.tile).write_unaligned(value);
                }
            }
            [row] => {
                for i in 0..row.count {
                    element::<T, LOAD>(
                        memory.offset(i as isize * row.stride as isize),
                        tile.add(i * row.tile),
                    );
                }
            }
            [run, row] if contiguous(run) && row.tile == 1 && !contiguous(row) && row.stride != 0 => {
                transpose::<T, LOAD>(*run, *row, memory, tile);
            }
            [outer, inner @ ..] => {
                for i in 0..outer.count {
                    let memory = memory.offset(i as isize * outer.stride as isize);
                    walk::<T, LOAD>(inner, memory, tile.add(i * outer.tile));
                }
            }
        }
    }
}

/// Copies two axes, one contiguous in memory and the other in the tile, through square blocks on
/// the stack.
///
/// # Safety
///
/// Every element of the axes is valid at `memory` and at `tile`.
unsafe fn transpose<T: Word, const LOAD: bool>(run: Axis, row: Axis, memory: *mut u8, tile: *mut T) {
    // In the order of memory, `block[j][i]` is element i of the run and j of the row; in the order
    // of the tile, `block[i][j]` is.
    let mut block = [[T::default(); SIDE]; SIDE];
    for first_j in (0..row.count).step_by(SIDE) {
        let columns = (row.count - first_j).min(SIDE);
        for first_i in (0..run.count).step_by(SIDE) {
            let rows = (run.count - first_i).min(SIDE);
            // SAFETY: the elements are those of the axes, and the runs in the block are within it.
            unsafe {
                let memory_run = |j: usize| {
                    memory.offset((first_j + j) as isize * row.stride as isize).add(first_i * size_of::<T>())
                };
                let tile_row = |i: usize| tile.add((first_i + i) * run.tile + first_j);
                if LOAD {
                    for (j, line) in block[..columns].iter_mut().enumerate() {
                        memory_run(j).copy_to_nonoverlapping(line.as_mut_ptr().cast(), rows * size_of::<T>());
                    }
                    T::transpose(&mut block);
                    for (i, line) in block[..rows].iter().enumerate() {
                        tile_row(i)
                            .cast::<u8>()
                            .copy_from_nonoverlapping(line.as_ptr().cast(), columns * size_of::<T>());
                    }
                } else {
                    for (i, line) in block[..rows].iter_mut().enumerate() {
                        tile_row(i)
                            .cast::<u8>()
                            .copy_to_nonoverlapping(line.as_mut_ptr().cast(), columns * size_of::<T>());
                    }
                    T::transpose(&mut block);
                    for (j, line) in block[..columns].iter().enumerate() {
                        memory_run(j).copy_from_nonoverlapping(line.as_ptr().cast(), rows * size_of::<T>());
                    }
                }
            }
        }
    }
}
