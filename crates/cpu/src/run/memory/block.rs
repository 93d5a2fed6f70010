//! Copies strided blocks between memory and a tile, and from one tile to another.

use super::plan::{Axis, BlockAxes, MAX_RANK, plan};
use super::{AccessError, AccessErrorKind, LINE, Region, find_outside, is_inside, stream};
use crate::run::kernels::shuffle::Word;
use crate::tuning::{MAX_INLINE_ROW, PREFETCHED_ROWS};

/// Reads a strided block of elements of 1, 2, 4 or 8 bytes into a tile.
///
/// Element `[i, j, …]` of the block is at `address + i * axes[0].stride + j * axes[1].stride + …`
/// in memory. In the tile, its index is `i * axes[0].tile + j * axes[1].tile + …`. The other
/// elements of the tile stay unchanged, so a block may be a part of a tile.
///
/// Fails, with the tile unchanged, if an element is not inside the region. Panics if the block
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
/// If several elements share an address, memory has one of these elements afterwards. Also fails,
/// with nothing written, if the block has elements and the region is read-only.
///
/// [`store_run`](super::store_run) explains `non_temporal`. It has an effect on blocks of two axes
/// whose rows are whole cache lines.
pub fn store_block(
    region: &Region<'_>,
    size: usize,
    address: u64,
    axes: &[Axis],
    tile: &[u8],
    non_temporal: bool,
) -> Result<(), AccessError> {
    let Some(plan) = check(region, size, address, axes, tile.len())? else { return Ok(()) };
    if !region.is_writable() {
        return Err(AccessError { kind: AccessErrorKind::ReadOnly, element: 0, address });
    }
    let is_line = |stride: i64| stride.unsigned_abs().is_multiple_of(LINE as u64);
    if non_temporal
        && let &[outer, row] = plan.axes()
        && (row.stride, row.tile) == (size as i64, 1)
        && is_line((row.count * size) as i64)
        && is_line(outer.stride)
        && region.pointer(address).addr().is_multiple_of(LINE)
    {
        for i in 0..outer.count {
            let memory = region.pointer(address).wrapping_offset(i as isize * outer.stride as isize);
            // SAFETY: `check` has shown that the row is inside the region. The row begins at a
            // multiple of a line.
            unsafe { stream(memory, &tile[i * outer.tile * size..][..row.count * size]) };
        }
        return Ok(());
    }
    // SAFETY: `check` has shown that every element is inside the region and inside the tile. A
    // store only reads the tile.
    unsafe { copy::<false>(size, &plan, region.pointer(address), tile.as_ptr().cast_mut()) };
    Ok(())
}

/// Reads a strided block into a tile, like [`load_block`].
///
/// # Safety
///
/// Every element of the block is valid at `memory` for reads.
pub(super) unsafe fn load_checked(size: usize, memory: *mut u8, axes: &[Axis], tile: &mut [u8]) {
    let Some(plan) = plan(axes) else { return };
    check_tile(size, &plan, tile.len());
    // SAFETY: the caller guarantees the memory, and `check_tile` has shown that every element is in
    // the tile.
    unsafe { copy::<true>(size, &plan, memory, tile.as_mut_ptr()) };
}

/// Copies a strided block of one tile to another: transposes, broadcasts, slices.
///
/// `axes` describe the loops, outermost first. Each `stride` is in bytes of `from`, and each `tile`
/// is in elements of `to`. The first element is at byte `start` of `from`. Panics if an element is
/// outside of `from` or `to`.
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

/// Checks a block against the region and the tile, and plans the copy. Returns `None` if the block
/// is empty.
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
    if !is_inside(region, size, address, plan.axes()) {
        return Err(find_outside(region, size, address, axes));
    }
    check_tile(size, &plan, tile);
    Ok(Some(plan))
}

/// Panics if a block exceeds a tile of this length.
#[inline]
fn check_tile(size: usize, plan: &BlockAxes, tile: usize) {
    let last = plan.axes().iter().try_fold(0_usize, |last, axis| {
        (axis.count - 1).checked_mul(axis.tile).and_then(|reach| last.checked_add(reach))
    });
    assert!(last.is_some_and(|last| last < tile / size), "the block lies in the tile");
}

