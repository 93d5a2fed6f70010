//! Plans the loops of a strided copy: the fewest loops over the longest runs.

/// The maximum rank of a block.
pub(super) const MAX_RANK: usize = 8;

/// One axis of a strided block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Axis {
    /// The number of elements.
    pub count: usize,
    /// The distance of adjacent elements in memory, in bytes. The distance may be negative, or 0
    /// for a broadcast.
    pub stride: i64,
    /// The distance of adjacent elements in the tile, in elements.
    pub tile: usize,
}

/// The axes of a block after planning, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockAxes {
    axes: [Axis; MAX_RANK],
    rank: usize,
}

impl BlockAxes {
    pub(super) fn axes(&self) -> &[Axis] {
        &self.axes[..self.rank]
    }
}

/// Drops axes of one element, and merges adjacent axes that form one run in memory and in the tile.
/// The order of the axes does not change.
///
/// Returns `None` if the block has no elements. Panics if more than [`MAX_RANK`] axes remain.
pub(super) fn plan(axes: &[Axis]) -> Option<BlockAxes> {
    let mut plan = BlockAxes { axes: [Axis::default(); MAX_RANK], rank: 0 };
    for &axis in axes {
        match axis.count {
            0 => return None,
            1 => {}
            count => match plan.axes[..plan.rank].last_mut() {
                Some(outer)
                    if outer.tile == axis.tile * count && outer.stride == axis.stride * count as i64 =>
                {
                    *outer = Axis { count: outer.count * count, ..axis };
                }
                _ => {
                    plan.axes[plan.rank] = axis;
                    plan.rank += 1;
                }
            },
        }
    }
    Some(plan)
}

/// Returns the axes of a copy between a dense row-major tile and memory. `strides` are the strides
/// in memory, in bytes.
pub fn dense_axes<'a>(shape: &'a [u32], strides: &'a [i64]) -> impl Iterator<Item = Axis> + 'a {
    shape.iter().zip(strides).enumerate().map(|(i, (&count, &stride))| Axis {
        count: count as usize,
        stride,
        tile: shape[i + 1..].iter().map(|&extent| extent as usize).product(),
    })
}

/// Returns the bytes that a block covers, relative to its first element: the lowest offset, and the
/// exclusive highest offset. Returns `None` if the block is empty or an offset exceeds 64 bits.
pub fn extent(size: usize, axes: &[Axis]) -> Option<(i64, i64)> {
    let (mut low, mut high) = (0_i64, size as i64);
    for axis in axes {
        let last = i64::try_from(axis.count).ok()?.checked_sub(1).filter(|&last| last >= 0)?;
        let reach = last.checked_mul(axis.stride)?;
        if reach < 0 {
            low = low.checked_add(reach)?;
        } else {
            high = high.checked_add(reach)?;
        }
    }
    Some((low, high))
}