/// Copies a planned block.
///
/// # Safety
///
/// With `LOAD`, every element of the plan is valid for reads at `memory` and for writes at `tile`.
/// Without `LOAD`, every element is valid for writes at `memory` and for reads at `tile`.
#[inline]
unsafe fn copy<const LOAD: bool>(size: usize, plan: &BlockAxes, memory: *mut u8, tile: *mut u8) {
    let mut axes = [Axis::default(); MAX_RANK];
    let rank = plan.axes().len();
    axes[..rank].copy_from_slice(plan.axes());
    // SAFETY: the caller keeps the contract of this function.
    unsafe {
        match size {
            1 => walk::<u8, 16, LOAD>(order(&mut axes[..rank], 1), memory, tile.cast()),
            2 => walk::<u16, 8, LOAD>(order(&mut axes[..rank], 2), memory, tile.cast()),
            4 => walk::<u32, 8, LOAD>(order(&mut axes[..rank], 4), memory, tile.cast()),
            _ => walk::<u64, 4, LOAD>(order(&mut axes[..rank], 8), memory, tile.cast()),
        }
    }
}

/// Moves an axis that is contiguous in memory directly before the last axis.
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
/// Both pointers are valid for an element.
#[inline(always)]
unsafe fn element<T: Copy, const LOAD: bool>(memory: *mut u8, tile: *mut T) {
    // SAFETY: the caller guarantees both pointers, and neither needs to be aligned.
    unsafe {
        if LOAD {
            tile.write_unaligned(memory.cast::<T>().read_unaligned());
        } else {
            memory.cast::<T>().write_unaligned(tile.read_unaligned());
        }
    }
}

/// Copies short rows of `bytes` bytes.
///
/// # Safety
///
/// Every row of the axis is valid at `memory` and at `tile`.
#[inline(always)]
unsafe fn copy_rows<const LOAD: bool>(rows: Axis, memory: *mut u8, tile: *mut u8, bytes: usize, size: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        simd.vectorize(
            #[inline(always)]
            || {
                // SAFETY: the caller keeps the contract of this function.
                unsafe { copy_each_row::<LOAD>(rows, memory, tile, bytes, size) };
            },
        );
        return;
    }
    // SAFETY: the caller keeps the contract of this function.
    unsafe { copy_each_row::<LOAD>(rows, memory, tile, bytes, size) };
}

/// Copies rows, and prefetches later rows in a load: the hardware prefetches only the memory after
/// a row.
///
/// # Safety
///
/// Every row of the axis is valid at `memory` and at `tile`.
#[inline(always)]
unsafe fn copy_each_row<const LOAD: bool>(
    rows: Axis,
    memory: *mut u8,
    tile: *mut u8,
    bytes: usize,
    size: usize,
) {
    let row = |i: usize| memory.wrapping_offset(i as isize * rows.stride as isize);
    for i in 0..rows.count {
        let later = i + PREFETCHED_ROWS;
        if LOAD && later < rows.count {
            for line in (0..bytes).step_by(LINE) {
                prefetch(row(later).wrapping_add(line));
            }
        }
        // SAFETY: the caller keeps the contract of this function.
        unsafe { copy_row::<LOAD>(row(i), tile.add(i * rows.tile * size), bytes) };
    }
}

/// Prefetches a cache line that a loop will read.
#[inline(always)]
fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Copies a short row by cache lines and 16-byte elements, faster than a call of `memcpy`.
///
/// # Safety
///
/// Both pointers are valid for the bytes.
#[inline(always)]
unsafe fn copy_row<const LOAD: bool>(memory: *mut u8, tile: *mut u8, bytes: usize) {
    let (from, to) = if LOAD { (memory, tile) } else { (tile, memory) };
    let mut done = 0;
    // SAFETY: the bytes are within the row, and neither pointer needs to be aligned.
    unsafe {
        while done + LINE <= bytes {
            to.add(done)
                .cast::<[u8; LINE]>()
                .write_unaligned(from.add(done).cast::<[u8; LINE]>().read_unaligned());
            done += LINE;
        }
        while done + 16 <= bytes {
            to.add(done).cast::<u128>().write_unaligned(from.add(done).cast::<u128>().read_unaligned());
            done += 16;
        }
        while done < bytes {
            to.add(done).write(from.add(done).read());
            done += 1;
        }
    }
}

/// Copies a block with a loop per axis, and with fast paths for the innermost axes.
///
/// # Safety
///
/// Every element of the axes is valid at `memory` and at `tile`.
unsafe fn walk<T: Word<SIDE>, const SIDE: usize, const LOAD: bool>(
    axes: &[Axis],
    memory: *mut u8,
    tile: *mut T,
) {
    let contiguous = |axis: &Axis| axis.stride == size_of::<T>() as i64;
    // SAFETY: every pointer that the code forms points to an element of the axes.
    unsafe {
        match axes {
            [] => element::<T, LOAD>(memory, tile),
            [row] if contiguous(row) && row.tile == 1 => {
                // Copies bytes, because the pointers need not be aligned.
                if LOAD {
                    memory.copy_to_nonoverlapping(tile.cast(), row.count * size_of::<T>());
                } else {
                    memory.copy_from_nonoverlapping(tile.cast(), row.count * size_of::<T>());
                }
            }
            [row] if LOAD && row.stride == 0 && row.tile == 1 => {
                // The loop is separate so that the compiler vectorizes it.
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
                transpose::<T, SIDE, LOAD>(*run, *row, memory, tile);
            }
            [outer, row]
                if contiguous(row) && row.tile == 1 && row.count * size_of::<T>() <= MAX_INLINE_ROW =>
            {
                copy_rows::<LOAD>(*outer, memory, tile.cast(), row.count * size_of::<T>(), size_of::<T>());
            }
            [outer, inner @ ..] => {
                for i in 0..outer.count {
                    let memory = memory.offset(i as isize * outer.stride as isize);
                    walk::<T, SIDE, LOAD>(inner, memory, tile.add(i * outer.tile));
                }
            }
        }
    }
}

/// Copies two axes through square blocks in registers. `run` is contiguous in memory, and `row` in
/// the tile.
///
/// # Safety
///
/// Every element of the axes is valid at `memory` and at `tile`.
unsafe fn transpose<T: Word<SIDE>, const SIDE: usize, const LOAD: bool>(
    run: Axis,
    row: Axis,
    memory: *mut u8,
    tile: *mut T,
) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        simd.vectorize(
            #[inline(always)]
            || {
                // SAFETY: the caller keeps the contract of this function.
                unsafe {
                    transpose_blocks::<T, SIDE, LOAD>(
                        run,
                        row,
                        memory,
                        tile,
                        #[inline(always)]
                        |block| T::transpose_v3(simd, block),
                    );
                }
            },
        );
        return;
    }
    // SAFETY: the caller keeps the contract of this function.
    unsafe { transpose_blocks::<T, SIDE, LOAD>(run, row, memory, tile, T::transpose) };
}

/// Copies two axes, with a function that transposes a block.
///
/// # Safety
///
/// Every element of the axes is valid at `memory` and at `tile`.
#[inline(always)]
unsafe fn transpose_blocks<T: Word<SIDE>, const SIDE: usize, const LOAD: bool>(
    run: Axis,
    row: Axis,
    memory: *mut u8,
    tile: *mut T,
    transpose: impl Fn([[T; SIDE]; SIDE]) -> [[T; SIDE]; SIDE],
) {
    let (mut first_j, mut first_i) = (0, 0);
    while first_j < row.count {
        let (columns, rows) = (SIDE.min(row.count - first_j), SIDE.min(run.count - first_i));
        // SAFETY: the elements are those of the axes, and no pointer has to be aligned.
        unsafe {
            let memory = memory.offset(first_j as isize * row.stride as isize).add(first_i * size_of::<T>());
            let tile = tile.add(first_i * run.tile + first_j);
            if rows == SIDE && columns == SIDE {
                // `block[j][i]` is the element i along `run` and j along `row`, in the order of
                // memory.
                let mut block = [[T::default(); SIDE]; SIDE];
                for (index, line) in block.iter_mut().enumerate() {
                    *line = if LOAD {
                        memory
                            .offset(index as isize * row.stride as isize)
                            .cast::<[T; SIDE]>()
                            .read_unaligned()
                    } else {
                        tile.add(index * run.tile).cast::<[T; SIDE]>().read_unaligned()
                    };
                }
                for (index, line) in transpose(block).into_iter().enumerate() {
                    if LOAD {
                        tile.add(index * run.tile).cast::<[T; SIDE]>().write_unaligned(line);
                    } else {
                        memory
                            .offset(index as isize * row.stride as isize)
                            .cast::<[T; SIDE]>()
                            .write_unaligned(line);
                    }
                }
            } else {
                for i in 0..rows {
                    for j in 0..columns {
                        let memory = memory.offset(j as isize * row.stride as isize).add(i * size_of::<T>());
                        element::<T, LOAD>(memory, tile.add(i * run.tile + j));
                    }
                }
            }
        }
        first_i += SIDE;
        if first_i >= run.count {
            (first_i, first_j) = (0, first_j + SIDE);
        }
    }
}
